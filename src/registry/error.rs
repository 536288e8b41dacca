//! What goes wrong with a registry, typed: a host decides by the kind and shows the text.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::ServiceName;
use crate::identity::{IdentityError, MarkersError};

/// Says what went wrong with a registry. Nothing was signalled because of it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The name is none.
    #[error("service name {name:?} is empty, above 64 bytes or holds a control character")]
    BadName {
        /// The name.
        name: String,
    },
    /// The key or the name cannot be a marker.
    #[error("service cannot be marked")]
    Markers(#[from] MarkersError),
    /// There is no place for a registry: neither `XDG_STATE_HOME` nor `HOME` is set.
    #[error("there is no folder for the registry: neither XDG_STATE_HOME nor HOME is set")]
    NoFolder,
    /// The folder is not the caller's alone.
    #[error("registry folder {path} {fault}", path = path.display())]
    FolderUnsafe {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A file of the registry is not what the registry writes. It is left as it is.
    #[error("registry file {file:?} {fault}")]
    RowRefused {
        /// The file's name in the folder.
        file: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// Somebody else has the registry locked for longer than is waited.
    #[error("registry {path} is locked by another process", path = path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// No service of this name is registered.
    #[error("no service {name} is registered")]
    Unknown {
        /// The name.
        name: ServiceName,
    },
    /// A service of this name lives.
    #[error("service {name} is registered and runs as process {pid}")]
    AlreadyRunning {
        /// The name.
        name: ServiceName,
        /// Its process.
        pid: u32,
    },
    /// The process is not marked as this service, and the kernel gives it no name of its own:
    /// it could not be found again.
    #[error("process {pid} is not marked as service {name} and could not be found again")]
    NotMarked {
        /// The name.
        name: ServiceName,
        /// The process.
        pid: u32,
    },
    /// The process that is to be registered cannot be held.
    #[error("service {name} cannot be registered")]
    NotHeld {
        /// The name.
        name: ServiceName,
        /// Why.
        source: IdentityError,
    },
    /// Somebody else listens on the port. Who it is is told as far as it can be seen; it is
    /// never signalled.
    #[error("port {port} is held by {}", holder(*pid, program.as_deref()))]
    PortTaken {
        /// The port.
        port: u16,
        /// Who listens, where that can be seen.
        pid: Option<u32>,
        /// Its program, where that can be seen.
        program: Option<String>,
    },
    /// A system call failed.
    #[error("{what} {path}", path = path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// What is wrong with a folder or a file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is a symbolic link, or no folder or file.
    #[error("is a link or not of the right kind")]
    Kind,
    /// It belongs to another user.
    #[error("belongs to user {uid}")]
    Owner {
        /// The user.
        uid: u32,
    },
    /// Others may write to it.
    #[error("can be written to by others (mode {mode:03o})")]
    Writable {
        /// The permission bits.
        mode: u32,
    },
    /// It is larger than any row.
    #[error("is larger than {limit} bytes")]
    Size {
        /// The limit.
        limit: u64,
    },
    /// It is not a row.
    #[error("is not a row: {why}")]
    Content {
        /// What the parser says.
        why: String,
    },
    /// It is the row of another service.
    #[error("is the row of service {name}")]
    OtherName {
        /// The name in it.
        name: ServiceName,
    },
    /// Another version has written it.
    #[error("is of version {version}")]
    Version {
        /// The version.
        version: u32,
    },
}

fn holder(pid: Option<u32>, program: Option<&str>) -> String {
    match (pid, program) {
        (Some(pid), Some(program)) => format!("process {pid} ({program})"),
        (Some(pid), None) => format!("process {pid}"),
        (None, _) => "a process that cannot be seen".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_names_port_process_and_program() {
        let taken = |pid, program: Option<&str>| RegistryError::PortTaken {
            port: 8080,
            pid,
            program: program.map(str::to_owned),
        };
        let text = taken(Some(12), Some("nginx")).to_string();
        assert_eq!(text, "port 8080 is held by process 12 (nginx)");
        let text = taken(None, None).to_string();
        assert_eq!(text, "port 8080 is held by a process that cannot be seen");
    }
}
