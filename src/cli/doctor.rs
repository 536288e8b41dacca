//! `foster doctor`: what a command can be held by here, and what to do about the rest.
//!
//! A helper is launched and asked; what it answers becomes rows, and the rows a table or JSON.
//! No command is started.

use serde::Serialize;

use crate::cli::options::Format;
use crate::cli::outcome::Failure;
use crate::cli::{remedy, words};
use crate::{Capabilities, Helper, Level};

/// The version of the shape of `--json`. Fields are only added within one version.
const VERSION: u32 = 1;

/// Every level, the weakest first.
const LEVELS: [Level; 4] = [Level::Group, Level::Tree, Level::Cgroup, Level::Namespace];

/// The strongest level that `auto` takes: it changes nothing of what a command sees.
const AUTO_LIMIT: Level = Level::Cgroup;

/// The exit code where `auto` holds what leaves a command's session.
const WELL: u8 = 0;
/// The exit code where it does not.
const UNWELL: u8 = 1;

/// What a helper can do here. `docs/CLI.md` says what each field means.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    foster: u32,
    auto: &'static str,
    levels: Vec<Row>,
    janitor: Janitor,
    features: Features,
}

/// One level.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    level: &'static str,
    available: bool,
    errno: Option<i32>,
    obstacle: Option<&'static str>,
    reason: Option<String>,
    remedy: Option<&'static str>,
    guarantee: &'static str,
}

/// Whether `foster sweep` finds what is left here.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Janitor {
    available: bool,
    errno: Option<i32>,
    reason: Option<String>,
}

/// What the kernel has that the helper uses.
#[derive(Clone, Copy, Debug, Serialize)]
struct Features {
    clone3: bool,
    pidfd: bool,
    pidfd_group: bool,
    children_files: bool,
}

/// What there is to print, and foster's exit code.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The table or the JSON object, with its line end.
    pub(crate) text: String,
    /// The exit code.
    pub(crate) code: u8,
}

/// Launches a helper and tells what it can do here.
///
/// # Errors
///
/// One line where no helper can be had.
pub(crate) fn examine(format: Format) -> Result<Answer, String> {
    let helper = Helper::launch().map_err(|error| Failure::Call(error).text())?;
    let diagnosis = Diagnosis::new(helper.capabilities());
    let text = match format {
        Format::Table => diagnosis.table(),
        Format::Json => diagnosis.json()?,
    };
    Ok(Answer {
        text,
        code: diagnosis.code(),
    })
}

impl Diagnosis {
    /// Puts what a helper can do into rows.
    fn new(capabilities: &Capabilities) -> Self {
        let Capabilities {
            levels: _,
            clone3,
            pidfd,
            pidfd_group,
            children_files,
            janitor,
        } = *capabilities;
        Self {
            foster: VERSION,
            auto: words::level(auto(capabilities)),
            levels: LEVELS.map(|level| row(capabilities, level)).into(),
            janitor: Janitor::new(janitor),
            features: Features {
                clone3,
                pidfd,
                pidfd_group,
                children_files,
            },
        }
    }

    /// Zero where level `tree` can be had.
    fn code(&self) -> u8 {
        let tree = words::level(Level::Tree);
        let has_tree = self
            .levels
            .iter()
            .any(|row| row.level == tree && row.available);
        if has_tree { WELL } else { UNWELL }
    }

    /// One object on one line.
    fn json(&self) -> Result<String, String> {
        let line = serde_json::to_string(self).map_err(|error| error.to_string())?;
        Ok(line + "\n")
    }

    /// A row for each level, with the reason and the remedy below it where it is missing; then
    /// a row for each feature of the kernel.
    fn table(&self) -> String {
        let mut lines = vec![line(
            "level",
            "here",
            "what it does when the tree is to end",
        )];
        for row in &self.levels {
            lines.push(line(row.level, yes_or_no(row.available), row.guarantee));
            let reason = row.reason.iter().map(|text| format!("why not: {text}"));
            let remedy = row.remedy.iter().map(|text| format!("to do:   {text}"));
            lines.extend(reason.chain(remedy).map(|text| line("", "", &text)));
        }
        lines.push(String::new());
        lines.extend(self.janitor.lines());
        lines.push(String::new());
        lines.push(line("kernel", "here", "what it is good for"));
        for (name, is_here, purpose) in self.features.rows() {
            lines.push(line(name, yes_or_no(is_here), purpose));
        }
        lines.push(String::new());
        lines.push(format!("foster run takes level {} here (auto).", self.auto));
        lines.join("\n") + "\n"
    }
}

impl Janitor {
    fn new(errno: i32) -> Self {
        let is_missing = errno != 0;
        Self {
            available: !is_missing,
            errno: is_missing.then_some(errno),
            reason: is_missing.then(|| remedy::no_janitor(errno)),
        }
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        let text =
            "foster sweep ends what is left when foster, its helper and keepers are all killed";
        let first = line("janitor", yes_or_no(self.available), text);
        let reason = self.reason.iter().map(|text| format!("why not: {text}"));
        std::iter::once(first).chain(reason.map(|text| line("", "", &text)))
    }
}

impl Features {
    fn rows(self) -> [(&'static str, bool, &'static str); 4] {
        let Self {
            clone3,
            pidfd,
            pidfd_group,
            children_files,
        } = self;
        [
            (
                "clone3",
                clone3,
                "a command starts with its pidfd and clean handlers (Linux 5.5)",
            ),
            (
                "pidfd",
                pidfd,
                "members are held, so that no stranger is signalled (Linux 5.3)",
            ),
            (
                "pidfd_group",
                pidfd_group,
                "a group is signalled through its leader's pidfd (Linux 6.9)",
            ),
            (
                "children files",
                children_files,
                "a tree is walked without a scan of /proc (CONFIG_PROC_CHILDREN)",
            ),
        ]
    }
}

/// What level `auto` is here.
fn auto(capabilities: &Capabilities) -> Level {
    let offered = capabilities.levels.iter().filter(|one| one.errno == 0);
    offered
        .map(|one| one.level)
        .filter(|level| *level <= AUTO_LIMIT)
        .max()
        .unwrap_or(Level::Group)
}

fn row(capabilities: &Capabilities, level: Level) -> Row {
    let one = remedy::availability(capabilities, level);
    let missing = remedy::of(one);
    let is_missing = missing.is_some();
    let (reason, remedy) = missing.unzip();
    Row {
        level: words::level(level),
        available: !is_missing,
        errno: is_missing.then_some(one.errno),
        obstacle: one.obstacle.filter(|_| is_missing).map(remedy::word),
        reason,
        remedy: remedy.flatten(),
        guarantee: guarantee(level, capabilities),
    }
}

/// What a level does here, or would do if it could be had.
fn guarantee(level: Level, capabilities: &Capabilities) -> &'static str {
    match level {
        Level::Direct => "ends the command's process group, and nothing when its host is killed",
        Level::Group if !capabilities.pidfd => {
            "ends the command's process group; who leaves it may live on"
        }
        Level::Group if !capabilities.children_files => {
            "ends what stays in the command's session; what leaves it may live on unseen"
        }
        Level::Group => {
            "ends what stays in the command's session; what leaves it is named, and ends with \
             the helper"
        }
        Level::Tree => "ends what leaves the session too, also when foster or its helper is killed",
        Level::Cgroup => "ends fork bombs and processes of other users too, with one write",
        Level::Namespace => {
            "the kernel ends everything, also when foster, its helper and keepers are all killed"
        }
    }
}

fn line(name: &str, here: &str, text: &str) -> String {
    format!("{name:<15} {here:<5} {text}")
}

fn yes_or_no(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}

#[cfg(test)]
#[path = "doctor_tests.rs"]
mod tests;
