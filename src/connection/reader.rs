//! The reader's role: of the threads that wait, one polls for all.
//!
//! A thread whose reply has come or whose time is up hands the role to another one. The lock
//! is never held across the poll.

use std::io::Read;
use std::os::fd::AsFd;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};

use super::Connection;
use super::state::{Key, State};
use crate::error::Loss;
use crate::poll::{poll_until, time_left};

/// How long a sender waits before it tries again to send descriptors that the kernel had no
/// room for: nothing announces that there is room (`ETOOMANYREFS`, `unix(7)`).
const RETRY: Duration = Duration::from_millis(5);

impl Connection {
    /// Waits until `ready` gives something, the helper is lost or the deadline has passed
    /// (none). What has come before the loss is still given out.
    pub(crate) fn wait<T>(
        &self,
        key: Key,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, Loss> {
        if !self.is_ours() {
            return Err(Loss::Forked);
        }
        let mut state = self.lock();
        let mut looked = false;
        let outcome = loop {
            if let Some(value) = ready(&mut state) {
                break Ok(Some(value));
            }
            if let Some(loss) = &state.loss {
                break Err(loss.clone());
            }
            let left = time_left(deadline);
            if left == Some(Duration::ZERO) {
                if looked {
                    break Ok(None);
                }
                looked = true;
                self.pump_and_look(&mut state);
            } else if state.reading {
                state = self.follow(state, key, left);
            } else {
                state = self.lead(state, left);
            }
        };
        state.hand_over();
        outcome
    }

    /// Sleeps until the reader has something for this thread or hands its role over.
    fn follow<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        key: Key,
        left: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        let bell = state.follow(key);
        let mut state = match left {
            Some(left) => {
                bell.wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
            None => bell.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        state.unfollow(&bell);
        state
    }

    /// Takes the reader's role for one poll.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        state.reading = true;
        let mut interest = PollFlags::POLLIN;
        let mut limit = left;
        if state.throttled {
            limit = Some(left.map_or(RETRY, |left| left.min(RETRY)));
        } else if !state.outbox.is_empty() {
            interest |= PollFlags::POLLOUT;
        }
        drop(state);
        // Without a pidfd of the helper the wake stands in its place, and is not looked at there.
        let peer = self.peer.as_ref().map_or(self.wake.as_fd(), AsFd::as_fd);
        let mut polled = [
            PollFd::new(self.socket.as_fd(), interest),
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
            PollFd::new(peer, PollFlags::POLLIN),
        ];
        let outcome = poll_until(&mut polled, limit);
        let is_ready = |number| {
            polled
                .get(number)
                .is_some_and(|one: &PollFd<'_>| one.any().unwrap_or(true))
        };
        let (woken, died) = (is_ready(1), self.peer.is_some() && is_ready(2));
        let mut state = self.lock();
        state.reading = false;
        if woken {
            // Emptying the counter; there is nothing to do where another thread was faster.
            let _already_empty = (&self.wake).read(&mut [0; 8]);
        }
        match outcome {
            Ok(()) if died => self.note_death(&mut state),
            Ok(()) => self.pump(&mut state),
            Err(error) => self.lose(&mut state, Loss::Socket(Arc::new(error))),
        }
        state
    }
}
