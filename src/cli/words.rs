//! What foster says on standard error, and how it says it.
//!
//! One line, prefixed with `foster: `, and only when something unusual happened. Names of
//! processes are bytes that somebody else chose: nothing of them reaches a terminal as control.

use std::io::{self, Write};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::{ENOSYS, SIGKILL};

use crate::cli::options::{Detail, RunOptions};
use crate::cli::outcome::Outcome;
use crate::cli::{remedy, signals};
pub(crate) use crate::contain::why;
use crate::{
    Bytes, Capabilities, Cause, Containment, Level, MemberEnd, Missing, Peaks, Proof, Verdict,
};

/// The most processes that one line names.
const NAMED: usize = 8;

/// Standard error, as far as the options let it speak.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voice {
    detail: Detail,
}

impl Voice {
    /// Speaks as much as this.
    pub(crate) fn new(detail: Detail) -> Self {
        Self { detail }
    }

    /// Says why foster itself failed.
    pub(crate) fn failure(self, text: &str) {
        line(text);
    }

    /// Says something unusual.
    pub(crate) fn unusual(self, text: &str) {
        if self.detail >= Detail::Unusual {
            line(text);
        }
    }

    /// Tells a phase.
    pub(crate) fn phase(self, text: &str) {
        if self.detail >= Detail::Everything {
            line(text);
        }
    }
}

/// Writes one line in one call, so that lines of the command do not cut it.
fn line(text: &str) {
    let text = format!("foster: {}\n", text.replace(|c: char| c.is_control(), "?"));
    // Where standard error is gone there is nobody to tell.
    drop(io::stderr().write_all(text.as_bytes()));
}

/// What is unusual about a run, in one line; none where nothing is.
pub(crate) fn unusual(outcome: &Outcome, options: &RunOptions) -> Option<String> {
    let mut parts = Vec::new();
    if outcome.is_timeout() {
        parts.push(format!(
            "timed out after {}",
            spell(options.timeout.unwrap_or_default())
        ));
    }
    parts.extend(starved(outcome));
    if outcome.causes().any(|cause| cause == Cause::SupervisorLost) {
        parts.push("the keeper of the tree died".to_owned());
    }
    parts.extend(killed(outcome, options.signal));
    parts.extend(left_behind(outcome));
    let escaped = outcome.escaped();
    let ended = escaped.iter().filter(|one| is_ended_by_us(one.ended));
    let names = ended.map(|one| process(one.name, one.pid)).collect();
    parts.extend(listed(
        "ended",
        names,
        "that had left the command's session",
    ));
    let survivors = outcome.survivors();
    let names = survivors.iter().map(|one| {
        let who = process(&one.name, one.pid.0);
        format!("{who} of user {}: {}", one.uid, why(one.why))
    });
    parts.extend(listed(
        "could not end",
        names.collect(),
        "that may still run",
    ));
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// What there is to say of the end with `-v`.
pub(crate) fn end_phase(outcome: &Outcome) -> Option<String> {
    if let Some(count) = outcome.left_running() {
        return Some(format!("{} left running", processes(count as usize)));
    }
    let ending = outcome.ending()?;
    let proof = ending.proof.map_or("no proof", proof);
    Some(format!(
        "tree ended: {} ({proof}), {} beside the command, {} rounds in {}, cause {}{}",
        verdict(ending.verdict),
        processes(ending.members.len()),
        ending.rounds,
        spell(ending.took.into()),
        cause(ending.cause),
        ending.peaks.as_ref().map(used).unwrap_or_default(),
    ))
}

/// What a tree used, each with a comma before it; empty where nothing was counted.
fn used(peaks: &Peaks) -> String {
    let Peaks {
        memory,
        processes,
        cpu,
        oom_kills,
    } = *peaks;
    let parts = [
        memory.map(|bytes| format!("up to {} KiB of memory", bytes.div_ceil(1024))),
        processes.map(|count| format!("up to {count} processes and threads")),
        cpu.map(|time| format!("{} of processor time", spell(time.into()))),
        oom_kills.map(|count| format!("{count} killed for want of memory")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.iter().map(|part| format!(", {part}")).collect()
}

/// Describes the containment in force with `-v`.
pub(crate) fn contained(containment: &Containment, capabilities: Option<&Capabilities>) -> String {
    let without = |missing: &Missing| {
        let (why, _) = remedy::of_missing(*missing, capabilities);
        format!(", without {}: {why}", level(missing.level))
    };
    let missing: String = containment.missing.iter().map(without).collect();
    format!("level {}{missing}", level(containment.level))
}

/// The level's word.
pub(crate) fn level(level: Level) -> &'static str {
    match level {
        Level::Direct => "direct",
        Level::Group => "group",
        Level::Tree => "tree",
        Level::Cgroup => "cgroup",
        Level::Namespace => "namespace",
    }
}

/// Why a level is missing, by its error number alone.
pub(crate) fn lack(missing: Missing) -> &'static str {
    match missing.errno {
        ENOSYS => "the helper does not offer it",
        errno => Errno::from_raw(errno).desc(),
    }
}

/// The word for how a member ended.
pub(crate) fn member_end(ended: MemberEnd) -> &'static str {
    match ended {
        MemberEnd::ByItself => "by-itself",
        MemberEnd::ByFirstSignal => "first-signal",
        MemberEnd::ByKill => "kill",
        MemberEnd::Not => "not",
    }
}

/// The word for why a tree ended.
pub(crate) fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Exit => "exit",
        Cause::Signal => "signal",
        Cause::Deadline => "timeout",
        Cause::Linger => "wait-over",
        Cause::Kill => "request",
        Cause::Close => "close",
        Cause::Shutdown => "shutdown",
        Cause::Hangup => "hangup",
        Cause::SupervisorLost => "keeper-lost",
        Cause::OutOfMemory => "out-of-memory",
    }
}

/// The word for a verdict.
pub(crate) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::AllGone => "all-gone",
        Verdict::Incomplete => "incomplete",
    }
}

/// The word for a proof.
pub(crate) fn proof(proof: Proof) -> &'static str {
    match proof {
        Proof::NoOrphans => "no-orphans",
        Proof::SessionEmpty => "session-empty",
        Proof::SessionScanEmpty => "session-scan-empty",
        Proof::KeeperNoChildren => "keeper-no-children",
        Proof::CgroupUnpopulated => "cgroup-unpopulated",
        Proof::NamespaceDead => "namespace-dead",
        Proof::JobEmpty => "job-empty",
    }
}

/// A process's name as text.
pub(crate) fn name(name: &Bytes) -> String {
    String::from_utf8_lossy(&name.0).into_owned()
}

/// Whether a signal of an ending reached it in life, and it is dead.
fn is_ended_by_us(ended: Option<MemberEnd>) -> bool {
    match ended {
        Some(MemberEnd::ByFirstSignal | MemberEnd::ByKill) => true,
        Some(MemberEnd::ByItself | MemberEnd::Not) | None => false,
    }
}

/// Whether the kernel killed anyone of the tree because there was no memory left for it.
fn starved(outcome: &Outcome) -> Option<String> {
    let peaks = outcome.ending().and_then(|ending| ending.peaks);
    match peaks.and_then(|peaks| peaks.oom_kills).unwrap_or_default() {
        0 if outcome.causes().any(|cause| cause == Cause::OutOfMemory) => {
            Some("the kernel killed for want of memory".to_owned())
        }
        0 => None,
        count => {
            let count = processes(usize::try_from(count).unwrap_or(usize::MAX));
            Some(format!("the kernel killed {count} for want of memory"))
        }
    }
}

/// Who had to be killed, the command itself included.
fn killed(outcome: &Outcome, first: i32) -> Option<String> {
    let mut names = Vec::new();
    if let (Some(exit), Some(pid)) = (outcome.exit, outcome.pid) {
        let was_ended = match exit.cause {
            // For want of memory it is the kernel that kills.
            Cause::Exit | Cause::Signal | Cause::OutOfMemory => false,
            Cause::Deadline
            | Cause::Linger
            | Cause::Kill
            | Cause::Close
            | Cause::Shutdown
            | Cause::Hangup
            | Cause::SupervisorLost => true,
        };
        let by_kill = exit.status & 0x7f == SIGKILL;
        if was_ended && by_kill && first != SIGKILL {
            names.push(format!("the command ({pid})"));
        }
    }
    let members = outcome
        .ending()
        .into_iter()
        .flat_map(|ending| &ending.members);
    let members = members.filter(|member| member.ended == MemberEnd::ByKill);
    names.extend(members.map(|member| process(&member.name, member.pid.0)));
    listed("had to kill", names, "")
}

/// Whom the command left behind at its own exit, where the first signal ended them.
fn left_behind(outcome: &Outcome) -> Option<String> {
    let ending = outcome.ending()?;
    match ending.cause {
        Cause::Exit | Cause::Signal | Cause::Linger | Cause::OutOfMemory => {}
        // Who asks for an ending expects it.
        Cause::Deadline
        | Cause::Kill
        | Cause::Close
        | Cause::Shutdown
        | Cause::Hangup
        | Cause::SupervisorLost => return None,
    }
    let members = ending
        .members
        .iter()
        .filter(|one| one.ended == MemberEnd::ByFirstSignal);
    let names = members
        .map(|member| process(&member.name, member.pid.0))
        .collect();
    listed("ended", names, "that the command left behind")
}

/// "verb N processes tail: names", the tail being optional, with as many names as a line takes.
fn listed(verb: &str, names: Vec<String>, tail: &str) -> Option<String> {
    let count = names.len();
    if count == 0 {
        return None;
    }
    let shown: Vec<String> = names.into_iter().take(NAMED).collect();
    let more = match count.saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let tail = if tail.is_empty() {
        String::new()
    } else {
        format!(" {tail}")
    };
    Some(format!(
        "{verb} {}{tail}: {}{more}",
        processes(count),
        shown.join(", ")
    ))
}

fn process(bytes: &Bytes, pid: i32) -> String {
    format!("{} ({pid})", name(bytes))
}

fn processes(count: usize) -> String {
    if count == 1 {
        "1 process".to_owned()
    } else {
        format!("{count} processes")
    }
}

/// A duration as the options spell it.
pub(crate) fn spell(duration: Duration) -> String {
    format!("{duration:?}")
}

/// A signal's name as lines show it.
pub(crate) fn signal(number: i32) -> String {
    signals::name(number)
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
