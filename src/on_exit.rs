//! What happens after a leader's exit, and the times that a command has where it does not say.

use std::time::Duration;

/// The time between TERM and KILL where a command does not say: long enough for a program
/// that cleans up, short enough that nobody waits for one that does not.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(1);

/// How long output is still read after the leader's exit where a command does not say.
pub const DEFAULT_DRAIN: Duration = Duration::from_millis(100);

/// What happens to the rest of the tree when the leader exits.
///
/// Whatever it says, dropping the [`Child`](crate::Child) ends what is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExit {
    /// Nothing: the rest lives until the host decides.
    #[default]
    Hold,
    /// The rest is ended.
    End {
        /// The time between TERM and KILL.
        grace: Duration,
    },
    /// The rest may finish by itself, and is ended when it has not by then.
    Linger {
        /// How long the rest may take, from the leader's exit.
        limit: Duration,
        /// The time between TERM and KILL.
        grace: Duration,
    },
    /// The rest is released.
    Leave,
}
