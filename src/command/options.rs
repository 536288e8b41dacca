//! The builder's options beyond std's: limits, credentials, containment and endings.

use std::ffi::OsStr;
use std::time::Duration;

use foster_protocol::{Level, LevelChoice, ResourceLimit};

use super::Command;
use crate::on_exit::OnExit;

impl Command {
    /// Sets the file mode creation mask (`umask(2)`). Without it, the helper's: that of the
    /// host when it launched the helper.
    pub fn umask(&mut self, mask: u32) -> &mut Self {
        self.options.umask = Some(mask);
        self
    }

    /// Sets a resource limit (`setrlimit(2)`), by the resource's number on this platform.
    /// `u64::MAX` is no limit. A resource that is named twice gets the last limit.
    pub fn resource_limit(&mut self, resource: u32, soft: u64, hard: u64) -> &mut Self {
        self.options
            .resource_limits
            .retain(|limit| limit.resource != resource);
        self.options.resource_limits.push(ResourceLimit {
            resource,
            soft,
            hard,
        });
        self
    }

    /// Sets the nice value, -20 to 19.
    pub fn nice(&mut self, value: i32) -> &mut Self {
        self.options.nice = Some(value);
        self
    }

    /// Sets the OOM score adjustment, -1000 to 1000 (`proc_pid_oom_score_adj(5)`).
    pub fn oom_score_adj(&mut self, value: i32) -> &mut Self {
        self.options.oom_score_adj = Some(value);
        self
    }

    /// Sets the user id. The helper needs the privilege.
    pub fn uid(&mut self, uid: u32) -> &mut Self {
        self.options.uid = Some(uid);
        self
    }

    /// Sets the group id. The helper needs the privilege.
    pub fn gid(&mut self, gid: u32) -> &mut Self {
        self.options.gid = Some(gid);
        self
    }

    /// Sets the supplementary groups. The helper needs the privilege.
    pub fn groups(&mut self, groups: &[u32]) -> &mut Self {
        self.options.groups = Some(groups.to_vec());
        self
    }

    /// Says whether the tree may never gain privileges (`PR_SET_NO_NEW_PRIVS`).
    pub fn no_new_privs(&mut self, never: bool) -> &mut Self {
        self.options.no_new_privs = never;
        self
    }

    /// Sets the signal that the leader gets when the helper dies; 0 is none.
    ///
    /// It is a second line behind the helper's own watch. Without it: KILL, and none for a
    /// [`detachable`](Self::detachable) command.
    pub fn parent_death_signal(&mut self, number: i32) -> &mut Self {
        self.options.death_signal = Some(number);
        self
    }

    /// Says whether the command starts with the signals blocked that the spawning thread has
    /// blocked. Without it, no signal is blocked.
    pub fn inherit_signal_mask(&mut self, inherit: bool) -> &mut Self {
        self.options.inherit_signal_mask = inherit;
        self
    }

    /// Makes the terminal under this descriptor of the command its controlling one.
    pub fn controlling_terminal(&mut self, target: i32) -> &mut Self {
        self.options.controlling_terminal = Some(target);
        self
    }

    /// Sets the containment level. Without it: the strongest that the helper offers here.
    ///
    /// Where the level cannot be had, what is left of it is used, and the child's
    /// [`containment`](crate::Child::containment) says what is missing.
    pub fn level(&mut self, level: LevelChoice) -> &mut Self {
        self.level = Some(level);
        self
    }

    /// Sets the least level that is accepted. Below it the spawn is rejected.
    pub fn require(&mut self, level: Level) -> &mut Self {
        self.require = Some(level);
        self
    }

    /// Sets what happens to the rest of the tree when the leader exits.
    pub fn on_exit(&mut self, on_exit: OnExit) -> &mut Self {
        self.on_exit = on_exit;
        self
    }

    /// Sets the time after which the tree is ended, counted from the fork.
    ///
    /// The helper keeps the time, so it holds even if this process hangs, and also after the
    /// leader has exited.
    pub fn deadline(&mut self, deadline: Duration) -> &mut Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the time between TERM and KILL at the deadline, when the child is dropped and
    /// when this process dies. Without it: [`DEFAULT_GRACE`](crate::DEFAULT_GRACE).
    pub fn grace(&mut self, grace: Duration) -> &mut Self {
        self.grace = grace;
        self
    }

    /// Sets the first signal of every ending that names none: at the deadline, on exit, when
    /// the child is dropped and when this process dies. Without it: TERM.
    pub fn first_signal(&mut self, number: i32) -> &mut Self {
        self.options.first_signal = Some(number);
        self
    }

    /// Sets how long output is still read after the leader's exit, for
    /// [`output`](Self::output) and [`wait_with_output`](crate::Child::wait_with_output).
    /// Without it: [`DEFAULT_DRAIN`](crate::DEFAULT_DRAIN).
    ///
    /// What the leader wrote is always read; the time is for members of its tree that still
    /// hold the pipe.
    pub fn drain(&mut self, drain: Duration) -> &mut Self {
        self.drain = drain;
        self
    }

    /// Says whether the child may be released while its leader runs.
    pub fn detachable(&mut self, detachable: bool) -> &mut Self {
        self.detachable = detachable;
        self
    }

    /// Sets a text that comes back in [`Helper::list`](crate::Helper::list).
    pub fn label(&mut self, label: impl AsRef<OsStr>) -> &mut Self {
        self.label = label.as_ref().to_owned();
        self
    }
}
