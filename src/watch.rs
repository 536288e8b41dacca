//! The thread that a host can have to act on a lost helper at once.
//!
//! It sleeps until the control socket hangs up or the helper's process dies, and then does what
//! a call would have done. It holds no handle: the helper goes with its last one, and the thread
//! with it. It must never read the socket itself, and never run a signal handler of the host's.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{SigSet, SigmaskHow};

use crate::poll::poll_until;

/// Starts the thread. `is_over` acts on a loss, and says whether there is nothing to watch for
/// any more.
///
/// # Errors
///
/// What the system says where it has no room for a thread.
pub(crate) fn start(
    socket: OwnedFd,
    process: Option<OwnedFd>,
    is_over: impl Fn() -> bool + Send + 'static,
) -> io::Result<()> {
    // A thread is born with the mask of its maker, so that no handler runs in it from the start.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = thread::Builder::new()
        .name("foster-watch".to_owned())
        .spawn(move || watch(&socket, process.as_ref(), is_over));
    before.thread_set_mask()?;
    started.map(drop)
}

fn watch(socket: &OwnedFd, process: Option<&OwnedFd>, is_over: impl Fn() -> bool) {
    loop {
        // A hangup is reported without being asked for; what the helper says is for others.
        let mut polled = vec![PollFd::new(socket.as_fd(), PollFlags::empty())];
        polled.extend(process.map(|process| PollFd::new(process.as_fd(), PollFlags::POLLIN)));
        if let Err(error) = poll_until(&mut polled, None) {
            tracing::warn!(%error, "helper cannot be watched any more");
            return;
        }
        let is_ready = polled.iter().any(|one| one.any().unwrap_or(true));
        // Where the loss is not noted yet, what came before it was read, and the rest is next.
        if is_ready && is_over() {
            return;
        }
    }
}
