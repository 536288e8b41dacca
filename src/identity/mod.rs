//! Who a process is: whether a number that was noted earlier still means the process of then.
//!
//! A host that finds a process id in a file may signal it only if it can show that the process
//! is its own. Three things can show it: a pidfd that was opened while it was known, the name
//! that the kernel gives to a process for as long as it runs (pidfs, Linux 6.9), and markers
//! in the environment that the process was started with. A start time cannot: two processes
//! that get the same number within one tick have the same one.
//!
//! Every question here is asked in one order: a pidfd first, then what is to be known, then
//! whether the pidfd's process is still alive. What cannot be read is answered with no.
//!
//! Nothing here signals a number, and a zombie is never alive.
//!
//! # Examples
//!
//! ```no_run
//! use foster::identity::{self, Markers};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let markers = Markers::new("ACME_SERVICE", "indexer")?;
//! let child = foster::Command::new("indexer").markers(&markers).spawn()?;
//! assert!(identity::is_live_child(child.id(), "ACME_SERVICE", "indexer"));
//! assert!(!identity::is_live_child(child.id(), "ACME_SERVICE", "index"));
//! # Ok(())
//! # }
//! ```
//!
//! # Platform
//!
//! Linux. Elsewhere no identity is ever confirmed, so that nothing is signalled, and a warning
//! says so.

#[cfg(any(test, not(target_os = "linux")))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod held;
#[cfg(target_os = "linux")]
mod liveness;
mod markers;
mod signalable;

#[cfg(all(target_os = "linux", feature = "registry"))]
pub(crate) use held::exited;
#[cfg(target_os = "linux")]
pub use held::{Held, IdentityError, PidfsId, Reach};
#[cfg(target_os = "linux")]
pub use liveness::is_zombie;
#[cfg(all(target_os = "linux", feature = "registry"))]
pub(crate) use liveness::{Stat, stat};
pub use markers::{MARKER, Markers, MarkersError};
pub use signalable::{NotSignalable, Signalable, signalable};

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{is_live_child, is_zombie};

/// Whether the process of this number lives and carries the markers of this key and name.
///
/// False wherever that cannot be shown: for a number that is never to be signalled (see
/// [`signalable`]), a zombie, an environment that cannot be read, a kernel without pidfds.
/// Descendants inherit the markers, so that they carry them as well.
///
/// The answer is about the moment. To signal the process, hold it: [`Held::open`],
/// [`Held::carries`], [`Held::signal`].
#[cfg(target_os = "linux")]
#[must_use]
pub fn is_live_child(pid: u32, key: &str, name: &str) -> bool {
    let Ok(markers) = Markers::new(key, name) else {
        return false;
    };
    match Held::open(pid) {
        Ok(held) => held.carries(&markers),
        // Nobody has the number, or it is nobody's to signal.
        Err(IdentityError::Gone { .. } | IdentityError::NotSignalable(_)) => false,
        Err(error) => {
            tracing::warn!(pid, %error, "identity cannot be confirmed: the process is not signalled");
            false
        }
    }
}
