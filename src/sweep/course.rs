//! The course of one instance's end: TERM, the grace, KILL until nobody is found, the verdict.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use foster_protocol::{Record, Survivor};

use super::cgroups::{self, Leaf};
use super::marks::{Scan, scan};
use super::processes::{Held, wait_for_any};
use super::report::{During, Fate, Found, Refusal, SweptInstance};
use super::spared::Spared;
use crate::error::{Error, Result};
use crate::sys;

/// How long KILL is repeated before the verdict is `Incomplete`.
const HARD_LIMIT: Duration = Duration::from_secs(5);

/// How many processes are held at a time to wait for their death.
const MOST_HELD: usize = 256;

/// How many survivors are named.
const MOST_NAMED: usize = 256;

/// After so many rounds of KILL everybody is stopped before anybody is killed: KILL frees the
/// places that the next children of a tree that forks all the time take, STOP does not.
const PLAIN_ROUNDS: u32 = 2;

/// The longest wait for a death before everything is looked at again.
const LOOK: Duration = Duration::from_millis(20);

/// Where and when this sweep runs.
#[derive(Debug)]
pub(super) struct Here {
    boot: String,
    pid_namespace: u64,
    spared: Spared,
}

impl Here {
    pub(super) fn find() -> Result<Self> {
        let read = |error| Error::system("/proc cannot be read", error);
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(read)?;
        let namespace = fs::metadata("/proc/self/ns/pid").map_err(read)?;
        let own: io::Result<OwnedFd> = sys::open_pidfd(std::process::id());
        own.map_err(|error| Error::system("processes cannot be held by pidfd", error))?;
        Ok(Self {
            boot: boot.trim().to_owned(),
            pid_namespace: namespace.ino(),
            spared: Spared::find(),
        })
    }

    /// Whether a record is of this boot and this pid namespace; it is taken for one of which
    /// something is left, then.
    pub(super) fn place(&self, record: &Record) -> Fate {
        if record.boot != self.boot {
            Fate::Past
        } else if record.pid_namespace != self.pid_namespace {
            Fate::Elsewhere
        } else {
            Fate::Left
        }
    }

    /// Lists what is left.
    pub(super) fn list(
        &self,
        record: &Record,
        instance: &mut SweptInstance,
    ) -> std::result::Result<(), Refusal> {
        let mut course = Course::new(self, record, cgroups::find(record, &self.spared, false)?);
        course.scan(&mut |_| {}).during("scan /proc")?;
        course.report(instance);
        let paths = course.leaves.into_iter().map(|leaf| leaf.path);
        instance.cgroups = paths.collect();
        Ok(())
    }

    /// Ends what is left.
    pub(super) fn end(
        &self,
        record: &Record,
        grace: Duration,
        instance: &mut SweptInstance,
    ) -> std::result::Result<(), Refusal> {
        let mut course = Course::new(self, record, cgroups::find(record, &self.spared, true)?);
        course.give_grace(grace).during("scan /proc")?;
        let deadline = Instant::now() + HARD_LIMIT;
        instance.survivors = course.kill(deadline).during("scan /proc")?;
        for leaf in std::mem::take(&mut course.leaves) {
            if !leaf.remove(deadline) {
                instance.cgroups.push(leaf.path);
            }
        }
        course.report(instance);
        Ok(())
    }
}

/// The end of one instance under way.
struct Course<'a> {
    record: &'a Record,
    spared: &'a Spared,
    leaves: Vec<Leaf>,
    /// Everybody who was met, by number.
    met: BTreeMap<i32, Found>,
    /// Who was spared in the last scan.
    passed: Vec<Found>,
}

impl<'a> Course<'a> {
    fn new(here: &'a Here, record: &'a Record, leaves: Vec<Leaf>) -> Self {
        Self {
            record,
            spared: &here.spared,
            leaves,
            met: BTreeMap::new(),
            passed: Vec::new(),
        }
    }

    fn report(&mut self, instance: &mut SweptInstance) {
        instance.found = std::mem::take(&mut self.met).into_values().collect();
        instance.spared = std::mem::take(&mut self.passed);
    }

    /// Scans once. Each one who is met is noted, and then given to `meet`.
    fn scan(&mut self, meet: &mut dyn FnMut(Held)) -> io::Result<bool> {
        let met = &mut self.met;
        let Scan { spared, is_cut } = scan(self.record, self.spared, &mut |held| {
            met.entry(held.stat.pid).or_insert_with(|| held.found());
            meet(held);
        })?;
        self.passed = spared;
        Ok(is_cut)
    }

    /// TERM to everybody, and CONT so that the stopped can act; then as much of the grace as
    /// they take. Who appears meanwhile may be their clean-up and is not signalled.
    fn give_grace(&mut self, grace: Duration) -> io::Result<()> {
        if grace.is_zero() {
            return Ok(());
        }
        let over = Instant::now().checked_add(grace);
        let mut is_first = true;
        loop {
            let mut held = Vec::new();
            let is_cut = self.scan(&mut |one| {
                if held.len() < MOST_HELD {
                    held.push(one);
                } else if is_first {
                    ask_to_end(&one);
                }
            })?;
            // Everybody has been met by now: TERM can move one member to end another.
            if is_first {
                held.iter().for_each(ask_to_end);
            }
            is_first = false;
            if held.is_empty() && !is_cut {
                return Ok(());
            }
            while !held.is_empty() {
                let left = over.map(|over| over.saturating_duration_since(Instant::now()));
                match left {
                    Some(Duration::ZERO) => return Ok(()),
                    left => wait_for_any(&held, left.unwrap_or(Duration::MAX))?,
                };
                bury(&mut held)?;
            }
        }
    }

    /// KILL, and looking again, until nobody is found or the limit is reached. Gives who is left.
    fn kill(&mut self, deadline: Instant) -> io::Result<Vec<Survivor>> {
        let mut round = 0_u32;
        loop {
            round = round.saturating_add(1);
            if round > PLAIN_ROUNDS {
                self.stop_everyone(deadline)?;
            }
            for leaf in &self.leaves {
                note_failure(leaf.kill());
            }
            let (mut held, mut denied) = (Vec::new(), HashSet::new());
            let is_cut = self.scan(&mut |one| {
                if is_denied(&one.signal(libc::SIGKILL)) {
                    denied.insert(one.stat.pid);
                }
                if held.len() < MOST_HELD {
                    held.push(one);
                }
            })?;
            if held.is_empty() && !is_cut {
                return Ok(Vec::new());
            }
            // A rest that may not be signalled will not go by itself.
            let is_hopeless = !is_cut
                && round > PLAIN_ROUNDS
                && held.iter().all(|one| denied.contains(&one.stat.pid));
            if is_hopeless || Instant::now() >= deadline {
                let fast = round > 10 * PLAIN_ROUNDS;
                let left = held.iter().take(MOST_NAMED);
                let explain = |one: &Held| one.explain(denied.contains(&one.stat.pid), fast);
                return Ok(left.map(explain).collect());
            }
            let look = Instant::now() + LOOK;
            while !held.is_empty() && Instant::now() < look {
                wait_for_any(&held, LOOK)?;
                bury(&mut held)?;
            }
        }
    }

    /// STOP to everybody, until a scan meets nobody new.
    fn stop_everyone(&mut self, deadline: Instant) -> io::Result<()> {
        let mut stopped = HashSet::new();
        loop {
            let mut is_new = false;
            self.scan(&mut |one| {
                if stopped.insert(one.stat.pid) {
                    is_new = true;
                }
                // Its number may be that of another one who was stopped before.
                note_failure(one.signal(libc::SIGSTOP));
            })?;
            if !is_new || Instant::now() >= deadline {
                return Ok(());
            }
        }
    }
}

fn ask_to_end(one: &Held) {
    note_failure(one.signal(libc::SIGTERM));
    note_failure(one.signal(libc::SIGCONT));
}

/// Lets go of the dead.
fn bury(held: &mut Vec<Held>) -> io::Result<()> {
    let mut living = Vec::with_capacity(held.len());
    for one in held.drain(..) {
        if !one.is_dead()? {
            living.push(one);
        }
    }
    *held = living;
    Ok(())
}

/// The verdict rests on who is found afterwards, and not on this.
fn note_failure(result: io::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "somebody was not reached");
    }
}

fn is_denied(result: &io::Result<()>) -> bool {
    let errno = result.as_ref().err().and_then(io::Error::raw_os_error);
    errno == Some(libc::EPERM)
}
