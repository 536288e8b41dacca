//! Messages to bytes and back: bincode's legacy layout, and the only place that names bincode.
//!
//! Integers are fixed-width and little-endian, lengths `u64`, variant tags `u32`. Bytes
//! behind a message are an error. A length is never trusted with memory that the body does
//! not have: a run of bytes is copied only where all of it is there, and a list reserves
//! 1 MiB at most before its first element has been read. Encoding stops storing at the limit.

use bincode::enc::write::Writer;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{DecodeError, EncodeError};
use crate::message::{Answer, Call};
use crate::version::MAX_BODY;

/// The legacy layout with a limit on everything that a decode may claim.
const LAYOUT: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Fixint,
    bincode::config::Limit<MAX_BODY>,
> = bincode::config::legacy().with_limit::<MAX_BODY>();

/// Encodes a request.
///
/// # Errors
///
/// [`EncodeError::TooLong`] where the body would not fit into a frame.
pub fn encode_call(call: &Call) -> Result<Vec<u8>, EncodeError> {
    encode(call)
}

/// Decodes a request.
///
/// # Errors
///
/// [`DecodeError`] where the bytes are no request, or more than one.
pub fn decode_call(body: &[u8]) -> Result<Call, DecodeError> {
    decode(body)
}

/// Encodes a reply.
///
/// # Errors
///
/// [`EncodeError::TooLong`] where the body would not fit into a frame.
pub fn encode_answer(answer: &Answer) -> Result<Vec<u8>, EncodeError> {
    encode(answer)
}

/// Decodes a reply.
///
/// # Errors
///
/// [`DecodeError`] where the bytes are no reply, or more than one.
pub fn decode_answer(body: &[u8]) -> Result<Answer, DecodeError> {
    decode(body)
}

fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, EncodeError> {
    let mut body = Body::default();
    // No type here refuses serialization and `Body` takes everything, so what can fail is
    // the length alone.
    let written = bincode::serde::encode_into_writer(message, &mut body, LAYOUT);
    if written.is_err() || body.length > MAX_BODY {
        return Err(EncodeError::TooLong {
            length: body.length,
        });
    }
    Ok(body.bytes)
}

/// Collects a body up to the limit and counts what is beyond it.
#[derive(Default)]
struct Body {
    bytes: Vec<u8>,
    length: usize,
}

impl Writer for Body {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.length = self.length.saturating_add(bytes.len());
        if self.length <= MAX_BODY {
            self.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, DecodeError> {
    let (message, read) = bincode::serde::decode_from_slice(body, LAYOUT)
        .map_err(|error| DecodeError::Malformed(error.to_string()))?;
    match body.len() - read {
        0 => Ok(message),
        rest => Err(DecodeError::Trailing(rest)),
    }
}
