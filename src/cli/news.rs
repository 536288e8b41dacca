//! What the threads of foster tell the one that decides.

use std::io;

use crate::{Ended, Error, Exit, Farewell, Session};

/// One piece of news.
#[derive(Debug)]
pub(crate) enum News {
    /// Foster was sent a signal.
    Signal(i32),
    /// Foster's parent died.
    ParentGone,
    /// Signals and the parent cannot be watched any more.
    Blind(io::Error),
    /// The command runs.
    Started(Session),
    /// The command exited.
    Exited(Exit),
    /// The tree ended or was let go.
    Ended(Ended),
    /// The helper is done, and has ended what had left the tree; none where it lets that live.
    Done(Option<Farewell>),
    /// The thread that follows the command got this far.
    Failed(Error),
    /// The helper answered a request for an ending with an error.
    NotEnded(Error),
    /// The thread that follows the command is over; its last word came before this.
    Over,
}
