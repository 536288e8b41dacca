//! The builder of a command, with std's names.

#[cfg(target_os = "linux")]
mod attempt;
mod convert;
#[cfg(target_os = "linux")]
mod held;
mod options;
mod plan;
mod spawn;

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use foster_protocol::{Level, LevelChoice};

#[cfg(target_os = "linux")]
pub(crate) use attempt::Failure;
#[cfg(target_os = "linux")]
pub(crate) use held::Held;
pub(crate) use plan::Defaults;
use plan::Options;
pub(crate) use spawn::{How, Made};

#[cfg(not(target_os = "linux"))]
use crate::elsewhere::Helper;
use crate::environment::Environment;
#[cfg(target_os = "linux")]
use crate::helper::Helper;
use crate::identity::Markers;
use crate::on_exit::{DEFAULT_DRAIN, DEFAULT_GRACE, OnExit};
use crate::stdio::Stdio;

/// Builds a command and spawns it through a helper, as [`std::process::Command`] does without.
///
/// The same defaults hold: arguments and environment as given, the working directory of this
/// process, and for [`spawn`](Self::spawn) and [`status`](Self::status) its standard streams.
/// Unlike there, the command is the leader of a session of its own, it has no controlling
/// terminal, it gets no descriptors but its streams and those of [`fd`](Self::fd), and its
/// whole tree ends when its [`Child`](crate::Child) is dropped.
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
    program: OsString,
    arg0: Option<OsString>,
    args: Vec<OsString>,
    environment: Environment,
    directory: Option<PathBuf>,
    stdin: Option<Stdio>,
    stdout: Option<Stdio>,
    stderr: Option<Stdio>,
    /// Targets of 3 and above, each once.
    descriptors: Vec<(i32, OwnedFd)>,
    options: Options,
    level: Option<LevelChoice>,
    require: Option<Level>,
    on_exit: OnExit,
    deadline: Option<Duration>,
    grace: Duration,
    drain: Duration,
    detachable: bool,
    label: OsString,
    helper: Option<Helper>,
}

impl Command {
    /// Starts to build a command for a program.
    ///
    /// A program without a slash is searched in the `PATH` that the command will have. A
    /// relative path is taken from the command's working directory.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arg0: None,
            args: Vec::new(),
            environment: Environment::default(),
            directory: None,
            stdin: None,
            stdout: None,
            stderr: None,
            descriptors: Vec::new(),
            options: Options::default(),
            level: None,
            require: None,
            on_exit: OnExit::default(),
            deadline: None,
            grace: DEFAULT_GRACE,
            drain: DEFAULT_DRAIN,
            detachable: false,
            label: OsString::new(),
            helper: None,
        }
    }

    /// Adds an argument.
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

    /// Sets the program's name for itself, its argument 0, in place of the program.
    pub fn arg0(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.arg0 = Some(arg.as_ref().to_owned());
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

    /// Marks the command, so that [`identity::is_live_child`](crate::identity::is_live_child)
    /// knows it and its descendants again.
    ///
    /// The markers are set whatever else is done to the environment, before or after this
    /// call; there is one pair, that of the last call.
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

    /// Passes a descriptor on, under this number in the command.
    ///
    /// Numbers may be swapped and may overlap with this process's own. A number that is named
    /// twice gets the last descriptor; 0, 1 and 2 are the standard streams.
    pub fn fd(&mut self, target: i32, descriptor: impl Into<OwnedFd>) -> &mut Self {
        let descriptor = descriptor.into();
        match target {
            0 => self.stdin = Some(descriptor.into()),
            1 => self.stdout = Some(descriptor.into()),
            2 => self.stderr = Some(descriptor.into()),
            _ => {
                self.descriptors.retain(|(taken, _)| *taken != target);
                self.descriptors.push((target, descriptor));
            }
        }
        self
    }

    /// Sets the helper to spawn through. Without it, [`Helper::global`] is used.
    pub fn helper(&mut self, helper: &Helper) -> &mut Self {
        self.helper = Some(helper.clone());
        self
    }

    /// Returns the program.
    #[must_use]
    pub fn get_program(&self) -> &OsStr {
        &self.program
    }

    /// Returns the arguments, without the program's name for itself.
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

#[cfg(all(test, target_os = "linux"))]
mod tests;
