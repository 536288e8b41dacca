//! What `/proc` says (`proc(5)`): identity, children, and why a process cannot be ended.
//!
//! A number that was read here is a hint. It becomes a process in `Process::open`.

use std::ffi::OsStr;
use std::fmt::Arguments;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::str;

/// Room for the longest path here: `/proc/N/task/N/children` with numbers of ten digits.
const PATH: usize = 64;

/// Room for a `stat` file: 52 numbers of at most 20 digits and a name.
const STAT: usize = 1280;

/// Room for a `status` file, and for one read of a `children` file, which gives at most a page.
const PAGE: usize = 4096;

/// How often a `children` file is read at most: 10 million numbers.
const READS: usize = 16 * 1024;

/// Who a process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Its number.
    pub(crate) pid: i32,
    /// Its name (`comm`), which it can choose freely.
    pub(crate) name: Vec<u8>,
    /// Its main thread's state: `R`, `S`, `D`, `T`, `t`, `Z` and others.
    pub(crate) state: u8,
    /// Its parent.
    pub(crate) parent: i32,
    /// Its process group.
    pub(crate) group: i32,
    /// Its session.
    pub(crate) session: i32,
}

/// What may keep a process from being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// Its real user id; `kill(2)` compares the sender with it and with the saved one.
    pub(crate) uid: u32,
    /// The process that traces it; 0 is none.
    pub(crate) tracer: i32,
}

/// Whether an error of `/proc` says that the process or thread is gone.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Reads who a process is.
///
/// # Errors
///
/// `ENOENT` or `ESRCH` where it is gone.
pub(crate) fn stat(pid: i32) -> io::Result<Stat> {
    let mut buffer = [0_u8; STAT];
    let text = read_file(format_args!("/proc/{pid}/stat"), &mut buffer)?;
    parse_stat(text).ok_or_else(malformed)
}

/// The name may hold spaces and parentheses, so the fields are counted from the last `)`.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let pid = number(text.get(..open)?.trim_ascii())?;
    let name = text.get(open.checked_add(1)?..close)?.to_vec();
    let mut fields = text
        .get(close.checked_add(1)?..)?
        .trim_ascii()
        .split(|&byte| byte == b' ');
    let state = *fields.next()?.first()?;
    let parent = number(fields.next()?)?;
    let group = number(fields.next()?)?;
    let session = number(fields.next()?)?;
    Some(Stat {
        pid,
        name,
        state,
        parent,
        group,
        session,
    })
}

/// Lists the children of every thread of a process. A process or thread that is gone has none.
///
/// A thread that exits hands its children to another one, so that a list taken meanwhile may
/// lack some of them: only a list that stays the same proves anything.
///
/// # Errors
///
/// What `/proc` says, but for what is gone.
pub(crate) fn children(pid: i32) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    let mut buffer = [0_u8; PATH];
    let tasks = format_path(format_args!("/proc/{pid}/task"), &mut buffer)?;
    let tasks = match fs::read_dir(tasks) {
        Ok(tasks) => tasks,
        Err(error) if is_gone(&error) => return Ok(found),
        Err(error) => return Err(error),
    };
    for task in tasks {
        let task = match task {
            Ok(task) => task,
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error),
        };
        let Some(thread) = number::<i32>(task.file_name().as_bytes()) else {
            continue;
        };
        let mut buffer = [0_u8; PATH];
        let path = format_path(
            format_args!("/proc/{pid}/task/{thread}/children"),
            &mut buffer,
        )?;
        let listed = File::open(path).and_then(|file| list(&file, &mut found));
        match listed {
            Err(error) if !is_gone(&error) => return Err(error),
            // Listed, or the thread has exited meanwhile.
            Ok(()) | Err(_) => {}
        }
    }
    Ok(found)
}

/// The list of the orphans that came to this process: they become children of its main thread,
/// and the main thread forks nobody itself.
///
/// It is opened once, so that it can still be read when no descriptor is left.
#[derive(Debug)]
pub(crate) struct Adopted {
    file: File,
}

impl Adopted {
    /// Opens the list. Any thread may read it.
    ///
    /// # Errors
    ///
    /// `ENOENT` where the kernel keeps no such lists.
    pub(crate) fn open() -> io::Result<Self> {
        Self::open_of(std::process::id().cast_signed())
    }

    /// Opens the list of the children of the calling thread: those that it forked, and those
    /// that its children made its own (`CLONE_PARENT`).
    ///
    /// # Errors
    ///
    /// `ENOENT` where the kernel keeps no such lists.
    pub(crate) fn open_own() -> io::Result<Self> {
        Self::open_of(nix::unistd::gettid().as_raw())
    }

    fn open_of(thread: i32) -> io::Result<Self> {
        let mut buffer = [0_u8; PATH];
        let path = format_path(
            format_args!("/proc/self/task/{thread}/children"),
            &mut buffer,
        )?;
        Ok(Self {
            file: File::open(path)?,
        })
    }

    /// Reads it. An empty list proves that no orphan was there at that instant, also none that
    /// is dead and not reaped.
    ///
    /// # Errors
    ///
    /// What `/proc` says.
    pub(crate) fn list(&self) -> io::Result<Vec<i32>> {
        let mut found = Vec::new();
        list(&self.file, &mut found)?;
        Ok(found)
    }
}

/// Whether the kernel keeps lists of children (`CONFIG_PROC_CHILDREN`).
pub(crate) fn has_children_files() -> bool {
    Adopted::open().is_ok_and(|adopted| adopted.list().is_ok())
}

/// Lists every process that this one can see.
///
/// # Errors
///
/// What `/proc` says.
pub(crate) fn all_pids() -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        found.extend(number::<i32>(entry?.file_name().as_bytes()));
    }
    Ok(found)
}

/// Reads what may keep a process from being ended.
///
/// # Errors
///
/// `ENOENT` or `ESRCH` where it is gone.
pub(crate) fn hold(pid: i32) -> io::Result<Hold> {
    let mut buffer = [0_u8; PAGE];
    let text = read_file(format_args!("/proc/{pid}/status"), &mut buffer)?;
    parse_hold(text).ok_or_else(malformed)
}

fn parse_hold(text: &[u8]) -> Option<Hold> {
    let uid = field(text, b"Uid:")?
        .split(u8::is_ascii_whitespace)
        .next()?;
    let tracer = field(text, b"TracerPid:")?;
    Some(Hold {
        uid: number(uid)?,
        tracer: number(tracer)?,
    })
}

/// The trimmed value of a line of a `status` file. A name cannot forge one: the kernel escapes
/// its line feeds.
fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    text.split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(name))
        .map(<[u8]>::trim_ascii)
}

/// The highest descriptor that is open in this process.
///
/// # Errors
///
/// What `/proc` says.
pub(super) fn highest_open_descriptor() -> io::Result<i32> {
    let mut highest = 2;
    for entry in fs::read_dir("/proc/self/fd")? {
        let open: Option<i32> = number(entry?.file_name().as_bytes());
        highest = open.map_or(highest, |open| open.max(highest));
    }
    Ok(highest)
}

/// Reads a `children` file from its start.
fn list(file: &File, found: &mut Vec<i32>) -> io::Result<()> {
    let mut buffer = [0_u8; PAGE];
    let mut offset = 0_u64;
    let mut pending: Option<i32> = None;
    for _ in 0..READS {
        let count = match file.read_at(&mut buffer, offset) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        offset = offset.saturating_add(u64::try_from(count).map_err(io::Error::other)?);
        for &byte in buffer.get(..count).unwrap_or_default() {
            if byte.is_ascii_digit() {
                let digit = i32::from(byte.wrapping_sub(b'0'));
                let before = pending.unwrap_or(0).checked_mul(10);
                pending = Some(
                    before
                        .and_then(|n| n.checked_add(digit))
                        .ok_or_else(malformed)?,
                );
            } else {
                found.extend(pending.take());
            }
        }
    }
    found.extend(pending);
    Ok(())
}

/// Reads a small file into `buffer` in as few calls as it takes.
fn read_file<'a>(path: Arguments<'_>, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let mut name = [0_u8; PATH];
    let mut file = File::open(format_path(path, &mut name)?)?;
    let mut filled = 0;
    while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
        match file.read(room) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(buffer.get(..filled).unwrap_or_default())
}

/// Writes a path into `buffer`.
fn format_path<'a>(path: Arguments<'_>, buffer: &'a mut [u8]) -> io::Result<&'a Path> {
    let mut rest = &mut buffer[..];
    rest.write_fmt(path)?;
    let unused = rest.len();
    let used = buffer.len() - unused;
    Ok(Path::new(OsStr::from_bytes(
        buffer.get(..used).unwrap_or_default(),
    )))
}

fn number<T: str::FromStr>(text: &[u8]) -> Option<T> {
    str::from_utf8(text).ok()?.parse().ok()
}

/// `/proc` said something that is not its format.
fn malformed() -> io::Error {
    io::Error::from_raw_os_error(libc::EPROTO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_fields_behind_it() {
        let stat = parse_stat(b"42 (a) R 1 1 1 (b)) S 7 8 9 0 -1\n").unwrap();
        assert_eq!(stat.name, b"a) R 1 1 1 (b)");
        assert_eq!((stat.pid, stat.state), (42, b'S'));
        assert_eq!((stat.parent, stat.group, stat.session), (7, 8, 9));
    }

    #[test]
    fn an_empty_name_and_a_truncated_file_are_not_mixed_up() {
        assert_eq!(parse_stat(b"1 () S 0 1 1").unwrap().name, b"");
        for text in [
            "",
            "1",
            "1 (x",
            "1 (x)",
            "1 (x) S",
            "1 (x) S 1 2",
            ")(",
            "x (y) S 1 2 3",
        ] {
            assert_eq!(parse_stat(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn this_process_is_read() {
        let own = std::process::id().cast_signed();
        let stat = stat(own).unwrap();
        assert_eq!(stat.pid, own);
        assert_eq!(stat.parent, nix::unistd::getppid().as_raw());
        let hold = hold(own).unwrap();
        assert_eq!(
            hold,
            Hold {
                uid: nix::unistd::getuid().as_raw(),
                tracer: 0
            }
        );
        assert!(all_pids().unwrap().contains(&own));
    }

    #[test]
    fn a_process_that_is_gone_has_no_children_and_no_identity() {
        assert_eq!(children(i32::MAX).unwrap(), []);
        assert!(is_gone(&stat(i32::MAX).unwrap_err()));
        assert!(is_gone(&hold(i32::MAX).unwrap_err()));
    }

    #[test]
    fn the_lines_of_a_status_file_are_found() {
        let text = b"Name:\tUid:\\n7\nTracerPid:\t12\nUid:\t1000\t0\t0\t0\n";
        assert_eq!(
            parse_hold(text),
            Some(Hold {
                uid: 1000,
                tracer: 12
            })
        );
        assert_eq!(parse_hold(b"Name:\tx\n"), None);
    }
}
