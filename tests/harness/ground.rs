//! The ground on which a program is run: as whom, and what of the machine it does not get.

use std::fmt;

use crate::cgroups::Cgroup;
use crate::places;
use crate::stage::{Stage, is_root};

/// Names the ground of every `foster` of a run: `cgroups=no`, `namespaces=no` and `user=N`, with
/// commas between them.
pub const GROUND: &str = "FOSTER_TEST_GROUND";

/// Conditions that are taken away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ground {
    /// The user, where it is another one.
    pub user: Option<u32>,
    /// Whether no cgroup can be made.
    pub is_without_cgroups: bool,
    /// Whether no namespace can be made.
    pub is_without_namespaces: bool,
}

impl Ground {
    /// The one that the environment names.
    ///
    /// # Panics
    ///
    /// Where a word is not known.
    #[must_use]
    pub fn of_environment() -> Self {
        let mut ground = Self::default();
        let words = std::env::var(GROUND).unwrap_or_default();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some(("cgroups", "no")) => ground.is_without_cgroups = true,
                Some(("namespaces", "no")) => ground.is_without_namespaces = true,
                Some(("user", number)) => {
                    ground.user = Some(number.parse().expect("the number of a user"));
                }
                _ => panic!("{GROUND} has no {word:?}"),
            }
        }
        ground
    }

    /// What is missing for it here; none where it can be had.
    #[must_use]
    pub fn missing(self) -> Option<&'static str> {
        let needs_root = self.user.is_some() || self.is_without_cgroups;
        (needs_root && !is_root()).then_some("this is not root")
    }

    /// The words for `on-ground`, and the cgroup that the user is given to make others in.
    pub(crate) fn words(self, stage: &Stage) -> (Vec<String>, Option<Cgroup>) {
        let mut words = Vec::new();
        let mut given = None;
        if self.is_without_cgroups {
            words.push("cgroups=no".to_owned());
        }
        if let Some(user) = self.user {
            words.push(format!("user={user}"));
            // Nobody else than root may make any without that.
            let is_wanted = !self.is_without_cgroups;
            given = is_wanted.then(|| Cgroup::unified(stage).ok()).flatten();
            if let Some(cgroup) = &given {
                cgroup.give_to(user);
                words.push(format!("enter={}", cgroup.procs().display()));
            }
        }
        if self.is_without_namespaces {
            words.push("namespaces=no".to_owned());
        }
        (words, given)
    }

    /// Whether it is the machine as it is.
    pub(crate) fn is_plain(self) -> bool {
        self == Self::default()
    }

    /// The program that takes the conditions away.
    pub(crate) fn wrapper() -> std::path::PathBuf {
        places::fixture("on-ground")
    }
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with = |is_without: bool| if is_without { "without" } else { "with" };
        let cgroups = with(self.is_without_cgroups);
        let namespaces = with(self.is_without_namespaces);
        match self.user {
            Some(user) => write!(f, "user {user}")?,
            None => f.write_str("the user of the tests")?,
        }
        write!(f, ", {cgroups} cgroups, {namespaces} namespaces")
    }
}
