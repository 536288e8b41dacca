//! Spawns that fail: the step and the error number, and the link lives.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use foster_protocol::{Bytes, ResourceLimit, Spec, Step};
use foster_tests::{Command, Link, Stage, Tracer, is_root};

/// A file in the scratch folder with this content and mode; its path.
fn file(stage: &Stage, name: &str, content: &str, mode: u32) -> String {
    let path = stage.scratch().join(name);
    fs::write(&path, content).expect("the scratch folder is writable");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the file is ours");
    path.to_str().expect("a path of text").to_owned()
}

/// A link to a helper that is not root.
fn unprivileged(stage: &Stage) -> Link {
    let launch = stage.launch();
    if is_root() {
        launch.as_user(65534).greeted()
    } else {
        launch.greeted()
    }
}

#[test]
fn missing_program_fails_at_exec() {
    let stage = Stage::new();
    let mut link = stage.link();
    for program in ["/missing/program", "no-such-program-anywhere", ""] {
        let failure = link.spawn_failure(stage.command(program, &[]));
        assert_eq!(failure, (Step::Exec, libc::ENOENT), "{program:?}");
    }
}

#[test]
fn missing_interpreter_is_told_apart_from_a_missing_program() {
    let stage = Stage::new();
    let mut link = stage.link();
    let program = file(&stage, "script", "#!/missing/interpreter\n", 0o755);
    let failure = link.spawn_failure(stage.command(&program, &[]));
    assert_eq!(failure, (Step::Interpreter, libc::ENOENT));
}

#[test]
fn program_that_may_not_be_executed_fails_at_exec() {
    let stage = Stage::new();
    let mut link = stage.link();
    let program = file(&stage, "plain", "#!/bin/sh\n", 0o644);
    let failure = link.spawn_failure(stage.command(&program, &[]));
    assert_eq!(failure, (Step::Exec, libc::EACCES));
    let failure = link.spawn_failure(stage.command("/tmp", &[]));
    assert_eq!(failure, (Step::Exec, libc::EACCES));
}

#[test]
fn file_that_is_no_program_fails_at_exec() {
    let stage = Stage::new();
    let mut link = stage.link();
    let program = file(&stage, "text", "neither elf nor script\n", 0o755);
    let failure = link.spawn_failure(stage.command(&program, &[]));
    assert_eq!(failure, (Step::Exec, libc::ENOEXEC));
    let failure = link.spawn_failure(stage.command("/bin/sh/x", &[]));
    assert_eq!(failure, (Step::Exec, libc::ENOTDIR));
}

#[test]
fn program_found_but_not_executable_in_the_path_is_a_refusal_and_not_a_missing_program() {
    let stage = Stage::new();
    let mut link = stage.link();
    file(&stage, "tool", "#!/bin/sh\n", 0o644);
    let path = format!("PATH={}:/nowhere", stage.scratch().display());
    let env = vec![Bytes::from(path.as_str()), stage.tag_entry()];
    let failure = link.spawn_failure(Spec {
        env,
        ..stage.command("tool", &[])
    });
    assert_eq!(failure, (Step::Exec, libc::EACCES));
}

#[test]
fn directory_that_cannot_be_entered_is_told_apart_from_the_program() {
    let stage = Stage::new();
    let mut link = stage.link();
    let plain = file(&stage, "plain", "", 0o644);
    for (directory, errno) in [("/missing", libc::ENOENT), (plain.as_str(), libc::ENOTDIR)] {
        let directory = Some(directory.into());
        let failure = link.spawn_failure(Spec {
            directory,
            ..stage.command("/bin/true", &[])
        });
        assert_eq!(failure, (Step::Directory, errno));
    }
}

#[test]
fn first_failing_step_is_the_one_that_is_told() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        directory: Some("/missing".into()),
        ..stage.command("/missing", &[])
    };
    assert_eq!(link.spawn_failure(spec), (Step::Directory, libc::ENOENT));
}

#[test]
fn invalid_resource_limit_fails_at_its_step() {
    let stage = Stage::new();
    let mut link = stage.link();
    let nofile = libc::RLIMIT_NOFILE;
    for (resource, soft, hard) in [(999, 1, 1), (u32::MAX, 1, 1), (nofile, 9, 5)] {
        let resource_limits = vec![ResourceLimit {
            resource,
            soft,
            hard,
        }];
        let spec = Spec {
            resource_limits,
            ..stage.command("/bin/true", &[])
        };
        assert_eq!(
            link.spawn_failure(spec),
            (Step::ResourceLimits, libc::EINVAL)
        );
    }
}

#[test]
fn descriptor_that_is_no_terminal_fails_at_the_controlling_terminal() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        controlling_terminal: Some(0),
        ..stage.command("/bin/true", &[])
    };
    let command = Command::new(spec).with(0, Tracer::gate().0);
    assert_eq!(
        link.spawn_failure(command),
        (Step::ControllingTerminal, libc::ENOTTY)
    );
}

#[test]
fn what_an_unprivileged_helper_may_not_do_fails_at_its_step() {
    let stage = Stage::new();
    let mut link = unprivileged(&stage);
    let base = || stage.command("/bin/true", &[]);
    let cases = [
        (
            Spec {
                uid: Some(1),
                ..base()
            },
            Step::Uid,
            libc::EPERM,
        ),
        (
            Spec {
                gid: Some(1),
                ..base()
            },
            Step::Gid,
            libc::EPERM,
        ),
        (
            Spec {
                groups: Some(vec![1]),
                ..base()
            },
            Step::Groups,
            libc::EPERM,
        ),
        (
            Spec {
                nice: Some(-5),
                ..base()
            },
            Step::Nice,
            libc::EACCES,
        ),
        (
            Spec {
                oom_score_adj: Some(-900),
                ..base()
            },
            Step::OomScore,
            libc::EACCES,
        ),
    ];
    for (spec, step, errno) in cases {
        assert_eq!(link.spawn_failure(spec), (step, errno));
    }
    let running = link.spawn(base());
    assert_eq!(link.exit(running.session).status, 0);
}

#[test]
fn unprivileged_helper_serves_itself_as_the_user_that_it_is() {
    let stage = Stage::new();
    let mut link = unprivileged(&stage);
    let own = if is_root() {
        65534
    } else {
        nix::unistd::geteuid().as_raw()
    };
    let (running, mut tracer) =
        link.spawn_traced(stage.sh("id -u >&2; sleep 60 & echo ready; wait"));
    let uid = std::os::unix::fs::MetadataExt::uid(
        &fs::metadata(format!("/proc/{}", running.pid)).expect("the leader lives"),
    );
    assert_eq!(uid, own);
    let ending = link.end(running.session, std::time::Duration::from_secs(5));
    assert_eq!(ending.verdict, foster_protocol::Verdict::AllGone);
    tracer.wait_for_end(foster_tests::DEATH);
}

#[test]
fn failed_spawn_leaves_no_zombie_and_its_record_until_it_is_closed() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (session, _) = link.try_spawn(stage.command("/missing", &[]));
    let counters = link.ping();
    assert_eq!((counters.sessions, counters.held), (1, 0));
    foster_tests::eventually("the child is reaped", foster_tests::SETTLE, || {
        link.busy_children().is_empty()
    });
    link.close(session);
    link.assert_idle();
}

#[test]
fn child_that_is_killed_before_exec_has_failed_and_has_not_exited() {
    let stage = Stage::new();
    let mut link = stage.link();
    // A fifo holds the child in its exec: the interpreter is opened for reading and no
    // writer comes. It is not executable, so the open fails first; a gate holds it instead.
    let prepared = link.prepare(stage.sleeper());
    prepared.witness.signal(libc::SIGKILL);
    foster_tests::eventually("the session has failed", foster_tests::SETTLE, || {
        link.state(prepared.session) == Some(foster_protocol::StateName::Failed)
    });
    let wait = foster_protocol::Request::Wait {
        session: prepared.session,
        until: foster_protocol::Until::Exit,
    };
    link.refusal(wait);
}
