//! What a keeper inherits at its birth: nothing that hides a death, stops the helper's loop or
//! wakes it in the keeper's name.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::Duration;

use foster_protocol::{Level, Reply, Spec};
use foster_tests::{
    Command, DEATH, SETTLE, Stage, Tracer, at_level, eventually, note_not_run, proc,
};

use crate::ground::{spawn_sleeper, spawn_stubborn, tree};

/// How long a keeper without a session waits for one.
const SPARE_TIME: Duration = Duration::from_secs(10);

/// How long stubborn trees keep their keepers alive.
const GRACE: Duration = Duration::from_secs(4);

/// The sockets and pipes of a process; none where this user may not look.
fn channels(pid: i32) -> Option<BTreeSet<String>> {
    let list = fs::read_dir(format!("/proc/{pid}/fd"));
    if let Err(error) = &list
        && error.kind() == io::ErrorKind::PermissionDenied
    {
        note_not_run("the descriptors of a keeper", "it is not dumpable");
        return None;
    }
    let targets = proc::descriptors(pid).into_iter().filter_map(|line| {
        let target = line.split_once(' ')?.1.to_owned();
        (target.starts_with("socket:") || target.starts_with("pipe:")).then_some(target)
    });
    Some(targets.collect())
}

/// The processes whose pidfds a process holds.
fn held_by_pidfd(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("this is root");
    let pids = entries.filter_map(|entry| {
        let text = fs::read_to_string(entry.ok()?.path()).ok()?;
        proc::field_of(&text, "Pid")?.parse().ok()
    });
    let mut pids: Vec<i32> = pids.collect();
    pids.sort_unstable();
    pids
}

/// How often a thread has gone to sleep, which it does once for each time it was woken.
fn sleeps(process: i32, thread: i32) -> u64 {
    let path = format!("/proc/{process}/task/{thread}/status");
    let status = fs::read_to_string(path).expect("the thread lives");
    let count = proc::field_of(&status, "voluntary_ctxt_switches");
    count.and_then(|text| text.parse().ok()).expect("a number")
}

#[test]
fn host_sees_the_death_of_the_helper_while_keepers_live() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut trees: Vec<_> = (0..3)
        .map(|_| spawn_stubborn(&stage, &mut link, GRACE))
        .collect();
    link.kill_helper();
    link.wait_for_hangup(DEATH);
    // They are within their grace: a copy of the control socket in one of them would have kept
    // this end from seeing anything.
    for (running, _, keeper) in &trees {
        assert!(keeper.is_alive(), "the hangup came before the keeper's end");
        assert!(running.witness.is_alive(), "the leader has its grace");
    }
    link.wait_for_death();
    for (running, tracer, keeper) in &mut trees {
        running.witness.wait_for_death(GRACE + DEATH);
        tracer.wait_for_end(DEATH);
        keeper.wait_for_death(DEATH);
    }
}

#[test]
fn keeper_sees_its_link_close_though_keepers_were_born_after_it() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (first, _first_tracer, first_keeper) = spawn_sleeper(&stage, &mut link);
    let others: Vec<_> = (0..3).map(|_| spawn_sleeper(&stage, &mut link)).collect();
    link.end(first.session, Duration::from_secs(5));
    link.close(first.session);
    eventually("it waits for a session", SETTLE, || {
        link.spares() == [first_keeper.pid()]
    });
    // It leaves when the helper closes its link, which it does after a while; a copy in a later
    // keeper would keep it here.
    first_keeper.wait_for_death(SPARE_TIME + DEATH);
    for (_, _, keeper) in &others {
        assert!(keeper.is_alive(), "the others keep their sessions");
    }
}

#[test]
fn keepers_share_no_socket_and_no_pipe_with_each_other_or_the_helper() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_waiting, gate) = Tracer::gate();
    let command = Command::new(tree(stage.sleeper())).with(3, gate);
    link.spawn_traced(command);
    link.prepare(at_level(Level::Group, stage.sleeper()));
    link.prepare(tree(stage.sleeper()));
    let trees: Vec<_> = (0..3).map(|_| spawn_sleeper(&stage, &mut link)).collect();
    let Some(mut seen) = channels(link.pid()) else {
        return;
    };
    assert!(seen.len() > 4, "the helper has its links: {seen:?}");
    for (_, _, keeper) in &trees {
        let own = channels(keeper.pid()).expect("this is root");
        let shared: Vec<_> = own.intersection(&seen).collect();
        assert!(shared.is_empty(), "{shared:?} of {own:?}");
        seen.extend(own);
    }
}

#[test]
fn keeper_holds_its_link_its_pidfds_and_nothing_of_another_session() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_other, _other_tracer, _other_keeper) = spawn_sleeper(&stage, &mut link);
    let (running, _tracer, keeper) = spawn_sleeper(&stage, &mut link);
    // What the session brought is the child's alone once it runs.
    link.ping();
    let Some(channels) = channels(keeper.pid()) else {
        return;
    };
    let list = proc::descriptors(keeper.pid());
    let own = i32::try_from(std::process::id()).expect("a pid fits");
    let mut expected = vec![own, link.pid(), running.pid];
    expected.sort_unstable();
    assert_eq!(held_by_pidfd(keeper.pid()), expected, "{list:?}");
    let count = |what: &str| list.iter().filter(|line| line.ends_with(what)).count();
    assert_eq!(count("anon_inode:[eventpoll]"), 1, "{list:?}");
    assert!(
        channels.iter().all(|target| target.starts_with("socket:")),
        "{list:?}"
    );
    // The link. Its signals come on a descriptor of their own.
    assert_eq!(channels.len(), 1, "{list:?}");
    assert_eq!(count("anon_inode:[signalfd]"), 1, "{list:?}");
    let is_known = |line: &&String| {
        let target = line.split_once(' ').map_or("", |(_, target)| target);
        target.starts_with("socket:")
            || target.contains("pidfd")
            || target == "anon_inode:[eventpoll]"
            || target == "anon_inode:[signalfd]"
            || target == "/dev/null"
            // The record, whose lock it holds with the helper.
            || target.contains("/foster")
            || target.starts_with(&format!("/proc/{}/", keeper.pid()))
    };
    let unknown: Vec<_> = list.iter().filter(|line| !is_known(line)).collect();
    assert!(unknown.is_empty(), "{unknown:?} of {list:?}");
}

#[test]
fn helper_goes_on_serving_everybody_after_keepers_were_born_and_have_gone() {
    let stage = Stage::new();
    let mut link = stage.link();
    let grouped = {
        let (reader, gate) = Tracer::gate();
        let spec = at_level(Level::Group, stage.sh("read x; exit 3"));
        (link.spawn(Command::new(spec).with(0, reader)), gate)
    };
    let kept = {
        let (reader, gate) = Tracer::gate();
        let spec = tree(stage.sh("read x; exit 4"));
        (link.spawn(Command::new(spec).with(0, reader)), gate)
    };
    let (grouped_exit, kept_exit) = (
        link.ask_exit(grouped.0.session),
        link.ask_exit(kept.0.session),
    );
    for _ in 0..20 {
        let running = link.spawn(tree(stage.command("/bin/true", &[])));
        link.exit(running.session);
        link.close(running.session);
    }
    // Each is an event of the helper's own set: its client's, a leader's, a keeper's.
    link.ping();
    drop(grouped.1);
    let exit = link.exited(grouped_exit, foster_tests::ANSWER);
    assert_eq!(exit.status, 3 << 8);
    drop(kept.1);
    let exit = link.exited(kept_exit, foster_tests::ANSWER);
    assert_eq!(exit.status, 4 << 8);
    link.close(grouped.0.session);
    link.close(kept.0.session);
    link.assert_idle();
}

#[test]
fn deaths_below_a_keeper_do_not_wake_the_helper() {
    const DEATHS: u64 = 300;
    let stage = Stage::new();
    let mut link = stage.link();
    let script = format!(
        "echo ready; read x; i=0; while [ $i -lt {DEATHS} ]; do ( true & ); i=$((i+1)); done; \
         echo done; exec sleep 60"
    );
    let (reader, gate) = Tracer::gate();
    let command = Command::new(tree(stage.sh(&script))).with(0, reader);
    let (running, mut tracer) = link.spawn_traced(command);
    let keeper = link.keeper_of(&running);
    link.ping();
    let main = || sleeps(link.pid(), link.pid());
    let own = || sleeps(keeper.pid(), keeper.pid());
    let before = (main(), own());
    drop(gate);
    tracer.line();
    eventually("the keeper has reaped them", SETTLE, || {
        proc::children(keeper.pid()).len() == 1
    });
    let after = (main(), own());
    assert!(
        after.1 - before.1 > 20,
        "the keeper was woken: {before:?}, {after:?}"
    );
    assert!(
        after.0 - before.0 < 5,
        "the helper's main thread was woken: {before:?}, {after:?}"
    );
}

#[test]
fn signals_to_a_keeper_are_not_the_helpers_and_end_nothing() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer, keeper) = spawn_sleeper(&stage, &mut link);
    let before = link.ping().signals_noted;
    let all = [
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ];
    for number in all {
        keeper.signal(number);
        // A list goes through the keeper, which takes its signals while it waits.
        link.list();
    }
    assert_eq!(
        link.ping().signals_noted,
        before,
        "the helper was signalled"
    );
    assert!(keeper.is_alive() && tracer.is_held(), "both serve on");
    let ending = link.end(running.session, Duration::from_secs(5));
    crate::ground::assert_all_gone(&ending, "after the signals");
}

#[test]
fn signals_to_the_helper_do_not_reach_its_keepers() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_running, _tracer, keeper) = spawn_sleeper(&stage, &mut link);
    link.list();
    let before = sleeps(keeper.pid(), keeper.pid());
    for _ in 0..50 {
        link.witness().signal(libc::SIGUSR1);
        link.ping();
    }
    let after = sleeps(keeper.pid(), keeper.pid());
    assert!(
        after - before < 5,
        "the keeper was woken: {before}, {after}"
    );
}

#[test]
fn keeper_is_in_a_session_of_its_own_and_below_the_helper() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer, keeper) = spawn_sleeper(&stage, &mut link);
    let stat = proc::stat(keeper.pid()).expect("the keeper lives");
    assert_eq!((stat.session, stat.group), (keeper.pid(), keeper.pid()));
    assert_eq!(stat.parent, link.pid());
    let leader = proc::stat(running.pid).expect("the leader lives");
    assert_eq!((leader.session, leader.group), (running.pid, running.pid));
    let threads = proc::status_field(keeper.pid(), "Threads");
    assert_eq!(threads.as_deref(), Some("1"));
}

#[test]
fn command_with_a_keeper_starts_as_clean_as_any() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (exit, output) = link.output(tree(stage.fixture("prints-descriptors", &[])));
    let (_, grouped) = link.output(at_level(
        Level::Group,
        stage.fixture("prints-descriptors", &[]),
    ));
    assert_eq!(exit.status, 0);
    let names = |text: &[u8]| String::from_utf8_lossy(text).lines().count();
    assert_eq!(names(&output), names(&grouped), "the same descriptors");
    let (mut tracer, writer) = Tracer::new();
    let spec = Spec {
        label: "clean".into(),
        ..tree(stage.sleeper())
    };
    let running = link.spawn(Command::new(spec).with(1, writer));
    tracer.line();
    for field in ["SigBlk", "SigIgn"] {
        let set = proc::status_field(running.pid, field);
        assert_eq!(set.as_deref(), Some("0000000000000000"), "{field}");
    }
    let (sessions, _) = link.list();
    let label = sessions.last().map(|info| info.label.0.clone());
    assert_eq!(label.as_deref(), Some(&b"clean"[..]));
    let reply = link.ask(foster_protocol::Request::Open {
        session: running.session,
    });
    assert!(matches!(reply, Reply::Rejected { .. }), "{reply:?}");
}
