//! Markers in the environment: what a process is started with, and finding it again.
//!
//! They are compared entry by entry, byte by byte; a prefix is no match.

use thiserror::Error;

/// The variable that every marked process has, with the value 1.
pub const MARKER: &str = "FOSTER_CHILD";

/// The longest key and the longest name, in bytes: what a file name takes, too.
const LENGTH_LIMIT: usize = 128;

/// The two entries that mark a process: `FOSTER_CHILD=1` and one `key=name`.
///
/// The key says what kind of process it is and whose, such as `ACME_SERVICE`; the name says
/// which one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Markers {
    key: String,
    name: String,
}

/// Why a key or a name is none.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MarkersError {
    /// The key is no name of a variable.
    #[error("marker key {key:?} is not a letter or _ and then letters, digits and _")]
    Key {
        /// The key.
        key: String,
    },
    /// The key is that of the fixed marker.
    #[error("marker key {MARKER} is that of the fixed marker")]
    Fixed,
    /// The name is empty or holds a control character.
    #[error("marker name {name:?} is empty or holds a control character")]
    Name {
        /// The name.
        name: String,
    },
    /// Either is too long.
    #[error("marker key or name is {length} bytes long, above the limit of {LENGTH_LIMIT}")]
    TooLong {
        /// The length of the longer one.
        length: usize,
    },
}

impl Markers {
    /// Creates markers of a key and a name.
    ///
    /// # Errors
    ///
    /// Says what is wrong with either.
    pub fn new(key: impl Into<String>, name: impl Into<String>) -> Result<Self, MarkersError> {
        let (key, name) = (key.into(), name.into());
        let length = key.len().max(name.len());
        if length > LENGTH_LIMIT {
            return Err(MarkersError::TooLong { length });
        }
        let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
        let is_rest = |c: char| is_start(c) || c.is_ascii_digit();
        if !key.starts_with(is_start) || !key.chars().all(is_rest) {
            return Err(MarkersError::Key { key });
        }
        if key == MARKER {
            return Err(MarkersError::Fixed);
        }
        if name.is_empty() || name.contains(char::is_control) {
            return Err(MarkersError::Name { name });
        }
        Ok(Self { key, name })
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the two variables.
    #[must_use]
    pub fn variables(&self) -> [(&str, &str); 2] {
        [(MARKER, "1"), (&self.key, &self.name)]
    }

    /// Whether an environment, as `/proc/PID/environ` shows it, holds both entries.
    ///
    /// Order does not matter. An environment that has one of the two variables again with
    /// another value says two things, and is no match.
    #[must_use]
    pub fn is_in(&self, environ: &[u8]) -> bool {
        self.variables().iter().all(|(name, value)| {
            let mut values = environ
                .split(|byte| *byte == 0)
                .filter_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
                .peekable();
            values.peek().is_some() && values.all(|found| found == value.as_bytes())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn markers() -> Markers {
        Markers::new("ACME_SERVICE", "web").expect("both are well formed")
    }

    #[test]
    fn both_entries_match_in_any_order() {
        for environ in [
            &b"FOSTER_CHILD=1\0ACME_SERVICE=web\0"[..],
            b"A=b\0ACME_SERVICE=web\0PATH=/bin\0FOSTER_CHILD=1\0",
            b"ACME_SERVICE=web\0FOSTER_CHILD=1",
            b"ACME_SERVICE=web\0FOSTER_CHILD=1\0ACME_SERVICE=web\0",
        ] {
            assert!(markers().is_in(environ), "{environ:?}");
        }
    }

    #[test]
    fn nothing_but_both_entries_matches() {
        for environ in [
            &b""[..],
            b"\0\0\0",
            b"PATH=/bin\0",
            b"FOSTER_CHILD=1\0",
            b"ACME_SERVICE=web\0",
            b"FOSTER_CHILD=1\0ACME_SERVICE=we\0",
            b"FOSTER_CHILD=1\0ACME_SERVICE=web2\0",
            b"FOSTER_CHILD=1\0ACME_SERVICE=\0",
            b"FOSTER_CHILD=1\0XACME_SERVICE=web\0",
            b"FOSTER_CHILD=1\0X=ACME_SERVICE=web\0",
            b"FOSTER_CHILD=1\0ACME_SERVICE=web\n",
            b"FOSTER_CHILD=10\0ACME_SERVICE=web\0",
            b"FOSTER_CHILD=1 ACME_SERVICE=web\0",
            // The same variable twice says two things.
            b"FOSTER_CHILD=1\0ACME_SERVICE=web\0ACME_SERVICE=db\0",
        ] {
            assert!(!markers().is_in(environ), "{environ:?}");
        }
    }

    #[test]
    fn keys_and_names_that_could_be_taken_for_others_are_refused() {
        for key in ["", "1A", "A=B", "A B", "Ä", "A\0"] {
            let refused = Markers::new(key, "x").expect_err("it is no key");
            assert!(matches!(refused, MarkersError::Key { .. }), "{refused}");
        }
        assert_eq!(Markers::new(MARKER, "x"), Err(MarkersError::Fixed));
        for name in ["", "a\0b", "a\nb"] {
            let refused = Markers::new("K", name).expect_err("it is no name");
            assert!(matches!(refused, MarkersError::Name { .. }), "{refused}");
        }
        let refused = Markers::new("K", "x".repeat(129)).expect_err("it is too long");
        assert_eq!(refused, MarkersError::TooLong { length: 129 });
    }
}
