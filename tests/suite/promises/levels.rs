//! Which levels can be had here, as `foster doctor` says it.

use std::sync::OnceLock;

use foster_tests::{Program, Stage, places};
use serde_json::Value;

use crate::cell::level_name;

static DOCTOR: OnceLock<Value> = OnceLock::new();

/// Why a level cannot be had here; none where it can.
pub(crate) fn missing(level: foster_protocol::Level) -> Option<String> {
    let report = DOCTOR.get_or_init(|| {
        let stage = Stage::new();
        let doctor = Program::new(&stage, places::foster()).args(["doctor", "--json"]);
        let finished = doctor.run();
        serde_json::from_str(&finished.stdout)
            .unwrap_or_else(|error| panic!("{error}: {finished:?}"))
    });
    let text = |row: &Value, name: &str| row.get(name).and_then(Value::as_str).map(str::to_owned);
    let rows = report.get("levels").and_then(Value::as_array);
    let name = level_name(level);
    let row = rows
        .into_iter()
        .flatten()
        .find(|row| text(row, "level").as_deref() == Some(name));
    let row = row.unwrap_or_else(|| panic!("no level {name}: {report}"));
    let reason = || text(row, "reason").unwrap_or_default();
    let is_there = row.get("available").and_then(Value::as_bool) == Some(true);
    (!is_there).then(|| format!("level `{name}`: {}", reason()))
}
