//! Services that outlive their host and are found again after its restart.
//!
//! A service is a command that was spawned [`detachable`](crate::Command::detachable) and
//! marked, registered while it was held, and released. Its row, a file in a folder that is
//! this user's alone, says by what the next host knows it again. A host that starts
//! [reconciles](Registry::reconcile): rows whose process is gone, or is not the one that was
//! registered, are dropped. A stranger is never adopted and never signalled, and neither is a
//! process of which nobody can tell.
//!
//! What identifies a process: within one boot, the kernel's own name of it
//! ([`PidfsId`](crate::identity::PidfsId), Linux 6.9), or, before that, its
//! [`Markers`].
//!
//! # Examples
//!
//! ```no_run
//! use foster::registry::{Registry, Service, Stop};
//! use foster::{Command, Stdio};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::open("/var/lib/acme/services", "ACME_SERVICE")?;
//! for one in registry.reconcile()? {
//!     println!("{}: {:?}", one.file, one.decision);
//! }
//!
//! // 1. Is the port free? 2. Spawn, marked and detachable. 3. Register. 4. Release.
//! let service = Service::new("indexer")?.port(7700);
//! registry.check_port(&service)?;
//! let child = Command::new("indexer")
//!     .markers(&registry.markers(&service)?)
//!     .detachable(true)
//!     .stdin(Stdio::null())
//!     .stdout(Stdio::null())
//!     .stderr(Stdio::null())
//!     .spawn()?;
//! registry.register(&service, &child)?; // where this fails, the drop of the child ends it
//! child.release()?;
//!
//! // Later, in this host or the next one:
//! for (name, outcome) in registry.stop_all(Stop::default())? {
//!     println!("{name}: {outcome:?}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Platform
//!
//! Linux.

mod course;
mod error;
mod folder;
mod members;
mod name;
mod port;
mod reconcile;
mod row;
mod standing;
mod stop;

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use folder::Folder;
use row::Row;
use standing::{boot, stand};

pub use error::{Fault, RegistryError};
pub use name::ServiceName;
pub use port::Port;
pub use reconcile::{Decision, Reconciled};
pub use row::State;
pub use standing::{Stale, Standing};
pub use stop::{Outcome, Stop, Stopped};

use crate::child::Child;
use crate::identity::{Held, Markers};
use crate::sys;

/// The key of markers for hosts that need none of their own.
pub const DEFAULT_KEY: &str = "FOSTER_SERVICE";

/// The registry of one installation: a folder of rows.
///
/// It can be used by any number of processes of one user in one pid namespace at a time.
#[derive(Debug)]
pub struct Registry {
    folder: Folder,
    key: String,
}

/// A service that is to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    name: ServiceName,
    port: Option<u16>,
}

/// A registered service as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its name.
    pub name: ServiceName,
    /// What it is said to be doing.
    pub state: State,
    /// Whether its process lives and is ours.
    pub standing: Standing,
    /// The process that was registered. It says who was meant; it is never a licence to
    /// signal.
    pub pid: Option<u32>,
    /// The port that it is to listen on.
    pub port: Option<u16>,
}

impl Service {
    /// Creates a service of this name.
    ///
    /// # Errors
    ///
    /// [`BadName`](RegistryError::BadName).
    pub fn new(name: impl Into<String>) -> Result<Self, RegistryError> {
        let name = ServiceName::new(name)?;
        Ok(Self { name, port: None })
    }

    /// Sets the TCP port that it listens on.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &ServiceName {
        &self.name
    }
}

impl Registry {
    /// Opens the registry in this folder, which is made where it is missing, for services
    /// that are marked with this key.
    ///
    /// # Errors
    ///
    /// [`FolderUnsafe`](RegistryError::FolderUnsafe) where the folder is not this user's
    /// alone; [`Markers`](RegistryError::Markers) where the key is none.
    pub fn open(folder: impl AsRef<Path>, key: &str) -> Result<Self, RegistryError> {
        Markers::new(key, "name")?;
        Ok(Self {
            folder: Folder::make(folder.as_ref())?,
            key: key.to_owned(),
        })
    }

    /// Opens the registry in this folder, as [`open`](Self::open) does; none where there is no
    /// such folder, and so no service.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_existing(
        folder: impl AsRef<Path>,
        key: &str,
    ) -> Result<Option<Self>, RegistryError> {
        let folder = folder.as_ref();
        match folder.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // Whatever else is wrong with it, opening it says.
            Ok(_) | Err(_) => {
                Markers::new(key, "name")?;
                Ok(Some(Self {
                    folder: Folder::open(folder)?,
                    key: key.to_owned(),
                }))
            }
        }
    }

    /// Returns the folder that the `foster` command looks at where it is told no other:
    /// `foster/services` in `$XDG_STATE_HOME`, else in `$HOME/.local/state`.
    ///
    /// # Errors
    ///
    /// [`NoFolder`](RegistryError::NoFolder) where neither variable is an absolute path, or
    /// where the program runs with more rights than who started it.
    pub fn default_folder() -> Result<PathBuf, RegistryError> {
        let absolute = |name| {
            let path = env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute() && !sys::is_secure())
        };
        absolute("XDG_STATE_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".local/state")))
            .map(|state| state.join("foster/services"))
            .ok_or(RegistryError::NoFolder)
    }

    /// Returns the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the markers with which a service is to be spawned.
    ///
    /// # Errors
    ///
    /// [`Markers`](RegistryError::Markers), which no name of a service leads to.
    pub fn markers(&self, service: &Service) -> Result<Markers, RegistryError> {
        Ok(Markers::new(self.key.as_str(), service.name.as_str())?)
    }

    /// Notes that a service is about to be spawned. [`register`](Self::register) replaces it.
    ///
    /// # Errors
    ///
    /// As [`register`](Self::register).
    pub fn announce(&self, service: &Service) -> Result<(), RegistryError> {
        let row = self.row(service)?;
        self.put(&row)
    }

    /// Registers a spawned child as this service, before it is
    /// [released](crate::Child::release).
    ///
    /// # Errors
    ///
    /// [`NotHeld`](RegistryError::NotHeld) where the command has exited already, or there are
    /// no pidfds; [`NotMarked`](RegistryError::NotMarked);
    /// [`AlreadyRunning`](RegistryError::AlreadyRunning). The child is untouched in every
    /// case: dropping it ends it.
    pub fn register(&self, service: &Service, child: &Child) -> Result<(), RegistryError> {
        let held = Held::of(child).map_err(|source| RegistryError::NotHeld {
            name: service.name.clone(),
            source,
        })?;
        self.register_held(service, &held)
    }

    /// Registers a process that the caller holds and knows to be this service.
    ///
    /// # Errors
    ///
    /// As [`register`](Self::register).
    pub fn register_held(&self, service: &Service, held: &Held) -> Result<(), RegistryError> {
        let (name, pid) = (service.name.clone(), held.pid());
        if held.pidfs_id().is_none() && !held.carries(&self.markers(service)?) {
            return Err(RegistryError::NotMarked { name, pid });
        }
        let row = self.row(service)?.running(held);
        self.put(&row)?;
        // Whoever has exited by now was never a service; the row would only be stale.
        if held.is_alive() {
            return Ok(());
        }
        self.forget(&row)?;
        Err(RegistryError::NotHeld {
            name,
            source: crate::identity::IdentityError::Gone { pid },
        })
    }

    /// Notes what a host knows of a service: that it has failed, or is over. The next
    /// reconciliation drops such a row.
    ///
    /// # Errors
    ///
    /// [`Unknown`](RegistryError::Unknown) where there is no such service.
    pub fn mark(&self, name: &ServiceName, state: State) -> Result<(), RegistryError> {
        let locked = self.folder.lock()?;
        let row = self.folder.row(&name.file())?;
        let row = row.ok_or_else(|| RegistryError::Unknown { name: name.clone() })?;
        locked.replace(&Row { state, ..row })
    }

    /// Lists what is registered, and what is no row; nothing is changed.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be read.
    pub fn list(&self) -> Result<Vec<Result<Registered, RegistryError>>, RegistryError> {
        let rows = self.folder.rows()?.into_iter();
        let looked_at = rows.map(|(_, row)| {
            row.map(|row| Registered {
                standing: stand(&row).0,
                name: row.name,
                state: row.state,
                pid: row.pid,
                port: row.port,
            })
        });
        Ok(looked_at.collect())
    }

    /// The row of a service that has no process yet.
    fn row(&self, service: &Service) -> Result<Row, RegistryError> {
        let markers = self.markers(service)?;
        let row = Row::starting(&markers, service.name.clone(), boot().to_owned());
        Ok(Row {
            port: service.port,
            ..row
        })
    }

    /// Writes a row where no other process of this name lives.
    fn put(&self, row: &Row) -> Result<(), RegistryError> {
        let locked = self.folder.lock()?;
        if let Some(before) = self.folder.row(&row.name.file())?
            && let (_, Some(held)) = stand(&before)
            && !before.is_same_process(row)
        {
            return Err(RegistryError::AlreadyRunning {
                name: before.name,
                pid: held.pid(),
            });
        }
        locked.replace(row)
    }

    /// Removes a row, unless another process has taken its place meanwhile.
    fn forget(&self, row: &Row) -> Result<(), RegistryError> {
        let locked = self.folder.lock()?;
        let file = row.name.file();
        match self.folder.row(&file)? {
            Some(now) if now.is_same_process(row) => locked.remove(&file),
            Some(_) | None => Ok(()),
        }
    }
}
