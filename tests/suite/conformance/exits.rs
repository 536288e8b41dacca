//! What a leader's exit says: the raw status, what it used, when it is told.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use foster_protocol::{Cause, Exit, Reply, Request, Spec, StateName, Until};
use foster_tests::{Link, Stage, Tracer, proc};

fn exit_of(stage: &Stage, link: &mut Link, script: &str) -> Exit {
    let running = link.spawn(stage.sh(script));
    link.exit(running.session)
}

#[test]
fn exit_codes_come_raw() {
    let stage = Stage::new();
    let mut link = stage.link();
    for code in [0, 1, 7, 127, 255] {
        let exit = exit_of(&stage, &mut link, &format!("exit {code}"));
        assert_eq!((exit.status, exit.cause), (code << 8, Cause::Exit));
    }
}

#[test]
fn death_by_signal_comes_raw() {
    let stage = Stage::new();
    let mut link = stage.link();
    for signal in [
        libc::SIGKILL,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGPIPE,
        libc::SIGRTMAX(),
    ] {
        let exit = exit_of(&stage, &mut link, &format!("kill -{signal} $$"));
        assert_eq!((exit.status, exit.cause), (signal, Cause::Signal));
    }
}

#[test]
fn core_flag_is_what_the_kernel_says() {
    let stage = Stage::new();
    let mut link = stage.link();
    for script in [
        "ulimit -c 0; kill -ABRT $$",
        "ulimit -c unlimited; kill -ABRT $$",
    ] {
        let folder = stage.scratch().to_str().expect("a path of text");
        let spec = Spec {
            directory: Some(folder.into()),
            ..stage.sh(script)
        };
        let running = link.spawn(spec);
        let exit = link.exit(running.session);
        // The control: the same command as a child of this process.
        let control = Command::new("/bin/sh")
            .args(["-c", script])
            .current_dir(folder)
            .status();
        assert_eq!(
            exit.status,
            control.expect("the shell").into_raw(),
            "{script}"
        );
        assert_eq!(exit.status & 0x7f, libc::SIGABRT);
    }
}

#[test]
fn usage_and_wall_time_are_plausible() {
    let stage = Stage::new();
    let mut link = stage.link();
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let exit = exit_of(&stage, &mut link, busy);
    let usage = exit.usage;
    let processor = usage.user.0 + usage.system.0;
    assert!(processor > 10_000, "{usage:?}");
    assert!(processor <= exit.wall.0 + 50_000, "{exit:?}");
    assert!((200..1_000_000).contains(&usage.max_rss), "{usage:?}");
    assert!(usage.minor_faults > 10, "{usage:?}");
    assert!(exit.wall.0 < 60_000_000, "{exit:?}");
}

#[test]
fn exit_is_told_while_a_grandchild_holds_stdout() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut stdout) = link.spawn_traced(stage.fixture("holds-stdout", &["7"]));
    let exit = link.exit(running.session);
    assert_eq!(exit.status, 7 << 8);
    assert!(stdout.is_held(), "the grandchild lives");
    link.end(running.session, Duration::from_secs(1));
    stdout.wait_for_end(foster_tests::DEATH);
}

#[test]
fn leader_is_held_unreaped_until_the_session_is_closed() {
    let stage = Stage::new();
    let mut link = stage.link();
    let running = link.spawn(stage.command("/bin/true", &[]));
    link.exit(running.session);
    let stat = proc::stat(running.pid).expect("the number is still the leader's");
    let supervisor = link.supervisor_of(&running);
    assert_eq!((stat.state, stat.parent), ('Z', supervisor));
    assert_eq!(link.ping().held, 1);
    assert_eq!(link.state(running.session), Some(StateName::Exited));
    link.close(running.session);
    link.assert_idle();
}

#[test]
fn every_wait_gets_the_same_record_before_and_after_the_exit() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (reader, release) = Tracer::gate();
    let command = foster_tests::Command::new(stage.sh("read x; exit 5")).with(0, reader);
    let running = link.spawn(command);
    let early: Vec<_> = (0..10).map(|_| link.ask_exit(running.session)).collect();
    link.ping();
    assert!(
        early.iter().all(|id| !link.has_answer(*id)),
        "no exit is told before it happened"
    );
    drop(release);
    let late: Vec<_> = (0..10).map(|_| link.ask_exit(running.session)).collect();
    let first = link.exit(running.session);
    assert_eq!(first.status, 5 << 8);
    for id in early.into_iter().chain(late) {
        assert_eq!(link.exited(id, foster_tests::ANSWER), first);
    }
}

#[test]
fn wait_after_the_end_is_answered_at_once() {
    let stage = Stage::new();
    let mut link = stage.link();
    let running = link.spawn(stage.sh("exit 4"));
    let exit = link.exit(running.session);
    let ending = link.end(running.session, Duration::ZERO);
    assert_eq!(link.exit(running.session), exit);
    assert_eq!(link.ending(running.session), ending);
}

#[test]
fn spawned_is_told_before_exited_also_when_both_are_asked_in_one_write() {
    let stage = Stage::new();
    let mut link = stage.link();
    for _ in 0..200 {
        let session = link.fresh_session();
        let spec = Box::new(stage.command("/bin/true", &[]));
        let spawn = link.queue(Request::Spawn { session, spec }, Vec::new());
        let wait = link.queue(
            Request::Wait {
                session,
                until: Until::Exit,
            },
            Vec::new(),
        );
        link.flush();
        let first = link.next_answer();
        assert_eq!(first.id, spawn, "{first:?}");
        assert!(matches!(first.reply, Reply::Spawned { .. }), "{first:?}");
        let second = link.next_answer();
        assert_eq!(second.id, wait, "{second:?}");
        link.close(session);
    }
    link.assert_idle();
}

#[test]
fn spawned_carries_a_pidfd_of_the_leader() {
    let stage = Stage::new();
    let mut link = stage.link();
    if !link.probe().pidfd {
        return foster_tests::note_not_run("the passed pidfd", "the kernel has no pidfds");
    }
    let (_, id) = link.start(stage.sleeper());
    let answered = link.answer(id);
    let Reply::Spawned { pid, .. } = answered.reply else {
        panic!("{answered:?}")
    };
    let pidfd = answered
        .descriptors
        .first()
        .expect("a pidfd comes with the reply");
    let number = std::os::fd::AsRawFd::as_raw_fd(pidfd);
    let own = i32::try_from(std::process::id()).expect("a pid fits");
    let info = std::fs::read_to_string(format!("/proc/{own}/fdinfo/{number}"));
    let told = proc::field_of(&info.expect("this process may look"), "Pid");
    assert_eq!(told, Some(pid.0.to_string()));
}
