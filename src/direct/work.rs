//! The work of an ending: whom it has met, whom it has signalled, and who is left.

use std::io;
use std::time::{Duration, Instant};

use foster_protocol::{
    Bytes, Cause, Ended as MemberEnd, Ending, Micros, Pid, Proof, Survivor, Verdict,
};

use super::leader::Leader;
use super::table::{Member, Table};

/// How long KILL is repeated before those who are left are named.
pub(super) const HARD_LIMIT: Duration = Duration::from_secs(5);

/// The most members and survivors that a report names.
const MOST_NAMED: usize = 256;

/// What a look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Two walks in a row have met nobody beside the leader.
    Nobody,
    /// Somebody lives, or moved too fast to be sure.
    Somebody,
    /// The table cannot be read, so nothing is known of those beside the leader.
    Unknown,
}

/// One member that was met.
#[derive(Debug)]
struct Seen {
    pid: i32,
    start: u64,
    name: Vec<u8>,
    /// Whether it has had the first signal.
    signalled: bool,
    ended: MemberEnd,
}

/// The work of one ending.
#[derive(Debug)]
pub(super) struct Work {
    table: Table,
    begun: Instant,
    /// Whether the first signal went out, and whether KILL did.
    signalled: bool,
    killed: bool,
    seen: Vec<Seen>,
    /// Those who lived at the last look.
    living: Vec<Member>,
    /// Of those, the ones that could not be signalled.
    refused: Vec<i32>,
    rounds: u32,
}

impl Work {
    pub(super) fn new() -> Self {
        Self {
            table: Table::new(),
            begun: Instant::now(),
            signalled: false,
            killed: false,
            seen: Vec::new(),
            living: Vec::new(),
            refused: Vec::new(),
            rounds: 0,
        }
    }

    /// The time of the first signal is counted from here.
    pub(super) fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// Notes who is there, so that the report names those whom the first signal ends.
    pub(super) fn note(&mut self, leader: &Leader) {
        if let Err(error) = self.walk(leader) {
            tracing::debug!(%error, "process table cannot be read");
        }
    }

    /// Sends the first signal to everybody who was there at the last look, and CONT, so that
    /// stopped members can act on it.
    pub(super) fn begin_grace(&mut self, leader: &Leader, number: i32) {
        self.send(leader, number);
        self.send(leader, libc::SIGCONT);
        self.signalled = true;
        self.seen.iter_mut().for_each(|seen| seen.signalled = true);
    }

    /// Sends KILL to everybody. The group has it before the table is looked at, which can take
    /// a while on a busy machine.
    pub(super) fn kill(&mut self, leader: &Leader) -> Look {
        send_group(leader, libc::SIGKILL);
        self.killed = true;
        let found = self.walk(leader);
        self.send(leader, libc::SIGKILL);
        self.judge(leader, found)
    }

    /// Looks who is there.
    pub(super) fn look(&mut self, leader: &Leader) -> Look {
        let found = self.walk(leader);
        self.judge(leader, found)
    }

    fn judge(&mut self, leader: &Leader, found: io::Result<()>) -> Look {
        match found {
            Err(error) => {
                tracing::debug!(%error, "process table cannot be read");
                Look::Unknown
            }
            Ok(()) if !self.living.is_empty() => Look::Somebody,
            // A walk can miss who forks while it goes by; a second one is a second witness.
            Ok(()) => match self.walk(leader) {
                Ok(()) if self.living.is_empty() => Look::Nobody,
                Ok(()) => Look::Somebody,
                Err(_) => Look::Unknown,
            },
        }
    }

    /// Walks the table once and notes who came and who went.
    fn walk(&mut self, leader: &Leader) -> io::Result<()> {
        self.rounds = self.rounds.saturating_add(1);
        // A number that is no longer the leader's own may be somebody else's session.
        if !leader.is_pinned() {
            self.living.clear();
            return Err(io::Error::other("leader was collected by somebody else"));
        }
        self.living = match self.table.members(leader.pid()) {
            Ok(living) => living,
            Err(error) => {
                self.living.clear();
                return Err(error);
            }
        };
        for member in &self.living {
            let is_known = |seen: &Seen| (seen.pid, seen.start) == (member.pid, member.start);
            if !self.seen.iter().any(is_known) && self.seen.len() < MOST_NAMED {
                self.seen.push(Seen {
                    pid: member.pid,
                    start: member.start,
                    name: member.name.clone(),
                    signalled: false,
                    ended: MemberEnd::Not,
                });
            }
        }
        let ended = if self.killed {
            MemberEnd::ByKill
        } else if self.signalled {
            MemberEnd::ByFirstSignal
        } else {
            MemberEnd::ByItself
        };
        for seen in &mut self.seen {
            let lives = |member: &Member| (member.pid, member.start) == (seen.pid, seen.start);
            if seen.ended == MemberEnd::Not && !self.living.iter().any(lives) {
                seen.ended = ended;
            }
        }
        Ok(())
    }

    /// Sends a signal to everybody who was there at the last look. The group comes first: the
    /// kernel sends to all of it at once, so that no fork inside it is missed. Members outside
    /// of it, such as the jobs of a shell, are signalled one by one.
    pub(super) fn send(&mut self, leader: &Leader, number: i32) {
        send_group(leader, number);
        self.refused.clear();
        for member in &self.living {
            // The group has had it; 0 asks whether it could be sent to this one. KILL is sent
            // again to those who may have left the group meanwhile.
            let had = member.group == leader.pid() && number != libc::SIGKILL;
            let sent = member.signal(if had { 0 } else { number });
            if !sent && (member.is_held() || member.group != leader.pid()) {
                self.refused.push(member.pid);
            }
        }
    }

    /// How many lived at the last look, beside the leader.
    pub(super) fn count(&self) -> usize {
        self.living.len()
    }

    /// Those who lived at the last look, to be polled for their deaths.
    pub(super) fn living(&self) -> &[Member] {
        &self.living
    }

    /// Whether nobody who has had the first signal lives, and others do: they were forked too
    /// late for it.
    pub(super) fn is_rest(&self) -> bool {
        !self.living.is_empty()
            && !self
                .seen
                .iter()
                .any(|seen| seen.signalled && seen.ended == MemberEnd::Not)
    }

    /// The report of an ending after which nobody was met.
    pub(super) fn all_gone(self, cause: Cause) -> Ending {
        let proof = Some(Proof::SessionScanEmpty);
        self.report(cause, Verdict::AllGone, proof, Vec::new())
    }

    /// The report of an ending whose time is up. `leader` lives if it is named.
    pub(super) fn incomplete(self, cause: Cause, leader: Option<&Leader>) -> Ending {
        let mut survivors: Vec<Survivor> = self
            .living
            .iter()
            .filter(|member| member.is_alive())
            .map(|member| {
                let refused = self.refused.contains(&member.pid);
                self.table.explain(member, refused)
            })
            .take(MOST_NAMED)
            .collect();
        survivors.extend(leader.map(|leader| self.table.explain_leader(leader.pid())));
        self.report(cause, Verdict::Incomplete, None, survivors)
    }

    fn report(
        self,
        cause: Cause,
        verdict: Verdict,
        proof: Option<Proof>,
        survivors: Vec<Survivor>,
    ) -> Ending {
        let members = self
            .seen
            .into_iter()
            .map(|seen| foster_protocol::Member {
                pid: Pid(seen.pid),
                name: Bytes(seen.name),
                ended: seen.ended,
            })
            .collect();
        Ending {
            cause,
            verdict,
            proof,
            members,
            survivors,
            unattributed: Vec::new(),
            peaks: None,
            rounds: self.rounds,
            took: Micros::from(self.begun.elapsed()),
        }
    }
}

fn send_group(leader: &Leader, number: i32) {
    if let Err(error) = leader.signal_group(number)
        && error.raw_os_error() != Some(libc::ESRCH)
    {
        tracing::debug!(%error, number, "group was not signalled");
    }
}
