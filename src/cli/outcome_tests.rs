use super::*;
use crate::error::Repr;
use crate::{Micros, Orphan, Pid, Proof, Verdict, Why};

fn exit(status: i32, cause: Cause) -> Exit {
    Exit {
        status,
        usage: crate::Usage::default(),
        wall: Micros(1_500_000),
        cause,
    }
}

fn ending(cause: Cause) -> Ended {
    Ended::Ending(Ending {
        cause,
        verdict: Verdict::AllGone,
        proof: Some(Proof::NoOrphans),
        members: Vec::new(),
        survivors: Vec::new(),
        unattributed: Vec::new(),
        peaks: None,
        rounds: 1,
        took: Micros(0),
    })
}

/// A run whose command ended with a status, and the causes of its exit and of its end.
fn ran(status: i32, exited: Cause, ended: Cause) -> Outcome {
    Outcome {
        pid: Some(42),
        exit: Some(exit(status, exited)),
        ended: Some(ending(ended)),
        ..Outcome::default()
    }
}

fn failed(error: impl Into<Error>) -> Outcome {
    Outcome {
        failure: Some(Failure::Call(error.into())),
        ..Outcome::default()
    }
}

fn verdict(outcome: &Outcome) -> (Reason, u8) {
    (outcome.reason(), outcome.exit_code(false))
}

#[test]
fn a_command_keeps_its_code() {
    for code in [0, 1, 77, 124, 125, 255] {
        let outcome = ran(code << 8, Cause::Exit, Cause::Exit);
        assert_eq!(
            verdict(&outcome),
            (Reason::Exit, u8::try_from(code).expect("a code"))
        );
    }
}

#[test]
fn a_death_by_signal_is_128_and_its_number() {
    assert_eq!(
        verdict(&ran(9, Cause::Signal, Cause::Signal)),
        (Reason::Signal, 137)
    );
    assert_eq!(
        verdict(&ran(11 | 0x80, Cause::Signal, Cause::Signal)),
        (Reason::Signal, 139)
    );
    assert_eq!(
        verdict(&ran(64, Cause::Signal, Cause::Signal)),
        (Reason::Signal, 192)
    );
}

#[test]
fn a_timeout_is_124_unless_the_status_is_preserved() {
    let outcome = ran(15, Cause::Deadline, Cause::Deadline);
    assert_eq!(verdict(&outcome), (Reason::Timeout, 124));
    assert_eq!(outcome.exit_code(true), 143);
    let killed = ran(9, Cause::Deadline, Cause::Deadline);
    assert_eq!(verdict(&killed), (Reason::Timeout, 124));
}

#[test]
fn a_deadline_after_the_command_is_a_timeout_too() {
    let outcome = ran(0, Cause::Exit, Cause::Deadline);
    assert_eq!(verdict(&outcome), (Reason::Timeout, 124));
    assert_eq!(outcome.exit_code(true), 0);
}

#[test]
fn a_cancelled_command_keeps_its_own_status() {
    let mut outcome = ran(2, Cause::Kill, Cause::Kill);
    outcome.stop = Some(Stop::Signal(2));
    assert_eq!(verdict(&outcome), (Reason::Cancelled, 130));
    let mut polite = ran(0, Cause::Kill, Cause::Kill);
    polite.stop = Some(Stop::Signal(15));
    assert_eq!(verdict(&polite), (Reason::Cancelled, 0));
}

#[test]
fn the_death_of_the_parent_is_143_whatever_the_status() {
    let mut outcome = ran(0, Cause::Kill, Cause::Kill);
    outcome.stop = Some(Stop::ParentGone);
    assert_eq!(verdict(&outcome), (Reason::Cancelled, 143));
}

#[test]
fn a_signal_that_came_after_the_end_changes_nothing() {
    let mut outcome = ran(3 << 8, Cause::Exit, Cause::Exit);
    outcome.stop = Some(Stop::Signal(15));
    assert_eq!(verdict(&outcome), (Reason::Exit, 3));
}

#[test]
fn a_signal_before_the_start_is_128_and_its_number() {
    let outcome = Outcome {
        stop: Some(Stop::Signal(1)),
        ..Outcome::default()
    };
    assert_eq!(verdict(&outcome), (Reason::Cancelled, 129));
    let outcome = Outcome {
        stop: Some(Stop::ParentGone),
        ..Outcome::default()
    };
    assert_eq!(verdict(&outcome), (Reason::Cancelled, 143));
}

#[test]
fn spawn_failures_have_the_codes_of_env_and_timeout() {
    let program = || "/bin/x".into();
    let os = std::io::Error::from_raw_os_error;
    for (repr, code) in [
        (
            Repr::NotFound {
                program: program(),
                source: os(2),
            },
            127,
        ),
        (
            Repr::NotExecutable {
                program: program(),
                source: os(13),
            },
            126,
        ),
        (
            Repr::Interpreter {
                program: program(),
                source: os(2),
            },
            126,
        ),
        (
            Repr::SpawnFailed {
                program: program(),
                step: Step::Exec,
                source: os(26),
            },
            126,
        ),
        (
            Repr::SpawnFailed {
                program: program(),
                step: Step::Fork,
                source: os(11),
            },
            125,
        ),
        (
            Repr::Directory {
                directory: program(),
                source: os(2),
            },
            125,
        ),
        (Repr::NoHelper(Vec::new()), 125),
    ] {
        assert_eq!(verdict(&failed(repr)), (Reason::SpawnFailed, code));
    }
}

#[test]
fn a_level_that_cannot_be_had_is_told_in_words() {
    let level = crate::Level::Tree;
    let reject = Reject::LevelUnavailable { level, errno: 38 };
    let mut refused = failed(Error::rejected(reject));
    assert_eq!(
        refused.failure_text().as_deref(),
        Some("level tree cannot be had: the helper does not offer it")
    );
    assert_eq!(verdict(&refused), (Reason::SpawnFailed, 125));
    let pidfds = crate::Availability {
        level,
        errno: 38,
        obstacle: Some(crate::Obstacle::Pidfds),
    };
    refused.capabilities = Some(Capabilities {
        levels: vec![pidfds],
        clone3: false,
        pidfd: false,
        pidfd_group: false,
        children_files: true,
        janitor: 0,
    });
    let text = refused.failure_text().expect("it failed");
    let start = "level tree cannot be had: there are no pidfds: Function not implemented; use ";
    assert!(text.starts_with(start), "{text}");
}

#[test]
fn a_lost_keeper_is_a_lost_helper_whether_or_not_the_start_was_seen() {
    let mut outcome = failed(Error::rejected(Reject::SupervisorLost));
    assert_eq!(verdict(&outcome), (Reason::HelperLost, 125));
    outcome.pid = Some(42);
    assert_eq!(verdict(&outcome), (Reason::HelperLost, 125));
    let text = outcome.failure_text().expect("it failed");
    assert!(text.starts_with("the keeper of the tree died"), "{text}");
}

#[test]
fn an_exit_that_was_seen_counts_also_where_the_keeper_died_after_it() {
    let outcome = ran(3 << 8, Cause::Exit, Cause::SupervisorLost);
    assert_eq!(verdict(&outcome), (Reason::Exit, 3));
    assert_eq!(outcome.cause(), Some(Cause::SupervisorLost));
}

#[test]
fn a_kill_for_want_of_memory_is_a_signal_that_foster_did_not_send() {
    let outcome = ran(9, Cause::OutOfMemory, Cause::OutOfMemory);
    assert_eq!(verdict(&outcome), (Reason::Signal, 137));
    assert_eq!(outcome.cause(), Some(Cause::OutOfMemory));
}

#[test]
fn a_command_that_was_ended_before_it_ran_tells_who_ended_it() {
    let early = || {
        Failure::Call(
            Repr::EndedEarly {
                program: "x".into(),
            }
            .into(),
        )
    };
    let mut timed = Outcome {
        has_timeout: true,
        ..Outcome::default()
    };
    timed.failure = Some(early());
    assert_eq!(verdict(&timed), (Reason::Timeout, 124));
    let mut stopped = Outcome {
        stop: Some(Stop::Signal(2)),
        ..Outcome::default()
    };
    stopped.failure = Some(early());
    assert_eq!(verdict(&stopped), (Reason::Cancelled, 130));
}

#[test]
fn a_lost_or_silent_helper_is_125_also_after_the_exit() {
    let lost = || Error::lost(crate::error::During::End, crate::error::Loss::Closed);
    let mut outcome = ran(0, Cause::Exit, Cause::Exit);
    outcome.failure = Some(Failure::Call(lost()));
    assert_eq!(verdict(&outcome), (Reason::HelperLost, 125));
    outcome.failure = Some(Failure::Silent);
    assert_eq!(verdict(&outcome), (Reason::HelperLost, 125));
    assert_eq!(verdict(&failed(lost())), (Reason::HelperLost, 125));
    let text = Failure::Call(lost()).text();
    assert!(
        text.contains("helper was lost") && text.contains(": "),
        "{text}"
    );
}

#[test]
fn who_is_named_twice_is_counted_once() {
    let survivor = |pid| Survivor {
        pid: Pid(pid),
        name: Bytes::from("x"),
        uid: 0,
        why: Why::Dying,
    };
    let orphan = |pid| Orphan {
        pid: Pid(pid),
        sid: Pid(pid),
        name: Bytes::from("y"),
    };
    let member = |pid| Member {
        pid: Pid(pid),
        name: Bytes::from("y"),
        ended: MemberEnd::ByKill,
    };
    let mut outcome = ran(0, Cause::Exit, Cause::Exit);
    let Some(Ended::Ending(ending)) = &mut outcome.ended else {
        panic!("it ended")
    };
    ending.survivors = vec![survivor(7)];
    ending.unattributed = vec![orphan(9), orphan(11)];
    outcome.farewell = Some(Farewell {
        sessions: 0,
        orphans: vec![member(9), member(10)],
        survivors: vec![survivor(7), survivor(8)],
    });
    let pids: Vec<i32> = outcome.survivors().iter().map(|one| one.pid.0).collect();
    assert_eq!(pids, [7, 8]);
    let escaped: Vec<_> = outcome
        .escaped()
        .iter()
        .map(|one| (one.pid, one.ended))
        .collect();
    let killed = Some(MemberEnd::ByKill);
    assert_eq!(escaped, [(9, killed), (10, killed), (11, None)]);
}

#[test]
fn what_was_let_go_has_no_ending() {
    let mut outcome = ran(0, Cause::Exit, Cause::Exit);
    outcome.ended = Some(Ended::Released { still_running: 2 });
    assert_eq!(verdict(&outcome), (Reason::Exit, 0));
    assert_eq!(outcome.left_running(), Some(2));
    assert!(outcome.ending().is_none());
}
