//! Readiness of descriptors (`epoll(7)`), level-triggered.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::c_int;

/// How many events one wait brings at most. More come with the next one.
const CAPACITY: usize = 256;

/// A set of watched descriptors.
#[derive(Debug)]
pub(crate) struct Epoll {
    descriptor: OwnedFd,
}

/// What a descriptor is watched for. A hangup is always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Something to read, or the peer has closed its sending side.
    Read,
    /// Room to write.
    Write,
    /// Both.
    ReadWrite,
}

/// One descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// What it was added with.
    pub(crate) token: u64,
    /// A read does not block: it brings data, an end of file or an error.
    pub(crate) readable: bool,
    /// A write does not block.
    pub(crate) writable: bool,
    /// The other end is gone, or will send no more. Data may be left to read.
    pub(crate) hangup: bool,
}

/// The events of one wait.
pub(crate) struct Events {
    buffer: Vec<libc::epoll_event>,
    count: usize,
}

impl Interest {
    fn flags(self) -> u32 {
        let read = libc::EPOLLIN | libc::EPOLLRDHUP;
        let flags = match self {
            Self::Read => read,
            Self::Write => libc::EPOLLOUT,
            Self::ReadWrite => read | libc::EPOLLOUT,
        };
        flags.cast_unsigned()
    }
}

impl Events {
    /// Makes room for the events of one wait.
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![libc::epoll_event { events: 0, u64: 0 }; CAPACITY],
            count: 0,
        }
    }

    /// Goes through the events of the last wait.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.buffer.iter().take(self.count).map(|event| {
            let flags = event.events.cast_signed();
            let gone = libc::EPOLLHUP | libc::EPOLLERR;
            let no_more = gone | libc::EPOLLRDHUP;
            Event {
                token: event.u64,
                readable: flags & (libc::EPOLLIN | no_more) != 0,
                writable: flags & (libc::EPOLLOUT | gone) != 0,
                hangup: flags & no_more != 0,
            }
        })
    }
}

impl Epoll {
    /// Makes an empty set (`epoll_create1(2)`).
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes a number only.
        let number = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if number == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for this call.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Self { descriptor })
    }

    /// Watches a descriptor. It has to be removed before it is closed where a copy of it may
    /// live on.
    ///
    /// # Errors
    ///
    /// What `epoll_ctl(2)` says.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest.flags())
    }

    /// Changes what a descriptor is watched for.
    ///
    /// # Errors
    ///
    /// What `epoll_ctl(2)` says.
    pub(crate) fn modify(
        &self,
        fd: BorrowedFd<'_>,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest.flags())
    }

    /// Watches a descriptor no more.
    ///
    /// # Errors
    ///
    /// What `epoll_ctl(2)` says.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// Waits until a descriptor is ready or the time is up; without a timeout, for as long as
    /// it takes. A timeout is rounded up to whole milliseconds, so that waiting for an instant
    /// never turns into a loop of empty waits shortly before it. A signal ends it with no
    /// events.
    ///
    /// # Errors
    ///
    /// What `epoll_wait(2)` says.
    pub(crate) fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.count = 0;
        let start = events.buffer.as_mut_ptr();
        let room = c_int::try_from(events.buffer.len()).map_err(io::Error::other)?;
        let number = self.descriptor.as_raw_fd();
        let timeout = milliseconds(timeout);
        // SAFETY: start is valid for `room` events.
        let count = unsafe { libc::epoll_wait(number, start, room, timeout) };
        match usize::try_from(count) {
            Ok(count) => events.count = count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn control(
        &self,
        operation: c_int,
        fd: BorrowedFd<'_>,
        token: u64,
        flags: u32,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: flags,
            u64: token,
        };
        let (set, fd) = (self.descriptor.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: event is valid for reading; EPOLL_CTL_DEL does not look at it.
        let result = unsafe { libc::epoll_ctl(set, operation, fd, &raw mut event) };
        if result == -1 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

/// Rounds up; what is too long for the kernel becomes its longest wait of 24 days.
fn milliseconds(timeout: Option<Duration>) -> c_int {
    timeout.map_or(-1, |timeout| {
        let rounded = timeout.as_nanos().div_ceil(1_000_000);
        c_int::try_from(rounded).unwrap_or(c_int::MAX)
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::testing::{LIMIT, pipe};
    use super::super::wake::Wake;
    use super::*;

    fn wait(epoll: &Epoll, timeout: Duration) -> Vec<Event> {
        let mut events = Events::new();
        epoll.wait(&mut events, Some(timeout)).unwrap();
        events.iter().collect()
    }

    #[test]
    fn a_timeout_is_rounded_up_and_capped() {
        assert_eq!(milliseconds(None), -1);
        assert_eq!(milliseconds(Some(Duration::ZERO)), 0);
        assert_eq!(milliseconds(Some(Duration::from_nanos(1))), 1);
        assert_eq!(milliseconds(Some(Duration::from_micros(1001))), 2);
        assert_eq!(milliseconds(Some(Duration::MAX)), c_int::MAX);
    }

    #[test]
    fn data_and_hangup_are_reported_with_the_token() {
        let (reader, writer) = pipe();
        let epoll = Epoll::new().unwrap();
        epoll.add(reader.as_fd(), 7, Interest::Read).unwrap();
        assert_eq!(wait(&epoll, Duration::ZERO), []);
        nix::unistd::write(&writer, b"x").unwrap();
        let data = Event {
            token: 7,
            readable: true,
            writable: false,
            hangup: false,
        };
        assert_eq!(wait(&epoll, LIMIT), [data]);
        nix::unistd::read(&reader, &mut [0]).unwrap();
        drop(writer);
        let events = wait(&epoll, LIMIT);
        assert!(matches!(
            events[..],
            [Event {
                token: 7,
                readable: true,
                hangup: true,
                ..
            }]
        ));
    }

    #[test]
    fn interest_is_changed_and_taken_away() {
        let (_reader, writer) = pipe();
        let epoll = Epoll::new().unwrap();
        epoll.add(writer.as_fd(), 1, Interest::Read).unwrap();
        assert_eq!(wait(&epoll, Duration::ZERO), []);
        epoll
            .modify(writer.as_fd(), 2, Interest::ReadWrite)
            .unwrap();
        let room = Event {
            token: 2,
            readable: false,
            writable: true,
            hangup: false,
        };
        assert_eq!(wait(&epoll, LIMIT), [room]);
        epoll.remove(writer.as_fd()).unwrap();
        assert_eq!(wait(&epoll, Duration::ZERO), []);
        let error = epoll.remove(writer.as_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn a_wake_is_seen_once_however_often_it_was_raised() {
        let wake = Wake::new().unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(wake.as_fd(), u64::MAX, Interest::Read).unwrap();
        wake.clear();
        assert_eq!(wait(&epoll, Duration::ZERO), []);
        wake.raise();
        wake.raise();
        assert_eq!(wait(&epoll, LIMIT).len(), 1);
        wake.clear();
        assert_eq!(wait(&epoll, Duration::ZERO), []);
    }
}
