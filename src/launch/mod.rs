//! Launching a helper: starting it, and its hello.
//!
//! The helper gets its end of the control socket as standard input, so that std can start it.
//! Whatever goes wrong shows within a second or the hello's limit, and leaves no process.

mod lookup;
mod process;

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use foster_protocol::{BUILD, Bytes, Capabilities, HELLO_TIMEOUT, Reject, Reply, Request, VERSION};

pub(crate) use lookup::OWN_PROGRAM;
use lookup::{Kind, Place, own_program, places};
pub(crate) use process::HelperProcess;

use crate::connection::{Connection, Refusal};
use crate::error::{Attempt, Error, Loss, Repr, Result};
use crate::helper::Helper;
use crate::init;

/// How long a helper that has closed its socket may take to exit before its status is given
/// up: it has nothing left to do.
const EXIT_LIMIT: Duration = Duration::from_millis(500);

/// Configures and launches a helper.
///
/// # Examples
///
/// ```no_run
/// # fn main() -> foster::Result<()> {
/// let helper = foster::Helper::builder().path("/usr/libexec/foster-helper").launch()?;
/// println!("helper {} runs", helper.id());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct HelperBuilder {
    path: Option<PathBuf>,
    log: Option<OwnedFd>,
    refuse_threads: bool,
    own_program: bool,
    timeout: Duration,
}

/// How a helper was launched, for another one like it.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) path: Option<PathBuf>,
    pub(crate) own_program: bool,
    pub(crate) timeout: Duration,
}

impl From<Origin> for HelperBuilder {
    fn from(origin: Origin) -> Self {
        Self {
            path: origin.path,
            log: None,
            refuse_threads: false,
            own_program: origin.own_program,
            timeout: origin.timeout,
        }
    }
}

impl HelperBuilder {
    pub(crate) fn new() -> Self {
        Self {
            path: None,
            log: None,
            refuse_threads: false,
            own_program: false,
            timeout: HELLO_TIMEOUT,
        }
    }

    /// Sets the helper's executable. No other place is tried then.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Sets where the helper writes its log. Without it, it writes none.
    pub fn log(mut self, log: impl Into<OwnedFd>) -> Self {
        self.log = Some(log.into());
        self
    }

    /// Says whether to refuse where the process has more than one thread. Without it, that is
    /// only warned of.
    ///
    /// A helper is a copy of nothing, so threads do it no harm; but a host that launches late
    /// has memory and threads that the launch has to step around, and may have changed its
    /// directory, limits and signals, which commands then start from.
    pub fn refuse_threads(mut self, refuse: bool) -> Self {
        self.refuse_threads = refuse;
        self
    }

    /// Takes this program itself as the helper, and nothing else.
    pub(crate) fn own_program(mut self) -> Self {
        self.own_program = true;
        self
    }

    /// Sets how long the helper's answer to hello, and to every request that it answers at
    /// once, may take. Without it: 5 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Launches the helper and waits for its hello.
    ///
    /// The first of these that can be started is used: the builder's path, and nothing else
    /// where there is one; this program itself, if it called [`init`](crate::init); the
    /// executable that `FOSTER_HELPER` names, unless this program runs with raised privileges;
    /// `foster-helper` beside this program. `PATH` is never searched.
    ///
    /// # Errors
    ///
    /// [`Error::is_launch`](crate::Error::is_launch) holds for all of them, and the text lists
    /// what was tried. A helper that exits or speaks another version is reported at once.
    pub fn launch(self) -> Result<Helper> {
        process::sweep();
        check_threads(self.refuse_threads)?;
        let mut tried = Vec::new();
        let places = match self.own_program {
            true => own_program(&mut tried).into_iter().collect(),
            false => places(self.path.as_deref(), &mut tried),
        };
        for place in places {
            match start(&place) {
                Ok((process, socket)) => return self.greet(&place, process, socket),
                Err(error) => {
                    tracing::debug!(place = place.describe(), %error, "helper cannot be started");
                    tried.push(Attempt {
                        place: place.describe(),
                        why: error.to_string(),
                    });
                }
            }
        }
        Err(Repr::NoHelper(tried).into())
    }

    /// Says hello to a helper that was started, and takes it back if that fails.
    fn greet(
        self,
        place: &Place,
        mut process: HelperProcess,
        socket: UnixStream,
    ) -> Result<Helper> {
        tracing::debug!(helper = process.id(), path = %place.path.display(), "helper started");
        let outcome = Connection::new(socket)
            .map_err(|error| Error::system("control socket cannot be watched", error))
            .and_then(|mut connection| {
                connection.watch_peer(process.pidfd());
                let capabilities = hello(&connection, place, &mut process, self.log, self.timeout)?;
                Ok((connection, capabilities))
            });
        match outcome {
            Ok((connection, capabilities)) => {
                tracing::debug!(helper = process.id(), ?capabilities, "helper said hello");
                let origin = Origin {
                    path: self.path,
                    own_program: self.own_program,
                    timeout: self.timeout,
                };
                Ok(Helper::new(connection, process, capabilities, origin))
            }
            Err(error) => {
                tracing::debug!(helper = process.id(), %error, "helper failed at hello");
                // It was asked for nothing yet, so it holds nothing.
                process.kill();
                process.park();
                Err(error)
            }
        }
    }
}

/// Starts the program with its end of a new control socket as standard input.
fn start(place: &Place) -> io::Result<(HelperProcess, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(&place.path);
    match place.kind {
        Kind::Executable => {}
        Kind::OwnProgram => {
            command.arg0("foster-helper").arg(init::RESERVED);
        }
    }
    let child = command
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .spawn()?;
    // The command goes here, and with it the last copy of the helper's end in this process:
    // with one left, the helper's death would not show.
    drop(command);
    Ok((HelperProcess::new(child), ours))
}

/// Says hello and checks the welcome.
fn hello(
    connection: &Connection,
    place: &Place,
    process: &mut HelperProcess,
    log: Option<OwnedFd>,
    limit: Duration,
) -> Result<Capabilities> {
    let deadline = Instant::now().checked_add(limit);
    let request = Request::Hello {
        version: VERSION,
        build: BUILD.into(),
        cgroup_root: None,
    };
    let ticket = match connection.request(request, log.into_iter().collect()) {
        Ok(ticket) => ticket,
        Err(Refusal::Lost(loss)) => return Err(no_hello(loss, &place.path, process)),
        Err(Refusal::Encode(error)) => return Err(Repr::Unsendable(error).into()),
    };
    match ticket.wait(deadline) {
        Ok(Some(reply)) => check_welcome(reply, place, connection),
        Ok(None) => Err(Repr::HelperSilent { limit }.into()),
        Err(loss) => Err(no_hello(loss, &place.path, process)),
    }
}

/// Checks the version and, for a re-executed program, the build.
fn check_welcome(reply: Reply, place: &Place, connection: &Connection) -> Result<Capabilities> {
    let path = place.path.clone();
    if let Reply::Rejected {
        reason: Reject::VersionMismatch { helper, .. },
    } = reply
    {
        return Err(Repr::Version { path, helper }.into());
    }
    let Reply::Welcome {
        version,
        build,
        capabilities,
    } = reply
    else {
        let source = connection.breach();
        return Err(Repr::NoProtocol { path, source }.into());
    };
    if version != VERSION {
        let helper = version;
        return Err(Repr::Version { path, helper }.into());
    }
    let client = Bytes::from(BUILD);
    if place.kind == Kind::OwnProgram && build != client {
        let helper = build;
        return Err(Repr::Build {
            path,
            helper,
            client,
        }
        .into());
    }
    Ok(capabilities)
}

/// The error of a helper that was lost before its welcome.
fn no_hello(loss: Loss, path: &Path, process: &mut HelperProcess) -> Error {
    let path = path.to_path_buf();
    let repr = match loss {
        Loss::Closed | Loss::Died => Repr::HelperExited {
            path,
            status: process.exit_within(EXIT_LIMIT),
        },
        Loss::Version(helper) => Repr::Version { path, helper },
        Loss::Socket(_)
        | Loss::Frame(_)
        | Loss::Decode(_)
        | Loss::Silent(_)
        | Loss::Unexpected
        | Loss::ShutDown
        | Loss::Forked => Repr::NoProtocol { path, source: loss },
    };
    repr.into()
}

/// Warns of threads, or refuses them. Where they cannot be counted, there is nothing to say.
fn check_threads(refuse: bool) -> Result<()> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return Ok(());
    };
    let count = threads.count();
    if count <= 1 {
        return Ok(());
    }
    if refuse {
        return Err(Repr::Threads { count }.into());
    }
    tracing::warn!(count, "helper is launched with threads present");
    Ok(())
}
