//! Holding children at their birth: a tracer stops whoever a helper forks before it has run an
//! instruction of its own. The calls belong to the thread that began the trace.

use std::fs;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::deadline::{DEATH, Deadline, LOOK, pass};

/// A tracer of a helper's threads and of whom they fork.
#[derive(Debug)]
pub struct Births {
    traced: Vec<Pid>,
    /// Children that have stopped at their birth.
    held: Vec<Pid>,
}

impl Births {
    /// Traces every thread of a process that the test has started.
    ///
    /// # Errors
    ///
    /// The condition that is missing.
    ///
    /// # Panics
    ///
    /// Where the process has no threads that can be listed.
    pub fn of(pid: i32) -> Result<Self, String> {
        let mut births = Self {
            traced: Vec::new(),
            held: Vec::new(),
        };
        let options = Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK;
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process has threads");
        for task in tasks {
            let name = task.expect("a thread").file_name();
            let thread = name.to_str().and_then(|name| name.parse().ok());
            let thread = Pid::from_raw(thread.expect("a number"));
            ptrace::seize(thread, options).map_err(|errno| format!("no trace: {errno}"))?;
            births.traced.push(thread);
        }
        Ok(births)
    }

    /// Waits until one more child is held, and gives its number.
    ///
    /// # Panics
    ///
    /// Where none is born in time.
    pub fn await_birth(&mut self) -> i32 {
        let deadline = Deadline::after(DEATH);
        let before = self.held.len();
        while self.held.len() == before {
            assert!(!deadline.is_reached(), "nobody is born within {DEATH:?}");
            self.step();
        }
        self.held.last().expect("one was born").as_raw()
    }

    /// Lets a child that is held go on; whom it forks is held in turn.
    ///
    /// # Panics
    ///
    /// Where it cannot go on.
    pub fn let_go(&mut self, pid: i32) {
        let pid = Pid::from_raw(pid);
        self.held.retain(|held| *held != pid);
        self.traced.push(pid);
        // Its parent has stopped at the fork, and it may be on its way to its own stop.
        let deadline = Deadline::after(DEATH);
        let mut done = ptrace::cont(pid, None);
        while done == Err(Errno::ESRCH) && !deadline.is_reached() {
            pass(LOOK);
            done = ptrace::cont(pid, None);
        }
        done.expect("the child goes on");
    }

    /// Serves the tracees for this long.
    pub fn serve(&mut self, length: Duration) {
        let deadline = Deadline::after(length);
        while !deadline.is_reached() {
            self.step();
        }
    }

    /// Serves whoever has stopped, and waits a moment where nobody has.
    fn step(&mut self) {
        let mut has_served = false;
        for pid in self.traced.clone() {
            has_served |= self.serve_one(pid);
        }
        for pid in self.held.clone() {
            // A child that is killed while it is held is its tracer's to see first.
            let status = waitpid(pid, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL));
            if let Ok(WaitStatus::Signaled(..) | WaitStatus::Exited(..)) | Err(_) = status {
                self.held.retain(|held| *held != pid);
                has_served = true;
            }
        }
        if !has_served {
            pass(LOOK);
        }
    }

    fn serve_one(&mut self, pid: Pid) -> bool {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
        match waitpid(pid, Some(flags)) {
            Ok(WaitStatus::PtraceEvent(_, _, event)) => {
                let is_birth = [
                    Event::PTRACE_EVENT_CLONE,
                    Event::PTRACE_EVENT_FORK,
                    Event::PTRACE_EVENT_VFORK,
                ];
                if is_birth.iter().any(|one| *one as i32 == event)
                    && let Ok(born) = ptrace::getevent(pid)
                    && let Ok(born) = i32::try_from(born)
                {
                    self.held.push(Pid::from_raw(born));
                }
                go_on(pid, None)
            }
            Ok(WaitStatus::Stopped(_, signal)) => go_on(pid, Some(signal)),
            Ok(WaitStatus::StillAlive) => false,
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(_) => {
                self.traced.retain(|traced| *traced != pid);
                true
            }
            Ok(_) => go_on(pid, None),
        }
    }
}

/// It may have been killed meanwhile.
fn go_on(pid: Pid, signal: Option<Signal>) -> bool {
    let done = ptrace::cont(pid, signal);
    assert!(matches!(done, Ok(()) | Err(Errno::ESRCH)), "{done:?}");
    true
}

impl Drop for Births {
    fn drop(&mut self) {
        for pid in self.held.drain(..).chain(self.traced.drain(..)) {
            // One that is dead is collected, so that its parent sees it; the others are stopped,
            // and let go.
            let collect = || waitpid(pid, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL));
            if ptrace::interrupt(pid).is_err() {
                let _dead = collect();
                continue;
            }
            let deadline = Deadline::after(DEATH);
            while let Ok(WaitStatus::StillAlive) = collect() {
                if deadline.is_reached() {
                    break;
                }
                pass(LOOK);
            }
            let _gone = ptrace::detach(pid, None);
        }
    }
}
