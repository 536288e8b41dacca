//! Launching a helper: a socket pair, and the helper's end as its standard input.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::link::Link;
use crate::places::{self, Executable};
use crate::scan::TAG;
use crate::start::start;

/// A launch that is not done yet.
#[derive(Debug)]
pub struct Launch {
    tag: String,
    /// The wrappers, outermost first, then the helper.
    words: Vec<OsString>,
    user: Option<u32>,
    stderr: Option<Stdio>,
    runtime: Option<PathBuf>,
}

impl Launch {
    /// Creates a launch of this executable.
    #[must_use]
    pub fn new(tag: String, helper: Executable) -> Self {
        let mut words = vec![helper.path.into_os_string()];
        words.extend(helper.args);
        Self {
            tag,
            words,
            user: None,
            stderr: None,
            runtime: None,
        }
    }

    /// Runs it through a wrapper that changes its process and execs what follows `--`.
    #[must_use]
    pub fn through(mut self, wrapper: &str, args: &[&str]) -> Self {
        let mut words = vec![places::fixture(wrapper).into_os_string()];
        words.extend(args.iter().map(OsString::from));
        words.push("--".into());
        words.append(&mut self.words);
        self.words = words;
        self
    }

    /// Runs it as this user and group, without supplementary groups. Only root can.
    #[must_use]
    pub fn as_user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// Gives it this runtime directory, below which it keeps its record.
    #[must_use]
    pub fn with_runtime_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.runtime = Some(path.into());
        self
    }

    /// Gives it this standard error.
    #[must_use]
    pub fn with_stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = Some(stderr.into());
        self
    }

    /// Launches the helper. Nothing is said yet.
    ///
    /// # Panics
    ///
    /// Where it cannot be started.
    #[must_use]
    pub fn silent(self) -> Link {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let mut command = self.into_command();
        command.stdin(OwnedFd::from(theirs));
        let child = start(&mut command);
        Link::new(child, ours.into())
    }

    /// Launches the helper and says hello.
    #[must_use]
    pub fn greeted(self) -> Link {
        let mut link = self.silent();
        link.hello();
        link
    }

    /// The command that launches it, without its standard input.
    ///
    /// # Panics
    ///
    /// Never: a launch has at least the helper's path.
    #[must_use]
    pub fn into_command(self) -> Command {
        let mut words = self.words.into_iter();
        let program = PathBuf::from(words.next().expect("the helper's path"));
        let mut command = Command::new(program);
        command.args(words).env(TAG, self.tag).stdout(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        if let Some(runtime) = self.runtime {
            command.env("XDG_RUNTIME_DIR", runtime);
        }
        if let Some(stderr) = self.stderr {
            command.stderr(stderr);
        }
        command
    }
}
