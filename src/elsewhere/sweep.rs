//! A janitor that ends nobody: there are no records, and nothing shows whose a process is.

use std::convert::Infallible;

use crate::error::{Repr, Result};

/// Ends nobody here: what a killed host has left cannot be told from a stranger's processes on
/// this platform.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported), always, with a warning that what was left lives
/// on.
pub fn sweep() -> Result<Infallible> {
    tracing::warn!(
        "nothing can be swept on this platform: what a killed host has left is not signalled and \
         lives on"
    );
    Err(Repr::Unsupported { what: "a sweep is" }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_swept_and_the_error_says_so() {
        let error = sweep().expect_err("nobody can be told from a stranger");
        assert!(error.is_unsupported());
        assert_eq!(
            error.to_string(),
            "a sweep is not to be had on this platform"
        );
    }
}
