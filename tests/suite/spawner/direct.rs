//! A session without a helper: the handle's calls, as they are with one.

use std::os::unix::process::ExitStatusExt;
use std::process::id;
use std::thread;
use std::time::{Duration, Instant};

use foster::{Cause, Ended, Level, LevelChoice, OnExit, Reject, StateName, Stdio};
use foster_tests::{DEATH, SETTLE, Stage, Tracer, Witness, clean_up, eventually, proc};

use crate::ground::{GRACE, SOON, direct, leader, sh};

#[test]
fn leader_is_this_processes_child_and_leads_its_own_session_and_group() {
    let stage = Stage::new();
    let child = direct(&stage, "exec sleep 60")
        .spawn()
        .expect("the command");
    let pid = i32::try_from(child.id()).expect("a pid fits");
    let stat = proc::stat(pid).expect("it runs");
    assert_eq!((stat.group, stat.session), (pid, pid));
    assert_eq!(stat.parent, i32::try_from(id()).expect("a pid fits"));
    assert_eq!(child.containment().level, Level::Direct);
    assert!(child.containment().missing.is_empty());
    assert_eq!(child.notice(), None);
    child.kill().expect("an ending");
}

#[test]
fn exit_has_its_code_or_signal_and_its_usage() {
    let stage = Stage::new();
    for code in [0, 1, 77, 255] {
        let status = direct(&stage, &format!("exit {code}")).status();
        assert_eq!(status.expect("a status").code(), Some(code));
    }
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGUSR1] {
        let mut child = direct(&stage, &format!("kill -{signal} $$"))
            .spawn()
            .expect("the command");
        assert_eq!(child.wait().expect("a status").signal(), Some(signal));
        assert_eq!(child.exit().map(|exit| exit.cause), Some(Cause::Signal));
    }
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
    let mut child = direct(&stage, script).spawn().expect("the command");
    child.wait().expect("a status");
    let exit = child.exit().expect("it is known");
    assert_eq!(exit.cause, Cause::Exit);
    assert!(exit.usage.user.0 + exit.usage.system.0 > 0, "{exit:?}");
    assert!(exit.usage.max_rss > 0 && exit.wall.0 > 0, "{exit:?}");
}

#[test]
fn exit_is_told_at_once_while_a_grandchild_holds_the_output() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let begin = Instant::now();
    let output = direct(&stage, "echo out; echo err >&2; sleep 60 & exit 7")
        .fd(3, writer)
        .drain(Duration::from_millis(100))
        .output()
        .expect("an output");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(
        (output.stdout, output.stderr),
        (b"out\n".into(), b"err\n".into())
    );
    assert!(output.still_open);
    tracer.wait_for_end(DEATH);
}

#[test]
fn ten_mebibytes_come_whole_on_both_streams_at_once() {
    const LENGTH: usize = 10 * 1024 * 1024;
    let stage = Stage::new();
    let script = "head -c 10485760 /dev/zero & head -c 10485760 /dev/zero >&2; wait";
    let output = direct(&stage, script).output().expect("an output");
    assert_eq!((output.stdout.len(), output.stderr.len()), (LENGTH, LENGTH));
}

#[test]
fn waits_are_for_as_long_as_they_are_asked() {
    let stage = Stage::new();
    let mut child = direct(&stage, "read line; exit 3")
        .stdin(Stdio::piped())
        .spawn()
        .expect("the command");
    assert_eq!(child.try_wait().expect("no error"), None);
    let session = child.session().clone();
    let begin = Instant::now();
    let none = session.wait_exit(Some(Duration::from_millis(50)));
    assert_eq!(none.expect("no error"), None);
    assert!(begin.elapsed() >= Duration::from_millis(50));
    let status = child.wait_timeout(SOON).expect("no error");
    assert_eq!(status.and_then(|status| status.code()), Some(3));
    let again = child.try_wait().expect("no error");
    assert_eq!(again.and_then(|status| status.code()), Some(3));
}

#[test]
fn leader_is_held_unreaped_until_the_host_decides() {
    let stage = Stage::new();
    let mut child = direct(&stage, "exit 0").spawn().expect("the command");
    let pid = i32::try_from(child.id()).expect("a pid fits");
    child.wait().expect("a status");
    assert_eq!(proc::state(pid), Some('Z'), "its number is its own");
    child.kill().expect("an ending");
    eventually("it is reaped", SETTLE, || proc::state(pid) != Some('Z'));
    // A second ending, a signal and a release after it reach nobody.
    let first = child.end(GRACE).expect("the same ending");
    assert_eq!(child.kill().expect("the same ending"), first);
    let error = child.signal(libc::SIGTERM).expect_err("it has ended");
    let state = StateName::Ended;
    assert_eq!(error.rejection(), Some(&Reject::IllegalState { state }));
    let error = child.session().release().expect_err("it has ended");
    assert_eq!(error.rejection(), Some(&Reject::IllegalState { state }));
}

#[test]
fn dropped_child_ends_its_tree_and_the_drop_does_not_wait() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let script = "trap '' TERM; sleep 60 & echo ready; sleep 60";
    let child = direct(&stage, script).stdout(writer).spawn();
    let child = child.expect("the command");
    let leader = leader(&child);
    tracer.line();
    let begin = Instant::now();
    drop(child);
    assert!(begin.elapsed() < GRACE, "{:?}", begin.elapsed());
    leader.wait_for_death(DEATH);
    tracer.wait_for_end(DEATH);
    eventually("it is reaped", SETTLE, || {
        proc::state(leader.pid()) != Some('Z')
    });
}

#[test]
fn released_rest_lives_on_and_its_leader_is_reaped() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let mut child = direct(&stage, "sleep 60 & echo $!; exit 3")
        .stdout(writer)
        .spawn()
        .expect("the command");
    let leader = leader(&child);
    let rest = Witness::of(tracer.pid());
    assert_eq!(child.wait().expect("a status").code(), Some(3));
    assert_eq!(child.session().release().expect("a release"), 1);
    assert_eq!(child.session().release().expect("the same"), 1);
    let end = child.session().wait_end(Some(SOON)).expect("no error");
    assert_eq!(end, Some(Ended::Released { still_running: 1 }));
    eventually("the leader is reaped", SETTLE, || {
        proc::state(leader.pid()) != Some('Z')
    });
    let error = child.kill().expect_err("it was released");
    assert!(error.is_rejected());
    drop(child);
    tracer.assert_held_for(GRACE + GRACE);
    assert!(rest.is_alive());
    clean_up(&[rest]);
    tracer.wait_for_end(DEATH);
}

#[test]
fn running_command_is_released_only_where_it_is_detachable() {
    let stage = Stage::new();
    let bound = direct(&stage, "exec sleep 60")
        .spawn()
        .expect("the command");
    let error = bound.session().release().expect_err("it runs");
    assert_eq!(error.rejection(), Some(&Reject::NotDetachable));
    bound.kill().expect("an ending");
    let child = direct(&stage, "exec sleep 60").detachable(true).spawn();
    let child = child.expect("the command");
    let leader = leader(&child);
    let session = child.session().clone();
    assert_eq!(child.release().expect("a release"), 1);
    foster_tests::pass(GRACE);
    assert!(leader.is_alive());
    leader.signal(libc::SIGTERM);
    // Its exit is told, and it is reaped.
    let exit = session.wait_exit(Some(SOON)).expect("no error");
    assert_eq!(exit.map(|exit| exit.status), Some(libc::SIGTERM));
}

#[test]
fn rest_goes_as_the_command_says_when_the_leader_exits() {
    let stage = Stage::new();
    let limit = Duration::from_millis(200);
    let ways = [
        (OnExit::End { grace: GRACE }, Cause::Exit),
        (
            OnExit::Linger {
                limit,
                grace: GRACE,
            },
            Cause::Linger,
        ),
    ];
    for (on_exit, cause) in ways {
        let (mut tracer, writer) = Tracer::new();
        let child = direct(&stage, "sleep 60 & exit 0")
            .fd(3, writer)
            .on_exit(on_exit)
            .spawn()
            .expect("the command");
        let end = child.session().wait_end(Some(SOON)).expect("no error");
        let Some(Ended::Ending(ending)) = end else {
            panic!("{on_exit:?}: {end:?}")
        };
        assert_eq!((ending.cause, ending.members.len()), (cause, 1));
        tracer.wait_for_end(DEATH);
    }
    let (mut tracer, writer) = Tracer::new();
    let child = direct(&stage, "sleep 60 & echo $!; exit 0")
        .stdout(writer)
        .on_exit(OnExit::Leave)
        .spawn()
        .expect("the command");
    let rest = Witness::of(tracer.pid());
    let end = child.session().wait_end(Some(SOON)).expect("no error");
    assert_eq!(end, Some(Ended::Released { still_running: 1 }));
    drop(child);
    tracer.assert_held_for(GRACE);
    clean_up(&[rest]);
}

#[test]
fn rest_that_finishes_within_its_time_is_left_to_finish() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let child = direct(&stage, "( sleep 0.2; echo finished >&3 ) & exit 0")
        .fd(3, writer)
        .on_exit(OnExit::Linger {
            limit: SOON,
            grace: GRACE,
        })
        .spawn()
        .expect("the command");
    let end = child.session().wait_end(Some(SOON)).expect("no error");
    let Some(Ended::Ending(ending)) = end else {
        panic!("{end:?}")
    };
    assert_eq!(ending.cause, Cause::Exit);
    assert_eq!(tracer.wait_for_end(DEATH), b"finished\n");
}

#[test]
fn deadline_ends_the_tree_whether_the_leader_runs_or_has_exited() {
    let stage = Stage::new();
    for script in ["exec sleep 60", "sleep 60 & exit 0"] {
        let (mut tracer, writer) = Tracer::new();
        let child = direct(&stage, script)
            .fd(3, writer)
            .deadline(Duration::from_millis(200))
            .spawn()
            .expect("the command");
        let end = child.session().wait_end(Some(SOON)).expect("no error");
        let Some(Ended::Ending(ending)) = end else {
            panic!("{script}: {end:?}")
        };
        assert_eq!(ending.cause, Cause::Deadline, "{script}");
        tracer.wait_for_end(DEATH);
    }
}

#[test]
fn what_cannot_be_asked_is_refused_and_nothing_runs() {
    let stage = Stage::new();
    let (mut command, marker) = crate::ground::marking(&stage);
    command.level(LevelChoice::Exactly(Level::Direct));
    for level in [Level::Group, Level::Tree] {
        let error = command
            .require(level)
            .spawn()
            .expect_err("it cannot be had");
        let refused = matches!(error.rejection(), Some(Reject::LevelUnavailable { .. }));
        assert!(refused, "{error}");
    }
    let error = direct(&stage, "echo").first_signal(65).spawn();
    let reason = Reject::BadSignal { number: 65 };
    assert_eq!(error.expect_err("no signal").rejection(), Some(&reason));
    let child = direct(&stage, "exec sleep 60")
        .spawn()
        .expect("the command");
    for number in [0, -1, 65] {
        let error = child.signal(number).expect_err("no signal");
        assert_eq!(error.rejection(), Some(&Reject::BadSignal { number }));
    }
    child.kill().expect("an ending");
    assert_eq!(crate::ground::lines(&marker), 0);
}

#[test]
fn many_sessions_from_many_threads_leave_no_descriptor_and_no_zombie() {
    let stage = Stage::new();
    let own = i32::try_from(id()).expect("a pid fits");
    thread::scope(|scope| {
        for thread in 0..8 {
            let stage = &stage;
            scope.spawn(move || {
                for turn in 0..15 {
                    let code = (thread * 15 + turn) % 100;
                    let mut child = direct(stage, &format!("sleep 60 & exit {code}"))
                        .stdout(Stdio::piped())
                        .spawn()
                        .expect("the command");
                    let status = child.wait().expect("a status");
                    assert_eq!(status.code(), Some(code));
                    let ending = child.kill().expect("an ending");
                    assert!(ending.survivors.is_empty(), "{ending:?}");
                }
            });
        }
    });
    eventually("no leader is left", SETTLE, || {
        let mut children = proc::children(own).into_iter();
        !children.any(|child| child.state == 'Z' && child.group == child.pid)
    });
}

#[test]
fn session_that_is_directly_run_has_a_level_that_was_asked_for_among_the_missing() {
    let stage = Stage::new();
    let mut command = sh(&stage, "exit 0");
    command.level(LevelChoice::Exactly(Level::Tree));
    let child = crate::ground::spawn(&foster::Spawner::without_helper(), &command);
    let missing = &child.containment().missing;
    assert_eq!(missing.len(), 1);
    assert_eq!(missing.first().map(|one| one.level), Some(Level::Tree));
    drop(child);
    assert_eq!(
        direct(&stage, "exit 0")
            .spawn()
            .map(|child| child.notice())
            .ok(),
        Some(None)
    );
}
