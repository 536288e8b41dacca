//! What an ending says of a process is true of that process.

use std::time::Duration;

use foster::MemberEnd;
use foster_tests::{DEATH, Stage, Tracer, Witness};

use crate::ground::{helper, sh};

/// A member that has left the session while its parent still runs, and that ignores TERM.
const LEAVES: &str = "setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 60' & wait";

#[test]
fn ending_says_of_no_living_process_that_it_has_ended() {
    let stage = Stage::new();
    let helper = helper();
    let (mut tracer, writer) = Tracer::new();
    let child = sh(&stage, &helper, LEAVES).stdout(writer).spawn();
    let child = child.expect("the command");
    // It holds the pipe and lives for a minute, so that the number is its own.
    let member = Witness::of(tracer.pid());
    let ending = child.end(Duration::from_millis(300)).expect("an ending");
    let told = ending.members.iter().find(|one| one.pid.0 == member.pid());
    if member.is_alive() {
        let is_claimed = told.is_some_and(|told| told.ended != MemberEnd::Not);
        assert!(!is_claimed, "it lives: {ending:?}");
        let named = ending
            .unattributed
            .iter()
            .any(|one| one.pid.0 == member.pid());
        assert!(named, "who lives is named: {ending:?}");
    } else {
        assert!(told.is_some(), "who was ended is named: {ending:?}");
    }
    helper
        .shutdown(Duration::from_millis(300))
        .expect("a farewell");
    member.wait_for_death(DEATH);
    tracer.wait_for_end(DEATH);
}

#[test]
fn ending_names_every_member_that_lived_when_it_began() {
    const ROUNDS: u32 = 40;
    for _ in 0..ROUNDS {
        let stage = Stage::new();
        let helper = helper();
        let (mut tracer, writer) = Tracer::new();
        let script = "for n in 1 2 3; do sh -c 'echo $$; exec sleep 60' & done; wait";
        let child = sh(&stage, &helper, script).stdout(writer).spawn();
        let child = child.expect("the command");
        let mut pids = [(); 3].map(|()| tracer.pid());
        let ending = child.end(Duration::from_secs(20)).expect("an ending");
        let mut named: Vec<i32> = ending.members.iter().map(|one| one.pid.0).collect();
        pids.sort_unstable();
        named.sort_unstable();
        assert_eq!(named, pids, "{ending:?}");
        let by_first = |end| end == MemberEnd::ByFirstSignal;
        let is_told = ending.members.iter().all(|one| by_first(one.ended));
        assert!(is_told, "TERM ended each of them: {ending:?}");
    }
}
