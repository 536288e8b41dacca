//! One service as it stands in its file: one JSON object.
//!
//! What is read is checked before anybody acts on it; what is not known is refused.

use serde::{Deserialize, Serialize};

use super::ServiceName;
use super::error::Fault;
use crate::identity::{Held, Markers, PidfsId};

/// The version of a row's shape.
const VERSION: u32 = 1;

/// More than any row: a name and a key of 128 bytes, a program's path.
pub(super) const SIZE_LIMIT: u64 = 16 << 10;

/// What a service is said to be doing. Whether it does is for
/// [`Standing`](super::Standing) to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum State {
    /// It is about to be spawned; there is no process yet.
    Starting,
    /// It was spawned.
    Running,
    /// It failed, by the word of its host.
    Error,
    /// It is over, by the word of its host.
    Stopped,
}

/// One service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) version: u32,
    pub(super) name: ServiceName,
    pub(super) state: State,
    pub(super) pid: Option<u32>,
    /// The kernel's own name of the process, within this boot.
    pub(super) pidfs: Option<u64>,
    /// The boot that the numbers are of.
    pub(super) boot: String,
    /// The key of its markers; the name is the service's. Without one nobody can be found.
    pub(super) key: Option<String>,
    pub(super) port: Option<u16>,
}

impl Row {
    /// A service that has no process yet.
    pub(super) fn starting(markers: &Markers, name: ServiceName, boot: String) -> Self {
        Self {
            version: VERSION,
            name,
            state: State::Starting,
            pid: None,
            pidfs: None,
            boot,
            key: Some(markers.key().to_owned()),
            port: None,
        }
    }

    /// The same service with its process.
    pub(super) fn running(self, held: &Held) -> Self {
        Self {
            state: State::Running,
            pid: Some(held.pid()),
            pidfs: held.pidfs_id().map(|id| id.0),
            ..self
        }
    }

    /// Whether it names the process as this one does.
    pub(super) fn is_same_process(&self, other: &Self) -> bool {
        (self.pid, self.pidfs, &self.boot) == (other.pid, other.pidfs, &other.boot)
    }

    pub(super) fn pidfs_id(&self) -> Option<PidfsId> {
        self.pidfs.map(PidfsId)
    }

    /// The markers of the process; none where the row has no key that could be one.
    pub(super) fn markers(&self) -> Option<Markers> {
        Markers::new(self.key.clone()?, self.name.as_str()).ok()
    }

    /// As it is written.
    pub(super) fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// As it was written, in a file of this name.
    pub(super) fn from_bytes(bytes: &[u8], file: &str) -> Result<Self, Fault> {
        let row: Self = serde_json::from_slice(bytes).map_err(|error| Fault::Content {
            why: error.to_string(),
        })?;
        if row.version != VERSION {
            let version = row.version;
            return Err(Fault::Version { version });
        }
        if row.name.file() != file {
            return Err(Fault::OtherName { name: row.name });
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let markers = Markers::new("K", "a/b").expect("well formed");
        let name = ServiceName::new("a/b").expect("a name");
        Row::starting(&markers, name, "boot".to_owned())
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let row = Row {
            pid: Some(7),
            pidfs: Some(u64::MAX),
            port: Some(80),
            ..row()
        };
        let bytes = row.to_bytes().expect("it can be written");
        assert_eq!(Row::from_bytes(&bytes, "a%2fb.service"), Ok(row));
    }

    #[test]
    fn what_is_no_row_is_refused_with_what_is_wrong() {
        let bytes = row().to_bytes().expect("it can be written");
        let text = String::from_utf8(bytes).expect("JSON is text");
        let read = |text: &str| Row::from_bytes(text.as_bytes(), "a%2fb.service");
        for hostile in [
            "",
            "{}",
            "null",
            &text.replace("\"pid\":null", "\"pid\":-1"),
            &text.replace("\"pid\":null", "\"pid\":4294967296"),
            &text.replace("\"pid\":null", "\"pid\":null,\"pid\":2"),
            &text.replace("\"port\":null", "\"port\":65536"),
            &text.replace("\"port\":null", "\"more\":1"),
            &text.replace("a/b", "a\\u0000b"),
            &text.replace("starting", "dancing"),
            &"[".repeat(10_000),
        ] {
            let fault = read(hostile).expect_err("it is no row");
            assert!(matches!(fault, Fault::Content { .. }), "{hostile}: {fault}");
        }
        let fault = read(&text.replace("\"version\":1", "\"version\":2"));
        assert_eq!(fault, Err(Fault::Version { version: 2 }));
        let other = Row::from_bytes(text.as_bytes(), "other.service");
        assert!(matches!(other, Err(Fault::OtherName { .. })), "{other:?}");
    }
}
