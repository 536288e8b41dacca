//! Kernels that lack a call: each helper still spawns, reports and ends a tree.

use std::time::Duration;

use foster_protocol::{Spec, Survivor, Verdict, Why};
use foster_tests::{ANSWER, Command, DEATH, Link, Stage, Tracer};

/// Launches a helper for which these calls fail.
fn without(stage: &Stage, calls: &[&str]) -> Link {
    stage.launch().through("without-syscalls", calls).greeted()
}

fn assert_ends(link: &mut Link, spec: Spec) {
    let (running, mut tracer) = link.spawn_traced(spec);
    let ending = link.end(running.session, Duration::from_millis(300));
    assert_eq!(ending.verdict, Verdict::AllGone, "{ending:?}");
    tracer.wait_for_end(DEATH);
    assert_eq!(link.exit(running.session).status, libc::SIGKILL);
    link.close(running.session);
}

/// Everything that a helper of any kernel does.
fn assert_works(stage: &Stage, link: &mut Link) {
    let running = link.spawn(stage.sh("exit 7"));
    assert_eq!(link.exit(running.session).status, 7 << 8);
    link.close(running.session);
    link.spawn_failure(stage.command("/missing", &[]));

    assert_ends(
        link,
        stage.bash("trap '' TERM; sleep 60 & echo ready; wait; sleep 60"),
    );
    // Without pidfds a member outside the leader's group is pinned by nobody.
    if link.probe().pidfd {
        assert_ends(
            link,
            stage.bash("trap '' TERM; set -m; sleep 60 & echo ready; wait; sleep 60"),
        );
    }

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
    let stage = Stage::new();
    let mut link = without(&stage, &["clone3"]);
    assert!(!link.probe().clone3);
    assert_works(&stage, &mut link);
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

#[test]
fn helper_without_pidfds_names_the_member_that_it_cannot_signal_without_a_risk() {
    let stage = Stage::new();
    let mut link = without(&stage, &["clone3", "pidfd_open"]);
    let (gate, release) = Tracer::gate();
    let (mut tracer, writer) = Tracer::new();
    let spec = stage.bash("set -m; cat <&3 >&1 & echo ready; wait");
    let running = link.spawn(Command::new(spec).with(1, writer).with(3, gate));
    tracer.line();
    let ending = link.end(running.session, Duration::from_millis(300));
    let is_honest = match ending.verdict {
        Verdict::AllGone => ending.proof.is_some() && !tracer.is_held(),
        Verdict::Incomplete => {
            let whys: Vec<Why> = ending
                .survivors
                .iter()
                .map(|Survivor { why, .. }| *why)
                .collect();
            whys == [Why::NotPinned]
        }
    };
    assert!(is_honest, "{ending:?}");
    drop(release);
    tracer.wait_for_end(DEATH);
}
