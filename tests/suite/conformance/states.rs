//! Which request is legal in which state: the table, asked cell by cell.

use std::os::fd::OwnedFd;
use std::time::Duration;

use foster_protocol::{
    How, Micros, Reject, Reply, Request, SessionId, Spec, StateName, Target, Until,
};
use foster_tests::{Command, Link, Stage, Tracer};

const GRACE: Duration = Duration::from_millis(200);

fn illegal(state: StateName) -> Reject {
    Reject::IllegalState { state }
}

fn signal(session: SessionId, to: Target) -> Request {
    Request::Kill {
        session,
        how: How::Signal {
            number: libc::SIGCONT,
            to,
        },
    }
}

fn end(session: SessionId) -> Request {
    Request::Kill {
        session,
        how: How::End {
            first: libc::SIGTERM,
            grace: Micros::from(GRACE),
        },
    }
}

/// A session in which a member outlives the leader. The member lives until the gate, which it
/// reads from, is dropped, or until it is ended.
#[derive(Debug)]
struct Exited {
    session: SessionId,
    tracer: Tracer,
    gate: OwnedFd,
}

impl Exited {
    fn new(stage: &Stage, link: &mut Link) -> Self {
        let (reader, gate) = Tracer::gate();
        let (mut tracer, writer) = Tracer::new();
        let spec = stage.sh("cat <&3 >&1 & echo ready; exit 0");
        let running = link.spawn(Command::new(spec).with(1, writer).with(3, reader));
        tracer.line();
        link.exit(running.session);
        Self {
            session: running.session,
            tracer,
            gate,
        }
    }

    /// Lets the member go and waits for its death.
    fn let_go(mut self) {
        drop(self.gate);
        self.tracer.wait_for_end(foster_tests::DEATH);
    }
}

#[test]
fn open_is_legal_only_while_prepared() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.sleeper());
    let open = |session| Request::Open { session };
    assert_eq!(
        link.refusal(open(running.session)),
        illegal(StateName::Running)
    );
    link.end(running.session, GRACE);
    assert_eq!(
        link.refusal(open(running.session)),
        illegal(StateName::Ended)
    );
    let member = Exited::new(&stage, &mut link);
    let session = member.session;
    assert_eq!(link.refusal(open(session)), illegal(StateName::Exited));
    link.release(session);
    assert_eq!(link.refusal(open(session)), illegal(StateName::Released));
    let prepared = link.prepare(stage.command("/bin/true", &[]));
    assert!(matches!(link.open(prepared.session), Reply::Spawned { .. }));
    link.exit(prepared.session);
    assert_eq!(
        link.refusal(open(prepared.session)),
        illegal(StateName::Exited)
    );
    member.let_go();
}

#[test]
fn signal_is_legal_while_running_exited_and_ending() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.fixture("ignores-term", &[]));
    for to in [Target::Leader, Target::Tree] {
        assert_eq!(
            link.ask(signal(running.session, to)),
            Reply::Signalled { reached: 1 }
        );
    }
    let ending = link.ask_kill(running.session, libc::SIGTERM, Duration::from_secs(1));
    let reply = link.ask(signal(running.session, Target::Tree));
    assert!(matches!(reply, Reply::Signalled { .. }), "{reply:?}");
    link.ended(ending, foster_tests::ANSWER);

    let mut member = Exited::new(&stage, &mut link);
    let session = member.session;
    let reply = link.ask(signal(session, Target::Tree));
    assert_eq!(reply, Reply::Signalled { reached: 1 });
    let term = How::Signal {
        number: libc::SIGTERM,
        to: Target::Tree,
    };
    link.ask(Request::Kill { session, how: term });
    member.tracer.wait_for_end(foster_tests::DEATH);
}

#[test]
fn signal_is_illegal_while_prepared_ended_released_and_failed() {
    let stage = Stage::new();
    let mut link = stage.link();
    let prepared = link.prepare(stage.sleeper());
    let released = Exited::new(&stage, &mut link);
    link.release(released.session);
    let ended = Exited::new(&stage, &mut link);
    link.end(ended.session, GRACE);
    let (failed, _) = link.try_spawn(stage.command("/missing", &[]));
    let cells = [
        (prepared.session, StateName::Prepared),
        (ended.session, StateName::Ended),
        (released.session, StateName::Released),
        (failed, StateName::Failed),
    ];
    for (session, state) in cells {
        for to in [Target::Leader, Target::Tree] {
            assert_eq!(link.refusal(signal(session, to)), illegal(state), "{to:?}");
        }
    }
    released.let_go();
}

#[test]
fn end_is_legal_from_prepared_to_ended_and_an_ended_session_answers_the_same() {
    let stage = Stage::new();
    let mut link = stage.link();
    let prepared = link.prepare(stage.sleeper());
    link.end(prepared.session, GRACE);
    let (running, _tracer) = link.spawn_traced(stage.sleeper());
    let exited = Exited::new(&stage, &mut link);
    for session in [running.session, exited.session] {
        let ending = link.end(session, GRACE);
        assert_eq!(link.state(session), Some(StateName::Ended));
        assert_eq!(link.end(session, GRACE), ending);
        assert_eq!(link.ending(session), ending);
    }
}

#[test]
fn end_is_illegal_once_released_or_failed() {
    let stage = Stage::new();
    let mut link = stage.link();
    let released = Exited::new(&stage, &mut link);
    link.release(released.session);
    assert_eq!(
        link.refusal(end(released.session)),
        illegal(StateName::Released)
    );
    let (failed, _) = link.try_spawn(stage.command("/missing", &[]));
    assert_eq!(link.refusal(end(failed)), illegal(StateName::Failed));
    released.let_go();
}

#[test]
fn release_is_legal_from_exited_and_answers_the_same_again() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut member = Exited::new(&stage, &mut link);
    let session = member.session;
    assert_eq!(link.release(session), 1);
    assert_eq!(link.state(session), Some(StateName::Released));
    let again = link.ask(Request::Release { session });
    assert!(matches!(again, Reply::Released { .. }), "{again:?}");
    assert!(member.tracer.is_held(), "what was released lives");
    let id = link.ask_end(session);
    let reply = link.answer(id).reply;
    assert!(matches!(reply, Reply::Released { .. }), "{reply:?}");
    member.let_go();
}

#[test]
fn release_of_a_detachable_session_is_legal_while_it_runs() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        detachable: true,
        ..stage.sleeper()
    };
    let (running, tracer) = link.spawn_traced(spec);
    assert_eq!(link.release(running.session), 1);
    assert_eq!(link.state(running.session), Some(StateName::Released));
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    assert!(
        running.witness.is_alive(),
        "a released command outlives its helper"
    );
    running.witness.signal(libc::SIGKILL);
    running.witness.wait_for_death(foster_tests::DEATH);
    drop(tracer);
}

#[test]
fn release_is_illegal_while_prepared_ending_ended_and_failed() {
    let stage = Stage::new();
    let mut link = stage.link();
    let release = |session| Request::Release { session };
    let spec = Spec {
        detachable: true,
        ..stage.sleeper()
    };
    let prepared = link.prepare(spec);
    assert_eq!(
        link.refusal(release(prepared.session)),
        illegal(StateName::Prepared)
    );
    let (running, _tracer) = link.spawn_traced(stage.fixture("ignores-term", &[]));
    let ending = link.ask_kill(running.session, libc::SIGTERM, Duration::from_secs(1));
    assert_eq!(
        link.refusal(release(running.session)),
        illegal(StateName::Ending)
    );
    link.ended(ending, foster_tests::ANSWER);
    assert_eq!(
        link.refusal(release(running.session)),
        illegal(StateName::Ended)
    );
    let (failed, _) = link.try_spawn(stage.command("/missing", &[]));
    assert_eq!(link.refusal(release(failed)), illegal(StateName::Failed));
}

#[test]
fn wait_on_a_failed_session_is_illegal() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (session, _) = link.try_spawn(stage.command("/missing", &[]));
    for until in [Until::Exit, Until::End] {
        let reason = link.refusal(Request::Wait { session, until });
        assert_eq!(reason, illegal(StateName::Failed));
    }
}

#[test]
fn wait_that_travels_with_a_failing_spawn_gets_exactly_one_reply() {
    let stage = Stage::new();
    let mut link = stage.link();
    let session = link.fresh_session();
    let spec = Box::new(stage.command("/missing", &[]));
    let spawn = link.queue(Request::Spawn { session, spec }, Vec::new());
    let wait = link.queue(
        Request::Wait {
            session,
            until: Until::Exit,
        },
        Vec::new(),
    );
    link.flush();
    let reply = link.answer(spawn).reply;
    assert!(matches!(reply, Reply::SpawnFailed { .. }), "{reply:?}");
    let reply = link.answer(wait).reply;
    assert_eq!(
        reply,
        Reply::Rejected {
            reason: illegal(StateName::Failed)
        }
    );
    link.close(session);
    link.assert_idle();
}

#[test]
fn close_of_a_session_answers_those_who_wait_and_then_forgets_it() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.sleeper());
    let exit = link.ask_exit(running.session);
    let end = link.ask_end(running.session);
    link.close(running.session);
    link.exited(exit, foster_tests::ANSWER);
    let ending = link.ended(end, foster_tests::ANSWER);
    assert_eq!(ending.cause, foster_protocol::Cause::Close);
    link.assert_idle();
    let wait = Request::Wait {
        session: running.session,
        until: Until::Exit,
    };
    assert_eq!(link.refusal(wait), Reject::UnknownSession);
}

#[test]
fn close_of_an_exited_session_ends_the_rest() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut member = Exited::new(&stage, &mut link);
    let session = member.session;
    link.close(session);
    member.tracer.wait_for_end(foster_tests::DEATH);
    link.assert_idle();
}

#[test]
fn close_of_a_released_session_ends_nothing() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut member = Exited::new(&stage, &mut link);
    let session = member.session;
    link.release(session);
    link.close(session);
    assert_eq!(link.state(session), None);
    assert!(member.tracer.is_held(), "what was released lives");
    member.let_go();
}
