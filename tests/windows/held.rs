//! A process that a test holds by a handle, so that its number is nobody else's.

use std::os::windows::io::{AsHandle, OwnedHandle};
use std::time::Duration;

use crate::{LIMIT, LIVES_ON, sys};

/// A process of this test. It is ended with it, whatever the test has found.
pub(crate) struct Process(OwnedHandle);

impl Process {
    /// Holds a process that whoever named it holds as well.
    pub(crate) fn open(pid: u32) -> Self {
        Self(sys::open(pid).expect("it is held by whoever named it"))
    }

    pub(crate) fn assert_ends(&self, what: &str) {
        assert!(sys::exits(self.0.as_handle(), LIMIT), "{what} lives on");
    }

    pub(crate) fn assert_has_ended(&self, what: &str) {
        assert!(
            sys::exits(self.0.as_handle(), Duration::ZERO),
            "{what} lives"
        );
    }

    pub(crate) fn assert_lives_on(&self, what: &str) {
        assert!(
            !sys::exits(self.0.as_handle(), LIVES_ON),
            "{what} was ended"
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        sys::end(self.0.as_handle());
    }
}
