//! Strings of a spawn: what they are, how long they are, and the limits on them.

use std::ffi::{OsStr, OsString};
use std::fmt;

use foster_protocol::{Bytes, MAX_STRING};

use crate::error::{Error, Repr};

/// A string of a spawn, by its role. Values never stand in an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// The program's path.
    Program,
    /// An argument, the program's name for itself being 0.
    Argument(usize),
    /// An environment variable, by its name.
    Variable(OsString),
    /// The working directory.
    Directory,
    /// The label.
    Label,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Program => f.write_str("program"),
            Item::Argument(index) => write!(f, "argument {index}"),
            Item::Variable(name) => {
                write!(
                    f,
                    "environment variable {}",
                    name.as_encoded_bytes().escape_ascii()
                )
            }
            Item::Directory => f.write_str("directory"),
            Item::Label => f.write_str("label"),
        }
    }
}

/// The longest string of a spawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Largest {
    item: Item,
    length: usize,
}

impl fmt::Display for Largest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.item, self.length)
    }
}

/// What the strings of a spawn add up to.
#[derive(Clone, Debug)]
pub(crate) struct Size {
    /// Bytes of arguments and environment as the kernel counts them, each with its NUL.
    pub(crate) total: usize,
    /// The longest of them.
    pub(crate) largest: Largest,
}

impl Size {
    /// Nothing counted yet.
    pub(crate) fn new() -> Self {
        Self {
            total: 0,
            largest: Largest {
                item: Item::Program,
                length: 0,
            },
        }
    }

    /// Checks and counts one string that the kernel will copy for the program.
    pub(crate) fn add(&mut self, item: impl Fn() -> Item, bytes: Vec<u8>) -> Result<Bytes, Error> {
        let length = bytes.len();
        let bytes = checked(&item, bytes)?;
        if length > MAX_STRING {
            return Err(Repr::StringTooLong {
                what: item(),
                length,
            }
            .into());
        }
        self.total += length + 1;
        if length > self.largest.length {
            self.largest = Largest {
                item: item(),
                length,
            };
        }
        Ok(bytes)
    }
}

/// Refuses a NUL, as std does: the kernel would end the string there.
pub(crate) fn checked(item: impl Fn() -> Item, bytes: Vec<u8>) -> Result<Bytes, Error> {
    if bytes.contains(&0) {
        Err(Repr::Nul { what: item() }.into())
    } else {
        Ok(Bytes(bytes))
    }
}

/// The bytes of an OS string.
pub(crate) fn bytes(text: &OsStr) -> Vec<u8> {
    text.as_encoded_bytes().to_vec()
}
