//! A helper that does what a test tells it: the protocol over a socket pair, in a thread.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use foster_protocol::{
    Answer, Attached, Call, Capabilities, Containment, Frame, Inbox, Level, Outbox, Pid, Received,
    Reply, Request, RequestId, decode_call, encode_answer, receive, send,
};
use nix::poll::{PollFd, PollFlags};

use super::Connection;
use crate::helper::Helper;
use crate::launch::{HelperProcess, Origin};
use crate::poll::{poll_until, time_left};

/// How long a script waits for the next request before the test fails.
const LIMIT: Duration = Duration::from_secs(10);

/// How long the client under test waits for answers that come at once.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_millis(200);

/// The helper's end of a control socket.
pub(crate) struct Fake {
    pub(crate) socket: UnixStream,
    inbox: Inbox,
}

/// Starts a fake helper with a script, which ends with its connection.
pub(crate) fn helper(script: impl FnOnce(Fake) + Send + 'static) -> (Helper, JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair can be made");
    let thread = thread::spawn(move || {
        script(Fake {
            socket: theirs,
            inbox: Inbox::new(),
        })
    });
    let connection = Connection::new(ours).expect("an eventfd can be made");
    let capabilities = Capabilities {
        levels: Vec::new(),
        clone3: false,
        pidfd: true,
        pidfd_group: true,
        children_files: false,
        janitor: 0,
    };
    (
        Helper::new(
            connection,
            process(),
            capabilities,
            Origin {
                path: None,
                own_program: false,
                timeout: ANSWER_LIMIT,
            },
        ),
        thread,
    )
}

/// A process that stands in for the helper's: it exits at once.
pub(crate) fn process() -> HelperProcess {
    HelperProcess::new(Command::new("true").spawn().expect("true can be started"))
}

/// What contains a session of a fake helper.
pub(crate) fn containment() -> Containment {
    Containment {
        level: Level::Group,
        missing: Vec::new(),
    }
}

impl Drop for Fake {
    /// A close alone is not seen while another test's child holds a copy on its way to exec.
    fn drop(&mut self) {
        self.socket
            .shutdown(std::net::Shutdown::Both)
            .expect("a connected socket");
    }
}

impl Fake {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            inbox: Inbox::new(),
        }
    }

    /// The next request with its descriptors; none after a hangup.
    pub(crate) fn next(&mut self) -> Option<(Call, Vec<OwnedFd>)> {
        let deadline = Instant::now().checked_add(LIMIT);
        loop {
            let frame = self
                .inbox
                .next_frame()
                .expect("the client keeps to the framing");
            if let Some(Frame {
                body, descriptors, ..
            }) = frame
            {
                return Some((
                    decode_call(&body).expect("the client sends calls"),
                    descriptors,
                ));
            }
            let left = time_left(deadline);
            assert_ne!(left, Some(Duration::ZERO), "no request came");
            let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            poll_until(&mut polled, left).expect("the socket can be polled");
            match receive(self.socket.as_fd(), &mut self.inbox) {
                Ok(Received::Bytes(_)) => {}
                Ok(Received::Closed) => return None,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// The next request, which is a spawn, and the request of its wait.
    pub(crate) fn next_spawn(&mut self) -> (Call, RequestId, Vec<OwnedFd>) {
        let (spawn, descriptors) = self.next().expect("a spawn comes");
        assert!(matches!(spawn.request, Request::Spawn { .. }), "{spawn:?}");
        let (wait, _) = self.next().expect("its wait comes");
        assert!(matches!(wait.request, Request::Wait { .. }), "{wait:?}");
        (spawn, wait.id, descriptors)
    }

    /// Answers the next spawn as if it ran, and gives the request of its wait.
    pub(crate) fn accept_spawn(&mut self, pidfd: Option<OwnedFd>) -> RequestId {
        let attached = pidfd.iter().map(|_| Attached::Pidfd).collect();
        self.accept_spawn_with(attached, pidfd.into_iter().collect())
    }

    /// Answers the next spawn as if it ran, with these descriptors.
    pub(crate) fn accept_spawn_with(
        &mut self,
        attached: Vec<Attached>,
        descriptors: Vec<OwnedFd>,
    ) -> RequestId {
        let (spawn, wait, _) = self.next_spawn();
        let reply = Reply::Spawned {
            pid: Pid(i32::MAX),
            containment: containment(),
            attached,
        };
        self.answer(spawn.id, reply, descriptors);
        wait
    }

    /// Sends a reply.
    pub(crate) fn answer(&mut self, id: RequestId, reply: Reply, descriptors: Vec<OwnedFd>) {
        let mut outbox = Outbox::new();
        outbox
            .push(&body(id, reply), descriptors)
            .expect("the reply fits");
        assert!(
            send(self.socket.as_fd(), &mut outbox).expect("the client reads"),
            "it fits"
        );
    }

    /// Sends bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the client reads");
    }

    /// Waits until the client has closed its end.
    pub(crate) fn until_hangup(mut self) {
        self.socket
            .set_read_timeout(Some(LIMIT))
            .expect("a limit can be set");
        let mut rest = Vec::new();
        let _reset_or_end = self.socket.read_to_end(&mut rest);
    }
}

/// The body of a reply's frame.
pub(crate) fn body(id: RequestId, reply: Reply) -> Vec<u8> {
    encode_answer(&Answer { id, reply }).expect("the reply can be encoded")
}

/// A reply's whole frame without descriptors.
pub(crate) fn frame(id: RequestId, reply: Reply) -> Vec<u8> {
    let body = body(id, reply);
    let length = u32::try_from(body.len()).expect("the body is short");
    [&length.to_le_bytes()[..], &[0; 4], &body].concat()
}
