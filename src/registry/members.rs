//! Who belongs to a service, as far as that can be shown while its leader is held.
//!
//! A member is in the kernel session that the leader leads, or a child of a member. Each is
//! held by a pidfd before it is looked at, and counts only if the one that ties it to the
//! service is alive after the look. Nothing here signals.

use std::collections::BTreeSet;
use std::fs;

use crate::identity::{Held, Stat, stat};

/// The most members of one service that are held at a time: each takes a descriptor of the
/// host's. A larger tree is ended in several rounds.
const MEMBERS_LIMIT: usize = 256;

/// The deepest chain of parents that is followed.
const DEPTH_LIMIT: usize = 256;

/// Adds to the members of a leader those who are not among them yet; true where there were any.
pub(super) fn find(leader: &Held, members: &mut Vec<Held>) -> bool {
    let before = members.len();
    loop {
        let found = one_pass(leader, members);
        if found.is_empty() {
            return members.len() > before;
        }
        members.extend(found);
    }
}

fn one_pass(leader: &Held, members: &[Held]) -> Vec<Held> {
    let known: BTreeSet<u32> = members
        .iter()
        .filter(|member| member.is_alive())
        .map(Held::pid)
        .collect();
    let mut found = Vec::new();
    for pid in pids() {
        if pid == leader.pid() || known.contains(&pid) {
            continue;
        }
        if members.len() + found.len() >= MEMBERS_LIMIT {
            break;
        }
        let is_candidate = |stat: &Stat| tie(stat, leader, members).is_some();
        // The first look spares strangers the pidfd; the second one, with the pidfd, counts.
        if !stat(pid).as_ref().is_some_and(is_candidate) {
            continue;
        }
        let Ok(member) = Held::open(pid) else {
            continue;
        };
        let Some(facts) = stat(pid) else { continue };
        let is_tied = tie(&facts, leader, members).is_some_and(Held::is_alive);
        if is_tied && member.is_alive() {
            found.push(member);
        }
    }
    found
}

/// The process that makes this one a member, if it is one: while that lives, its number is
/// its own.
fn tie<'a>(stat: &Stat, leader: &'a Held, members: &'a [Held]) -> Option<&'a Held> {
    if stat.session == leader.pid() || stat.parent == leader.pid() {
        return Some(leader);
    }
    members.iter().find(|member| member.pid() == stat.parent)
}

/// Whether this process is of the service: a signal to all of it would be one to us.
pub(super) fn holds_caller(leader: &Held) -> bool {
    let own = std::process::id();
    let Some(facts) = stat(own) else {
        // Without /proc there is nobody to find, and so nobody to signal.
        return true;
    };
    if facts.session == leader.pid() || facts.group == leader.pid() {
        return true;
    }
    let mut parent = facts.parent;
    for _ in 0..DEPTH_LIMIT {
        if parent == leader.pid() {
            return true;
        }
        match stat(parent) {
            Some(facts) if facts.parent != 0 => parent = facts.parent,
            Some(_) | None => break,
        }
    }
    false
}

/// Every number that is a process's at the moment.
pub(super) fn pids() -> Vec<u32> {
    let entries = match fs::read_dir("/proc") {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(%error, "processes cannot be listed");
            return Vec::new();
        }
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}
