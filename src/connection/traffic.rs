//! Bytes in and out, and what is done when there can be no more.
//!
//! Nothing here blocks: it reads what is there and sends what fits.

use std::fs::File;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use foster_protocol::{Inbox, Outbox, Received, receive, send};
use nix::poll::{PollFd, PollFlags};

use super::Connection;
use super::state::{Record, Standing, State};
use crate::error::Loss;
use crate::poll::poll_until;
use crate::sys;

/// The most reads in a row of one call, so that a helper that never stops sending cannot keep
/// a caller whose time is up.
const READS: usize = 64;

impl Connection {
    /// Sends what fits, and leaves the rest to whoever polls.
    pub(super) fn start_sending(&self, state: &mut State) {
        if let Err(loss) = self.flush(state) {
            self.lose(state, loss);
        }
        if !state.outbox.is_empty() && state.reading {
            // A full counter wakes just as well.
            let _full = (&self.wake).write(&1_u64.to_ne_bytes());
        }
    }

    /// Reads and sends what can be read and sent without blocking.
    pub(super) fn pump(&self, state: &mut State) {
        if state.loss.is_some() {
            return;
        }
        let outcome = self.read_all(state).and_then(|()| self.flush(state));
        if let Err(loss) = outcome {
            self.lose(state, loss);
        }
    }

    /// As [`pump`](Self::pump), and looks whether the helper's process is dead.
    pub(super) fn pump_and_look(&self, state: &mut State) {
        self.pump(state);
        let Some(peer) = &self.peer else { return };
        let mut polled = [PollFd::new(peer.as_fd(), PollFlags::POLLIN)];
        if poll_until(&mut polled, Some(Duration::ZERO)).is_ok()
            && polled.iter().any(|peer| peer.any().unwrap_or(false))
        {
            self.note_death(state);
        }
    }

    /// The helper's process is dead, and somebody may still hold a copy of its socket: what it
    /// said last is read, and nothing more can come.
    pub(super) fn note_death(&self, state: &mut State) {
        self.pump(state);
        self.lose(state, Loss::Died);
    }

    fn read_all(&self, state: &mut State) -> Result<(), Loss> {
        for _ in 0..READS {
            match receive(self.socket.as_fd(), &mut state.inbox) {
                Ok(Received::Bytes(_)) => {}
                Ok(Received::Closed) => return Err(Loss::Closed),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(Loss::Closed);
                }
                Err(error) => return Err(Loss::Socket(Arc::new(error))),
            }
            while let Some(frame) = state
                .inbox
                .next_frame()
                .map_err(|error| Loss::Frame(Arc::new(error)))?
            {
                state.deliver(frame)?;
            }
        }
        Ok(())
    }

    fn flush(&self, state: &mut State) -> Result<(), Loss> {
        state.throttled = false;
        let Err(error) = send(self.socket.as_fd(), &mut state.outbox) else {
            return Ok(());
        };
        match error.raw_os_error() {
            Some(libc::ETOOMANYREFS | libc::ENOBUFS | libc::ENOMEM) => {
                state.throttled = true;
                Ok(())
            }
            Some(libc::EPIPE | libc::ECONNRESET) => {
                // What the helper said last is still there to be read.
                self.read_all(state)?;
                Err(Loss::Closed)
            }
            Some(_) | None => Err(Loss::Socket(Arc::new(error))),
        }
    }

    /// Notes that the helper is lost, tells everybody and ends what it can.
    pub(super) fn lose(&self, state: &mut State, loss: Loss) {
        if state.loss.is_some() {
            return;
        }
        tracing::debug!(cause = %loss, "helper lost");
        state.sent_at_loss = state.sent();
        state.loss = Some(loss);
        // 1. Descriptors on their way go, so that whoever reads their other ends sees it.
        state.outbox = Outbox::new();
        state.inbox = Inbox::new();
        // 2. The hangup shows to those who poll the socket beside other things; where the
        //    socket is closed already it has shown.
        let _closed_already = self.socket.shutdown(Shutdown::Both);
        // 3. Every session is ended once.
        for record in state.records() {
            strike(record);
        }
        state.ring_all();
    }
}

/// Kills a session once, where it is ours to end: everybody in its cgroup, and its leader's
/// group by the leader's pidfd. Neither can reach a stranger: the descriptors name this cgroup
/// and this process, whatever has become of their names.
pub(super) fn strike(record: &mut Record) {
    if !record.can_be_struck() {
        return;
    }
    record.standing = Standing::Over;
    if let Some(kill) = record.kill.take()
        && let Err(error) = File::from(kill).write_all(b"1")
    {
        // ENODEV: the cgroup is gone, and so is everybody who was inside.
        tracing::debug!(%error, "cgroup could not be killed after the helper was lost");
    }
    if let Some(pidfd) = &record.pidfd
        && let Err(error) = sys::signal_group(pidfd.as_fd(), libc::SIGKILL)
    {
        // ESRCH: nobody is left, which is what was wanted.
        tracing::debug!(%error, "session could not be killed after the helper was lost");
    }
}
