use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use foster_protocol::{ResourceLimit, Spec, Step};
use nix::unistd::geteuid;

use crate::sys::spawn::Context;
use crate::sys::testing::{
    command, context, context_with, failure, finish, mapped, output, running, status_line,
    try_start, variants, waiting,
};

/// The signals that a process ignores.
fn ignored_by(pid: i32) -> u64 {
    u64::from_str_radix(&status_line(pid, "SigIgn:"), 16).unwrap()
}

#[test]
fn signals_start_out_as_asked_for() {
    let own = ignored_by(std::process::id().cast_signed());
    let pipe_alone = 1_u64 << (libc::SIGPIPE - 1);
    assert_ne!(
        own & pipe_alone,
        0,
        "the tests ignore SIGPIPE, as the helper does"
    );
    let mask = 1_u64 << (libc::SIGUSR1 - 1) | 1 << (libc::SIGRTMIN() - 1);
    for features in variants() {
        for blocked in [0, mask] {
            let (spec, passed, talk) = waiting();
            let spec = Spec {
                blocked,
                ..mapped(spec, &[0, 1])
            };
            let leader = running(&spec, passed.into(), &context_with(features));
            talk.settle();
            let pid = leader.pid().0;
            assert_eq!(status_line(pid, "SigBlk:"), format!("{blocked:016x}"));
            // What the tests inherited as ignored is left alone where there is clone3: the
            // helper has reset it at its start.
            let left = if features.clone3 {
                own & !pipe_alone
            } else {
                0
            };
            assert_eq!(ignored_by(pid), left, "{features:?}");
            finish(leader);
        }
    }
}

#[test]
fn limits_and_scores_are_set() {
    let mut spec = command(&[
        "sh",
        "-c",
        "umask; ulimit -Sn; nice; cat /proc/self/oom_score_adj",
    ]);
    spec.umask = Some(0o027);
    spec.nice = Some(7);
    spec.oom_score_adj = Some(555);
    let (_, hard) = context().nofile;
    let original = Context {
        nofile: (321, hard),
        ..context()
    };
    assert_eq!(output(spec.clone(), &original), "0027\n321\n7\n555\n");
    let resource = nix::sys::resource::Resource::RLIMIT_NOFILE as u32;
    spec.resource_limits = vec![ResourceLimit {
        resource,
        soft: 123,
        hard,
    }];
    assert_eq!(output(spec, &original), "0027\n123\n7\n555\n");
}

#[test]
fn a_limit_that_leaves_no_descriptor_does_not_hinder_the_score() {
    let resource = nix::sys::resource::Resource::RLIMIT_NOFILE as u32;
    let mut spec = command(&["/nonexistent/program"]);
    spec.oom_score_adj = Some(10);
    spec.resource_limits = vec![ResourceLimit {
        resource,
        soft: 0,
        hard: 0,
    }];
    assert_eq!(failure(&spec, Vec::new()), (Step::Exec, libc::ENOENT));
}

#[test]
fn a_setting_that_is_out_of_range_is_named_as_the_step() {
    let with = |change: fn(&mut Spec)| {
        let mut spec = command(&["true"]);
        change(&mut spec);
        failure(&spec, Vec::new())
    };
    assert_eq!(
        with(|s| s.oom_score_adj = Some(2000)),
        (Step::OomScore, libc::EINVAL)
    );
    assert_eq!(
        with(|s| s.death_signal = Some(65)),
        (Step::DeathSignal, libc::EINVAL)
    );
    let terminal = with(|s| s.controlling_terminal = Some(0));
    assert_eq!(terminal, (Step::ControllingTerminal, libc::ENOTTY));
    let limits = with(|s| {
        s.resource_limits = vec![ResourceLimit {
            resource: 99,
            soft: 1,
            hard: 1,
        }];
    });
    assert_eq!(limits, (Step::ResourceLimits, libc::EINVAL));
}

#[test]
fn an_id_that_means_no_change_is_refused() {
    let refused = |spec: Spec| try_start(&spec, Vec::new(), &context()).unwrap_err();
    let uid = Spec {
        uid: Some(u32::MAX),
        ..command(&["true"])
    };
    assert_eq!(refused(uid), (Step::Uid, libc::EINVAL));
    let gid = Spec {
        gid: Some(u32::MAX),
        ..command(&["true"])
    };
    assert_eq!(refused(gid), (Step::Gid, libc::EINVAL));
    let groups = Spec {
        groups: Some(vec![u32::MAX]),
        ..command(&["true"])
    };
    let (step, errno) = failure(&groups, Vec::new());
    assert_eq!(step, Step::Groups);
    assert!(matches!(errno, libc::EINVAL | libc::EPERM));
}

#[test]
fn a_user_without_groups_keeps_none_of_the_helpers() {
    if !geteuid().is_root() {
        eprintln!("not run: changing the user needs root");
        return;
    }
    let (spec, passed, talk) = waiting();
    let spec = mapped(spec, &[0, 1]);
    let plain = Spec {
        uid: Some(65_534),
        gid: Some(65_533),
        no_new_privs: true,
        ..spec.clone()
    };
    let leader = running(&plain, passed.into(), &context());
    talk.settle();
    let pid = leader.pid().0;
    assert_eq!(status_line(pid, "Uid:"), "65534 65534 65534 65534");
    assert_eq!(status_line(pid, "Gid:"), "65533 65533 65533 65533");
    assert_eq!(status_line(pid, "Groups:"), "");
    assert_eq!(status_line(pid, "NoNewPrivs:"), "1");
    finish(leader);

    let (_, passed, talk) = waiting();
    let grouped = Spec {
        groups: Some(vec![7, 9]),
        ..plain
    };
    let leader = running(&grouped, passed.into(), &context());
    talk.settle();
    assert_eq!(status_line(leader.pid().0, "Groups:"), "7 9");
    finish(leader);
}

#[test]
fn a_terminal_becomes_the_controlling_one() {
    let flags = libc::O_NOCTTY | libc::O_CLOEXEC;
    let open = |path: &str| {
        File::options()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)
    };
    let master = open("/dev/ptmx").unwrap();
    let unlocked: libc::c_int = 0;
    let number = master.as_raw_fd();
    // SAFETY: the request reads one number.
    let result = unsafe { libc::ioctl(number, libc::TIOCSPTLCK, &raw const unlocked) };
    assert_eq!(result, 0);
    let mut terminal: libc::c_uint = 0;
    // SAFETY: the request writes one number.
    let result = unsafe { libc::ioctl(number, libc::TIOCGPTN, &raw mut terminal) };
    assert_eq!(result, 0);
    let slave = OwnedFd::from(open(&format!("/dev/pts/{terminal}")).unwrap());
    let copies = [(); 2].map(|()| slave.try_clone().unwrap());
    let mut spec = mapped(command(&["sh", "-c", "exec sleep 62.6"]), &[0, 77]);
    spec.controlling_terminal = Some(77);
    let leader = running(&spec, copies.into(), &context());
    let stat = fs::read_to_string(format!("/proc/{}/stat", leader.pid().0)).unwrap();
    let terminal = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(4)
        .unwrap();
    assert_ne!(terminal, "0");
    finish(leader);
}
