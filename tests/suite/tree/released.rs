//! Release: nothing ends what was let go, and its keeper stays as long as it and no longer.

use std::time::Duration;

use foster_protocol::{OnExit, Spec, StateName};
use foster_tests::{DEATH, Link, Stage, Tracer, Witness, clean_up, not_run, pass};

use crate::ground::{Escape, Escaped, assert_all_gone, spawn_sleeper};

/// Longer than any grace of these tests, and than what a sweep takes.
const WHILE: Duration = Duration::from_millis(700);

fn detachable(spec: Spec) -> Spec {
    Spec {
        detachable: true,
        ..spec
    }
}

/// Spawns a session with a daemon and lets both go.
fn release(stage: &Stage, link: &mut Link) -> Escaped {
    let escaped = Escape::Daemon.spawn(stage, link, detachable);
    // The one between them may be on its way out still.
    let running = link.release(escaped.running.session);
    assert!((2..=3).contains(&running), "both run: {running}");
    escaped
}

fn assert_alive(escaped: &Escaped) {
    assert!(escaped.running.witness.is_alive(), "the released leader");
    let daemon = escaped.escapee.as_ref().expect("one process");
    assert!(daemon.is_alive(), "the released daemon");
}

/// Ends what was released, one after the other: the keeper stays for each of them.
fn end_released(escaped: Escaped) {
    let Escaped {
        running,
        keeper,
        escapee,
        mut tracer,
    } = escaped;
    assert!(keeper.is_alive(), "the keeper stays while both live");
    clean_up(&[running.witness]);
    tracer.wait_for_end(DEATH);
    pass(Duration::from_millis(100));
    assert!(keeper.is_alive(), "the keeper stays while the daemon lives");
    clean_up(&[escapee.expect("one process")]);
    keeper.wait_for_death(DEATH);
}

#[test]
fn released_tree_outlives_the_hangup_and_its_sibling_does_not() {
    let stage = Stage::new();
    let mut link = stage.link();
    let released = release(&stage, &mut link);
    let mut kept = Escape::Daemon.spawn(&stage, &mut link, |spec| spec);
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    kept.assert_dead("the sibling");
    pass(WHILE);
    assert_alive(&released);
    end_released(released);
}

#[test]
fn released_tree_outlives_a_killed_helper_and_its_sibling_does_not() {
    let stage = Stage::new();
    let mut link = stage.link();
    let released = release(&stage, &mut link);
    let mut kept = Escape::Daemon.spawn(&stage, &mut link, |spec| spec);
    link.kill_helper();
    link.wait_for_death();
    kept.wait_for_death(DEATH);
    pass(WHILE);
    assert_alive(&released);
    end_released(released);
}

#[test]
fn released_tree_outlives_a_shutdown_which_does_not_count_it() {
    let stage = Stage::new();
    let mut link = stage.link();
    let released = release(&stage, &mut link);
    let mut kept = Escape::Daemon.spawn(&stage, &mut link, |spec| spec);
    let report = link.shut_down(Duration::from_secs(5));
    assert_eq!(report.sessions, 1, "{report:?}");
    assert_eq!(link.exit_code(), 0);
    kept.assert_dead("the sibling");
    assert_alive(&released);
    end_released(released);
}

#[test]
fn released_tree_outlives_the_end_of_its_record() {
    let stage = Stage::new();
    let mut link = stage.link();
    let released = release(&stage, &mut link);
    link.close(released.running.session);
    link.ping();
    pass(WHILE);
    assert_alive(&released);
    end_released(released);
    link.assert_idle();
}

#[test]
fn keeper_of_a_released_tree_goes_with_its_last_member_while_the_helper_lives() {
    let stage = Stage::new();
    let mut link = stage.link();
    let released = release(&stage, &mut link);
    let session = released.running.session;
    end_released(released);
    assert_eq!(link.state(session), Some(StateName::Released));
    assert_eq!(link.exit(session).status, libc::SIGKILL);
    link.close(session);
    link.assert_idle();
}

#[test]
fn escapee_that_is_let_go_at_the_leaders_exit_outlives_everybody_but_its_keeper() {
    let stage = Stage::new();
    let mut link = stage.link();
    let leave = |spec| Spec {
        on_exit: OnExit::Leave,
        ..spec
    };
    let escaped = Escape::Daemon.spawn(&stage, &mut link, leave);
    escaped.running.witness.signal(libc::SIGKILL);
    link.exit(escaped.running.session);
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    pass(WHILE);
    let daemon = escaped.escapee.expect("one process");
    assert!(daemon.is_alive() && escaped.keeper.is_alive());
    clean_up(&[daemon]);
    escaped.keeper.wait_for_death(DEATH);
}

#[test]
fn escapee_that_is_released_after_the_leaders_exit_outlives_a_killed_helper() {
    let stage = Stage::new();
    let mut link = stage.link();
    let escaped = Escape::Daemon.spawn(&stage, &mut link, |spec| spec);
    escaped.running.witness.signal(libc::SIGKILL);
    link.exit(escaped.running.session);
    assert_eq!(link.release(escaped.running.session), 1);
    link.kill_helper();
    link.wait_for_death();
    pass(WHILE);
    let daemon = escaped.escapee.expect("one process");
    assert!(daemon.is_alive() && escaped.keeper.is_alive());
    clean_up(&[daemon]);
    escaped.keeper.wait_for_death(DEATH);
}

#[test]
fn released_tree_outlives_its_keeper_and_the_ends_of_others() {
    let stage = Stage::new();
    let mut link = stage.link();
    let released = release(&stage, &mut link);
    released.keeper.signal(libc::SIGKILL);
    released.keeper.wait_for_death(DEATH);
    link.ping();
    assert_alive(&released);
    // Both of these sweep what nobody owns.
    let (lost, _tracer, keeper) = spawn_sleeper(&stage, &mut link);
    let end = link.ask_end(lost.session);
    keeper.signal(libc::SIGKILL);
    link.ended(end, DEATH);
    assert_alive(&released);
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    assert_alive(&released);
    let Escaped {
        running, escapee, ..
    } = released;
    clean_up(&[running.witness, escapee.expect("one process")]);
}

#[test]
fn release_of_a_running_session_that_is_not_detachable_is_refused_and_it_stays_kept() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut escaped = Escape::Daemon.spawn(&stage, &mut link, |spec| spec);
    let session = escaped.running.session;
    let reason = link.refusal(foster_protocol::Request::Release { session });
    assert_eq!(reason, foster_protocol::Reject::NotDetachable);
    let ending = link.end(session, Duration::from_secs(5));
    assert_all_gone(&ending, "it was not released");
    escaped.assert_dead("it was not released");
}

#[test]
fn released_tree_outlives_a_killed_host() {
    use foster_tests::{Host, Program, only_child_of, proc};
    let stage = Stage::new();
    let (mut pipe, writer) = Tracer::new();
    let program = Program::fixture(&stage, "host-that-releases");
    let mut host = Host::started_with_stderr(program, writer, 2);
    let leader = host.members.remove("released").unwrap_or_default().pop();
    let leader = leader.expect("its pid");
    let job = only_child_of(leader.pid());
    let parent = proc::stat(leader.pid()).map(|stat| stat.parent);
    let keeper = Witness::of(parent.expect("the leader lives"));
    if keeper.pid() == host.helper.pid() {
        host.process.signal(libc::SIGKILL);
        clean_up(&[job, leader]);
        return not_run("a released tree", "the default level has no keeper");
    }
    host.process.signal(libc::SIGKILL);
    host.process.stdout.wait_for_end(DEATH);
    host.helper.wait_for_death(DEATH);
    pipe.assert_held_for(WHILE);
    assert!(keeper.is_alive() && leader.is_alive() && job.is_alive());
    clean_up(&[job]);
    leader.wait_for_death(DEATH);
    pipe.wait_for_end(DEATH);
    keeper.wait_for_death(DEATH);
}
