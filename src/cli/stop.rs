//! `foster stop`: ends services of a registry and says what became of each.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

use crate::cli::options::Format;
use crate::cli::ps::{self, VERSION, text};
use crate::cli::service_options::StopOptions;
use crate::registry::{Outcome, RegistryError, ServiceName, Stop, Stopped};

/// The time that KILL has beyond the grace.
const KILL_TIME: Duration = Duration::from_secs(2);

/// The exit code where every service is over.
const OVER: u8 = 0;
/// The exit code where one is not.
const NOT_OVER: u8 = 1;

/// What became of the services. `docs/CLI.md` says what each field means.
#[derive(Debug, Serialize)]
struct Report {
    foster: u32,
    services: Vec<Row>,
}

/// What became of one.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    over: bool,
    outcome: &'static str,
    pid: Option<u32>,
    members: Option<usize>,
    survivors: Vec<u32>,
}

/// Ends services: what there is to print, and foster's exit code.
///
/// # Errors
///
/// One line where nothing could be done.
pub(crate) fn stop(options: &StopOptions) -> Result<(String, u8), String> {
    let names: BTreeSet<ServiceName> = options
        .names
        .iter()
        .map(|name| ServiceName::new(name.as_str()))
        .collect::<Result<_, _>>()
        .map_err(|error| text(&error))?;
    let names: Vec<ServiceName> = names.into_iter().collect();
    let how = Stop {
        first: options.signal,
        grace: options.grace,
        budget: options.grace.saturating_add(KILL_TIME),
    };
    let stopped = match (ps::open(&options.ps)?, names.first()) {
        (Some(registry), None) => registry.stop_all(how),
        (Some(registry), Some(_)) => registry.stop(&names, how),
        (None, None) => Ok(Stopped::new()),
        (None, Some(name)) => Err(RegistryError::Unknown { name: name.clone() }),
    };
    let stopped = stopped.map_err(|error| text(&error))?;
    let is_over = stopped.iter().all(|(_, outcome)| outcome.is_over());
    let report = Report {
        foster: VERSION,
        services: stopped.iter().map(row).collect(),
    };
    let shown = match options.ps.format {
        Format::Table => report.services.iter().map(line).collect(),
        Format::Json => ps::json(&report)?,
    };
    Ok((shown, if is_over { OVER } else { NOT_OVER }))
}

fn row((name, outcome): &(ServiceName, Outcome)) -> Row {
    let mut row = Row {
        name: name.to_string(),
        over: outcome.is_over(),
        outcome: word(outcome),
        pid: None,
        members: None,
        survivors: Vec::new(),
    };
    match outcome {
        Outcome::Gone { pid, members, .. } => {
            row.pid = Some(*pid);
            row.members = Some(*members);
        }
        Outcome::Survived { survivors } => row.survivors.clone_from(survivors),
        Outcome::Stale(_) | Outcome::NotYet | Outcome::Unknown | Outcome::Inside => {}
    }
    row
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Gone { by_kill: false, .. } => "first-signal",
        Outcome::Gone { by_kill: true, .. } => "kill",
        Outcome::Survived { .. } => "survived",
        Outcome::Stale(why) => ps::stale(*why),
        Outcome::NotYet => "starting",
        Outcome::Unknown => "unknown",
        Outcome::Inside => "inside",
    }
}

fn line(row: &Row) -> String {
    let name = &row.name;
    match row.outcome {
        "first-signal" => format!("{name}: ended by the first signal\n"),
        "kill" => format!("{name}: had to be killed\n"),
        "survived" => {
            let pids: Vec<String> = row.survivors.iter().map(u32::to_string).collect();
            format!("{name}: could not be ended: {}\n", pids.join(", "))
        }
        "inside" => format!("{name}: not signalled: foster runs in it\n"),
        "unknown" => format!("{name}: not signalled: it cannot be told whose its process is\n"),
        word => format!("{name}: not signalled, row dropped: {word}\n"),
    }
}
