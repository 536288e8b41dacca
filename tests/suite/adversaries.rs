//! Adversaries: what commands, their users and their machines do to get away, at each level.

#[path = "adversaries/ground.rs"]
mod ground;

#[path = "adversaries/ends.rs"]
mod ends;
#[path = "adversaries/frozen.rs"]
mod frozen;
#[path = "adversaries/killed_before.rs"]
mod killed_before;
#[path = "adversaries/losses.rs"]
mod losses;
#[path = "adversaries/movers.rs"]
mod movers;
#[path = "adversaries/multitudes.rs"]
mod multitudes;
#[path = "adversaries/mute.rs"]
mod mute;
#[path = "adversaries/namespaces.rs"]
mod namespaces;
#[path = "adversaries/newborns.rs"]
mod newborns;
#[path = "adversaries/outsiders.rs"]
mod outsiders;
#[path = "adversaries/roots.rs"]
mod roots;
#[path = "adversaries/setuid.rs"]
mod setuid;
#[path = "adversaries/tracers.rs"]
mod tracers;
#[path = "adversaries/widely.rs"]
mod widely;
