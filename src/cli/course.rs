//! What foster does about a signal or its parent's death, given what it has done before.
//!
//! A pure table: news in, one action out. It holds no handle and makes no call.

use std::time::Duration;

use nix::libc::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};

/// Why an ending was asked for from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Foster was sent this signal.
    Signal(i32),
    /// Foster's parent died.
    ParentGone,
}

impl Stop {
    /// The first signal of the ending.
    pub(crate) fn first(self) -> i32 {
        match self {
            Self::Signal(number) => number,
            Self::ParentGone => SIGTERM,
        }
    }
}

/// How far the command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is on its way to run.
    Starting,
    /// It or something that it started may run.
    Running,
    /// Its end is known; escapees may still be on their way out.
    Ended,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing, or nothing yet.
    Nothing,
    /// End the tree.
    End {
        /// The first signal.
        first: i32,
        /// The time between it and KILL.
        grace: Duration,
    },
    /// Pass a signal on to the whole tree.
    Forward(i32),
    /// Stop the tree, where there is one, and then foster.
    Suspend,
    /// Let the tree go on.
    Resume,
    /// Leave without waiting for anything else: the hangup ends what there is.
    Abandon,
}

/// What has been asked for so far.
#[derive(Debug)]
pub(crate) struct Course {
    grace: Duration,
    phase: Phase,
    stop: Option<Stop>,
    is_hurried: bool,
    /// What came before there was a tree and is about the tree, in its order.
    held: Vec<Action>,
}

impl Course {
    /// Begins before the command does, with the time between a first signal and KILL.
    pub(crate) fn new(grace: Duration) -> Self {
        Self {
            grace,
            phase: Phase::Starting,
            stop: None,
            is_hurried: false,
            held: Vec::new(),
        }
    }

    /// Why an ending was asked for, if it was.
    pub(crate) fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// Takes a signal to foster.
    pub(crate) fn on_signal(&mut self, number: i32) -> Action {
        match number {
            SIGINT | SIGTERM if self.stop.is_some() => self.hurry(number),
            SIGINT | SIGTERM | SIGHUP | SIGQUIT => self.end(Stop::Signal(number)),
            SIGUSR1 | SIGUSR2 => self.pass_on(Action::Forward(number)),
            SIGTSTP => self.suspend(),
            SIGCONT => self.resume(),
            // No other signal is handled.
            _ => Action::Nothing,
        }
    }

    /// Takes the death of foster's parent.
    pub(crate) fn on_parent_gone(&mut self) -> Action {
        self.end(Stop::ParentGone)
    }

    /// Takes the start of the command: what came before it is due now.
    pub(crate) fn on_started(&mut self) -> Vec<Action> {
        self.phase = Phase::Running;
        let grace = if self.is_hurried {
            Duration::ZERO
        } else {
            self.grace
        };
        let end = self.stop.map(|stop| Action::End {
            first: stop.first(),
            grace,
        });
        self.held.drain(..).chain(end).collect()
    }

    /// Takes the end of the tree.
    pub(crate) fn on_ended(&mut self) {
        self.phase = Phase::Ended;
    }

    /// The first request to end; a later one of this kind adds nothing.
    fn end(&mut self, stop: Stop) -> Action {
        if self.stop.is_some() {
            return Action::Nothing;
        }
        self.stop = Some(stop);
        match self.phase {
            Phase::Starting | Phase::Ended => Action::Nothing,
            Phase::Running => Action::End {
                first: stop.first(),
                grace: self.grace,
            },
        }
    }

    /// The request for "now".
    fn hurry(&mut self, number: i32) -> Action {
        match (self.phase, self.is_hurried) {
            (Phase::Starting | Phase::Ended, _) => Action::Abandon,
            (Phase::Running, true) => Action::Nothing,
            (Phase::Running, false) => {
                self.is_hurried = true;
                Action::End {
                    first: number,
                    grace: Duration::ZERO,
                }
            }
        }
    }

    fn pass_on(&mut self, action: Action) -> Action {
        match self.phase {
            Phase::Starting => {
                self.held.push(action);
                Action::Nothing
            }
            Phase::Running => action,
            Phase::Ended => Action::Nothing,
        }
    }

    /// A stop waits for the start: a tree that foster cannot reach yet would go on without it.
    fn suspend(&mut self) -> Action {
        match self.phase {
            Phase::Starting | Phase::Running => self.pass_on(Action::Suspend),
            Phase::Ended => Action::Suspend,
        }
    }

    /// Going on before the start takes back a stop that has not happened.
    fn resume(&mut self) -> Action {
        match self.phase {
            Phase::Starting => {
                self.held.retain(|action| *action != Action::Suspend);
                Action::Nothing
            }
            Phase::Running => Action::Resume,
            Phase::Ended => Action::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(3);

    fn running() -> Course {
        let mut course = Course::new(GRACE);
        assert_eq!(course.on_started(), []);
        course
    }

    #[test]
    fn each_ending_signal_ends_the_tree_with_itself() {
        for number in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            let mut course = running();
            let end = Action::End {
                first: number,
                grace: GRACE,
            };
            assert_eq!(course.on_signal(number), end);
            assert_eq!(course.stop(), Some(Stop::Signal(number)));
        }
    }

    #[test]
    fn a_second_int_or_term_means_now_and_only_once() {
        for first in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            for second in [SIGINT, SIGTERM] {
                let mut course = running();
                course.on_signal(first);
                let now = Action::End {
                    first: second,
                    grace: Duration::ZERO,
                };
                assert_eq!(course.on_signal(second), now);
                assert_eq!(course.on_signal(second), Action::Nothing);
                assert_eq!(course.stop(), Some(Stop::Signal(first)));
            }
        }
    }

    #[test]
    fn a_second_hup_or_quit_adds_nothing() {
        for second in [SIGHUP, SIGQUIT] {
            let mut course = running();
            course.on_signal(SIGINT);
            assert_eq!(course.on_signal(second), Action::Nothing);
        }
    }

    #[test]
    fn the_death_of_the_parent_ends_as_on_term() {
        let mut course = running();
        assert_eq!(
            course.on_parent_gone(),
            Action::End {
                first: SIGTERM,
                grace: GRACE
            }
        );
        assert_eq!(course.on_parent_gone(), Action::Nothing);
        let now = Action::End {
            first: SIGINT,
            grace: Duration::ZERO,
        };
        assert_eq!(course.on_signal(SIGINT), now);
    }

    #[test]
    fn user_signals_are_only_passed_on() {
        let mut course = running();
        assert_eq!(course.on_signal(SIGUSR1), Action::Forward(SIGUSR1));
        assert_eq!(course.on_signal(SIGUSR2), Action::Forward(SIGUSR2));
        assert_eq!(course.stop(), None);
    }

    #[test]
    fn what_came_before_the_start_is_due_at_it() {
        let mut course = Course::new(GRACE);
        assert_eq!(course.on_signal(SIGUSR2), Action::Nothing);
        assert_eq!(course.on_signal(SIGINT), Action::Nothing);
        assert_eq!(
            course.on_started(),
            [
                Action::Forward(SIGUSR2),
                Action::End {
                    first: SIGINT,
                    grace: GRACE
                }
            ]
        );
    }

    #[test]
    fn a_second_request_leaves_where_there_is_no_tree_to_end() {
        let mut course = Course::new(GRACE);
        course.on_signal(SIGTERM);
        assert_eq!(course.on_signal(SIGTERM), Action::Abandon);
        let mut course = running();
        course.on_ended();
        assert_eq!(course.on_signal(SIGINT), Action::Nothing);
        assert_eq!(course.on_signal(SIGUSR1), Action::Nothing);
        assert_eq!(course.on_signal(SIGINT), Action::Abandon);
    }

    #[test]
    fn stopping_and_going_on_are_no_endings() {
        let mut course = running();
        assert_eq!(course.on_signal(SIGTSTP), Action::Suspend);
        assert_eq!(course.on_signal(SIGCONT), Action::Resume);
        assert_eq!(course.stop(), None);
        course.on_ended();
        assert_eq!(course.on_signal(SIGTSTP), Action::Suspend);
        assert_eq!(course.on_signal(SIGCONT), Action::Nothing);
    }

    #[test]
    fn a_stop_before_the_start_waits_for_it_unless_it_is_taken_back() {
        let mut course = Course::new(GRACE);
        assert_eq!(course.on_signal(SIGTSTP), Action::Nothing);
        assert_eq!(course.on_started(), [Action::Suspend]);
        let mut course = Course::new(GRACE);
        assert_eq!(course.on_signal(SIGTSTP), Action::Nothing);
        assert_eq!(course.on_signal(SIGCONT), Action::Nothing);
        assert_eq!(course.on_started(), []);
    }
}
