//! What the server holds of a session that it starts itself: its processes, and the orders of its
//! ending.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use foster_protocol::{Cause, Micros, OnExit, Spec, Step};

use crate::contain::cgroup::Leaf;
use crate::ending::Work;
use crate::sys::leader::Leader;
use crate::table::Record;

/// The processes of a session.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) leader: Option<Leader>,
    pub(super) leader_token: Option<u64>,
    /// The pipe on which the child reports its way to exec.
    pub(super) status: Option<(OwnedFd, u64)>,
    pub(super) gate: Option<OwnedFd>,
    /// The cgroup that the leader was started in.
    pub(super) cgroup: Option<Leaf>,
    /// The child has said that it goes into exec.
    pub(super) executing: bool,
    pub(super) failure: Option<(Step, i32)>,
    pub(super) born: Instant,
    pub(super) on_exit: OnExit,
    pub(super) grace: Micros,
    pub(super) first_signal: i32,
    /// Why and how it is to end, from the first request for it.
    pub(super) orders: Option<Orders>,
    /// What is known of the tree while it is watched or ended.
    pub(super) work: Option<Work>,
    /// The leader is dead and unreaped.
    pub(super) exited: bool,
}

/// Why and how a session is to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orders {
    pub(super) cause: Cause,
    /// The first signal.
    pub(super) first: i32,
    pub(super) grace: Duration,
}

impl Orders {
    /// There is nothing to wait for between the first signal and KILL.
    pub(super) fn is_at_once(self) -> bool {
        self.grace.is_zero() || self.first == libc::SIGKILL
    }
}

impl Body {
    pub(super) fn new(spec: &Spec) -> Self {
        Self {
            leader: None,
            leader_token: None,
            status: None,
            gate: None,
            cgroup: None,
            executing: false,
            failure: None,
            born: Instant::now(),
            on_exit: spec.on_exit,
            grace: spec.grace,
            first_signal: spec.first_signal.unwrap_or(libc::SIGTERM),
            orders: None,
            work: None,
            exited: false,
        }
    }

    /// The kernel has killed a member for want of memory, and the leader died of KILL.
    pub(super) fn is_out_of_memory(&self, status: i32) -> bool {
        let kills = || self.cgroup.as_ref()?.oom_kills();
        libc::WTERMSIG(status) == libc::SIGKILL && kills().is_some_and(|kills| kills > 0)
    }

    /// The orders of an ending that brings no terms of its own.
    pub(super) fn own_orders(&self, cause: Cause) -> Orders {
        Orders {
            cause,
            first: self.first_signal,
            grace: self.grace.into(),
        }
    }

    /// The orders of an ending that the leader's exit brings about.
    pub(super) fn orders_at_exit(&self, cause: Cause) -> Orders {
        match self.on_exit {
            OnExit::End { grace } | OnExit::Linger { limit: _, grace } => Orders {
                cause,
                first: self.first_signal,
                grace: grace.into(),
            },
            OnExit::Hold | OnExit::Leave => self.own_orders(cause),
        }
    }
}

impl Record<Body> {
    /// Why the session ends: the first reason that was given, or else the leader's exit.
    pub(super) fn ending_cause(&self) -> Cause {
        let by_exit = self.exit.map_or(Cause::Exit, |exit| exit.cause);
        self.body.orders.map_or(by_exit, |orders| orders.cause)
    }
}
