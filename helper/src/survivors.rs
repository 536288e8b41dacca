//! Saying why somebody outlived an ending.

use std::io;

use foster_protocol::{Bytes, Pid, Survivor, Why};

use crate::contain::cgroup::Leaf;
use crate::sys::leader::Leader;
use crate::sys::outer::shown;
use crate::sys::proc::{self, Stat};
use crate::sys::process::Process;

/// Says why the leader, which may not be held by pidfd, is left.
pub(crate) fn explain_leader(leader: &Leader, cgroup: Option<&Leaf>) -> Survivor {
    let name = proc::stat(leader.pid().0)
        .map(|stat| stat.name)
        .unwrap_or_default();
    let denied = is_denied(leader.signal(libc::SIGKILL));
    let (uid, why) = reason(leader.pid().0, denied, false, cgroup);
    Survivor {
        pid: shown(leader.pid().0),
        name: Bytes(name),
        uid,
        why,
    }
}

/// Says why a process is left that could only be looked at.
pub(crate) fn explain_unpinned(stat: &Stat) -> Survivor {
    let uid = proc::hold(stat.pid).map_or(u32::MAX, |hold| hold.uid);
    Survivor {
        pid: shown(stat.pid),
        name: Bytes(stat.name.clone()),
        uid,
        why: Why::NotPinned,
    }
}

/// Says why a member is left. `fast` says that new ones kept coming.
pub(crate) fn explain(process: &Process, fast: bool, cgroup: Option<&Leaf>) -> Survivor {
    let denied = is_denied(process.signal(libc::SIGKILL));
    let (uid, why) = reason(process.pid().0, denied, fast, cgroup);
    Survivor {
        pid: shown(process.pid().0),
        name: Bytes(process.stat().name.clone()),
        uid,
        why,
    }
}

fn reason(pid: i32, denied: bool, fast: bool, cgroup: Option<&Leaf>) -> (u32, Why) {
    let hold = proc::hold(pid).ok();
    let uid = hold.as_ref().map_or(u32::MAX, |hold| hold.uid);
    let tracer = hold.map_or(0, |hold| hold.tracer);
    let state = proc::stat(pid).map_or(b'?', |stat| stat.state);
    // A cgroup's KILL needs no permission, so whoever is inside has had it.
    let left = cgroup.map(|cgroup| !cgroup.holds(pid));
    let why = match state {
        _ if denied && left == Some(true) => Why::LeftCgroup,
        _ if denied && left.is_none() => Why::NotPermitted { uid },
        _ if tracer != 0 => Why::HeldByTracer {
            tracer: shown(tracer),
        },
        // A tracer outside of our pid namespace has no number here.
        b't' => Why::HeldByTracer { tracer: Pid(0) },
        b'D' => Why::Uninterruptible,
        _ if left == Some(true) => Why::LeftCgroup,
        _ if fast => Why::ForkRate,
        _ => Why::Dying,
    };
    (uid, why)
}

fn is_denied(result: io::Result<()>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
}
