//! The steps of a spawn as they stand in an error.

use foster_protocol::Step;

/// A step's name as it stands in an error.
pub(super) fn step_name(step: Step) -> &'static str {
    match step {
        Step::Prepare => "prepare",
        Step::Fork => "fork",
        Step::Session => "session",
        Step::Descriptors => "descriptors",
        Step::ControllingTerminal => "controlling terminal",
        Step::Directory => "directory",
        Step::ResourceLimits => "resource limits",
        Step::Nice => "nice",
        Step::OomScore => "oom score",
        Step::Groups => "groups",
        Step::Gid => "gid",
        Step::Uid => "uid",
        Step::NoNewPrivs => "no new privileges",
        Step::DeathSignal => "death signal",
        Step::Gate => "gate",
        Step::Exec => "exec",
        Step::Interpreter => "interpreter",
        Step::Ended => "ended",
    }
}
