//! Finding records and taking their locks. Whatever is not this user's own is refused.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use foster_protocol::{MAX_RECORD, Record, file_name};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::report::{During, Refusal};

/// What names files that were not whole when their helper died begin with.
const NEW: &str = ".new-";

/// The most records of a folder that one sweep looks at.
const MOST_RECORDS: usize = 100_000;

/// A folder of records, and the names of what is in it.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) folder: File,
    /// Names that a record may have, in their order.
    pub(super) records: Vec<String>,
    /// Names of records that are being written, or never were whole.
    unfinished: Vec<String>,
}

/// What a look at a record came to.
#[derive(Debug)]
pub(super) enum Look {
    /// It is gone: its helper has ended, or another sweep is done with it.
    Gone,
    /// Somebody holds its lock. The helper's number, where the record could be read.
    Held(Option<i32>),
    /// Its lock is ours.
    Taken(Taken),
}

/// A record whose lock is held until this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) record: Record,
    folder: File,
    name: String,
    /// Holds the lock.
    _file: File,
}

impl Taken {
    /// Removes the record. Where that fails the next sweep finds it, and nothing behind it.
    pub(super) fn remove(self) {
        remove(&self.folder, &self.name);
    }
}

fn remove(folder: &File, name: &str) {
    if let Err(error) = unlinkat(folder, name, UnlinkatFlags::NoRemoveDir) {
        tracing::warn!(%error, name, "a record cannot be removed");
    }
}

impl Names {
    /// Removes what helpers left that died while they wrote it. One that is still being written
    /// is locked, or its helper begins anew.
    pub(super) fn remove_unfinished(&self) {
        for name in &self.unfinished {
            let file = open_in(&self.folder, name);
            if file.is_ok_and(|file| file.try_lock().is_ok()) {
                remove(&self.folder, name);
            }
        }
    }
}

/// Lists a folder; none where there is none.
pub(super) fn names_in(path: &Path) -> Result<Option<Names>, Refusal> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = match open(path, flags, Mode::empty()) {
        Ok(folder) => File::from(folder),
        Err(Errno::ENOENT) => return Ok(None),
        Err(Errno::ELOOP | Errno::ENOTDIR) => return Err(Refusal::WrongKind),
        Err(error) => return Err(error).during("open the folder"),
    };
    check_owner(&folder)?;
    let mut names = Names {
        folder,
        records: Vec::new(),
        unfinished: Vec::new(),
    };
    let entries = std::fs::read_dir(path).during("list the folder")?;
    for entry in entries.take(MOST_RECORDS) {
        let name = entry.during("list the folder")?.file_name();
        let Some(text) = name.to_str() else { continue };
        if is_name(text) {
            names.records.push(text.to_owned());
        } else if text.strip_prefix(NEW).is_some_and(is_name) {
            names.unfinished.push(text.to_owned());
        }
    }
    names.records.sort_unstable();
    Ok(Some(names))
}

fn is_name(text: &str) -> bool {
    u64::from_str_radix(text, 16).is_ok_and(|name| file_name(name) == text)
}

/// Opens a record, takes its lock without waiting, and only then reads it.
pub(super) fn look_at(folder: &File, name: &str) -> Result<Look, Refusal> {
    let mut file = match open_in(folder, name) {
        Ok(file) => file,
        Err(Errno::ENOENT) => return Ok(Look::Gone),
        Err(Errno::ELOOP | Errno::ENXIO) => return Err(Refusal::WrongKind),
        Err(error) => return Err(error).during("open the record"),
    };
    let about = file.metadata().during("look at the record")?;
    let kind = about.file_type();
    if !kind.is_file() || kind.is_fifo() {
        return Err(Refusal::WrongKind);
    }
    check_owner(&file)?;
    let is_ours = match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => return Err(error).during("lock the record"),
    };
    if !is_ours {
        let helper = read(&mut file).ok().map(|record| record.helper);
        return Ok(Look::Held(helper));
    }
    // Another sweep, or its helper, has removed it between the opening and the lock.
    if file.metadata().during("look at the record")?.nlink() == 0 {
        return Ok(Look::Gone);
    }
    let record = read(&mut file)?;
    if file_name(record.name) != name {
        return Err(Refusal::WrongName);
    }
    Ok(Look::Taken(Taken {
        record,
        folder: folder.try_clone().during("hold the folder")?,
        name: name.to_owned(),
        _file: file,
    }))
}

fn open_in(folder: &File, name: &str) -> nix::Result<File> {
    // A pipe that somebody put there must not make anybody wait.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let name = OsStr::from_bytes(name.as_bytes());
    openat(folder, name, flags, Mode::empty()).map(File::from)
}

fn check_owner(file: &File) -> Result<(), Refusal> {
    let about = file.metadata().during("look at its owner")?;
    if about.uid() != geteuid().as_raw() {
        return Err(Refusal::WrongOwner { uid: about.uid() });
    }
    match about.mode() & 0o777 {
        mode if mode & 0o077 == 0 => Ok(()),
        mode => Err(Refusal::OpenToOthers { mode }),
    }
}

fn read(file: &mut File) -> Result<Record, Refusal> {
    let size = file.metadata().during("look at the record")?.len();
    if size > MAX_RECORD {
        return Err(Refusal::TooLarge { size });
    }
    let mut text = Vec::new();
    let limit = io::Read::by_ref(file).take(MAX_RECORD);
    { limit }.read_to_end(&mut text).during("read the record")?;
    Record::decode(&text).map_err(Refusal::Malformed)
}
