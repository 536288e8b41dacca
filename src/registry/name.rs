//! The name of a service, and the file name that is made of it.
//!
//! A file name is made here and nowhere else, so that no name leads out of the folder.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::RegistryError;

/// The longest name, in bytes: three times as long it is still a file name.
const LENGTH_LIMIT: usize = 64;

/// The end of every row's file name. No encoded name holds a dot.
pub(super) const SUFFIX: &str = ".service";

/// The name of a service: up to 64 bytes of text without control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceName(String);

impl ServiceName {
    /// Creates a name.
    ///
    /// # Errors
    ///
    /// [`BadName`](RegistryError::BadName) where it is empty, too long or holds a control
    /// character.
    pub fn new(name: impl Into<String>) -> Result<Self, RegistryError> {
        let name = name.into();
        if name.is_empty() || name.len() > LENGTH_LIMIT || name.contains(char::is_control) {
            return Err(RegistryError::BadName { name });
        }
        Ok(Self(name))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The file name: letters, digits, `-` and `_` as they are, any other byte as `%` and two
    /// digits. Slashes and dots are such bytes.
    pub(super) fn file(&self) -> String {
        let mut file = String::new();
        for byte in self.0.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => {
                    file.push(char::from(byte));
                }
                other => file.push_str(&format!("%{other:02x}")),
            }
        }
        file.push_str(SUFFIX);
        file
    }
}

impl TryFrom<String> for ServiceName {
    type Error = RegistryError;

    fn try_from(name: String) -> Result<Self, RegistryError> {
        Self::new(name)
    }
}

impl From<ServiceName> for String {
    fn from(name: ServiceName) -> Self {
        name.0
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> String {
        ServiceName::new(name).expect("a name").file()
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        assert_eq!(file("web-1_a"), "web-1_a.service");
        assert_eq!(
            file("../../etc/passwd"),
            "%2e%2e%2f%2e%2e%2fetc%2fpasswd.service"
        );
        assert_eq!(file("."), "%2e.service");
        assert_eq!(file("ä b%"), "%c3%a4%20b%25.service");
        assert!(file(&"/".repeat(64)).len() < 255);
    }

    #[test]
    fn names_that_would_forge_a_line_or_a_file_are_refused() {
        for name in ["", "a\0b", "a\nb", "a\u{1b}[2J", &"x".repeat(65)] {
            let error = ServiceName::new(name).expect_err("it is no name");
            assert!(matches!(error, RegistryError::BadName { .. }), "{error}");
        }
    }
}
