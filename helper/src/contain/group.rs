//! Who is left of a session at level `group`.
//!
//! Members are the leader's verified descendants, and whoever is of its kernel session among the
//! adopted orphans and their descendants. The leader is unreaped, so that its session id is
//! nobody else's. A process is held by pidfd first; then its parent is read, which must be the
//! one that listed it; and a parent must be alive after its child was held. A number that was
//! recycled in between fails one of these, so nobody else is ever a member.
//!
//! An empty walk is a proof only if nothing moved under it: a process that died on the way has
//! left its children to us, perhaps after our list was read. So whatever is not where it was
//! listed makes the walk begin again. A walk is bounded and never waits; what it could not see
//! it says.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use foster_protocol::{Bytes, Orphan, Pid};

use crate::sys::outer::shown;
use crate::sys::proc::{self, Stat};
use crate::sys::process::Process;

/// A walk holds at most this many pidfds: the reserve of descriptors covers them.
const MOST_HELD: usize = 1024;

/// A walk ends after this time, so that no other session waits longer for its turn.
const LONGEST_WALK: Duration = Duration::from_millis(20);

/// A walk over those whom nobody owns: at a keeper's death or the helper's end, which are rare,
/// and perhaps beside a tree that takes every processor.
const LONGEST_SWEEP: Duration = Duration::from_millis(250);

/// A keeper's walk: it has one session, and a tree that takes every processor leaves it little
/// of that time to run.
const LONGEST_WALK_ALONE: Duration = Duration::from_secs(1);

/// How often a walk begins again because something moved.
const MOST_ROUNDS: u32 = 8;

/// How many orphans are named in a report.
pub(crate) const MOST_NAMED: usize = 256;

/// Whose a kernel session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A session's that the helper ends.
    Ours,
    /// A released one's.
    Released,
    /// Nobody's that is known.
    Nobody,
}

/// What a walk stands on.
pub(crate) struct Ground<'a> {
    /// Our children but for the leaders: adopted orphans. Without `children` files there is no
    /// such list.
    pub(crate) orphans: Option<&'a dyn Fn() -> io::Result<Vec<i32>>>,
    /// Every orphan is the one session's that there is.
    pub(crate) all_ours: bool,
    /// We are process 1 of a pid namespace, which holds our children and nobody else.
    pub(crate) is_first: bool,
    /// Our own process id.
    pub(crate) own: i32,
    pub(crate) pidfds: bool,
    /// Whose a kernel session id is.
    pub(crate) claim: &'a dyn Fn(i32) -> Claim,
}

/// Whom a walk looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The members of one session. Its leader is unreaped.
    Session { leader: Pid, leader_lives: bool },
    /// Adopted orphans that no session can be shown to own, and their descendants.
    Unclaimed,
}

/// What a walk found.
#[derive(Default)]
pub(crate) struct Census {
    /// Living members, the leader not among them.
    pub(crate) members: Vec<Process>,
    /// Members that cannot be held without pidfds. They are looked at and never signalled.
    pub(crate) unpinned: Vec<Stat>,
    /// A member is dead and the main thread has not reaped it yet.
    pub(crate) dying: bool,
    /// The walk was cut short: by its bounds, or because something could not be read.
    pub(crate) cut: bool,
    /// There is no adopted orphan at all.
    pub(crate) orphan_free: bool,
}

impl Census {
    /// Nobody was found and nothing was missed.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.unpinned.is_empty() && !self.dying && !self.cut
    }
}

/// Walks once. `accept` is called for each living member as soon as it is known to be one.
pub(crate) fn census(
    scope: Scope,
    ground: &Ground<'_>,
    accept: &mut dyn FnMut(&Process),
) -> io::Result<Census> {
    let mut walk = Walk {
        scope,
        ground,
        accept,
        census: Census::default(),
        nodes: Vec::new(),
        met: HashSet::new(),
        passed: Vec::new(),
        moved: false,
        started: Instant::now(),
        at: 0,
    };
    if ground.orphans.is_some() {
        for _ in 0..MOST_ROUNDS {
            walk.moved = false;
            walk.once()?;
            if !walk.moved || walk.is_over_budget() {
                break;
            }
        }
    } else {
        walk.everyone()?;
    }
    walk.census.cut |= walk.moved;
    let members = walk.nodes.into_iter().filter(|node| node.is_member);
    walk.census.members = members.map(|node| node.process).collect();
    Ok(walk.census)
}

/// The adopted orphans that nobody can be shown to own, for a report.
pub(crate) fn unattributed(ground: &Ground<'_>) -> io::Result<Vec<Orphan>> {
    let mut named = Vec::new();
    let Some(orphans) = ground.orphans else {
        return Ok(named);
    };
    for pid in orphans()? {
        // A report may be wrong about a process that ends meanwhile; a signal may not.
        let Ok(stat) = proc::stat(pid) else { continue };
        let is_loose = stat.parent == ground.own
            && !matches!(stat.state, b'Z' | b'X')
            && (ground.all_ours || (ground.claim)(stat.session) == Claim::Nobody);
        if is_loose && named.len() < MOST_NAMED {
            named.push(Orphan {
                pid: shown(pid),
                sid: shown(stat.session),
                name: Bytes(stat.name),
            });
        }
    }
    Ok(named)
}

/// A process that a walk holds.
struct Node {
    process: Process,
    /// It is a member. One that is not is only passed through: a process that left its session
    /// may have children that did not.
    is_member: bool,
}

/// What became of a number that was listed.
enum Held {
    /// It is where it was listed.
    Here(Process),
    /// It is dead, and perhaps somebody else by now.
    Gone,
    /// It is alive and has another parent.
    Elsewhere,
    /// It could not be held.
    Unheld,
}

/// A walk under way.
struct Walk<'a> {
    scope: Scope,
    ground: &'a Ground<'a>,
    accept: &'a mut dyn FnMut(&Process),
    census: Census,
    nodes: Vec<Node>,
    /// The numbers of the nodes.
    met: HashSet<i32>,
    /// Orphans of other sessions, which were looked at and not held.
    passed: Vec<i32>,
    /// Something was not where it was listed.
    moved: bool,
    started: Instant,
    /// The next of the nodes whose children have not been looked at.
    at: usize,
}

impl Walk<'_> {
    fn is_over_budget(&mut self) -> bool {
        let longest = match (self.ground.all_ours, self.scope) {
            (true, _) => LONGEST_WALK_ALONE,
            (false, Scope::Unclaimed) => LONGEST_SWEEP,
            (false, Scope::Session { .. }) => LONGEST_WALK,
        };
        let over = self.nodes.len() >= MOST_HELD || self.started.elapsed() >= longest;
        self.census.cut |= over;
        over
    }

    /// The leader's side first: whoever leaves it while it is walked is an orphan by the time
    /// that the orphans are listed.
    fn once(&mut self) -> io::Result<()> {
        if let Scope::Session {
            leader,
            leader_lives: true,
        } = self.scope
        {
            self.children_of(leader.0, None)?;
            self.descend()?;
        }
        let Some(orphans) = self.ground.orphans else {
            return Ok(());
        };
        let orphans = orphans()?;
        self.census.orphan_free = orphans.is_empty();
        self.moved = false;
        // The newest are last, and who flees by forking is among them.
        for orphan in orphans.into_iter().rev() {
            if self.is_over_budget() {
                return Ok(());
            }
            self.orphan(orphan)?;
        }
        self.descend()?;
        self.check_passed()
    }

    /// One that was not held may have been a member that died, and its number another's since.
    /// While the list has all of them still, none of them has gone.
    fn check_passed(&mut self) -> io::Result<()> {
        let passed = std::mem::take(&mut self.passed);
        if let (false, Some(orphans)) = (passed.is_empty(), self.ground.orphans) {
            let there: HashSet<i32> = orphans()?.into_iter().collect();
            self.moved |= passed.iter().any(|pid| !there.contains(pid));
        }
        Ok(())
    }

    /// Holds a process and checks that it is where it was listed, in this order: pidfd,
    /// identity, still alive.
    fn hold(&mut self, pid: i32, parent: i32) -> io::Result<Held> {
        if !self.ground.pidfds {
            return Ok(self.look_at(pid, parent));
        }
        match Process::open(pid) {
            Ok(Some(process)) if process.stat().parent == parent => Ok(Held::Here(process)),
            Ok(Some(_)) => Ok(Held::Elsewhere),
            Ok(None) => Ok(Held::Gone),
            // The reserve is used up; those who are held are dealt with first.
            Err(error) if is_out_of_descriptors(&error) => {
                self.census.cut = true;
                Ok(Held::Unheld)
            }
            Err(error) => Err(error),
        }
    }

    /// Without pidfds a member can be looked at and not held.
    fn look_at(&mut self, pid: i32, parent: i32) -> Held {
        match proc::stat(pid) {
            Ok(stat) if stat.parent != parent => Held::Elsewhere,
            Ok(stat) if matches!(stat.state, b'Z' | b'X') => Held::Gone,
            Ok(stat) => {
                if self.is_in_scope(&stat) {
                    self.census.unpinned.push(stat);
                }
                Held::Unheld
            }
            Err(_) => Held::Gone,
        }
    }

    /// Whether an orphan, or the child of somebody who is passed through, is a member.
    fn is_in_scope(&self, stat: &Stat) -> bool {
        match self.scope {
            Scope::Session { leader, .. } => self.ground.all_ours || stat.session == leader.0,
            Scope::Unclaimed => (self.ground.claim)(stat.session) == Claim::Nobody,
        }
    }

    fn admit(&mut self, process: Process, is_member: bool) {
        if is_member {
            (self.accept)(&process);
        }
        self.met.insert(process.pid().0);
        self.nodes.push(Node { process, is_member });
    }

    fn orphan(&mut self, pid: i32) -> io::Result<()> {
        if self.met.contains(&pid) {
            return Ok(());
        }
        // With many sessions most orphans are another's, and have nobody of this one below.
        if self.scope != Scope::Unclaimed
            && !self.ground.all_ours
            && let Ok(stat) = proc::stat(pid)
            && !self.is_in_scope(&stat)
            && (self.ground.claim)(stat.session) != Claim::Nobody
        {
            self.passed.push(pid);
            return Ok(());
        }
        match self.hold(pid, self.ground.own)? {
            Held::Here(process) => {
                let is_member = self.is_in_scope(process.stat());
                // Whoever is of another session that is known has nobody of this one below.
                let claim = (self.ground.claim)(process.stat().session);
                if is_member || claim == Claim::Nobody {
                    self.admit(process, is_member);
                }
            }
            Held::Gone => {
                self.moved = true;
                self.note_dying(pid);
            }
            Held::Elsewhere => self.moved = true,
            Held::Unheld => {}
        }
        Ok(())
    }

    /// A dead orphan keeps its session id until it has been reaped.
    fn note_dying(&mut self, pid: i32) {
        if let Ok(stat) = proc::stat(pid)
            && stat.parent == self.ground.own
            && self.is_in_scope(&stat)
        {
            self.census.dying = true;
        }
    }

    fn descend(&mut self) -> io::Result<()> {
        while let Some(node) = self.nodes.get(self.at) {
            let pid = node.process.pid();
            let index = self.at;
            self.at += 1;
            if self.is_over_budget() {
                return Ok(());
            }
            self.children_of(pid.0, Some(index))?;
        }
        Ok(())
    }

    /// Takes the children of the unreaped leader, whose number is pinned, or of a node, which
    /// is checked to be alive after each child was held.
    fn children_of(&mut self, pid: i32, node: Option<usize>) -> io::Result<()> {
        let children = match proc::children(pid) {
            Ok(children) => children,
            Err(error) if is_out_of_descriptors(&error) => {
                self.census.cut = true;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for child in children {
            if self.is_over_budget() {
                return Ok(());
            }
            if self.met.contains(&child) {
                continue;
            }
            match self.hold(child, pid)? {
                Held::Here(process) if self.is_alive(node)? => {
                    let of_member = self.node(node).is_none_or(|node| node.is_member);
                    let is_member = of_member || self.is_in_scope(process.stat());
                    self.admit(process, is_member);
                }
                // It is an orphan by now, or was somebody else all along.
                Held::Here(_) | Held::Gone | Held::Elsewhere => self.moved = true,
                Held::Unheld => {}
            }
        }
        // One that has died meanwhile may have listed fewer children than it had.
        if !self.is_alive(node)? {
            self.moved = true;
        }
        Ok(())
    }

    fn node(&self, node: Option<usize>) -> Option<&Node> {
        node.and_then(|index| self.nodes.get(index))
    }

    /// Whether a node lives. The leader counts as alive: its number is pinned, and what it
    /// leaves is listed among the orphans after it.
    fn is_alive(&self, node: Option<usize>) -> io::Result<bool> {
        match self.node(node) {
            Some(node) => Ok(!node.process.is_dead()?),
            None => Ok(true),
        }
    }

    /// Without `children` files: everybody of the kernel session, in the whole of `/proc`.
    fn everyone(&mut self) -> io::Result<()> {
        for pid in proc::all_pids()? {
            // Two looks, because holding every process of the machine would be dear: the
            // first on the number, the second, which counts, on the held process.
            let Ok(stat) = proc::stat(pid) else { continue };
            if !self.is_listed(&stat) {
                continue;
            }
            if self.nodes.len() >= MOST_HELD {
                self.census.cut = true;
                return Ok(());
            }
            match self.hold(pid, stat.parent)? {
                Held::Here(process) if self.is_listed(process.stat()) => self.admit(process, true),
                Held::Here(_) | Held::Gone | Held::Unheld => {}
                Held::Elsewhere => self.moved = true,
            }
        }
        Ok(())
    }

    fn is_listed(&self, stat: &Stat) -> bool {
        match self.scope {
            Scope::Session { leader, .. } => stat.session == leader.0 && stat.pid != leader.0,
            Scope::Unclaimed => stat.parent == self.ground.own && self.is_in_scope(stat),
        }
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
    )
}
