#![expect(
    unsafe_code,
    reason = "the helper's only door to system calls that have no safe wrapper"
)]
//! System calls, and nothing else: what they may be used for is decided above.
//!
//! Every signal by number or by pidfd leaves from `leader` or `process`, after `signalable`.
//! What runs between fork and exec is in `child`.

mod child;
pub(crate) mod condition;
pub(crate) mod epoll;
pub(crate) mod fork;
pub(crate) mod kernel;
pub(crate) mod leader;
pub(crate) mod oom;
pub(crate) mod outer;
pub(crate) mod own;
pub(crate) mod pace;
mod plan;
pub(crate) mod proc;
pub(crate) mod process;
mod progress;
mod raw;
pub(crate) use raw::Scheduling;
pub(crate) mod signalable;
pub(crate) mod spawn;
pub(crate) mod wake;

#[cfg(test)]
mod testing;
