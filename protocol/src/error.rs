//! What can be wrong with bytes from the other side.

use thiserror::Error;

use crate::version::{MAX_BODY, MAX_DESCRIPTORS};

/// A stream that does not follow the framing. The link is of no use after it.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// The header announces a body above the limit.
    #[error("frame body of {length} bytes is above the limit of {MAX_BODY}")]
    BodyTooLong {
        /// The announced length.
        length: u32,
    },
    /// The header announces more descriptors than one message can carry.
    #[error("frame with {count} descriptors is above the limit of {MAX_DESCRIPTORS}")]
    TooManyDescriptors {
        /// The announced count.
        count: u8,
    },
    /// The padding of the header is not zero.
    #[error("frame header with non-zero padding")]
    Padding,
    /// More or fewer descriptors came than the header announces.
    #[error("frame announces {announced} descriptors and came with {came}")]
    DescriptorCount {
        /// The announced count.
        announced: usize,
        /// How many came.
        came: usize,
    },
    /// Descriptors came outside the first byte of a frame that announces them.
    #[error("descriptors came that no frame announces")]
    Unannounced,
}

/// A body that is no message.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// The bytes do not decode.
    #[error("body is not a message: {0}")]
    Malformed(String),
    /// The bytes decode, and some are left over.
    #[error("body has {0} bytes behind its message")]
    Trailing(usize),
}

/// A message that does not fit into a frame.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    /// The body would be above the limit.
    #[error("message of {length} bytes is above the frame limit of {MAX_BODY}")]
    TooLong {
        /// The length that it would have.
        length: usize,
    },
    /// The message has more descriptors than one frame can carry.
    #[error("message with {count} descriptors is above the limit of {MAX_DESCRIPTORS}")]
    TooManyDescriptors {
        /// How many it has.
        count: usize,
    },
}
