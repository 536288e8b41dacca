//! A helper that is never to be had.

use std::convert::Infallible;

use crate::error::{Repr, Result};

/// A helper process. There is none on this platform: no value of this type exists.
///
/// A command is supervised by this process itself, at
/// [`Level::Direct`](crate::Level::Direct), which [`Child::containment`](crate::Child::containment)
/// tells.
#[derive(Clone, Debug)]
pub struct Helper {
    #[cfg_attr(unix, expect(dead_code, reason = "nobody needs the proof"))]
    never: Infallible,
}

impl Helper {
    /// Says that there is no helper on this platform.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported), always.
    pub fn launch() -> Result<Self> {
        Err(Repr::Unsupported {
            what: "a helper is",
        }
        .into())
    }

    /// Says that there is no helper on this platform.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported), always.
    pub fn global() -> Result<Self> {
        Self::launch()
    }

    /// Proves that the caller does not exist.
    #[cfg(windows)]
    pub(crate) fn never(&self) -> ! {
        match self.never {}
    }
}
