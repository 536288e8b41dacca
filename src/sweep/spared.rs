//! Whom a sweep never signals: this process, its ancestors, and its process group.

use std::collections::HashSet;

use nix::unistd::{getpgrp, getpid};

use super::processes::{Stat, stat};

/// How many ancestors are looked for.
const MOST_ANCESTORS: usize = 4096;

/// Those who are spared.
#[derive(Debug)]
pub(super) struct Spared {
    kin: HashSet<i32>,
    group: i32,
}

impl Spared {
    /// Finds them. An ancestor lives as long as what is below it has that parent; one that dies
    /// meanwhile may leave a number here, and a stranger with that number is spared.
    pub(super) fn find() -> Self {
        let mut kin = HashSet::from([getpid().as_raw()]);
        let mut at = getpid().as_raw();
        while kin.len() < MOST_ANCESTORS {
            match stat(at) {
                Ok(stat) if stat.parent > 0 && kin.insert(stat.parent) => at = stat.parent,
                Ok(_) | Err(_) => break,
            }
        }
        Self {
            kin,
            group: getpgrp().as_raw(),
        }
    }

    pub(super) fn has(&self, stat: &Stat) -> bool {
        stat.pid <= 1 || stat.group == self.group || self.kin.contains(&stat.pid)
    }
}
