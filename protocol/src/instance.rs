//! What a helper leaves word of, so that the janitor finds what it leaves behind.
//!
//! An *instance* is one helper with its keepers. Its record says where its cgroups are and which
//! mark its children bear; it is locked for as long as the helper or a keeper lives. The mark is
//! the value of a resource limit that the kernel does not enforce and every child inherits.
//! Here are the layout of the mark, the text of the record and the places where records lie.
//! Nothing here does I/O.

use std::collections::BTreeSet;
use std::path::PathBuf;

use thiserror::Error;

use crate::types::{Bytes, SessionId};

/// The resource whose limit bears the mark: `RLIMIT_LOCKS`, which Linux accepts, inherits, shows
/// in `/proc/PID/limits` and has not enforced since 2.4.25 (`getrlimit(2)`).
pub const MARK_RESOURCE: u32 = 10;

/// The largest record that is read: room for some fifty thousand released sessions.
pub const MAX_RECORD: u64 = 1 << 20;

/// The value that says that a resource is not limited.
const UNLIMITED: u64 = u64::MAX;

/// How many of a mark's bits number the session.
const SERIAL_BITS: u32 = 28;

/// The last serial. Sessions with higher ids share it.
const LAST_SERIAL: u64 = (1 << SERIAL_BITS) - 1;

/// How many bits tell one instance from another; the highest of them is set, so that instances
/// inside have as much room. With the serial's bits, a mark stays below 2^62.
const INSTANCE_BITS: u32 = 34;

/// The first line of a record.
const FIRST_LINE: &str = "foster-instance 1";

/// The folder of records below a runtime directory.
const FOLDER: &str = "foster";

/// What all children of one instance have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    instance: u64,
}

impl Mark {
    /// Makes one out of randomness, below the hard limit that the helper has inherited. None
    /// where that limit leaves no room, because something other than foster has set it.
    #[must_use]
    pub fn new(random: u64, inherited: u64) -> Option<Self> {
        let highest = 1 << (INSTANCE_BITS - 1);
        if inherited == UNLIMITED {
            let instance = highest | (random % highest);
            return Some(Self { instance });
        }
        // Inside another instance: its mark stays in the hard limit, and this one is below it.
        let room = (inherited >> SERIAL_BITS).min(2 * highest);
        // Few values would make it likely that two instances draw the same.
        let is_enough = room > highest >> 8;
        is_enough.then(|| Self {
            instance: 1 + random % (room - 1),
        })
    }

    /// The value of the limit in a session's members.
    #[must_use]
    pub fn of(self, session: SessionId) -> u64 {
        (self.instance << SERIAL_BITS) | session.0.min(LAST_SERIAL)
    }

    /// The session whose members have a limit of this value; none where it bears another mark or
    /// none. Sessions with ids from 2^28 on are told as one.
    #[must_use]
    pub fn session(self, limit: u64) -> Option<SessionId> {
        (limit >> SERIAL_BITS == self.instance).then_some(SessionId(limit & LAST_SERIAL))
    }
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The name: of its file, and within those of its cgroups.
    pub name: u64,
    /// The boot that it belongs to (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// The inode of the pid namespace that the helper runs in.
    pub pid_namespace: u64,
    /// The helper's process id, to be shown.
    pub helper: i32,
    /// The helper's effective user.
    pub uid: u32,
    /// What its children bear; none where they cannot be marked.
    pub mark: Option<Mark>,
    /// The cgroup below which its sessions have theirs.
    pub cgroup: Option<Bytes>,
    /// Sessions that were released, of which nothing may be ended.
    pub released: BTreeSet<SessionId>,
}

/// Why a text is no record.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// It is empty. A helper empties the record to which it cannot add a release: nothing of this
    /// instance is ever to be ended.
    #[error("it is empty: a release could not be noted in it")]
    Empty,
    /// It begins like none of this version.
    #[error("it does not begin with \"{FIRST_LINE}\"")]
    Version,
    /// A line is missing or not as it should be.
    #[error("its line {0} is not well formed")]
    Line(usize),
}

impl Record {
    /// What the names of the instance's cgroups begin with.
    #[must_use]
    pub fn prefix(&self) -> String {
        prefix(self.name)
    }

    /// The session whose cgroup has this name; none for another cgroup of the instance, and
    /// `Err` for a name that is not the instance's.
    ///
    /// # Errors
    ///
    /// The name is not of this instance.
    pub fn session_of(&self, cgroup: &[u8]) -> Result<Option<SessionId>, NotOurs> {
        let rest = cgroup
            .strip_prefix(self.prefix().as_bytes())
            .ok_or(NotOurs)?;
        let number = rest.strip_prefix(b"session-").and_then(parse);
        Ok(number.map(SessionId))
    }

    /// Whether the members with this mark were released. Where ids were too high to tell
    /// sessions apart, the release of one is that of all of them.
    #[must_use]
    pub fn is_released(&self, marked: SessionId) -> bool {
        let is = |released: &SessionId| released.0.min(LAST_SERIAL) == marked.0;
        self.released.iter().any(is)
    }

    /// Writes it down.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
        let mark = or_none(self.mark.map(|mark| mark.instance.to_string()));
        let cgroup = or_none(self.cgroup.as_ref().map(|path| hidden(&path.0)));
        let mut text = format!(
            "{FIRST_LINE}\nname {:016x}\nboot {}\npid-namespace {}\nhelper {}\nuid {}\n\
             mark {mark}\ncgroup {cgroup}\n",
            self.name, self.boot, self.pid_namespace, self.helper, self.uid,
        );
        for session in &self.released {
            text.push_str(&released_line(*session));
        }
        text.into_bytes()
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// What keeps the text from being a record. One that was cut anywhere is none.
    pub fn decode(text: &[u8]) -> Result<Self, RecordError> {
        if text.is_empty() {
            return Err(RecordError::Empty);
        }
        let whole = text.strip_suffix(b"\n").ok_or(RecordError::Version)?;
        let mut lines = Lines {
            rest: whole.split(|byte| *byte == b'\n'),
            at: 1,
        };
        if lines.rest.next() != Some(FIRST_LINE.as_bytes()) {
            return Err(RecordError::Version);
        }
        let mut record = Self {
            name: lines.value("name", |word| {
                let name = u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
                // There is one way to write it.
                (file_name(name).as_bytes() == word).then_some(name)
            })?,
            boot: lines.value("boot", boot)?,
            pid_namespace: lines.value("pid-namespace", parse)?,
            helper: lines.value("helper", parse)?,
            uid: lines.value("uid", parse)?,
            mark: lines.value("mark", |word| match word {
                b"none" => Some(None),
                word => parse(word).and_then(mark).map(Some),
            })?,
            cgroup: lines.value("cgroup", |word| match word {
                b"none" => Some(None),
                word => shown(word).map(|path| Some(Bytes(path))),
            })?,
            released: BTreeSet::new(),
        };
        while let Some(note) = lines.note()? {
            record.released.extend(note);
        }
        Ok(record)
    }
}

/// A cgroup's name that is not of an instance.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("it is not of this instance")]
pub struct NotOurs;

/// What the names of an instance's cgroups begin with.
#[must_use]
pub fn prefix(name: u64) -> String {
    format!("foster-{name:016x}-")
}

/// The name of an instance's record.
#[must_use]
pub fn file_name(name: u64) -> String {
    format!("{name:016x}")
}

/// The line that adds a released session to a record.
#[must_use]
pub fn released_line(session: SessionId) -> String {
    format!("released {}\n", session.0)
}

/// The line that says that the ending of a session left something; session 0 is none.
#[must_use]
pub fn unended_line(session: SessionId) -> String {
    format!("unended {}\n", session.0)
}

/// Where a user's records may lie, the first choice first: a helper takes the first one that it
/// can have, and the janitor looks at all of them.
#[must_use]
pub fn record_folders(runtime: Option<PathBuf>, uid: u32) -> Vec<PathBuf> {
    let runtime = runtime.filter(|path| path.is_absolute());
    let mut folders: Vec<PathBuf> = runtime.map(|path| path.join(FOLDER)).into_iter().collect();
    if uid == 0 {
        folders.push(PathBuf::from("/run").join(FOLDER));
    }
    folders.push(PathBuf::from(format!("/run/user/{uid}")).join(FOLDER));
    folders.push(PathBuf::from(format!("/tmp/{FOLDER}-{uid}")));
    let mut seen = BTreeSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

/// What stands behind the name of a line.
fn word<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name.as_bytes())?;
    rest.strip_prefix(b" ")
}

/// The lines of a record.
struct Lines<'a, I: Iterator<Item = &'a [u8]>> {
    rest: I,
    /// The number of the last line that was taken.
    at: usize,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Lines<'a, I> {
    /// The value of the next line, which has this name.
    fn value<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'a [u8]) -> Option<T>,
    ) -> Result<T, RecordError> {
        self.at += 1;
        let line = self.rest.next();
        let value = line.and_then(|line| word(line, name)).and_then(read);
        value.ok_or(RecordError::Line(self.at))
    }

    /// The next of the lines that were added: a released session, or none where it only says
    /// that something is left.
    fn note(&mut self) -> Result<Option<Option<SessionId>>, RecordError> {
        let Some(line) = self.rest.next() else {
            return Ok(None);
        };
        self.at += 1;
        let released = word(line, "released").and_then(parse);
        let unended = || word(line, "unended").and_then(parse::<u64>);
        match released {
            Some(session) => Ok(Some(Some(SessionId(session)))),
            None if unended().is_some() => Ok(Some(None)),
            None => Err(RecordError::Line(self.at)),
        }
    }
}

fn parse<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    // The parsers of numbers take a sign, which nothing here has.
    let is_plain = word.first().is_some_and(u8::is_ascii_digit);
    let text = std::str::from_utf8(word).ok().filter(|_| is_plain)?;
    text.parse().ok()
}

fn boot(word: &[u8]) -> Option<String> {
    let is_one = !word.is_empty() && word.iter().all(u8::is_ascii_graphic);
    String::from_utf8(word.to_vec()).ok().filter(|_| is_one)
}

fn mark(instance: u64) -> Option<Mark> {
    let is_one = instance > 0 && instance < 1 << INSTANCE_BITS;
    is_one.then_some(Mark { instance })
}

/// A path as one word: other bytes than visible ASCII, and `%`, as two hexadecimal digits.
fn hidden(path: &[u8]) -> String {
    let mut word = String::with_capacity(path.len());
    for byte in path {
        match byte {
            b'%' => word.push_str("%25"),
            byte if byte.is_ascii_graphic() => word.push(char::from(*byte)),
            byte => word.push_str(&format!("%{byte:02x}")),
        }
    }
    word
}

fn shown(word: &[u8]) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            path.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        path.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        rest = behind.get(2..)?;
    }
    // A path that goes up or holds a NUL is none that a helper writes.
    let is_whole = path.first() == Some(&b'/')
        && !path.contains(&0)
        && path.split(|byte| *byte == b'/').all(|part| part != b"..");
    is_whole.then_some(path)
}

#[cfg(test)]
#[path = "instance_tests.rs"]
mod tests;
