//! How a session ended, for whoever supervised it.

use foster_protocol::Ending;

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its tree was ended.
    Ending(Ending),
    /// It was released.
    Released {
        /// How many members still ran at that moment.
        still_running: u32,
    },
}
