//! The life of the helper behind a link: its death, its exit code, its descriptors.

use std::io;
use std::time::Duration;

use nix::poll::PollFlags;

use crate::deadline::{DEATH, Deadline, poll_one};
use crate::link::Link;
use crate::proc;
use crate::stage::note_not_run;

impl Link {
    /// Kills the helper.
    ///
    /// # Panics
    ///
    /// Where the kernel refuses.
    pub fn kill_helper(&mut self) {
        self.helper.kill().expect("the helper can be killed");
    }

    /// Waits for the helper's exit and gives its code.
    ///
    /// # Panics
    ///
    /// Where it has not exited at the deadline, or died of a signal.
    pub fn exit_code(&mut self) -> i32 {
        self.exit_code_within(DEATH)
    }

    /// Waits this long for the helper's exit and gives its code.
    ///
    /// # Panics
    ///
    /// As [`exit_code`](Self::exit_code).
    pub fn exit_code_within(&mut self, within: Duration) -> i32 {
        self.witness.wait_for_death(within);
        let status = self
            .helper
            .wait()
            .expect("the helper is a child of this process");
        let code = status
            .code()
            .unwrap_or_else(|| panic!("the helper died: {status}"));
        self.code = Some(code);
        code
    }

    /// Waits for the death of a helper that was killed.
    ///
    /// # Panics
    ///
    /// Where it lives at the deadline.
    pub fn wait_for_death(&mut self) {
        self.witness.wait_for_death(DEATH);
        let status = self
            .helper
            .wait()
            .expect("the helper is a child of this process");
        self.code = Some(status.code().unwrap_or(-1));
    }

    /// How many descriptors the helper has; none where this user may not look.
    #[must_use]
    pub fn descriptors(&self) -> Option<usize> {
        match proc::descriptor_count(self.pid()) {
            Ok(count) => Some(count),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                note_not_run("counting the helper's descriptors", "it is not dumpable");
                None
            }
            Err(error) => panic!("the helper's descriptors: {error}"),
        }
    }

    /// Asserts that the helper has as many descriptors as before, where both could be counted.
    ///
    /// # Panics
    ///
    /// Where it has more or fewer; the message lists them.
    pub fn assert_descriptors(&self, before: Option<usize>) {
        let (Some(before), Some(now)) = (before, self.descriptors()) else {
            return;
        };
        let list = proc::descriptors(self.pid());
        assert_eq!(now, before, "the helper's descriptors: {list:?}");
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.socket = None;
        if self.code.is_some() {
            return;
        }
        let is_failing = std::thread::panicking();
        let dead = poll_one(
            self.witness.as_fd(),
            PollFlags::POLLIN,
            Deadline::after(DEATH),
        );
        if dead.is_none() {
            // The helper outlived its hangup; it goes, whatever the test says of that.
            let killed = self.helper.kill();
            assert!(
                is_failing,
                "the helper outlived its hangup by {DEATH:?}; kill: {killed:?}"
            );
        }
        match self.helper.wait() {
            Ok(status) if is_failing || status.code() == Some(0) => {}
            Ok(status) => panic!("the helper's exit after a hangup: {status}"),
            Err(error) => assert!(is_failing, "the helper's exit: {error}"),
        }
    }
}
