//! The control socket: requests in, replies out, and never a wait for either.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use foster_protocol::{
    Answer, FrameError, MAX_BODY, Received, Reject, Reply, RequestId, encode_answer, receive, send,
};

use super::{Fault, Server};
use crate::sys::epoll::Interest;
use crate::timers::{Alarm, Owner};

/// Above this many bytes of replies that the client has not read, its requests are left
/// unread.
const MOST_UNREAD: usize = 1024 * 1024;

/// How long a send waits that failed for reasons that pass by themselves.
pub(super) const SEND_AGAIN: Duration = Duration::from_millis(1);

/// How many reads of the control socket one turn of the loop makes at most.
const READS_PER_TURN: usize = 4;

impl Server {
    pub(super) fn read_control(&mut self) -> Result<(), Fault> {
        for _ in 0..READS_PER_TURN {
            if self.outbox.len() > MOST_UNREAD || self.is_hung_up() {
                return Ok(());
            }
            match receive(self.control.as_fd(), &mut self.inbox) {
                Ok(Received::Bytes(_)) => self.take_frames()?,
                Ok(Received::Closed) => return self.hang_up(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return self.hang_up();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(super) fn take_frames(&mut self) -> Result<(), Fault> {
        loop {
            match self.inbox.next_frame() {
                Ok(Some(frame)) => self.take_request(frame)?,
                Ok(None) => return Ok(()),
                Err(error) => return self.refuse_frame(&error),
            }
        }
    }

    pub(super) fn refuse_frame(&mut self, error: &FrameError) -> Result<(), Fault> {
        tracing::warn!(%error, "the client broke the protocol");
        self.break_off()
    }

    /// Queues a reply. A list of many sessions with long labels may be more than a frame holds.
    pub(super) fn reply(&mut self, id: RequestId, reply: Reply) -> Result<(), Fault> {
        self.reply_with(id, reply, Vec::new())
    }

    pub(super) fn reply_with(
        &mut self,
        id: RequestId,
        reply: Reply,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Fault> {
        if self.is_hung_up() {
            return Ok(());
        }
        let body = encode_answer(&Answer { id, reply }).or_else(|_| {
            let reason = Reject::ReplyTooLong {
                limit: MAX_BODY as u64,
            };
            let reply = Reply::Rejected { reason };
            encode_answer(&Answer { id, reply })
        });
        let body = body.map_err(io::Error::other)?;
        self.outbox
            .push(&body, descriptors)
            .map_err(io::Error::other)?;
        Ok(())
    }

    pub(super) fn reject(&mut self, id: RequestId, reason: Reject) -> Result<(), Fault> {
        tracing::debug!(id = id.0, ?reason, "rejected");
        self.reply(id, Reply::Rejected { reason })
    }

    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        if self.outbox.is_empty() || self.is_hung_up() {
            return Ok(());
        }
        match send(self.control.as_fd(), &mut self.outbox) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Too many descriptors of this user are on their way; it passes.
                Some(libc::ETOOMANYREFS | libc::ENOMEM | libc::ENOBUFS) => {
                    self.timers
                        .set(Owner::Socket, Alarm::Look, self.now, SEND_AGAIN);
                    Ok(())
                }
                Some(libc::EPIPE | libc::ECONNRESET) => self.hang_up(),
                Some(_) | None => Err(error.into()),
            },
        }
    }

    /// Watches the control socket for what can be used: nothing is read from a client that
    /// does not read.
    pub(super) fn watch_control(&mut self) -> io::Result<()> {
        if self.is_hung_up() {
            return Ok(());
        }
        let waits_for_time = self.timers.due(Owner::Socket, Alarm::Look).is_some();
        let interest = match (self.outbox.is_empty() || waits_for_time, self.outbox.len()) {
            (true, _) => Interest::Read,
            (false, length) if length > MOST_UNREAD => Interest::Write,
            (false, _) => Interest::ReadWrite,
        };
        if interest != self.control_interest {
            self.epoll
                .modify(self.control.as_fd(), self.control_token, interest)?;
            self.control_interest = interest;
        }
        Ok(())
    }
}
