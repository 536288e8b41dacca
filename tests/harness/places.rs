//! Where the executables are: the helper under test, the command line, the fixtures.

use std::ffi::OsString;
use std::path::PathBuf;

/// Names another helper executable to test.
pub const HELPER: &str = "FOSTER_HELPER";

/// One argument for that executable, where it plays the helper only when asked to.
pub const HELPER_ARGUMENT: &str = "FOSTER_HELPER_ARG";

/// The argument by which a re-executed host knows that it is to be the helper.
pub const RESERVED_ARGUMENT: &str = "__foster-helper";

/// An executable with its first arguments.
#[derive(Clone, Debug)]
pub struct Executable {
    /// The file.
    pub path: PathBuf,
    /// The arguments.
    pub args: Vec<OsString>,
}

/// The helper under test: `FOSTER_HELPER` with `FOSTER_HELPER_ARG`, else this package's own.
#[must_use]
pub fn helper() -> Executable {
    match std::env::var_os(HELPER) {
        Some(path) => Executable {
            path: PathBuf::from(path),
            args: std::env::var_os(HELPER_ARGUMENT).into_iter().collect(),
        },
        None => Executable {
            path: fixture("helper-under-test"),
            args: Vec::new(),
        },
    }
}

/// The host that plays the helper when it is re-executed.
#[must_use]
pub fn reexec_helper() -> Executable {
    Executable {
        path: fixture("reexec-host"),
        args: vec![RESERVED_ARGUMENT.into()],
    }
}

/// The `foster` command under test.
#[must_use]
pub fn foster() -> PathBuf {
    fixture("foster-under-test")
}

/// An executable of this package. Test executables lie in a folder `deps` beside them.
///
/// # Panics
///
/// Where it is not there, which means that it was not built.
#[must_use]
pub fn fixture(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the path of this executable");
    let found = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("no executable {name} beside {}", own.display()))
}
