//! Signals to the helper itself: it notes them and serves on. Only its host ends it.

use foster_tests::{SETTLE, Stage, eventually};

#[test]
fn term_int_hup_quit_usr1_and_usr2_are_counted_and_end_nothing() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_, mut tracer) = link.spawn_traced(stage.sleeper());
    let signals = [
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ];
    for (before, signal) in (0..).zip(signals) {
        assert_eq!(link.ping().signals_noted, before);
        link.witness().signal(signal);
        eventually("the signal is noted", SETTLE, || {
            link.ping().signals_noted == before + 1
        });
    }
    assert!(tracer.is_held(), "the session lives");
    let running = link.spawn(stage.sh("exit 6"));
    assert_eq!(link.exit(running.session).status, 6 << 8);
}

#[test]
fn pipe_and_child_signals_from_outside_change_nothing() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_, mut tracer) = link.spawn_traced(stage.sleeper());
    for signal in [
        libc::SIGPIPE,
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGWINCH,
        libc::SIGURG,
    ] {
        link.witness().signal(signal);
    }
    link.ping();
    assert!(tracer.is_held());
    let running = link.spawn(stage.sh("exit 6"));
    assert_eq!(link.exit(running.session).status, 6 << 8);
}

#[test]
fn storm_of_signals_loses_no_exit() {
    let stage = Stage::new();
    let mut link = stage.link();
    for round in 0..100 {
        let running = link.spawn(stage.sh("exit 2"));
        link.witness().signal(libc::SIGTERM);
        link.witness().signal(libc::SIGCHLD);
        assert_eq!(link.exit(running.session).status, 2 << 8, "round {round}");
        link.close(running.session);
    }
    link.assert_idle();
}

#[test]
fn stop_and_continue_of_the_helper_lose_no_exit() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (gate, release) = foster_tests::Tracer::gate();
    let command = foster_tests::Command::new(stage.sh("read x; exit 8")).with(0, gate);
    let running = link.spawn(command);
    let exit = link.ask_exit(running.session);
    link.ping();
    link.witness().stop();
    drop(release);
    running.witness.wait_for_death(foster_tests::DEATH);
    link.witness().signal(libc::SIGCONT);
    assert_eq!(link.exited(exit, foster_tests::ANSWER).status, 8 << 8);
}
