//! What needs Linux, where there is none: it is refused, and the refusal says what follows.
//!
//! It is here so that one host compiles everywhere. It must never pretend: whatever a helper
//! would have to do is an error of the kind [`Unsupported`](crate::ErrorKind::Unsupported).

#[cfg(unix)]
mod helped;
mod helper;
#[cfg(unix)]
mod spawner;
mod sweep;
#[cfg(unix)]
mod unhelped;

#[cfg(unix)]
pub(crate) use helped::Helped;
pub use helper::Helper;
#[cfg(unix)]
pub use spawner::Spawner;
pub use sweep::sweep;

/// Does nothing here: there is no helper to play.
///
/// On Linux it plays the helper in a re-executed host, and is the first line of a host's `main`.
pub fn init() {}
