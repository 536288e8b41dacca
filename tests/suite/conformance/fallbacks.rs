//! Kernels that lack a call: each helper still spawns, reports and ends a tree.

use std::time::Duration;

use foster_protocol::Verdict;
use foster_tests::{ANSWER, DEATH, Link, Stage};

/// Launches a helper for which these calls fail.
fn without(stage: &Stage, calls: &[&str]) -> Link {
    stage.launch().through("without-syscalls", calls).greeted()
}

/// Everything that a helper of any kernel does.
fn assert_works(stage: &Stage, link: &mut Link) {
    let running = link.spawn(stage.sh("exit 7"));
    assert_eq!(link.exit(running.session).status, 7 << 8);
    link.close(running.session);
    link.spawn_failure(stage.command("/missing", &[]));

    let spec = stage.bash("trap '' TERM; sleep 60 & set -m; sleep 60 & echo ready; wait; sleep 60");
    let (running, mut tracer) = link.spawn_traced(spec);
    let ending = link.end(running.session, Duration::from_millis(300));
    assert_eq!(ending.verdict, Verdict::AllGone, "{ending:?}");
    tracer.wait_for_end(DEATH);
    assert_eq!(link.exit(running.session).status, libc::SIGKILL);
    link.close(running.session);

    let (_, output) = link.output(stage.fixture("prints-descriptors", &[]));
    assert_eq!(String::from_utf8_lossy(&output).lines().count(), 3);

    let waits: Vec<_> = (0..50)
        .map(|_| {
            let session = link.spawn(stage.sh("exit 1")).session;
            (session, link.ask_exit(session))
        })
        .collect();
    for (session, wait) in waits {
        assert_eq!(link.exited(wait, ANSWER).status, 1 << 8);
        link.close(session);
    }
    let (_, mut tracer) = link.spawn_traced(stage.sh("sleep 60 & echo ready; exec sleep 60"));
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    tracer.wait_for_end(DEATH);
}

#[test]
fn helper_without_clone3_ends_a_tree() {
    for call in ["clone3", "clone3=EPERM"] {
        let stage = Stage::new();
        let mut link = without(&stage, &[call]);
        assert!(!link.probe().clone3, "{call}");
        assert_works(&stage, &mut link);
    }
}

#[test]
fn helper_without_clone3_and_pidfd_open_ends_a_tree() {
    let stage = Stage::new();
    let mut link = without(&stage, &["clone3", "pidfd_open"]);
    let capabilities = link.probe();
    assert!(
        !capabilities.clone3 && !capabilities.pidfd,
        "{capabilities:?}"
    );
    assert_works(&stage, &mut link);
}

#[test]
fn helper_without_any_pidfd_call_ends_a_tree() {
    let stage = Stage::new();
    let mut link = without(&stage, &["clone3", "pidfd_open", "pidfd_send_signal"]);
    assert!(!link.probe().pidfd);
    assert_works(&stage, &mut link);
}

#[test]
fn helper_without_close_range_ends_a_tree_and_leaks_nothing() {
    let stage = Stage::new();
    let mut link = without(&stage, &["close_range"]);
    assert_works(&stage, &mut link);
    let launch = stage.launch().through("without-syscalls", &["close_range"]);
    let mut link = launch
        .through("with-leaked-descriptors", &["200"])
        .greeted();
    let (_, output) = link.output(stage.fixture("prints-descriptors", &[]));
    assert_eq!(String::from_utf8_lossy(&output).lines().count(), 3);
}

#[test]
fn helper_without_the_group_flag_of_pidfds_ends_a_tree() {
    let stage = Stage::new();
    let mut link = without(&stage, &["pidfd_group"]);
    let capabilities = link.probe();
    assert!(!capabilities.pidfd_group, "{capabilities:?}");
    assert_works(&stage, &mut link);
}

#[test]
fn helper_without_any_of_them_ends_a_tree() {
    let stage = Stage::new();
    let calls = ["clone3", "pidfd_open", "pidfd_send_signal", "close_range"];
    let mut link = without(&stage, &calls);
    assert_works(&stage, &mut link);
}
