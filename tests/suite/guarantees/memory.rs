//! When memory runs out, helper and keepers are among the last who are killed.

use std::fs;

use foster::{Level, LevelChoice};
use foster_tests::{Stage, Tracer, note_not_run, proc};

use crate::ground::{helper, pid, sh};

/// The score that a helper lives with, where it may.
const LOWERED: &str = "-900";

fn score_of(pid: i32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj"));
    text.expect("everybody may look").trim().to_owned()
}

/// Whether a child of this process may lower its score.
fn may_lower(stage: &Stage) -> bool {
    let script = "echo -900 > /proc/self/oom_score_adj";
    let program = foster_tests::Program::new(stage, "/bin/sh");
    program.args(["-c", script]).run().code() == 0
}

#[test]
fn helper_and_keepers_lower_their_oom_scores_where_they_may_and_their_commands_do_not() {
    let stage = Stage::new();
    let own = score_of(std::process::id().cast_signed());
    let lowered = match may_lower(&stage) {
        true => LOWERED.to_owned(),
        false => {
            note_not_run("lowering an OOM score", "this takes CAP_SYS_RESOURCE");
            own.clone()
        }
    };
    let helper = helper();
    let (mut tracer, writer) = Tracer::new();
    let child = sh(&stage, &helper, "echo ready; exec sleep 60")
        .level(LevelChoice::Exactly(Level::Tree))
        .stdout(writer)
        .spawn()
        .expect("the command");
    tracer.line();
    let leader = child.id().cast_signed();
    let keeper = proc::stat(leader).expect("the leader lives").parent;
    assert_ne!(keeper, pid(&helper), "it has a keeper");
    let scores = [pid(&helper), keeper, leader].map(score_of);
    assert_eq!(scores, [lowered.clone(), lowered, own]);
}
