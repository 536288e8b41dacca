//! Finding the members of a session, by the means of each containment level.

pub(crate) mod cgroup;
pub(crate) mod group;
pub(crate) mod namespace;
