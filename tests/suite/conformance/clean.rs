//! A child starts clean, however dirty the helper's host is.

use foster_protocol::Spec;
use foster_tests::{Link, Stage, proc};

/// The masks of `/proc/self/status` in a child.
fn masks(link: &mut Link, spec: Spec) -> Vec<(String, u64)> {
    let (exit, output) = link.output(spec);
    assert_eq!(exit.status, 0);
    let status = String::from_utf8_lossy(&output).into_owned();
    ["SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd"]
        .map(|field| {
            let text = proc::field_of(&status, field).expect("the field is there");
            (
                field.to_owned(),
                u64::from_str_radix(&text, 16).expect("a mask"),
            )
        })
        .to_vec()
}

fn assert_clean(link: &mut Link, stage: &Stage) {
    // `cat` changes no signal, so that it shows what it was started with.
    for (field, mask) in masks(link, stage.command("/bin/cat", &["/proc/self/status"])) {
        assert_eq!(mask, 0, "{field} is {mask:016x}");
    }
}

#[test]
fn child_has_no_blocked_and_no_ignored_signal() {
    let stage = Stage::new();
    let mut link = stage.link();
    assert_clean(&mut link, &stage);
}

#[test]
fn child_is_clean_when_the_host_blocked_everything_and_ignored_much() {
    let stage = Stage::new();
    let mut link = stage.launch().through("with-dirty-signals", &[]).greeted();
    assert_clean(&mut link, &stage);
}

#[test]
fn helper_of_a_host_that_ignores_child_signals_still_gets_every_status() {
    let stage = Stage::new();
    let mut link = stage.launch().through("with-dirty-signals", &[]).greeted();
    for code in 0..50 {
        let running = link.spawn(stage.sh(&format!("exit {code}")));
        assert_eq!(link.exit(running.session).status, code << 8);
        assert_eq!(proc::state(running.pid), Some('Z'), "the leader is held");
        link.close(running.session);
    }
    link.assert_idle();
}

#[test]
fn signals_to_the_helper_of_a_host_that_ignores_them_are_noted() {
    let stage = Stage::new();
    let mut link = stage.launch().through("with-dirty-signals", &[]).greeted();
    link.witness().signal(libc::SIGTERM);
    foster_tests::eventually("the signal is noted", foster_tests::SETTLE, || {
        link.ping().signals_noted == 1
    });
}

#[test]
fn blocked_signals_are_exactly_those_that_were_asked_for() {
    let stage = Stage::new();
    let mut link = stage.link();
    let blocked = 1 << (libc::SIGUSR1 - 1) | 1 << (libc::SIGTERM - 1);
    let spec = Spec {
        blocked,
        ..stage.command("/bin/cat", &["/proc/self/status"])
    };
    let masks = masks(&mut link, spec);
    assert_eq!(masks.first(), Some(&("SigBlk".to_owned(), blocked)));
}

#[test]
fn leader_is_the_leader_of_its_own_session_and_group_and_a_child_of_its_supervisor() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.sleeper());
    let stat = proc::stat(running.pid).expect("the leader lives");
    assert_eq!((stat.session, stat.group), (running.pid, running.pid));
    assert_eq!(stat.parent, link.supervisor_of(&running));
}

#[test]
fn child_starts_in_the_root_directory_without_a_controlling_terminal() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_, output) = link.output(stage.sh("pwd -P; : < /dev/tty && echo has a terminal"));
    assert_eq!(output, b"/\n");
}

#[test]
fn environment_of_the_helper_does_not_reach_a_child() {
    let stage = Stage::new();
    let mut link = stage.link();
    let env = vec![stage.tag_entry()];
    let spec = Spec {
        env: env.clone(),
        ..stage.command("/usr/bin/env", &[])
    };
    let (_, output) = link.output(spec);
    let expected = env.first().expect("one entry");
    assert_eq!(output, [&expected.0[..], b"\n"].concat());
}
