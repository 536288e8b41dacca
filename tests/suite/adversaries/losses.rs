//! Deaths of host, helper and keepers, alone and together, at the levels that stand them.

use std::path::Path;

use foster_protocol::Level;
use foster_tests::{
    Cgroup, DEATH, Process, Program, SETTLE, Stage, Witness, eventually, is_root, not_run, places,
    proc,
};

use crate::ground::KEPT;

/// How many sessions a host has.
const SESSIONS: usize = 2;

/// A leader and a daemon that has left its session; both hold the pipe. It says `up` when the
/// daemon is one.
const SCRIPT: &str = "( setsid sh -c 'cd /; exec env -i sh -c \"echo up; exec sleep 60\"' & ); \
                      exec sleep 60";

/// The memory that a host has that is to run out of it.
const MEMORY: &str = "67108864";

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Host,
    Helper,
    Keepers,
}

use Victim::{Helper, Host, Keepers};

/// A host with sessions at a level, all under way.
struct Grounds {
    host: Process,
    helper: Witness,
    keepers: Vec<Witness>,
    leaves: Vec<String>,
}

impl Grounds {
    /// Starts it; none where the level cannot be had, which is said.
    fn new(stage: &Stage, level: Level, what: &str) -> Option<Self> {
        let path = places::fixture("host-at-level");
        Self::of(Program::new(stage, path), level, what)
    }

    fn of(program: Program, level: Level, what: &str) -> Option<Self> {
        let name = format!("{level:?}").to_lowercase();
        let program = program.args([name, SESSIONS.to_string(), SCRIPT.to_owned()]);
        let mut host = program.start();
        let mut helper = None;
        let (mut up, mut is_ready) = (0, false);
        while up < SESSIONS || !is_ready {
            let line = host.stdout.line();
            match line.split_once(' ') {
                Some(("helper", pid)) => helper = Some(pid.parse().expect("a number")),
                None if line == "up" => up += 1,
                None if line == "ready" => is_ready = true,
                _ => {
                    not_run(what, &line);
                    return None;
                }
            }
        }
        let helper = Witness::of(helper.expect("a host names its helper"));
        let keepers = keepers(&helper);
        let leaves = keepers.iter().flat_map(|keeper| leaves_of(keeper.pid()));
        let leaves = leaves.collect();
        Some(Self {
            host,
            helper,
            keepers,
            leaves,
        })
    }

    /// Kills these at once: they are stopped before, so that none acts on another's death.
    fn kill(&self, victims: &[Victim]) {
        let all = victims.iter().flat_map(|victim| match victim {
            Host => vec![self.host.witness()],
            Helper => vec![&self.helper],
            Keepers => self.keepers.iter().collect(),
        });
        let all: Vec<&Witness> = all.collect();
        if all.len() > 1 {
            for witness in &all {
                witness.stop();
            }
        }
        // The host last: a helper that lives continues its stopped keepers when the host goes, and
        // one that has ended its session by then is no longer there to be killed.
        for witness in all.into_iter().rev() {
            witness.signal(libc::SIGKILL);
        }
    }

    /// Asserts that everybody but a host that was not killed is gone, and every leaf.
    fn assert_nobody_left(mut self, victims: &[Victim], level: Level) {
        if !victims.contains(&Host) {
            // The host lives and holds its pipe; it goes when its sessions have.
            for keeper in &self.keepers {
                keeper.wait_for_death(DEATH);
            }
            self.host.signal(libc::SIGKILL);
        }
        self.host.wait(DEATH);
        self.host.stdout.wait_for_end(DEATH);
        self.helper.wait_for_death(DEATH);
        for keeper in &self.keepers {
            keeper.wait_for_death(DEATH);
        }
        if self.leaves_are_removed(victims, level) {
            for leaf in &self.leaves {
                eventually("the leaf is removed", SETTLE, || !Path::new(leaf).exists());
            }
        }
    }

    /// Helper and keepers that die together leave empty leaves, which a later sweep removes.
    fn leaves_are_removed(&self, victims: &[Victim], level: Level) -> bool {
        let all = victims.contains(&Helper) && victims.contains(&Keepers);
        !self.leaves.is_empty() && level >= Level::Cgroup && !all
    }
}

/// The keepers of a helper: its children.
fn keepers(helper: &Witness) -> Vec<Witness> {
    let mut found = Vec::new();
    for stat in proc::children(helper.pid()) {
        let keeper = Witness::of(stat.pid);
        let parent = proc::stat(keeper.pid()).map(|stat| stat.parent);
        assert_eq!(parent, Some(helper.pid()), "the number was the keeper's");
        found.push(keeper);
    }
    assert_eq!(found.len(), SESSIONS, "a keeper a session");
    found
}

/// The leaves of a keeper's children, where they are in some.
fn leaves_of(keeper: i32) -> Vec<String> {
    let leaf = |pid: i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let own = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let point = line.split(' ').nth(4)?;
        own.contains("session-").then(|| format!("{point}{own}"))
    };
    let children = proc::children(keeper);
    children.iter().filter_map(|stat| leaf(stat.pid)).collect()
}

fn assert_deaths(victims: &[Victim], levels: &[Level]) {
    for level in levels {
        let stage = Stage::new();
        let what = format!("the death of {victims:?}");
        if let Some(grounds) = Grounds::new(&stage, *level, &what) {
            grounds.kill(victims);
            grounds.assert_nobody_left(victims, *level);
        }
    }
}

#[test]
fn killed_host_leaves_nobody_at_any_level() {
    assert_deaths(&[Host], &KEPT);
}

#[test]
fn killed_helper_leaves_nobody_at_any_level() {
    assert_deaths(&[Helper], &KEPT);
}

#[test]
fn killed_keepers_leave_nobody_at_any_level() {
    assert_deaths(&[Keepers], &KEPT);
}

#[test]
fn host_and_helper_killed_at_once_leave_nobody_at_any_level() {
    assert_deaths(&[Host, Helper], &KEPT);
}

#[test]
fn host_and_keepers_killed_at_once_leave_nobody_at_any_level() {
    assert_deaths(&[Host, Keepers], &KEPT);
}

#[test]
fn helper_and_keepers_killed_at_once_leave_nobody_in_a_namespace() {
    assert_deaths(&[Helper, Keepers], &[Level::Namespace]);
}

#[test]
fn host_helper_and_keepers_killed_at_once_leave_nobody_in_a_namespace() {
    assert_deaths(&[Host, Helper, Keepers], &[Level::Namespace]);
}

#[test]
fn stopped_helper_of_a_killed_host_keeps_nobody_alive_at_any_level() {
    for level in KEPT {
        let stage = Stage::new();
        let Some(mut grounds) = Grounds::new(&stage, level, "a stopped helper") else {
            continue;
        };
        grounds.helper.stop();
        grounds.host.signal(libc::SIGKILL);
        grounds.host.wait(DEATH);
        grounds.host.stdout.wait_for_end(DEATH);
        for keeper in &grounds.keepers {
            keeper.wait_for_death(DEATH);
        }
        assert!(grounds.helper.is_alive(), "the helper is stopped");
        grounds.helper.signal(libc::SIGCONT);
        grounds.helper.wait_for_death(DEATH);
    }
}

#[test]
fn host_that_aborts_or_panics_leaves_nobody_at_any_level() {
    for level in KEPT {
        for word in ["abort", "panic"] {
            let stage = Stage::new();
            let Some(mut grounds) = Grounds::new(&stage, level, word) else {
                continue;
            };
            grounds.host.say(word);
            grounds.assert_nobody_left(&[Host], level);
        }
    }
}

#[test]
fn host_that_the_kernel_kills_for_want_of_memory_leaves_nobody_at_any_level() {
    const WHAT: &str = "a host without memory";
    if !is_root() {
        return not_run(WHAT, "this is not root, which limits memory");
    }
    for level in KEPT {
        let stage = Stage::new();
        let cgroup = match limited(&stage) {
            Ok(cgroup) => cgroup,
            Err(missing) => return not_run(WHAT, &missing),
        };
        let program = Program::fixture(&stage, "in-cgroup")
            .arg(cgroup.procs())
            .arg("--")
            .arg(places::fixture("host-at-level"));
        let Some(mut grounds) = Grounds::of(program, level, WHAT) else {
            continue;
        };
        grounds.host.say("eat");
        let status = grounds.host.wait(DEATH);
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(libc::SIGKILL), "the host had enough memory");
        grounds.assert_nobody_left(&[Host], level);
    }
}

/// A cgroup with little memory, of whichever version has the controller.
fn limited(stage: &Stage) -> Result<Cgroup, String> {
    let old = Cgroup::of_controller(stage, "memory").and_then(|cgroup| {
        let set = cgroup.set("memory.limit_in_bytes", MEMORY);
        set.map(|()| cgroup).map_err(|error| error.to_string())
    });
    old.or_else(|first| {
        let cgroup = Cgroup::unified(stage)?;
        let set = cgroup.set("memory.max", MEMORY).map(|()| cgroup);
        set.map_err(|error| format!("{first}; memory.max: {error}"))
    })
}
