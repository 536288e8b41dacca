//! `foster sweep`: ends what is left of helpers that were killed with their hosts and keepers.
//!
//! The library does it; what it reports becomes a table or JSON here.

use serde::Serialize;

use crate::cli::doctor::Answer;
use crate::cli::options::Format;
use crate::cli::sweep_options::SweepOptions;
use crate::cli::words;
use crate::{Fate, Found, Refused, Survivor, Sweep, Swept, SweptInstance};

/// The version of the shape of `--json`. Fields are only added within one version.
const VERSION: u32 = 1;

/// The exit code where nothing is left.
const CLEAN: u8 = 0;
/// The exit code where something is left, or could not be looked at.
const LEFT: u8 = 1;

/// The object of `--json`. `docs/CLI.md` says what each field means.
#[derive(Debug, Serialize)]
struct Report {
    foster: u32,
    dry_run: bool,
    instances: Vec<Row>,
    refused: Vec<Refusal>,
}

#[derive(Debug, Serialize)]
struct Row {
    record: String,
    helper: Option<i32>,
    state: &'static str,
    found: Vec<Process>,
    spared: Vec<Process>,
    survivors: Vec<Left>,
    cgroups: Vec<String>,
    took_s: f64,
}

#[derive(Debug, Serialize)]
struct Process {
    pid: i32,
    name: String,
    uid: u32,
    session: u64,
}

#[derive(Debug, Serialize)]
struct Left {
    pid: i32,
    name: String,
    uid: u32,
    why: String,
}

#[derive(Debug, Serialize)]
struct Refusal {
    path: String,
    why: String,
}

/// Sweeps and tells what came of it.
///
/// # Errors
///
/// One line where no sweep is possible.
pub(crate) fn sweep(options: &SweepOptions) -> Result<Answer, String> {
    let mut sweep = Sweep::new().grace(options.grace).dry_run(options.dry_run);
    for folder in &options.folders {
        sweep = sweep.folder(folder);
    }
    let swept = sweep.run().map_err(|error| chain(&error))?;
    let code = if swept.is_clean() { CLEAN } else { LEFT };
    let report = Report::new(&swept, options.dry_run);
    let text = match options.format {
        Format::Json => serde_json::to_string(&report).map_err(|error| error.to_string())? + "\n",
        Format::Table => report.table(),
    };
    Ok(Answer { text, code })
}

/// An error with its source, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl Report {
    fn new(swept: &Swept, dry_run: bool) -> Self {
        Self {
            foster: VERSION,
            dry_run,
            instances: swept.instances.iter().map(Row::new).collect(),
            refused: swept.refused.iter().map(Refusal::new).collect(),
        }
    }

    /// A line for each instance with what there is to say of it below. Live ones are told only
    /// where the run was dry.
    fn table(&self) -> String {
        let mut lines = Vec::new();
        let live = word(Fate::Live);
        for row in &self.instances {
            if row.state != live || self.dry_run {
                lines.extend(row.lines());
            }
        }
        for refusal in &self.refused {
            lines.push(format!("refused     {}: {}", refusal.path, refusal.why));
        }
        if lines.is_empty() {
            lines.push("nothing is left".to_owned());
        }
        let lines = lines.iter().map(|line| clean(line) + "\n");
        lines.collect()
    }
}

impl Row {
    fn new(instance: &SweptInstance) -> Self {
        Self {
            record: instance.record.to_string_lossy().into_owned(),
            helper: instance.helper.map(|pid| pid.0),
            state: word(instance.fate),
            found: instance.found.iter().map(Process::new).collect(),
            spared: instance.spared.iter().map(Process::new).collect(),
            survivors: instance.survivors.iter().map(Left::new).collect(),
            cgroups: instance
                .cgroups
                .iter()
                .map(|path| path.to_string_lossy().into_owned())
                .collect(),
            took_s: instance.took.as_secs_f64(),
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{:<11} {}", self.state, self.record)];
        let found = self.found.iter().map(|one| ("found", one));
        let spared = self.spared.iter().map(|one| ("spared", one));
        for (what, one) in found.chain(spared) {
            let Process {
                pid,
                name,
                uid,
                session,
            } = one;
            lines.push(format!(
                "  {what:<9} {name} ({pid}) of user {uid}, session {session}"
            ));
        }
        for Left {
            pid,
            name,
            uid,
            why,
        } in &self.survivors
        {
            lines.push(format!("  left      {name} ({pid}) of user {uid}: {why}"));
        }
        let cgroups = self.cgroups.iter();
        lines.extend(cgroups.map(|path| format!("  cgroup    {path}")));
        lines
    }
}

impl Process {
    fn new(found: &Found) -> Self {
        Self {
            pid: found.pid.0,
            name: words::name(&found.name),
            uid: found.uid,
            session: found.session.0,
        }
    }
}

impl Left {
    fn new(survivor: &Survivor) -> Self {
        Self {
            pid: survivor.pid.0,
            name: words::name(&survivor.name),
            uid: survivor.uid,
            why: words::why(survivor.why),
        }
    }
}

impl Refusal {
    fn new(refused: &Refused) -> Self {
        Self {
            path: refused.path.to_string_lossy().into_owned(),
            why: chain(&refused.reason),
        }
    }
}

fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::Live => "live",
        Fate::Elsewhere => "elsewhere",
        Fate::Past => "past",
        Fate::Left => "left",
        Fate::AllGone => "all-gone",
        Fate::Incomplete => "incomplete",
    }
}

/// Names of processes are bytes that somebody else chose.
fn clean(line: &str) -> String {
    line.replace(|c: char| c.is_control(), "?")
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
