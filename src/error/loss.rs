//! Why a helper was lost, and what the caller was waiting for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use foster_protocol::FrameError;
use thiserror::Error;

/// Why a link to a helper is of no use any more. Every pending call gets a copy.
#[derive(Clone, Debug, Error)]
pub(crate) enum Loss {
    /// The helper is gone, or has closed its end.
    #[error("helper closed the control socket")]
    Closed,
    /// The helper's process is dead, though somebody holds a copy of its socket.
    #[error("helper died")]
    Died,
    /// The control socket failed.
    #[error("control socket failed")]
    Socket(#[source] Arc<std::io::Error>),
    /// The helper broke the framing.
    #[error("helper broke the protocol")]
    Frame(#[source] Arc<FrameError>),
    /// The helper sent a body that is no reply.
    #[error("helper broke the protocol")]
    Decode(#[source] Arc<foster_protocol::DecodeError>),
    /// The helper did not answer in time, and was given up for this session.
    #[error("helper did not answer within {0:?}")]
    Silent(Duration),
    /// The helper sent a reply that does not answer its request.
    #[error("helper sent a reply that does not answer its request")]
    Unexpected,
    /// The helper speaks another version of the protocol.
    #[error("helper speaks protocol version {0}")]
    Version(u32),
    /// This client has shut the helper down.
    #[error("helper was shut down")]
    ShutDown,
    /// The handle belongs to the process that this one was forked from.
    #[error("helper belongs to the process that this one was forked from")]
    Forked,
}

/// What a caller was waiting for when the helper was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum During {
    /// Nothing yet: not a byte of the spawn had left, so the command did not run.
    Unsent,
    /// A spawn's answer: the command may have run.
    Spawn,
    /// A leader's exit.
    Exit,
    /// The end of a tree.
    End,
    /// The acknowledgement of a release.
    Release,
    /// Anything else.
    Request,
}

impl fmt::Display for During {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            During::Unsent => "helper was lost before the spawn was sent; the command did not run",
            During::Spawn => {
                "helper was lost before it answered the spawn; the command may have run and was \
                 not started again"
            }
            During::Exit => "helper was lost before the command's exit; its status is unknown",
            During::End => {
                "helper was lost and the tree's end is not confirmed; who is left is unknown"
            }
            During::Release => {
                "helper was lost before it acknowledged the release; the fate of the session is \
                 unknown"
            }
            During::Request => "helper was lost",
        })
    }
}
