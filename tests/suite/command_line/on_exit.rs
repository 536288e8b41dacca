//! What happens to the rest when the command exits.

use std::time::{Duration, Instant};

use foster_tests::{DEATH, Process, Program, Stage, Tracer, Witness, clean_up};

/// A command that exits with 4 while its background job, which says its pid, lives for a time.
fn start(stage: &Stage, options: &[&str], life: &str) -> (Process, Witness) {
    let script = format!("sh -c 'echo $$; exec sleep {life}' & read line; exit 4");
    let mut process = Program::foster(stage, &["-k", "0.3"])
        .args(options)
        .args(["bash", "-c", &script])
        .start();
    // It holds the pipe and lives until the line, so that the number is its own.
    let job = Witness::of(process.stdout.pid());
    (process, job)
}

#[test]
fn rest_is_ended_at_once_by_default_and_with_end() {
    for options in [&[] as &[&str], &["--on-exit", "end"]] {
        let stage = Stage::new();
        let (mut process, job) = start(&stage, options, "60");
        process.say("go");
        let begin = Instant::now();
        assert_eq!(process.wait(DEATH).code(), Some(4));
        job.wait_for_death(Duration::ZERO);
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{:?}",
            begin.elapsed()
        );
    }
}

#[test]
fn rest_may_finish_with_wait() {
    let stage = Stage::new();
    let (mut process, job) = start(&stage, &["--on-exit", "wait"], "0.8");
    process.say("go");
    let finished = process.finish(DEATH);
    assert_eq!((finished.code(), finished.stderr.as_str()), (4, ""));
    job.wait_for_death(Duration::ZERO);
}

#[test]
fn rest_is_ended_when_its_limit_is_reached() {
    let stage = Stage::new();
    let (mut process, job) = start(&stage, &["--on-exit", "wait:500ms"], "60");
    process.say("go");
    let begin = Instant::now();
    let finished = process.finish(DEATH);
    assert_eq!(finished.code(), 4);
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    job.wait_for_death(Duration::ZERO);
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(450), "{took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn rest_is_left_running_with_leave() {
    let stage = Stage::new();
    let (mut process, job) = start(&stage, &["--on-exit", "leave"], "60");
    process.say("go");
    assert_eq!(process.wait(DEATH).code(), Some(4));
    process.stdout.assert_held_for(Duration::from_millis(800));
    assert!(job.is_alive());
    clean_up(&[job]);
    process.stdout.wait_for_end(DEATH);
}

#[test]
fn leave_reports_how_many_were_left() {
    let stage = Stage::new();
    let (mut report, writer) = Tracer::new();
    let script = "sh -c 'echo $$; exec sleep 60 2>&-' & read line; exit 0";
    let mut process = Program::foster(&stage, &["--on-exit", "leave", "--report", "-"])
        .args(["bash", "-c", script])
        .stderr(writer)
        .start();
    let job = Witness::of(process.stdout.pid());
    process.say("go");
    assert_eq!(process.wait(DEATH).code(), Some(0));
    let line = report.line();
    let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(value["verdict"], "released", "{line}");
    assert_eq!(value["left_running"], 1, "{line}");
    clean_up(&[job]);
    process.stdout.wait_for_end(DEATH);
}

#[test]
fn term_while_the_rest_lingers_ends_it() {
    let stage = Stage::new();
    let (mut process, job) = start(&stage, &["--on-exit", "wait", "-v"], "60");
    process.say("go");
    // With -v foster tells when the command has exited.
    while !process.stderr.line().contains("command ended") {}
    process.signal(libc::SIGTERM);
    process.wait(DEATH);
    job.wait_for_death(Duration::ZERO);
}
