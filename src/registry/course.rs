//! The ending itself: the first signal to all services at once, a grace, KILL to who is left.
//!
//! Every signal goes through a pidfd that was opened before its process was shown to be ours,
//! so that none can reach another one, however long the grace was. Exits are waited for by
//! pidfd: a service that goes early, as a zombie too, ends its wait.

use std::time::{Duration, Instant};

use super::stop::{Outcome, Stop};
use super::{ServiceName, members};
use crate::identity::{self, Held, IdentityError, exited};

/// The time between two looks for members that have been born since.
const LOOK: Duration = Duration::from_millis(50);

/// The longest budget: what is longer never ends before its host.
const LONGEST: Duration = Duration::from_secs(86_400);

/// How often stopped members are looked through for those that were born just before.
const ROUNDS: u32 = 8;

/// A service that is being ended.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) name: ServiceName,
    leader: Held,
    members: Vec<Held>,
    /// Members that have gone.
    gone: usize,
    by_kill: bool,
}

impl Course {
    pub(super) fn new(name: ServiceName, leader: Held) -> Self {
        Self {
            name,
            leader,
            members: Vec::new(),
            gone: 0,
            by_kill: false,
        }
    }

    /// The first signal, and CONT behind it so that stopped members can act.
    fn begin(&mut self, first: i32) {
        members::find(&self.leader, &mut self.members);
        self.signal_all(first);
        self.signal_all(libc::SIGCONT);
    }

    /// One signal to each: by the group where that reaches it, else one by one.
    fn signal_all(&self, number: i32) {
        let by_group = match self.leader.signal_group(number) {
            Ok(identity::Reach::Group) => true,
            Ok(identity::Reach::Process) => false,
            Err(error) => {
                self.note(&error);
                false
            }
        };
        for member in &self.members {
            let group = identity::stat(member.pid()).map(|stat| stat.group);
            if by_group && group == Some(self.leader.pid()) {
                continue;
            }
            if let Err(error) = member.signal(number) {
                self.note(&error);
            }
        }
    }

    /// KILL to everybody who is left and who is found while doing so. Each pidfd is looked at
    /// again: who has gone meanwhile is not signalled.
    fn kill(&mut self) {
        self.settle();
        if self.is_over() {
            return;
        }
        self.by_kill = true;
        // A member's children can be told by their parent only while that lives, and who is
        // stopped lives and has no more of them.
        for _ in 0..ROUNDS {
            self.signal_all(libc::SIGSTOP);
            if !members::find(&self.leader, &mut self.members) {
                break;
            }
        }
        self.signal_all(libc::SIGKILL);
    }

    /// Takes those off who have gone.
    fn settle(&mut self) {
        let before = self.members.len();
        self.members.retain(Held::is_alive);
        self.gone += before - self.members.len();
    }

    fn is_over(&self) -> bool {
        self.members.is_empty() && !self.leader.is_alive()
    }

    fn outcome(self) -> Outcome {
        let pid = self.leader.pid();
        if self.is_over() {
            return Outcome::Gone {
                pid,
                members: self.gone,
                by_kill: self.by_kill,
            };
        }
        let leader = Some(&self.leader).filter(|leader| leader.is_alive());
        let survivors = leader.into_iter().chain(&self.members);
        Outcome::Survived {
            survivors: survivors.map(Held::pid).collect(),
        }
    }

    fn note(&self, error: &IdentityError) {
        // Whoever has gone went by itself, which is as well.
        if !matches!(error, IdentityError::Gone { .. }) {
            tracing::warn!(service = %self.name, %error, "member cannot be signalled");
        }
    }
}

/// Ends these, all at the same time, and says what became of each.
pub(super) fn run(mut courses: Vec<Course>, how: Stop) -> Vec<(ServiceName, Outcome)> {
    let begin = Instant::now();
    let total = how.budget.min(LONGEST);
    let budget = begin + total;
    let grace = match how.grace < total {
        true => begin + how.grace,
        false => begin + total * 4 / 5,
    };
    for course in &mut courses {
        course.begin(how.first);
    }
    // 1. The grace, which ends when everybody has gone. Who is born in it is left to finish.
    while !wait(&mut courses, grace) {
        for course in &mut courses {
            members::find(&course.leader, &mut course.members);
        }
    }
    // 2. KILL, again and again: a look may meet somebody new. Once in any case, also where the
    //    looks have taken the whole budget.
    while !courses.iter().all(Course::is_over) {
        for course in courses.iter_mut().filter(|course| !course.is_over()) {
            course.kill();
        }
        let look = Instant::now() + LOOK;
        while !wait(&mut courses, look) {}
        if Instant::now() >= budget {
            break;
        }
    }
    let named = courses.into_iter();
    named
        .map(|course| (course.name.clone(), course.outcome()))
        .collect()
}

/// Waits for an exit, a look at most; true where everybody has gone or the time is up.
fn wait(courses: &mut [Course], until: Instant) -> bool {
    courses.iter_mut().for_each(Course::settle);
    let left = until.saturating_duration_since(Instant::now());
    let leaders = courses.iter().map(|course| &course.leader);
    let members = courses.iter().flat_map(|course| &course.members);
    let alive: Vec<&Held> = leaders
        .filter(|leader| leader.is_alive())
        .chain(members)
        .collect();
    if alive.is_empty() || left.is_zero() {
        return true;
    }
    if let Err(errno) = exited(&alive, left.min(LOOK)) {
        // Nothing is known then, and the next look tells; the time is bounded by the caller.
        tracing::warn!(%errno, "exits cannot be waited for");
    }
    false
}
