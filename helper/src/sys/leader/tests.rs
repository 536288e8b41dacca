use super::super::testing::{
    await_death, command, context, context_with, exists, mapped, output, pipe, read_to_end, reaped,
    running, variants, waiting,
};
use super::super::{proc, process::Process};
use super::*;

#[test]
fn a_dead_leader_is_held_until_it_is_reaped() {
    for features in variants() {
        let spec = command(&["sh", "-c", "exit 7"]);
        let leader = running(&spec, Vec::new(), &context_with(features));
        let pid = leader.pid().0;
        await_death(&leader);
        for _ in 0..2 {
            let (status, usage) = leader.peek().unwrap().unwrap();
            assert_eq!(status, 7 << 8);
            assert!(usage.max_rss > 0);
            assert!(usage.minor_faults > 0);
        }
        assert_eq!(proc::stat(pid).unwrap().state, b'Z');
        leader.reap().map_err(|(_, error)| error).unwrap();
        assert!(!exists(pid));
    }
}

#[test]
fn a_living_leader_is_given_back() {
    for features in variants() {
        let leader = running(
            &command(&["sleep", "61.1"]),
            Vec::new(),
            &context_with(features),
        );
        assert_eq!(leader.peek().unwrap(), None);
        let (leader, error) = leader.reap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        leader.signal(libc::SIGTERM).unwrap();
        assert_eq!(reaped(leader), libc::SIGTERM);
    }
}

#[test]
fn a_dead_leader_can_be_signalled_to_no_effect() {
    let leader = running(&command(&["true"]), Vec::new(), &context());
    await_death(&leader);
    leader.signal(libc::SIGKILL).unwrap();
    assert_eq!(reaped(leader), 0);
}

#[test]
fn a_group_signal_reaches_every_member() {
    for features in variants() {
        let (reader, writer) = pipe();
        let spec = command(&["sh", "-c", "sleep 61.2 & sleep 61.2 & echo; wait"]);
        let leader = running(&mapped(spec, &[1]), vec![writer], &context_with(features));
        let mut byte = [0_u8];
        assert_eq!(nix::unistd::read(&reader, &mut byte), Ok(1));
        leader.signal_group(libc::SIGTERM).unwrap();
        // The end of file comes when the last holder of the pipe is dead.
        read_to_end(reader);
        assert_eq!(reaped(leader), libc::SIGTERM);
    }
}

#[test]
fn a_number_that_is_no_signal_is_refused_and_spoils_nothing() {
    let leader = running(&command(&["sleep", "61.3"]), Vec::new(), &context());
    let before = GROUP_FLAG_MISSING.load(Ordering::Relaxed);
    for number in [65, 1000, -1] {
        let error = leader.signal_group(number).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
    assert_eq!(GROUP_FLAG_MISSING.load(Ordering::Relaxed), before);
    leader.signal_group(libc::SIGKILL).unwrap();
    assert_eq!(reaped(leader), libc::SIGKILL);
}

#[test]
fn a_wait_status_is_laid_out_as_wait_does() {
    // SAFETY: rusage is a plain C struct for which all-zero bytes are a valid value.
    let usage: libc::rusage = unsafe { std::mem::zeroed() };
    let of = |code, value| status(&Changed { code, value, usage });
    assert_eq!(of(libc::CLD_EXITED, 255), 0xff00);
    assert_eq!(of(libc::CLD_EXITED, -1), 0xff00);
    assert_eq!(of(libc::CLD_KILLED, 9), 9);
    assert_eq!(of(libc::CLD_DUMPED, 6), 0x86);
}

#[test]
fn a_process_is_opened_only_while_it_lives() {
    let (spec, passed, talk) = waiting();
    let leader = running(&mapped(spec, &[0, 1]), passed.into(), &context());
    talk.settle();
    let pid = leader.pid();
    let process = Process::open(pid.0).unwrap().unwrap();
    assert_eq!(process.pid(), pid);
    assert_eq!(process.stat().name, b"cat");
    assert_eq!(
        (process.stat().group, process.stat().session),
        (pid.0, pid.0)
    );
    assert_eq!(process.stat().parent, std::process::id().cast_signed());
    assert!(!process.is_dead().unwrap());
    process.signal(libc::SIGKILL).unwrap();
    await_death(&leader);
    assert!(process.is_dead().unwrap());
    assert!(exists(pid.0), "it is not reaped yet");
    assert!(Process::open(pid.0).unwrap().is_none());
    assert_eq!(reaped(leader), libc::SIGKILL);
    assert!(Process::open(pid.0).unwrap().is_none());
    assert_eq!(
        process.signal(0).unwrap_err().raw_os_error(),
        Some(libc::ESRCH)
    );
}

#[test]
fn a_process_that_must_not_be_signalled_is_not_opened() {
    for pid in [1, 0, -1, i32::MIN, std::process::id().cast_signed()] {
        assert_eq!(
            Process::open(pid).unwrap_err().raw_os_error(),
            Some(libc::EPERM)
        );
    }
    assert!(Process::open(i32::MAX).unwrap().is_none());
}

#[test]
fn output_is_read_to_its_end() {
    assert_eq!(output(command(&["echo", "hello"]), &context()), "hello\n");
}
