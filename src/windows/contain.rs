//! Containment for this whole program, at the request of whoever starts it.
//!
//! A program that is asked puts itself into a job that ends its members when its last handle is
//! closed, and never closes the handle: so everything that it starts ends with it, in whatever way
//! it ends. Nobody stands beside it, and it is not started once more.
//!
//! ```no_run
//! use foster::contain::Outcome;
//!
//! foster::init();
//! let outcome = foster::contain::on_request("APP_SESSION_CONTAINMENT", |argv| {
//!     argv.get(1).is_some_and(|word| word == "engine")
//! });
//! if let Outcome::Unavailable(error) = &outcome {
//!     eprintln!("runs uncontained: {error}");
//! }
//! // The program itself, contained or not.
//! ```
//!
//! The request is honoured where the variable has the value `1` and the program accepts its
//! arguments. Whatever its value, the variable is removed first of all, so that nobody whom this
//! program starts sees it. The acknowledgement is one line on standard output, one JSON object
//! with one key: `{"foster_session_containment":1}`, or the key of [`Contain::key`]. It is written
//! when containment is in force. No line means that it is not.
//!
//! # Platform
//!
//! This is the module of Windows. On Linux the program becomes a starter, and more can be
//! configured.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Write};

use crate::error::{Error, Result};
use crate::sys::Job;

/// The key of an acknowledgement where the program does not name another.
pub const DEFAULT_KEY: &str = "foster_session_containment";

/// The value of a variable that asks.
const REQUESTED: &str = "1";

/// Whether the program runs contained.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum Outcome {
    /// Nobody asked: there was no variable, it had another value, or the arguments were not
    /// accepted.
    NotRequested,
    /// Somebody asked, and whatever this program starts ends with it.
    Contained,
    /// Somebody asked, and containment is not to be had, for example because a job that this
    /// program is in already allows no other inside. Nothing has been written.
    Unavailable(Error),
}

/// Contains this program where a variable asks for it, with the defaults of [`Contain`].
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
}

impl Contain {
    /// Names the variable that asks.
    pub fn new(variable: impl AsRef<OsStr>) -> Self {
        Self {
            variable: variable.as_ref().to_owned(),
            accept: Box::new(|_| true),
            key: DEFAULT_KEY.to_owned(),
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

    /// Contains this program where it is asked to. See the [module](self).
    pub fn on_request(self) -> Outcome {
        let Some(value) = env::var_os(&self.variable) else {
            return Outcome::NotRequested;
        };
        crate::sys::remove_variable(&self.variable);
        let argv: Vec<OsString> = env::args_os().collect();
        if value != REQUESTED || !(self.accept)(&argv) {
            return Outcome::NotRequested;
        }
        match acknowledgement(&self.key).and_then(|line| contain(&line)) {
            Ok(()) => Outcome::Contained,
            Err(error) => Outcome::Unavailable(error),
        }
    }
}

impl fmt::Debug for Contain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contain")
            .field("variable", &self.variable)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// The order carries the promise: the limit, this process, the line. A line that cannot be
/// written leaves a job that ends nobody.
fn contain(line: &str) -> Result<()> {
    let failed = |error| Error::system("program cannot be put into a job", error);
    let job = Job::new().map_err(failed)?;
    job.kill_on_close(true).map_err(failed)?;
    job.assign_this_process().map_err(failed)?;
    let written = acknowledge(line);
    if written.is_err() {
        job.kill_on_close(false).map_err(failed)?;
    }
    // The job ends its members when this process does, and not before.
    job.leak();
    written.map_err(|error| Error::system("acknowledgement cannot be written", error))
}

fn acknowledge(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(format!("{line}\n").as_bytes())?;
    stdout.flush()
}

/// The line of an acknowledgement, without its newline.
fn acknowledgement(key: &str) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if key.is_empty() || !key.bytes().all(is_plain) {
        let source = io::ErrorKind::InvalidInput.into();
        return Err(Error::system(
            "key of the acknowledgement is no plain word",
            source,
        ));
    }
    Ok(format!("{{\"{key}\":1}}"))
}
