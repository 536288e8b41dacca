//! The main thread: it waits for signals and reaps adopted orphans.
//!
//! Children belong to the thread that forked them, and the kernel gives orphans to the main
//! thread, so `waitid(P_ALL, __WNOTHREAD)` here never touches a held leader, and the main
//! thread's `children` file *is* the list of adopted orphans. After its start this thread
//! allocates nothing and takes no lock, so that a fork by the server thread copies none.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::low_level::pipe;

use crate::sys::own;
use crate::sys::wake::Wake;

/// Signals that would end a process that does not expect them. The helper notes them and
/// serves on: a signal to every process of a container must not free the commands of a host
/// that is still there to end them.
const NOTED: [i32; 6] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

/// What the two threads share.
pub(crate) struct Shared {
    /// Raised when orphans were reaped, and where there are no pidfds, at every SIGCHLD.
    pub(crate) wake: Wake,
    /// How many orphans were reaped.
    pub(crate) reaped: AtomicU64,
    /// How many of the noted signals have come.
    pub(crate) signals: AtomicU64,
}

impl Shared {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            wake: Wake::new()?,
            reaped: AtomicU64::new(0),
            signals: AtomicU64::new(0),
        })
    }
}

/// Who reaps orphans, and how the server learns of it.
pub(crate) enum Reaper {
    /// The main thread.
    MainThread(Arc<Shared>),
    /// The server's own thread, which is the only one. Its signals stay blocked and are read
    /// from here, so that handlers, which are the helper's, never run.
    Server(SignalFd),
}

impl Reaper {
    /// For a process with one thread, whose signals are all blocked (`signalfd(2)`).
    ///
    /// `signal-hook` is of no use to a fork: the main thread may have been inside a handler, and
    /// the copy of its lock waits for that reader for ever.
    pub(crate) fn on_this_thread() -> io::Result<Self> {
        let mut signals = SigSet::empty();
        for number in NOTED.into_iter().chain([SIGCHLD]) {
            signals.add(Signal::try_from(number)?);
        }
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self::Server(SignalFd::with_flags(&signals, flags)?))
    }

    /// Readable when there is something to look at.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::MainThread(shared) => shared.wake.as_fd(),
            Self::Server(signals) => signals.as_fd(),
        }
    }

    /// Empties what is readable. What it announced is looked for afterwards.
    pub(crate) fn clear(&self) {
        match self {
            Self::MainThread(shared) => shared.wake.clear(),
            Self::Server(signals) => {
                // An error is that there was none left.
                while let Ok(Some(_)) = signals.read_signal() {}
            }
        }
    }

    /// How many orphans the main thread has reaped, and how many signals it has noted.
    pub(crate) fn counts(&self) -> (u64, u64) {
        match self {
            Self::MainThread(shared) => (
                shared.reaped.load(Ordering::Relaxed),
                shared.signals.load(Ordering::Relaxed),
            ),
            Self::Server(_) => (0, 0),
        }
    }
}

/// The main thread's work.
pub(crate) struct Orphans {
    /// A byte comes here for every SIGCHLD.
    deaths: UnixStream,
    /// A byte comes here for every noted signal.
    noted: UnixStream,
    /// Closed when the server thread is done.
    done: OwnedFd,
    shared: Arc<Shared>,
    /// Wakes the server at every SIGCHLD: it has no pidfds to learn of its leaders' exits.
    wake_always: bool,
}

impl Orphans {
    /// Installs the handlers. Everything that this thread ever allocates is allocated here.
    pub(crate) fn new(shared: Arc<Shared>, done: OwnedFd, wake_always: bool) -> io::Result<Self> {
        let (deaths, deaths_sender) = UnixStream::pair()?;
        deaths.set_nonblocking(true)?;
        pipe::register(SIGCHLD, deaths_sender)?;
        let (noted, noted_sender) = UnixStream::pair()?;
        noted.set_nonblocking(true)?;
        for signal in NOTED {
            pipe::register(signal, noted_sender.try_clone()?)?;
        }
        Ok(Self {
            deaths,
            noted,
            done,
            shared,
            wake_always,
        })
    }

    /// Reaps until the server thread is done.
    pub(crate) fn reap_until_done(&self) -> io::Result<()> {
        loop {
            // Orphans may have died before the handler was there.
            self.reap()?;
            let mut watched = [
                PollFd::new(self.deaths.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.noted.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.done.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut watched, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [_, _, done] = watched;
            if done.revents().is_some_and(|events| !events.is_empty()) {
                return Ok(());
            }
            // Emptied *before* the next reaping, so that no death goes unseen.
            drain(&self.deaths);
            self.shared
                .signals
                .fetch_add(drain(&self.noted), Ordering::Relaxed);
        }
    }

    fn reap(&self) -> io::Result<()> {
        let count = own::reap_adopted()?;
        self.shared
            .reaped
            .fetch_add(u64::from(count), Ordering::Relaxed);
        if count > 0 || self.wake_always {
            self.shared.wake.raise();
        }
        Ok(())
    }
}

/// Empties a pipe and says how many bytes there were. Its other end never closes, so that an
/// error means that there was nothing.
fn drain(pipe: &UnixStream) -> u64 {
    let mut bytes = [0; 64];
    let mut count = 0;
    while let Ok(read) = nix::unistd::read(pipe, &mut bytes)
        && read > 0
    {
        count += read as u64;
    }
    count
}
