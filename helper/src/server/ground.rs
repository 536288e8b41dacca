//! What every look at a tree stands on: whose children are whose.

use std::io;

use foster_protocol::Reject;

use super::{Role, Server};
use crate::contain::group::{Claim, Ground};
use crate::sys::own;

impl Server {
    /// Runs something on the ground that every walk stands on.
    pub(super) fn with_ground<T>(&self, run: impl FnOnce(&Ground<'_>) -> T) -> T {
        let claim = |sid: i32| self.claim(sid);
        let orphans = || self.orphans();
        run(&Ground {
            orphans: self.adopted.is_some().then_some(&orphans),
            all_ours: self.role == Role::Keeper,
            is_first: self.role == Role::Keeper && self.isolation.is_some(),
            own: self.context.helper_pid,
            pidfds: self.context.features.pidfd,
            claim: &claim,
        })
    }

    /// Our children but for leaders and keepers.
    pub(super) fn orphans(&self) -> io::Result<Vec<i32>> {
        let mut found = match (&self.adopted, self.role) {
            (Some(adopted), Role::Helper) => adopted.list()?,
            (Some(_), Role::Keeper) | (None, _) => Vec::new(),
        };
        found.extend(self.strays()?);
        Ok(found)
    }

    /// The children of this thread that it did not fork: in a keeper, which has no other
    /// thread, the adopted orphans; in a helper what a leader made a sibling of itself
    /// (`CLONE_PARENT`).
    pub(super) fn strays(&self) -> io::Result<Vec<i32>> {
        let Some(own) = &self.own_children else {
            return Ok(Vec::new());
        };
        let mut found = own.list()?;
        found.retain(|pid| !self.unreaped.contains(pid));
        Ok(found)
    }

    /// Reaps dead strays. The main thread does not see them.
    pub(super) fn reap_strays(&self) -> io::Result<()> {
        for pid in self.strays()? {
            own::reap_one(pid)?;
        }
        Ok(())
    }

    /// Checks that one more request may wait.
    pub(super) fn check_room(&self) -> Result<(), Reject> {
        match self.role {
            Role::Helper => self.table.check_room(self.relay_waiting),
            // Its client is the helper, which has checked and waits along.
            Role::Keeper => Ok(()),
        }
    }

    /// Whose a kernel session id is. A child that is not yet isolated is in our own.
    pub(super) fn claim(&self, sid: i32) -> Claim {
        if sid == self.context.helper_pid || self.leaders.contains(&sid) {
            Claim::Ours
        } else if self.released.contains(&sid) {
            Claim::Released
        } else {
            Claim::Nobody
        }
    }
}
