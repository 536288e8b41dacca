//! Hosts under test: programs that use the library, and what they say of themselves.
//!
//! A host writes lines to its standard output, and its sessions write to the same pipe: end
//! of file on it says that the host and every member of every session are dead.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use crate::command_line::{Process, Program};
use crate::deadline::{SETTLE, eventually};
use crate::proc;
use crate::stage::Stage;
use crate::tracer::Witness;

/// A host that has said that it is ready, and so have all its sessions.
#[derive(Debug)]
pub struct Host {
    /// The host itself.
    pub process: Process,
    /// Its helper.
    pub helper: Witness,
    /// The members of its sessions that have said their pid, by the word before it.
    pub members: BTreeMap<String, Vec<Witness>>,
}

impl Host {
    /// Starts `host-with-sessions` with this many sessions.
    #[must_use]
    pub fn with_sessions(stage: &Stage, count: usize) -> Self {
        let program = Program::fixture(stage, "host-with-sessions").arg(count.to_string());
        Self::started(program, count)
    }

    /// Starts a host and reads its lines, until it is ready and this many members have spoken.
    ///
    /// # Panics
    ///
    /// Where a line is missing or is not known.
    #[must_use]
    pub fn started(program: Program, count: usize) -> Self {
        let mut process = program.start();
        let mut helper = None;
        let mut members: BTreeMap<String, Vec<Witness>> = BTreeMap::new();
        let mut left = count;
        let mut is_ready = false;
        while left > 0 || !is_ready {
            let line = process.stdout.line();
            match line.split_once(' ') {
                None if line == "ready" => is_ready = true,
                Some(("helper", pid)) => helper = Some(Witness::of(number(pid))),
                // It holds the pipe and lives for a minute, so that the number is its own.
                Some((word, pid)) => {
                    let witness = Witness::of(number(pid));
                    members.entry(word.to_owned()).or_default().push(witness);
                    left -= 1;
                }
                None => panic!("a host says {line:?}"),
            }
        }
        let host = Self {
            process,
            helper: helper.expect("a host names its helper"),
            members,
        };
        host.wait_for_stops();
        host
    }

    /// Starts a host of which another pipe holds the members: its standard error.
    #[must_use]
    pub fn started_with_stderr(program: Program, stderr: OwnedFd, count: usize) -> Self {
        Self::started(program.stderr(stderr), count)
    }

    /// The members of one kind.
    #[must_use]
    pub fn members(&self, word: &str) -> &[Witness] {
        self.members.get(word).map_or(&[], Vec::as_slice)
    }

    /// A member that says `stopped` stops itself after its line.
    fn wait_for_stops(&self) {
        for witness in self.members("stopped") {
            eventually("the member is stopped", SETTLE, || {
                proc::state(witness.pid()) == Some('T')
            });
        }
    }
}

fn number(text: &str) -> i32 {
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("{text:?} is no process id"))
}
