//! The limits of one run, all of which the helper runs: a hung foster delays none.

use std::time::Duration;

use crate::OnExit;
use crate::cli::options::{AtExit, RunOptions};

/// The limits of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What happens at the command's exit.
    pub(crate) on_exit: OnExit,
    /// When the command is ended, from its start.
    pub(crate) deadline: Option<Duration>,
    /// The first signal of an ending that names none.
    pub(crate) first: i32,
    /// The time between the first signal and KILL.
    pub(crate) grace: Duration,
}

impl Plan {
    /// Takes the limits of a command line.
    pub(crate) fn new(options: &RunOptions) -> Self {
        let RunOptions {
            timeout: deadline,
            grace,
            signal: first,
            on_exit,
            ..
        } = *options;
        let on_exit = match on_exit {
            AtExit::End => OnExit::End { grace },
            AtExit::Wait(limit) => OnExit::Linger {
                limit: limit.unwrap_or(Duration::MAX),
                grace,
            },
            AtExit::Leave => OnExit::Leave,
        };
        Self {
            on_exit,
            deadline,
            first,
            grace,
        }
    }

    /// How long after the command's exit the last KILL may be sent; none where that is without
    /// a limit.
    pub(crate) fn end_within(&self) -> Option<Duration> {
        match self.on_exit {
            OnExit::Hold | OnExit::Leave => Some(Duration::ZERO),
            OnExit::End { grace } => Some(grace),
            OnExit::Linger { limit, grace } => limit.checked_add(grace),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::options::{Request, parse};

    const SECOND: Duration = Duration::from_secs(1);

    fn plan(words: &[&str]) -> Plan {
        let line = ["foster", "run"]
            .iter()
            .chain(words)
            .chain(&["true"])
            .map(OsString::from);
        let Ok(Request::Run(options)) = parse(line) else {
            panic!("{words:?} is read")
        };
        Plan::new(&options)
    }

    #[test]
    fn the_helper_runs_every_limit() {
        let plan = plan(&["-t2", "-k3", "-s", "INT"]);
        let on_exit = OnExit::End { grace: SECOND * 3 };
        let expected = Plan {
            on_exit,
            deadline: Some(SECOND * 2),
            first: 2,
            grace: SECOND * 3,
        };
        assert_eq!(plan, expected);
        assert_eq!(plan.end_within(), Some(SECOND * 3));
    }

    #[test]
    fn waiting_is_without_a_limit_unless_one_is_given() {
        let limited = plan(&["--on-exit", "wait:2"]);
        assert_eq!(
            limited.on_exit,
            OnExit::Linger {
                limit: SECOND * 2,
                grace: SECOND
            }
        );
        assert_eq!(limited.end_within(), Some(SECOND * 3));
        let unlimited = plan(&["--on-exit", "wait"]);
        assert_eq!(
            unlimited.on_exit,
            OnExit::Linger {
                limit: Duration::MAX,
                grace: SECOND
            }
        );
        assert_eq!(unlimited.end_within(), None);
    }

    #[test]
    fn who_is_left_alone_is_not_waited_for() {
        let plan = plan(&["--on-exit", "leave"]);
        assert_eq!(plan.on_exit, OnExit::Leave);
        assert_eq!(plan.end_within(), Some(Duration::ZERO));
    }
}
