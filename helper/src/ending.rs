//! Ending a tree: the first signal to everyone, the grace, KILL until nobody is left, and an
//! honest verdict.
//!
//! Every look at the tree is one bounded walk; between looks the event loop serves others.
//! A look is due when every member that is watched has died, and in any case after a short
//! while. Signals go to a group through its unreaped leader, and to others through pidfds.
//! It never keeps a number for a signal: a member that is not held is found again or is gone.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use foster_protocol::{
    Bytes, Cause, Ended, Ending, Member, Micros, Orphan, Pid, Proof, Survivor, Verdict,
};

use crate::contain::cgroup::Leaf;
use crate::contain::group::{Census, Ground, MOST_NAMED, Scope, census};
use crate::survivors::explain;
use crate::sys::leader::Leader;
use crate::sys::outer::shown;
use crate::sys::process::Process;

/// An ending gives up after this long with KILL and says who is left.
pub(crate) const HARD_LIMIT: Duration = Duration::from_secs(5);

/// How many members are watched by pidfd at one time; the rest is found by looking again.
const MOST_WATCHED: usize = 64;

/// While KILL is at work and meets new members, the next look comes at the latest after this.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// After looks that meet nobody new it comes after 2 ms, then 4 and so on, up to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// During a grace members that are not watched are looked for this often.
const GRACE_PAUSE: Duration = Duration::from_millis(50);

/// After this many looks that still meet new members, the tree is stopped before it is killed.
const PATIENT_ROUNDS: u32 = 4;

/// Above this many looks with new members in the last one, they are said to come too fast.
const MANY_ROUNDS: u32 = 20;

/// How hard a look goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// Only look.
    None,
    /// Send this signal, and nothing else.
    Plain(i32),
    /// Send this signal to those who have had none, then CONT so that stopped members can act
    /// on it.
    Signal(i32),
    /// Send this signal, and CONT, to those who have had none: the rest, when everybody else has
    /// gone.
    Rest(i32),
    /// Send STOP, so that nobody makes new members while the rest is found.
    Freeze,
    /// Send KILL.
    Kill,
}

/// What is known of a member.
#[derive(Debug)]
struct Noted {
    /// Its number as the host knows it.
    shown: Pid,
    name: Vec<u8>,
    ended: Ended,
    /// It is in the leader's group, which gets its signals before the walk comes by.
    in_group: bool,
    /// It was sent something.
    signalled: bool,
    /// It was sent KILL.
    killed: bool,
    /// It was alive in the last look.
    present: bool,
}

/// An ending under way.
#[derive(Debug)]
pub(crate) struct Work {
    started: Instant,
    /// It is an ending, and no longer only a watch.
    begun: bool,
    noted: BTreeMap<i32, Noted>,
    /// Members that are watched.
    pub(crate) watched: Vec<(u64, Process)>,
    rounds: u32,
    newcomers: u32,
    pause: Duration,
}

/// A session's tree as a look meets it.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'a> {
    pub(crate) leader: &'a Leader,
    /// The leader is not seen to be dead.
    pub(crate) leader_lives: bool,
    pub(crate) cgroup: Option<&'a Leaf>,
}

/// What a look came to.
pub(crate) struct Look {
    /// Who lives, to be watched.
    pub(crate) members: Vec<Process>,
    /// Nobody is left but perhaps the leader.
    pub(crate) is_empty: bool,
    /// What that rests on.
    pub(crate) proof: Proof,
}

impl Work {
    /// Starts to watch a tree.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            started: now,
            begun: false,
            noted: BTreeMap::new(),
            watched: Vec::new(),
            rounds: 0,
            newcomers: 0,
            pause: SHORTEST_PAUSE,
        }
    }

    /// Starts to end it. Members that were met before are known already.
    pub(crate) fn begin(&mut self, now: Instant) {
        if !self.begun {
            self.begun = true;
            self.started = now;
        }
    }

    /// When the next look is due in any case; none where events alone will tell.
    pub(crate) fn next_look(&mut self, force: Force, all_watched: bool) -> Option<Duration> {
        match force {
            Force::None | Force::Plain(_) | Force::Signal(_) | Force::Rest(_) if all_watched => {
                None
            }
            Force::None | Force::Plain(_) | Force::Signal(_) | Force::Rest(_) => Some(GRACE_PAUSE),
            Force::Freeze | Force::Kill => {
                // Where new members come, the next look is at once.
                if self.newcomers > 0 {
                    self.pause = SHORTEST_PAUSE;
                }
                let pause = self.pause;
                self.pause = (pause * 2).min(LONGEST_PAUSE);
                Some(pause)
            }
        }
    }

    /// Looks once at a session's tree and applies the force to it.
    pub(crate) fn look_at_session(
        &mut self,
        tree: &Tree<'_>,
        force: Force,
        ground: &Ground<'_>,
    ) -> io::Result<Look> {
        let Tree {
            leader,
            leader_lives,
            cgroup,
        } = *tree;
        let held = self.start_round(force)?;
        // The cgroup before everything: one write reaches all of it, of whatever user.
        if let (Force::Kill, Some(cgroup)) = (force, cgroup) {
            tell(cgroup.kill(), "cgroup", leader.pid());
        }
        // The group first: one call reaches all of it, whatever it forks meanwhile.
        match force {
            Force::None | Force::Rest(_) => {}
            Force::Plain(number) => tell(leader.signal_group(number), "group", leader.pid()),
            Force::Freeze => tell(leader.signal_group(libc::SIGSTOP), "group", leader.pid()),
            Force::Signal(number) => {
                tell(leader.signal_group(number), "group", leader.pid());
                if !is_stopping(number) {
                    tell(leader.signal_group(libc::SIGCONT), "group", leader.pid());
                }
            }
            Force::Kill => tell(leader.signal_group(libc::SIGKILL), "group", leader.pid()),
        }
        let scope = Scope::Session {
            leader: leader.pid(),
            leader_lives,
        };
        let mut look = self.look(scope, Some(leader.pid()), force, held, ground)?;
        if let Some(cgroup) = cgroup {
            // A leader that lives is inside too, and is not asked for here.
            look.is_empty &= leader_lives || !cgroup.is_populated()?;
            // What is proven of a namespace is stronger, and was looked at too.
            if !ground.is_first {
                look.proof = Proof::CgroupUnpopulated;
            }
        }
        Ok(look)
    }

    /// Looks once at the adopted orphans that nobody owns and applies the force to them.
    pub(crate) fn look_at_unclaimed(
        &mut self,
        force: Force,
        ground: &Ground<'_>,
    ) -> io::Result<Look> {
        let held = self.start_round(force)?;
        self.look(Scope::Unclaimed, None, force, held, ground)
    }

    fn look(
        &mut self,
        scope: Scope,
        group: Option<Pid>,
        force: Force,
        held: Vec<Process>,
        ground: &Ground<'_>,
    ) -> io::Result<Look> {
        let mut accept = |process: &Process| self.meet(process, group, force);
        let mut found = census(scope, ground, &mut accept)?;
        // A member that has left the session and its parents since is a member still: that it
        // was one was seen, and it is held.
        for process in held {
            let met = self.noted.get(&process.pid().0);
            if met.is_none_or(|noted| !noted.present) && !process.is_dead()? {
                self.meet(&process, group, force);
                found.members.push(process);
            }
        }
        for stat in &found.unpinned {
            self.note(stat.pid, &stat.name);
        }
        for noted in self.noted.values_mut().filter(|noted| !noted.present) {
            noted.bury();
        }
        let proof = proof(&found, ground);
        let is_empty = found.is_empty();
        Ok(Look {
            members: found.members,
            is_empty,
            proof,
        })
    }

    /// Starts a look, and gives back the members that are held from the last one and live. A
    /// signal to the group ends members before the walk comes by, so whoever is alive when it
    /// goes out counts as reached by it.
    fn start_round(&mut self, force: Force) -> io::Result<Vec<Process>> {
        self.rounds = self.rounds.saturating_add(1);
        self.newcomers = 0;
        let held = self.take_living()?;
        for noted in self.noted.values_mut() {
            match force {
                _ if !noted.present => noted.bury(),
                Force::None | Force::Plain(_) | Force::Rest(_) | Force::Freeze => {}
                // The others get it one by one.
                Force::Signal(_) => noted.signalled |= noted.in_group,
                Force::Kill => {
                    noted.signalled = true;
                    noted.killed = true;
                }
            }
            noted.present = false;
        }
        Ok(held)
    }

    /// Takes the watched members that live.
    pub(crate) fn take_living(&mut self) -> io::Result<Vec<Process>> {
        let mut living = Vec::new();
        for (_, process) in std::mem::take(&mut self.watched) {
            if !process.is_dead()? {
                living.push(process);
            } else if let Some(noted) = self.noted.get_mut(&process.pid().0) {
                noted.present = false;
            }
        }
        Ok(living)
    }

    /// Notes a living member and signals it.
    fn meet(&mut self, process: &Process, group: Option<Pid>, force: Force) {
        let stat = process.stat();
        let in_group = group.is_some_and(|leader| stat.group == leader.0);
        let noted = self.note(stat.pid, &stat.name);
        noted.in_group = in_group;
        match force {
            Force::None => {}
            Force::Plain(number) => {
                if !in_group {
                    tell(process.signal(number), "member", process.pid());
                }
            }
            Force::Freeze => tell(process.signal(libc::SIGSTOP), "member", process.pid()),
            Force::Signal(_) | Force::Rest(_) if noted.signalled => {}
            Force::Signal(_) if in_group => noted.signalled = true,
            Force::Signal(number) | Force::Rest(number) => {
                noted.signalled = true;
                tell(process.signal(number), "member", process.pid());
                if !is_stopping(number) {
                    tell(process.signal(libc::SIGCONT), "member", process.pid());
                }
            }
            Force::Kill => {
                noted.signalled = true;
                noted.killed = true;
                tell(process.signal(libc::SIGKILL), "member", process.pid());
            }
        }
    }

    fn note(&mut self, pid: i32, name: &[u8]) -> &mut Noted {
        let newcomers = &mut self.newcomers;
        let noted = self.noted.entry(pid).or_insert_with(|| {
            *newcomers += 1;
            Noted {
                shown: shown(pid),
                name: name.to_vec(),
                ended: Ended::Not,
                in_group: false,
                signalled: false,
                killed: false,
                present: true,
            }
        });
        noted.present = true;
        noted.ended = Ended::Not;
        // A name changes with exec.
        noted.name.clear();
        noted.name.extend_from_slice(name);
        noted
    }

    /// Takes a watched member that has died.
    pub(crate) fn take_dead(&mut self, token: u64) -> Option<Process> {
        let at = self
            .watched
            .iter()
            .position(|(watched, _)| *watched == token)?;
        let (_, process) = self.watched.swap_remove(at);
        if let Some(noted) = self.noted.get_mut(&process.pid().0) {
            noted.bury();
        }
        Some(process)
    }

    /// Takes the members that will be watched out of those that were found.
    pub(crate) fn to_watch(&self, members: Vec<Process>) -> (Vec<Process>, bool) {
        let all = members.len() <= MOST_WATCHED;
        (members.into_iter().take(MOST_WATCHED).collect(), all)
    }

    /// What a look at a tree that is being killed sends. KILL frees the places of those that it
    /// ends for the children of the others; STOP does not. So where new members keep coming,
    /// everybody is stopped until a look meets nobody new.
    pub(crate) fn force_to_kill(&self) -> Force {
        match self.rounds > PATIENT_ROUNDS && self.newcomers > 0 {
            true => Force::Freeze,
            false => Force::Kill,
        }
    }

    /// Somebody lives, and nobody of them has been sent anything.
    pub(crate) fn is_rest(&self) -> bool {
        let mut living = self.noted.values().filter(|noted| noted.present).peekable();
        living.peek().is_some() && living.all(|noted| !noted.signalled)
    }

    /// Nobody has been noted, because nobody has been looked for.
    pub(crate) fn has_not_looked(&self) -> bool {
        self.rounds == 0
    }

    /// How many living members the looks have met.
    pub(crate) fn reached(&self) -> u32 {
        u32::try_from(self.noted.len()).unwrap_or(u32::MAX)
    }

    /// The report of an ending that left nobody.
    pub(crate) fn all_gone(
        mut self,
        cause: Cause,
        proof: Proof,
        now: Instant,
        loose: Vec<Orphan>,
    ) -> Ending {
        for noted in self.noted.values_mut() {
            noted.bury();
        }
        Ending {
            verdict: Verdict::AllGone,
            proof: Some(proof),
            unattributed: loose,
            ..self.report(cause, now)
        }
    }

    /// The report of an ending that reached its hard limit.
    pub(crate) fn incomplete(
        self,
        cause: Cause,
        survivors: Vec<Survivor>,
        now: Instant,
        loose: Vec<Orphan>,
    ) -> Ending {
        Ending {
            survivors,
            unattributed: loose,
            ..self.report(cause, now)
        }
    }

    fn report(self, cause: Cause, now: Instant) -> Ending {
        let members = self
            .noted
            .into_iter()
            .take(MOST_NAMED)
            .map(|(_, noted)| Member {
                pid: noted.shown,
                name: Bytes(noted.name),
                ended: noted.ended,
            });
        Ending {
            cause,
            verdict: Verdict::Incomplete,
            proof: None,
            members: members.collect(),
            survivors: Vec::new(),
            unattributed: Vec::new(),
            peaks: None,
            rounds: self.rounds,
            took: Micros::from(now.saturating_duration_since(self.started)),
        }
    }

    /// Says of each process that is left why it is.
    pub(crate) fn explain(&self, left: &[Process], cgroup: Option<&Leaf>) -> Vec<Survivor> {
        let fast = self.rounds > MANY_ROUNDS && self.newcomers > 0;
        left.iter()
            .take(MOST_NAMED)
            .map(|process| explain(process, fast, cgroup))
            .collect()
    }
}

impl Noted {
    /// It is gone: by what, if that is not yet known.
    fn bury(&mut self) {
        self.present = false;
        if self.ended == Ended::Not {
            self.ended = match (self.signalled, self.killed) {
                (_, true) => Ended::ByKill,
                (true, false) => Ended::ByFirstSignal,
                (false, false) => Ended::ByItself,
            };
        }
    }
}

/// What an empty census proves.
fn proof(found: &Census, ground: &Ground<'_>) -> Proof {
    match (ground.orphans.is_some(), found.orphan_free) {
        (true, true) if ground.all_ours => Proof::KeeperNoChildren,
        (true, true) => Proof::NoOrphans,
        (true, false) => Proof::SessionEmpty,
        (false, _) => Proof::SessionScanEmpty,
    }
}

/// A CONT after one of these would undo it.
pub(crate) fn is_stopping(number: i32) -> bool {
    matches!(
        number,
        libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU | libc::SIGCONT
    )
}

/// A signal that does not arrive is no failure of the ending: the next look shows who lives,
/// and the verdict rests on that alone. It goes to the log.
fn tell(result: io::Result<()>, whom: &str, pid: Pid) {
    if let Err(error) = result
        && error.raw_os_error() != Some(libc::ESRCH)
    {
        tracing::debug!(%pid, %error, "a signal did not reach the {whom}");
    }
}
