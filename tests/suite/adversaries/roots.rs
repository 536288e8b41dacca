//! A cgroup root that the host names: limits, what a tree used at most, and want of memory.

use std::time::Duration;

use foster_protocol::{BUILD, Bytes, Cause, Level, Reply, Request, Spec, TreeLimits, VERSION};
use foster_tests::{ANSWER, Cgroup, Link, Stage, at_level, is_root, not_run};

/// Memory that a command has enough of, and one that eats has not.
const MEMORY: u64 = 32 << 20;

/// A cgroup with the controllers that limits need, handed down; what is missing is said.
fn root(stage: &Stage, what: &str) -> Option<Cgroup> {
    let made = match is_root() {
        true => Cgroup::unified(stage),
        false => Err("this is not root, which hands controllers down".to_owned()),
    };
    let root = made.and_then(|root| {
        let set = root.set("cgroup.subtree_control", "+memory +pids +cpu");
        let handed = set.map_err(|error| format!("no controllers in version 2: {error}"));
        handed.map(|()| root)
    });
    root.map_err(|missing| not_run(what, &missing)).ok()
}

/// Launches a helper with this root.
fn link(stage: &Stage, root: &str) -> Link {
    let mut link = stage.launch().silent();
    let reply = link.ask(Request::Hello {
        version: VERSION,
        build: Bytes::from(BUILD),
        cgroup_root: Some(Bytes::from(root)),
    });
    assert!(matches!(reply, Reply::Welcome { .. }), "{reply:?}");
    link
}

fn limited(stage: &Stage, script: &str, limits: TreeLimits) -> Spec {
    Spec {
        limits,
        ..at_level(Level::Cgroup, stage.sh(script))
    }
}

#[test]
fn limits_hold_and_what_was_used_is_told() {
    let stage = Stage::new();
    let Some(cgroup) = root(&stage, "limits") else {
        return;
    };
    let mut link = link(&stage, &cgroup.path().display().to_string());
    let limits = TreeLimits {
        memory: Some(MEMORY),
        processes: Some(5),
        cpu: None,
    };
    let script = "i=0; while [ $i -lt 20 ]; do sleep 60 & i=$((i+1)); done; echo ready; wait";
    let running = link.spawn(limited(&stage, script, limits));
    let ending = link.end(running.session, Duration::ZERO);
    let peaks = ending.peaks.expect("a cgroup has counted");
    assert!(peaks.processes.is_some_and(|count| count <= 5), "{peaks:?}");
    assert!(
        peaks.memory.is_some_and(|bytes| bytes <= MEMORY),
        "{peaks:?}"
    );
    assert!(peaks.cpu.is_some(), "{peaks:?}");
    link.close(running.session);
    link.assert_idle();
    assert!(cgroup.below().is_empty(), "{:?}", cgroup.below());
    drop(link);
}

#[test]
fn want_of_memory_is_named_as_the_cause() {
    let stage = Stage::new();
    let Some(cgroup) = root(&stage, "want of memory") else {
        return;
    };
    let mut link = link(&stage, &cgroup.path().display().to_string());
    let limits = TreeLimits {
        memory: Some(MEMORY),
        ..TreeLimits::default()
    };
    let script = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); exec sleep 60";
    let running = link.spawn(limited(&stage, script, limits));
    let exit = link.exit(running.session);
    assert_eq!(exit.cause, Cause::OutOfMemory, "{exit:?}");
    let ending = link.end(running.session, Duration::ZERO);
    let kills = ending.peaks.and_then(|peaks| peaks.oom_kills);
    assert!(kills.is_some_and(|kills| kills > 0), "{ending:?}");
    link.close(running.session);
    drop(link);
}

#[test]
fn limits_without_a_root_are_refused_and_nothing_runs() {
    let stage = Stage::new();
    let mut link = stage.link();
    let limits = TreeLimits {
        processes: Some(5),
        ..TreeLimits::default()
    };
    for level in [Level::Group, Level::Tree, Level::Cgroup, Level::Namespace] {
        let spec = Spec {
            limits,
            ..at_level(level, stage.sleeper())
        };
        let (_, spawn) = link.start(spec);
        let reply = link.answer_within(spawn, ANSWER).reply;
        assert!(
            matches!(reply, Reply::Rejected { .. }),
            "{level:?}: {reply:?}"
        );
    }
    link.assert_idle();
}

#[test]
fn root_that_lacks_a_controller_keeps_the_level_away_and_says_so() {
    let stage = Stage::new();
    let mut link = stage.launch().silent();
    let reply = link.ask(Request::Hello {
        version: VERSION,
        build: Bytes::from(BUILD),
        cgroup_root: Some(Bytes::from(stage.scratch().display().to_string().as_str())),
    });
    let Reply::Welcome { capabilities, .. } = reply else {
        panic!("{reply:?}")
    };
    let mut levels = capabilities.levels.iter();
    let lack = levels.find(|one| one.level == Level::Cgroup);
    let lack = lack.expect("the level is told of");
    assert_ne!(lack.errno, 0, "{lack:?}");
    assert!(lack.obstacle.is_some(), "{lack:?}");
}
