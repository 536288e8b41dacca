//! What a keeper costs: memory while it waits, and time at a spawn.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use foster_protocol::Level;
use foster_tests::{Link, Stage, at_level, note_not_run};

use crate::ground::{spawn_sleeper, tree};

/// The most private memory of an idle keeper, in kB, where the helper is built for release.
const MOST_PRIVATE: u64 = 200;

/// How many spawns a time is taken from.
const SPAWNS: usize = 200;

/// The most that a keeper adds to a spawn, on a machine that does anything else beside.
const MOST_ADDED: Duration = Duration::from_millis(50);

#[expect(clippy::print_stderr, reason = "a measurement is to be read")]
fn report(line: &str) {
    eprintln!("{line}");
}

/// The private memory of a process in kB.
fn private_memory(pid: i32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let sizes = text.lines().filter(|line| line.starts_with("Private_"));
    let sizes = sizes.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(sizes.sum())
}

#[test]
fn idle_keeper_has_little_memory_of_its_own() {
    let stage = Stage::new();
    let mut link = stage.link();
    let keepers: Vec<_> = (0..10).map(|_| spawn_sleeper(&stage, &mut link)).collect();
    link.list();
    let (_, _, last) = keepers.last().expect("ten keepers");
    let private = match private_memory(last.pid()) {
        Ok(private) => private,
        Err(error) => return note_not_run("the memory of a keeper", &error.to_string()),
    };
    report(&format!("an idle keeper: {private} kB of private memory"));
    assert!(private > 0, "the kernel counts");
    if cfg!(debug_assertions) {
        return note_not_run("the bound of it", "this is no release build");
    }
    assert!(private < MOST_PRIVATE, "{private} kB");
}

#[test]
fn keeper_that_waits_after_many_sessions_has_little_memory_of_its_own() {
    let stage = Stage::new();
    let mut link = stage.link();
    for _ in 0..50 {
        link.output(tree(stage.sh("sleep 0 & setsid sleep 0 & wait; exit 3")));
    }
    link.assert_idle();
    let spares = link.spares();
    let spare = spares.first().expect("a keeper waits");
    let private = match private_memory(*spare) {
        Ok(private) => private,
        Err(error) => return note_not_run("the memory of a keeper", &error.to_string()),
    };
    report(&format!(
        "a keeper after its sessions: {private} kB of private memory"
    ));
    assert!(private > 0, "the kernel counts");
    if cfg!(debug_assertions) {
        return note_not_run("the bound of it", "this is no release build");
    }
    assert!(private < MOST_PRIVATE, "{private} kB");
}

/// The median time from a spawn request to `Spawned`.
fn median_spawn(stage: &Stage, link: &mut Link, level: Level) -> Duration {
    let mut times: Vec<Duration> = (0..SPAWNS)
        .map(|_| {
            let spec = at_level(level, stage.command("/bin/true", &[]));
            let begin = Instant::now();
            let running = link.spawn(spec);
            let time = begin.elapsed();
            link.exit(running.session);
            link.close(running.session);
            time
        })
        .collect();
    times.sort_unstable();
    *times.get(SPAWNS / 2).expect("a median")
}

#[test]
fn keeper_adds_little_to_the_time_of_a_spawn() {
    let stage = Stage::new();
    let mut link = stage.link();
    link.output(tree(stage.command("/bin/true", &[])));
    let group = median_spawn(&stage, &mut link, Level::Group);
    let tree = median_spawn(&stage, &mut link, Level::Tree);
    report(&format!("a spawn: {group:?} at group, {tree:?} at tree"));
    assert!(tree < group + MOST_ADDED, "{group:?}, {tree:?}");
}
