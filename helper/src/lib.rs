//! The helper of foster: the process that is the parent of a host's commands.
//!
//! It takes requests over the control socket, spawns sessions, holds their leaders unreaped
//! while anything of them is to be signalled, and ends every session when its host is gone.
//! It never signals a process that it does not pin, and never waits for one request while
//! another could be served.
//!
//! Host programs do not use this crate: they use `foster`, whose `init` calls [`run`].

mod contain;
mod dispatch;
mod ending;
mod instance;
mod keeper;
mod log;
mod orphans;
mod reserve;
mod server;
mod session;
mod startup;
mod survivors;
mod sys;
mod table;
mod timers;

use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use orphans::{Orphans, Reaper, Shared};
use server::{Fault, Role, Server, Start};
use startup::{Ready, Refusal};

/// A hangup or a shutdown was handled.
const DONE: u8 = 0;
/// Started by hand, greeted wrongly, or the client broke the protocol.
const WRONG_USE: u8 = 100;
/// A rule of the helper's own was broken.
const INTERNAL: u8 = 101;
/// A system call failed that it cannot go on without.
const SYSTEM: u8 = 111;

/// Serves the host whose control socket is standard input, until everything has ended.
///
/// The exit code is 0 after a hangup or a shutdown, 100 for wrong use (started by hand, another
/// protocol version, a broken protocol), 101 for an internal error and 111 for a failed system
/// call. In each case the sessions that were not released have been ended. It must be called
/// before the process has a second thread.
///
/// # Platform
///
/// Linux.
#[must_use]
pub fn run() -> ExitCode {
    let ready = match startup::start() {
        Ok(ready) => ready,
        Err(Refusal::HostGone) => return ExitCode::from(DONE),
        Err(refusal) => {
            let code = match refusal {
                Refusal::System { .. } => SYSTEM,
                Refusal::NotAHost(_) | Refusal::BadGreeting(_) | Refusal::HostGone => WRONG_USE,
            };
            complain(&refusal);
            return ExitCode::from(code);
        }
    };
    match serve(ready) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            complain(&error);
            ExitCode::from(SYSTEM)
        }
    }
}

/// Runs the two threads.
fn serve(ready: Ready) -> io::Result<u8> {
    let shared = Arc::new(Shared::new()?);
    let (done, done_sender) = nix::unistd::pipe()?;
    let wake_always = !ready.context.features.pidfd;
    let orphans = Orphans::new(Arc::clone(&shared), done, wake_always)?;
    let reaper = Reaper::MainThread(shared);
    let start = Start {
        ready,
        reaper,
        role: Role::Helper,
    };
    let server = thread::Builder::new()
        .name("server".to_owned())
        .spawn(move || {
            let code = serve_sessions(start);
            // Whatever ends this thread closes this end, which ends the main thread's wait.
            drop(done_sender);
            code
        })?;
    // The server thread has inherited the mask: handlers run on this thread alone.
    sys::own::unblock_all_signals()?;
    orphans.reap_until_done()?;
    Ok(server.join().unwrap_or(INTERNAL))
}

/// The server thread. A fault of any kind still ends the sessions.
fn serve_sessions(start: Start) -> u8 {
    let server = match Server::new(start) {
        Ok(server) => server,
        Err(error) => {
            complain(&error);
            return SYSTEM;
        }
    };
    run_server(server, Server::serve)
}

/// Runs a server to its end, whatever that is.
fn run_server(mut server: Server, run: impl FnOnce(&mut Server) -> Result<(), Fault>) -> u8 {
    let served = catch_unwind(AssertUnwindSafe(|| run(&mut server)));
    let code = match served {
        Ok(Err(Fault::Born(birth))) => {
            drop(server);
            keeper::live(*birth)
        }
        Ok(Ok(())) => {
            server.tidy();
            server.retire();
            return if server.is_broken() { WRONG_USE } else { DONE };
        }
        Ok(Err(Fault::Invariant(illegal))) => {
            tracing::error!(?illegal, "internal error");
            INTERNAL
        }
        Ok(Err(Fault::System(error))) => {
            tracing::error!(%error, "system call failed");
            SYSTEM
        }
        // The message of the panic has been written by its hook.
        Err(_) => INTERNAL,
    };
    if catch_unwind(AssertUnwindSafe(|| server.abandon())).is_err() {
        tracing::error!("the sessions could not be ended");
    }
    server.tidy();
    code
}

/// Writes one line to standard error. Nobody may be reading it.
fn complain(error: &dyn std::error::Error) {
    let mut line = format!("foster-helper: {error}");
    if let Some(source) = error.source() {
        line.push_str(&format!(": {source}"));
    }
    line.push('\n');
    let _unread = io::stderr().write_all(line.as_bytes());
}
