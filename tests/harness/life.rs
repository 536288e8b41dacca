//! The life of the helper behind a link: its death, its exit code, its descriptors.

use std::io;
use std::time::Duration;

use nix::poll::PollFlags;

use crate::deadline::{DEATH, Deadline, LOOK, pass, poll_one};
use crate::link::Link;
use crate::proc;
use crate::stage::note_not_run;

/// How many keepers wait for a session at most.
const MOST_SPARE: usize = 4;

/// Whether a child of a helper is a keeper without a session: a fork of its server thread that
/// runs no program, leads its own session, is process 1 of no namespace, and has no child.
#[must_use]
pub fn is_spare(child: &proc::Stat) -> bool {
    let numbers = proc::status_field(child.pid, "NSpid");
    child.state != 'Z'
        && child.name == b"server"
        && child.session == child.pid
        && numbers.is_some_and(|text| text.split_whitespace().count() == 1)
        && proc::children(child.pid).is_empty()
}

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

    /// The helper's keepers that wait for a session.
    ///
    /// # Panics
    ///
    /// Where there are more than the helper may have.
    #[must_use]
    pub fn spares(&self) -> Vec<i32> {
        let children = proc::children(self.pid()).into_iter();
        let spares: Vec<i32> = children.filter(is_spare).map(|child| child.pid).collect();
        assert!(spares.len() <= MOST_SPARE, "too many wait: {spares:?}");
        spares
    }

    /// The helper's children but for the keepers that wait for a session, zombies included.
    #[must_use]
    pub fn busy_children(&self) -> Vec<proc::Stat> {
        let mut children = proc::children(self.pid());
        children.retain(|child| !is_spare(child));
        children
    }

    /// How many descriptors the helper has beside the two of each spare keeper; none where this
    /// user may not look.
    #[must_use]
    pub fn descriptors(&self) -> Option<usize> {
        let spares = self.spares().len();
        match proc::descriptor_count(self.pid()) {
            // Some may have gone meanwhile, with their two.
            Ok(count) => Some(count.saturating_sub(2 * spares)),
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
        let Some(before) = before else { return };
        // A keeper that comes to wait, or goes, is counted apart from its two.
        let deadline = Deadline::after(DEATH);
        let mut now = self.descriptors();
        while now.is_some_and(|now| now != before) && !deadline.is_reached() {
            pass(LOOK);
            now = self.descriptors();
        }
        let Some(now) = now else { return };
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
