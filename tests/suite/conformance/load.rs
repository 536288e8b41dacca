//! Many at once: exactly one result each, in order, and nothing left.

use std::collections::BTreeMap;
use std::time::Duration;

use foster_protocol::{
    Bytes, Micros, OnExit, Reject, Reply, Request, RequestId, SessionId, Spec, StateName, Until,
};
use foster_tests::{Command, Link, Stage, Tracer, pass};

/// What one session has been told so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Spawned,
    Failed,
}

/// The two requests of each session.
#[derive(Debug, Default)]
struct Account {
    sessions: BTreeMap<SessionId, (bool, Told)>,
    requests: BTreeMap<RequestId, SessionId>,
}

impl Account {
    fn start(&mut self, link: &mut Link, stage: &Stage, is_missing: bool) {
        let session = link.fresh_session();
        let program = if is_missing {
            "/missing/program"
        } else {
            "/bin/true"
        };
        let spec = Box::new(stage.command(program, &[]));
        let spawn = link.queue(Request::Spawn { session, spec }, Vec::new());
        let wait = link.queue(
            Request::Wait {
                session,
                until: Until::Exit,
            },
            Vec::new(),
        );
        self.requests.extend([(spawn, session), (wait, session)]);
        self.sessions.insert(session, (is_missing, Told::Nothing));
    }

    /// Takes one reply; true where it was the last of its session.
    fn take(&mut self, link: &mut Link) -> bool {
        let answered = link.next_answer();
        let session = self
            .requests
            .remove(&answered.id)
            .expect("one reply a request");
        let (is_missing, told) = *self.sessions.get(&session).expect("the session is known");
        let next = match (&answered.reply, is_missing, told) {
            (Reply::Spawned { .. }, false, Told::Nothing) => Told::Spawned,
            (Reply::SpawnFailed { .. }, true, Told::Nothing) => Told::Failed,
            (Reply::Exited { exit }, false, Told::Spawned) => {
                assert_eq!(exit.status, 0);
                self.finish(link, session);
                return true;
            }
            (Reply::Rejected { reason }, true, Told::Failed) => {
                assert_eq!(
                    *reason,
                    Reject::IllegalState {
                        state: StateName::Failed
                    }
                );
                self.finish(link, session);
                return true;
            }
            (reply, ..) => panic!("{session} was told {told:?}, and now {reply:?}"),
        };
        self.sessions.insert(session, (is_missing, next));
        false
    }

    fn finish(&mut self, link: &mut Link, session: SessionId) {
        self.sessions.remove(&session);
        link.queue(Request::Close { session }, Vec::new());
    }
}

#[test]
fn ten_thousand_commands_and_missing_programs_get_exactly_one_result_each() {
    let stage = Stage::new();
    let mut link = stage.link();
    link.output(stage.sh("exit 0"));
    link.assert_idle();
    let before = link.descriptors();
    let mut account = Account::default();
    let (mut started, mut finished) = (0, 0);
    while finished < 10_000 {
        while started < 10_000 && started - finished < 64 {
            account.start(&mut link, &stage, started % 10 == 3);
            started += 1;
        }
        link.flush();
        finished += usize::from(account.take(&mut link));
    }
    link.flush();
    assert!(account.requests.is_empty() && account.sessions.is_empty());
    link.assert_idle();
    link.assert_descriptors(before);
    assert_eq!(link.ping().forks, 10_001);
}

#[test]
fn two_thousand_spawns_sent_before_any_reply_is_read_are_all_served() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut account = Account::default();
    for turn in 0..2_000 {
        account.start(&mut link, &stage, turn % 7 == 0);
    }
    link.flush();
    while !account.requests.is_empty() {
        account.take(&mut link);
    }
    link.flush();
    link.assert_idle();
}

#[test]
fn three_hundred_children_that_die_at_once_are_all_told_to_a_client_that_reads_late() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (gate, release) = Tracer::gate();
    let spec = stage.command("/bin/cat", &[]);
    let sessions: Vec<SessionId> = (0..300)
        .map(|_| {
            let gate = gate.try_clone().expect("a descriptor");
            link.spawn(Command::new(spec.clone()).with(0, gate)).session
        })
        .collect();
    drop(gate);
    let waits: Vec<RequestId> = sessions
        .iter()
        .map(|session| link.ask_exit(*session))
        .collect();
    link.ping();
    drop(release);
    // The client is slow: that is what is tried here.
    pass(Duration::from_secs(1));
    link.ping();
    for wait in waits {
        assert_eq!(link.exited(wait, foster_tests::ANSWER).status, 0);
    }
    assert_eq!(link.ping().held, 300);
    for session in sessions {
        link.close(session);
    }
    link.assert_idle();
}

#[test]
fn client_that_does_not_read_delays_no_reaping_and_no_ending() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (gate, release) = Tracer::gate();
    let on_exit = OnExit::End { grace: Micros(0) };
    let spec = Spec {
        on_exit,
        ..stage.sh("sleep 60 & read x; exit 0")
    };
    link.spawn(Command::new(spec).with(0, gate));
    let label = Bytes::from(vec![b'l'; 100_000]);
    link.spawn(Spec {
        label,
        ..stage.sleeper()
    });
    // Replies of about 4 MB fit into no socket buffer, and they are not read.
    for _ in 0..40 {
        link.queue(Request::List, Vec::new());
    }
    link.flush();
    drop(release);
    // The sleeper alone is left once the command has exited, and its rest was ended.
    foster_tests::eventually("the command is reaped", foster_tests::SETTLE, || {
        link.busy_children().len() == 1
    });
    link.ping();
}
