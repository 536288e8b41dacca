use serde_json::{Value, json};

use super::*;
use crate::{Availability, Obstacle};

const EACCES: i32 = 13;
const ENOENT: i32 = 2;
const ENOSYS: i32 = 38;

fn here(level: Level) -> Availability {
    Availability {
        level,
        errno: 0,
        obstacle: None,
    }
}

fn missing(level: Level, errno: i32, obstacle: Obstacle) -> Availability {
    Availability {
        level,
        errno,
        obstacle: Some(obstacle),
    }
}

fn able(levels: Vec<Availability>) -> Capabilities {
    Capabilities {
        levels,
        clone3: true,
        pidfd: true,
        pidfd_group: false,
        children_files: true,
        janitor: 0,
    }
}

/// Everything up to a cgroup, which belongs to somebody else.
fn ordinary() -> Capabilities {
    able(vec![
        here(Level::Group),
        here(Level::Tree),
        missing(Level::Cgroup, EACCES, Obstacle::CgroupCreate),
        missing(Level::Namespace, ENOSYS, Obstacle::NotOffered),
    ])
}

#[test]
fn each_level_has_one_row_the_weakest_first_whatever_the_helper_mentions() {
    for capabilities in [able(Vec::new()), ordinary(), able(LEVELS.map(here).into())] {
        let diagnosis = Diagnosis::new(&capabilities);
        let levels: Vec<&str> = diagnosis.levels.iter().map(|row| row.level).collect();
        assert_eq!(levels, ["group", "tree", "cgroup", "namespace"]);
    }
}

#[test]
fn a_missing_level_tells_its_errno_obstacle_reason_and_remedy() {
    let row = row(&ordinary(), Level::Cgroup);
    assert!(!row.available);
    assert_eq!(row.errno, Some(EACCES));
    assert_eq!(row.obstacle, Some("cgroup-create"));
    let reason = row.reason.as_deref();
    assert_eq!(
        reason,
        Some("no cgroup can be made here: Permission denied")
    );
    assert!(row.remedy.expect("it is known").contains("Delegate=yes"));
    assert!(!row.guarantee.is_empty());
}

#[test]
fn a_level_that_is_here_has_nothing_but_its_guarantee() {
    let row = row(&ordinary(), Level::Tree);
    let expected = Row {
        level: "tree",
        available: true,
        errno: None,
        obstacle: None,
        reason: None,
        remedy: None,
        guarantee: row.guarantee,
    };
    assert_eq!(row, expected);
}

#[test]
fn the_guarantee_of_a_group_is_that_of_this_kernel() {
    let mut guarantees = Vec::new();
    for (pidfd, children_files) in [(true, true), (true, false), (false, true)] {
        let capabilities = Capabilities {
            pidfd,
            children_files,
            ..ordinary()
        };
        guarantees.push(guarantee(Level::Group, &capabilities));
    }
    guarantees.dedup();
    assert_eq!(guarantees.len(), 3);
}

#[test]
fn the_code_is_zero_exactly_where_tree_can_be_had() {
    let without_tree = |cgroup| {
        able(vec![
            here(Level::Group),
            missing(Level::Tree, ENOENT, Obstacle::ChildrenFiles),
            cgroup,
        ])
    };
    let absent = missing(Level::Cgroup, EACCES, Obstacle::CgroupCreate);
    for (capabilities, code) in [
        (ordinary(), 0),
        (able(LEVELS.map(here).into()), 0),
        (without_tree(absent), 1),
        (without_tree(here(Level::Cgroup)), 1),
        (able(Vec::new()), 1),
    ] {
        assert_eq!(
            Diagnosis::new(&capabilities).code(),
            code,
            "{capabilities:?}"
        );
    }
}

#[test]
fn auto_is_the_strongest_level_that_changes_nothing_of_what_a_command_sees() {
    assert_eq!(auto(&able(LEVELS.map(here).into())), Level::Cgroup);
    assert_eq!(auto(&ordinary()), Level::Tree);
    assert_eq!(auto(&able(vec![here(Level::Group)])), Level::Group);
    assert_eq!(auto(&able(Vec::new())), Level::Group);
}

#[test]
fn the_object_has_every_field_on_one_line() {
    let diagnosis = Diagnosis::new(&ordinary());
    let text = diagnosis.json().expect("it is JSON");
    assert!(text.ends_with("}\n"));
    assert_eq!(text.lines().count(), 1);
    let value: Value = serde_json::from_str(&text).expect("it is JSON");
    let [group, tree, cgroup, namespace] = LEVELS.map(|level| guarantee(level, &ordinary()));
    let at_hand = |level, guarantee| {
        json!({
            "level": level, "available": true, "errno": null, "obstacle": null,
            "reason": null, "remedy": null, "guarantee": guarantee,
        })
    };
    assert_eq!(
        value,
        json!({
            "foster": 1,
            "auto": "tree",
            "levels": [
                at_hand("group", group),
                at_hand("tree", tree),
                {
                    "level": "cgroup",
                    "available": false,
                    "errno": 13,
                    "obstacle": "cgroup-create",
                    "reason": "no cgroup can be made here: Permission denied",
                    "remedy":
                        "delegate a cgroup: systemd-run --user --scope -p Delegate=yes foster run …",
                    "guarantee": cgroup,
                },
                {
                    "level": "namespace",
                    "available": false,
                    "errno": 38,
                    "obstacle": "not-offered",
                    "reason": "this build does not offer it",
                    "remedy": "use a build of foster that offers it",
                    "guarantee": namespace,
                },
            ],
            "janitor": { "available": true, "errno": null, "reason": null },
            "features": {
                "clone3": true,
                "pidfd": true,
                "pidfd_group": false,
                "children_files": true,
            },
        })
    );
}

#[test]
fn the_table_says_what_the_object_says() {
    let diagnosis = Diagnosis::new(&ordinary());
    let table = diagnosis.table();
    for row in &diagnosis.levels {
        let start = line(row.level, yes_or_no(row.available), row.guarantee);
        assert!(table.contains(&start), "{start}\n{table}");
        for text in row.reason.as_deref().into_iter().chain(row.remedy) {
            assert!(table.contains(text), "{text}\n{table}");
        }
    }
    for (name, is_here, purpose) in diagnosis.features.rows() {
        let start = line(name, yes_or_no(is_here), purpose);
        assert!(table.contains(&start), "{start}\n{table}");
    }
    for text in diagnosis.janitor.lines() {
        assert!(table.contains(&text), "{text}\n{table}");
    }
    assert!(table.ends_with("foster run takes level tree here (auto).\n"));
    assert!(table.lines().all(|line| line == line.trim_end()), "{table}");
}

#[test]
fn a_record_or_a_mark_that_cannot_be_had_is_said_with_its_reason() {
    for (errno, why) in [(13, "Permission denied"), (34, "ulimit -x")] {
        let capabilities = Capabilities {
            janitor: errno,
            ..ordinary()
        };
        let diagnosis = Diagnosis::new(&capabilities);
        assert!(diagnosis.table().contains("\njanitor         no    "));
        assert!(diagnosis.table().contains(why), "{}", diagnosis.table());
        assert_eq!(diagnosis.janitor.errno, Some(errno));
        // It is no level of containment.
        assert_eq!(diagnosis.code(), 0);
    }
}
