//! From std's builder, and to text.

use std::fmt;
use std::process;

use super::Command;

impl From<process::Command> for Command {
    /// Takes the program, the arguments, the changes to the environment and the working
    /// directory.
    ///
    /// The rest cannot be read from std's builder: its streams, its argument 0, its
    /// credentials, and whether the environment was cleared.
    fn from(std: process::Command) -> Self {
        let mut command = Command::new(std.get_program());
        command.args(std.get_args());
        for (name, value) in std.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = std.get_current_dir() {
            command.current_dir(directory);
        }
        command
    }
}

impl fmt::Debug for Command {
    /// Shows the command as one would type it, as std does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(directory) = &self.directory {
            write!(f, "cd {directory:?} && ")?;
        }
        if self.environment.is_cleared() {
            f.write_str("env -i ")?;
        } else {
            let mut removed = self
                .get_envs()
                .filter(|(_, value)| value.is_none())
                .peekable();
            if removed.peek().is_some() {
                f.write_str("env ")?;
            }
            for (name, _) in removed {
                write!(f, "-u {} ", name.display())?;
            }
        }
        for (name, value) in self.get_envs() {
            if let Some(value) = value {
                write!(f, "{}={value:?} ", name.display())?;
            }
        }
        if let Some(name) = &self.arg0 {
            write!(f, "[{:?}] ", self.program)?;
            write!(f, "{name:?}")?;
        } else {
            write!(f, "{:?}", self.program)?;
        }
        for arg in &self.args {
            write!(f, " {arg:?}")?;
        }
        Ok(())
    }
}
