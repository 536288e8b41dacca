//! The JSON report: its shape, and where it goes.
//!
//! The place is opened before the command starts, so that a report that cannot be written
//! stops the run and not its result. One line, one write.

use std::fs::File;
use std::io::{self, Write};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde::Serialize;

use crate::cli::options::ReportTarget;
use crate::cli::outcome::{Escapee, Outcome};
use crate::cli::{remedy, words};
use crate::sys;
use crate::{Capabilities, Containment, Micros};

/// The version of the report's shape. Fields are only added within one version.
const VERSION: u32 = 1;

/// An open place for a report.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Standard error.
    Stderr,
    /// A file or a descriptor.
    File(File),
}

impl Sink {
    /// Opens the place; a file is created or emptied.
    ///
    /// # Errors
    ///
    /// What the system says; `EBADF` for a descriptor that is not there or not for writing.
    pub(crate) fn open(target: &ReportTarget) -> io::Result<Self> {
        match target {
            ReportTarget::Stderr => Ok(Self::Stderr),
            ReportTarget::File(path) => File::create(path).map(Self::File),
            ReportTarget::Descriptor(number) => {
                let copy = sys::duplicate(*number)?;
                let flags = OFlag::from_bits_retain(fcntl(&copy, FcntlArg::F_GETFL)?);
                if flags & OFlag::O_ACCMODE == OFlag::O_RDONLY {
                    return Err(io::Error::from_raw_os_error(nix::libc::EBADF));
                }
                Ok(Self::File(copy.into()))
            }
        }
    }

    /// Writes the report as one line.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(crate) fn write(&mut self, report: &Report) -> io::Result<()> {
        let mut line = serde_json::to_vec(report).map_err(io::Error::from)?;
        line.push(b'\n');
        match self {
            Self::Stderr => io::stderr().write_all(&line),
            Self::File(file) => file.write_all(&line),
        }
    }
}

/// The report. `docs/CLI.md` says what each field means.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    foster: u32,
    reason: &'static str,
    code: Option<i32>,
    signal: Option<i32>,
    core: bool,
    exit_code: u8,
    pid: Option<i32>,
    wall_s: Option<f64>,
    user_s: Option<f64>,
    system_s: Option<f64>,
    max_rss_kib: Option<u64>,
    at_exit: Vec<Member>,
    escaped: Vec<Escaped>,
    survivors: Vec<Survivor>,
    left_running: Option<u32>,
    cause: Option<&'static str>,
    verdict: Option<&'static str>,
    proof: Option<&'static str>,
    rounds: Option<u32>,
    took_s: Option<f64>,
    peaks: Option<Peaks>,
    containment: Option<Contained>,
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Member {
    pid: i32,
    name: String,
    ended: &'static str,
}

#[derive(Debug, Serialize)]
struct Escaped {
    pid: i32,
    name: String,
    ended: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Survivor {
    pid: i32,
    name: String,
    uid: u32,
    why: String,
}

#[derive(Debug, Serialize)]
struct Peaks {
    memory_bytes: Option<u64>,
    processes: Option<u64>,
    cpu_s: Option<f64>,
    oom_kills: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Contained {
    level: &'static str,
    missing: Vec<Lacking>,
}

#[derive(Debug, Serialize)]
struct Lacking {
    level: &'static str,
    errno: i32,
    reason: String,
}

impl Report {
    /// Puts a run into the report's shape.
    pub(crate) fn new(outcome: &Outcome, exit_code: u8) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let status = outcome.status();
        let exit = outcome.exit;
        let ending = outcome.ending();
        Self {
            foster: VERSION,
            reason: outcome.reason().word(),
            code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            core: status.is_some_and(|status| status.core_dumped()),
            exit_code,
            pid: outcome.pid,
            wall_s: exit.map(|exit| seconds(exit.wall)),
            user_s: exit.map(|exit| seconds(exit.usage.user)),
            system_s: exit.map(|exit| seconds(exit.usage.system)),
            max_rss_kib: exit.map(|exit| exit.usage.max_rss),
            at_exit: members(outcome),
            escaped: escaped(outcome),
            survivors: survivors(outcome),
            left_running: outcome.left_running(),
            cause: outcome.cause().map(words::cause),
            verdict: verdict(outcome),
            proof: ending.and_then(|ending| ending.proof).map(words::proof),
            rounds: ending.map(|ending| ending.rounds),
            took_s: ending.map(|ending| seconds(ending.took)),
            peaks: ending.and_then(|ending| ending.peaks).map(peaks),
            containment: outcome
                .containment
                .as_ref()
                .map(|containment| contained(containment, outcome.capabilities.as_ref())),
            error: outcome.failure_text(),
        }
    }
}

fn members(outcome: &Outcome) -> Vec<Member> {
    let members = outcome
        .ending()
        .into_iter()
        .flat_map(|ending| &ending.members);
    let shape = |member: &crate::Member| Member {
        pid: member.pid.0,
        name: words::name(&member.name),
        ended: words::member_end(member.ended),
    };
    members.map(shape).collect()
}

fn escaped(outcome: &Outcome) -> Vec<Escaped> {
    let shape = |one: Escapee<'_>| Escaped {
        pid: one.pid,
        name: words::name(one.name),
        ended: one.ended.map(words::member_end),
    };
    outcome.escaped().into_iter().map(shape).collect()
}

fn survivors(outcome: &Outcome) -> Vec<Survivor> {
    let shape = |survivor: &crate::Survivor| Survivor {
        pid: survivor.pid.0,
        name: words::name(&survivor.name),
        uid: survivor.uid,
        why: words::why(survivor.why),
    };
    outcome.survivors().into_iter().map(shape).collect()
}

/// The verdict on everything: of the tree, and of what had left it.
fn verdict(outcome: &Outcome) -> Option<&'static str> {
    let incomplete = words::verdict(crate::Verdict::Incomplete);
    if outcome.left_running().is_some() {
        return Some("released");
    }
    let ending = outcome.ending()?;
    let is_left = !outcome.survivors().is_empty();
    Some(if is_left {
        incomplete
    } else {
        words::verdict(ending.verdict)
    })
}

fn peaks(peaks: crate::Peaks) -> Peaks {
    Peaks {
        memory_bytes: peaks.memory,
        processes: peaks.processes,
        cpu_s: peaks.cpu.map(seconds),
        oom_kills: peaks.oom_kills,
    }
}

fn contained(containment: &Containment, capabilities: Option<&Capabilities>) -> Contained {
    let lacking = |missing: &crate::Missing| Lacking {
        level: words::level(missing.level),
        errno: missing.errno,
        reason: remedy::of_missing(*missing, capabilities).0,
    };
    Contained {
        level: words::level(containment.level),
        missing: containment.missing.iter().map(lacking).collect(),
    }
}

fn seconds(micros: Micros) -> f64 {
    std::time::Duration::from(micros).as_secs_f64()
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
