//! Capturing what a command writes.
//!
//! Reads both pipes at once, so that neither can fill while the other is waited for, and
//! watches the leader, so that a member of its tree that keeps a pipe open holds nobody.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{ChildStderr, ChildStdout};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};

use crate::error::{Error, Result};
use crate::poll::{poll_until, time_left};
use crate::session::Session;

/// How much is read at a time: what a pipe holds by default (`pipe(7)`).
const CHUNK: usize = 64 * 1024;

/// The most that is read from a pipe in one turn, so that a fast writer cannot keep the other
/// pipe and the clock waiting: the most that a pipe holds for an unprivileged user.
const TURN: usize = 1024 * 1024;

/// How often a leader without a pidfd is asked for: its exit may come to another thread.
const TICK: Duration = Duration::from_millis(20);

/// What was captured.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) still_open: bool,
}

/// One pipe on its way to its end.
#[derive(Debug)]
struct Stream<R> {
    /// None after end-of-file.
    pipe: Option<R>,
    data: Vec<u8>,
}

/// Reads both pipes until both end, or until the drain is over that begins at the leader's
/// exit.
pub(crate) fn capture(
    session: &Session,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    drain: Duration,
) -> Result<Captured> {
    let mut stdout = Stream::new(stdout)?;
    let mut stderr = Stream::new(stderr)?;
    let mut buffer = vec![0; CHUNK];
    // None while the leader runs; then the end of the drain.
    let mut until: Option<Instant> = None;
    while stdout.is_open() || stderr.is_open() {
        let left = match until {
            Some(_) => time_left(until),
            None if session.pidfd().is_none() => Some(TICK),
            None => None,
        };
        let exited = watch(session, until.is_none(), &stdout, &stderr, left)?;
        if exited && until.is_none() {
            let now = Instant::now();
            until = Some(now.checked_add(drain).unwrap_or(now));
        }
        // 1. The time is looked at first and the pipes are read after it, so that what was
        //    there when the time was up is not lost.
        let over = until.is_some_and(|until| until <= Instant::now());
        // 2. A whole turn of each pipe: all that a leader can have left in it.
        stdout.read(&mut buffer)?;
        stderr.read(&mut buffer)?;
        if over {
            break;
        }
    }
    let still_open = stdout.is_open() || stderr.is_open();
    Ok(Captured {
        stdout: stdout.data,
        stderr: stderr.data,
        still_open,
    })
}

/// Sleeps until a pipe has something or, where that is still of interest, the leader has
/// exited. True where it has.
fn watch(
    session: &Session,
    leader: bool,
    stdout: &Stream<ChildStdout>,
    stderr: &Stream<ChildStderr>,
    limit: Option<Duration>,
) -> Result<bool> {
    let mut polled = Vec::with_capacity(4);
    polled.extend(stdout.poll_fd());
    polled.extend(stderr.poll_fd());
    let pipes = polled.len();
    if leader {
        polled.extend(
            session
                .pidfd()
                .map(|pidfd| PollFd::new(pidfd, PollFlags::POLLIN)),
        );
        // Only a hangup is reported: what the helper says is read by whoever waits for it.
        polled.extend(
            session
                .supervisor()
                .map(|socket| PollFd::new(socket, PollFlags::empty())),
        );
    }
    poll_until(&mut polled, limit)
        .map_err(|error| Error::system("outputs cannot be waited for", error))?;
    if !leader {
        return Ok(false);
    }
    let watched = polled
        .iter()
        .skip(pipes)
        .any(|watched| watched.any().unwrap_or(true));
    if session.pidfd().is_some() && !watched {
        return Ok(false);
    }
    leader_exited(session)
}

/// Whether the leader has exited, asked of its pidfd first: that does not wait for the
/// helper's word.
fn leader_exited(session: &Session) -> Result<bool> {
    if let Some(pidfd) = session.pidfd() {
        let mut polled = [PollFd::new(pidfd, PollFlags::POLLIN)];
        poll_until(&mut polled, Some(Duration::ZERO))
            .map_err(|error| Error::system("leader cannot be watched", error))?;
        if polled.iter().any(|leader| leader.any().unwrap_or(true)) {
            return Ok(true);
        }
    }
    // A lost helper ends the wait here with its own error.
    Ok(session.wait_exit(Some(Duration::ZERO))?.is_some())
}

impl<R: Read + AsFd> Stream<R> {
    fn new(pipe: Option<R>) -> Result<Self> {
        if let Some(pipe) = &pipe {
            set_nonblocking(pipe).map_err(|error| Error::system("pipe cannot be read", error))?;
        }
        Ok(Self {
            pipe,
            data: Vec::new(),
        })
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.pipe
            .as_ref()
            .map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN))
    }

    /// Reads what is there, one turn at most.
    fn read(&mut self, buffer: &mut [u8]) -> Result<()> {
        let mut turn = 0;
        while turn < TURN {
            let Some(pipe) = &mut self.pipe else {
                return Ok(());
            };
            match pipe.read(buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    self.data
                        .extend_from_slice(buffer.get(..count).unwrap_or_default());
                    turn += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::system("pipe cannot be read", error)),
            }
        }
        Ok(())
    }
}

/// Makes this side's end non-blocking. The other end is another open file and stays as it is.
fn set_nonblocking(pipe: &impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(pipe, FcntlArg::F_GETFL)?);
    fcntl(pipe, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
