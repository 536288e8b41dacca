//! The wire protocol between a host and its foster helper.
//!
//! Types, frames, the codec and descriptor passing; no policy and no event loop. The
//! protocol's page, `docs/PROTOCOL.md`, is enough to write a peer without this crate.
//!
//! # Examples
//!
//! ```
//! use foster_protocol::{Call, Inbox, Outbox, Request, RequestId, decode_call, encode_call};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let call = Call { id: RequestId(1), request: Request::Ping };
//! let mut outbox = Outbox::new();
//! outbox.push(&encode_call(&call)?, Vec::new())?;
//!
//! // A socket carries the bytes: see `send` and `receive`.
//! let mut inbox = Inbox::new();
//! if let Some((bytes, _descriptors)) = outbox.front() {
//!     inbox.feed(bytes, Vec::new(), false);
//! }
//! let frame = inbox.next_frame()?.ok_or("the frame is whole")?;
//! assert_eq!(decode_call(&frame.body)?, call);
//! # Ok(())
//! # }
//! ```

mod codec;
mod ending;
mod error;
mod frame;
mod instance;
mod message;
#[cfg(test)]
mod properties;
#[cfg(test)]
#[path = "../tests/schema/mod.rs"]
mod schema;
#[cfg(target_os = "linux")]
mod socket;
mod spec;
mod types;
mod version;

pub use codec::{decode_answer, decode_call, encode_answer, encode_call};
pub use ending::{
    Cause, Ended, Ending, Exit, Member, Orphan, Peaks, Proof, Survivor, Usage, Verdict, Why,
};
pub use error::{DecodeError, EncodeError, FrameError};
pub use frame::{Frame, Inbox, Outbox};
pub use instance::{
    MARK_RESOURCE, MAX_RECORD, Mark, NotOurs, Record, RecordError, file_name, prefix,
    record_folders, released_line, unended_line,
};
pub use message::{
    Answer, Attached, Call, Farewell, Feature, Field, How, Reject, Reply, Request, Sealed, Target,
    Until,
};
#[cfg(target_os = "linux")]
pub use socket::{Received, receive, send};
pub use spec::{Mapping, OnExit, ResourceLimit, Seal, Spec, Step, TreeLimits};
pub use types::{
    Availability, Bytes, Capabilities, Containment, Counters, Level, LevelChoice, Micros, Missing,
    Obstacle, Pid, RequestId, SessionId, SessionInfo, StateName,
};
pub use version::{
    BUILD, HELLO_TIMEOUT, MAX_BODY, MAX_DESCRIPTORS, MAX_SESSIONS, MAX_STRING, MAX_WAITING, VERSION,
};
