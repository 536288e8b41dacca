//! Each option of a spec, observed in the child.

use foster_protocol::{ResourceLimit, Spec};
use foster_tests::{Link, Stage, is_root, note_not_run, proc};

fn text_of(link: &mut Link, spec: Spec) -> String {
    let (exit, output) = link.output(spec);
    assert_eq!(exit.status, 0);
    String::from_utf8_lossy(&output).trim_end().to_owned()
}

#[test]
fn directory_is_entered() {
    let stage = Stage::new();
    let mut link = stage.link();
    let folder = stage.scratch().canonicalize().expect("the folder is there");
    let directory = Some(folder.to_str().expect("a path of text").into());
    let spec = Spec {
        directory,
        ..stage.sh("pwd -P")
    };
    assert_eq!(text_of(&mut link, spec), folder.to_string_lossy());
}

#[test]
fn umask_is_set() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        umask: Some(0o137),
        ..stage.sh("umask")
    };
    assert_eq!(text_of(&mut link, spec), "0137");
}

#[test]
fn resource_limits_are_set_and_no_limit_is_the_largest_number() {
    let stage = Stage::new();
    let mut link = stage.link();
    let limits = vec![
        ResourceLimit {
            resource: libc::RLIMIT_NOFILE,
            soft: 77,
            hard: 99,
        },
        ResourceLimit {
            resource: libc::RLIMIT_CPU,
            soft: u64::MAX,
            hard: u64::MAX,
        },
    ];
    let script = "ulimit -S -n; ulimit -H -n; ulimit -S -t";
    let spec = Spec {
        resource_limits: limits,
        ..stage.sh(script)
    };
    assert_eq!(text_of(&mut link, spec), "77\n99\nunlimited");
}

#[test]
fn nice_value_is_set() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        nice: Some(7),
        ..stage.command("/usr/bin/nice", &[])
    };
    assert_eq!(text_of(&mut link, spec), "7");
}

#[test]
fn oom_score_is_set() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = stage.command("/bin/cat", &["/proc/self/oom_score_adj"]);
    let spec = Spec {
        oom_score_adj: Some(321),
        ..spec
    };
    assert_eq!(text_of(&mut link, spec), "321");
}

#[test]
fn no_new_privs_is_set_only_when_it_is_asked_for() {
    let stage = Stage::new();
    let mut link = stage.link();
    for (asked, expected) in [(false, "0"), (true, "1")] {
        let spec = stage.command("/bin/cat", &["/proc/self/status"]);
        let status = text_of(
            &mut link,
            Spec {
                no_new_privs: asked,
                ..spec
            },
        );
        assert_eq!(
            proc::field_of(&status, "NoNewPrivs").as_deref(),
            Some(expected)
        );
    }
}

#[test]
fn user_group_and_supplementary_groups_are_taken_all_together() {
    if !is_root() {
        return note_not_run("a spawn as another user", "this is not root");
    }
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        uid: Some(65534),
        gid: Some(65533),
        groups: Some(vec![7, 9]),
        ..stage.command("/bin/cat", &["/proc/self/status"])
    };
    let status = text_of(&mut link, spec);
    let field = |name| proc::field_of(&status, name).expect("the field is there");
    assert_eq!(
        field("Uid").split_whitespace().collect::<Vec<_>>(),
        ["65534"; 4]
    );
    assert_eq!(
        field("Gid").split_whitespace().collect::<Vec<_>>(),
        ["65533"; 4]
    );
    assert_eq!(
        field("Groups").split_whitespace().collect::<Vec<_>>(),
        ["7", "9"]
    );
    assert_eq!(field("CapEff"), "0000000000000000");
}

#[test]
fn command_of_another_user_is_ended_and_dies_with_its_helper() {
    if !is_root() {
        return note_not_run("a spawn as another user", "this is not root");
    }
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        uid: Some(65534),
        gid: Some(65534),
        ..stage.sleeper()
    };
    let (running, mut tracer) = link.spawn_traced(spec.clone());
    link.end(running.session, std::time::Duration::from_secs(1));
    tracer.wait_for_end(foster_tests::DEATH);
    let (_, mut tracer) = link.spawn_traced(spec);
    link.kill_helper();
    link.wait_for_death();
    tracer.wait_for_end(foster_tests::DEATH);
}

#[test]
fn command_is_dumpable_though_the_helper_is_not() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.sleeper());
    let owner = |pid: i32| {
        let path = format!("/proc/{pid}/fd");
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(path).expect("it lives"))
    };
    let own = nix::unistd::geteuid().as_raw();
    assert_eq!(owner(running.pid), own);
    if is_root() {
        return note_not_run(
            "the owner of the helper's files",
            "this is root, who owns them anyway",
        );
    }
    assert_eq!(
        owner(link.pid()),
        0,
        "the files of a process that is not dumpable are root's"
    );
}

#[test]
fn program_without_a_slash_is_searched_in_the_path_of_its_own_environment() {
    let stage = Stage::new();
    let mut link = stage.link();
    let script = stage.scratch().join("only-here");
    std::fs::write(&script, "#!/bin/sh\necho found\n").expect("the folder is writable");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("the file is this user's");
    let path = format!("PATH=/nowhere:{}:/bin", stage.scratch().display());
    let env = vec![path.as_str().into(), stage.tag_entry()];
    let spec = Spec {
        env,
        ..stage.command("only-here", &[])
    };
    assert_eq!(text_of(&mut link, spec), "found");
    // Without a PATH the search is in /bin and /usr/bin.
    let spec = Spec {
        env: vec![stage.tag_entry()],
        ..stage.command("pwd", &[])
    };
    assert_eq!(text_of(&mut link, spec), "/");
}

#[test]
fn label_comes_back_in_the_list() {
    let stage = Stage::new();
    let mut link = stage.link();
    let label = foster_protocol::Bytes::from(b"build \xff 1".to_vec());
    let running = link.spawn(Spec {
        label: label.clone(),
        ..stage.sleeper()
    });
    let (sessions, _) = link.list();
    let info = sessions.first().expect("one session");
    assert_eq!((info.session, &info.label), (running.session, &label));
}
