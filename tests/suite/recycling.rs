//! No stranger is signalled, under any recycling of process ids.
//!
//! Everything happens in a private pid namespace with so small a `pid_max` that numbers come
//! round again many times a second. The control does what a program without pidfds does, in
//! the same place, and does hit strangers.

use std::time::Duration;

use foster_tests::{Finished, Process, Program, Stage, not_run, places};

/// So many process ids are there: just above the 300 that the kernel keeps for a start.
const PID_MAX: &str = "pid_max=400";

/// How many strangers live at a time.
const STRANGERS: &str = "60";

/// How long a run lasts, in milliseconds: longer where the machine was too busy for the shorter.
const LENGTHS: [u32; 2] = [4000, 16_000];

/// So many strangers that every number came round several times.
const ENOUGH_STRANGERS: u64 = 4 * 400;

/// How often the control is run until it bites.
const CONTROLS: u32 = 5;

/// How long a run may take: far more than it does.
const LIMIT: Duration = Duration::from_secs(45);

/// What came of a run beside churning strangers.
#[derive(Debug)]
struct Churned {
    /// How many strangers there were.
    strangers: u64,
    /// How many of them were signalled.
    hits: u64,
    /// How many rounds the program did.
    rounds: u64,
}

/// Runs a fixture in a namespace of its own; none where there can be none, which is said.
fn run_inside(stage: &Stage, what: &str, script: &str) -> Option<Finished> {
    let mut process = Program::fixture(stage, "in-pid-namespace")
        .args([PID_MAX, "--", "sh", "-c", script])
        .start();
    let is_inside = is_inside(&mut process, what);
    let finished = process.finish(LIMIT);
    is_inside.then_some(finished)
}

fn is_inside(process: &mut Process, what: &str) -> bool {
    process.close_stdin();
    let line = process.stdout.line();
    if line != "inside" {
        not_run(what, &line);
    }
    line == "inside"
}

/// Runs a fixture beside churning strangers for so many milliseconds.
fn run_beside_strangers(
    stage: &Stage,
    what: &str,
    length: u32,
    fixture: &str,
    words: &str,
) -> Option<Churned> {
    let path = |name| places::fixture(name).display().to_string();
    let (churner, program) = (path("churns-strangers"), path(fixture));
    let script = format!(
        "{churner} {STRANGERS} {length} & churner=$!; {program} {length} {words} || exit 1; wait $churner"
    );
    let finished = run_inside(stage, what, &script)?;
    assert!(finished.status.success(), "{finished:?}");
    let ([strangers, hits], [rounds]) = (numbers::<2>(&finished), numbers::<1>(&finished));
    Some(Churned {
        strangers,
        hits,
        rounds,
    })
}

/// The numbers of the line that has so many of them, wherever it stands: whichever program is
/// done first prints first.
fn numbers<const COUNT: usize>(finished: &Finished) -> [u64; COUNT] {
    let mut lines = finished.stdout.lines().map(|line| {
        let words: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        words.ok()?.try_into().ok()
    });
    let line = lines.find_map(|line| line);
    line.unwrap_or_else(|| panic!("no line of {COUNT} numbers: {finished:?}"))
}

#[test]
fn control_that_kills_by_number_hits_strangers() {
    let mut runs = Vec::new();
    for _ in 0..CONTROLS {
        let stage = Stage::new();
        let [length, _] = LENGTHS;
        let what = "the control of recycling";
        let run = run_beside_strangers(&stage, what, length, "kills-by-number", "");
        let Some(run) = run else { return };
        if run.hits > 0 {
            return;
        }
        runs.push(run);
    }
    panic!("the control never bit, so that the test shows nothing: {runs:?}");
}

#[test]
fn no_stranger_is_signalled_while_process_ids_come_round_again() {
    assert_nobody_hit("recycling", "host-that-recycles", "", 100);
}

#[test]
fn no_stranger_is_signalled_by_a_host_without_a_helper_while_process_ids_come_round_again() {
    assert_nobody_hit("recycling", "host-that-recycles", "direct", 100);
}

#[test]
fn sweep_signals_no_stranger_while_process_ids_come_round_again() {
    assert_nobody_hit("recycling and sweeps", "janitor-that-recycles", "", 20);
}

/// Nobody is hit, while every number comes round several times beside more than so many ends.
fn assert_nobody_hit(what: &str, fixture: &str, words: &str, ends: u64) {
    let mut runs = Vec::new();
    for length in LENGTHS {
        let stage = Stage::new();
        let run = run_beside_strangers(&stage, what, length, fixture, words);
        let Some(run) = run else { return };
        assert_eq!(run.hits, 0, "{run:?}");
        if run.strangers > ENOUGH_STRANGERS && run.rounds > ends {
            return;
        }
        runs.push(run);
    }
    panic!("too few strangers or ends, so that the test shows nothing: {runs:?}");
}

#[test]
fn number_of_a_held_leader_is_given_to_nobody_and_nobody_is_signalled_by_it_later() {
    let stage = Stage::new();
    let program = places::fixture("forces-recycling").display().to_string();
    let finished = run_inside(&stage, "forced recycling", &format!("exec {program}"));
    let Some(finished) = finished else { return };
    assert!(finished.status.success(), "{finished:?}");
    assert_eq!(finished.stdout, "held false\nfreed true\nunharmed true\n");
}
