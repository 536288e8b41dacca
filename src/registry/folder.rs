//! The folder of a registry: reading, replacing and removing its files, and its lock.
//!
//! Files are reached through the folder's own descriptor, never through a link, and only where
//! they belong to this user and nobody else may write to them. Nothing here looks at a process.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::poll::poll;
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::RegistryError;
use super::error::Fault;
use super::name::SUFFIX;
use super::row::{Row, SIZE_LIMIT};

/// The file that is locked.
const LOCK: &str = "lock";

/// Where a row is written before it takes its place. Only who has the lock writes it.
const FRESH: &str = "fresh";

/// How long a lock is waited for. It is held while files are read and written, no longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time between two looks at a lock that somebody else has, in milliseconds.
const LOOK: u8 = 10;

/// More rows than any installation has: a folder that was flooded costs no more.
const ROWS_LIMIT: usize = 4096;

/// Rows by their file's name, and what is none.
pub(super) type Rows = Vec<(String, Result<Row, RegistryError>)>;

/// A folder that is this user's alone.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    descriptor: File,
}

/// The folder while nobody else changes it. Dropping it lets go of the lock.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    folder: &'a Folder,
    _lock: File,
}

impl Folder {
    /// Makes the folder where it is missing, and opens it.
    pub(super) fn make(path: &Path) -> Result<Self, RegistryError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|source| system("registry folder cannot be made:", path, source))?;
        Self::open(path)
    }

    /// Opens the folder.
    pub(super) fn open(path: &Path) -> Result<Self, RegistryError> {
        let system = |what| move |source| system(what, path, source);
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let unsafe_folder = |fault| RegistryError::FolderUnsafe {
            path: path.to_owned(),
            fault,
        };
        let descriptor = match nix::fcntl::open(path, flags, Mode::empty()) {
            Ok(descriptor) => File::from(descriptor),
            Err(Errno::ELOOP | Errno::ENOTDIR) => return Err(unsafe_folder(Fault::Kind)),
            Err(errno) => {
                return Err(system("registry folder cannot be opened:")(errno.into()));
            }
        };
        let facts = descriptor
            .metadata()
            .map_err(system("registry folder cannot be looked at:"))?;
        check(&facts).map_err(unsafe_folder)?;
        Ok(Self {
            path: path.to_owned(),
            descriptor,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the lock (`flock(2)`).
    pub(super) fn lock(&self) -> Result<Locked<'_>, RegistryError> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT;
        let lock = File::from(self.open_file(LOCK, flags)?);
        let facts = lock.metadata();
        let facts = facts.map_err(|source| self.system("cannot look at", LOCK, source))?;
        check_file(&facts).map_err(|fault| refused(LOCK, fault))?;
        let until = Instant::now() + PATIENCE;
        loop {
            match lock.try_lock() {
                Ok(()) => {
                    return Ok(Locked {
                        folder: self,
                        _lock: lock,
                    });
                }
                Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                    let path = self.path.clone();
                    return Err(RegistryError::Busy { path });
                }
                Err(TryLockError::WouldBlock) => {
                    // A lock announces nothing. An interrupted wait is a look that comes early.
                    if let Err(errno) = poll(&mut [], LOOK) {
                        tracing::trace!(%errno, "waiting for a lock was interrupted");
                    }
                }
                Err(TryLockError::Error(source)) => {
                    return Err(self.system("cannot lock", LOCK, source));
                }
            }
        }
    }

    /// Every row, by its file's name; what is no row is refused one by one. Files of other
    /// names are nobody's business.
    pub(super) fn rows(&self) -> Result<Rows, RegistryError> {
        let system = |source| system("registry folder cannot be read:", &self.path, source);
        let copy = self.descriptor.try_clone().map_err(system)?;
        let listing = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&copy));
        let mut files = Vec::new();
        for entry in std::fs::read_dir(listing).map_err(system)? {
            let name = entry.map_err(system)?.file_name();
            if name.as_bytes().ends_with(SUFFIX.as_bytes()) {
                files.push(name);
            }
            if files.len() == ROWS_LIMIT {
                tracing::warn!(folder = %self.path.display(), "registry has more rows than are read");
                break;
            }
        }
        files.sort();
        let rows = files.into_iter().map(|file| {
            let file = file.to_string_lossy().into_owned();
            let row = self.row(&file);
            (file, row)
        });
        // A row that goes between listing and reading was no row.
        let there = rows.filter_map(|(file, row)| Some((file, row.transpose()?)));
        Ok(there.collect())
    }

    /// One row; none where there is no such file.
    pub(super) fn row(&self, file: &str) -> Result<Option<Row>, RegistryError> {
        // A FIFO would wait for a writer without O_NONBLOCK.
        let opened = self.open_file(file, OFlag::O_RDONLY | OFlag::O_NONBLOCK);
        let opened = match opened {
            Ok(descriptor) => File::from(descriptor),
            Err(RegistryError::System { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let facts = opened.metadata();
        let facts = facts.map_err(|source| self.system("cannot look at", file, source))?;
        check_file(&facts).map_err(|fault| refused(file, fault))?;
        let mut bytes = Vec::new();
        opened
            .take(SIZE_LIMIT)
            .read_to_end(&mut bytes)
            .map_err(|source| self.system("cannot read", file, source))?;
        let row = Row::from_bytes(&bytes, file).map_err(|fault| refused(file, fault))?;
        Ok(Some(row))
    }

    fn open_file(&self, file: &str, flags: OFlag) -> Result<OwnedFd, RegistryError> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        openat(&self.descriptor, file, flags, mode).map_err(|errno| {
            // ENXIO: a socket.
            if matches!(errno, Errno::ELOOP | Errno::EISDIR | Errno::ENXIO) {
                refused(file, Fault::Kind)
            } else {
                self.system("cannot open", file, errno.into())
            }
        })
    }

    fn system(&self, what: &'static str, file: &str, source: io::Error) -> RegistryError {
        system(what, &self.path.join(file), source)
    }
}

impl Locked<'_> {
    /// Puts a row in the place of the one before: whoever reads sees one of them, whole, and
    /// so does who reads after a power cut.
    pub(super) fn replace(&self, row: &Row) -> Result<(), RegistryError> {
        let folder = self.folder;
        let bytes = row
            .to_bytes()
            .map_err(|error| folder.system("cannot write", FRESH, error.into()))?;
        // 1. What a writer that died has left.
        self.unlink(FRESH)?;
        // 2. The whole row, on the disk.
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let mut fresh = File::from(folder.open_file(FRESH, flags)?);
        let written = fresh.write_all(&bytes).and_then(|()| fresh.sync_all());
        written.map_err(|source| folder.system("cannot write", FRESH, source))?;
        // 3. Its name, and that on the disk.
        let file = row.name.file();
        let dir = &folder.descriptor;
        renameat(dir, FRESH, dir, file.as_str())
            .map_err(|errno| folder.system("cannot replace", &file, errno.into()))?;
        self.sync()
    }

    /// Removes the row of this file, if it is there.
    pub(super) fn remove(&self, file: &str) -> Result<(), RegistryError> {
        self.unlink(file)?;
        self.sync()
    }

    fn unlink(&self, file: &str) -> Result<(), RegistryError> {
        match unlinkat(&self.folder.descriptor, file, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(self.folder.system("cannot remove", file, errno.into())),
        }
    }

    fn sync(&self) -> Result<(), RegistryError> {
        let synced = self.folder.descriptor.sync_all();
        synced.map_err(|source| self.folder.system("cannot write", "", source))
    }
}

/// Whether a file can be a row: plain, not too long, and this user's alone.
fn check_file(facts: &std::fs::Metadata) -> Result<(), Fault> {
    if !facts.is_file() {
        return Err(Fault::Kind);
    }
    check(facts)?;
    if facts.len() >= SIZE_LIMIT {
        return Err(Fault::Size { limit: SIZE_LIMIT });
    }
    Ok(())
}

fn check(facts: &std::fs::Metadata) -> Result<(), Fault> {
    if facts.uid() != geteuid().as_raw() {
        return Err(Fault::Owner { uid: facts.uid() });
    }
    let mode = facts.mode() & 0o777;
    match mode & 0o022 {
        0 => Ok(()),
        _ => Err(Fault::Writable { mode }),
    }
}

fn refused(file: &str, fault: Fault) -> RegistryError {
    RegistryError::RowRefused {
        file: file.to_owned(),
        fault,
    }
}

fn system(what: &'static str, path: &Path, source: io::Error) -> RegistryError {
    RegistryError::System {
        what,
        path: path.to_owned(),
        source,
    }
}
