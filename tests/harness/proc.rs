//! Looking at processes in `/proc`. It never signals what it finds.

use std::fs;
use std::io;
use std::path::Path;

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its process id.
    pub pid: i32,
    /// Its name.
    pub name: Vec<u8>,
    /// Its state letter.
    pub state: char,
    /// Its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
}

/// Reads the line of one process; none where there is no such process.
#[must_use]
pub fn stat(pid: i32) -> Option<Stat> {
    parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The state letter of a process, `Z` for a zombie; none where there is no such process.
#[must_use]
pub fn state(pid: i32) -> Option<char> {
    stat(pid).map(|stat| stat.state)
}

/// Whether every thread of a process is stopped.
#[must_use]
pub fn is_stopped(pid: i32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    tasks.flatten().all(|task| {
        let stat = fs::read(task.path().join("stat")).ok();
        stat.and_then(|text| parse(&text)).map(|stat| stat.state) == Some('T')
    })
}

/// Every process that can be seen.
///
/// # Panics
///
/// Where `/proc` cannot be read.
#[must_use]
pub fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc is readable");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Everything that has this parent, zombies included.
#[must_use]
pub fn children(parent: i32) -> Vec<Stat> {
    pids()
        .into_iter()
        .filter_map(stat)
        .filter(|stat| stat.parent == parent)
        .collect()
}

/// Everything in this session, zombies included.
#[must_use]
pub fn session_members(session: i32) -> Vec<Stat> {
    pids()
        .into_iter()
        .filter_map(stat)
        .filter(|stat| stat.session == session)
        .collect()
}

/// How many descriptors a process has.
///
/// # Errors
///
/// What the kernel says; `EACCES` where the process is not dumpable and this is not root.
pub fn descriptor_count(pid: i32) -> io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// What the descriptors of a process are, as `number target`; nothing where it may not be seen.
#[must_use]
pub fn descriptors(pid: i32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let links = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        Some(format!(
            "{} {}",
            entry.file_name().display(),
            target.display()
        ))
    });
    links.collect()
}

/// One field of `/proc/PID/status`, without its name and blanks.
#[must_use]
pub fn status_field(pid: i32, field: &str) -> Option<String> {
    field_of(
        &fs::read_to_string(format!("/proc/{pid}/status")).ok()?,
        field,
    )
}

/// One field of a text in the form of `/proc/PID/status`.
#[must_use]
pub fn field_of(status: &str, field: &str) -> Option<String> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// Whether a file of `/proc/PID` holds these bytes. False where it cannot be read.
#[must_use]
pub fn holds(pid: i32, file: &str, bytes: &[u8]) -> bool {
    let path = Path::new("/proc").join(pid.to_string()).join(file);
    fs::read(path).is_ok_and(|text| text.windows(bytes.len()).any(|part| part == bytes))
}

/// The name is in parentheses and may hold any byte, parentheses included.
fn parse(line: &[u8]) -> Option<Stat> {
    let open = line.iter().position(|byte| *byte == b'(')?;
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let pid = std::str::from_utf8(line.get(..open)?)
        .ok()?
        .trim()
        .parse()
        .ok()?;
    let name = line.get(open + 1..close)?.to_vec();
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    Some(Stat {
        pid,
        name,
        state,
        parent,
        group,
        session,
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_name_with_parentheses_and_blanks_is_read_whole() {
        let stat = parse(b"12 (a) S (b)) Z 1 7 9 0 -1").expect("the line is well formed");
        assert_eq!(stat.name, b"a) S (b)");
        assert_eq!((stat.pid, stat.state), (12, 'Z'));
        assert_eq!((stat.parent, stat.group, stat.session), (1, 7, 9));
    }

    #[test]
    fn a_cut_line_is_no_process() {
        assert_eq!(parse(b"12 (sleep) S 1"), None);
        assert_eq!(parse(b""), None);
    }
}
