//! The protocol version and the limits that every peer may rely on.
//!
//! A change to a message touches the type, this number, `docs/PROTOCOL.md`, the
//! golden bytes and the changelog together.

use std::time::Duration;

/// The protocol version spoken by this crate. Both sides must name the same one.
pub const VERSION: u32 = 1;

/// The build id sent in `Hello` and `Welcome`. It is compared only when a host
/// re-executes itself, where a difference means that the program file was replaced.
pub const BUILD: &str = concat!("foster/", env!("CARGO_PKG_VERSION"));

/// The largest frame body in bytes. It is above `ARG_MAX` as Linux computes it from the
/// default 8 MiB stack limit (2 MiB), so that a command the kernel accepts also fits.
pub const MAX_BODY: usize = 4 * 1024 * 1024;

/// The most descriptors in one frame: the kernel's `SCM_MAX_FD` (`unix(7)`).
pub const MAX_DESCRIPTORS: usize = 253;

/// The longest single argument or environment entry in bytes, without its NUL: the
/// kernel's `MAX_ARG_STRLEN` (`execve(2)`) is 131,072 with it.
pub const MAX_STRING: usize = 131_071;

/// The most sessions that a helper keeps records of at one time.
pub const MAX_SESSIONS: usize = 32_768;

/// The most requests that may be waiting for a reply at one time.
pub const MAX_WAITING: usize = 262_144;

/// How long a helper waits for the first frame, and a client for its answer.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
