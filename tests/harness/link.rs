//! A raw link: frames to a helper and back, with deadlines, and an account of every reply.
//!
//! It reads while it sends, and it takes replies in any order. It fails a test in which a
//! request is answered twice, or a reply answers no request.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::Child;
use std::time::Duration;

use foster_protocol::{
    Answer, Call, Inbox, Outbox, Received, Reply, Request, RequestId, decode_answer, encode_call,
    receive, send,
};
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::deadline::{ANSWER, Deadline, poll_one};
use crate::tracer::Witness;

/// A reply with the descriptors that came with it.
#[derive(Debug)]
pub struct Answered {
    /// The id of the request.
    pub id: RequestId,
    /// The reply.
    pub reply: Reply,
    /// The descriptors.
    pub descriptors: Vec<OwnedFd>,
}

/// A helper and the other end of its control socket. Dropping it hangs up, waits for the
/// helper's exit and asserts that its code is 0.
#[derive(Debug)]
pub struct Link {
    pub(crate) helper: Child,
    pub(crate) witness: Witness,
    pub(crate) socket: Option<OwnedFd>,
    inbox: Inbox,
    outbox: Outbox,
    next: u64,
    /// Requests without their reply, with the text that a failure shows.
    unanswered: BTreeMap<RequestId, String>,
    arrived: VecDeque<Answered>,
    /// The code that the helper has exited with; none while nobody has waited for it.
    pub(crate) code: Option<i32>,
    next_session: u64,
}

impl Link {
    /// Takes over a helper that was started as a child of this process.
    #[must_use]
    pub fn new(helper: Child, socket: OwnedFd) -> Self {
        let witness = Witness::of(i32::try_from(helper.id()).expect("a pid fits"));
        Self {
            helper,
            witness,
            socket: Some(socket),
            inbox: Inbox::new(),
            outbox: Outbox::new(),
            next: 1,
            unanswered: BTreeMap::new(),
            arrived: VecDeque::new(),
            code: None,
            next_session: 1,
        }
    }

    /// The helper's process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.witness.pid()
    }

    /// The helper's pidfd.
    #[must_use]
    pub fn witness(&self) -> &Witness {
        &self.witness
    }

    /// A session number that was not given out before.
    pub fn fresh_session(&mut self) -> foster_protocol::SessionId {
        let session = foster_protocol::SessionId(self.next_session);
        self.next_session += 1;
        session
    }

    /// Queues one request without sending it.
    ///
    /// # Panics
    ///
    /// Where it does not fit into a frame.
    pub fn queue(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        let is_answered = !matches!(request, Request::Close { .. });
        if is_answered {
            let text = format!("{request:?}").chars().take(200).collect();
            self.unanswered.insert(id, text);
        }
        let body = encode_call(&Call { id, request }).expect("the request fits into a frame");
        self.outbox
            .push(&body, descriptors)
            .expect("the request fits into a frame");
        id
    }

    /// Sends one request.
    pub fn call(&mut self, request: Request) -> RequestId {
        self.call_with(request, Vec::new())
    }

    /// Sends one request with descriptors.
    pub fn call_with(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> RequestId {
        let id = self.queue(request, descriptors);
        self.flush();
        id
    }

    /// Sends one request and waits for its reply.
    pub fn ask(&mut self, request: Request) -> Reply {
        let id = self.call(request);
        self.answer(id).reply
    }

    /// Sends everything that is queued, and reads meanwhile.
    ///
    /// # Panics
    ///
    /// Where the helper takes nothing until the deadline, or is gone.
    pub fn flush(&mut self) {
        let mut deadline = Deadline::after(ANSWER);
        let mut left = self.outbox.len();
        loop {
            let socket = self.socket.as_ref().expect("the link is up").as_fd();
            if send(socket, &mut self.outbox).expect("the helper takes what is sent") {
                return;
            }
            // A helper that takes something is slow at worst, and there is only so much to take.
            if self.outbox.len() < left {
                left = self.outbox.len();
                deadline = Deadline::after(ANSWER);
            }
            let interest = PollFlags::POLLIN | PollFlags::POLLOUT;
            let ready = poll_one(socket, interest, deadline);
            let ready = ready.unwrap_or_else(|| panic!("the socket stays full for {ANSWER:?}"));
            if ready.contains(PollFlags::POLLIN) {
                self.read().expect("the link is readable");
            }
        }
    }

    /// Sends bytes as they are, with descriptors beside the first of them.
    ///
    /// # Errors
    ///
    /// What the kernel says; `EPIPE` where the helper has hung up.
    ///
    /// # Panics
    ///
    /// Where the socket stays full.
    pub fn send_raw(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.flush();
        let deadline = Deadline::after(ANSWER);
        let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let mut rest = bytes;
        while !rest.is_empty() {
            let rights = [ControlMessage::ScmRights(&numbers)];
            let is_first = rest.len() == bytes.len() && !numbers.is_empty();
            let control: &[ControlMessage<'_>] = if is_first { &rights } else { &[] };
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            let slices = [IoSlice::new(rest)];
            let socket = self.socket();
            match sendmsg::<()>(socket.as_raw_fd(), &slices, control, flags, None) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::EAGAIN) => {
                    let ready = poll_one(socket, PollFlags::POLLOUT, deadline);
                    assert!(ready.is_some(), "the socket stays full for {ANSWER:?}");
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Waits for the reply to this request.
    ///
    /// # Panics
    ///
    /// Where it has not come at the deadline, or the helper hangs up first.
    pub fn answer(&mut self, id: RequestId) -> Answered {
        self.answer_within(id, ANSWER)
    }

    /// Waits this long for the reply to this request.
    ///
    /// # Panics
    ///
    /// As [`answer`](Self::answer).
    pub fn answer_within(&mut self, id: RequestId, within: Duration) -> Answered {
        let deadline = Deadline::after(within);
        loop {
            if let Some(place) = self.arrived.iter().position(|answered| answered.id == id) {
                return self
                    .arrived
                    .remove(place)
                    .expect("the place is in the queue");
            }
            match self.fill(deadline).expect("the link is readable") {
                Some(true) => {}
                Some(false) => panic!("the helper hung up before its reply to {}", self.text(id)),
                None => panic!("no reply within {within:?} to {}", self.text(id)),
            }
        }
    }

    /// Waits for whichever reply comes next.
    ///
    /// # Panics
    ///
    /// As [`answer`](Self::answer).
    pub fn next_answer(&mut self) -> Answered {
        let deadline = Deadline::after(ANSWER);
        loop {
            if let Some(answered) = self.arrived.pop_front() {
                return answered;
            }
            let open = self.fill(deadline).expect("the link is readable");
            let open = open.unwrap_or_else(|| panic!("no reply at all within {ANSWER:?}"));
            assert!(open, "the helper hung up before the next reply");
        }
    }

    /// Whether the reply to this request is there already; it reads what has come, and waits
    /// for nothing.
    ///
    /// # Panics
    ///
    /// Where the link is broken.
    pub fn has_answer(&mut self, id: RequestId) -> bool {
        let now = Deadline::after(Duration::ZERO);
        while self.fill(now).expect("the link is readable") == Some(true) {}
        self.arrived.iter().any(|answered| answered.id == id)
    }

    /// Waits until the helper hangs up. Replies that come before it are kept.
    ///
    /// # Panics
    ///
    /// Where it has not at the deadline.
    pub fn wait_for_hangup(&mut self, within: Duration) {
        let deadline = Deadline::after(within);
        loop {
            match self.fill(deadline) {
                Ok(Some(true)) => {}
                // A helper that exits with unread bytes in its socket resets the link.
                Ok(Some(false)) | Err(_) => return,
                Ok(None) => panic!("the helper keeps the link after {within:?}"),
            }
        }
    }

    /// Replies that have arrived and were not asked for.
    #[must_use]
    pub fn arrived(&self) -> &VecDeque<Answered> {
        &self.arrived
    }

    /// The control socket.
    ///
    /// # Panics
    ///
    /// Where this end has hung up.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("the link is up").as_fd()
    }

    /// Closes this end.
    pub fn hang_up(&mut self) {
        self.socket = None;
    }

    /// Gives this end away, for somebody else to hold it.
    ///
    /// # Panics
    ///
    /// Where this end has hung up.
    pub fn take_socket(&mut self) -> OwnedFd {
        self.socket.take().expect("the link is up")
    }

    fn text(&self, id: RequestId) -> &str {
        self.unanswered
            .get(&id)
            .map_or("a request that is answered", String::as_str)
    }

    /// Waits for bytes and reads them. True where something came, false at end-of-file, none
    /// where the deadline came first.
    fn fill(&mut self, deadline: Deadline) -> io::Result<Option<bool>> {
        match poll_one(self.socket(), PollFlags::POLLIN, deadline) {
            Some(_) => self.read().map(Some),
            None => Ok(None),
        }
    }

    /// Reads once; false at end-of-file.
    fn read(&mut self) -> io::Result<bool> {
        let socket = self.socket.as_ref().expect("the link is up").as_fd();
        match receive(socket, &mut self.inbox)? {
            Received::Closed => {
                assert!(
                    !self.inbox.is_mid_frame(),
                    "the helper hung up in mid-frame"
                );
                return Ok(false);
            }
            Received::Bytes(_) => {}
        }
        while let Some(frame) = self
            .inbox
            .next_frame()
            .expect("the helper keeps to the framing")
        {
            let Answer { id, reply } = decode_answer(&frame.body).expect("the helper's reply");
            let asked = self.unanswered.remove(&id);
            assert!(
                asked.is_some(),
                "request {} has no reply due: {reply:?}",
                id.0
            );
            self.arrived.push_back(Answered {
                id,
                reply,
                descriptors: frame.descriptors,
            });
        }
        Ok(true)
    }
}
