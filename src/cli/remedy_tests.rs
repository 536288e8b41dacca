use super::*;

const OBSTACLES: [Obstacle; 12] = [
    Obstacle::NotOffered,
    Obstacle::ChildrenFiles,
    Obstacle::Pidfds,
    Obstacle::Threads,
    Obstacle::CgroupMount,
    Obstacle::CgroupCreate,
    Obstacle::CgroupEnter,
    Obstacle::CgroupKill,
    Obstacle::CgroupRoot,
    Obstacle::UserNamespace,
    Obstacle::PidNamespace,
    Obstacle::ProcMount,
];

fn without(obstacle: Obstacle, errno: i32) -> Availability {
    Availability {
        level: Level::Cgroup,
        errno,
        obstacle: Some(obstacle),
    }
}

fn advice(obstacle: Obstacle, errno: i32) -> &'static str {
    let (_, remedy) = of(without(obstacle, errno)).expect("it is missing");
    remedy.expect("a named obstacle has a remedy")
}

#[test]
fn a_level_that_can_be_had_needs_nothing() {
    let one = Availability {
        level: Level::Tree,
        errno: 0,
        obstacle: None,
    };
    assert_eq!(of(one), None);
}

#[test]
fn every_obstacle_has_a_word_a_reason_and_a_remedy_of_its_own_at_every_errno() {
    let mut words: Vec<&str> = OBSTACLES.into_iter().map(word).collect();
    let mut reasons: Vec<&str> = OBSTACLES.into_iter().map(obstacle_words).collect();
    for list in [&mut words, &mut reasons] {
        list.sort_unstable();
        list.dedup();
        assert_eq!(list.len(), OBSTACLES.len(), "{list:?}");
    }
    for obstacle in OBSTACLES {
        for errno in 1..=133 {
            let (reason, remedy) = of(without(obstacle, errno)).expect("it is missing");
            assert!(reason.starts_with(obstacle_words(obstacle)), "{reason}");
            let remedy = remedy.expect("it is known");
            assert!(!remedy.is_empty() && !remedy.contains("  "), "{remedy}");
        }
    }
}

#[test]
fn the_reason_is_the_obstacle_and_the_errno_in_words() {
    let (reason, _) = of(without(Obstacle::CgroupCreate, EACCES)).expect("it is missing");
    assert_eq!(reason, "no cgroup can be made here: Permission denied");
    let (reason, _) = of(without(Obstacle::NotOffered, ENOSYS)).expect("it is missing");
    assert_eq!(reason, "this build does not offer it");
}

#[test]
fn an_error_number_alone_is_told_without_a_remedy() {
    let one = Availability {
        level: Level::Cgroup,
        errno: EROFS,
        obstacle: None,
    };
    assert_eq!(of(one), Some(("Read-only file system".to_owned(), None)));
}

#[test]
fn the_remedy_follows_the_error_number() {
    for (obstacle, errno, part) in [
        (Obstacle::CgroupMount, ENOENT, "mount -t cgroup2"),
        (Obstacle::CgroupCreate, EACCES, "Delegate=yes"),
        (Obstacle::CgroupCreate, EPERM, "Delegate=yes"),
        (Obstacle::CgroupCreate, EROFS, "remount,rw"),
        (Obstacle::CgroupCreate, EAGAIN, "cgroup.max.descendants"),
        (Obstacle::CgroupEnter, EACCES, "Delegate=yes"),
        (Obstacle::CgroupEnter, ENOSYS, "Linux 5.7"),
        (Obstacle::CgroupEnter, ECANCELED, "a cgroup that is new"),
        (Obstacle::CgroupKill, ENOENT, "Linux 5.14"),
        (Obstacle::CgroupRoot, EBUSY, "without processes"),
        (
            Obstacle::UserNamespace,
            EPERM,
            "unprivileged user namespaces",
        ),
        (Obstacle::UserNamespace, ENOSPC, "user.max_user_namespaces"),
        (Obstacle::PidNamespace, EPERM, "CAP_SYS_ADMIN"),
        (Obstacle::PidNamespace, EINVAL, "CONFIG_PID_NS"),
        (Obstacle::ProcMount, EPERM, "masks parts of /proc"),
        (Obstacle::Pidfds, ENOSYS, "Linux 5.3"),
        (Obstacle::ChildrenFiles, ENOENT, "CONFIG_PROC_CHILDREN"),
        (Obstacle::Threads, EAGAIN, "launch the helper earlier"),
    ] {
        let remedy = advice(obstacle, errno);
        assert!(remedy.contains(part), "{obstacle:?} {errno}: {remedy}");
    }
}

#[test]
fn a_level_that_the_helper_does_not_mention_is_not_offered() {
    let capabilities = Capabilities {
        levels: Vec::new(),
        clone3: true,
        pidfd: true,
        pidfd_group: true,
        children_files: true,
        janitor: 0,
    };
    let one = availability(&capabilities, Level::Namespace);
    assert_eq!(one.obstacle, Some(Obstacle::NotOffered));
    assert_eq!((one.level, one.errno), (Level::Namespace, ENOSYS));
}

#[test]
fn a_missing_level_is_told_as_at_the_start_only_where_the_error_is_the_same() {
    let capabilities = Capabilities {
        levels: vec![without(Obstacle::CgroupMount, ENOENT)],
        clone3: true,
        pidfd: true,
        pidfd_group: true,
        children_files: true,
        janitor: 0,
    };
    let told = |errno, known| {
        let level = Level::Cgroup;
        of_missing(Missing { level, errno }, known).0
    };
    assert_eq!(
        told(ENOENT, Some(&capabilities)),
        "no cgroup v2 hierarchy is mounted: No such file or directory"
    );
    assert_eq!(told(ENOSPC, Some(&capabilities)), "No space left on device");
    assert_eq!(told(ENOENT, None), "No such file or directory");
}
