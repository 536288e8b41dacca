//! Waiting for descriptors with a deadline.

use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollTimeout, poll};

/// The time until a deadline; none where there is no deadline.
pub(crate) fn time_left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// Polls once (`poll(2)`). A timeout is rounded up to whole milliseconds; an interruption
/// counts as nothing having happened, so the caller looks at its own deadline again.
pub(crate) fn poll_until(polled: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<()> {
    let timeout = match limit {
        None => PollTimeout::NONE,
        Some(limit) => {
            let millis = limit.as_nanos().div_ceil(1_000_000);
            // A longer wait than 24 days is taken in parts.
            PollTimeout::try_from(i32::try_from(millis).unwrap_or(i32::MAX))
                .unwrap_or(PollTimeout::MAX)
        }
    };
    match poll(polled, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        // The kernel is short of memory for a moment.
        Err(Errno::EAGAIN | Errno::ENOMEM) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
