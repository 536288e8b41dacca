//! What `/proc/PID/stat` says of a process: its state, parent, group and session.
//!
//! It only reads. A number is looked at by whoever holds the process by a pidfd, or for a
//! first sight that a pidfd has to confirm.

use std::fs::File;
use std::io::Read;

/// More than the longest line: a name of 16 bytes, and some fifty numbers.
const LINE_LIMIT: u64 = 4096;

/// One process as the kernel shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The state letter; `Z` and `X` are dead.
    pub(crate) state: char,
    /// The parent.
    pub(crate) parent: u32,
    /// The process group.
    pub(crate) group: u32,
    /// The session.
    pub(crate) session: u32,
}

/// Reads the line of a process; none where it is gone or the line is not as expected.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    let file = File::open(format!("/proc/{pid}/stat")).ok()?;
    let mut line = Vec::new();
    file.take(LINE_LIMIT).read_to_end(&mut line).ok()?;
    parse(&line)
}

/// Whether the process has exited and nobody has collected its status.
///
/// A zombie still answers to signal 0, so that a question by `kill(2)` takes it for alive.
/// False where nothing can be read.
#[must_use]
pub fn is_zombie(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.state == 'Z')
}

/// The name stands in parentheses and may hold any byte, parentheses included: the fields
/// begin behind the last one (`proc_pid_stat(5)`).
fn parse(line: &[u8]) -> Option<Stat> {
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let mut letters = fields.next()?.chars();
    let state = letters.next()?;
    if letters.next().is_some() {
        return None;
    }
    let mut number = || fields.next()?.parse().ok();
    Some(Stat {
        state,
        parent: number()?,
        group: number()?,
        session: number()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn fields_begin_behind_the_last_parenthesis() {
        let stat = parse(b"12 (a) Z (b) R) S 7 8 9 0 -1").expect("a well-formed line");
        assert_eq!((stat.state, stat.parent), ('S', 7));
        assert_eq!((stat.group, stat.session), (8, 9));
    }

    #[test]
    fn cut_and_strange_lines_are_no_process() {
        for line in [
            "",
            "12",
            "12 (x",
            "12 (x)",
            "12 (x) S",
            "12 (x) SS 1 1 1",
            "12 (x) S a b c",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line:?}");
        }
        assert_eq!(stat(u32::MAX), None);
    }

    #[test]
    fn a_child_that_nobody_has_waited_for_is_a_zombie() {
        let mut child = Command::new("sh")
            .args(["-c", "exec true"])
            .stdin(Stdio::null())
            .spawn()
            .expect("sh starts");
        let pidfd = crate::sys::open_pidfd(child.id()).expect("pidfds are there");
        let mut set = [nix::poll::PollFd::new(
            std::os::fd::AsFd::as_fd(&pidfd),
            nix::poll::PollFlags::POLLIN,
        )];
        nix::poll::poll(&mut set, 10_000_u16).expect("it exits");
        assert!(is_zombie(child.id()));
        child.wait().expect("it is ours");
        assert!(!is_zombie(child.id()));
        assert!(!is_zombie(std::process::id()));
    }
}
