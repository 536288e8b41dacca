//! Observing life and death without a race: pipes and pidfds.

use std::io::{PipeReader, PipeWriter, Read, pipe};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use crate::deadline::{ANSWER, Deadline, SETTLE, eventually, pass, wait_readable};
use crate::{proc, sys};

/// A pipe whose write end goes to the processes under observation. A byte says that one of
/// them lives; end-of-file says that every holder is dead.
#[derive(Debug)]
pub struct Tracer {
    reader: PipeReader,
    seen: Vec<u8>,
    ended: bool,
}

impl Tracer {
    /// Creates a pipe: the reader, and the write end to pass on.
    ///
    /// # Panics
    ///
    /// Where no pipe can be had.
    #[must_use]
    pub fn new() -> (Self, OwnedFd) {
        let (reader, writer): (PipeReader, PipeWriter) = pipe().expect("a pipe");
        (
            Self {
                reader,
                seen: Vec::new(),
                ended: false,
            },
            writer.into(),
        )
    }

    /// Creates a pipe that holds a command back: the read end to pass on, and the write end,
    /// at whose drop the command reads end-of-file.
    ///
    /// # Panics
    ///
    /// Where no pipe can be had.
    #[must_use]
    pub fn gate() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = pipe().expect("a pipe");
        (reader.into(), writer.into())
    }

    /// Waits for one line and gives it without its newline.
    ///
    /// # Panics
    ///
    /// Where no whole line comes before end-of-file or the deadline.
    pub fn line(&mut self) -> String {
        let line = self.line_within(ANSWER);
        line.unwrap_or_else(|| panic!("no line within {ANSWER:?}"))
    }

    /// Waits this long for one line; none where it does not come.
    ///
    /// # Panics
    ///
    /// Where end-of-file comes first.
    pub fn line_within(&mut self, within: Duration) -> Option<String> {
        let deadline = Deadline::after(within);
        loop {
            if let Some(end) = self.seen.iter().position(|byte| *byte == b'\n') {
                let rest = self.seen.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.seen, rest);
                line.pop();
                return Some(String::from_utf8(line).expect("a line of text"));
            }
            assert!(!self.ended, "end of file where a line was awaited");
            if !self.fill(deadline) {
                return None;
            }
        }
    }

    /// Waits for a line that is a process id.
    ///
    /// # Panics
    ///
    /// Where the line is no number.
    pub fn pid(&mut self) -> i32 {
        let line = self.line();
        line.trim()
            .parse()
            .unwrap_or_else(|_| panic!("{line:?} is no process id"))
    }

    /// Waits for end-of-file: every holder is dead. Gives what came before it.
    ///
    /// # Panics
    ///
    /// Where a holder is still alive at the deadline.
    pub fn wait_for_end(&mut self, within: Duration) -> Vec<u8> {
        let deadline = Deadline::after(within);
        while !self.ended {
            assert!(
                self.fill(deadline),
                "a holder of the pipe lives after {within:?}"
            );
        }
        std::mem::take(&mut self.seen)
    }

    /// What has come so far and was not taken.
    pub fn so_far(&mut self) -> String {
        let _held = self.is_held();
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Whether a holder still lives.
    pub fn is_held(&mut self) -> bool {
        while !self.ended && self.fill(Deadline::after(Duration::ZERO)) {}
        !self.ended
    }

    /// Asserts that a holder lives for this long.
    ///
    /// # Panics
    ///
    /// Where every holder is dead.
    pub fn assert_held_for(&mut self, length: Duration) {
        pass(length);
        assert!(self.is_held(), "every holder of the pipe is dead");
    }

    /// Reads once; false where nothing came before the deadline.
    fn fill(&mut self, deadline: Deadline) -> bool {
        if !wait_readable(self.reader.as_fd(), deadline) {
            return false;
        }
        let mut part = vec![0; 64 * 1024];
        let count = self.reader.read(&mut part).expect("the pipe is readable");
        part.truncate(count);
        self.ended = count == 0;
        self.seen.append(&mut part);
        true
    }
}

/// A pidfd of a process under observation. It is opened while the process is known to live
/// or to be unreaped, so it can never be a stranger's.
#[derive(Debug)]
pub struct Witness {
    pid: i32,
    pidfd: OwnedFd,
}

impl Witness {
    /// Takes over a pidfd of this process.
    #[must_use]
    pub fn new(pid: i32, pidfd: OwnedFd) -> Self {
        Self { pid, pidfd }
    }

    /// Opens the pidfd of a process that the caller knows to be unreaped.
    ///
    /// # Panics
    ///
    /// Where there is no such process.
    #[must_use]
    pub fn of(pid: i32) -> Self {
        let pidfd = sys::pidfd_open(pid)
            .unwrap_or_else(|error| panic!("no pidfd of process {pid}: {error}"));
        Self { pid, pidfd }
    }

    /// The process id. It may be printed or looked at, and never signalled.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether the process has not exited.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !wait_readable(self.pidfd.as_fd(), Deadline::after(Duration::ZERO))
    }

    /// Asserts that the process has not exited.
    ///
    /// # Panics
    ///
    /// Where it has, with how it ended.
    pub fn assert_alive(&self, why: &str) {
        if self.is_alive() {
            return;
        }
        let end = sys::wait_status(self.pidfd.as_fd());
        let end = end.map(std::process::ExitStatus::from_raw);
        panic!("process {} is dead ({end:?}): {why}", self.pid);
    }

    /// Waits until the process has exited.
    ///
    /// # Panics
    ///
    /// Where it lives at the deadline.
    pub fn wait_for_death(&self, within: Duration) {
        let dead = wait_readable(self.pidfd.as_fd(), Deadline::after(within));
        assert!(dead, "process {} lives after {within:?}", self.pid);
    }

    /// Signals the process, through its pidfd. Only for what the test has started itself.
    ///
    /// # Panics
    ///
    /// Where the kernel refuses.
    pub fn signal(&self, number: i32) {
        sys::pidfd_signal(self.pidfd.as_fd(), number)
            .unwrap_or_else(|error| panic!("signal {number} to process {}: {error}", self.pid));
    }

    /// Stops the process and waits until each of its threads is stopped. A signal that is only
    /// pending does not keep it from acting on a death that follows: 7 of 160 runs of the sweep's
    /// tests, four at a time on two processors, saw that.
    ///
    /// # Panics
    ///
    /// Where it is not stopped in time.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        eventually("the process is stopped", SETTLE, || {
            proc::is_stopped(self.pid)
        });
    }

    /// The pidfd.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}
