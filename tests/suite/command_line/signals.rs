//! Signals to foster.

use std::time::{Duration, Instant};

use foster_tests::{
    DEATH, Deadline, Process, Program, SETTLE, Stage, Witness, eventually, pass, places, proc,
};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Starts foster on a command of the shell (not bash, which ignores QUIT), and waits for its
/// first line.
fn start(stage: &Stage, options: &[&str], script: &str) -> Process {
    let mut process = Program::foster(stage, options)
        .args(["sh", "-c", script])
        .start();
    assert_eq!(process.stdout.line(), "ready");
    process
}

/// Starts foster on the fixture that records its signals.
fn start_recorder(stage: &Stage, options: &[&str]) -> Process {
    let mut process = Program::foster(stage, options)
        .arg(places::fixture("records-signals"))
        .start();
    assert_eq!(process.stdout.line(), "recording");
    process
}

#[test]
fn each_ending_signal_is_passed_on_and_is_the_exit_code() {
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let stage = Stage::new();
        let process = start(&stage, &[], "ulimit -c 0; echo ready; exec sleep 60");
        process.signal(number);
        let finished = process.finish(DEATH);
        assert_eq!(finished.code(), 128 + number, "{finished:?}");
    }
}

#[test]
fn each_ending_signal_is_the_first_that_a_member_sees() {
    for (number, name) in [
        (libc::SIGINT, "SIGINT"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGQUIT, "SIGQUIT"),
    ] {
        let stage = Stage::new();
        let process = start_recorder(&stage, &["-k", "0.2"]);
        process.signal(number);
        let finished = process.finish(DEATH);
        assert_eq!(finished.stdout, format!("{name}\nSIGCONT\n"));
        assert_eq!(
            finished.code(),
            137,
            "the recorder ignores it, and is killed"
        );
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    }
}

#[test]
fn code_of_a_command_that_handles_the_signal_is_kept() {
    let stage = Stage::new();
    let script = "trap 'exit 9' INT; echo ready; sleep 60 & wait";
    let process = start(&stage, &[], script);
    process.signal(libc::SIGINT);
    assert_eq!(process.finish(DEATH).code(), 9);
}

#[test]
fn second_int_or_term_ends_the_tree_at_once() {
    for (first, second) in [
        (libc::SIGINT, libc::SIGINT),
        (libc::SIGTERM, libc::SIGINT),
        (libc::SIGHUP, libc::SIGTERM),
    ] {
        let stage = Stage::new();
        let mut process = start_recorder(&stage, &["-k", "50"]);
        process.signal(first);
        // The first has arrived, and the grace is long.
        process.stdout.line();
        let begin = Instant::now();
        process.signal(second);
        process.stdout.wait_for_end(DEATH);
        assert_eq!(process.wait(DEATH).code(), Some(137));
        assert!(
            begin.elapsed() < Duration::from_secs(3),
            "{:?}",
            begin.elapsed()
        );
    }
}

#[test]
fn user_signals_are_passed_on_to_every_member_and_end_nothing() {
    let stage = Stage::new();
    let recorder = places::fixture("records-signals").display().to_string();
    let script = format!("trap '' USR1 USR2; {recorder} & {recorder} & echo ready; wait");
    let mut process = Program::foster(&stage, &["-k", "0.2", "bash", "-c", &script]).start();
    let mut lines = [(); 3].map(|()| process.stdout.line());
    lines.sort();
    assert_eq!(lines, ["ready", "recording", "recording"]);
    for (number, name) in [(libc::SIGUSR1, "SIGUSR1"), (libc::SIGUSR2, "SIGUSR2")] {
        process.signal(number);
        assert_eq!(process.stdout.line(), name);
        assert_eq!(process.stdout.line(), name);
    }
    process.stdout.assert_held_for(Duration::from_millis(300));
    assert!(process.witness().is_alive());
    process.signal(libc::SIGTERM);
    process.stdout.wait_for_end(DEATH);
    process.wait(DEATH);
}

/// The state of a child of this process, by `waitpid(2)`, which leaves its exit alone: a
/// stopped child is told of once, and not reaped.
fn wait_for_stop(process: &Process) {
    let pid = Pid::from_raw(process.pid());
    let flags = WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG;
    eventually("foster is stopped", SETTLE, || {
        match waitpid(pid, Some(flags)) {
            Ok(WaitStatus::Stopped(..)) => true,
            Ok(WaitStatus::StillAlive) => false,
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn stop_stops_the_tree_and_foster_and_continue_resumes_both() {
    let stage = Stage::new();
    // The member forks nobody: one that is stopped in a vfork shows as waiting, not as stopped.
    let member = "echo $$; exec sleep 60";
    let script = format!("sh -c '{member}' & wait");
    let mut process = Program::foster(&stage, &["-k", "0.2", "bash", "-c", &script]).start();
    let member = Witness::of(process.stdout.pid());
    process.signal(libc::SIGTSTP);
    wait_for_stop(&process);
    eventually("the member is stopped", SETTLE, || {
        proc::state(member.pid()) == Some('T')
    });
    assert_eq!(proc::state(process.pid()), Some('T'));
    process.signal(libc::SIGCONT);
    eventually("the member goes on", SETTLE, || {
        proc::state(member.pid()).is_some_and(|state| state != 'T')
    });
    assert_ne!(proc::state(process.pid()), Some('T'));
    process.signal(libc::SIGTERM);
    process.stdout.wait_for_end(DEATH);
    assert_eq!(process.wait(DEATH).code(), Some(143));
}

#[test]
fn timeout_holds_while_foster_is_stopped() {
    let stage = Stage::new();
    let mut process = start(&stage, &["-t", "0.8"], "echo ready; sleep 60 & sleep 60");
    process.signal(libc::SIGTSTP);
    wait_for_stop(&process);
    // Foster is stopped and holds no output, so that the end of the tree shows.
    process.stdout.wait_for_end(DEATH);
    process.signal(libc::SIGCONT);
    assert_eq!(process.wait(DEATH).code(), Some(124));
}

#[test]
fn stopped_tree_is_ended_when_foster_is_killed() {
    let stage = Stage::new();
    let mut process = start(&stage, &["-k", "0.2"], "sleep 60 & echo ready; wait");
    process.signal(libc::SIGTSTP);
    wait_for_stop(&process);
    process.signal(libc::SIGKILL);
    process.stdout.wait_for_end(DEATH);
}

#[test]
fn hangup_stays_ignored_where_it_was_ignored_at_the_start() {
    let stage = Stage::new();
    let script = "trap '' HUP; exec \"$0\" run bash -c 'echo ready; exec sleep 60'";
    let mut process = Program::new(&stage, "sh")
        .args(["-c", script])
        .arg(places::foster())
        .start();
    assert_eq!(process.stdout.line(), "ready");
    process.signal(libc::SIGHUP);
    process.stdout.assert_held_for(Duration::from_millis(400));
    assert!(process.witness().is_alive());
    process.signal(libc::SIGTERM);
    assert_eq!(process.wait(DEATH).code(), Some(143));
}

#[test]
fn storm_of_stops_and_continues_ends_in_the_code_of_the_command() {
    let stage = Stage::new();
    let script = "echo ready; for n in 1 2 3 4 5; do sleep 0.1; done; exit 6";
    let mut process = start(&stage, &["-q"], script);
    let deadline = Deadline::after(DEATH);
    while process.witness().is_alive() && !deadline.is_reached() {
        for number in [libc::SIGTSTP, libc::SIGCONT] {
            // It may have exited between the look and the signal, and is unreaped then.
            process.signal(number);
            pass(Duration::from_millis(3));
        }
    }
    assert_eq!(process.wait(DEATH).code(), Some(6));
}
