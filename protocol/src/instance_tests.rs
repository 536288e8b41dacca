//! Marks never mix, and a text that is not a whole record is none.

use std::path::Path;

use super::*;

fn record() -> Record {
    Record {
        name: 0x1f,
        boot: "0a-1b".to_owned(),
        pid_namespace: 4_026_531_836,
        helper: 77,
        uid: 1000,
        mark: Mark::new(7, u64::MAX),
        cgroup: Some(Bytes::from("/sys/fs/cgroup/a b%\n")),
        released: [SessionId(3), SessionId(u64::MAX)].into(),
    }
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let plain = Record {
        mark: None,
        cgroup: None,
        released: BTreeSet::new(),
        ..record()
    };
    for record in [record(), plain] {
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }
}

#[test]
fn a_release_that_is_added_is_read() {
    let mut text = record().encode();
    text.extend_from_slice(unended_line(SessionId(8)).as_bytes());
    text.extend_from_slice(released_line(SessionId(9)).as_bytes());
    let released = Record::decode(&text).unwrap().released;
    assert!(released.contains(&SessionId(9)));
    assert!(!released.contains(&SessionId(8)));
}

#[test]
fn a_text_that_was_cut_anywhere_is_none_or_ends_with_a_line() {
    let text = record().encode();
    for end in 0..text.len() {
        let cut = text.get(..end).unwrap();
        if let Ok(read) = Record::decode(cut) {
            // All that may be missing is whole releases.
            assert!(cut.ends_with(b"\n"), "{}", cut.escape_ascii());
            let whole = Record {
                released: BTreeSet::new(),
                ..record()
            };
            let head = Record {
                released: BTreeSet::new(),
                ..read
            };
            assert_eq!(head, whole);
        }
    }
}

#[test]
fn hostile_texts_are_none() {
    let good = String::from_utf8(record().encode()).unwrap();
    let broken = |from: &str, to: &str| Record::decode(good.replace(from, to).as_bytes());
    assert_eq!(Record::decode(b""), Err(RecordError::Empty));
    assert_eq!(
        Record::decode(b"\x7fELF garbage\n"),
        Err(RecordError::Version)
    );
    assert_eq!(
        broken("foster-instance 1", "foster-instance 2"),
        Err(RecordError::Version)
    );
    for (from, to, line) in [
        ("name 0000", "name +000", 2),
        ("name 0000", "name 00", 2),
        ("boot 0a-1b", "boot ", 3),
        ("uid 1000", "uid -1", 6),
        ("uid 1000\n", "", 6),
        ("mark 8589934599", "mark 0", 7),
        ("mark 8589934599", "mark 99999999999999", 7),
        ("cgroup /sys", "cgroup sys", 8),
        ("cgroup /sys", "cgroup /../sys", 8),
        ("%0a", "%0", 8),
        ("%0a", "%+a", 8),
        ("%0a", "%00", 8),
        ("released 3", "released x", 9),
    ] {
        assert_eq!(broken(from, to), Err(RecordError::Line(line)), "{to}");
    }
}

#[test]
fn a_mark_tells_its_sessions_and_no_others() {
    let mark = Mark::new(0, u64::MAX).unwrap();
    let other = Mark::new(1, u64::MAX).unwrap();
    for session in [SessionId(0), SessionId(1), SessionId(LAST_SERIAL - 1)] {
        assert_eq!(mark.session(mark.of(session)), Some(session));
        assert_eq!(other.session(mark.of(session)), None);
    }
    assert!(mark.of(SessionId(u64::MAX)) < u64::MAX >> 2);
    for limit in [0, 5, u64::MAX, u64::MAX >> 2] {
        assert_eq!(mark.session(limit), None);
    }
}

#[test]
fn an_instance_inside_another_stays_below_its_limit() {
    for random in [0, 1, u64::MAX, 1 << 33] {
        let outer = Mark::new(random, u64::MAX).unwrap();
        let hard = outer.of(SessionId(1));
        let inner = Mark::new(u64::MAX - random, hard).unwrap();
        assert!(inner.of(SessionId(u64::MAX)) <= hard);
        assert_ne!(inner, outer);
        assert_eq!(outer.session(inner.of(SessionId(1))), None);
    }
}

#[test]
fn a_limit_that_leaves_no_room_marks_nobody() {
    for hard in [0, 1, 1 << SERIAL_BITS, 1 << 50] {
        assert_eq!(Mark::new(7, hard), None, "{hard}");
    }
}

#[test]
fn sessions_that_cannot_be_told_apart_are_released_together() {
    let record = record();
    let high = SessionId(LAST_SERIAL);
    assert!(record.is_released(high));
    assert!(record.is_released(SessionId(3)));
    assert!(!record.is_released(SessionId(4)));
}

#[test]
fn the_names_of_cgroups_tell_instance_and_session() {
    let record = record();
    let name = |rest: &str| format!("{}{rest}", prefix(0x1f)).into_bytes();
    assert_eq!(
        record.session_of(&name("session-12")),
        Ok(Some(SessionId(12)))
    );
    assert_eq!(record.session_of(&name("probe")), Ok(None));
    assert_eq!(record.session_of(b"system.slice"), Err(NotOurs));
    assert_eq!(
        record.session_of(prefix(0x2f).as_bytes()),
        Err(NotOurs),
        "another instance's"
    );
}

#[test]
fn a_relative_runtime_directory_is_none() {
    let folders = |runtime: Option<&str>, uid| record_folders(runtime.map(PathBuf::from), uid);
    let as_paths = |list: &[&str]| -> Vec<PathBuf> { list.iter().map(PathBuf::from).collect() };
    assert_eq!(
        folders(Some("run"), 7),
        as_paths(&["/run/user/7/foster", "/tmp/foster-7"])
    );
    assert_eq!(
        folders(Some("/run/user/7"), 7),
        as_paths(&["/run/user/7/foster", "/tmp/foster-7"])
    );
    let root = folders(None, 0);
    assert_eq!(
        root.first().map(PathBuf::as_path),
        Some(Path::new("/run/foster"))
    );
}
