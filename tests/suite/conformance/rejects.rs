//! Every way to be refused: nothing happened, and the link goes on.

use std::os::fd::OwnedFd;

use foster_protocol::{
    Bytes, Feature, Field, How, Level, MAX_STRING, MAX_WAITING, Mapping, Micros, Reject, Reply,
    Request, SessionId, Spec, StateName, Target, TreeLimits, Until,
};
use foster_tests::{Command, Link, Stage, Tracer};

/// A link on which a `true` still runs after everything that the test did.
fn assert_serves(stage: &Stage, link: &mut Link) {
    let running = link.spawn(stage.command("/bin/true", &[]));
    assert_eq!(link.exit(running.session).status, 0);
}

#[test]
fn unknown_session_is_rejected_by_every_request_but_close() {
    let stage = Stage::new();
    let mut link = stage.link();
    let how = How::Signal {
        number: libc::SIGTERM,
        to: Target::Tree,
    };
    let end = How::End {
        first: libc::SIGTERM,
        grace: Micros(0),
    };
    for session in [0, 1, u64::MAX, 0xffff_ffff_ffff_fffe].map(SessionId) {
        let requests = [
            Request::Open { session },
            Request::Wait {
                session,
                until: Until::Exit,
            },
            Request::Wait {
                session,
                until: Until::End,
            },
            Request::Kill { session, how },
            Request::Kill { session, how: end },
            Request::Release { session },
        ];
        for request in requests {
            assert_eq!(link.refusal(request), Reject::UnknownSession);
        }
        link.close(session);
    }
    assert_serves(&stage, &mut link);
}

#[test]
fn session_id_that_is_not_above_every_used_one_is_a_duplicate() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spawn = |session: u64| Request::Spawn {
        session: SessionId(session),
        spec: Box::new(stage.command("/bin/true", &[])),
    };
    assert!(matches!(link.ask(spawn(10)), Reply::Spawned { .. }));
    assert_eq!(link.refusal(spawn(10)), Reject::DuplicateSession);
    assert_eq!(link.refusal(spawn(9)), Reject::DuplicateSession);
    link.close(SessionId(10));
    assert_eq!(link.refusal(spawn(10)), Reject::DuplicateSession);
    assert!(matches!(link.ask(spawn(11)), Reply::Spawned { .. }));
    assert!(matches!(link.ask(spawn(u64::MAX)), Reply::Spawned { .. }));
    assert_eq!(link.refusal(spawn(12)), Reject::DuplicateSession);
}

#[test]
fn number_that_is_no_signal_is_rejected() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer) = link.spawn_traced(stage.sleeper());
    let session = running.session;
    for number in [0, -1, 65, 1000, i32::MIN, i32::MAX] {
        for to in [Target::Leader, Target::Tree] {
            let how = How::Signal { number, to };
            let reason = link.refusal(Request::Kill { session, how });
            assert_eq!(reason, Reject::BadSignal { number });
        }
        let how = How::End {
            first: number,
            grace: Micros(0),
        };
        let reason = link.refusal(Request::Kill { session, how });
        assert_eq!(reason, Reject::BadSignal { number });
    }
    assert!(tracer.is_held(), "nothing happened to the command");
}

#[test]
fn release_of_a_running_session_needs_detachable() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.sleeper());
    let release = Request::Release {
        session: running.session,
    };
    assert_eq!(link.refusal(release), Reject::NotDetachable);
    assert_eq!(link.state(running.session), Some(StateName::Running));
}

#[test]
fn limits_on_the_tree_are_unsupported_without_a_level_that_has_them() {
    let stage = Stage::new();
    let mut link = stage.link();
    let limits = TreeLimits {
        memory: Some(1 << 30),
        processes: None,
        cpu: None,
    };
    let reason = link.spawn_refusal(Spec {
        limits,
        ..stage.command("/bin/true", &[])
    });
    assert_eq!(
        reason,
        Reject::Unsupported {
            what: Feature::TreeLimits
        }
    );
    assert_serves(&stage, &mut link);
}

#[test]
fn required_level_that_cannot_be_had_is_rejected_with_its_reason() {
    let stage = Stage::new();
    let mut link = stage.link();
    let levels = link.probe().levels;
    for entry in levels.into_iter().filter(|entry| entry.errno != 0) {
        let require = Some(entry.level);
        let reason = link.spawn_refusal(Spec {
            require,
            ..stage.command("/bin/true", &[])
        });
        let expected = Reject::LevelUnavailable {
            level: entry.level,
            errno: entry.errno,
        };
        assert_eq!(reason, expected);
    }
    let spec = Spec {
        require: Some(Level::Group),
        ..stage.command("/bin/true", &[])
    };
    link.spawn(spec);
}

#[test]
fn descriptors_that_do_not_match_the_spec_are_rejected() {
    let stage = Stage::new();
    let mut link = stage.link();
    let some = |count: usize| -> Vec<OwnedFd> { (0..count).map(|_| Tracer::new().1).collect() };
    let mapped = |sources: &[u32]| {
        let mappings = (3..).zip(sources).map(|(target, source)| Mapping {
            target,
            source: *source,
        });
        Spec {
            descriptors: mappings.collect(),
            ..stage.command("/bin/true", &[])
        }
    };
    let cases = [
        (mapped(&[0]), 0),
        (mapped(&[]), 1),
        (mapped(&[0, 1]), 1),
        (mapped(&[1]), 1),
    ];
    for (spec, came) in cases {
        let command = Command {
            spec,
            descriptors: some(came),
        };
        let reason = link.spawn_refusal(command);
        let is_right = matches!(reason, Reject::WrongDescriptorCount { came: said, .. }
            if said as usize == came);
        assert!(is_right, "{came} came: {reason:?}");
    }
    // One source may serve two targets.
    let spec = mapped(&[0, 0]);
    link.spawn(Command {
        spec,
        descriptors: some(1),
    });
}

#[test]
fn descriptors_of_a_request_that_takes_none_are_rejected_and_closed() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (mut tracer, writer) = Tracer::new();
    let id = link.call_with(Request::Ping, vec![writer]);
    let reply = link.answer(id).reply;
    let expected = Reject::WrongDescriptorCount {
        expected: 0,
        came: 1,
    };
    assert_eq!(reply, Reply::Rejected { reason: expected });
    tracer.wait_for_end(foster_tests::DEATH);
    assert_serves(&stage, &mut link);
}

#[test]
fn descriptors_of_a_rejected_spawn_are_closed() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (mut tracer, writer) = Tracer::new();
    let spec = Spec {
        umask: None,
        ..stage.command("/bin/true\0", &[])
    };
    let reason = link.spawn_refusal(Command::new(spec).with(1, writer));
    assert_eq!(
        reason,
        Reject::StringWithNul {
            which: Field::Program
        }
    );
    tracer.wait_for_end(foster_tests::DEATH);
}

#[test]
fn bad_target_is_rejected() {
    let stage = Stage::new();
    let mut link = stage.link();
    for target in [-1, i32::MIN, i32::MAX] {
        let command = Command::new(stage.command("/bin/true", &[])).with(target, Tracer::new().1);
        assert_eq!(link.spawn_refusal(command), Reject::BadTarget { target });
    }
    let command = Command::new(stage.command("/bin/true", &[]));
    let command = command.with(5, Tracer::new().1).with(5, Tracer::new().1);
    assert_eq!(link.spawn_refusal(command), Reject::BadTarget { target: 5 });
    assert_serves(&stage, &mut link);
}

#[test]
fn controlling_terminal_that_is_no_target_is_rejected() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        controlling_terminal: Some(0),
        ..stage.command("/bin/true", &[])
    };
    assert_eq!(link.spawn_refusal(spec), Reject::BadTarget { target: 0 });
}

#[test]
fn string_with_nul_is_rejected_and_named() {
    let stage = Stage::new();
    let mut link = stage.link();
    let nul = || Bytes::from("a\0b");
    let base = || stage.command("/bin/true", &["x", "y"]);
    let with = |change: fn(&mut Spec, Bytes)| {
        let mut spec = base();
        change(&mut spec, nul());
        spec
    };
    let cases = [
        (with(|spec, nul| spec.program = nul), Field::Program),
        (
            with(|spec, nul| spec.args.push(nul)),
            Field::Argument { index: 3 },
        ),
        (
            with(|spec, nul| spec.env.push(nul)),
            Field::Variable { index: 2 },
        ),
        (
            with(|spec, nul| spec.directory = Some(nul)),
            Field::Directory,
        ),
    ];
    for (spec, which) in cases {
        assert_eq!(link.spawn_refusal(spec), Reject::StringWithNul { which });
    }
    assert_serves(&stage, &mut link);
}

#[test]
fn string_above_the_kernels_limit_is_rejected_and_named() {
    let stage = Stage::new();
    let mut link = stage.link();
    let long = Bytes::from(vec![b'x'; MAX_STRING + 1]);
    let mut spec = stage.command("/bin/true", &[]);
    spec.env.push(long.clone());
    let (length, limit) = (MAX_STRING as u64 + 1, MAX_STRING as u64);
    let which = Field::Variable { index: 2 };
    assert_eq!(
        link.spawn_refusal(spec),
        Reject::StringTooLong {
            which,
            length,
            limit
        }
    );
    let mut spec = stage.command("/bin/true", &[]);
    spec.args.push(long);
    let which = Field::Argument { index: 1 };
    assert_eq!(
        link.spawn_refusal(spec),
        Reject::StringTooLong {
            which,
            length,
            limit
        }
    );
    assert_serves(&stage, &mut link);
}

#[test]
fn rejected_spawn_leaves_no_record_and_forks_nothing() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (session, reply) = link.try_spawn(stage.command("\0", &[]));
    assert!(matches!(reply, Reply::Rejected { .. }), "{reply:?}");
    let counters = link.ping();
    assert_eq!((counters.sessions, counters.forks), (0, 0));
    let wait = Request::Wait {
        session,
        until: Until::Exit,
    };
    assert_eq!(link.refusal(wait), Reject::UnknownSession);
}

#[test]
fn requests_above_the_limit_are_rejected_while_the_others_go_on_waiting() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.sleeper());
    let session = running.session;
    let wait = || Request::Wait {
        session,
        until: Until::Exit,
    };
    for _ in 0..MAX_WAITING {
        link.queue(wait(), Vec::new());
    }
    link.flush();
    let reason = link.refusal(wait());
    assert_eq!(
        reason,
        Reject::TooManyRequests {
            limit: MAX_WAITING as u64
        }
    );
    assert_eq!(link.ping().waiting, MAX_WAITING as u64);
    link.signal(session, libc::SIGKILL, Target::Tree);
    for _ in 0..MAX_WAITING {
        let reply = link.next_answer().reply;
        assert!(matches!(reply, Reply::Exited { .. }), "{reply:?}");
    }
}

#[test]
fn spawn_during_a_shutdown_is_rejected() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_, _tracer) = link.spawn_traced(stage.fixture("ignores-term", &[]));
    let farewell = link.call(Request::Shutdown {
        grace: Micros(1_000_000),
    });
    let reason = link.spawn_refusal(stage.command("/bin/true", &[]));
    assert_eq!(reason, Reject::ShuttingDown);
    let reply = link.answer(farewell).reply;
    assert!(matches!(reply, Reply::Farewell { .. }), "{reply:?}");
    assert_eq!(link.exit_code(), 0);
}
