use std::os::fd::AsRawFd;

use foster_protocol::{Mapping, Spec, Step};

use crate::sys::kernel::Features;
use crate::sys::raw::{self, Who};
use crate::sys::spawn::{Context, Plan, Progress, spawn};
use crate::sys::testing::{
    await_death, command, context, context_with, descriptors_of, failure, finish, in_own_process,
    mapped, next_record, pipe, read_to_end, reaped, records, running, start, variants, waiting,
    what_is,
};

#[test]
fn nothing_but_the_mapped_descriptors_is_open() {
    // Alone, so that no other test opens a descriptor meanwhile.
    in_own_process(|| {
        for features in variants() {
            let (spec, [input, output], talk) = waiting();
            let (_reader, extra) = pipe();
            let names = [&input, &output, &extra].map(what_is);
            let spec = mapped(spec, &[0, 1, 200]);
            let leader = running(&spec, vec![input, output, extra], &context_with(features));
            talk.settle();
            let [input, output, extra] = names;
            let expected = [
                (0, input),
                (1, output),
                (2, "/dev/null".into()),
                (200, extra),
            ];
            assert_eq!(descriptors_of(leader.pid().0), expected, "{features:?}");
            drop(talk);
            assert_eq!(reaped(leader), 0);
        }
    });
}

#[test]
fn descriptors_are_swapped_kept_and_doubled() {
    in_own_process(|| variants().into_iter().for_each(swap_keep_and_double));
}

fn swap_keep_and_double(features: Features) {
    let (spec, [input, output], talk) = waiting();
    let (a, b) = pipe();
    let (c, _d) = pipe();
    let [a_is, b_is, c_is] = [&a, &b, &c].map(what_is);
    let [a_at, b_at, c_at] = [&a, &b, &c].map(AsRawFd::as_raw_fd);
    let context = context_with(features);
    let null_at = context.null.as_raw_fd();
    let map = |target, source| Mapping { target, source };
    let descriptors = vec![
        map(0, 0),
        map(1, 1),
        map(b_at, 2),
        map(a_at, 3),
        map(c_at, 4),
        // Where the helper's own /dev/null is, and once more above everything.
        map(null_at, 4),
        map(999, 2),
    ];
    let spec = Spec {
        descriptors,
        ..spec
    };
    let leader = running(&spec, vec![input, output, a, b, c], &context);
    talk.settle();
    let found = descriptors_of(leader.pid().0);
    let at = |number| &found.iter().find(|(found, _)| *found == number).unwrap().1;
    assert_eq!(at(b_at), &a_is);
    assert_eq!(at(a_at), &b_is);
    assert_eq!(at(c_at), &c_is);
    assert_eq!(at(null_at), &c_is);
    assert_eq!(at(999), &a_is);
    assert_eq!(at(2).to_str(), Some("/dev/null"));
    assert_eq!(found.len(), 8);
    finish(leader);
}

#[test]
fn every_number_up_to_a_hundred_can_be_a_target() {
    // Whatever numbers the status pipe, the gate and the sources have, they are in the way.
    let (spec, [input, output], talk) = waiting();
    let (reader, _writer) = pipe();
    let name = what_is(&reader);
    let map = |target, source| Mapping { target, source };
    let mut descriptors = vec![map(0, 0), map(1, 1)];
    descriptors.extend((2..100).map(|target| map(target, 2)));
    let spec = Spec {
        descriptors,
        gated: true,
        ..spec
    };
    let born = start(&spec, vec![input, output, reader], &context());
    assert_eq!(next_record(&born), Some(Progress::Waiting));
    nix::unistd::write(born.gate.as_ref().unwrap(), b"x").unwrap();
    assert_eq!(records(&born), [Progress::Executing]);
    talk.settle();
    let found = descriptors_of(born.leader.pid().0);
    assert_eq!(found.len(), 100);
    assert!(found.iter().skip(2).all(|(_, what)| *what == name));
    finish(born.leader);
}

#[test]
fn a_target_above_the_limit_fails_at_the_descriptors() {
    let spec = mapped(command(&["true"]), &[i32::MAX]);
    let (reader, _writer) = pipe();
    assert_eq!(
        failure(&spec, vec![reader]),
        (Step::Descriptors, libc::EBADF)
    );
}

#[test]
fn a_plan_that_is_dropped_closes_what_came_with_it() {
    let (reader, writer) = pipe();
    let context = context();
    let spec = mapped(command(&["true"]), &[5]);
    drop(Plan::new(&spec, vec![writer], &context).unwrap());
    assert_eq!(read_to_end(reader), "");
}

#[test]
fn a_spawned_plan_leaves_nothing_open_in_the_parent() {
    let (reader, writer) = pipe();
    let born = start(&mapped(command(&["true"]), &[5]), vec![writer], &context());
    assert_eq!(records(&born), [Progress::Executing]);
    // Only the child had it, and the child is gone.
    assert_eq!(read_to_end(reader), "");
    await_death(&born.leader);
    assert_eq!(reaped(born.leader), 0);
}

#[test]
fn an_exhausted_descriptor_table_is_an_error_and_no_child() {
    in_own_process(own_table_is_full);
}

fn own_table_is_full() {
    let mut context = context();
    let plan = |context: &Context| Plan::new(&command(&["true"]), Vec::new(), context).unwrap();
    let mut hoard = Vec::new();
    while let Ok(copy) = context.null.try_clone() {
        hoard.push(copy);
    }
    assert_eq!(
        spawn(plan(&context), &context, None).unwrap_err(),
        (Step::Prepare, libc::EMFILE)
    );
    // Room for the status pipe, none for the pidfd.
    hoard.truncate(hoard.len() - 2);
    for clone3 in [context.features.clone3, false] {
        context.features.clone3 = clone3;
        assert_eq!(
            spawn(plan(&context), &context, None).unwrap_err(),
            (Step::Fork, libc::EMFILE)
        );
    }
    let no_child = raw::waitid(Who::Any, libc::WEXITED | libc::WNOHANG).err();
    assert_eq!(
        no_child.and_then(|error| error.raw_os_error()),
        Some(libc::ECHILD)
    );
}
