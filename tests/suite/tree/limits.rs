//! The limits of descriptors and processes, reached at the birth of a keeper and right after it.

use std::time::Duration;

use foster_protocol::{Reject, Reply, Step};
use foster_tests::{Link, Stage, is_root, note_not_run};

use crate::ground::{assert_all_gone, tree};

fn assert_serves(stage: &Stage, link: &mut Link) {
    let running = link.spawn(tree(stage.sh("exit 5")));
    assert_eq!(link.exit(running.session).status, 5 << 8);
    link.close(running.session);
}

/// Spawns until one is refused; gives those that run, and the refusal.
fn spawn_to_the_limit(
    stage: &Stage,
    link: &mut Link,
) -> (
    Vec<foster_protocol::SessionId>,
    foster_protocol::SessionId,
    Reply,
) {
    let mut held = Vec::new();
    loop {
        let (session, reply) = link.try_spawn(tree(stage.sleeper()));
        if !matches!(reply, Reply::Spawned { .. }) {
            return (held, session, reply);
        }
        held.push(session);
        assert!(held.len() < 100, "the limit is never reached");
    }
}

#[test]
fn process_limit_at_a_keepers_birth_or_its_leaders_is_a_typed_failure() {
    if !is_root() {
        return note_not_run(
            "a process limit",
            "this is not root, and its processes count too",
        );
    }
    // Each session takes two: one of these meets the keeper, the other one the leader.
    for (limit, user) in [("nproc=8", 64_334), ("nproc=9", 64_335)] {
        let stage = Stage::new();
        let launch = stage.launch().through("with-limit", &[limit]);
        let mut link = launch.as_user(user).greeted();
        for _ in 0..3 {
            let (held, failed, reply) = spawn_to_the_limit(&stage, &mut link);
            let expected = Reply::SpawnFailed {
                step: Step::Fork,
                errno: libc::EAGAIN,
            };
            assert_eq!(reply, expected, "{limit}");
            assert!(held.len() > 1, "{limit}: {} run", held.len());
            link.ping();
            link.close(failed);
            for session in held {
                let ending = link.end(session, Duration::from_secs(5));
                assert_all_gone(&ending, limit);
                link.close(session);
            }
            link.assert_idle();
            assert_serves(&stage, &mut link);
        }
        link.assert_idle();
    }
}

#[test]
fn descriptor_limit_at_a_keepers_birth_is_a_typed_refusal_whatever_it_is() {
    // Below this the reserve that endings need leaves no room for a session.
    for limit in 36..46 {
        let stage = Stage::new();
        let word = format!("nofile={limit}");
        let launch = stage.launch().through("with-limit", &[&word]);
        let mut link = launch.greeted();
        // The answer says that everything of the start is there.
        link.ping();
        let before = link.descriptors();
        let (held, failed, reply) = spawn_to_the_limit(&stage, &mut link);
        let is_typed = if let Reply::SpawnFailed { step, errno } = &reply {
            *errno == libc::EMFILE && [Step::Prepare, Step::Fork].contains(step)
        } else {
            let reason = Reject::DescriptorsLost;
            reply == Reply::Rejected { reason }
        };
        assert!(is_typed, "{word}: {reply:?}");
        assert!(!held.is_empty(), "{word}: nothing runs");
        link.ping();
        link.close(failed);
        for session in held {
            let ending = link.end(session, Duration::from_secs(5));
            assert_all_gone(&ending, &word);
            link.close(session);
        }
        link.assert_idle();
        assert_serves(&stage, &mut link);
        link.assert_idle();
        link.assert_descriptors(before);
    }
}
