//! The scheduling of a command: that of its host, also where its helper has gone before others
//! to end somebody.

use std::fs;
use std::time::Duration;

use foster_protocol::Level;
use foster_tests::{Launch, SETTLE, Stage, at_level, eventually, is_root, note_not_run};

/// The user of these tests alone.
const OTHER: u32 = 64_354;

const LEVELS: [Level; 4] = [Level::Group, Level::Tree, Level::Cgroup, Level::Namespace];

/// Prints nice value, real-time priority, policy (`proc_pid_stat(5)`), the slice where the kernel
/// tells it, and the weight of the session.
const LOOK: &str = "set -- $(cat /proc/self/stat); shift 18; echo $1; shift 21; echo $1 $2; \
                    grep -F se.slice /proc/self/sched; cut -d' ' -f2- /proc/self/autogroup; true";

/// The policies of a process's threads.
fn policies(pid: i32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the helper has threads");
    let stat = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("stat")).ok();
    let stats = threads.filter_map(Result::ok).filter_map(stat);
    let policy = |text: String| {
        let (_, fields) = text.rsplit_once(") ")?;
        fields.split(' ').nth(38).map(str::to_owned)
    };
    stats.filter_map(policy).collect()
}

/// What a command shows that this process starts by itself.
fn expected() -> String {
    let output = std::process::Command::new("setsid")
        .args(["-w", "sh", "-c", LOOK])
        .output()
        .expect("setsid");
    String::from_utf8(output.stdout).expect("text")
}

fn assert_as_the_host(stage: &Stage, launch: Launch) {
    let mut link = launch.greeted();
    let expected = expected();
    for level in LEVELS {
        let (_, seen) = link.output(at_level(level, stage.sh(LOOK)));
        assert_eq!(String::from_utf8_lossy(&seen), expected, "{level:?}");
    }
}

#[test]
fn command_is_scheduled_as_its_host_is_at_every_level() {
    let stage = Stage::new();
    assert_as_the_host(&stage, stage.launch());
    if !is_root() {
        return note_not_run(
            "a helper of an ordinary user beside root's",
            "this is not root",
        );
    }
    assert_as_the_host(&stage, stage.launch().as_user(OTHER));
}

#[test]
fn command_is_scheduled_as_its_host_is_while_its_helper_goes_before_others() {
    let stage = Stage::new();
    let mut link = stage.link();
    let stubborn = at_level(Level::Tree, stage.fixture("ignores-term", &[]));
    let (running, _tracer) = link.spawn_traced(stubborn);
    let kill = link.ask_kill(running.session, libc::SIGTERM, Duration::from_secs(60));
    link.ping();
    let fifo = libc::SCHED_FIFO.to_string();
    let hastes = policies(link.pid()).contains(&fifo);
    if !hastes {
        note_not_run("a helper that goes before others", "it may not here");
        assert!(!is_root(), "one of root may");
    }
    let expected = expected();
    for level in LEVELS {
        let (_, seen) = link.output(at_level(level, stage.sh(LOOK)));
        assert_eq!(String::from_utf8_lossy(&seen), expected, "{level:?}");
    }
    link.end(running.session, Duration::ZERO);
    link.ended(kill, foster_tests::ANSWER);
    // It may still be in the turn in which it told the end.
    let is_calm = || !policies(link.pid()).contains(&fifo);
    eventually("it is calm again", SETTLE, is_calm);
}
