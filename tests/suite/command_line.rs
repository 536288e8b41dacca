//! The contract of the command line, as a script or a person meets it.

#[path = "command_line/codes.rs"]
mod codes;
#[path = "command_line/escapees.rs"]
mod escapees;
#[path = "command_line/nested.rs"]
mod nested;
#[path = "command_line/on_exit.rs"]
mod on_exit;
#[path = "command_line/options.rs"]
mod options;
#[path = "command_line/parent.rs"]
mod parent;
#[path = "command_line/report.rs"]
mod report;
#[path = "command_line/signals.rs"]
mod signals;
#[path = "command_line/streams.rs"]
mod streams;
#[path = "command_line/wrong_use.rs"]
mod wrong_use;
