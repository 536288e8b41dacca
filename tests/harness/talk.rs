//! Whole conversations on a link: each sends a request and expects the kind of its reply.

use std::os::fd::OwnedFd;
use std::time::Duration;

use foster_protocol::{
    BUILD, Bytes, Capabilities, Counters, Ending, Exit, Farewell, How, Mapping, Micros, Orphan,
    Reject, Reply, Request, RequestId, SessionId, SessionInfo, Spec, StateName, Step, Target,
    Until, VERSION,
};

use crate::deadline::{ANSWER, Deadline, LOOK, SETTLE, pass};
use crate::link::{Answered, Link};
use crate::tracer::{Tracer, Witness};

/// A command and the descriptors that go with it.
#[derive(Debug, Default)]
pub struct Command {
    /// The spec.
    pub spec: Spec,
    /// The descriptors, in the order in which the spec refers to them.
    pub descriptors: Vec<OwnedFd>,
}

impl Command {
    /// Creates one without descriptors.
    #[must_use]
    pub fn new(spec: Spec) -> Self {
        Self {
            spec,
            descriptors: Vec::new(),
        }
    }

    /// Gives the child this descriptor.
    ///
    /// # Panics
    ///
    /// Never: nobody has that many descriptors.
    #[must_use]
    pub fn with(mut self, target: i32, descriptor: impl Into<OwnedFd>) -> Self {
        let source = u32::try_from(self.descriptors.len()).expect("few descriptors");
        self.descriptors.push(descriptor.into());
        self.spec.descriptors.push(Mapping { target, source });
        self
    }
}

impl From<Spec> for Command {
    fn from(spec: Spec) -> Self {
        Self::new(spec)
    }
}

/// A session whose command runs, or waits at its gate.
#[derive(Debug)]
pub struct Running {
    /// The session.
    pub session: SessionId,
    /// The leader.
    pub pid: i32,
    /// The leader's pidfd: the one that came with the reply, else one that was opened.
    pub witness: Witness,
}

impl Link {
    /// Says hello and expects to be welcome.
    pub fn hello(&mut self) -> Capabilities {
        let hello = Request::Hello {
            version: VERSION,
            build: Bytes::from(BUILD),
            cgroup_root: None,
        };
        let reply = self.ask(hello);
        let Reply::Welcome {
            version,
            capabilities,
            ..
        } = reply
        else {
            panic!("hello: {reply:?}")
        };
        assert_eq!(version, VERSION, "the version of the helper");
        capabilities
    }

    /// Sends a spawn with a fresh session id.
    pub fn start(&mut self, command: impl Into<Command>) -> (SessionId, RequestId) {
        let session = self.fresh_session();
        let Command { spec, descriptors } = command.into();
        let spawn = Request::Spawn {
            session,
            spec: Box::new(spec),
        };
        (session, self.call_with(spawn, descriptors))
    }

    /// Spawns a command and expects it to run.
    pub fn spawn(&mut self, command: impl Into<Command>) -> Running {
        let (session, id) = self.start(command);
        let answered = self.answer(id);
        let Reply::Spawned { pid, .. } = answered.reply else {
            panic!("spawn: {answered:?}")
        };
        running(session, pid.0, answered)
    }

    /// Spawns a command whose standard output is a tracer, and waits for its first line.
    pub fn spawn_traced(&mut self, command: impl Into<Command>) -> (Running, Tracer) {
        let (mut tracer, writer) = Tracer::new();
        let running = self.spawn(command.into().with(1, writer));
        tracer.line();
        (running, tracer)
    }

    /// Spawns a gated command and expects it to wait.
    pub fn prepare(&mut self, command: impl Into<Command>) -> Running {
        let mut command = command.into();
        command.spec.gated = true;
        let (session, id) = self.start(command);
        let answered = self.answer(id);
        let Reply::Prepared { pid, .. } = answered.reply else {
            panic!("prepare: {answered:?}")
        };
        running(session, pid.0, answered)
    }

    /// Opens a gate.
    pub fn open(&mut self, session: SessionId) -> Reply {
        self.ask(Request::Open { session })
    }

    /// Spawns a command and gives whatever the helper says to it.
    pub fn try_spawn(&mut self, command: impl Into<Command>) -> (SessionId, Reply) {
        let (session, id) = self.start(command);
        (session, self.answer(id).reply)
    }

    /// Spawns a command and expects a failure.
    pub fn spawn_failure(&mut self, command: impl Into<Command>) -> (Step, i32) {
        let (_, reply) = self.try_spawn(command);
        let Reply::SpawnFailed { step, errno } = reply else {
            panic!("no failure: {reply:?}")
        };
        (step, errno)
    }

    /// Spawns a command and expects a refusal.
    pub fn spawn_refusal(&mut self, command: impl Into<Command>) -> Reject {
        let (_, reply) = self.try_spawn(command);
        let Reply::Rejected { reason } = reply else {
            panic!("no refusal: {reply:?}")
        };
        reason
    }

    /// Sends a request and expects a refusal.
    pub fn refusal(&mut self, request: Request) -> Reject {
        let reply = self.ask(request);
        let Reply::Rejected { reason } = reply else {
            panic!("no refusal: {reply:?}")
        };
        reason
    }

    /// Asks for the exit without waiting for it.
    pub fn ask_exit(&mut self, session: SessionId) -> RequestId {
        self.call(Request::Wait {
            session,
            until: Until::Exit,
        })
    }

    /// Asks for the end without waiting for it.
    pub fn ask_end(&mut self, session: SessionId) -> RequestId {
        self.call(Request::Wait {
            session,
            until: Until::End,
        })
    }

    /// Waits for the leader's exit.
    pub fn exit(&mut self, session: SessionId) -> Exit {
        let id = self.ask_exit(session);
        self.exited(id, ANSWER)
    }

    /// Waits this long for the reply to a `Wait` for the exit.
    ///
    /// # Panics
    ///
    /// Where another reply comes.
    pub fn exited(&mut self, id: RequestId, within: Duration) -> Exit {
        let reply = self.answer_within(id, within).reply;
        let Reply::Exited { exit } = reply else {
            panic!("wait for the exit: {reply:?}")
        };
        exit
    }

    /// Waits for the session's end.
    pub fn ending(&mut self, session: SessionId) -> Ending {
        let id = self.ask_end(session);
        self.ended(id, ANSWER)
    }

    /// Waits this long for the reply to a `Wait` for the end or to a `Kill` by `End`.
    ///
    /// # Panics
    ///
    /// Where another reply comes.
    pub fn ended(&mut self, id: RequestId, within: Duration) -> Ending {
        let reply = self.answer_within(id, within).reply;
        let Reply::Ended { ending } = reply else {
            panic!("wait for the end: {reply:?}")
        };
        ending
    }

    /// Asks for the ending of a session without waiting for it.
    pub fn ask_kill(&mut self, session: SessionId, first: i32, grace: Duration) -> RequestId {
        let how = How::End {
            first,
            grace: Micros::from(grace),
        };
        self.call(Request::Kill { session, how })
    }

    /// Ends a session and waits for the verdict.
    pub fn end(&mut self, session: SessionId, grace: Duration) -> Ending {
        let id = self.ask_kill(session, libc::SIGTERM, grace);
        self.ended(id, ANSWER + grace)
    }

    /// Signals a session.
    pub fn signal(&mut self, session: SessionId, number: i32, to: Target) -> u32 {
        let reply = self.ask(Request::Kill {
            session,
            how: How::Signal { number, to },
        });
        let Reply::Signalled { reached } = reply else {
            panic!("signal {number}: {reply:?}")
        };
        reached
    }

    /// Releases a session.
    pub fn release(&mut self, session: SessionId) -> u32 {
        let reply = self.ask(Request::Release { session });
        let Reply::Released { still_running } = reply else {
            panic!("release: {reply:?}")
        };
        still_running
    }

    /// Closes a session. There is no reply.
    pub fn close(&mut self, session: SessionId) {
        self.call(Request::Close { session });
    }

    /// Asks for every session.
    pub fn list(&mut self) -> (Vec<SessionInfo>, Vec<Orphan>) {
        let reply = self.ask(Request::List);
        let Reply::Sessions {
            sessions,
            unattributed,
        } = reply
        else {
            panic!("list: {reply:?}")
        };
        (sessions, unattributed)
    }

    /// The state of a session; none where there is no record of it.
    pub fn state(&mut self, session: SessionId) -> Option<StateName> {
        let (sessions, _) = self.list();
        sessions
            .iter()
            .find(|info| info.session == session)
            .map(|info| info.state)
    }

    /// Asks for the counters.
    pub fn ping(&mut self) -> Counters {
        let reply = self.ask(Request::Ping);
        let Reply::Pong { counters } = reply else {
            panic!("ping: {reply:?}")
        };
        counters
    }

    /// Asks what the helper can do.
    pub fn probe(&mut self) -> Capabilities {
        let reply = self.ask(Request::Probe);
        let Reply::Capabilities { capabilities } = reply else {
            panic!("probe: {reply:?}")
        };
        capabilities
    }

    /// Shuts the helper down and waits for its farewell.
    pub fn shut_down(&mut self, grace: Duration) -> Farewell {
        let reply = self.ask(Request::Shutdown {
            grace: Micros::from(grace),
        });
        let Reply::Farewell { report } = reply else {
            panic!("shutdown: {reply:?}")
        };
        report
    }

    /// Runs a command to its exit with its standard output in a pipe, reads that to its end
    /// and closes the session.
    pub fn output(&mut self, command: impl Into<Command>) -> (Exit, Vec<u8>) {
        let (mut stdout, writer) = Tracer::new();
        let running = self.spawn(command.into().with(1, writer));
        let output = stdout.wait_for_end(ANSWER);
        let exit = self.exit(running.session);
        self.close(running.session);
        (exit, output)
    }

    /// Asserts that the helper has no session, no held leader, no waiting request and no
    /// child but a few keepers without a session.
    ///
    /// # Panics
    ///
    /// Where it has one.
    pub fn assert_idle(&mut self) {
        let deadline = Deadline::after(SETTLE);
        loop {
            let counters = self.ping();
            let children = self.busy_children();
            let busy = (counters.sessions, counters.held, counters.waiting);
            if busy == (0, 0, 0) && children.is_empty() {
                return;
            }
            assert!(
                !deadline.is_reached(),
                "not idle: {counters:?}, children: {children:?}"
            );
            pass(LOOK);
        }
    }
}

fn running(session: SessionId, pid: i32, mut answered: Answered) -> Running {
    // Without a passed pidfd the number is still the leader's as long as the helper holds it,
    // which is why a test of a helper without pidfds uses sessions that are held at their exit.
    // The pidfd is the first of what comes.
    let witness = match answered.descriptors.drain(..).next() {
        Some(pidfd) => Witness::new(pid, pidfd),
        None => Witness::of(pid),
    };
    Running {
        session,
        pid,
        witness,
    }
}
