//! Capturing what a command writes.
//!
//! Looks into both pipes and reads what is there, so that neither can fill while the other is
//! waited for, and no read ever waits for a member of the tree that keeps a pipe open. A pipe
//! cannot be waited for here, so it is looked into again after a short time, and a longer one
//! while nothing comes.

use std::io::Read;
use std::os::windows::io::AsHandle;
use std::process::{ChildStderr, ChildStdout};
use std::time::{Duration, Instant};

use super::tree::Tree;
use crate::error::{Error, Result};
use crate::sys::{self, Event};

/// How much is read at a time.
const CHUNK: usize = 64 * 1024;

/// The most that is read from a pipe in one turn, so that a fast writer cannot keep the other
/// pipe and the clock waiting. A pipe of std holds less.
const TURN: usize = 1024 * 1024;

/// The shortest and the longest time between two looks.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(16);

/// What was captured.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) still_open: bool,
}

/// One pipe on its way to its end.
#[derive(Debug)]
struct Stream<R> {
    /// None after its end.
    pipe: Option<R>,
    data: Vec<u8>,
}

/// Reads both pipes until both end, or until the drain is over that begins at the leader's
/// exit.
pub(super) fn capture(
    tree: &Tree,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    drain: Duration,
) -> Result<Captured> {
    let (mut stdout, mut stderr) = (Stream::new(stdout), Stream::new(stderr));
    let mut buffer = vec![0; CHUNK];
    let never = Event::new().map_err(|error| Error::system("pipes cannot be awaited", error))?;
    // None while the leader runs; then the end of the drain.
    let mut until: Option<Instant> = None;
    let mut pause = SHORTEST;
    while stdout.is_open() || stderr.is_open() {
        if until.is_none() && tree.wait_exit(Some(Duration::ZERO))?.is_some() {
            let now = Instant::now();
            until = Some(now.checked_add(drain).unwrap_or(now));
        }
        // 1. The time is looked at first and the pipes are read after it, so that what was
        //    there when the time was up is not lost.
        let over = until.is_some_and(|until| until <= Instant::now());
        // 2. A whole turn of each pipe: all that a leader can have left in it.
        let count = stdout.read(&mut buffer)? + stderr.read(&mut buffer)?;
        if over {
            break;
        }
        if count > 0 {
            pause = SHORTEST;
            continue;
        }
        let watched = match until {
            None => tree.leader.as_handle(),
            Some(_) => never.as_handle(),
        };
        let left = until.map_or(pause, |until| {
            pause.min(until.saturating_duration_since(Instant::now()))
        });
        sys::wait_any(&[watched], Some(left))
            .map_err(|error| Error::system("outputs cannot be waited for", error))?;
        pause = (pause * 2).min(LONGEST);
    }
    let still_open = stdout.is_open() || stderr.is_open();
    Ok(Captured {
        stdout: stdout.data,
        stderr: stderr.data,
        still_open,
    })
}

impl<R: Read + AsHandle> Stream<R> {
    fn new(pipe: Option<R>) -> Self {
        Self {
            pipe,
            data: Vec::new(),
        }
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Reads what is there, one turn at most, and gives how much that was.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let unreadable = |error| Error::system("pipe cannot be read", error);
        let mut turn = 0;
        while turn < TURN {
            let Some(pipe) = &mut self.pipe else { break };
            let there = sys::available(pipe.as_handle()).map_err(unreadable)?;
            let count = match there {
                None => 0,
                Some(0) => break,
                Some(there) => {
                    let length = there.min(buffer.len());
                    let part = buffer.get_mut(..length).unwrap_or_default();
                    pipe.read(part).map_err(unreadable)?
                }
            };
            if count == 0 {
                self.pipe = None;
            }
            self.data
                .extend_from_slice(buffer.get(..count).unwrap_or_default());
            turn += count;
        }
        Ok(turn)
    }
}
