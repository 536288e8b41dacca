//! The record of this helper, by which the janitor finds what it leaves behind.
//!
//! One file, written once before anything is started, and locked (`flock(2)`) through one open
//! file description that keepers inherit: the lock goes when helper and keepers are gone. No
//! child of a session ever has it. A spawn writes nothing here. A release is noted before it is
//! acknowledged, and where it cannot be, the record is emptied: nothing of this instance is ever
//! ended by the janitor then. No failure here keeps a helper from serving.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use foster_protocol::{
    Bytes, MARK_RESOURCE, MAX_RECORD, Mark, Record, ResourceLimit, SessionId, file_name,
    record_folders, released_line, unended_line,
};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::Mode;
use nix::unistd::geteuid;

/// What names files that are not whole yet begin with.
const NEW: &str = ".new-";

/// How often a record is begun again that somebody removed before it was whole.
const TRIES: u32 = 3;

/// What the members of this instance's sessions bear.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marking {
    mark: Mark,
    /// The hard limit that this process has inherited. An outer instance's mark stays in it.
    inherited: u64,
}

/// Who this helper is to the janitor.
#[derive(Debug)]
pub(crate) struct Instance {
    name: u64,
    marking: Option<Marking>,
    /// The record, or the error number that keeps it away.
    kept: Result<Kept, i32>,
}

/// A record on its file system.
#[derive(Debug)]
struct Kept {
    file: File,
    path: PathBuf,
    /// How long it was at first. One that has grown tells of something that is left.
    length: u64,
}

impl Instance {
    /// Draws a name and a mark. There is no record yet.
    pub(crate) fn draw() -> io::Result<Self> {
        // The keys of a hasher are random, from the kernel.
        let name = RandomState::new().hash_one(std::process::id());
        let random = RandomState::new().hash_one(name);
        let (_, inherited) = getrlimit(Resource::RLIMIT_LOCKS)?;
        Ok(Self {
            name,
            marking: Mark::new(random, inherited).map(|mark| Marking { mark, inherited }),
            kept: Err(libc::ENOENT),
        })
    }

    /// Its name, which its cgroups bear as well.
    pub(crate) fn name(&self) -> u64 {
        self.name
    }

    /// Writes the record.
    pub(crate) fn record(&mut self, cgroup: Option<&Path>) {
        self.kept = self.write(cgroup).map_err(|error| {
            tracing::warn!(%error, "no record for the janitor can be kept");
            error.raw_os_error().unwrap_or(libc::EIO)
        });
    }

    /// 0 where the janitor finds whatever this helper leaves, else the error number that says why
    /// not.
    pub(crate) fn errno(&self) -> i32 {
        match (&self.kept, self.marking) {
            (Err(errno), _) => *errno,
            // The inherited limit has no room for a mark.
            (Ok(_), None) => libc::ERANGE,
            (Ok(_), Some(_)) => 0,
        }
    }

    /// The limit that marks a session's members.
    pub(crate) fn limit(&self, session: SessionId) -> Option<ResourceLimit> {
        let Marking { mark, inherited } = self.marking?;
        // Without a record nobody looks for the mark.
        self.kept.as_ref().ok()?;
        let soft = mark.of(session);
        Some(ResourceLimit {
            resource: MARK_RESOURCE,
            soft,
            hard: match inherited {
                u64::MAX => soft,
                outer => outer,
            },
        })
    }

    /// What holds the lock; a keeper keeps it open.
    pub(crate) fn lock(&self) -> Option<BorrowedFd<'_>> {
        self.kept.as_ref().ok().map(|kept| kept.file.as_fd())
    }

    /// Gives a fork that is becoming a keeper its part: this process's copy of the lock.
    pub(crate) fn hand_over(&mut self) -> Self {
        Self {
            name: self.name,
            marking: self.marking,
            kept: std::mem::replace(&mut self.kept, Err(libc::ENOENT)),
        }
    }

    /// Notes that a session is released, before anybody is told.
    pub(crate) fn release(&self, session: SessionId) {
        let Ok(kept) = &self.kept else { return };
        let noted = kept.append(released_line(session).as_bytes());
        let Err(error) = noted else { return };
        tracing::warn!(%session, %error, "a release cannot be noted: the record is given up");
        // Neither needs room. One of them is enough, and a janitor that comes after it ends
        // nothing.
        let emptied = kept.file.set_len(0);
        let removed = fs::remove_file(&kept.path);
        if let (Err(emptied), Err(removed)) = (emptied, removed) {
            tracing::error!(%emptied, %removed, "the record stays as it was");
        }
    }

    /// Notes that an ending was incomplete: the janitor may be able to finish it.
    pub(crate) fn leave(&self, session: Option<SessionId>) {
        let line = unended_line(session.unwrap_or(SessionId(0)));
        if let Ok(kept) = &self.kept
            && let Err(error) = kept.append(line.as_bytes())
        {
            // The record may be removed then, and what is left is left.
            tracing::warn!(%error, "an incomplete ending cannot be noted");
        }
    }

    /// The helper goes in order. Its record goes with it, unless something may be left.
    pub(crate) fn retire(&self) {
        let Ok(kept) = &self.kept else { return };
        let retired = kept.file.metadata().and_then(|about| match about.len() {
            length if length == kept.length => fs::remove_file(&kept.path),
            // The next sweep removes it where nothing is left any more.
            _ => Ok(()),
        });
        if let Err(error) = retired {
            tracing::debug!(%error, "the record stays");
        }
    }

    fn write(&self, cgroup: Option<&Path>) -> io::Result<Kept> {
        let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
        // A write beyond this limit raises a signal that ends the process.
        if limit < MAX_RECORD {
            return Err(Errno::EFBIG.into());
        }
        let text = self.text(cgroup)?.encode();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let mut last = io::Error::from(Errno::ENOENT);
        for folder in record_folders(runtime, geteuid().as_raw()) {
            match keep_in(&folder, self.name, &text) {
                Ok(kept) => return Ok(kept),
                Err(error) => {
                    tracing::debug!(folder = %folder.display(), %error, "no record there");
                    last = error;
                }
            }
        }
        Err(last)
    }

    fn text(&self, cgroup: Option<&Path>) -> io::Result<Record> {
        use std::os::unix::ffi::OsStrExt;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(Record {
            name: self.name,
            boot: boot.trim().to_owned(),
            pid_namespace: fs::metadata("/proc/self/ns/pid")?.ino(),
            helper: std::process::id().cast_signed(),
            uid: geteuid().as_raw(),
            mark: self.marking.map(|marking| marking.mark),
            cgroup: cgroup.map(|path| Bytes(path.as_os_str().as_bytes().to_vec())),
            released: std::collections::BTreeSet::new(),
        })
    }
}

impl Kept {
    fn append(&self, line: &[u8]) -> io::Result<()> {
        let mut file = &self.file;
        // One write, which the kernel does not mix with those of keepers.
        match file.write(line)? {
            count if count == line.len() => Ok(()),
            _ => Err(Errno::ENOSPC.into()),
        }
    }
}

/// Writes a record into a folder of this user's, which is made where it is missing. The name
/// appears when the record is whole and locked.
fn keep_in(folder: &Path, name: u64, text: &[u8]) -> io::Result<Kept> {
    let directory = own_folder(folder)?;
    let fresh = format!("{NEW}{}", file_name(name));
    for _ in 0..TRIES {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_APPEND;
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let mut file = File::from(openat(&directory, fresh.as_str(), flags, mode)?);
        let written = lock(&file)
            .and_then(|()| file.write_all(text))
            .and_then(|()| {
                let name = file_name(name);
                renameat(&directory, fresh.as_str(), &directory, name.as_str())?;
                Ok(folder.join(name))
            });
        match written {
            // A janitor has taken it for the rest of a dead helper's and removed it.
            Err(error) if is_taken_away(&error) => {}
            Err(error) => {
                drop(fs::remove_file(folder.join(&fresh)));
                return Err(error);
            }
            Ok(path) => {
                let length = text.len() as u64;
                return Ok(Kept { file, path, length });
            }
        }
    }
    Err(Errno::EBUSY.into())
}

fn lock(file: &File) -> io::Result<()> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Errno::EWOULDBLOCK.into(),
        TryLockError::Error(error) => error,
    })
}

fn is_taken_away(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::WouldBlock
    )
}

/// Opens the folder, and makes it where only it is missing. Nobody else may be able to write or
/// read in it, and it is not reached through a link of its own.
fn own_folder(folder: &Path) -> io::Result<OwnedFd> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = File::from(open(folder, flags, Mode::empty())?);
    let about = directory.metadata()?;
    match about.uid() == geteuid().as_raw() && about.mode() & 0o077 == 0 {
        true => Ok(directory.into()),
        false => Err(Errno::EPERM.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("foster-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn a_record_appears_whole_and_locked_and_its_releases_are_added() {
        let folder = scratch("record");
        let mut instance = Instance::draw().unwrap();
        let text = instance.text(Some(Path::new("/a b"))).unwrap();
        let kept = keep_in(&folder.join("own"), instance.name, &text.encode()).unwrap();
        let path = kept.path.clone();
        let other = File::open(&path).unwrap();
        assert!(other.try_lock().is_err());
        instance.kept = Ok(kept);
        instance.release(SessionId(4));
        let read = Record::decode(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(read.released, [SessionId(4)].into());
        // Something is left, so that it stays.
        instance.retire();
        assert!(path.exists());
        drop(instance);
        assert!(other.try_lock().is_ok());
        let kept = keep_in(&folder.join("own"), 7, &text.encode()).unwrap();
        let path = kept.path.clone();
        let instance = Instance {
            name: 7,
            marking: None,
            kept: Ok(kept),
        };
        instance.retire();
        assert!(!path.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_enter_or_that_is_a_link_is_refused() {
        let folder = scratch("folders");
        let (open, link) = (folder.join("open"), folder.join("link"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(&open, &link).unwrap();
        let refusal = |path: &Path| own_folder(path).unwrap_err().raw_os_error();
        assert_eq!(refusal(&open), Some(libc::EPERM));
        assert!(matches!(refusal(&link), Some(libc::ELOOP | libc::ENOTDIR)));
        assert_eq!(refusal(&folder.join("a/b")), Some(libc::ENOENT));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_release_that_cannot_be_noted_takes_the_record_away() {
        let folder = scratch("full");
        let mut instance = Instance::draw().unwrap();
        let text = instance.text(None).unwrap();
        let kept = keep_in(&folder.join("own"), instance.name, &text.encode()).unwrap();
        let path = kept.path.clone();
        // It cannot be written or emptied through this one.
        instance.kept = Ok(Kept {
            file: File::open(&path).unwrap(),
            ..kept
        });
        instance.release(SessionId(1));
        assert!(!path.exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
