//! The host is gone: every session that was not released ends, and the helper with them.

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

use foster_protocol::{Level, LevelChoice, Micros, Spec};
use foster_tests::{Command, DEATH, SETTLE, Stage, Tracer, Witness, eventually, places};

#[test]
fn hangup_ends_every_session_of_every_shape() {
    let stage = Stage::new();
    let mut link = stage.link();
    let shapes = [
        stage.sleeper(),
        stage.sh("sleep 60 & echo ready; exec sleep 60"),
        stage.sh("sleep 60 & echo ready; exit 0"),
        stage.sh("trap '' TERM; echo ready; sleep 60; sleep 60"),
        stage.bash("set -m; sleep 60 & echo ready; wait"),
        stage.fixture("ignores-term", &[]),
        stage.fixture("stops-itself", &[]),
        stage.fixture("has-many-children", &["20"]),
        stage.fixture("leaves-leader-thread", &[]),
        stage.fixture("escapes-by-setsid", &[]),
    ];
    let tracers: Vec<Tracer> = shapes
        .into_iter()
        .map(|spec| link.spawn_traced(spec).1)
        .collect();
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    for mut tracer in tracers {
        tracer.wait_for_end(DEATH);
    }
}

#[test]
fn hangup_gives_each_session_its_own_grace() {
    let stage = Stage::new();
    let mut link = stage.link();
    let grace = |micros, spec: Spec| Spec {
        grace: Micros(micros),
        ..spec
    };
    let stubborn = stage.fixture("ignores-term", &[]);
    let (quick, _one) = link.spawn_traced(grace(0, stubborn.clone()));
    let (slow, _two) = link.spawn_traced(grace(1_500_000, stubborn));
    let begin = Instant::now();
    link.hang_up();
    quick.witness.wait_for_death(Duration::from_millis(1200));
    assert!(slow.witness.is_alive(), "its grace is not over");
    slow.witness.wait_for_death(DEATH);
    assert!(
        begin.elapsed() >= Duration::from_millis(1400),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(link.exit_code(), 0);
}

#[test]
fn hangup_lets_a_command_clean_up_in_its_grace() {
    let stage = Stage::new();
    let mut link = stage.link();
    let script = "trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 1; done";
    let spec = Spec {
        grace: Micros(20_000_000),
        ..stage.sh(script)
    };
    let (_, mut tracer) = link.spawn_traced(spec);
    link.hang_up();
    assert_eq!(tracer.wait_for_end(DEATH), b"cleaned\n");
    assert_eq!(link.exit_code(), 0);
}

#[test]
fn hangup_in_the_middle_of_an_ending_keeps_its_grace() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer) = link.spawn_traced(stage.fixture("ignores-term", &[]));
    link.ask_kill(running.session, libc::SIGTERM, Duration::from_secs(30));
    link.hang_up();
    // The session's own grace, which is shorter, joins the longer one.
    tracer.wait_for_end(DEATH);
    assert_eq!(link.exit_code(), 0);
}

#[test]
fn hangup_with_queued_replies_is_a_hangup() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_, mut tracer) = link.spawn_traced(stage.sleeper());
    for _ in 0..5000 {
        link.queue(foster_protocol::Request::List, Vec::new());
    }
    link.flush();
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    tracer.wait_for_end(DEATH);
}

#[test]
fn half_closed_link_is_a_hangup() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_, mut tracer) = link.spawn_traced(stage.sleeper());
    let socket = link
        .socket()
        .as_fd()
        .try_clone_to_owned()
        .expect("a descriptor");
    let stream = std::os::unix::net::UnixStream::from(socket);
    stream
        .shutdown(std::net::Shutdown::Write)
        .expect("the link is up");
    tracer.wait_for_end(DEATH);
    assert_eq!(link.exit_code(), 0);
}

#[test]
fn thread_that_launched_the_helper_and_spawned_may_exit() {
    let stage = Stage::new();
    let launch = stage.launch();
    let sleeper = stage.sleeper();
    let thread = std::thread::spawn(move || {
        let mut link = launch.greeted();
        let (running, tracer) = link.spawn_traced(sleeper);
        (link, running, tracer)
    });
    let (mut link, running, mut tracer) = thread.join().expect("the thread did its work");
    // The thread's death signals, if any were armed, have been sent before a round trip ends.
    link.ping();
    assert!(running.witness.is_alive() && tracer.is_held());
    link.end(running.session, Duration::from_secs(1));
}

#[test]
fn host_that_dies_in_mid_frame_frees_its_port_and_ends_the_helper() {
    let stage = Stage::new();
    let (mut lines, writer) = Tracer::new();
    let helper = places::helper();
    let mut host = Process::new(places::fixture("dies-in-mid-frame"))
        .arg(helper.path)
        .args(helper.args)
        .env(foster_tests::TAG, stage.tag())
        .stdin(Stdio::null())
        .stdout(writer)
        .spawn()
        .expect("the host");
    let port: u16 = lines.line().parse().expect("a port");
    // The host lives until it is killed below, and holds its child unreaped.
    let helper = Witness::of(lines.pid());
    host.kill().expect("the host can be killed");
    host.wait().expect("the host is a child of this process");
    helper.wait_for_death(DEATH);
    eventually("the port is free", SETTLE, || {
        TcpListener::bind(("127.0.0.1", port)).is_ok()
    });
}

#[test]
fn killed_helper_takes_its_leaders_with_it() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer) = link.spawn_traced(stage.sleeper());
    link.kill_helper();
    link.wait_for_death();
    running.witness.wait_for_death(DEATH);
    tracer.wait_for_end(DEATH);
}

#[test]
fn killed_helper_leaves_a_detachable_leader_alone() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        detachable: true,
        // A keeper would end it, as it does everything that was not released.
        level: LevelChoice::Exactly(Level::Group),
        ..stage.sleeper()
    };
    let (running, mut tracer) = link.spawn_traced(spec);
    link.kill_helper();
    link.wait_for_death();
    tracer.assert_held_for(Duration::from_millis(300));
    running.witness.signal(libc::SIGKILL);
    tracer.wait_for_end(DEATH);
}

#[test]
fn commands_hold_no_copy_of_the_link() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        detachable: true,
        ..stage.sleeper()
    };
    let (running, mut tracer) = link.spawn_traced(Command::new(spec));
    link.release(running.session);
    link.kill_helper();
    // A copy in the command, which lives, would keep this end from seeing the death.
    link.wait_for_hangup(DEATH);
    link.wait_for_death();
    assert!(tracer.is_held());
    running.witness.signal(libc::SIGKILL);
}
