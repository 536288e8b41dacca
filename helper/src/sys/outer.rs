//! Process numbers as they are outside a keeper's pid namespace.
//!
//! A keeper that is process 1 sees its own numbers; its host means the outer ones. A pidfd's
//! entry in `/proc/self/fdinfo` shows the number in the namespace of that `/proc`
//! (`pidfd_open(2)`), so a keeper keeps the outer directory open when it mounts its own.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use foster_protocol::Pid;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::raw;

/// The outer `/proc/self/fdinfo`, in a keeper with a namespace.
static OUTER: OnceLock<OwnedFd> = OnceLock::new();

/// Opens the directory, while `/proc` is still the outer one.
///
/// # Errors
///
/// What `open(2)` says.
pub(crate) fn open() -> io::Result<OwnedFd> {
    File::open("/proc/self/fdinfo").map(OwnedFd::from)
}

/// Shows outer numbers from here on. Once in a process.
pub(crate) fn show_by(directory: OwnedFd) {
    // A second namespace in a keeper does not happen; the first one's numbers would stay.
    let _only_once = OUTER.set(directory);
}

/// The number to report for a process: the outer one where there is a namespace. For a process
/// that is gone meanwhile it is 0; nothing is ever signalled by it.
pub(crate) fn shown(pid: i32) -> Pid {
    let Some(directory) = OUTER.get() else {
        return Pid(pid);
    };
    let number = raw::pidfd_open(pid).and_then(|pidfd| outer_number(directory.as_fd(), &pidfd));
    Pid(number.unwrap_or(0))
}

fn outer_number(directory: BorrowedFd<'_>, pidfd: &OwnedFd) -> io::Result<i32> {
    let name = pidfd.as_raw_fd().to_string();
    let entry = openat(
        directory,
        name.as_str(),
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let mut text = String::new();
    File::from(entry).read_to_string(&mut text)?;
    parse(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// `Pid:` is followed by the number, or by -1 where the process is dead.
fn parse(text: &str) -> Option<i32> {
    let number = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    number.trim().parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_read_from_a_pidfds_entry() {
        let text = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nPid:\t4711\nNSpid:\t4711\t2\n";
        assert_eq!(parse(text), Some(4711));
        assert_eq!(parse("pos:\t0\nPid:\t-1\n"), None);
        assert_eq!(parse("pos:\t0\n"), None);
    }

    #[test]
    fn without_a_namespace_a_number_is_its_own() {
        let pid = std::process::id().cast_signed();
        assert_eq!(shown(pid), Pid(pid));
        let pidfd = raw::pidfd_open(pid).expect("we live");
        let directory = open().expect("there is a /proc");
        assert_eq!(outer_number(directory.as_fd(), &pidfd).ok(), Some(pid));
    }
}
