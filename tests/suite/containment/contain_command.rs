//! `foster contain`: the same for any program, without a request.

use foster_tests::{Finished, Program, Stage, Witness, only_child_of, places};

use crate::ground::{LINE, OVER, acknowledged, alive, members, tree};

/// `foster contain` with these options and this script.
fn contain(stage: &Stage, options: &[&str], script: &str) -> Program {
    Program::new(stage, places::foster())
        .args(["contain", "-k", "0.3"])
        .args(options)
        .args(["--", "sh", "-c", script])
}

fn run(stage: &Stage, words: &[&str]) -> Finished {
    Program::new(stage, places::foster())
        .arg("contain")
        .args(words)
        .run()
}

#[test]
fn standard_output_is_the_programs_alone_without_an_option() {
    let stage = Stage::new();
    let finished = contain(&stage, &[], "echo out; exit 3").run();
    assert_eq!((finished.stdout.as_str(), finished.code()), ("out\n", 3));
    assert_eq!(finished.stderr, "");
}

#[test]
fn acknowledgement_comes_first_where_it_is_asked_for() {
    let stage = Stage::new();
    let finished = contain(&stage, &["--ack"], "echo out").run();
    assert_eq!(finished.stdout, format!("{LINE}\nout\n"));
    let finished = contain(&stage, &["--ack=my_key"], "echo out").run();
    assert_eq!(finished.stdout, "{\"my_key\":1}\nout\n");
}

#[test]
fn foster_that_is_killed_or_sent_a_signal_leaves_nobody() {
    for number in [libc::SIGKILL, libc::SIGTERM, libc::SIGHUP] {
        let stage = Stage::new();
        let mut process = contain(&stage, &[], &tree("exec sleep 60")).start();
        let members = members(&mut process);
        process.signal(number);
        let status = process.wait(OVER);
        if number != libc::SIGKILL {
            assert_eq!(alive(&members), []);
            assert_eq!(status.code(), Some(128 + libc::SIGTERM));
        }
        process.stdout.wait_for_end(OVER);
        members.iter().for_each(|one| one.wait_for_death(OVER));
    }
}

#[test]
fn parent_and_control_descriptor_are_watched_where_the_options_say_so() {
    let stage = Stage::new();
    let program = contain(&stage, &["--ack", "--watch-parent"], &tree("exec sleep 60"));
    let (mut parent, members) = acknowledged(program.below_a_parent(&stage));
    let foster = only_child_of(parent.pid());
    parent.signal(libc::SIGKILL);
    foster.wait_for_death(OVER);
    assert_eq!(alive(&members), []);
    parent.stdout.wait_for_end(OVER);
    let program = contain(
        &stage,
        &["--ack", "--control-fd", "0"],
        &tree("exec sleep 60"),
    );
    let (mut process, members) = acknowledged(program);
    process.close_stdin();
    process.wait(OVER);
    assert_eq!(alive(&members), []);
}

#[test]
fn what_keeps_foster_from_its_work_is_one_line_and_the_code_of_run() {
    let stage = Stage::new();
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--", "/no/such/program"], 127, "program not found"),
        (&["--", "/etc/passwd"], 126, "cannot be executed"),
        (
            &["--control-fd", "77", "--", "true"],
            125,
            "control descriptor",
        ),
        (&["--control-fd=-1", "--", "true"], 125, "control-fd"),
        (&["--ack=a b", "--", "true"], 125, "--ack"),
        (&["--grace", "soon", "--", "true"], 125, "--grace"),
        (&["--", ""], 125, "empty"),
        (&[], 125, "PROGRAM"),
    ];
    for (words, code, said) in cases {
        let finished = run(&stage, words);
        assert_eq!(finished.code(), code, "{words:?}: {finished:?}");
        assert!(finished.stderr.contains(said), "{words:?}: {finished:?}");
        assert!(finished.stderr.starts_with("foster: "), "{finished:?}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
        assert_eq!(finished.stdout, "");
    }
}

#[test]
fn required_level_that_is_not_to_be_had_is_refused_with_its_remedy() {
    let stage = Stage::new();
    let finished = Program::fixture(&stage, "without-syscalls")
        .args(["pidfd_open", "--"])
        .arg(places::foster())
        .args(["contain", "--ack", "--require", "tree", "--", "true"])
        .run();
    assert_eq!((finished.code(), finished.stdout.as_str()), (125, ""));
    assert!(
        finished.stderr.contains("level tree cannot be had"),
        "{finished:?}"
    );
}

#[test]
fn program_below_foster_has_arguments_environment_and_folder_as_given() {
    let stage = Stage::new();
    let script = "echo \"$0\" \"$1\"; echo $CONTAINED_NOTE; pwd; read line; echo $line";
    let mut process = contain(&stage, &[], script)
        .args(["name", "a b"])
        .env("CONTAINED_NOTE", "noted")
        .directory(stage.scratch())
        .start();
    process.say("through");
    let finished = process.finish(OVER);
    let folder = stage.scratch().canonicalize().expect("the folder");
    let expected = format!("name a b\nnoted\n{}\nthrough\n", folder.display());
    assert_eq!(finished.stdout, expected);
}

#[test]
fn signal_before_the_program_runs_prevents_it() {
    let stage = Stage::new();
    // A parent that is gone by the time that foster looks is as a signal that has come.
    let marker = stage.scratch().join("marker");
    let script = format!(": > {}", marker.display());
    let (read, write) = foster_tests::Tracer::gate();
    drop(write);
    let finished = contain(&stage, &["--control-fd", "0"], &script)
        .stdin(read)
        .run();
    assert_eq!(finished.code(), 128 + libc::SIGTERM, "{finished:?}");
    assert!(!marker.exists());
}

#[test]
fn leader_that_outlives_its_helper_is_no_one() {
    let stage = Stage::new();
    let mut process = contain(&stage, &[], "echo $$; exec sleep 60").start();
    let leader = Witness::of(process.stdout.pid());
    only_child_of(process.pid()).signal(libc::SIGKILL);
    leader.wait_for_death(OVER);
    let finished = process.finish(OVER);
    assert_eq!(finished.code(), 125, "{finished:?}");
}
