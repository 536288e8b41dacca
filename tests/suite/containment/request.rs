//! Who is heard, and that nobody else ever sees the request.

use foster_tests::{Program, Stage, find_tagged, places, proc};

use crate::ground::{LINE, OVER, VARIABLE, asked, program, start_tree};

/// Says its pid and what it sees of the request.
const LOOKS: &str = "echo $$; echo ${FOSTER_TEST_CONTAINMENT-absent}";

/// Runs a program to its end and asserts that it ran in the process that was started, and that
/// nothing but its own lines came: gives its last line and what it says of the request.
fn run_uncontained(program: Program) -> (String, String) {
    let mut process = program.start();
    let pid = process.pid();
    process.close_stdin();
    let finished = process.finish(OVER);
    assert_eq!(finished.code(), 0, "{finished:?}");
    let mut lines = finished.stdout.lines();
    assert_eq!(lines.next(), Some(pid.to_string().as_str()));
    let seen = lines.next().unwrap_or_default().to_owned();
    assert_eq!(lines.next(), None);
    (seen, finished.stderr)
}

#[test]
fn request_is_carried_out_and_its_variable_is_gone() {
    let stage = Stage::new();
    let process = asked(&stage, &[], LOOKS).start();
    let starter = process.pid().to_string();
    let finished = process.finish(OVER);
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert_eq!(finished.stderr, "not requested\n");
    let lines: Vec<&str> = finished.stdout.lines().collect();
    let &[line, pid, seen] = lines.as_slice() else {
        panic!("{finished:?}")
    };
    assert_eq!((line, seen), (LINE, "absent"));
    assert_ne!(pid, starter, "the program itself is the starter");
}

#[test]
fn any_other_value_asks_for_nothing_and_is_removed_all_the_same() {
    for value in ["", "0", "2", "01", "1 ", " 1", "true", "yes"] {
        let stage = Stage::new();
        let (seen, outcome) = run_uncontained(program(&stage, &[], LOOKS).env(VARIABLE, value));
        assert_eq!(
            (seen.as_str(), outcome.as_str()),
            ("absent", "not requested\n")
        );
    }
}

#[test]
fn without_the_variable_nothing_happens() {
    let stage = Stage::new();
    let (seen, outcome) = run_uncontained(program(&stage, &[], LOOKS));
    assert_eq!(
        (seen.as_str(), outcome.as_str()),
        ("absent", "not requested\n")
    );
}

#[test]
fn arguments_that_the_program_does_not_accept_are_not_contained() {
    let stage = Stage::new();
    let other = Program::fixture(&stage, "program-on-request")
        .args(["other", "--", "sh", "-c", LOOKS])
        .env(VARIABLE, "1");
    let (seen, outcome) = run_uncontained(other);
    assert_eq!(
        (seen.as_str(), outcome.as_str()),
        ("absent", "not requested\n")
    );
}

#[test]
fn program_that_has_threads_already_is_refused_and_runs_as_before() {
    let stage = Stage::new();
    let (seen, outcome) = run_uncontained(asked(&stage, &["thread"], LOOKS));
    // The environment cannot be changed beside a thread that may be reading it.
    assert_eq!(seen, "1");
    assert_eq!(outcome, "unavailable ThreadsPresent\n");
}

#[test]
fn program_without_a_helper_runs_as_before_and_its_variable_is_gone() {
    let stage = Stage::new();
    let (seen, outcome) = run_uncontained(asked(&stage, &["no-init"], LOOKS));
    assert_eq!(
        (seen.as_str(), outcome.as_str()),
        ("absent", "unavailable NoHelper\n")
    );
}

#[test]
fn required_level_that_is_not_to_be_had_leaves_the_program_as_it_was() {
    let stage = Stage::new();
    let path = places::fixture("program-on-request");
    let script = "echo $$; echo ready; exec sleep 60";
    let mut process = Program::fixture(&stage, "without-syscalls")
        .args(["pidfd_open", "--"])
        .arg(path)
        .args(["engine", "require-tree", "--", "sh", "-c", script])
        .env(VARIABLE, "1")
        .start();
    assert_eq!(process.stdout.pid(), process.pid());
    assert_eq!(process.stdout.line(), "ready");
    assert_eq!(process.stderr.line(), "unavailable Rejected");
    // Neither a helper is left, nor a command at a gate, nor a signal that is blocked.
    assert_eq!(proc::children(process.pid()), []);
    // The environment of a process in the midst of its exec shows nothing.
    foster_tests::eventually("nobody else is left", foster_tests::SETTLE, || {
        find_tagged(stage.tag()).len() == 1
    });
    process.signal(libc::SIGTERM);
    assert_eq!(process.finish(OVER).signal(), Some(libc::SIGTERM));
}

#[test]
fn control_descriptor_that_cannot_be_watched_makes_containment_unavailable() {
    for option in ["control=77", "control=0"] {
        let stage = Stage::new();
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let program = asked(&stage, &[option], LOOKS).stdin(null);
        let (seen, outcome) = run_uncontained(program);
        assert_eq!(
            (seen.as_str(), outcome.as_str()),
            ("absent", "unavailable System\n")
        );
    }
}

#[test]
fn no_descendant_and_no_helper_has_the_variable() {
    let stage = Stage::new();
    let (mut process, members) = start_tree(&stage, &[], "read line");
    let tagged = find_tagged(stage.tag());
    let pids = tagged
        .iter()
        .filter_map(|line| line.split(' ').next()?.parse().ok());
    let pids: Vec<i32> = pids.filter(|pid| *pid != process.pid()).collect();
    assert!(pids.len() >= members.len(), "{tagged:?}");
    for pid in pids {
        assert!(
            !proc::holds(pid, "environ", VARIABLE.as_bytes()),
            "{tagged:?}"
        );
    }
    // The look bites: the starter was itself started with it.
    assert!(proc::holds(process.pid(), "environ", VARIABLE.as_bytes()));
    process.say("go");
    process.finish(OVER);
}
