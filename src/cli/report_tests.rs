use std::fs;
use std::os::fd::AsRawFd;

use serde_json::{Value, json};

use super::*;
use crate::cli::outcome::Failure;
use crate::{
    Bytes, Cause, Ended, Ending, Exit, Farewell, Level, MemberEnd, Missing, Orphan, Pid, Proof,
    Usage, Verdict, Why,
};

fn shape(outcome: &Outcome, exit_code: u8) -> Value {
    serde_json::to_value(Report::new(outcome, exit_code)).expect("a report is JSON")
}

fn orphan(pid: i32) -> Orphan {
    Orphan {
        pid: Pid(pid),
        sid: Pid(pid),
        name: Bytes::from("daemon"),
    }
}

fn member(pid: i32) -> crate::Member {
    crate::Member {
        pid: Pid(pid),
        name: Bytes::from("daemon"),
        ended: MemberEnd::ByKill,
    }
}

fn full() -> Outcome {
    let usage = Usage {
        user: Micros(250_000),
        system: Micros(125_000),
        max_rss: 2_048,
        ..Usage::default()
    };
    let ending = Ending {
        cause: Cause::Deadline,
        verdict: Verdict::AllGone,
        proof: Some(Proof::NoOrphans),
        members: vec![
            crate::Member {
                pid: Pid(43),
                name: Bytes(vec![b's', 0xff]),
                ended: MemberEnd::ByFirstSignal,
            },
            crate::Member {
                pid: Pid(44),
                name: Bytes::from("x"),
                ended: MemberEnd::Not,
            },
        ],
        survivors: vec![crate::Survivor {
            pid: Pid(44),
            name: Bytes::from("x"),
            uid: 5,
            why: Why::HeldByTracer { tracer: Pid(9) },
        }],
        unattributed: vec![orphan(50), orphan(51)],
        peaks: Some(crate::Peaks {
            memory: Some(4_096),
            processes: Some(7),
            cpu: Some(Micros(1_500_000)),
            oom_kills: None,
        }),
        rounds: 3,
        took: Micros(500_000),
    };
    let missing = vec![Missing {
        level: Level::Tree,
        errno: 38,
    }];
    Outcome {
        pid: Some(42),
        containment: Some(Containment {
            level: Level::Group,
            missing,
        }),
        has_timeout: true,
        exit: Some(Exit {
            status: 11 | 0x80,
            usage,
            wall: Micros(2_000_000),
            cause: Cause::Deadline,
        }),
        ended: Some(Ended::Ending(ending)),
        farewell: Some(Farewell {
            sessions: 1,
            orphans: vec![member(51)],
            survivors: Vec::new(),
        }),
        ..Outcome::default()
    }
}

#[test]
fn every_field_of_a_full_report_has_its_place() {
    assert_eq!(
        shape(&full(), 124),
        json!({
            "foster": 1,
            "reason": "timeout",
            "code": null,
            "signal": 11,
            "core": true,
            "exit_code": 124,
            "pid": 42,
            "wall_s": 2.0,
            "user_s": 0.25,
            "system_s": 0.125,
            "max_rss_kib": 2048,
            "at_exit": [
                {"pid": 43, "name": "s\u{fffd}", "ended": "first-signal"},
                {"pid": 44, "name": "x", "ended": "not"},
            ],
            "escaped": [
                {"pid": 51, "name": "daemon", "ended": "kill"},
                {"pid": 50, "name": "daemon", "ended": null},
            ],
            "survivors": [
                {"pid": 44, "name": "x", "uid": 5, "why": "held by its tracer, process 9"},
            ],
            "left_running": null,
            "cause": "timeout",
            "verdict": "incomplete",
            "proof": "no-orphans",
            "rounds": 3,
            "took_s": 0.5,
            "peaks": {
                "memory_bytes": 4096,
                "processes": 7,
                "cpu_s": 1.5,
                "oom_kills": null,
            },
            "containment": {
                "level": "group",
                "missing": [
                    {"level": "tree", "errno": 38, "reason": "the helper does not offer it"},
                ],
            },
            "error": null,
        })
    );
}

#[test]
fn a_command_that_never_ran_has_nothing_but_its_error() {
    let failure = Some(Failure::Own("no luck".to_owned()));
    let report = shape(
        &Outcome {
            failure,
            ..Outcome::default()
        },
        125,
    );
    assert_eq!(report["reason"], "spawn-failed");
    assert_eq!(report["error"], "no luck");
    assert_eq!(report["exit_code"], 125);
    for field in [
        "code",
        "signal",
        "pid",
        "wall_s",
        "cause",
        "verdict",
        "proof",
        "peaks",
        "containment",
    ] {
        assert_eq!(report[field], Value::Null, "{field}");
    }
    assert_eq!(report["at_exit"], json!([]));
}

#[test]
fn what_was_let_go_is_counted() {
    let mut outcome = full();
    outcome.ended = Some(Ended::Released { still_running: 3 });
    outcome.farewell = None;
    let report = shape(&outcome, 0);
    assert_eq!(report["verdict"], "released");
    assert_eq!(report["left_running"], 3);
    assert_eq!(report["survivors"], json!([]));
}

#[test]
fn a_report_is_one_line_in_a_file_that_is_emptied_first() {
    let path = std::env::temp_dir().join(format!("foster-report-{}.json", std::process::id()));
    fs::write(&path, "x".repeat(10_000)).expect("the file can be written");
    let mut sink = Sink::open(&ReportTarget::File(path.clone())).expect("it can be opened");
    assert_eq!(fs::read(&path).expect("it can be read"), b"");
    sink.write(&Report::new(&full(), 124))
        .expect("it can be written");
    let text = fs::read_to_string(&path).expect("it is text");
    assert_eq!(text.lines().count(), 1);
    assert!(text.ends_with("}\n"));
    let value: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(value["foster"], 1);
    fs::remove_file(&path).expect("it is there");
}

#[test]
fn a_place_that_cannot_be_written_is_refused_at_once() {
    let nowhere = ReportTarget::File("/nonexistent/report.json".into());
    assert!(Sink::open(&nowhere).is_err());
    assert!(Sink::open(&ReportTarget::Descriptor(987_654)).is_err());
    let readable = fs::File::open("/dev/null").expect("it can be opened");
    let error =
        Sink::open(&ReportTarget::Descriptor(readable.as_raw_fd())).expect_err("it is for reading");
    assert_eq!(error.raw_os_error(), Some(nix::libc::EBADF));
}
