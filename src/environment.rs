//! The environment of a command: changes against this process's own.

use std::collections::BTreeMap;
#[cfg(unix)]
use std::env;
use std::ffi::{OsStr, OsString};

#[cfg(unix)]
use foster_protocol::Bytes;

#[cfg(unix)]
use crate::error::Error;
use crate::identity::Markers;
#[cfg(unix)]
use crate::size::{Item, Size};

/// Changes to the environment that a command inherits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    clear: bool,
    changes: BTreeMap<OsString, Option<OsString>>,
    /// Set whatever the changes say.
    markers: Option<Markers>,
}

impl Environment {
    pub(crate) fn set(&mut self, name: &OsStr, value: &OsStr) {
        self.changes.insert(name.to_owned(), Some(value.to_owned()));
    }

    pub(crate) fn remove(&mut self, name: &OsStr) {
        if self.clear {
            self.changes.remove(name);
        } else {
            self.changes.insert(name.to_owned(), None);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.clear = true;
        self.changes.clear();
    }

    pub(crate) fn mark(&mut self, markers: &Markers) {
        self.markers = Some(markers.clone());
    }

    pub(crate) fn is_cleared(&self) -> bool {
        self.clear
    }

    /// The changes: values that are set, none for what is removed.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&OsStr, Option<&OsStr>)> {
        self.changes
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_deref()))
    }

    /// Changes the environment of a command of std in the same way.
    #[cfg(windows)]
    pub(crate) fn apply(&self, command: &mut std::process::Command) {
        if self.clear {
            command.env_clear();
        }
        for (name, value) in &self.changes {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.envs(self.markers.iter().flat_map(Markers::variables));
    }

    /// The whole environment as `NAME=value` entries, sorted by name.
    #[cfg(unix)]
    pub(crate) fn entries(&self, size: &mut Size) -> Result<Vec<Bytes>, Error> {
        let mut all = if self.clear {
            BTreeMap::new()
        } else {
            env::vars_os().collect()
        };
        for (name, value) in &self.changes {
            match value {
                Some(value) => all.insert(name.clone(), value.clone()),
                None => all.remove(name),
            };
        }
        for (name, value) in self.markers.iter().flat_map(Markers::variables) {
            all.insert(name.into(), value.into());
        }
        all.iter()
            .map(|(name, value)| entry(name, value, size))
            .collect()
    }
}

#[cfg(unix)]
fn entry(name: &OsStr, value: &OsStr, size: &mut Size) -> Result<Bytes, Error> {
    let mut entry = Vec::with_capacity(name.len() + value.len() + 1);
    entry.extend_from_slice(name.as_encoded_bytes());
    entry.push(b'=');
    entry.extend_from_slice(value.as_encoded_bytes());
    size.add(|| Item::Variable(name.to_owned()), entry)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn entries(environment: &Environment) -> Vec<Bytes> {
        environment
            .entries(&mut Size::new())
            .expect("nothing is too long")
    }

    #[test]
    fn a_cleared_environment_has_what_was_set_afterwards() {
        let mut environment = Environment::default();
        environment.set("A".as_ref(), "1".as_ref());
        environment.clear();
        environment.set("B".as_ref(), "2".as_ref());
        environment.set("C".as_ref(), "".as_ref());
        environment.remove("B".as_ref());
        assert_eq!(entries(&environment), [Bytes::from("C=")]);
    }

    #[test]
    fn markers_are_one_pair_and_survive_every_other_change() {
        let pair = |key, name| Markers::new(key, name).expect("both are well formed");
        let mut environment = Environment::default();
        environment.mark(&pair("FIRST", "a"));
        environment.mark(&pair("SECOND", "b"));
        environment.set("SECOND".as_ref(), "c".as_ref());
        environment.clear();
        assert_eq!(
            entries(&environment),
            [Bytes::from("FOSTER_CHILD=1"), Bytes::from("SECOND=b")]
        );
    }

    #[test]
    fn a_removed_variable_is_not_inherited() {
        let name = env::vars_os()
            .next()
            .expect("the test has an environment")
            .0;
        let mut environment = Environment::default();
        let before = entries(&environment).len();
        environment.remove(&name);
        assert_eq!(entries(&environment).len(), before - 1);
    }

    #[test]
    fn a_variable_above_the_limit_is_named() {
        let mut environment = Environment::default();
        environment.clear();
        environment.set("BIG".as_ref(), "x".repeat(200_000).as_ref());
        let error = environment
            .entries(&mut Size::new())
            .expect_err("it is too long");
        assert!(error.is_too_large());
        assert_eq!(
            error.to_string(),
            "environment variable BIG is 200004 bytes long, above the limit of 131071"
        );
    }

    #[test]
    fn a_nul_is_invalid_input() {
        let mut environment = Environment::default();
        environment.set("A".as_ref(), "x\0y".as_ref());
        let error = environment
            .entries(&mut Size::new())
            .expect_err("it holds a NUL");
        assert_eq!(
            std::io::Error::from(error).kind(),
            std::io::ErrorKind::InvalidInput
        );
    }
}
