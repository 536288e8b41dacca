use std::thread;

use foster_protocol::{Spec, Step};

use crate::sys::proc;
use crate::sys::spawn::{Context, Progress};
use crate::sys::testing::{
    command, context, context_with, finish, next_record, reaped, records, running, start,
    try_start, variants,
};

#[test]
fn the_child_leads_a_session_of_its_own() {
    let leader = running(&command(&["sleep", "62.1"]), Vec::new(), &context());
    let stat = proc::stat(leader.pid().0).unwrap();
    assert_eq!((stat.group, stat.session), (stat.pid, stat.pid));
    finish(leader);
}

#[test]
fn the_gate_holds_the_child_until_a_byte_comes() {
    for features in variants() {
        let spec = Spec {
            gated: true,
            ..command(&["true"])
        };
        let born = start(&spec, Vec::new(), &context_with(features));
        assert_eq!(next_record(&born), Some(Progress::Waiting));
        assert_eq!(born.leader.peek().unwrap(), None);
        nix::unistd::write(born.gate.as_ref().unwrap(), b"x").unwrap();
        assert_eq!(records(&born), [Progress::Executing]);
        assert_eq!(reaped(born.leader), 0);
    }
}

#[test]
fn a_gate_that_is_closed_unopened_cancels() {
    let spec = Spec {
        gated: true,
        ..command(&["true"])
    };
    let mut born = start(&spec, Vec::new(), &context());
    assert_eq!(next_record(&born), Some(Progress::Waiting));
    born.gate = None;
    let failed = Progress::Failed {
        step: Step::Gate,
        errno: libc::ECANCELED,
    };
    assert_eq!(records(&born), [failed]);
    reaped(born.leader);
}

#[test]
fn a_child_that_is_killed_at_the_gate_never_runs() {
    let spec = Spec {
        gated: true,
        ..command(&["true"])
    };
    let born = start(&spec, Vec::new(), &context());
    assert_eq!(next_record(&born), Some(Progress::Waiting));
    // TERM stays pending: everything is blocked until exec.
    born.leader.signal_group(libc::SIGTERM).unwrap();
    assert_eq!(born.leader.peek().unwrap(), None);
    born.leader.signal_group(libc::SIGKILL).unwrap();
    assert_eq!(records(&born), []);
    assert_eq!(reaped(born.leader), libc::SIGKILL);
}

#[test]
fn the_child_dies_with_the_thread_that_forked_it() {
    let forked = |spec: Spec| {
        thread::spawn(move || running(&spec, Vec::new(), &context()))
            .join()
            .unwrap()
    };
    let leader = forked(command(&["sleep", "62.2"]));
    assert_eq!(reaped(leader), libc::SIGKILL);
    let spec = Spec {
        death_signal: Some(libc::SIGTERM),
        ..command(&["sleep", "62.3"])
    };
    assert_eq!(reaped(forked(spec)), libc::SIGTERM);
    for spec in [
        Spec {
            detachable: true,
            ..command(&["sleep", "62.4"])
        },
        Spec {
            death_signal: Some(0),
            ..command(&["sleep", "62.5"])
        },
    ] {
        let leader = forked(spec);
        leader.signal(libc::SIGTERM).unwrap();
        assert_eq!(reaped(leader), libc::SIGTERM, "no KILL came before");
    }
}

#[test]
fn a_death_signal_for_a_detachable_session_is_refused() {
    let spec = Spec {
        detachable: true,
        death_signal: Some(9),
        ..command(&["true"])
    };
    let refused = try_start(&spec, Vec::new(), &context()).unwrap_err();
    assert_eq!(refused, (Step::DeathSignal, libc::EINVAL));
}

#[test]
fn a_child_whose_helper_has_died_runs_nothing() {
    let orphaned = Context {
        helper_pid: 1,
        ..context()
    };
    let born = start(&command(&["true"]), Vec::new(), &orphaned);
    let failed = Progress::Failed {
        step: Step::DeathSignal,
        errno: libc::ESRCH,
    };
    assert_eq!(records(&born), [failed]);
    reaped(born.leader);
}
