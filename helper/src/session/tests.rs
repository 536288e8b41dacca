//! The table of `docs/DESIGN.md` against the function.

use super::{Action, AfterExit, Event, State, next};

const STATES: [State; 11] = [
    State::Starting,
    State::Prepared,
    State::Running,
    State::Exited,
    State::Lingering,
    State::Aborting,
    State::Graceful,
    State::Killing,
    State::Ended,
    State::Released,
    State::Failed,
];

const EVENTS: [Event; 11] = [
    Event::Waiting,
    Event::Opened,
    Event::Executed,
    Event::NeverRan,
    Event::LeaderExited,
    Event::End,
    Event::EndNow,
    Event::GraceOver,
    Event::TreeEmpty,
    Event::HardLimit,
    Event::Release,
];

const AFTER_EXIT: [AfterExit; 4] = [
    AfterExit::Hold,
    AfterExit::End,
    AfterExit::Linger,
    AfterExit::Leave,
];

/// One line for each pair that the function allows, as the page has it.
fn table() -> Vec<String> {
    let mut lines = Vec::new();
    for state in STATES {
        for event in EVENTS {
            let outcomes: Vec<_> = AFTER_EXIT
                .map(|after| next(state, event, after).ok())
                .into_iter()
                .collect();
            let differs = outcomes.windows(2).any(|pair| pair[0] != pair[1]);
            for (after, outcome) in AFTER_EXIT.iter().zip(outcomes) {
                let Some((to, actions)) = outcome else {
                    continue;
                };
                let event = if differs {
                    format!("{event:?} ({after:?})")
                } else {
                    format!("{event:?}")
                };
                let actions: Vec<_> = actions.iter().map(|action| format!("{action:?}")).collect();
                let actions = if actions.is_empty() {
                    "–".to_owned()
                } else {
                    actions.join(", ")
                };
                let line = format!("| {state:?} | {event} | {to:?} | {actions} |");
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
    }
    lines
}

#[test]
fn the_page_has_the_table_of_the_function() {
    let page = include_str!("../../../docs/DESIGN.md");
    let written: Vec<&str> = page
        .lines()
        .skip_while(|line| *line != "<!-- transitions -->")
        .take_while(|line| *line != "<!-- end of transitions -->")
        .filter(|line| {
            STATES
                .iter()
                .any(|state| line.starts_with(&format!("| {state:?} |")))
        })
        .collect();
    let table = table();
    assert_eq!(
        written,
        table,
        "the table should read:\n{}",
        table.join("\n")
    );
}

#[test]
fn reaping_is_always_the_last_action() {
    for state in STATES {
        for event in EVENTS {
            for after in AFTER_EXIT {
                let Ok((_, actions)) = next(state, event, after) else {
                    continue;
                };
                let reap = actions.iter().position(|action| *action == Action::Reap);
                assert!(
                    reap.is_none_or(|at| at + 1 == actions.len()),
                    "{state:?} {event:?}: {actions:?}"
                );
            }
        }
    }
}

#[test]
fn a_leader_is_reaped_only_when_its_session_is_terminal() {
    for state in STATES {
        for event in EVENTS {
            for after in AFTER_EXIT {
                let Ok((to, actions)) = next(state, event, after) else {
                    continue;
                };
                if actions.contains(&Action::Reap) {
                    assert!(to.is_terminal(), "{state:?} {event:?} reaps in {to:?}");
                }
            }
        }
    }
}

#[test]
fn a_released_or_ended_session_is_never_signalled_again() {
    let signalling = [
        Action::KillChild,
        Action::BeginGrace,
        Action::BeginKill,
        Action::Look,
    ];
    for state in STATES.into_iter().filter(|state| state.is_terminal()) {
        for event in EVENTS {
            for after in AFTER_EXIT {
                let Ok((to, actions)) = next(state, event, after) else {
                    continue;
                };
                assert_eq!(to, state, "{state:?} {event:?}");
                assert!(!actions.iter().any(|action| signalling.contains(action)));
            }
        }
    }
}

#[test]
fn every_living_state_can_be_ended() {
    for state in STATES.into_iter().filter(|state| !state.is_terminal()) {
        for event in [Event::End, Event::EndNow] {
            assert!(
                next(state, event, AfterExit::Hold).is_ok(),
                "{state:?} {event:?}"
            );
        }
    }
}
