//! What a direct session's thread and its handles share.
//!
//! The thread alone signals and reaps; a handle leaves an order and waits for what comes of
//! it. Nothing here calls the system, but for the counter that wakes the thread.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foster_protocol::{Cause, Exit, Reject, StateName, Target};

use super::Failed;
use super::wake::Wake;
use crate::ended::Ended;
use crate::poll::time_left;

/// What a handle asks of the thread.
#[derive(Debug)]
pub(super) enum Order {
    /// Let the child through its gate.
    Open,
    /// End the session. The first one counts, and a second one can only shorten its grace.
    End {
        first: i32,
        grace: Duration,
        cause: Cause,
    },
    /// Send one signal, and say to how many.
    Signal {
        number: i32,
        to: Target,
        answer: Sender<Result<u32, Reject>>,
    },
    /// Let go what is left, and say how many that are.
    Release { answer: Sender<Result<u32, Reject>> },
}

/// Why a leader's exit will never be known: something else in this process collected it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stolen;

/// What is known of the session.
#[derive(Debug)]
pub(super) struct State {
    pub(super) name: StateName,
    pub(super) pid: i32,
    pub(super) pidfd: Option<Arc<OwnedFd>>,
    /// How the start went, as far as it has gone: none while the child is on its way.
    pub(super) failed: Option<Failed>,
    pub(super) exit: Option<Result<Exit, Stolen>>,
    pub(super) end: Option<Ended>,
    /// The thread is gone without a verdict: it has panicked.
    pub(super) is_gone: bool,
    orders: VecDeque<Order>,
}

/// The state, the bell that rings at each change, and what wakes the thread.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    bell: Condvar,
    wake: Wake,
}

impl Shared {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            state: Mutex::new(State {
                name: StateName::Starting,
                pid: 0,
                pidfd: None,
                failed: None,
                exit: None,
                end: None,
                is_gone: false,
                orders: VecDeque::new(),
            }),
            bell: Condvar::new(),
            wake: Wake::new()?,
        })
    }

    /// Locks the state. A panic elsewhere leaves it usable: each change is whole.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and rings the bell.
    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.bell.notify_all();
    }

    /// Waits until `ready` gives something, the thread is gone, or the deadline has passed
    /// (none).
    pub(super) fn wait<T>(
        &self,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&State) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(value) = ready(&state) {
                return Some(value);
            }
            let left = time_left(deadline);
            if state.is_gone || left == Some(Duration::ZERO) {
                return None;
            }
            state = match left {
                Some(left) => {
                    let waited = self.bell.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self
                    .bell
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Leaves an order, where the session is not over. Gives the state that it is in.
    pub(super) fn order(&self, order: Order) -> StateName {
        let mut state = self.lock();
        if !is_over(state.name) && !state.is_gone {
            state.orders.push_back(order);
            self.wake.ring();
        }
        state.name
    }

    /// Takes the next order.
    pub(super) fn take_order(&self) -> Option<Order> {
        self.lock().orders.pop_front()
    }

    /// Notes that the session is over, and answers the orders that came too late.
    pub(super) fn finish(&self, name: StateName, end: Option<Ended>) {
        let late = {
            let mut state = self.lock();
            state.name = name;
            state.end = end.or_else(|| state.end.take());
            std::mem::take(&mut state.orders)
        };
        for order in late {
            match order {
                Order::Signal { answer, .. } | Order::Release { answer } => {
                    // Whoever asked may have gone.
                    let _nobody_waits = answer.send(Err(Reject::IllegalState { state: name }));
                }
                // Whoever asked for the end waits for the verdict, which is there.
                Order::Open | Order::End { .. } => {}
            }
        }
        self.bell.notify_all();
    }

    /// To be polled by the thread.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Notes that the thread has woken.
    pub(super) fn quiet(&self) {
        self.wake.quiet();
    }
}

/// Whether nothing more can be asked of a session in this state.
pub(super) fn is_over(name: StateName) -> bool {
    match name {
        StateName::Ended | StateName::Released | StateName::Failed => true,
        StateName::Starting
        | StateName::Prepared
        | StateName::Running
        | StateName::Exited
        | StateName::Ending => false,
    }
}
