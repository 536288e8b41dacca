//! What leaves a tree as a descriptor and not as a process, and trees inside trees.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::process::Command as Plain;
use std::time::{Duration, Instant};

use foster::{Helper, Level as ClientLevel, LevelChoice, Stdio};
use foster_tests::{DEATH, Deadline, Stage, TAG, not_run, only_child_of, places, wait_readable};

use crate::ground::{KEPT, Scene};

/// How long a command may take that ends at once.
const SOON: Duration = Duration::from_secs(5);

#[test]
fn output_returns_though_an_outsider_was_given_the_pipe_and_says_that_it_is_held() {
    let levels = [ClientLevel::Group, ClientLevel::Tree, ClientLevel::Cgroup];
    for level in levels.into_iter().chain([ClientLevel::Namespace]) {
        let stage = Stage::new();
        let helper = Helper::builder().path(places::fixture("helper-under-test"));
        let helper = helper.launch().expect("the helper");
        let path = stage.scratch().join("outside");
        let listener = UnixListener::bind(&path).expect("a socket");
        let begin = Instant::now();
        let output = foster::Command::new(places::fixture("gives-stdout-away"))
            .arg(&path)
            .env(TAG, stage.tag())
            .stdin(Stdio::null())
            .level(LevelChoice::Exactly(level))
            .drain(Duration::from_millis(100))
            .helper(&helper)
            .output()
            .expect("an output");
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        assert_eq!(output.stdout, b"given\n", "{level:?}");
        assert!(output.status.success(), "{level:?}");
        assert!(output.still_open, "the pipe is held at {level:?}");
        // This test is the outsider: the descriptor waits in the socket that it has not read.
        drop(listener);
        helper.shutdown(Duration::ZERO).expect("a farewell");
    }
}

#[test]
fn foster_below_foster_is_all_gone_with_the_outer_session() {
    for level in KEPT {
        let Some(mut scene) = Scene::new(level, "foster below foster") else {
            continue;
        };
        let foster = places::foster().display().to_string();
        let script = "trap '' TERM; ( setsid sh -c 'echo ready; exec sleep 60' & ); exec sleep 60";
        let words = ["run", "-k", "50", "sh", "-c", script];
        let (running, mut tracer) = scene.spawn(scene.stage.command(&foster, &words));
        tracer.line();
        let inner = only_child_of(running.pid);
        let ending = scene.link.end(running.session, Duration::ZERO);
        scene.assert_all_gone(&ending, "foster below foster");
        tracer.wait_for_end(Duration::ZERO);
        inner.wait_for_death(Duration::ZERO);
        scene.link.close(running.session);
        scene.link.assert_idle();
        scene.assert_no_leaf();
    }
}

#[test]
fn bubblewrap_and_what_it_wraps_are_all_gone_with_the_outer_session() {
    const WHAT: &str = "bubblewrap";
    let Ok(version) = Plain::new("bwrap").arg("--version").output() else {
        return not_run(WHAT, "bwrap is not installed");
    };
    assert!(version.status.success(), "{version:?}");
    for level in KEPT {
        let Some(mut scene) = Scene::new(level, WHAT) else {
            continue;
        };
        let words = ["--ro-bind", "/", "/", "--dev", "/dev", "--unshare-pid"];
        let script = "setsid sh -c 'echo ready; exec sleep 60' & exec sleep 60";
        let words: Vec<&str> = words.into_iter().chain(["sh", "-c", script]).collect();
        let (running, mut tracer) = scene.spawn(scene.stage.command("/usr/bin/bwrap", &words));
        tracer.line();
        let ending = scene.link.end(running.session, Duration::ZERO);
        scene.assert_all_gone(&ending, WHAT);
        tracer.wait_for_end(Duration::ZERO);
        scene.link.close(running.session);
    }
}

#[test]
fn pipe_that_an_outsider_was_given_keeps_no_session_from_ending() {
    for level in KEPT {
        let Some(mut scene) = Scene::new(level, "a pipe that was given away") else {
            continue;
        };
        let path = scene.stage.scratch().join("outside");
        let listener = UnixListener::bind(&path).expect("a socket");
        let path = path.display().to_string();
        let giver = scene.stage.fixture("gives-stdout-away", &[&path]);
        let (running, mut tracer) = scene.spawn(giver);
        assert_eq!(tracer.line(), "given");
        let ending = scene.link.end(running.session, Duration::ZERO);
        scene.assert_all_gone(&ending, "a giver");
        assert!(tracer.is_held(), "the control: the outsider holds it");
        assert!(wait_readable(
            listener.as_fd(),
            Deadline::after(Duration::ZERO)
        ));
        drop(listener);
        tracer.wait_for_end(DEATH);
        scene.link.close(running.session);
    }
}
