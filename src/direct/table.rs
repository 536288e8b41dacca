//! Who is in a leader's kernel session, by the process table (`proc(5)`).
//!
//! A number that is read here is a hint: a process is held by a pidfd first, then its session
//! is read, and then the pidfd must still be alive.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use foster_protocol::{Bytes, Pid, Survivor, Why};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::unistd::{Pid as UnistdPid, getsid};

use super::signalable::Signalable;
use crate::poll::poll_until;
use crate::sys;

/// The process table.
#[derive(Debug)]
pub(super) struct Table {
    root: PathBuf,
}

/// A living process of a session, beside its leader.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) pid: i32,
    pub(super) name: Vec<u8>,
    /// When it started, in ticks since boot: with the number, whether two looks saw the same.
    pub(super) start: u64,
    /// Its process group.
    pub(super) group: i32,
    state: u8,
    /// None where the kernel has no pidfds, or there was no descriptor left.
    pidfd: Option<OwnedFd>,
}

/// What one line of the table says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stat {
    name: Vec<u8>,
    state: u8,
    group: i32,
    session: i32,
    flags: u64,
    threads: u64,
    start: u64,
}

impl Table {
    /// This process's own.
    pub(super) fn new() -> Self {
        Self::at("/proc")
    }

    fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Lists the living members of a session. The caller holds the leader unreaped.
    ///
    /// # Errors
    ///
    /// Where the table is not there, is another pid namespace's, or hides processes: then
    /// nobody can be said to be gone.
    pub(super) fn members(&self, leader: i32) -> io::Result<Vec<Member>> {
        self.check()?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if pid != leader
                && let Some(member) = self.hold(pid, leader)
            {
                found.push(member);
            }
        }
        Ok(found)
    }

    /// Whether the table can be trusted to show everybody: its `self` is this process, and the
    /// first process, which is somebody else's for most, can be read.
    fn check(&self) -> io::Result<()> {
        let own = fs::read_link(self.root.join("self"))?;
        if own.to_str() != Some(std::process::id().to_string().as_str()) {
            return Err(io::Error::other("the table is another namespace's"));
        }
        fs::read(self.root.join("1").join("stat")).map(drop)
    }

    /// Holds a process if it lives and is in the session.
    fn hold(&self, pid: i32, leader: i32) -> Option<Member> {
        // Most processes are strangers: they are not even held. Where the kernel does not say,
        // the line does.
        match getsid(Some(UnistdPid::from_raw(pid))) {
            Ok(session) if session.as_raw() != leader => return None,
            Err(Errno::ESRCH) => return None,
            Ok(_) | Err(_) => {}
        }
        let first = self.stat(pid)?;
        if first.session != leader {
            return None;
        }
        let pidfd = sys::open_pidfd(pid.unsigned_abs()).ok();
        let stat = self.stat(pid)?;
        if stat.session != leader {
            return None;
        }
        let member = Member {
            pid,
            name: stat.name.clone(),
            start: stat.start,
            group: stat.group,
            state: stat.state,
            pidfd,
        };
        let lives = match &member.pidfd {
            Some(_) => member.is_alive(),
            // A main thread that has exited is shown as a zombie while other threads run.
            None => !matches!(stat.state, b'Z' | b'X') || stat.threads > 1,
        };
        lives.then_some(member)
    }

    fn stat(&self, pid: i32) -> Option<Stat> {
        parse(&fs::read(self.root.join(pid.to_string()).join("stat")).ok()?)
    }

    /// Why a member lives on. `refused` says that it could not be signalled.
    pub(super) fn explain(&self, member: &Member, refused: bool) -> Survivor {
        let mut survivor = self.describe(member.pid, member.name.clone(), member.state);
        if refused {
            survivor.why = match &member.pidfd {
                None => Why::NotPinned,
                Some(_) => Why::NotPermitted { uid: survivor.uid },
            };
        }
        survivor
    }

    /// Why a leader lives on. It is held unreaped.
    pub(super) fn explain_leader(&self, pid: i32) -> Survivor {
        let (name, state) = match self.stat(pid) {
            Some(stat) => (stat.name, stat.state),
            None => (Vec::new(), b'?'),
        };
        self.describe(pid, name, state)
    }

    fn describe(&self, pid: i32, name: Vec<u8>, state: u8) -> Survivor {
        let status = fs::read_to_string(self.root.join(pid.to_string()).join("status"));
        let status = status.unwrap_or_default();
        let tracer: i32 = field(&status, "TracerPid:").unwrap_or(0);
        let why = if state == b'D' {
            Why::Uninterruptible
        } else if tracer != 0 {
            Why::HeldByTracer {
                tracer: Pid(tracer),
            }
        } else {
            Why::Dying
        };
        Survivor {
            pid: Pid(pid),
            name: Bytes(name),
            uid: field(&status, "Uid:").unwrap_or(u32::MAX),
            why,
        }
    }
}

impl Member {
    /// Whether it lives; without a pidfd, whether it did at the look.
    pub(super) fn is_alive(&self) -> bool {
        let Some(pidfd) = &self.pidfd else {
            return true;
        };
        let mut polled = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        let looked = poll_until(&mut polled, Some(Duration::ZERO));
        looked.is_err() || polled.iter().all(|one| one.any() == Some(false))
    }

    /// Whether it is held by a pidfd.
    pub(super) fn is_held(&self) -> bool {
        self.pidfd.is_some()
    }

    /// To be polled for its death.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.pidfd
            .as_ref()
            .map(|pidfd| PollFd::new(pidfd.as_fd(), PollFlags::POLLIN))
    }

    /// Signals it, through its pidfd alone. False where it could not be.
    pub(super) fn signal(&self, signal: i32) -> bool {
        let Some(pidfd) = &self.pidfd else {
            return false;
        };
        if Signalable::new(i64::from(self.pid)).is_err() {
            return false;
        }
        match sys::signal_process(pidfd.as_fd(), signal) {
            Ok(()) => true,
            // Gone, which needs no signal any more.
            Err(error) => error.raw_os_error() == Some(libc::ESRCH),
        }
    }
}

/// Whether a child of this process has become its program, by the flag that the kernel keeps of
/// a fork without exec (`PF_FORKNOEXEC`). The pipe that exec closes tells nothing where a
/// stranger, forked at the wrong moment by somebody else in this process, holds a copy of it.
pub(super) fn has_executed(pid: i32) -> bool {
    const FORK_WITHOUT_EXEC: u64 = 0x40;
    let stat = fs::read(format!("/proc/{pid}/stat"));
    stat.ok()
        .and_then(|text| parse(&text))
        .is_some_and(|stat| stat.flags & FORK_WITHOUT_EXEC == 0)
}

/// The first number behind a name in a `status` file.
fn field<T: std::str::FromStr>(status: &str, name: &str) -> Option<T> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The name may hold spaces and parentheses, so the fields are counted from the last `)`.
fn parse(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let name = text.get(open + 1..close)?.to_vec();
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        name,
        state: *fields.first()?.as_bytes().first()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        flags: fields.get(6)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_the_last_parenthesis() {
        let text = b"7 (a) S (b) R 1 5 6 0 -1 64 0 0 0 0 0 0 0 0 20 0 3 0 99 0";
        let stat = parse(text).expect("a line");
        assert_eq!(stat.name, b"a) S (b");
        assert_eq!((stat.state, stat.group, stat.session), (b'R', 5, 6));
        assert_eq!((stat.flags, stat.threads, stat.start), (64, 3, 99));
        assert_eq!(parse(b"7 (a"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_table_that_is_not_there_or_not_ours_or_hides_processes_is_an_error() {
        let folder = std::env::temp_dir().join(format!("foster-table-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let table = Table::at(&folder);
        assert!(table.members(2).is_err(), "no self");
        let own = folder.join("self");
        std::os::unix::fs::symlink("1", &own).expect("a link");
        assert!(table.members(2).is_err(), "another namespace's");
        fs::remove_file(&own).expect("the link goes");
        std::os::unix::fs::symlink(std::process::id().to_string(), &own).expect("a link");
        assert!(table.members(2).is_err(), "the first process is hidden");
        fs::create_dir(folder.join("1")).expect("a folder");
        assert!(
            table.members(2).is_err(),
            "the first process is closed to us"
        );
        fs::write(folder.join("1/stat"), "1 (init) S 0 1 1").expect("a file");
        assert!(table.members(2).is_ok(), "a table of nobody else");
        fs::remove_dir_all(&folder).expect("the folder goes");
    }

    #[test]
    fn this_process_is_found_in_its_own_session_and_not_in_another() {
        let own = std::process::id().cast_signed();
        let table = Table::new();
        let session = table.stat(own).expect("our line").session;
        assert!(table.hold(own, session).is_some());
        assert!(table.hold(own, session + 1).is_none());
    }
}
