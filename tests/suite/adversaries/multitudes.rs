//! Thousands of short sessions: nothing is left of them, neither a keeper nor a leaf, a
//! descriptor or a zombie.

use std::time::Instant;

use foster_tests::proc;

use crate::ground::{KEPT, Scene, report};

/// How many sessions without `FOSTER_TEST_MANY`, which gives another number.
const SESSIONS: u32 = 600;

#[test]
fn thousands_of_short_sessions_leave_no_keeper_no_leaf_no_descriptor_and_no_zombie() {
    let count = std::env::var("FOSTER_TEST_MANY").ok();
    let count: u32 = count.and_then(|text| text.parse().ok()).unwrap_or(SESSIONS);
    for level in KEPT {
        let Some(mut scene) = Scene::new(level, "thousands of sessions") else {
            continue;
        };
        let spec = scene.stage.command("/bin/true", &[]);
        scene.link.output(scene.at(spec.clone()));
        scene.assert_serves();
        let before = scene.link.descriptors();
        let begin = Instant::now();
        for turn in 0..count {
            let running = scene.link.spawn(scene.at(spec.clone()));
            assert_eq!(scene.link.exit(running.session).status, 0, "turn {turn}");
            scene.link.close(running.session);
        }
        let each = begin.elapsed() / count.max(1);
        report(&format!("{count} sessions at {level:?}: {each:?} each"));
        let helper = scene.link.pid();
        foster_tests::eventually("a few keepers at most stay", foster_tests::DEATH, || {
            proc::children(helper).len() < 5
        });
        scene.assert_no_leaf();
        let is_zombie = |stat: &proc::Stat| stat.state == 'Z';
        foster_tests::eventually("no zombie stays", foster_tests::DEATH, || {
            !proc::children(helper).iter().any(is_zombie)
        });
        foster_tests::eventually("no record stays", foster_tests::DEATH, || {
            let counters = scene.link.ping();
            (counters.sessions, counters.held) == (0, 0)
        });
        // A keeper that stays for later has its link and its pidfd, and perhaps one more.
        let after = scene.link.descriptors();
        let most = before.map(|before| before + 4 * 3);
        assert!(after <= most, "{after:?} descriptors after {before:?}");
    }
}
