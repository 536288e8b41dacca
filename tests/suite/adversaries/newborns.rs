//! A command that is ended between its fork and its `setsid`: it is held at its birth by a
//! tracer. A signal to its group would reach nobody and say so, which is not "gone".

use std::time::Duration;

use foster_protocol::{Level, Reply};
use foster_tests::{ANSWER, Births, Witness, not_run, proc};

use crate::ground::Scene;

const WHAT: &str = "a child that is held at its birth";

/// What a tracee may take to react.
const MOMENT: Duration = Duration::from_millis(200);

#[test]
fn kill_before_setsid_is_answered_when_the_child_is_gone_and_not_before() {
    for level in [Level::Group, Level::Tree, Level::Cgroup] {
        for grace in [Duration::ZERO, Duration::from_secs(30)] {
            let Some(mut scene) = Scene::new(level, WHAT) else {
                continue;
            };
            let mut births = match Births::of(scene.link.pid()) {
                Ok(births) => births,
                Err(missing) => return not_run(WHAT, &missing),
            };
            let spec = scene.at(scene.stage.sh("echo ran; exec sleep 60"));
            let (mut tracer, writer) = foster_tests::Tracer::new();
            let command = foster_tests::Command::new(spec).with(1, writer);
            let (session, spawn) = scene.link.start(command);
            let mut born = births.await_birth();
            if level != Level::Group {
                births.let_go(born);
                born = births.await_birth();
            }
            let child = Witness::of(born);
            let own = proc::stat(born).expect("it is held");
            assert_ne!(
                own.session, born,
                "the control: it has no session of its own yet"
            );
            let kill = scene.link.ask_kill(session, libc::SIGTERM, grace);
            // It serves its tracees, and with them the helper.
            births.serve(MOMENT);
            if child.is_alive() {
                assert!(!scene.link.has_answer(kill), "nobody is gone at {level:?}");
            }
            drop(births);
            let ending = scene.link.ended(kill, ANSWER);
            scene.assert_all_gone(&ending, WHAT);
            assert!(!child.is_alive(), "the child lives at {level:?}");
            assert_eq!(tracer.wait_for_end(Duration::ZERO), b"", "it never ran");
            let reply = scene.link.answer(spawn).reply;
            assert!(matches!(reply, Reply::SpawnFailed { .. }), "{reply:?}");
            scene.assert_serves();
            scene.link.close(session);
            scene.link.assert_idle();
            scene.assert_no_leaf();
        }
    }
}
