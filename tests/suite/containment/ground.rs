//! A program that is asked to contain itself, and the tree that it has.

use std::time::Duration;

use foster_tests::{Process, Program, Stage, Witness};

/// The variable that asks.
pub(crate) const VARIABLE: &str = "FOSTER_TEST_CONTAINMENT";

/// The acknowledgement without a key of its own.
pub(crate) const LINE: &str = "{\"foster_session_containment\":1}";

/// How long a starter or a member may take to be gone: the helper's own limits, on a machine that
/// is busy with something else.
pub(crate) const OVER: Duration = Duration::from_secs(30);

/// How many process ids a tree says.
const MEMBERS: usize = 3;

/// A daemon that has left the session, a job that ignores TERM, and the program itself, which
/// does the rest of the script when it has said its pid.
const TREE: &str = "setsid -f sh -c 'echo $$; exec sleep 60' </dev/null; \
    sh -c 'trap \"\" TERM; echo $$; exec sleep 60' </dev/null & echo $$; ";

/// The program with these options and this script; nobody asks yet.
pub(crate) fn program(stage: &Stage, options: &[&str], script: &str) -> Program {
    Program::fixture(stage, "program-on-request")
        .arg("engine")
        .args(options)
        .args(["--", "sh", "-c", script])
}

/// The same, asked to contain itself.
pub(crate) fn asked(stage: &Stage, options: &[&str], script: &str) -> Program {
    program(stage, options, script).env(VARIABLE, "1")
}

/// The script of a tree of which the program itself ends in this way.
pub(crate) fn tree(rest: &str) -> String {
    format!("{TREE}{rest}")
}

/// Reads the pids of a tree.
pub(crate) fn members(process: &mut Process) -> Vec<Witness> {
    (0..MEMBERS)
        .map(|_| Witness::of(process.stdout.pid()))
        .collect()
}

/// Starts a program that is asked, with a tree, and reads its acknowledgement and its pids.
pub(crate) fn start_tree(stage: &Stage, options: &[&str], rest: &str) -> (Process, Vec<Witness>) {
    acknowledged(asked(stage, options, &tree(rest)))
}

/// Starts a program with a tree, and reads its acknowledgement and its pids.
pub(crate) fn acknowledged(program: Program) -> (Process, Vec<Witness>) {
    let mut process = program.start();
    assert_eq!(process.stdout.line(), LINE);
    let members = members(&mut process);
    (process, members)
}

/// Those who live.
pub(crate) fn alive(members: &[Witness]) -> Vec<i32> {
    members
        .iter()
        .filter(|one| one.is_alive())
        .map(Witness::pid)
        .collect()
}
