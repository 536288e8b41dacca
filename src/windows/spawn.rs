//! From a command to a process that is held: created suspended, put into a job, watched, resumed.

use std::io;
use std::os::windows::io::{AsHandle, OwnedHandle};
use std::os::windows::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, ExitStatus};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use foster_protocol::{Containment, Level, LevelChoice, Missing, Step};
use windows_sys::Win32::Foundation::{
    ERROR_BAD_EXE_FORMAT, ERROR_CALL_NOT_IMPLEMENTED, ERROR_DIRECTORY,
};
use windows_sys::Win32::System::Threading::{CREATE_NEW_PROCESS_GROUP, CREATE_SUSPENDED};

use super::child::Child;
use super::command::Command;
use super::ending::HARD_LIMIT;
use super::gate::Gate;
use super::tree::{State, Tree};
use super::watch::{Orders, watch};
use crate::error::{Error, Repr, Result};
use crate::fallback::Fallback;
use crate::notice::Notice;
use crate::output::Output;
use crate::size::{Item, bytes, checked};
use crate::sys::{self, Event, Job};

/// What a process that is not to run exits with.
const NEVER_RAN: u32 = 1;

/// What a stream is connected to where the command does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defaults {
    /// All three are inherited.
    Inherit,
    /// No input, and both outputs through pipes.
    Capture,
}

/// The two things that can fail while the process is suspended. Tests have others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means {
    /// Makes a job.
    pub(super) job: fn() -> io::Result<Job>,
    /// Resumes every thread of a process.
    pub(super) resume: fn(u32) -> io::Result<usize>,
}

/// What is used.
pub(super) const SYSTEM: Means = Means {
    job: private_job,
    resume: sys::resume,
};

/// A job whose members end when this process closes its handle, or ends.
fn private_job() -> io::Result<Job> {
    let job = Job::new()?;
    job.kill_on_close(true)?;
    Ok(job)
}

impl Command {
    /// Spawns the command. Standard streams that were not set are inherited.
    ///
    /// A command that cannot be put into a job runs all the same: its child carries
    /// [`Notice::NoJob`](crate::Notice::NoJob), and its tree is ended by `taskkill /T /F`, as far
    /// as that finds it.
    ///
    /// # Errors
    ///
    /// Says whether the program or the directory is at fault, and names it; see
    /// [`ErrorKind`](crate::ErrorKind). The command did not run.
    pub fn spawn(&mut self) -> Result<Child> {
        self.gated()?.open()
    }

    /// Spawns the command, waits for its exit and returns what it wrote. Standard input that
    /// was not set is empty; outputs that were not set are captured.
    ///
    /// Returns at the leader's exit and a bounded [`drain`](Self::drain), also where a
    /// background process of the command keeps its output open. Such a process is ended
    /// before long: the child is dropped.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    pub fn output(&mut self) -> Result<Output> {
        self.make(Defaults::Capture, Fallback::Direct, SYSTEM)?
            .open()?
            .wait_with_output()
    }

    /// Spawns the command and waits for its exit. Standard streams that were not set are
    /// inherited; this side's ends of pipes are closed at once. What the command leaves
    /// behind is ended.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn) and [`Child::wait`].
    pub fn status(&mut self) -> Result<ExitStatus> {
        let mut child = self.spawn()?;
        // Nobody would read them, and a command that fills one would never exit.
        drop((child.stdin.take(), child.stdout.take(), child.stderr.take()));
        child.wait()
    }

    /// Spawns the command and holds it before its program: the process is there, suspended and
    /// in its job, and executes nothing until [`Gate::open`]. Where the gate is dropped, or this
    /// process ends, the program never runs.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    pub fn gated(&mut self) -> Result<Gate> {
        self.make(Defaults::Inherit, Fallback::Direct, SYSTEM)
    }

    /// Makes the process up to its gate. The order carries the promise:
    /// 1. It is created suspended, so that it starts nobody before it is held.
    /// 2. It is put into its job. Where that fails, `fallback` says whether it may run.
    /// 3. Its times are watched.
    ///
    /// Whatever goes wrong, it is ended and has not run.
    pub(super) fn make(
        &self,
        defaults: Defaults,
        fallback: Fallback,
        means: Means,
    ) -> Result<Gate> {
        if self.require.is_some_and(|level| level > Level::Direct) {
            return Err(Repr::Unsupported {
                what: "a level above direct is",
            }
            .into());
        }
        self.check_strings()?;
        let mut command = self.to_std(defaults)?;
        let at = Instant::now();
        let mut created = command.spawn().map_err(|error| self.not_created(error))?;
        let (stdin, stdout) = (created.stdin.take(), created.stdout.take());
        let (stderr, pid) = (created.stderr.take(), created.id());
        let leader = OwnedHandle::from(created);
        let job = (means.job)().and_then(|job| job.assign(leader.as_handle()).map(|()| job));
        let job = match (job, fallback) {
            (Ok(job), _) => Some(job),
            (Err(source), Fallback::Refuse) => {
                end_unrun(&leader);
                return Err(self.failed(Step::Session, source));
            }
            (Err(error), Fallback::Direct) => {
                tracing::warn!(%error, pid, "command is in no job");
                None
            }
        };
        let notice = job.is_none().then_some(Notice::NoJob);
        let tree = Arc::new(Tree {
            leader,
            pid,
            job,
            containment: self.containment(),
            detachable: self.detachable,
            on_exit: self.on_exit,
            stir: Event::new().map_err(|source| self.failed(Step::Prepare, source))?,
            state: Mutex::new(State {
                notice,
                ..State::default()
            }),
            bell: Condvar::new(),
        });
        let orders = Orders {
            on_exit: self.on_exit,
            due: self.deadline.and_then(|deadline| at.checked_add(deadline)),
        };
        if let Err(source) = watch(&tree, orders) {
            end_unrun(&tree.leader);
            return Err(self.failed(Step::Prepare, source));
        }
        let child = Child::new(tree, stdin, stdout, stderr, self.drain);
        Ok(Gate::new(child, PathBuf::from(&self.program), means.resume))
    }

    /// Refuses a NUL, as std does, and says where it is.
    fn check_strings(&self) -> Result<()> {
        checked(|| Item::Program, bytes(&self.program))?;
        for (index, arg) in self.args.iter().enumerate() {
            checked(|| Item::Argument(index + 1), bytes(arg))?;
        }
        for (name, value) in self.environment.changes() {
            checked(|| Item::Variable(name.to_owned()), bytes(name))?;
            if let Some(value) = value {
                checked(|| Item::Variable(name.to_owned()), bytes(value))?;
            }
        }
        if let Some(directory) = &self.directory {
            checked(|| Item::Directory, bytes(directory.as_os_str()))?;
        }
        Ok(())
    }

    fn to_std(&self, defaults: Defaults) -> Result<process::Command> {
        let mut command = process::Command::new(&self.program);
        command.args(&self.args);
        self.environment.apply(&mut command);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let (input, output): (fn() -> _, fn() -> _) = match defaults {
            Defaults::Inherit => (process::Stdio::inherit, process::Stdio::inherit),
            Defaults::Capture => (process::Stdio::null, process::Stdio::piped),
        };
        let stream = |given: &Option<super::stdio::Stdio>, default: fn() -> process::Stdio| {
            let made = given.as_ref().map(super::stdio::Stdio::to_std);
            made.unwrap_or_else(|| Ok(default())).map_err(|error| {
                Error::system("handle cannot be duplicated for the command", error)
            })
        };
        command.stdin(stream(&self.stdin, input)?);
        command.stdout(stream(&self.stdout, output)?);
        command.stderr(stream(&self.stderr, output)?);
        command.creation_flags(CREATE_SUSPENDED | CREATE_NEW_PROCESS_GROUP);
        Ok(command)
    }

    fn containment(&self) -> Containment {
        let missing = match self.level {
            None | Some(LevelChoice::Auto | LevelChoice::Exactly(Level::Direct)) => Vec::new(),
            Some(LevelChoice::Exactly(level)) => vec![Missing {
                level,
                errno: ERROR_CALL_NOT_IMPLEMENTED.cast_signed(),
            }],
        };
        Containment {
            level: Level::Direct,
            missing,
        }
    }

    /// The error of a process that was not created.
    fn not_created(&self, source: io::Error) -> Error {
        let program = PathBuf::from(&self.program);
        let code = source.raw_os_error().map(i32::cast_unsigned);
        match &self.directory {
            // Some versions say of it that the program is not there.
            Some(directory) if code == Some(ERROR_DIRECTORY) || !directory.is_dir() => {
                let directory = directory.clone();
                return Repr::Directory { directory, source }.into();
            }
            Some(_) | None => {}
        }
        if source.kind() == io::ErrorKind::NotFound {
            Repr::NotFound { program, source }.into()
        } else if source.kind() == io::ErrorKind::PermissionDenied
            || code == Some(ERROR_BAD_EXE_FORMAT)
        {
            Repr::NotExecutable { program, source }.into()
        } else {
            self.failed(Step::Exec, source)
        }
    }

    fn failed(&self, step: Step, source: io::Error) -> Error {
        let program = PathBuf::from(&self.program);
        Repr::SpawnFailed {
            program,
            step,
            source,
        }
        .into()
    }
}

/// Ends a process that has run nothing, and waits for it.
fn end_unrun(leader: &OwnedHandle) {
    if let Err(error) = sys::terminate(leader.as_handle(), NEVER_RAN) {
        tracing::error!(%error, "suspended process was not ended");
        return;
    }
    match sys::wait_any(&[leader.as_handle()], Some(HARD_LIMIT)) {
        Ok(Some(_)) => {}
        Ok(None) => tracing::error!("suspended process was ended, and is not dead yet"),
        Err(error) => tracing::error!(%error, "suspended process cannot be waited for"),
    }
}
