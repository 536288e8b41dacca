//! Records: when they are there, and which are not believed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use foster_protocol::{Level, Record, file_name};
use foster_tests::{DEATH, Stage, at_level, is_root, note_not_run};
use serde_json::Value;

use crate::ground::{Ground, Run, read, state};

const DAEMON: &str = r#"setsid sh -c "$1" "$0" &"#;
const SLEEPS: &str = "echo member $$; exec sleep 60";

/// The reasons of what was refused.
fn refusals(report: &Value) -> Vec<&str> {
    let list = report.get("refused").and_then(Value::as_array);
    let list = list.expect("a list").iter();
    list.map(|one| one.get("why").and_then(Value::as_str).expect("a reason"))
        .collect()
}

/// A run of which something is left, and its record.
fn left(ground: &Ground) -> (Run, std::path::PathBuf, Record) {
    let mut run = Run::start(ground, Level::Tree, DAEMON, SLEEPS);
    let (path, record) = ground.record();
    run.kill_all();
    assert!(run.member.is_alive());
    (run, path, record)
}

/// Sweeps for good, and sees the member go.
fn finish(ground: &Ground, run: &Run) {
    let (code, report) = ground.sweep(&[]);
    assert_eq!((code, state(&report)), (0, "all-gone"), "{report}");
    run.member.wait_for_death(DEATH);
}

#[test]
fn helper_that_ends_in_order_leaves_no_record() {
    for level in [Level::Group, Level::Tree] {
        let ground = Ground::new();
        let mut link = ground.launch().greeted();
        assert_eq!(link.probe().janitor, 0);
        let (_running, _tracer) = link.spawn_traced(at_level(level, ground.stage.sleeper()));
        assert_eq!(ground.records().len(), 1);
        link.hang_up();
        assert_eq!(link.exit_code(), 0);
        assert_eq!(ground.records(), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn spawns_write_nothing_to_the_record() {
    let ground = Ground::new();
    let mut link = ground.launch().greeted();
    let (path, _) = ground.record();
    let before = fs::metadata(&path).expect("it is there");
    for level in [Level::Group, Level::Tree, Level::Cgroup] {
        let running = link.spawn(at_level(level, ground.stage.sh("exit 0")));
        link.close(running.session);
    }
    let after = fs::metadata(&path).expect("it is there");
    let written = |about: &fs::Metadata| about.modified().expect("a time");
    assert_eq!(written(&before), written(&after));
}

#[test]
fn record_of_another_boot_is_only_removed() {
    let ground = Ground::new();
    let (run, path, record) = left(&ground);
    let text = fs::read(&path).expect("it is readable");
    let past = Record {
        boot: "another".to_owned(),
        ..record
    };
    fs::write(&path, past.encode()).expect("it is writable");
    let (code, report) = ground.sweep(&[]);
    assert_eq!((code, state(&report)), (0, "past"), "{report}");
    assert!(run.member.is_alive() && !path.exists());
    write_own(&path, &text);
    finish(&ground, &run);
}

/// Writes a record as a helper would: for its owner alone.
fn write_own(path: &Path, text: &[u8]) {
    fs::write(path, text).expect("it is writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
}

#[test]
fn record_of_another_pid_namespace_is_left_to_it() {
    let ground = Ground::new();
    let (run, path, record) = left(&ground);
    let elsewhere = Record {
        pid_namespace: 1,
        ..record.clone()
    };
    write_own(&path, &elsewhere.encode());
    let (code, report) = ground.sweep(&[]);
    assert_eq!((code, state(&report)), (0, "elsewhere"), "{report}");
    assert!(run.member.is_alive() && path.exists());
    write_own(&path, &record.encode());
    finish(&ground, &run);
}

#[test]
fn records_that_a_helper_does_not_write_are_refused_and_nobody_is_signalled() {
    let ground = Ground::new();
    let (run, path, record) = left(&ground);
    let good = record.encode();
    let system = Record {
        cgroup: Some("/etc".into()),
        ..record.clone()
    };
    let huge = [good.clone(), b"released 1\n".repeat(100_000)].concat();
    for (text, why) in [
        (&b"\x7fELF\x00garbage"[..], "it is no record"),
        (b"", "it is no record"),
        (&good[..good.len() - 1], "it is no record"),
        (&huge, "more than a record has"),
        (&system.encode(), "names a cgroup that is none"),
    ] {
        write_own(&path, text);
        let (code, report) = ground.sweep(&["--grace", "0"]);
        let refused = refusals(&report);
        assert!(
            refused.iter().all(|reason| reason.contains(why)),
            "{report}"
        );
        assert_eq!((code, refused.len()), (1, 1), "{report}");
        assert!(run.member.is_alive() && path.exists(), "{why}");
    }
    // A copy under another name, a link, a folder, a pipe, and one that others may write.
    fs::remove_file(&path).expect("it is ours");
    let aside = ground.stage.scratch().join("aside");
    write_own(&aside, &good);
    let other = path.with_file_name(file_name(record.name ^ 1));
    write_own(&other, &good);
    expect_refusal(&ground, &run, "another instance");
    fs::remove_file(&other).expect("it is ours");
    symlink(&aside, &path).expect("a link");
    expect_refusal(&ground, &run, "not what a helper makes");
    fs::remove_file(&path).expect("it is ours");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    expect_refusal(&ground, &run, "not what a helper makes");
    fs::remove_file(&path).expect("it is ours");
    write_own(&path, &good);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("it is ours");
    expect_refusal(&ground, &run, "others than its owner");
    write_own(&path, &good);
    finish(&ground, &run);
}

fn expect_refusal(ground: &Ground, run: &Run, why: &str) {
    let (code, report) = ground.sweep(&["--grace", "0"]);
    let refused = refusals(&report);
    assert!(
        refused.iter().any(|reason| reason.contains(why)),
        "{report}"
    );
    assert_eq!(code, 1, "{report}");
    assert!(run.member.is_alive(), "{why}");
}

#[test]
fn folder_that_is_a_link_or_open_to_others_is_refused_by_helper_and_sweep() {
    let ground = Ground::new();
    let elsewhere = ground.stage.scratch().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o777)).expect("it is ours");
    symlink(&elsewhere, ground.folder()).expect("a link");
    for why in ["not what a helper makes", "others than its owner"] {
        let (code, report) = ground.sweep(&[]);
        let refused = refusals(&report);
        assert!(
            refused.iter().any(|reason| reason.contains(why)),
            "{report}"
        );
        assert_eq!(code, 1, "{report}");
        // The helper takes another folder, or none, and serves.
        let mut link = ground.launch().greeted();
        link.ping();
        drop(link);
        let inside = fs::read_dir(&elsewhere).expect("it is readable").count();
        assert_eq!(inside, 0, "a record was written through {why}");
        if why.starts_with("not") {
            fs::remove_file(ground.folder()).expect("it is ours");
            fs::rename(&elsewhere, ground.folder()).expect("it is ours");
            symlink(ground.folder(), &elsewhere).expect("a link");
        }
    }
}

#[test]
fn folder_of_another_user_is_refused() {
    if !is_root() {
        note_not_run("a folder of another user", "only root can make one");
        return;
    }
    let ground = Ground::new();
    let (run, path, _) = left(&ground);
    let user = Some(nix::unistd::Uid::from_raw(65534));
    let root = Some(nix::unistd::Uid::from_raw(0));
    for target in [&path, &ground.folder()] {
        nix::unistd::chown(target, user, None).expect("root may");
        expect_refusal(&ground, &run, "belongs to user 65534");
        nix::unistd::chown(target, root, None).expect("root may");
    }
    finish(&ground, &run);
}

#[test]
fn two_sweeps_at_once_end_everything_once() {
    let ground = Ground::new();
    let mut run = Run::start(
        &ground,
        Level::Tree,
        DAEMON,
        "trap '' TERM; echo member $$; exec sleep 60",
    );
    run.kill_all();
    let program = || {
        let words = ground.sweep_words();
        foster_tests::Program::new(&ground.stage, foster_tests::places::foster()).args(words)
    };
    let (first, second) = (program().start(), program().start());
    let reports = [first, second].map(|process| read(&process.finish(foster_tests::ANSWER)));
    let states: Vec<String> = reports
        .iter()
        .flat_map(|(_, report)| crate::ground::instances(report))
        .map(|one| {
            one.get("state")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    let ended = states.iter().filter(|state| *state == "all-gone").count();
    assert_eq!(ended, 1, "{states:?}");
    assert!(
        states
            .iter()
            .all(|state| state == "all-gone" || state == "live")
    );
    run.member.wait_for_death(DEATH);
}

#[test]
fn sweep_without_a_folder_finds_nothing_and_says_so() {
    let stage = Stage::new();
    let folder = stage.scratch().join("none").display().to_string();
    let finished = foster_tests::Program::new(&stage, foster_tests::places::foster())
        .args(["sweep", "--dir", &folder])
        .run();
    assert_eq!(
        (finished.code(), finished.stdout.as_str()),
        (0, "nothing is left\n")
    );
}
