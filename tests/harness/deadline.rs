//! Deadlines: every wait of a test has one, and it fails with what was awaited.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// How long a reply may take. Generous: a loaded machine is no bug.
pub const ANSWER: Duration = Duration::from_secs(20);

/// How long a process that was killed may take to be gone.
pub const DEATH: Duration = Duration::from_secs(10);

/// How long a condition that has no event may take to come true.
pub const SETTLE: Duration = Duration::from_secs(10);

/// The time between two looks at a condition that has no event.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

/// A point in time after which a wait fails.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    length: Duration,
}

impl Deadline {
    /// Creates one that is this far ahead.
    #[must_use]
    pub fn after(length: Duration) -> Self {
        Self {
            at: Instant::now() + length,
            length,
        }
    }

    /// Whether it has been reached.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        Instant::now() >= self.at
    }

    /// How long the whole wait may take.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.length
    }

    /// What is left, as `poll(2)` takes it: rounded up, so that a wait never spins.
    #[must_use]
    pub fn timeout(&self) -> PollTimeout {
        timeout(self.at.saturating_duration_since(Instant::now()))
    }
}

/// Waits until the descriptor is readable or at its end. False where the deadline came first.
#[must_use]
pub fn wait_readable(descriptor: BorrowedFd<'_>, deadline: Deadline) -> bool {
    poll_one(descriptor, PollFlags::POLLIN, deadline).is_some()
}

/// Waits until the descriptor is ready; none where the deadline came first.
///
/// # Panics
///
/// Where `poll(2)` fails.
#[must_use]
pub fn poll_one(
    descriptor: BorrowedFd<'_>,
    interest: PollFlags,
    deadline: Deadline,
) -> Option<PollFlags> {
    loop {
        let mut set = [PollFd::new(descriptor, interest)];
        match poll(&mut set, deadline.timeout()) {
            Ok(0) if deadline.is_reached() => return None,
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => {
                let [entry] = set;
                return entry.revents();
            }
            Err(errno) => panic!("poll failed: {errno}"),
        }
    }
}

/// Waits for a condition that no descriptor announces, by looking at it again and again.
///
/// # Panics
///
/// Where the condition has not come true within this time; the message says what was awaited.
pub fn eventually(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Deadline::after(within);
    while !condition() {
        assert!(!deadline.is_reached(), "not within {within:?}: {what}");
        pass(LOOK);
    }
}

/// Lets this much time pass. For a test whose subject is time itself (that nothing happens
/// before a limit); never to wait for an event.
pub fn pass(length: Duration) {
    let deadline = Deadline::after(length);
    while !deadline.is_reached() {
        match poll(&mut [], deadline.timeout()) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => panic!("poll failed: {errno}"),
        }
    }
}

fn timeout(left: Duration) -> PollTimeout {
    let millis = left.as_micros().div_ceil(1000);
    let millis = i32::try_from(millis).unwrap_or(i32::MAX);
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}
