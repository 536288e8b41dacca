//! The matrix without what a machine may lack: cgroups, namespaces, root. What runs here is one
//! event on each ground; `FOSTER_TEST_GROUND` puts the whole matrix on one of them.

use std::time::Instant;

use foster_tests::{Ground, Program, Stage, not_run};

use crate::matrix::Run;
use crate::shapes::{GRACE, Leader, MARGIN, SHAPES, assert_in_time};

const NOBODY: Option<u32> = Some(65_534);

/// Every ground.
fn grounds() -> Vec<Ground> {
    let mut grounds = Vec::new();
    for user in [None, NOBODY] {
        for (is_without_cgroups, is_without_namespaces) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            grounds.push(Ground {
                user,
                is_without_cgroups,
                is_without_namespaces,
            });
        }
    }
    grounds
}

/// The grounds that can be had here; the others are named.
fn grounds_here(what: &str) -> Vec<Ground> {
    let mut grounds = grounds();
    grounds.retain(|ground| match ground.missing() {
        None => true,
        Some(missing) => {
            not_run(&format!("{what} on {ground}"), missing);
            false
        }
    });
    grounds
}

/// What `foster doctor` says of a level.
fn is_to_be_had(doctor: &serde_json::Value, level: &str) -> bool {
    let levels = doctor.get("levels").and_then(|levels| levels.as_array());
    let mut levels = levels.expect("a list of levels").iter();
    let entry = levels.find(|entry| entry.get("level").is_some_and(|name| name == level));
    let available = entry.and_then(|entry| entry.get("available")?.as_bool());
    available.unwrap_or_else(|| panic!("{doctor}"))
}

#[test]
fn ground_lacks_what_it_says() {
    for ground in grounds_here("foster doctor") {
        let stage = Stage::new();
        let doctor = Program::on_ground(&stage, ground, "doctor")
            .arg("--json")
            .run();
        let doctor: serde_json::Value = serde_json::from_str(&doctor.stdout)
            .unwrap_or_else(|error| panic!("{ground}: {error}"));
        for (level, is_without) in [
            ("cgroup", ground.is_without_cgroups),
            ("namespace", ground.is_without_namespaces),
        ] {
            let is_here = is_to_be_had(&doctor, level);
            assert!(
                !(is_without && is_here),
                "{ground} offers {level}: {doctor}"
            );
            if !is_without && !is_here {
                not_run(
                    &format!("{level} on {ground}"),
                    "this machine does not offer it",
                );
            }
        }
    }
}

#[test]
fn nothing_is_left_on_any_ground_when_foster_is_killed() {
    for ground in grounds_here("KILL to foster") {
        for shape in SHAPES {
            assert_in_time(&format!("{ground}, {shape:?}"), GRACE + MARGIN, || {
                let stage = Stage::new();
                let mut run = Run::start_on(ground, &stage, &[], shape, Leader::LeavesAtTerm);
                run.foster.signal(libc::SIGKILL);
                run.time_to_end(Instant::now())
            });
        }
    }
}
