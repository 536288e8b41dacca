//! The table and the object say the same, and names reach no terminal as control.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::{Bytes, Pid, SessionId, Why};

fn instance(fate: Fate) -> SweptInstance {
    let found = |pid, name: &str| Found {
        pid: Pid(pid),
        name: Bytes::from(name),
        uid: 7,
        session: SessionId(3),
    };
    SweptInstance {
        record: PathBuf::from("/run/foster/00000000000000aa"),
        helper: Some(Pid(40)),
        fate,
        found: vec![found(41, "sl\x1b[1meep")],
        spared: vec![found(42, "sh")],
        survivors: vec![Survivor {
            pid: Pid(43),
            name: Bytes::from("su"),
            uid: 0,
            why: Why::NotPermitted { uid: 0 },
        }],
        cgroups: vec![PathBuf::from("/sys/fs/cgroup/x")],
        took: Duration::from_millis(1500),
    }
}

fn report(fates: &[Fate], dry_run: bool) -> Report {
    let swept = Swept {
        instances: fates.iter().map(|fate| instance(*fate)).collect(),
        refused: vec![Refused {
            path: PathBuf::from("/tmp/foster-7"),
            reason: crate::Refusal::WrongOwner { uid: 8 },
        }],
    };
    Report::new(&swept, dry_run)
}

#[test]
fn the_object_has_every_field() {
    let text = serde_json::to_string(&report(&[Fate::Incomplete], false)).expect("it is JSON");
    let value: Value = serde_json::from_str(&text).expect("it is JSON");
    let process =
        |pid: i32, name: &str| json!({ "pid": pid, "name": name, "uid": 7, "session": 3 });
    assert_eq!(
        value,
        json!({
            "foster": 1,
            "dry_run": false,
            "instances": [{
                "record": "/run/foster/00000000000000aa",
                "helper": 40,
                "state": "incomplete",
                "found": [process(41, "sl\u{1b}[1meep")],
                "spared": [process(42, "sh")],
                "survivors": [{
                    "pid": 43, "name": "su", "uid": 0, "why": "no permission to signal user 0",
                }],
                "cgroups": ["/sys/fs/cgroup/x"],
                "took_s": 1.5,
            }],
            "refused": [{ "path": "/tmp/foster-7", "why": "it belongs to user 8" }],
        })
    );
}

#[test]
fn the_table_says_what_the_object_says() {
    let table = report(&[Fate::Incomplete], false).table();
    assert_eq!(
        table,
        "incomplete  /run/foster/00000000000000aa\n  \
           found     sl?[1meep (41) of user 7, session 3\n  \
           spared    sh (42) of user 7, session 3\n  \
           left      su (43) of user 0: no permission to signal user 0\n  \
           cgroup    /sys/fs/cgroup/x\n\
         refused     /tmp/foster-7: it belongs to user 8\n"
    );
}

#[test]
fn live_instances_are_told_where_the_run_is_dry() {
    assert!(!report(&[Fate::Live], false).table().contains("live"));
    assert!(report(&[Fate::Live], true).table().starts_with("live"));
    let nothing = Report::new(&Swept::default(), false);
    assert_eq!(nothing.table(), "nothing is left\n");
}
