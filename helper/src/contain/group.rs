//! Who is left of a session at level `group`.
//!
//! Members are the leader's verified descendants, and the adopted orphans of its kernel
//! session with theirs. The leader is unreaped, so that its session id is nobody else's; an
//! orphan is accepted only if it is our own child, and a descendant only if its parent is an
//! accepted process that is alive after the child's pidfd was opened. A number that was
//! recycled in between fails these checks, so nobody else is ever a member.
//!
//! A walk is bounded and never waits; what it could not see it says, and the next one goes on.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use foster_protocol::{Bytes, Orphan, Pid};

use crate::sys::proc::{self, Adopted, Stat};
use crate::sys::process::Process;

/// A walk holds at most this many pidfds: the reserve of descriptors covers them.
const MOST_HELD: usize = 1024;

/// A walk ends after this time, so that no other session waits longer for its turn.
const LONGEST_WALK: Duration = Duration::from_millis(20);

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
    /// The list of adopted orphans; without `children` files there is none.
    pub(crate) adopted: Option<&'a Adopted>,
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
        ground,
        accept,
        census: Census::default(),
        started: Instant::now(),
        at: 0,
    };
    if let Some(adopted) = ground.adopted {
        let orphans = adopted.list()?;
        walk.census.orphan_free = orphans.is_empty();
        if let Scope::Session {
            leader,
            leader_lives: true,
        } = scope
        {
            walk.children_of(leader.0, None)?;
        }
        walk.orphans(scope, &orphans)?;
        walk.descend()?;
    } else {
        walk.everyone(scope)?;
    }
    Ok(walk.census)
}

/// The adopted orphans that nobody can be shown to own, for a report.
pub(crate) fn unattributed(ground: &Ground<'_>) -> io::Result<Vec<Orphan>> {
    let mut named = Vec::new();
    let Some(adopted) = ground.adopted else {
        return Ok(named);
    };
    for pid in adopted.list()? {
        // A report may be wrong about a process that ends meanwhile; a signal may not.
        let Ok(stat) = proc::stat(pid) else { continue };
        let is_loose = stat.parent == ground.own
            && !matches!(stat.state, b'Z' | b'X')
            && (ground.claim)(stat.session) == Claim::Nobody;
        if is_loose && named.len() < MOST_NAMED {
            named.push(Orphan {
                pid: Pid(pid),
                sid: Pid(stat.session),
                name: Bytes(stat.name),
            });
        }
    }
    Ok(named)
}

/// A walk under way.
struct Walk<'a> {
    ground: &'a Ground<'a>,
    accept: &'a mut dyn FnMut(&Process),
    census: Census,
    started: Instant,
    /// The next of the members whose children have not been looked at.
    at: usize,
}

impl Walk<'_> {
    fn is_over_budget(&self) -> bool {
        self.census.members.len() >= MOST_HELD || self.started.elapsed() >= LONGEST_WALK
    }

    /// Holds a process and checks that it belongs here, in this order: pidfd, identity, still
    /// alive.
    fn hold(&mut self, pid: i32, belongs: impl Fn(&Stat) -> bool) -> io::Result<Option<Process>> {
        if !self.ground.pidfds {
            if let Ok(stat) = proc::stat(pid)
                && belongs(&stat)
            {
                match stat.state {
                    b'Z' | b'X' => self.census.dying = true,
                    _ => self.census.unpinned.push(stat),
                }
            }
            return Ok(None);
        }
        match Process::open(pid) {
            Ok(process) => Ok(process.filter(|process| belongs(process.stat()))),
            // The reserve is used up; those who are held are dealt with first.
            Err(error) if is_out_of_descriptors(&error) => {
                self.census.cut = true;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn admit(&mut self, process: Process) {
        (self.accept)(&process);
        self.census.members.push(process);
    }

    /// Takes the children of a process whose number is pinned: the unreaped leader's, or a
    /// member's that is checked to be alive after each child was held.
    fn children_of(&mut self, pid: i32, member: Option<usize>) -> io::Result<()> {
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
                self.census.cut = true;
                return Ok(());
            }
            let Some(process) = self.hold(child, |stat| stat.parent == pid)? else {
                continue;
            };
            let parent = member.and_then(|index| self.census.members.get(index));
            let parent_lives = match parent {
                Some(parent) => !parent.is_dead()?,
                None => true,
            };
            if parent_lives {
                self.admit(process);
            } else {
                // It has been adopted by now, and the next walk sees it as an orphan.
                self.census.dying = true;
            }
        }
        Ok(())
    }

    fn orphans(&mut self, scope: Scope, orphans: &[i32]) -> io::Result<()> {
        let own = self.ground.own;
        let claim = self.ground.claim;
        let is_in_scope = |stat: &Stat| match scope {
            Scope::Session { leader, .. } => stat.session == leader.0,
            Scope::Unclaimed => claim(stat.session) == Claim::Nobody,
        };
        for &orphan in orphans {
            if self.is_over_budget() {
                self.census.cut = true;
                return Ok(());
            }
            match self.hold(orphan, |stat| stat.parent == own && is_in_scope(stat))? {
                Some(process) => self.admit(process),
                None => self.note_dying(orphan, is_in_scope),
            }
        }
        Ok(())
    }

    /// A dead orphan keeps its session id until the main thread has reaped it.
    fn note_dying(&mut self, pid: i32, is_in_scope: impl Fn(&Stat) -> bool) {
        if let Ok(stat) = proc::stat(pid)
            && stat.parent == self.ground.own
            && is_in_scope(&stat)
        {
            self.census.dying = true;
        }
    }

    fn descend(&mut self) -> io::Result<()> {
        while let Some(member) = self.census.members.get(self.at) {
            let pid = member.pid();
            let index = self.at;
            self.at += 1;
            if self.is_over_budget() {
                self.census.cut = true;
                return Ok(());
            }
            self.children_of(pid.0, Some(index))?;
        }
        Ok(())
    }

    /// Without `children` files: everybody of the kernel session, in the whole of `/proc`.
    fn everyone(&mut self, scope: Scope) -> io::Result<()> {
        let own = self.ground.own;
        let claim = self.ground.claim;
        let mut pids = VecDeque::from(proc::all_pids()?);
        while let Some(pid) = pids.pop_front() {
            if self.census.members.len() >= MOST_HELD {
                self.census.cut = true;
                return Ok(());
            }
            let is_member = |stat: &Stat| match scope {
                Scope::Session { leader, .. } => stat.session == leader.0 && stat.pid != leader.0,
                Scope::Unclaimed => stat.parent == own && claim(stat.session) == Claim::Nobody,
            };
            // Two looks, because holding every process of the machine would be dear: the
            // first on the number, the second, which counts, on the held process.
            let Ok(stat) = proc::stat(pid) else { continue };
            if is_member(&stat)
                && let Some(process) = self.hold(pid, is_member)?
            {
                self.admit(process);
            }
        }
        Ok(())
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
    )
}
