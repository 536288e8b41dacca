//! What `direct` promises on Windows. Elsewhere there is nothing in it.
//!
//! The programs that it starts are this one, started once more in a role.
#![cfg(windows)]

mod beginnings;
mod contained;
mod endings;
mod held;
mod hosts;
mod outcomes;
mod refusals;
#[expect(
    clippy::zombie_processes,
    reason = "there are none on Windows, and roles end before their children"
)]
mod roles;
mod sys;

use std::io::{BufRead, BufReader, Read};
use std::process::ChildStdout;
use std::time::Duration;

/// How long anything may take that is waited for.
const LIMIT: Duration = Duration::from_secs(30);

/// How long somebody has to live on who must not be ended: far longer than an ending takes here.
const LIVES_ON: Duration = Duration::from_millis(700);

/// A command that plays a role.
fn role(name: &str) -> foster::Command {
    let mut command = foster::Command::new(roles::program());
    command.args(roles::ARGUMENTS).env(roles::ROLE, name);
    command
}

/// The same with its standard input and output in the test's hand.
fn talking(name: &str) -> foster::Command {
    let mut command = role(name);
    command
        .stdin(foster::Stdio::piped())
        .stdout(foster::Stdio::piped());
    command
}

/// What a role tells.
struct Words(BufReader<ChildStdout>);

impl Words {
    fn of(stdout: &mut Option<ChildStdout>) -> Self {
        Self(BufReader::new(stdout.take().expect("it is piped")))
    }

    /// The next word of a role. What the test harness of the role writes is passed over.
    fn next(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let count = self.0.read_line(&mut line).expect("a pipe can be read");
            assert!(count > 0, "the role has ended before its word");
            if let Some((_, word)) = line.split_once(roles::SAYS) {
                return word.trim().to_owned();
            }
        }
    }

    /// The next process that a role names, and holds itself.
    fn process(&mut self) -> held::Process {
        let word = self.next();
        let pid = word.parse().expect("a process id");
        held::Process::open(pid)
    }

    /// Reads to the end, which is there when nobody holds the other end any more.
    fn rest(mut self) -> String {
        let mut rest = String::new();
        self.0
            .read_to_string(&mut rest)
            .expect("a pipe can be read");
        rest
    }
}
