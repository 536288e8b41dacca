//! Where a helper comes from: the places, in their order, and why one is passed over.
//!
//! `PATH` is never searched: who controls it must not choose who spawns the host's commands.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::Attempt;
use crate::init;
use crate::sys;

/// The variable that names a helper.
pub(crate) const VARIABLE: &str = "FOSTER_HELPER";

/// The name of a helper beside the program.
const NAME: &str = "foster-helper";

/// This process's own program, whatever has happened to its name.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// One place to launch a helper from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The program.
    pub(super) path: PathBuf,
    /// How it is launched.
    pub(super) kind: Kind,
}

/// How a helper is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A helper executable.
    Executable,
    /// This process's own program, which calls `init`.
    OwnProgram,
}

impl Place {
    /// The place as it stands in an error.
    pub(super) fn describe(&self) -> String {
        match self.kind {
            Kind::Executable => self.path.display().to_string(),
            Kind::OwnProgram => format!("{} (re-executed)", self.path.display()),
        }
    }
}

/// The places to try, in order. Those that are ruled out already are noted with the reason.
pub(super) fn places(explicit: Option<&Path>, passed_over: &mut Vec<Attempt>) -> Vec<Place> {
    if let Some(path) = explicit {
        return vec![executable(path)];
    }
    let mut places = Vec::from_iter(own_program(passed_over));
    let mut note = |place: &str, why: String| {
        passed_over.push(Attempt {
            place: place.into(),
            why,
        });
    };
    match named(env::var_os(VARIABLE).as_deref(), sys::is_secure()) {
        Ok(path) => places.push(executable(&path)),
        Err(why) => note(VARIABLE, why.into()),
    }
    match env::current_exe() {
        Ok(own) => places.push(executable(&own.with_file_name(NAME))),
        Err(error) => note("beside this program", error.to_string()),
    }
    places
}

/// This program itself, where it can play the helper; else that is noted.
pub(super) fn own_program(passed_over: &mut Vec<Attempt>) -> Option<Place> {
    if init::was_called() {
        return Some(Place {
            path: OWN_PROGRAM.into(),
            kind: Kind::OwnProgram,
        });
    }
    passed_over.push(Attempt {
        place: "re-executing this program".into(),
        why: "foster::init() was not called".into(),
    });
    None
}

/// The helper that the variable names.
fn named(value: Option<&OsStr>, secure: bool) -> Result<PathBuf, &'static str> {
    match value {
        None => Err("not set"),
        Some(_) if secure => Err("ignored in a program with raised privileges"),
        Some(value) if value.is_empty() => Err("set and empty"),
        Some(value) => Ok(value.into()),
    }
}

/// An executable by its path. A bare name is one in the working directory, not in `PATH`.
fn executable(path: &Path) -> Place {
    let path = if path.components().count() == 1 && path.is_relative() {
        Path::new(".").join(path)
    } else {
        path.to_path_buf()
    };
    Place {
        path,
        kind: Kind::Executable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_not_searched_in_path() {
        assert_eq!(executable(Path::new("sh")).path.as_os_str(), "./sh");
        assert_eq!(executable(Path::new("/bin/sh")).path.as_os_str(), "/bin/sh");
        assert_eq!(executable(Path::new("a/b")).path.as_os_str(), "a/b");
    }

    #[test]
    fn an_explicit_path_is_the_only_place() {
        let mut passed_over = Vec::new();
        let places = places(Some(Path::new("/x/helper")), &mut passed_over);
        assert_eq!(
            places,
            [Place {
                path: "/x/helper".into(),
                kind: Kind::Executable
            }]
        );
        assert!(passed_over.is_empty());
    }

    #[test]
    fn the_variable_is_ignored_with_raised_privileges() {
        assert!(named(Some("/x".as_ref()), true).is_err());
        assert_eq!(named(Some("/x".as_ref()), false), Ok("/x".into()));
        assert!(named(Some("".as_ref()), false).is_err());
        assert!(named(None, false).is_err());
    }
}
