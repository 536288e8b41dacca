//! The shapes of trees, as scripts, and how long their end may take.

use std::time::{Duration, Instant};

use foster_tests::{DEATH, SETTLE, Tracer, Witness, eventually, proc};

/// The grace in every run of the matrix.
pub(crate) const GRACE: Duration = Duration::from_millis(300);

/// The grace as an option.
pub(crate) const GRACE_WORD: &str = "300ms";

/// How much later than the grace the last member may be dead.
pub(crate) const MARGIN: Duration = Duration::from_millis(500);

/// How often a run is tried before it counts as late: a machine without a free core delays
/// one, a leak delays all.
const TRIES: usize = 3;

/// What a command leaves behind beside itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A background job in the command's own group.
    SameGroup,
    /// A background job in a group of its own, as `set -m` makes it.
    OwnGroup,
    /// A process in a session of its own, below the command.
    Setsid,
    /// A daemon: a double fork, a session of its own, no environment, `/`, no descriptors.
    Daemon,
    /// A background job that ignores TERM.
    IgnoresTerm,
    /// A background job that is stopped.
    Stopped,
    /// A background job below another `timeout`, which makes a group of its own.
    NestedTimeout,
}

/// Every shape.
pub(crate) const SHAPES: [Shape; 7] = [
    Shape::SameGroup,
    Shape::OwnGroup,
    Shape::Setsid,
    Shape::Daemon,
    Shape::IgnoresTerm,
    Shape::Stopped,
    Shape::NestedTimeout,
];

/// What the command itself does once its member runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leader {
    /// It waits for a line and exits.
    Exits,
    /// It waits for a line and kills itself.
    KillsItself,
    /// It waits for its member.
    Waits,
    /// It exits with 0 at TERM, and its member ignores TERM.
    LeavesAtTerm,
}

impl Shape {
    /// The command of this shape: its member prints its pid, and then the leader goes on.
    pub(crate) fn command(self, leader: Leader) -> [String; 3] {
        let prepare = match (self, leader) {
            (_, Leader::LeavesAtTerm) | (Self::IgnoresTerm, _) => "trap '' TERM; ",
            (
                Self::SameGroup
                | Self::OwnGroup
                | Self::Setsid
                | Self::Daemon
                | Self::Stopped
                | Self::NestedTimeout,
                _,
            ) => "",
        };
        let act = match self {
            Self::Stopped => "kill -STOP $$; exec sleep 60",
            Self::Daemon => "cd /; exec env -i sleep 60 <&- >&- 2>&-",
            Self::SameGroup
            | Self::OwnGroup
            | Self::Setsid
            | Self::IgnoresTerm
            | Self::NestedTimeout => "exec sleep 60",
        };
        let member = format!(
            "sh -c \"{prepare}echo \\$\\$; {}\"",
            act.replace('$', "\\$")
        );
        let start = match self {
            Self::OwnGroup => format!("set -m; {member} &"),
            Self::Setsid => format!("setsid {member} &"),
            Self::Daemon => format!("( setsid {member} & );"),
            Self::NestedTimeout => format!("timeout 60 {member} &"),
            Self::SameGroup | Self::IgnoresTerm | Self::Stopped => format!("{member} &"),
        };
        let go_on = match leader {
            Leader::Exits => "read line; exit 0",
            Leader::KillsItself => "read line; kill -9 $$",
            // A daemon is nobody's to wait for.
            Leader::Waits if self == Self::Daemon => "sleep 60",
            Leader::LeavesAtTerm if self == Self::Daemon => "sleep 60 & wait; exit 9",
            Leader::Waits => "wait",
            Leader::LeavesAtTerm => "wait; exit 9",
        };
        // Before the member, so that whoever hears of the member finds the leader ready.
        let first = match leader {
            Leader::LeavesAtTerm => "trap 'exit 0' TERM; ",
            Leader::Exits | Leader::KillsItself | Leader::Waits => "",
        };
        let script = format!("{first}{start} {go_on}");
        ["/bin/bash".into(), "-c".into(), script]
    }

    /// Waits until the member runs, and takes hold of it.
    pub(crate) fn member(self, tracer: &mut Tracer) -> Witness {
        // It holds the pipe and lives for a minute, so that the number is its own.
        let member = Witness::of(tracer.pid());
        if self == Self::Stopped {
            eventually("the member is stopped", SETTLE, || {
                proc::state(member.pid()) == Some('T')
            });
        }
        if self == Self::Daemon {
            eventually("the daemon is what it is to be", SETTLE, || {
                proc::stat(member.pid()).is_some_and(|stat| stat.name == b"sleep")
            });
        }
        member
    }
}

/// Runs something that gives the time from an event to the death of the last member, and
/// asserts that it is within this bound.
///
/// # Panics
///
/// Where every try was late.
pub(crate) fn assert_in_time(what: &str, bound: Duration, mut run: impl FnMut() -> Duration) {
    let mut late = Vec::new();
    while late.len() < TRIES {
        let time = run();
        if time <= bound {
            return;
        }
        late.push(time);
    }
    panic!("{what}: not gone within {bound:?}: {late:?}");
}

/// The time until the last holder of the pipe is dead.
pub(crate) fn time_to_end(tracer: &mut Tracer, since: Instant) -> Duration {
    tracer.wait_for_end(DEATH);
    since.elapsed()
}
