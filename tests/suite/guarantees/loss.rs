//! Helper and keepers are killed together while their host lives: what the client ends by
//! itself, and what it does not.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use foster::{Child, Helper, Level, LevelChoice};
use foster_tests::{
    DEATH, SETTLE, Stage, Tracer, Witness, clean_up, eventually, is_root, not_run, note_not_run,
    proc,
};
use nix::sys::resource::Resource;

use crate::ground::{helper, pid, sh};

/// The user of the bomb alone: the kernel counts every process of a user.
const BOMBED: u32 = 64_351;

/// How many processes the bomb's user may have.
const BOMB: u64 = 200;

/// A daemon without its environment, which is what survives a leader, and the leader.
const DAEMON: &str = "( setsid sh -c 'echo $$; cd /; exec env -i sleep 60 2>&-' & ); exec sleep 60";

/// A session whose helper and keeper the test can kill.
struct Kept {
    child: Child,
    helper: Helper,
    /// Those whose death leaves the session to the client.
    keepers: Vec<Witness>,
    /// The session's cgroup, which only they would have removed.
    leaf: Option<PathBuf>,
}

impl Kept {
    fn new(helper: Helper, child: Child) -> Self {
        let leader = i32::try_from(child.id()).expect("a pid fits");
        let own = pid(&helper);
        let mut keepers = vec![Witness::of(own)];
        // The leader is not reaped and its parent is in its place before and after, so that the
        // number is the keeper's.
        let parent = || proc::stat(leader).map(|leader| leader.parent);
        let keeper = parent().expect("the leader is not reaped");
        if keeper != own {
            keepers.push(Witness::of(keeper));
            assert_eq!(parent(), Some(keeper), "the leader's parent");
        }
        let leaf = (child.containment().level == Level::Cgroup).then(|| cgroup_of(leader));
        Self {
            child,
            helper,
            keepers,
            leaf,
        }
    }
}

/// Kills helper and keeper at once: stopped first, so that neither acts on the other's death.
pub(crate) fn kill_together(keepers: &[Witness]) {
    for keeper in keepers {
        keeper.stop();
    }
    for keeper in keepers {
        keeper.signal(libc::SIGKILL);
    }
    for keeper in keepers {
        keeper.wait_for_death(DEATH);
    }
}

/// Removes the cgroup of a session that nobody is left of.
pub(crate) fn remove(leaf: Option<PathBuf>) {
    let Some(leaf) = leaf else { return };
    eventually("the cgroup is empty", SETTLE, || {
        fs::remove_dir(&leaf).is_ok() || !leaf.exists()
    });
}

/// The directory of a process's cgroup.
pub(crate) fn cgroup_of(pid: i32) -> PathBuf {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("its cgroups");
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"));
    let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts");
    let point = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let point = fields.nth(1)?;
        (fields.next() == Some("cgroup2")).then_some(point)
    });
    PathBuf::from(point.expect("cgroup v2 is mounted")).join(own.expect("a cgroup of version 2"))
}

/// Whether the level can be had here. Where it cannot, the test says so.
pub(crate) fn offers(helper: &Helper, level: Level, what: &str) -> bool {
    let levels = &helper.capabilities().levels;
    let found = levels.iter().find(|one| one.level == level);
    let is_there = found.is_some_and(|found| found.errno == 0);
    if !is_there {
        not_run(what, &format!("level {level:?} cannot be had: {found:?}"));
    }
    is_there
}

/// A session with a daemon that has left it.
fn start(stage: &Stage, level: Level, what: &str) -> Option<(Kept, Tracer, Witness)> {
    let helper = helper();
    if !offers(&helper, level, what) {
        return None;
    }
    let (mut tracer, writer) = Tracer::new();
    let child = sh(stage, &helper, DAEMON)
        .level(LevelChoice::Exactly(level))
        .stdout(writer)
        .spawn()
        .expect("the command");
    let daemon = Witness::of(tracer.pid());
    Some((Kept::new(helper, child), tracer, daemon))
}

#[test]
fn nothing_is_left_at_the_next_call_after_helper_and_keeper_are_killed() {
    let stage = Stage::new();
    let Some((kept, mut tracer, daemon)) = start(&stage, Level::Cgroup, "a call after the loss")
    else {
        return;
    };
    kill_together(&kept.keepers);
    assert!(daemon.is_alive(), "nobody has acted yet");
    assert!(kept.helper.is_lost());
    daemon.wait_for_death(DEATH);
    tracer.wait_for_end(DEATH);
    remove(kept.leaf);
}

#[test]
fn nothing_is_left_at_the_next_drop_after_helper_and_keeper_are_killed() {
    let stage = Stage::new();
    let Some((kept, mut tracer, daemon)) = start(&stage, Level::Cgroup, "a drop after the loss")
    else {
        return;
    };
    kill_together(&kept.keepers);
    assert!(daemon.is_alive(), "nobody has acted yet");
    drop(kept.child);
    daemon.wait_for_death(DEATH);
    tracer.wait_for_end(DEATH);
    remove(kept.leaf);
}

#[test]
fn nothing_is_left_at_once_where_the_helper_is_watched() {
    let stage = Stage::new();
    let Some((kept, mut tracer, daemon)) = start(&stage, Level::Cgroup, "a watched loss") else {
        return;
    };
    kept.helper.watch().expect("room for a thread");
    kept.helper.watch().expect("a second call does nothing");
    kill_together(&kept.keepers);
    daemon.wait_for_death(DEATH);
    tracer.wait_for_end(DEATH);
    remove(kept.leaf);
}

#[test]
fn nothing_is_left_of_a_dropped_session_whose_grace_the_helper_does_not_survive() {
    let stage = Stage::new();
    let helper = helper();
    if !offers(&helper, Level::Cgroup, "a drop before the loss") {
        return;
    }
    let (mut tracer, writer) = Tracer::new();
    let script = "trap '' TERM; setsid sh -c 'echo ready; exec sleep 60' & wait; sleep 60";
    let child = sh(&stage, &helper, script)
        .level(LevelChoice::Exactly(Level::Cgroup))
        .grace(Duration::from_secs(30))
        .stdout(writer)
        .spawn()
        .expect("the command");
    tracer.line();
    let Kept {
        child,
        helper,
        keepers,
        leaf,
    } = Kept::new(helper, child);
    drop(child);
    helper.ping().expect("the helper lives");
    kill_together(&keepers);
    assert!(tracer.is_held(), "nobody has acted yet");
    assert!(helper.is_lost());
    tracer.wait_for_end(DEATH);
    remove(leaf);
}

#[test]
fn bomb_of_another_user_ends_at_the_next_call_after_helper_and_keeper_are_killed() {
    if !is_root() {
        return note_not_run("a bomb", "this is not root, and its processes count too");
    }
    let stage = Stage::new();
    let helper = helper();
    if !offers(&helper, Level::Cgroup, "a bomb after the loss") {
        return;
    }
    let (mut tracer, writer) = Tracer::new();
    let bomb = foster_tests::places::fixture("bombs-with-sessions");
    let child = crate::ground::command(&stage, &helper, bomb.to_str().expect("a path of text"))
        .level(LevelChoice::Exactly(Level::Cgroup))
        .uid(BOMBED)
        .gid(BOMBED)
        .resource_limit(Resource::RLIMIT_NPROC as u32, BOMB, BOMB)
        .stdout(writer)
        .spawn()
        .expect("the bomb");
    assert_eq!(tracer.line(), "full");
    let kept = Kept::new(helper, child);
    kill_together(&kept.keepers);
    assert!(tracer.is_held(), "the bomb goes on");
    assert!(kept.helper.is_lost());
    tracer.wait_for_end(DEATH);
    remove(kept.leaf);
}

#[test]
fn released_session_lives_on_after_helper_and_keeper_are_killed() {
    let stage = Stage::new();
    let helper = helper();
    if !offers(&helper, Level::Cgroup, "a release before the loss") {
        return;
    }
    let (mut tracer, writer) = Tracer::new();
    let child = sh(&stage, &helper, DAEMON)
        .level(LevelChoice::Exactly(Level::Cgroup))
        .detachable(true)
        .stdout(writer)
        .spawn()
        .expect("the command");
    let daemon = Witness::of(tracer.pid());
    let leader = Witness::of(i32::try_from(child.id()).expect("a pid fits"));
    let kept = Kept::new(helper, child);
    kept.child.session().release().expect("it is detachable");
    kill_together(&kept.keepers);
    assert!(kept.helper.is_lost());
    drop(kept.child);
    tracer.assert_held_for(Duration::from_millis(200));
    assert!(daemon.is_alive() && leader.is_alive(), "both were let go");
    clean_up(&[daemon, leader]);
    tracer.wait_for_end(DEATH);
    remove(kept.leaf);
}

/// What the cgroup's descriptor is for: without a cgroup, nobody is left who could find a daemon.
#[test]
fn control_daemon_outlives_helper_and_keeper_where_there_is_no_cgroup() {
    for level in [Level::Group, Level::Tree] {
        let stage = Stage::new();
        let Some((kept, mut tracer, daemon)) = start(&stage, level, "the control") else {
            continue;
        };
        kill_together(&kept.keepers);
        assert!(kept.helper.is_lost());
        drop(kept.child);
        tracer.assert_held_for(Duration::from_millis(200));
        assert!(daemon.is_alive(), "{level:?}");
        clean_up(&[daemon]);
        tracer.wait_for_end(DEATH);
    }
}
