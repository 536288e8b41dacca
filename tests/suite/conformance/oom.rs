//! The OOM score adjustment of a command that asks for none: that of its host, whatever its
//! helper has made of its own.

use std::fs;

use foster_protocol::{Level, Spec};
use foster_tests::{Stage, at_level, is_root, note_not_run};

/// The user of these tests alone.
const OTHER: u32 = 64_353;

const LEVELS: [Level; 4] = [Level::Group, Level::Tree, Level::Cgroup, Level::Namespace];

/// This process's own, which a helper that it launches inherits.
fn own() -> i32 {
    let text = fs::read_to_string("/proc/self/oom_score_adj").expect("the score");
    text.trim().parse().expect("a number")
}

/// Tries to have a lower score than the host has.
fn lowering() -> String {
    let below = (own() - 1).max(-1000);
    format!("sh -c 'echo {below} > /proc/self/oom_score_adj' 2>/dev/null && echo lower || echo no")
}

#[test]
fn command_has_the_score_of_its_host_at_every_level() {
    let expected = format!("{}\n", own());
    for user in [None, Some(OTHER)] {
        if user.is_some() && !is_root() {
            note_not_run(
                "a helper of an ordinary user beside root's",
                "this is not root",
            );
            continue;
        }
        let stage = Stage::new();
        let launch = stage.launch();
        let launch = user
            .into_iter()
            .fold(launch, |launch, user| launch.as_user(user));
        let mut link = launch.greeted();
        for level in LEVELS {
            let spec = stage.command("/bin/cat", &["/proc/self/oom_score_adj"]);
            let (exit, output) = link.output(at_level(level, spec));
            assert_eq!(exit.status, 0, "{level:?} as {user:?}");
            assert_eq!(
                String::from_utf8_lossy(&output),
                expected,
                "{level:?} as {user:?}"
            );
        }
    }
}

#[test]
fn command_without_privileges_cannot_lower_its_score_below_that_of_its_host() {
    if !is_root() {
        return note_not_run("a helper that may lower its own", "this is not root");
    }
    let stage = Stage::new();
    let mut link = stage.link();
    for level in LEVELS {
        let spec = Spec {
            uid: Some(OTHER),
            gid: Some(OTHER),
            ..at_level(level, stage.sh(&lowering()))
        };
        let (_, output) = link.output(spec);
        assert_eq!(String::from_utf8_lossy(&output), "no\n", "{level:?}");
    }
}

/// What the test above is about: whoever was lowered by a privileged process may go back there.
#[test]
fn control_score_that_is_not_given_back_by_a_privileged_process_can_be_lowered_again() {
    if !is_root() {
        return note_not_run("a process that may lower its own score", "this is not root");
    }
    let stage = Stage::new();
    let mut link = stage.link();
    let script = format!(
        "echo -900 > /proc/self/oom_score_adj || exit 9; \
         exec setpriv --reuid {OTHER} --regid {OTHER} --clear-groups sh -c \
         \"echo {} > /proc/self/oom_score_adj; $LOWERING\"",
        own()
    );
    let mut spec = stage.sh(&script);
    let entry = format!("LOWERING={}", lowering());
    spec.env.push(entry.as_str().into());
    let (exit, output) = link.output(spec);
    if exit.status == 9 << 8 {
        return note_not_run("the control", "this root has no CAP_SYS_RESOURCE");
    }
    assert_eq!(String::from_utf8_lossy(&output), "lower\n");
}
