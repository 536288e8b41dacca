//! What `/proc` says (`proc(5)`), and processes that are held by pidfd.
//!
//! A number that was read here is a hint. It becomes a process in [`Held::open`].

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use foster_protocol::{Bytes, Mark, Pid, SessionId, Survivor, Why};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::report::Found;
use crate::sys;

/// How `/proc/PID/limits` calls the limit that bears marks.
const LIMIT: &str = "Max file locks";

/// Who a process is.
#[derive(Clone, Debug)]
pub(super) struct Stat {
    pub(super) pid: i32,
    name: Vec<u8>,
    state: u8,
    pub(super) parent: i32,
    pub(super) group: i32,
}

/// A process that bore the mark while it was held, and lived after that was read.
#[derive(Debug)]
pub(super) struct Held {
    pidfd: OwnedFd,
    pub(super) stat: Stat,
    session: SessionId,
}

impl Held {
    /// Holds a process that bears the mark: the pidfd first, then what is read by number, then
    /// whether the pidfd's process still lives. Only then is what was read true of it.
    ///
    /// # Errors
    ///
    /// `EMFILE` and the like; that there is no such process is none.
    pub(super) fn open(pid: i32, mark: Mark) -> io::Result<Option<Self>> {
        let Ok(number) = u32::try_from(pid) else {
            return Ok(None);
        };
        let pidfd = match sys::open_pidfd(number) {
            Ok(pidfd) => pidfd,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(session) = marked(pid, mark)? else {
            return Ok(None);
        };
        let stat = match stat(pid) {
            Ok(stat) => stat,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let held = Self {
            pidfd,
            stat,
            session,
        };
        Ok(if held.is_dead()? { None } else { Some(held) })
    }

    /// Whether it is dead.
    pub(super) fn is_dead(&self) -> io::Result<bool> {
        wait_for_any(std::slice::from_ref(self), Duration::ZERO)
    }

    /// Signals it, and nobody else.
    pub(super) fn signal(&self, number: i32) -> io::Result<()> {
        sys::signal_process(self.pidfd.as_fd(), number)
    }

    pub(super) fn session(&self) -> SessionId {
        self.session
    }

    pub(super) fn found(&self) -> Found {
        Found {
            pid: Pid(self.stat.pid),
            name: Bytes(self.stat.name.clone()),
            uid: status(self.stat.pid).uid,
            session: self.session,
        }
    }

    /// Says why it outlived KILL.
    pub(super) fn explain(&self, denied: bool, fast: bool) -> Survivor {
        let Status { uid, tracer } = status(self.stat.pid);
        let state = stat(self.stat.pid).map_or(self.stat.state, |stat| stat.state);
        let why = match state {
            _ if denied => Why::NotPermitted { uid },
            _ if tracer != 0 => Why::HeldByTracer {
                tracer: Pid(tracer),
            },
            b'D' => Why::Uninterruptible,
            _ if fast => Why::ForkRate,
            _ => Why::Dying,
        };
        Survivor {
            pid: Pid(self.stat.pid),
            name: Bytes(self.stat.name.clone()),
            uid,
            why,
        }
    }
}

/// Waits until one of them is dead, no longer than this.
pub(super) fn wait_for_any(held: &[Held], limit: Duration) -> io::Result<bool> {
    let as_poll = |held| PollFd::new(Held::as_fd(held), PollFlags::POLLIN);
    let mut polled: Vec<PollFd<'_>> = held.iter().map(as_poll).collect();
    let millis = u16::try_from(limit.as_millis()).unwrap_or(u16::MAX);
    match poll(&mut polled, PollTimeout::from(millis)) {
        Ok(ready) => Ok(ready > 0),
        // Whoever waits looks again.
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Lists every process that this one can see.
pub(super) fn all_pids() -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(found)
}

/// The session whose mark a process bears. The file of limits is everybody's to read; where
/// `/proc` hides a process, or it is gone, it bears none.
pub(super) fn marked(pid: i32, mark: Mark) -> io::Result<Option<SessionId>> {
    match fs::read_to_string(format!("/proc/{pid}/limits")) {
        Ok(text) => Ok(marked_by(&text, mark)),
        Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::PermissionDenied => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// An instance inside another one marks the soft limit alone; the outer mark is in the hard one.
fn marked_by(limits: &str, mark: Mark) -> Option<SessionId> {
    let line = limits.lines().find_map(|line| line.strip_prefix(LIMIT))?;
    let values = line.split_ascii_whitespace().take(2);
    let mut values = values.filter_map(|word| word.parse::<u64>().ok());
    values.find_map(|value| mark.session(value))
}

/// Reads who a process is.
pub(super) fn stat(pid: i32) -> io::Result<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat"))?;
    parse_stat(pid, &text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// The name may hold spaces and parentheses, so the fields are counted from the last `)`.
fn parse_stat(pid: i32, text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let name = text.get(open.checked_add(1)?..close)?.to_vec();
    let rest = std::str::from_utf8(text.get(close.checked_add(1)?..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    Some(Stat {
        pid,
        name,
        state: *fields.next()?.as_bytes().first()?,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
    })
}

/// What may keep a process from being ended.
struct Status {
    uid: u32,
    tracer: i32,
}

/// Reads it. Of a process that is gone nothing is known, which `u32::MAX` says.
fn status(pid: i32) -> Status {
    let text = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        value.split_ascii_whitespace().next()
    };
    let number = |name| field(name).and_then(|word| word.parse::<u32>().ok());
    Status {
        uid: number("Uid:").unwrap_or(u32::MAX),
        tracer: number("TracerPid:").map_or(0, u32::cast_signed),
    }
}

/// `EINVAL`, or `ENOENT` on newer kernels, is the answer of `pidfd_open(2)` for a thread.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ESRCH | libc::ENOENT | libc::EINVAL)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_read_from_either_limit() {
        let (mark, other) = (Mark::new(5, u64::MAX), Mark::new(6, u64::MAX));
        let (mark, other) = (mark.expect("room"), other.expect("room"));
        let (here, there) = (mark.of(SessionId(7)), other.of(SessionId(8)));
        let line = |soft: &str, hard: &str| {
            format!("Max locked memory 1 2 bytes\nMax file locks   {soft}   {hard}   locks \n")
        };
        let (here, there) = (here.to_string(), there.to_string());
        for (soft, hard, session) in [
            (&here, &here, Some(SessionId(7))),
            (&here, &there, Some(SessionId(7))),
            (&there, &here, Some(SessionId(7))),
            (&there, &there, None),
        ] {
            assert_eq!(marked_by(&line(soft, hard), mark), session);
        }
        assert_eq!(marked_by(&line("unlimited", "unlimited"), mark), None);
        assert_eq!(marked_by("", mark), None);
    }

    #[test]
    fn a_process_without_the_mark_is_not_held() {
        let own = std::process::id().cast_signed();
        let mark = Mark::new(5, u64::MAX).expect("room");
        assert!(
            Held::open(own, mark)
                .expect("it can be looked at")
                .is_none()
        );
        assert!(Held::open(-1, mark).expect("no call is made").is_none());
        assert!(Held::open(i32::MAX, mark).expect("it is gone").is_none());
    }

    #[test]
    fn a_name_may_look_like_the_fields_behind_it() {
        let stat = parse_stat(4, b"4 (a) R 1 1) S 7 8 9 0\n").expect("it is whole");
        assert_eq!((stat.parent, stat.group, stat.state), (7, 8, b'S'));
        assert!(parse_stat(4, b"4 (a) S 7").is_none());
    }
}
