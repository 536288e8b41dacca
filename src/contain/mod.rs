//! Containment for this whole program, at the request of whoever starts it.
//!
//! A host that starts a program can ask it, through one environment variable, to see to it that
//! nothing of it is left when it ends. The program that is asked becomes its own **starter**: it
//! launches a helper, starts itself once more as a session of that helper, says so in one line on
//! standard output, and stands beside the session until its tree is over.
//!
//! The order in `main` is [`init`](crate::init) first, because the program plays its own helper,
//! then this, and everything else after both: no thread may exist yet, because the environment is
//! changed.
//!
//! ```no_run
//! use foster::contain::Outcome;
//!
//! fn main() {
//!     foster::init();
//!     let outcome = foster::contain::on_request("APP_SESSION_CONTAINMENT", |argv| {
//!         argv.get(1).is_some_and(|word| word == "engine")
//!     });
//!     if let Outcome::Unavailable(error) = &outcome {
//!         eprintln!("runs uncontained: {error}");
//!     }
//!     // The program itself, contained or not.
//! }
//! ```
//!
//! # The request
//!
//! It is honoured where the variable has the value `1` and the program accepts its arguments.
//! Whatever its value, the variable is removed from the environment first of all, so that nobody
//! whom this program starts sees it, and the program that is started once more does not ask again.
//!
//! # The acknowledgement
//!
//! One line on standard output, one JSON object with one key: `{"foster_session_containment":1}`,
//! or the key of [`Contain::key`]. It is written in one write when the session exists and the
//! program in it has not run yet, so it is the first line of all. No line means that containment
//! is not in force and that the program runs as it would without the request. While standard
//! output takes nothing, the starter waits, and what ends the program ends the wait.
//!
//! # The end
//!
//! The program's tree is ended when the program exits; when the starter is sent TERM, INT, HUP or
//! QUIT; when its parent dies, where [`Contain::watch_parent`] says so; and when the other end of
//! [`Contain::control_fd`] is closed. Each is TERM to every member and KILL to who is left after
//! the grace; a second INT or TERM is KILL at once. Then the starter exits with the program's code, or
//! with 128 + n where the program died of signal n, and never before the tree is known to be
//! empty. Members that cannot be ended are named in one line on standard error; the code stays the
//! program's. 125 says that the program's status is not known. A starter that is killed takes the
//! tree with it: the helper ends it.
//!
//! # What the program sees
//!
//! Its arguments, its directory, its environment without the variable, and its standard streams,
//! which are passed on and not relayed. It has no other descriptor, its signals are at their
//! defaults, it leads a session of its own without a controlling terminal (it can read and write
//! one that is a standard stream; `Ctrl-C` there ends it through the starter), and its parent is not
//! the one that the starter has. USR1 and USR2 to the starter are passed on to it; TSTP and CONT
//! stop and continue tree and starter.
//!
//! # Platform
//!
//! Linux, with `/proc`.

mod lines;
mod starter;
mod triggers;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::RawFd;
use std::time::Duration;

use foster_protocol::{Level, LevelChoice};

#[cfg(feature = "cli")]
pub(crate) use lines::why;
#[cfg(feature = "cli")]
pub(crate) use starter::{Failed, Orders, start};
#[cfg(not(feature = "cli"))]
use starter::{Failed, Orders, start};
#[cfg(feature = "cli")]
pub(crate) use triggers::is_ignored;

use crate::Command;
use crate::error::{Error, Repr, Result};
use crate::launch::OWN_PROGRAM;
use crate::on_exit::DEFAULT_GRACE;
use crate::sys::{self, Removal};

/// The key of an acknowledgement where the program does not name another.
pub const DEFAULT_KEY: &str = "foster_session_containment";

/// The value of a variable that asks.
const REQUESTED: &str = "1";

/// Why the program runs without containment. In a contained program it is
/// [`NotRequested`](Self::NotRequested): the request has been carried out and is gone.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum Outcome {
    /// Nobody asked: there was no variable, it had another value, or the arguments were not
    /// accepted.
    NotRequested,
    /// Somebody asked, and containment is not to be had. Nothing has been written or left behind.
    ///
    /// With the kind [`ThreadsPresent`](crate::ErrorKind::ThreadsPresent) the variable is still
    /// in the environment, because it could not be removed safely.
    Unavailable(Error),
}

/// Contains this program where a variable asks for it, with the defaults of [`Contain`].
///
/// Returns where it runs uncontained, and in the program that is contained; where it becomes the
/// starter it never returns. See the [module](self) for when to call it.
pub fn on_request(
    variable: impl AsRef<OsStr>,
    accept: impl FnOnce(&[OsString]) -> bool + 'static,
) -> Outcome {
    Contain::new(variable).accept(accept).on_request()
}

/// Whether the program takes part, given its arguments with its own name first.
type Accept = Box<dyn FnOnce(&[OsString]) -> bool>;

/// Configures [`on_request`](Self::on_request).
#[must_use]
pub struct Contain {
    variable: OsString,
    accept: Accept,
    key: String,
    grace: Duration,
    level: Option<LevelChoice>,
    require: Option<Level>,
    control: Option<RawFd>,
    watch_parent: bool,
}

impl Contain {
    /// Names the variable that asks.
    pub fn new(variable: impl AsRef<OsStr>) -> Self {
        Self {
            variable: variable.as_ref().to_owned(),
            accept: Box::new(|_| true),
            key: DEFAULT_KEY.to_owned(),
            grace: DEFAULT_GRACE,
            level: None,
            require: None,
            control: None,
            watch_parent: false,
        }
    }

    /// Says for which arguments a request is honoured; the first is the program's own name.
    /// Without it, for all.
    pub fn accept(mut self, accept: impl FnOnce(&[OsString]) -> bool + 'static) -> Self {
        self.accept = Box::new(accept);
        self
    }

    /// Sets the key of the acknowledgement: ASCII letters, digits, `_`, `-` and `.`. Without it,
    /// [`DEFAULT_KEY`].
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// Sets the time between TERM and KILL. Without it: [`DEFAULT_GRACE`].
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the containment level. Without it: the strongest that can be had here.
    pub fn level(mut self, level: LevelChoice) -> Self {
        self.level = Some(level);
        self
    }

    /// Sets the least level that is accepted; below it, containment is unavailable.
    pub fn require(mut self, level: Level) -> Self {
        self.require = Some(level);
        self
    }

    /// Ends the program when the other end of this descriptor, a pipe or a socket with which the
    /// program was started, is closed. Nothing is read from it, and the contained program does
    /// not get it.
    pub fn control_fd(mut self, descriptor: RawFd) -> Self {
        self.control = Some(descriptor);
        self
    }

    /// Says whether the death of the parent ends the program. The first process of the system or
    /// of a pid namespace is not watched.
    pub fn watch_parent(mut self, watch: bool) -> Self {
        self.watch_parent = watch;
        self
    }

    /// Contains this program where it is asked to. See the [module](self).
    ///
    /// Returns where the program runs uncontained, and in the program that is contained; where it
    /// becomes the starter it never returns.
    pub fn on_request(self) -> Outcome {
        let Some(value) = env::var_os(&self.variable) else {
            return Outcome::NotRequested;
        };
        match sys::remove_variable(&self.variable) {
            Ok(Removal::Done) => {}
            Ok(Removal::Threads(count)) => {
                return Outcome::Unavailable(Repr::Threads { count }.into());
            }
            Err(source) => {
                let what = "variable of the request cannot be removed";
                return Outcome::Unavailable(Error::system(what, source));
            }
        }
        let argv: Vec<OsString> = env::args_os().collect();
        if value != REQUESTED || !(self.accept)(&argv) {
            return Outcome::NotRequested;
        }
        let orders = acknowledgement(&self.key).map(|line| Orders {
            command: again(&argv, self.level, self.require),
            acknowledgement: Some(line),
            grace: self.grace,
            control: self.control,
            watch_parent: self.watch_parent,
            own_program: true,
        });
        match orders.map(start) {
            Ok(Ok(fate)) => {
                if let Some(text) = fate.unusual() {
                    lines::say(&text);
                }
                exit(fate.code())
            }
            Ok(Err(Failed {
                error,
                is_begun: true,
                ..
            })) => {
                lines::say(&lines::causes(&error));
                exit(starter::UNKNOWN)
            }
            Ok(Err(Failed { error, .. })) | Err(error) => Outcome::Unavailable(error),
        }
    }
}

impl fmt::Debug for Contain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contain")
            .field("variable", &self.variable)
            .field("key", &self.key)
            .field("grace", &self.grace)
            .field("level", &self.level)
            .field("require", &self.require)
            .field("control", &self.control)
            .field("watch_parent", &self.watch_parent)
            .finish_non_exhaustive()
    }
}

/// This program once more: the file that runs, whatever its name names by now. The helper that
/// executes it is this program too, so that its `/proc/self/exe` is the same file.
fn again(argv: &[OsString], level: Option<LevelChoice>, require: Option<Level>) -> Command {
    let mut command = Command::new(OWN_PROGRAM);
    if let Some((name, args)) = argv.split_first() {
        command.arg0(name).args(args);
    }
    if let Some(level) = level {
        command.level(level);
    }
    if let Some(level) = require {
        command.require(level);
    }
    command
}

/// The line of an acknowledgement, without its newline.
pub(crate) fn acknowledgement(key: &str) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if key.is_empty() || !key.bytes().all(is_plain) {
        let source = std::io::ErrorKind::InvalidInput.into();
        return Err(Error::system(
            "key of the acknowledgement is no plain word",
            source,
        ));
    }
    Ok(format!("{{\"{key}\":1}}"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the starter stands in for the program's main, which must not run beside the session"
)]
fn exit(code: u8) -> ! {
    std::process::exit(code.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_is_one_object_with_one_key() {
        let line = acknowledgement(DEFAULT_KEY).expect("a plain word");
        assert_eq!(line, "{\"foster_session_containment\":1}");
        for key in ["", "two words", "a\"b", "a\n", "é"] {
            assert!(acknowledgement(key).is_err(), "{key:?}");
        }
    }

    #[test]
    fn without_the_variable_nothing_is_requested() {
        let outcome = on_request("FOSTER_TEST_OF_NOTHING", |_| panic!("nobody asks"));
        assert!(matches!(outcome, Outcome::NotRequested));
    }
}
