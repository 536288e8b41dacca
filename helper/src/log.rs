//! The helper's log: one line an event on its standard error.
//!
//! A subscriber of its own, because the helper is copied for every spawn and stays small. It
//! is silent unless the host gave a log or `FOSTER_LOG` names a level when it starts.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Writes events of a level and above.
struct Log {
    level: Level,
}

/// Starts the log at the level that the environment names; `warn` where it names none.
pub(crate) fn start() {
    let level = std::env::var("FOSTER_LOG")
        .ok()
        .and_then(|name| name.parse::<Level>().ok())
        .unwrap_or(Level::WARN);
    // A host that plays the helper after `init` may have a subscriber already; it stays.
    let _set_before = tracing::subscriber::set_global_default(Log { level });
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("foster_helper")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("foster-helper: {}:", event.metadata().level()));
        event.record(&mut line);
        line.0.push('\n');
        // A log that nobody reads must not stop the helper.
        let _unread = std::io::stderr().write_all(line.0.as_bytes());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// One line under way.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _written = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
