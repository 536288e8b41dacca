//! What comes with `Prepared` and `Spawned`: descriptors by which a client that has lost its
//! helper can end a session.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use foster_protocol::{Attached, Level, Reply, Spec};
use foster_tests::{
    Command, DEATH, Link, Stage, Tracer, Witness, at_level, is_root, not_run, note_not_run,
};

/// The user of a session that is not its helper's.
const OTHER: u32 = 64_352;

/// Whether the level can be had here. Where it cannot, the test says so.
fn offers_cgroups(stage: &Stage, what: &str) -> bool {
    let levels = stage.launch().silent().hello().levels;
    let found = levels.iter().find(|one| one.level == Level::Cgroup);
    let is_there = found.is_some_and(|found| found.errno == 0);
    if !is_there {
        not_run(what, &format!("level cgroup cannot be had: {found:?}"));
    }
    is_there
}

/// Spawns, and gives what the reply says that it carries with what it carries.
fn attached(link: &mut Link, command: Command) -> Vec<(Attached, OwnedFd)> {
    let (_, id) = link.start(command);
    let answered = link.answer(id);
    let (Reply::Spawned { attached, .. } | Reply::Prepared { attached, .. }) = answered.reply
    else {
        panic!("{answered:?}")
    };
    assert_eq!(attached.len(), answered.descriptors.len(), "{attached:?}");
    attached.into_iter().zip(answered.descriptors).collect()
}

fn names(attached: &[(Attached, OwnedFd)]) -> Vec<Attached> {
    attached.iter().map(|(what, _)| *what).collect()
}

#[test]
fn pidfd_comes_with_a_session_without_a_cgroup_and_nothing_else() {
    let stage = Stage::new();
    let mut link = stage.link();
    for level in [Level::Group, Level::Tree] {
        let command = Command::new(at_level(level, stage.sleeper()));
        assert_eq!(names(&attached(&mut link, command)), [Attached::Pidfd]);
    }
}

#[test]
fn pidfd_and_cgroup_kill_come_with_prepared_and_with_spawned() {
    let stage = Stage::new();
    if !offers_cgroups(&stage, "what comes with a session in a cgroup") {
        return;
    }
    let mut link = stage.link();
    let both = [Attached::Pidfd, Attached::CgroupKill];
    for gated in [false, true] {
        let spec = Spec {
            gated,
            ..at_level(Level::Cgroup, stage.sleeper())
        };
        let came = attached(&mut link, Command::new(spec));
        assert_eq!(names(&came), both, "gated: {gated}");
    }
}

#[test]
fn cgroup_kill_ends_whoever_has_left_the_session_of_another_user_too() {
    let stage = Stage::new();
    if !offers_cgroups(&stage, "a write to cgroup.kill") {
        return;
    }
    let mut link = stage.link();
    let (mut tracer, writer) = Tracer::new();
    let script = "( setsid sh -c 'echo $$; cd /; exec env -i sleep 60 2>&-' & ); exec sleep 60";
    let mut spec = at_level(Level::Cgroup, stage.sh(script));
    if is_root() {
        (spec.uid, spec.gid) = (Some(OTHER), Some(OTHER));
    } else {
        note_not_run("a command of another user", "this is not root");
    }
    let came = attached(&mut link, Command::new(spec).with(1, writer));
    let daemon = Witness::of(tracer.pid());
    let kill = came
        .into_iter()
        .find(|(what, _)| *what == Attached::CgroupKill);
    let (_, kill) = kill.expect("it is in a cgroup");
    File::from(kill).write_all(b"1").expect("it can be written");
    daemon.wait_for_death(DEATH);
    tracer.wait_for_end(DEATH);
}

#[test]
fn child_in_a_cgroup_has_no_descriptor_of_it() {
    let stage = Stage::new();
    if !offers_cgroups(&stage, "the descriptors of a child in a cgroup") {
        return;
    }
    let mut link = stage.link();
    let spec = at_level(Level::Cgroup, stage.fixture("prints-descriptors", &[]));
    let (_, output) = link.output(spec);
    let text = String::from_utf8_lossy(&output);
    let numbers: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(numbers, ["0", "1", "2"], "{text}");
}
