use std::ffi::OsString;

use super::*;
use crate::cli::options::{Request, parse};
use crate::{
    Availability, Ended, Ending, Exit, Farewell, Member, Micros, Obstacle, Pid, Survivor, Usage,
    Why,
};

fn options(words: &[&str]) -> RunOptions {
    let line = ["foster", "run"]
        .iter()
        .chain(words)
        .chain(&["true"])
        .map(OsString::from);
    let Ok(Request::Run(options)) = parse(line) else {
        panic!("{words:?} is read")
    };
    *options
}

fn member(pid: i32, name: &str, ended: MemberEnd) -> Member {
    Member {
        pid: Pid(pid),
        name: Bytes::from(name),
        ended,
    }
}

fn ran(status: i32, cause: Cause, members: Vec<Member>) -> Outcome {
    let ending = Ending {
        cause,
        verdict: Verdict::AllGone,
        proof: Some(Proof::NoOrphans),
        members,
        survivors: Vec::new(),
        unattributed: Vec::new(),
        peaks: None,
        rounds: 2,
        took: Micros(12_000),
    };
    Outcome {
        pid: Some(42),
        exit: Some(Exit {
            status,
            usage: Usage::default(),
            wall: Micros(0),
            cause,
        }),
        ended: Some(Ended::Ending(ending)),
        ..Outcome::default()
    }
}

#[test]
fn an_ordinary_run_is_silent() {
    let outcome = ran(
        0,
        Cause::Exit,
        vec![member(7, "sleep", MemberEnd::ByItself)],
    );
    assert_eq!(unusual(&outcome, &options(&[])), None);
    let cancelled = ran(
        2,
        Cause::Kill,
        vec![member(7, "sleep", MemberEnd::ByFirstSignal)],
    );
    assert_eq!(unusual(&cancelled, &options(&[])), None);
}

#[test]
fn a_timeout_names_its_time() {
    let outcome = ran(15, Cause::Deadline, Vec::new());
    let line = unusual(&outcome, &options(&["-t", "1.5s"]));
    assert_eq!(line.as_deref(), Some("timed out after 1.5s"));
}

#[test]
fn who_was_killed_is_named_the_command_included() {
    let members = vec![
        member(7, "deaf", MemberEnd::ByKill),
        member(8, "polite", MemberEnd::ByFirstSignal),
    ];
    let outcome = ran(9, Cause::Kill, members);
    assert_eq!(
        unusual(&outcome, &options(&[])).as_deref(),
        Some("had to kill 2 processes: the command (42), deaf (7)")
    );
    let own_kill = ran(9, Cause::Signal, Vec::new());
    assert_eq!(unusual(&own_kill, &options(&[])), None);
}

#[test]
fn who_was_left_behind_is_named() {
    let outcome = ran(
        0,
        Cause::Exit,
        vec![member(7, "sleep", MemberEnd::ByFirstSignal)],
    );
    assert_eq!(
        unusual(&outcome, &options(&[])).as_deref(),
        Some("ended 1 process that the command left behind: sleep (7)")
    );
}

#[test]
fn escapees_and_survivors_are_named_with_their_reason() {
    let mut outcome = ran(0, Cause::Exit, Vec::new());
    outcome.farewell = Some(Farewell {
        sessions: 0,
        orphans: vec![
            member(9, "daemon", MemberEnd::ByKill),
            member(10, "quick", MemberEnd::ByItself),
        ],
        survivors: vec![Survivor {
            pid: Pid(8),
            name: Bytes::from("stuck"),
            uid: 5,
            why: Why::Uninterruptible,
        }],
    });
    let line = unusual(&outcome, &options(&[])).expect("that is unusual");
    assert!(line.contains("ended 1 process that had left the command's session: daemon (9)"));
    assert!(
        line.contains("stuck (8) of user 5: in uninterruptible sleep"),
        "{line}"
    );
}

#[test]
fn a_long_list_is_cut_and_counted() {
    let members = (100..120)
        .map(|pid| member(pid, "x", MemberEnd::ByKill))
        .collect();
    let line = unusual(&ran(0, Cause::Exit, members), &options(&[])).expect("unusual");
    assert!(line.starts_with("had to kill 20 processes: "), "{line}");
    assert!(line.ends_with("x (107) and 12 more"), "{line}");
}

#[test]
fn quiet_is_below_unusual_and_that_below_everything() {
    assert!(Detail::Quiet < Detail::Unusual && Detail::Unusual < Detail::Everything);
}

#[test]
fn a_missing_level_says_why() {
    let containment = Containment {
        level: Level::Group,
        missing: vec![
            Missing {
                level: Level::Tree,
                errno: ENOSYS,
            },
            Missing {
                level: Level::Cgroup,
                errno: 30,
            },
        ],
    };
    assert_eq!(
        contained(&containment, None),
        "level group, without tree: the helper does not offer it, without cgroup: Read-only file \
         system"
    );
    let cgroup = Availability {
        level: Level::Cgroup,
        errno: 30,
        obstacle: Some(Obstacle::CgroupCreate),
    };
    let capabilities = Capabilities {
        levels: vec![cgroup],
        clone3: true,
        pidfd: true,
        pidfd_group: true,
        children_files: false,
        janitor: 0,
    };
    assert_eq!(
        contained(&containment, Some(&capabilities)),
        "level group, without tree: this build does not offer it, without cgroup: no cgroup can \
         be made here: Read-only file system"
    );
}

#[test]
fn want_of_memory_is_the_kernels_kill_and_is_counted_where_it_can_be() {
    let mut outcome = ran(9, Cause::OutOfMemory, Vec::new());
    assert_eq!(
        unusual(&outcome, &options(&[])).as_deref(),
        Some("the kernel killed for want of memory")
    );
    let Some(Ended::Ending(ending)) = &mut outcome.ended else {
        panic!("it ended")
    };
    ending.peaks = Some(Peaks {
        oom_kills: Some(2),
        ..Peaks::default()
    });
    assert_eq!(
        unusual(&outcome, &options(&[])).as_deref(),
        Some("the kernel killed 2 processes for want of memory")
    );
}

#[test]
fn the_death_of_a_keeper_is_unusual() {
    let outcome = ran(0, Cause::SupervisorLost, Vec::new());
    assert_eq!(
        unusual(&outcome, &options(&[])).as_deref(),
        Some("the keeper of the tree died")
    );
}

#[test]
fn the_end_is_told_with_its_cause_and_with_what_was_counted() {
    let mut outcome = ran(0, Cause::SupervisorLost, Vec::new());
    let bare = "tree ended: all-gone (no-orphans), 0 processes beside the command, 2 rounds in \
                12ms, cause keeper-lost";
    assert_eq!(end_phase(&outcome).as_deref(), Some(bare));
    for (peaks, tail) in [
        (Peaks::default(), ""),
        (
            Peaks {
                memory: Some(1_025),
                processes: Some(3),
                cpu: Some(Micros(1_500_000)),
                oom_kills: None,
            },
            ", up to 2 KiB of memory, up to 3 processes and threads, 1.5s of processor time",
        ),
        (
            Peaks {
                oom_kills: Some(1),
                ..Peaks::default()
            },
            ", 1 killed for want of memory",
        ),
    ] {
        let Some(Ended::Ending(ending)) = &mut outcome.ended else {
            panic!("it ended")
        };
        ending.peaks = Some(peaks);
        assert_eq!(end_phase(&outcome), Some(format!("{bare}{tail}")));
    }
}
