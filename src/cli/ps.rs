//! `foster ps`: the services of a registry as they are now. It changes nothing.

use serde::Serialize;

use crate::cli::options::Format;
use crate::cli::service_options::PsOptions;
use crate::registry::{DEFAULT_KEY, Registered, Registry, RegistryError, Stale, Standing, State};

/// The version of the shape of `--json`. Fields are only added within one version.
pub(crate) const VERSION: u32 = 1;

/// The exit code where every file was read.
const WELL: u8 = 0;
/// The exit code where one was refused.
const REFUSED: u8 = 1;

/// What is in a registry. `docs/CLI.md` says what each field means.
#[derive(Debug, Serialize)]
struct Listing {
    foster: u32,
    services: Vec<Row>,
    refused: Vec<String>,
}

/// One service.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    standing: &'static str,
    state: &'static str,
    pid: Option<u32>,
    port: Option<u16>,
}

/// Lists a registry: what there is to print, and foster's exit code.
///
/// # Errors
///
/// One line where it cannot be read.
pub(crate) fn list(options: &PsOptions) -> Result<(String, u8), String> {
    let found = match open(options)? {
        Some(registry) => registry.list().map_err(|error| text(&error))?,
        None => Vec::new(),
    };
    let mut listing = Listing {
        foster: VERSION,
        services: Vec::new(),
        refused: Vec::new(),
    };
    for one in found {
        match one {
            Ok(service) => listing.services.push(row(&service)),
            Err(error) => listing.refused.push(text(&error)),
        }
    }
    let code = if listing.refused.is_empty() {
        WELL
    } else {
        REFUSED
    };
    let shown = match options.format {
        Format::Table => table(&listing),
        Format::Json => json(&listing)?,
    };
    Ok((shown, code))
}

/// The registry that is meant; none where there is no folder.
pub(crate) fn open(options: &PsOptions) -> Result<Option<Registry>, String> {
    let folder = match &options.folder {
        Some(folder) => Ok(folder.clone()),
        None => Registry::default_folder(),
    };
    folder
        .and_then(|folder| Registry::open_existing(folder, DEFAULT_KEY))
        .map_err(|error| text(&error))
}

/// One JSON object on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<String, String> {
    let line = serde_json::to_string(value);
    line.map(|line| line + "\n")
        .map_err(|error| format!("JSON cannot be written: {error}"))
}

/// An error with its sources, on one line.
pub(crate) fn text(error: &RegistryError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text.replace(char::is_control, "?")
}

fn row(service: &Registered) -> Row {
    Row {
        name: service.name.to_string(),
        standing: standing(service.standing),
        state: state(service.state),
        pid: service.pid,
        port: service.port,
    }
}

fn table(listing: &Listing) -> String {
    let or_none = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    let mut rows = vec![["service", "standing", "pid", "port"].map(str::to_owned)];
    rows.extend(listing.services.iter().map(|row| {
        [
            row.name.clone(),
            row.standing.to_owned(),
            or_none(row.pid.map(|pid| pid.to_string())),
            or_none(row.port.map(|port| port.to_string())),
        ]
    }));
    let width = |place: usize| {
        let cells = rows.iter().filter_map(|row| row.get(place));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let (name, standing, pid) = (width(0), width(1), width(2));
    let mut text = String::new();
    for [a, b, c, d] in &rows {
        text.push_str(&format!("{a:name$}  {b:standing$}  {c:pid$}  {d}\n"));
    }
    for line in &listing.refused {
        text.push_str(&format!("refused: {line}\n"));
    }
    text
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Ours => "running",
        Standing::NotYet => "starting",
        Standing::Unknown => "unknown",
        Standing::Stale(why) => stale(why),
    }
}

/// The word for why a row is stale.
pub(crate) fn stale(why: Stale) -> &'static str {
    match why {
        Stale::OtherBoot => "other-boot",
        Stale::NoPid => "no-process",
        Stale::Dead => "dead",
        Stale::NotOurs => "not-ours",
        Stale::NoIdentity => "no-identity",
        Stale::Over => "over",
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Running => "running",
        State::Error => "error",
        State::Stopped => "stopped",
    }
}
