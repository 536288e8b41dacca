use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use super::super::kernel::probe;
use super::super::leader::Leader;
use super::super::proc::{self, Adopted};
use super::super::process::Process;
use super::super::testing::{
    await_death, await_readable, command, context, descriptors_of, in_own_process, mapped, pipe,
    read_to_end, reaped, running, status_line, what_is,
};
use super::*;

fn own_pid() -> i32 {
    getpid().as_raw()
}

#[test]
fn sockets_are_known_and_so_is_their_maker() {
    let (one, _other) = UnixStream::pair().unwrap();
    assert!(is_socket(one.as_fd()));
    assert_eq!(peer_pid(one.as_fd()).unwrap(), own_pid());
    let (reader, _writer) = pipe();
    assert!(!is_socket(reader.as_fd()));
    assert_eq!(
        peer_pid(reader.as_fd()).unwrap_err().raw_os_error(),
        Some(libc::ENOTSOCK)
    );
    assert!(!is_secure());
}

#[test]
fn everything_but_what_is_kept_is_closed() {
    in_own_process(|| {
        let (reader, writer) = pipe();
        let kept = take_stdin().unwrap();
        let names = (what_is(&reader), what_is(&kept));
        close_all_but(&[kept.as_fd(), reader.as_fd()]).unwrap();
        let mut expected = vec![(reader.as_raw_fd(), names.0), (kept.as_raw_fd(), names.1)];
        expected.sort();
        let mut found = descriptors_of(own_pid());
        // The listing's own descriptor is the third one.
        found.retain(|(number, what)| *number > 2 && !what.ends_with("fd"));
        assert_eq!(found, expected);
        std::mem::forget(writer);
    });
}

#[test]
fn standard_descriptors_are_pointed_at_null() {
    in_own_process(|| {
        let (_reader, writer) = pipe();
        let log = what_is(&writer);
        point_at_null(&[0, 1]).unwrap();
        replace_stderr(Some(writer)).unwrap();
        let name = |number: i32| fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        assert_eq!(name(0).to_str(), Some("/dev/null"));
        assert_eq!(name(1).to_str(), Some("/dev/null"));
        assert_eq!(name(2), log);
        replace_stderr(None).unwrap();
        assert_eq!(name(2).to_str(), Some("/dev/null"));
    });
}

#[test]
fn signals_are_reset_also_those_that_were_inherited_as_ignored() {
    in_own_process(|| {
        raw::set_disposition(libc::SIGCHLD, Disposition::Ignore).unwrap();
        raw::set_disposition(33, Disposition::Ignore).unwrap();
        block_all_signals().unwrap();
        assert_ne!(status_line(own_pid(), "SigBlk:"), "0".repeat(16));
        reset_signals().unwrap();
        assert_eq!(status_line(own_pid(), "SigBlk:"), "0".repeat(16));
        let pipe_alone = 1_u64 << (libc::SIGPIPE - 1);
        assert_eq!(
            status_line(own_pid(), "SigIgn:"),
            format!("{pipe_alone:016x}")
        );
        assert_eq!(status_line(own_pid(), "SigCgt:"), "0".repeat(16));
    });
}

#[test]
fn a_session_of_its_own_can_be_asked_for_twice() {
    in_own_process(|| {
        new_session().unwrap();
        assert_eq!(proc::stat(own_pid()).unwrap().session, own_pid());
        new_session().unwrap();
    });
}

#[test]
fn the_limit_of_descriptors_is_raised_and_the_old_one_given() {
    in_own_process(|| {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 100, hard).unwrap();
        assert_eq!(raise_descriptor_limit().unwrap(), (100, hard));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
    });
}

#[test]
fn a_probe_leaves_no_child() {
    in_own_process(|| {
        let features = probe();
        assert!(features.pidfd || !features.clone3);
        assert!(features.pidfd || !features.pidfd_group);
        let error = raw::waitid(Who::Any, libc::WEXITED | libc::WNOHANG)
            .err()
            .unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ECHILD));
    });
}

#[test]
fn orphans_come_to_the_main_thread_and_leaders_do_not() {
    in_own_process(|| {
        become_subreaper().unwrap();
        set_dumpable(false).unwrap();
        let adopted = Adopted::open().unwrap();
        assert_eq!(adopted.list().unwrap(), []);
        // The server thread stays, as the helper's does: its end would end its leaders.
        let (leader, release) = forked_by_another_thread();
        assert_eq!(
            adopted.list().unwrap().len(),
            1,
            "the leader is not on the list"
        );
        let orphan = adopted.list().unwrap()[0];
        assert_ne!(orphan, leader.pid().0);
        let mut all = proc::children(own_pid()).unwrap();
        all.sort_unstable();
        let mut expected = vec![orphan, leader.pid().0];
        expected.sort_unstable();
        assert_eq!(all, expected);
        assert_eq!(reap_adopted().unwrap(), 0, "the orphan lives");
        let process = Process::open(orphan).unwrap().unwrap();
        assert_eq!(process.stat().session, leader.pid().0);
        assert_eq!(process.stat().parent, own_pid());
        process.signal(libc::SIGKILL).unwrap();
        await_readable(process.pidfd(), "the death of the orphan");
        assert_eq!(adopted.list().unwrap(), [orphan], "dead and not reaped");
        assert_eq!(reap_adopted().unwrap(), 1);
        assert_eq!(adopted.list().unwrap(), []);
        assert_eq!(reap_adopted().unwrap(), 0);
        assert_eq!(reaped(leader), 0, "the leader was left alone");
        drop(release);
    });
}

/// A dead leader that leaves a sleeper, forked by a thread that ends when the pipe closes.
fn forked_by_another_thread() -> (Leader, OwnedFd) {
    let (hold, release) = pipe();
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let (reader, writer) = pipe();
        let script = "exec 3>&1 >/dev/null; sleep 63.1 3>&- & exit 0";
        let spec = mapped(command(&["sh", "-c", script]), &[1]);
        let leader = running(&spec, vec![writer], &context());
        read_to_end(reader);
        await_death(&leader);
        sender.send(leader).unwrap();
        await_readable(hold.as_fd(), "the end of the test");
    });
    (receiver.recv().unwrap(), release)
}
