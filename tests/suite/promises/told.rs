//! What a host was told of an ending, as the host of a cell says it in one line.

use std::collections::{BTreeMap, BTreeSet};

use foster_tests::Witness;

/// What a host was told of an ending.
pub(crate) struct Told {
    pub(crate) is_all_gone: bool,
    pub(crate) is_incomplete: bool,
    /// Who is left, and why.
    pub(crate) named: BTreeMap<i32, String>,
}

impl Told {
    pub(crate) fn parse(said: &str) -> Self {
        let mut words = said.split(' ');
        let verdict = words.next().unwrap_or_default();
        let mut named = BTreeMap::new();
        for (why, pid) in words.filter_map(|word| word.split_once(':')) {
            let pid = pid.parse().expect("a process number");
            // Survivors come first: one that is adopted too keeps the better reason.
            named.entry(pid).or_insert_with(|| why.to_owned());
        }
        Self {
            is_all_gone: verdict == "AllGone",
            is_incomplete: verdict == "Incomplete",
            named,
        }
    }

    pub(crate) fn reasons(&self) -> BTreeSet<String> {
        let reasons: BTreeSet<String> = self.named.values().cloned().collect();
        if reasons.is_empty() {
            // Nobody could be held long enough to be named.
            return BTreeSet::from(["fork_rate".to_owned()]);
        }
        reasons
    }

    /// Whether everybody who lives is named, or is of a session that is.
    pub(crate) fn names_all(&self, members: &[Witness]) -> bool {
        let is_listed = self.named.values().any(|why| why == "listed");
        let mut living = members.iter().filter(|member| member.is_alive());
        is_listed || living.all(|member| self.named.contains_key(&member.pid()))
    }
}
