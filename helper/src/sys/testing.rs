//! What the tests of this room share: spawning, waiting with a deadline, forked-off processes.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use foster_protocol::{Bytes, Mapping, Spec, Step};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::pipe2;

use super::kernel::{Features, probe};
use super::leader::Leader;
use super::raw::{self, Who};
use super::spawn::{Born, Context, Plan, Progress, Reading, read_progress, spawn};
use super::{own, proc};

/// The longest that anything here may take.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// Held while a child is forked and while a program is written: a child that has a copy of
/// the descriptor being written to makes running that program fail with `ETXTBSY`.
static FORK: Mutex<()> = Mutex::new(());

/// The kernel as it is, and as it would be with less.
pub(super) fn variants() -> Vec<Features> {
    let all = probe();
    let old = Features {
        clone3: false,
        ..all
    };
    vec![
        all,
        old,
        Features {
            close_range: false,
            ..all
        },
        Features {
            pidfd: false,
            pidfd_group: false,
            ..old
        },
    ]
}

pub(super) fn context_with(features: Features) -> Context {
    Context {
        features,
        null: own::open_null().unwrap(),
        nofile: getrlimit(Resource::RLIMIT_NOFILE).unwrap(),
        oom_score: None,
        helper_pid: std::process::id().cast_signed(),
    }
}

pub(super) fn context() -> Context {
    context_with(probe())
}

/// A command found in the usual places.
pub(super) fn command(words: &[&str]) -> Spec {
    Spec {
        program: Bytes::from(words[0]),
        args: words.iter().map(|word| Bytes::from(*word)).collect(),
        env: vec![Bytes::from("PATH=/usr/bin:/bin")],
        ..Spec::default()
    }
}

/// Maps passed descriptors, in order, to these targets.
pub(super) fn mapped(spec: Spec, targets: &[i32]) -> Spec {
    let descriptors = (0_u32..)
        .zip(targets)
        .map(|(source, &target)| Mapping { target, source })
        .collect();
    Spec {
        descriptors,
        ..spec
    }
}

/// A command that gives back what it is told until that ends; it is passed its standard input
/// and output.
pub(super) fn waiting() -> (Spec, [OwnedFd; 2], Talk) {
    let (input, hold) = pipe();
    let (echo, output) = pipe();
    (command(&["cat"]), [input, output], Talk { hold, echo })
}

/// The other ends of a waiting command. It ends when this is dropped.
pub(super) struct Talk {
    hold: OwnedFd,
    echo: OwnedFd,
}

impl Talk {
    /// Waits until the command answers. Only then has it been loaded: at exec the status pipe
    /// closes before the kernel has set the name and arguments, and before the loader is done.
    pub(super) fn settle(&self) {
        nix::unistd::write(&self.hold, b"x\n").unwrap();
        await_readable(self.echo.as_fd(), "the answer of a command");
        assert_eq!(nix::unistd::read(&self.echo, &mut [0; 2]), Ok(2));
    }
}

pub(super) fn pipe() -> (OwnedFd, OwnedFd) {
    pipe2(OFlag::O_CLOEXEC).unwrap()
}

pub(super) fn start(spec: &Spec, passed: Vec<OwnedFd>, context: &Context) -> Born {
    try_start(spec, passed, context).unwrap()
}

pub(super) fn try_start(
    spec: &Spec,
    passed: Vec<OwnedFd>,
    context: &Context,
) -> Result<Born, (Step, i32)> {
    own::block_all_signals().unwrap();
    let plan = Plan::new(spec, passed, context)?;
    let _forking = FORK.lock().unwrap_or_else(PoisonError::into_inner);
    spawn(plan, context, None)
}

/// Waits until a descriptor is readable.
pub(super) fn await_readable(fd: BorrowedFd<'_>, what: &str) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "{what}: not within {LIMIT:?}");
        let timeout = PollTimeout::try_from(left).unwrap();
        if poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], timeout).unwrap() > 0 {
            return;
        }
    }
}

/// Reads one record.
pub(super) fn next_record(born: &Born) -> Option<Progress> {
    await_readable(born.status.as_fd(), "a record of the child");
    match read_progress(born.status.as_fd()).unwrap() {
        Reading::Record(progress) => Some(progress),
        Reading::Nothing => panic!("a readable status pipe gave nothing"),
        Reading::Closed => None,
    }
}

/// Reads every record to the end of file.
pub(super) fn records(born: &Born) -> Vec<Progress> {
    std::iter::from_fn(|| next_record(born)).take(9).collect()
}

/// Starts a command and waits until it runs.
pub(super) fn running(spec: &Spec, passed: Vec<OwnedFd>, context: &Context) -> Leader {
    let born = start(spec, passed, context);
    assert_eq!(records(&born), [Progress::Executing]);
    born.leader
}

/// Waits until a leader is dead, and leaves it unreaped.
pub(super) fn await_death(leader: &Leader) {
    match leader.pidfd() {
        Some(pidfd) => await_readable(pidfd, "the death of a leader"),
        None => {
            let options = libc::WEXITED | libc::WNOWAIT | libc::__WALL;
            raw::waitid(Who::Pid(leader.pid().0), options).unwrap();
        }
    }
}

/// Kills a leader's group and reaps it.
pub(super) fn finish(leader: Leader) {
    leader.signal_group(libc::SIGKILL).unwrap();
    reaped(leader);
}

/// Waits for the death of a leader, reaps it and gives its status.
pub(super) fn reaped(leader: Leader) -> i32 {
    await_death(&leader);
    let (status, _) = leader.peek().unwrap().unwrap();
    leader.reap().map_err(|(_, error)| error).unwrap();
    status
}

/// The record of a spawn that fails, after which its child is reaped.
pub(super) fn failure(spec: &Spec, passed: Vec<OwnedFd>) -> (Step, i32) {
    let born = start(spec, passed, &context());
    let records = records(&born);
    reaped(born.leader);
    match records.last() {
        Some(&Progress::Failed { step, errno }) => (step, errno),
        other => panic!("the spawn did not fail: {other:?}"),
    }
}

/// Runs a command and gives what it wrote to its standard output.
pub(super) fn output(spec: Spec, context: &Context) -> String {
    let (reader, writer) = pipe();
    let leader = running(&mapped(spec, &[1]), vec![writer], context);
    let text = read_to_end(reader);
    assert_eq!(reaped(leader), 0, "{text}");
    text
}

pub(super) fn read_to_end(reader: OwnedFd) -> String {
    let mut file = File::from(reader);
    let mut text = Vec::new();
    loop {
        await_readable(file.as_fd(), "output or its end");
        let mut part = [0; 4096];
        match file.read(&mut part).unwrap() {
            0 => return String::from_utf8_lossy(&text).into_owned(),
            count => text.extend_from_slice(&part[..count]),
        }
    }
}

/// A line of `/proc/PID/status`.
pub(super) fn status_line(pid: i32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The descriptors of a process and what each one is.
pub(super) fn descriptors_of(pid: i32) -> Vec<(i32, PathBuf)> {
    let mut found: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let number = entry.file_name().to_str().unwrap().parse().unwrap();
            (number, fs::read_link(entry.path()).unwrap())
        })
        .collect();
    found.sort();
    found
}

pub(super) fn what_is(fd: &OwnedFd) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap()
}

/// A folder of this test's own.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("foster-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a program and gives its path.
    pub(super) fn program(&self, name: &str, text: &str, mode: u32) -> String {
        let path = self.0.join(name);
        let _writing = FORK.lock().unwrap_or_else(PoisonError::into_inner);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind is in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a test in a process of its own, whose main thread it has: what it does to its process
/// does not reach the other tests.
pub(super) fn in_own_process(test: impl FnOnce()) {
    let (reader, writer) = pipe();
    let leader = {
        let forking = FORK.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the C library's fork leaves its allocator usable in the child, which calls
        // nothing that other threads of the tests lock.
        let pid = unsafe { libc::fork() };
        assert_ne!(pid, -1);
        if pid == 0 {
            drop((forking, reader));
            let failed = catch_unwind(AssertUnwindSafe(test)).err();
            if let Some(panic) = &failed {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                let _ = File::from(writer).write_all(text.unwrap_or("panic").as_bytes());
            }
            raw::exit(i32::from(failed.is_some()));
        }
        Leader::new(pid, Some(raw::pidfd_open(pid).unwrap()))
    };
    drop(writer);
    let pidfd = leader.pidfd().unwrap();
    let timeout = PollTimeout::try_from(LIMIT).unwrap();
    let ready = poll(&mut [PollFd::new(pidfd, PollFlags::POLLIN)], timeout).unwrap();
    if ready == 0 {
        leader.signal(libc::SIGKILL).unwrap();
    }
    let status = reaped(leader);
    assert_eq!(ready, 1, "a process of a test hangs");
    assert_eq!(status, 0, "{}", read_to_end(reader));
}

/// Whether a number is that of a process, dead or alive.
pub(super) fn exists(pid: i32) -> bool {
    proc::stat(pid).is_ok()
}
