//! Running programs as a person or a script does: `foster`, a host, or a control without it.

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::time::Duration;

use crate::cgroups::Cgroup;
use crate::deadline::{ANSWER, DEATH, SETTLE, eventually};
use crate::ground::Ground;
use crate::places;
use crate::proc;
use crate::scan::TAG;
use crate::stage::Stage;
use crate::start::start;
use crate::tracer::{Tracer, Witness};

/// A program that is not started yet: its standard streams are pipes, and it carries the tag.
#[derive(Debug)]
pub struct Program {
    command: Command,
    stdin: Option<Stdio>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// A cgroup that it makes others in.
    given: Option<Cgroup>,
}

/// A runner may ignore signals (`nohup` does), and what is ignored is inherited: by a program as
/// by this process, which hears everything from here on.
fn hear_every_signal() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for number in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            crate::sys::default(number).expect("a signal's default");
        }
    });
}

impl Program {
    /// Creates one of this executable.
    #[must_use]
    pub fn new(stage: &Stage, path: impl AsRef<OsStr>) -> Self {
        hear_every_signal();
        let mut command = Command::new(path);
        command.env(TAG, stage.tag());
        Self {
            command,
            stdin: None,
            stdout: None,
            stderr: None,
            given: None,
        }
    }

    /// Creates one of `foster run` with these options, then the command.
    #[must_use]
    pub fn foster(stage: &Stage, args: &[&str]) -> Self {
        Self::on_ground(stage, Ground::of_environment(), "run").args(args)
    }

    /// Creates one of a `foster` on this ground, with its first argument.
    #[must_use]
    pub fn on_ground(stage: &Stage, ground: Ground, first: &str) -> Self {
        if ground.is_plain() {
            return Self::new(stage, places::foster()).arg(first);
        }
        let (words, given) = ground.words(stage);
        let mut program = Self::new(stage, Ground::wrapper()).args(words).arg("--");
        program.given = given;
        program.arg(places::foster()).arg(first)
    }

    /// Creates one of a fixture.
    #[must_use]
    pub fn fixture(stage: &Stage, name: &str) -> Self {
        Self::new(stage, places::fixture(name))
    }

    /// Creates one of the same program, run by a parent that does nothing but wait for it.
    #[must_use]
    pub fn below_a_parent(self, stage: &Stage) -> Self {
        let mut parent = Self::new(stage, "/bin/sh");
        // Standard input is passed on by hand: a shell gives its background jobs none.
        parent.command.args(["-c", "\"$@\" <&0 & wait", "parent"]);
        parent.command.arg(self.command.get_program());
        parent.command.args(self.command.get_args());
        parent.given = self.given;
        parent
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it in this folder.
    #[must_use]
    pub fn directory(mut self, path: &Path) -> Self {
        self.command.current_dir(path);
        self
    }

    /// Runs it as this user and group. Only root can.
    #[must_use]
    pub fn as_user(mut self, user: u32) -> Self {
        use std::os::unix::process::CommandExt;
        self.command.uid(user).gid(user);
        self
    }

    /// Gives it this standard input in place of a pipe.
    #[must_use]
    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = Some(stdin.into());
        self
    }

    /// Gives it this standard output; the [`Process`] has none then.
    #[must_use]
    pub fn stdout(mut self, stdout: OwnedFd) -> Self {
        self.stdout = Some(stdout);
        self
    }

    /// Gives it this standard error; the [`Process`] has none then.
    #[must_use]
    pub fn stderr(mut self, stderr: OwnedFd) -> Self {
        self.stderr = Some(stderr);
        self
    }

    /// Starts it.
    ///
    /// # Panics
    ///
    /// Where it cannot be started.
    #[must_use]
    pub fn start(self) -> Process {
        let Self {
            mut command,
            stdin,
            stdout: given_stdout,
            stderr: given_stderr,
            given,
        } = self;
        let (stdout, out) = Tracer::new();
        let (stderr, err) = Tracer::new();
        command
            .stdin(stdin.unwrap_or_else(Stdio::piped))
            .stdout(given_stdout.unwrap_or(out))
            .stderr(given_stderr.unwrap_or(err));
        let mut child = start(&mut command);
        // The builder goes here, and with it the last write ends in this process.
        drop(command);
        let stdin = child.stdin.take();
        let witness = Witness::of(i32::try_from(child.id()).expect("a pid fits"));
        Process {
            child,
            witness,
            stdin,
            stdout,
            stderr,
            status: None,
            _given: given,
        }
    }

    /// Runs it to its end, with an empty standard input.
    #[must_use]
    pub fn run(self) -> Finished {
        let mut process = self.start();
        process.close_stdin();
        process.finish(ANSWER)
    }
}

/// A program that was started. Dropping it kills it, if it lives; what `foster` and hosts have
/// started ends with them.
#[derive(Debug)]
pub struct Process {
    child: Child,
    witness: Witness,
    stdin: Option<ChildStdin>,
    /// The read end of its standard output.
    pub stdout: Tracer,
    /// The read end of its standard error.
    pub stderr: Tracer,
    status: Option<ExitStatus>,
    /// Its last part, so that what it has started is gone.
    _given: Option<Cgroup>,
}

/// What a program left when it was over.
#[derive(Debug)]
pub struct Finished {
    /// Its status.
    pub status: ExitStatus,
    /// Everything that came through its standard output.
    pub stdout: String,
    /// Everything that came through its standard error.
    pub stderr: String,
}

impl Finished {
    /// The exit code.
    ///
    /// # Panics
    ///
    /// Where it died of a signal.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("{self:?}"))
    }

    /// The signal that it died of, if it did.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

impl Process {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.witness.pid()
    }

    /// Its pidfd.
    #[must_use]
    pub fn witness(&self) -> &Witness {
        &self.witness
    }

    /// Signals it.
    ///
    /// # Panics
    ///
    /// Where the kernel refuses.
    pub fn signal(&self, number: i32) {
        self.witness.signal(number);
    }

    /// Writes a line to its standard input.
    ///
    /// # Panics
    ///
    /// Where nobody reads it.
    pub fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("its standard input is open");
        writeln!(stdin, "{line}").expect("it reads its standard input");
    }

    /// Gives its standard input an end.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for its exit.
    ///
    /// # Panics
    ///
    /// Where it lives at the deadline.
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        if let Some(status) = self.status {
            return status;
        }
        self.witness.wait_for_death(within);
        let status = self.child.wait().expect("it is a child of this process");
        self.status = Some(status);
        status
    }

    /// Waits for its exit and for the end of both its outputs.
    ///
    /// # Panics
    ///
    /// Where it lives at the deadline, or somebody still holds an output.
    pub fn finish(mut self, within: Duration) -> Finished {
        let text = |bytes| String::from_utf8(bytes).expect("it writes text");
        let stdout = text(self.stdout.wait_for_end(within));
        let status = self.wait(within);
        let stderr = text(self.stderr.wait_for_end(within));
        Finished {
            status,
            stdout,
            stderr,
        }
    }

    /// The one process that it has started itself: the helper of a host.
    ///
    /// # Panics
    ///
    /// Where it has none in time, or several.
    #[must_use]
    pub fn only_child(&self) -> Witness {
        only_child_of(self.pid())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_some() {
            return;
        }
        let is_failing = std::thread::panicking();
        let killed = self.child.kill().and_then(|()| self.child.wait());
        assert!(is_failing || killed.is_ok(), "{killed:?}");
    }
}

/// Takes hold of the one child of a process that the test has started.
///
/// # Panics
///
/// Where it has none in time, or several.
#[must_use]
pub fn only_child_of(parent: i32) -> Witness {
    let mut found = None;
    eventually("the process has one child", SETTLE, || {
        let children = proc::children(parent);
        let [child] = children.as_slice() else {
            return false;
        };
        let pid = child.pid;
        let Ok(pidfd) = crate::sys::pidfd_open(pid) else {
            return false;
        };
        let witness = Witness::new(pid, pidfd);
        // The pidfd pins whoever has the number now; a second look says that it is the child.
        let is_child = proc::stat(pid).is_some_and(|stat| stat.parent == parent);
        let is_held = is_child && witness.is_alive();
        found = is_held.then_some(witness);
        is_held
    });
    found.expect("the child was found")
}

/// Ends processes that a control left behind: those that the test holds by their pidfds.
///
/// # Panics
///
/// Where one of them lives at the deadline.
pub fn clean_up(left: &[Witness]) {
    for witness in left.iter().filter(|witness| witness.is_alive()) {
        // It may die between the look and the signal, which is as well.
        let killed = crate::sys::pidfd_signal(witness.as_fd(), libc::SIGKILL);
        let is_gone = !witness.is_alive();
        assert!(killed.is_ok() || is_gone, "{killed:?}");
    }
    for witness in left {
        witness.wait_for_death(DEATH);
    }
}
