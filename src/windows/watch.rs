//! The thread that keeps a session's times. A session has one where something is to happen that
//! nobody asks for: at its deadline, or at its leader's exit; or where its ending takes more than
//! one call.

use std::io;
use std::os::windows::io::AsHandle;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use foster_protocol::Cause;

use super::ending::TICK;
use super::tree::Tree;
use crate::on_exit::OnExit;
use crate::sys;

/// What stands for a time that no clock has.
const CENTURY: Duration = Duration::from_secs(3_155_760_000);

/// What a session's thread has to see to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orders {
    pub(super) on_exit: OnExit,
    /// When the tree is ended.
    pub(super) due: Option<Instant>,
}

impl Orders {
    fn has_any(self) -> bool {
        self.due.is_some() || self.on_exit != OnExit::Hold
    }
}

/// Starts the thread of a session, where it needs one.
///
/// # Errors
///
/// What the system says.
pub(super) fn watch(tree: &Arc<Tree>, orders: Orders) -> io::Result<()> {
    if orders.has_any() || tree.job.is_none() {
        let tree = Arc::clone(tree);
        thread::Builder::new()
            .name("foster-direct".into())
            .spawn(move || run(&tree, orders))?;
    }
    Ok(())
}

fn run(tree: &Tree, orders: Orders) {
    let mut has_exited = false;
    // When the rest has to have finished by itself.
    let mut linger = None;
    loop {
        let now = Instant::now();
        if orders.due.is_some_and(|due| due <= now) {
            tree.begin(Cause::Deadline);
        } else if linger.is_some_and(|until| until <= now) {
            tree.begin(Cause::Linger);
        } else if linger.is_some() && tree.is_empty() {
            tree.finish_empty();
        }
        if tree.is_stirred() {
            // Whoever asked may not wait: the ending is carried through here.
            tree.settle(None);
            return;
        }
        if has_exited && orders.due.is_none() && linger.is_none() && tree.job.is_some() {
            return;
        }
        let until = [orders.due, linger].into_iter().flatten().min();
        let mut limit = until.map(|until| until.saturating_duration_since(Instant::now()));
        if linger.is_some() {
            limit = Some(limit.map_or(TICK, |limit| limit.min(TICK)));
        }
        let handles = [tree.stir.as_handle(), tree.leader.as_handle()];
        let watched = if has_exited {
            &handles[..1]
        } else {
            &handles[..]
        };
        match sys::wait_any(watched, limit) {
            Ok(Some(1)) => {
                has_exited = true;
                linger = follow_exit(tree, orders.on_exit);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "session cannot be watched: it is ended");
                tree.begin(Cause::Close);
            }
        }
    }
}

/// What the command says about its rest. Gives when the rest has to have finished by itself.
fn follow_exit(tree: &Tree, on_exit: OnExit) -> Option<Instant> {
    // Before anything is begun, so that the exit is its own.
    if let Err(error) = tree.wait_exit(Some(Duration::ZERO)) {
        tracing::debug!(%error, "exit cannot be noted");
    }
    match on_exit {
        // What is to be left is released by whoever sees the exit.
        OnExit::Hold | OnExit::Leave => None,
        OnExit::End { .. } => {
            tree.begin(Cause::Exit);
            None
        }
        OnExit::Linger { limit, .. } => {
            let now = Instant::now();
            // A limit that is out of range is a very long one.
            let until = now.checked_add(limit);
            Some(until.or_else(|| now.checked_add(CENTURY)).unwrap_or(now))
        }
    }
}
