//! Frames: bytes and descriptors of a stream socket, cut into messages.
//!
//! A frame is a header of 8 bytes (body length `u32`, descriptor count `u8`, three zero
//! bytes) and a body. Descriptors travel with the first byte of their frame. Neither box
//! does I/O. An inbox that is emptied after every read holds one frame and one read at most;
//! an outbox grows with what is pushed, and its owner looks at its length.

use std::collections::VecDeque;
#[cfg(unix)]
use std::os::fd::OwnedFd;
#[cfg(windows)]
use std::os::windows::io::OwnedHandle as OwnedFd;

use crate::error::{EncodeError, FrameError};
use crate::version::{MAX_BODY, MAX_DESCRIPTORS};

/// The length of a header in bytes.
pub(crate) const HEADER: usize = 8;

/// Small frames are glued up to this many bytes, so that a spawn and its wait are one write.
const GLUE: usize = 16 * 1024;

/// An empty inbox keeps a buffer up to this many bytes: a few reads.
const KEPT: usize = 256 * 1024;

/// One whole frame.
#[derive(Debug)]
pub struct Frame {
    /// The body.
    pub body: Vec<u8>,
    /// The descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
    /// The kernel dropped descriptors on the way (`MSG_CTRUNC`). Those that came are closed.
    pub descriptors_lost: bool,
}

/// Descriptors that came with one read, and where in the stream that read was.
#[derive(Debug)]
struct Batch {
    /// The stream position of the first byte of the read.
    start: u64,
    /// The stream position behind its last byte.
    end: u64,
    descriptors: Vec<OwnedFd>,
    lost: bool,
}

/// The receiving end of a stream: collects bytes and descriptors and gives out frames.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Everything before `start` has been given out; `start..end` has come and has not;
    /// what is behind `end` is room for the next read, and initialized only once.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The stream position of the byte at `start`.
    position: u64,
    /// In the order in which they came, without overlap.
    batches: VecDeque<Batch>,
}

impl Inbox {
    /// Creates an empty inbox.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what one read brought.
    pub fn feed(&mut self, bytes: &[u8], descriptors: Vec<OwnedFd>, lost: bool) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.filled(bytes.len(), descriptors, lost);
    }

    /// Gives out the next whole frame, or none where more bytes are needed.
    ///
    /// # Errors
    ///
    /// [`FrameError`] where the stream breaks the framing; the inbox is of no use after it.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        self.refuse_unannounced()?;
        let pending = self.buffer.get(self.start..self.end).unwrap_or_default();
        let Some((header, rest)) = pending.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [l0, l1, l2, l3, count, padding @ ..] = *header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let body_length = length as usize;
        if body_length > MAX_BODY {
            return Err(FrameError::BodyTooLong { length });
        }
        if usize::from(count) > MAX_DESCRIPTORS {
            return Err(FrameError::TooManyDescriptors { count });
        }
        if padding != [0; 3] {
            return Err(FrameError::Padding);
        }
        let Some(body) = rest.get(..body_length) else {
            return Ok(None);
        };
        let body = body.to_vec();
        let (descriptors, descriptors_lost) = self.claim(usize::from(count))?;
        self.consume(HEADER + body_length);
        Ok(Some(Frame {
            body,
            descriptors,
            descriptors_lost,
        }))
    }

    /// Whether bytes have come that are not part of a frame that was given out. After
    /// [`next_frame`](Self::next_frame) has given out none: whether a frame is cut short.
    #[must_use]
    pub fn is_mid_frame(&self) -> bool {
        self.start < self.end
    }

    /// How many bytes have come that are not part of a frame that was given out.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.end - self.start
    }

    /// Room for a read of `length` bytes, which [`filled`](Self::filled) takes in.
    pub(crate) fn room(&mut self, length: usize) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let until = self.end + length;
        if self.buffer.len() < until {
            self.buffer.resize(until, 0);
        }
        self.buffer.get_mut(self.end..until).unwrap_or_default()
    }

    /// Takes in what was read into [`room`](Self::room), and what came with it.
    pub(crate) fn filled(&mut self, count: usize, descriptors: Vec<OwnedFd>, lost: bool) {
        let start = self.position + self.held_bytes() as u64;
        self.end = self.buffer.len().min(self.end + count);
        if lost || !descriptors.is_empty() {
            let end = self.position + self.held_bytes() as u64;
            // A message that lost descriptors is refused whole, so what came goes now.
            let descriptors = if lost { Vec::new() } else { descriptors };
            self.batches.push_back(Batch {
                start,
                end,
                descriptors,
                lost,
            });
        }
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        self.position += count as u64;
        if self.start >= self.end {
            self.start = 0;
            self.end = 0;
            // The room that one large frame needed is not kept for the small ones.
            if self.buffer.len() > KEPT {
                self.buffer = Vec::new();
            }
        }
    }

    /// Takes the batch that belongs to the frame at the current position.
    ///
    /// A read ends inside or behind the first message with descriptors that it meets and may
    /// begin with plain frames, or with the rest of one, before it. So a batch belongs to a
    /// frame that starts inside its read and announces descriptors.
    fn claim(&mut self, announced: usize) -> Result<(Vec<OwnedFd>, bool), FrameError> {
        if announced == 0 {
            return Ok((Vec::new(), false));
        }
        let position = self.position;
        let is_its = |batch: &Batch| (batch.start..batch.end).contains(&position);
        let batch = if self.batches.front().is_some_and(is_its) {
            self.batches.pop_front()
        } else {
            None
        };
        let batch = batch.ok_or(FrameError::DescriptorCount { announced, came: 0 })?;
        if batch.lost {
            return Ok((Vec::new(), true));
        }
        if batch.descriptors.len() != announced {
            return Err(FrameError::DescriptorCount {
                announced,
                came: batch.descriptors.len(),
            });
        }
        Ok((batch.descriptors, false))
    }

    /// Every frame that started inside a batch's read has been given out, so nothing can
    /// claim the batch any more. It is looked for before every frame: a peer that never
    /// pauses could pile up descriptors otherwise.
    fn refuse_unannounced(&self) -> Result<(), FrameError> {
        match self.batches.front() {
            Some(batch) if batch.end <= self.position => Err(FrameError::Unannounced),
            Some(_) | None => Ok(()),
        }
    }
}

/// Bytes that go out in one piece, with the descriptors that travel with the first of them.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// The sending end of a stream: a queue of frames.
#[derive(Debug, Default)]
pub struct Outbox {
    chunks: VecDeque<Chunk>,
    /// How much of the front chunk has been sent.
    sent: usize,
    /// Bytes in the queue.
    length: usize,
}

impl Outbox {
    /// Creates an empty outbox.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues one frame.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] where the body or the descriptors are above a limit; nothing is queued,
    /// and the descriptors are closed.
    pub fn push(&mut self, body: &[u8], descriptors: Vec<OwnedFd>) -> Result<(), EncodeError> {
        let length = match u32::try_from(body.len()) {
            Ok(length) if body.len() <= MAX_BODY => length,
            Ok(_) | Err(_) => return Err(EncodeError::TooLong { length: body.len() }),
        };
        let count = match u8::try_from(descriptors.len()) {
            Ok(count) if descriptors.len() <= MAX_DESCRIPTORS => count,
            Ok(_) | Err(_) => {
                return Err(EncodeError::TooManyDescriptors {
                    count: descriptors.len(),
                });
            }
        };
        let [l0, l1, l2, l3] = length.to_le_bytes();
        let header = [l0, l1, l2, l3, count, 0, 0, 0];
        self.length += HEADER + body.len();
        match self.chunks.back_mut() {
            Some(last) if descriptors.is_empty() && last.bytes.len() + body.len() < GLUE => {
                last.bytes.extend_from_slice(&header);
                last.bytes.extend_from_slice(body);
            }
            Some(_) | None => {
                let mut bytes = Vec::with_capacity(HEADER + body.len());
                bytes.extend_from_slice(&header);
                bytes.extend_from_slice(body);
                self.chunks.push_back(Chunk { bytes, descriptors });
            }
        }
        Ok(())
    }

    /// Whether everything has been sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// How many bytes are queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// What is to be sent next: bytes, and descriptors that go with the first of them.
    #[must_use]
    pub fn front(&self) -> Option<(&[u8], &[OwnedFd])> {
        let chunk = self.chunks.front()?;
        let rest = chunk.bytes.get(self.sent..)?;
        Some((rest, &chunk.descriptors))
    }

    /// Notes that this many bytes of the front have been sent, and with the first of them
    /// its descriptors, which are closed here. More than the front has is as much as it has.
    pub fn advance(&mut self, count: usize) {
        let Some(chunk) = self.chunks.front_mut() else {
            return;
        };
        let count = count.min(chunk.bytes.len() - self.sent);
        if count > 0 {
            chunk.descriptors.clear();
        }
        self.sent += count;
        self.length -= count;
        if self.sent >= chunk.bytes.len() {
            self.sent = 0;
            self.chunks.pop_front();
        }
    }
}
