//! Identity of real processes: who is ours, and who is not signalled.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use foster::identity::{self, Held, IdentityError, Markers, NotSignalable, Reach};
use foster_tests::{DEATH, Stage, is_root, not_run, places};

const KEY: &str = "ACME_SERVICE";

/// A child with these variables that lives for a minute. Its program runs by now.
fn child(stage: &Stage, variables: &[(&str, &str)]) -> Child {
    Command::new("sleep")
        .arg("60")
        .env(foster_tests::TAG, stage.tag())
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("sleep is there")
}

fn end(mut child: Child) {
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
}

#[test]
fn only_a_live_child_with_both_markers_is_ours() {
    let stage = Stage::new();
    let marked = child(&stage, &[("FOSTER_CHILD", "1"), (KEY, "web")]);
    let unmarked = child(&stage, &[]);
    let half = child(&stage, &[(KEY, "web")]);
    assert!(identity::is_live_child(marked.id(), KEY, "web"));
    for (key, name) in [(KEY, "we"), (KEY, "web2"), (KEY, "db"), ("ACME", "web")] {
        assert!(!identity::is_live_child(marked.id(), key, name), "{name}");
    }
    assert!(!identity::is_live_child(unmarked.id(), KEY, "web"));
    assert!(!identity::is_live_child(half.id(), KEY, "web"));
    let pid = marked.id();
    end(marked);
    assert!(!identity::is_live_child(pid, KEY, "web"));
    end(unmarked);
    end(half);
}

#[test]
fn command_that_was_marked_is_known_by_its_markers() {
    let stage = Stage::new();
    let builder = foster::Helper::builder().path(places::helper().path);
    let helper = builder.launch().expect("the helper under test starts");
    let child = foster::Command::new("sleep")
        .arg("60")
        .markers(&Markers::new(KEY, "web").expect("well formed"))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env(foster_tests::TAG, stage.tag())
        .stdout(foster::Stdio::null())
        .helper(&helper)
        .spawn()
        .expect("sleep is there");
    assert!(identity::is_live_child(child.id(), KEY, "web"));
    let held = Held::of(&child).expect("a pidfd came with it");
    assert_eq!(held.pid(), child.id());
    let same = Held::open(child.id()).expect("it lives");
    assert_eq!(held.pidfs_id(), same.pidfs_id());
    child.kill().expect("it ends");
    assert!(!held.is_alive());
}

#[test]
fn zombie_that_answers_signal_0_is_not_alive() {
    let stage = Stage::new();
    let mut zombie = child(&stage, &[("FOSTER_CHILD", "1"), (KEY, "web")]);
    let held = Held::of_std(&mut zombie).expect("it lives");
    held.signal(libc::SIGKILL).expect("it lives");
    assert!(held.wait_for_exit(DEATH));
    held.signal(0).expect("a zombie still answers");
    assert!(identity::is_zombie(zombie.id()));
    assert!(!held.is_alive());
    assert!(!identity::is_live_child(zombie.id(), KEY, "web"));
    let gone = Held::open(zombie.id()).expect_err("a zombie is not held");
    assert!(matches!(gone, IdentityError::Gone { .. }), "{gone}");
    zombie.wait().expect("it is ours");
    let gone = held.signal(libc::SIGKILL).expect_err("it was reaped");
    assert!(matches!(gone, IdentityError::Gone { .. }), "{gone}");
}

#[test]
fn numbers_that_mean_more_than_one_other_process_are_never_held() {
    for (pid, why) in [
        (0, NotSignalable::OwnGroup),
        (1, NotSignalable::First),
        (u32::MAX, NotSignalable::TooLarge { pid: u32::MAX }),
    ] {
        let error = Held::open(pid).expect_err("it is refused");
        assert!(
            matches!(error, IdentityError::NotSignalable(found) if found == why),
            "{error}"
        );
        assert!(!identity::is_live_child(pid, KEY, "web"));
    }
    let own = std::process::id();
    let error = Held::open(own).expect_err("it is refused");
    assert!(matches!(error, IdentityError::NotSignalable(_)), "{error}");
    assert!(!identity::is_live_child(own, KEY, "web"));
}

#[test]
fn environment_that_cannot_be_read_is_no_identity() {
    let held = foster_tests::proc::pids()
        .into_iter()
        .filter(|pid| *pid > 1)
        .filter(|pid| std::fs::read(format!("/proc/{pid}/environ")).is_err())
        .find_map(|pid| Held::open(pid.unsigned_abs()).ok());
    let Some(held) = held else {
        let why = if is_root() {
            "root reads every environment"
        } else {
            "there is no process of another user"
        };
        foster_tests::note_not_run("an unreadable environment", why);
        return;
    };
    let markers = Markers::new(KEY, "web").expect("well formed");
    assert!(!held.carries(&markers));
}

#[test]
fn group_signal_of_a_process_that_leads_none_reaches_it_alone() {
    let stage = Stage::new();
    // Both are in this test's own group.
    let mut one = child(&stage, &[]);
    let mut other = child(&stage, &[]);
    let held = Held::of_std(&mut one).expect("it lives");
    let reach = held.signal_group(libc::SIGKILL).expect("it lives");
    assert_eq!(reach, Reach::Process);
    assert!(held.wait_for_exit(DEATH));
    let other_held = Held::of_std(&mut other).expect("it lives");
    assert!(!other_held.wait_for_exit(Duration::from_millis(100)));
    end(other);
    one.wait().expect("it is ours");
}

#[test]
fn kernels_own_name_of_a_process_is_never_given_twice() {
    let stage = Stage::new();
    let mut first = child(&stage, &[]);
    let Some(before) = Held::of_std(&mut first).expect("it lives").pidfs_id() else {
        not_run("names of processes", "pidfs, since Linux 6.9");
        return end(first);
    };
    let again = Held::open(first.id()).expect("it lives").pidfs_id();
    assert_eq!(again, Some(before));
    end(first);
    let mut second = child(&stage, &[]);
    let after = Held::of_std(&mut second).expect("it lives").pidfs_id();
    assert_ne!(after, Some(before));
    end(second);
}
