//! The builder of a command, with std's names.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use foster_protocol::{Level, LevelChoice};

use super::stdio::Stdio;
use crate::elsewhere::Helper;
use crate::environment::Environment;
use crate::identity::Markers;
use crate::on_exit::{DEFAULT_DRAIN, OnExit};

/// Builds a command and spawns it into a job of its own, as [`std::process::Command`] does without
/// one.
///
/// The same defaults hold: arguments and environment as given, the working directory of this
/// process, and for [`spawn`](Self::spawn) and [`status`](Self::status) its standard streams.
/// Unlike there, the command cannot run before it is held, it leads a process group of its own,
/// so that a Ctrl-C at this process's console does not reach it, and its whole tree ends when its
/// [`Child`](crate::Child) is dropped or this process ends, in whatever way.
///
/// # Platform
///
/// This is the builder of Windows. What Unix has beyond it, such as credentials, descriptors and
/// signals, is not there.
///
/// # Examples
///
/// ```no_run
/// use foster::Command;
///
/// # fn main() -> foster::Result<()> {
/// let output = Command::new("git").args(["status", "--short"]).output()?;
/// println!("{} changed files", output.stdout.split(|byte| *byte == b'\n').count());
/// # Ok(())
/// # }
/// ```
pub struct Command {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) environment: Environment,
    pub(super) directory: Option<PathBuf>,
    pub(super) stdin: Option<Stdio>,
    pub(super) stdout: Option<Stdio>,
    pub(super) stderr: Option<Stdio>,
    pub(super) level: Option<LevelChoice>,
    pub(super) require: Option<Level>,
    pub(super) on_exit: OnExit,
    pub(super) deadline: Option<Duration>,
    pub(super) drain: Duration,
    pub(super) detachable: bool,
}

impl Command {
    /// Starts to build a command for a program, which is searched as std does.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            environment: Environment::default(),
            directory: None,
            stdin: None,
            stdout: None,
            stderr: None,
            level: None,
            require: None,
            on_exit: OnExit::default(),
            deadline: None,
            drain: DEFAULT_DRAIN,
            detachable: false,
        }
    }

    /// Adds an argument, which is quoted as std does.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(&mut self, args: impl IntoIterator<Item = S>) -> &mut Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.environment.set(name.as_ref(), value.as_ref());
        self
    }

    /// Sets environment variables.
    pub fn envs<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        &mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> &mut Self {
        for (name, value) in variables {
            self.environment.set(name.as_ref(), value.as_ref());
        }
        self
    }

    /// Removes an environment variable, set here or inherited.
    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.environment.remove(name.as_ref());
        self
    }

    /// Removes every environment variable, those set here and those inherited.
    pub fn env_clear(&mut self) -> &mut Self {
        self.environment.clear();
        self
    }

    /// Marks the command. Nobody can look for the markers on this platform; see
    /// [`identity`](crate::identity).
    pub fn markers(&mut self, markers: &Markers) -> &mut Self {
        self.environment.mark(markers);
        self
    }

    /// Sets the working directory. A relative one is taken from this process's at the spawn.
    pub fn current_dir(&mut self, directory: impl AsRef<Path>) -> &mut Self {
        self.directory = Some(directory.as_ref().to_owned());
        self
    }

    /// Sets what standard input is connected to.
    pub fn stdin(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.stdin = Some(stdio.into());
        self
    }

    /// Sets what standard output is connected to.
    pub fn stdout(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.stdout = Some(stdio.into());
        self
    }

    /// Sets what standard error is connected to.
    pub fn stderr(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.stderr = Some(stdio.into());
        self
    }

    /// Cannot be called: there is no [`Helper`] on this platform.
    pub fn helper(&mut self, helper: &Helper) -> &mut Self {
        helper.never()
    }

    /// Returns the program.
    #[must_use]
    pub fn get_program(&self) -> &OsStr {
        &self.program
    }

    /// Returns the arguments.
    pub fn get_args(&self) -> impl ExactSizeIterator<Item = &OsStr> {
        self.args.iter().map(OsString::as_os_str)
    }

    /// Returns the changes to the environment: values that are set, none for what is removed.
    pub fn get_envs(&self) -> impl Iterator<Item = (&OsStr, Option<&OsStr>)> {
        self.environment.changes()
    }

    /// Returns the working directory, if one was set.
    #[must_use]
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.directory.as_deref()
    }
}

impl fmt::Debug for Command {
    /// Shows no value of the environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&OsStr> = self.environment.changes().map(|(name, _)| name).collect();
        f.debug_struct("Command")
            .field("program", &self.program)
            .field("args", &self.args)
            .field("env_is_cleared", &self.environment.is_cleared())
            .field("env_changes", &names)
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}
