//! Three users: root launches a helper, the host becomes nobody, and the commands are a third
//! one's. What was sealed is had, the rest is refused, and trees end across users.

use foster::Level;
use foster_tests::{
    DEATH, Host, Program, SETTLE, Stage, Witness, eventually, is_root, note_not_run, proc,
};

use crate::loss::{cgroup_of, kill_together, remove};

/// Whose processes the host may have started.
const THIRD: u32 = 65_533;

const LEVELS: [Level; 3] = [Level::Group, Level::Tree, Level::Cgroup];

/// A host that has become nobody and has a tree of the third user.
fn start(stage: &Stage, level: Level, how: &str) -> Option<Host> {
    if !is_root() {
        note_not_run("a host that gives up root", "this is not root");
        return None;
    }
    if level == Level::Cgroup && !crate::loss::offers(&crate::ground::helper(), level, how) {
        return None;
    }
    let word = match level {
        Level::Direct | Level::Group => "group",
        Level::Tree => "tree",
        Level::Cgroup | Level::Namespace => "cgroup",
    };
    let program = Program::fixture(stage, "host-that-drops")
        .arg(word)
        .arg(how);
    let host = Host::started(program, 1);
    assert_eq!(user_of(host.process.pid()), 65_534, "the host");
    assert_eq!(user_of(host.helper.pid()), 0, "its helper");
    assert_eq!(user_of(member(&host).pid()), THIRD, "its command");
    Some(host)
}

/// The member that has left the leader's group, or its session.
fn member(host: &Host) -> &Witness {
    host.members("member").first().expect("one member")
}

fn user_of(pid: i32) -> u32 {
    let uids = proc::status_field(pid, "Uid").expect("it lives");
    let real = uids.split_ascii_whitespace().next();
    real.and_then(|uid| uid.parse().ok()).expect("a number")
}

/// Waits until the tree is gone: its member, and everybody who holds the host's output.
fn assert_gone(mut host: Host, what: &str) {
    member(&host).wait_for_death(DEATH);
    host.process.close_stdin();
    let finished = host.process.finish(DEATH);
    assert_eq!(finished.code(), 0, "{what}: {finished:?}");
}

#[test]
fn tree_of_another_user_ends_by_kill_drop_and_deadline() {
    for level in LEVELS {
        for how in ["kill", "drop", "deadline"] {
            let stage = Stage::new();
            let Some(mut host) = start(&stage, level, how) else {
                continue;
            };
            match how {
                "kill" => {
                    host.process.say("kill");
                    assert_eq!(host.process.stdout.line(), "AllGone", "{level:?}");
                }
                "drop" => host.process.say("drop"),
                _ => {
                    host.process.say("wait");
                    assert_eq!(host.process.stdout.line(), "Some(Deadline)", "{level:?}");
                }
            }
            assert_gone(host, &format!("{level:?} by {how}"));
        }
    }
}

#[test]
fn tree_of_another_user_ends_when_the_host_that_became_nobody_is_killed() {
    for level in LEVELS {
        let stage = Stage::new();
        let Some(mut host) = start(&stage, level, "killed") else {
            continue;
        };
        host.process.signal(libc::SIGKILL);
        host.process.stdout.wait_for_end(DEATH);
        host.helper.wait_for_death(DEATH);
        assert!(!member(&host).is_alive(), "{level:?}");
        host.process.wait(DEATH);
    }
}

#[test]
fn what_is_sealed_away_is_refused_before_any_fork() {
    let stage = Stage::new();
    let Some(mut host) = start(&stage, Level::Tree, "sealed") else {
        return;
    };
    host.process.say("try");
    let mut lines = || host.process.stdout.line();
    for what in ["Uid", "Uid", "Gid", "Gid"] {
        assert_eq!(lines(), format!("NotPermitted {{ what: {what} }}"));
    }
    assert_eq!(lines(), "Some(NotPermitted { what: Program })");
    assert_eq!(lines(), "Some(NotPermitted { what: Uid })");
    assert_eq!(lines(), "0 forks");
    assert_eq!(lines(), "ProgramNotFound", "what is allowed is tried");
    assert_eq!(lines(), "1 forks");
    host.process.say("kill");
    assert_eq!(host.process.stdout.line(), "AllGone");
    assert_gone(host, "sealed");
}

#[test]
fn host_that_became_nobody_finds_no_way_into_its_helper() {
    let stage = Stage::new();
    let Some(mut host) = start(&stage, Level::Tree, "prying") else {
        return;
    };
    host.process.say("pry");
    for way in ["fd", "environ", "mem", "ptrace"] {
        assert_eq!(host.process.stdout.line(), format!("{way}: refused"));
    }
    assert_eq!(host.process.stdout.line(), "exit status: 0");
    assert_gone_by_drop(host);
}

fn assert_gone_by_drop(mut host: Host) {
    host.process.say("drop");
    assert_gone(host, "dropped");
}

/// The host could neither signal the third user's processes nor open their `cgroup.kill`: it was
/// opened for it.
#[test]
fn host_that_became_nobody_ends_the_tree_of_a_lost_helper_and_keeper() {
    let stage = Stage::new();
    let Some(mut host) = start(&stage, Level::Cgroup, "loss") else {
        return;
    };
    let leaf = cgroup_of(member(&host).pid());
    let keepers = proc::children(host.helper.pid());
    let keepers: Vec<Witness> = keepers.iter().map(|one| Witness::of(one.pid)).collect();
    assert_eq!(keepers.len(), 1, "one session, one keeper");
    let mut all = vec![Witness::of(host.helper.pid())];
    all.extend(keepers);
    kill_together(&all);
    assert!(member(&host).is_alive(), "nobody has acted yet");
    host.process.say("ask");
    assert_eq!(host.process.stdout.line(), "lost");
    member(&host).wait_for_death(DEATH);
    eventually("the leader is gone, too", SETTLE, || {
        foster_tests::find_tagged(stage.tag()).len() == 1
    });
    assert_gone(host, "lost");
    remove(Some(leaf));
}
