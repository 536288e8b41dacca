//! What keeps a level away, in words, and what can be done about it.
//!
//! Pure tables over the obstacle and the error number that a helper reports. Nothing here tries
//! anything, and no remedy is carried out.

use nix::errno::Errno;
use nix::libc::{
    E2BIG, EACCES, EAGAIN, EBUSY, ECANCELED, EINVAL, ENODEV, ENOENT, ENOSPC, ENOSYS, EOPNOTSUPP,
    EPERM, ERANGE, EROFS, EUSERS,
};

use crate::cli::words;
use crate::{Availability, Capabilities, Level, Missing, Obstacle};

/// The remedy for a cgroup that belongs to somebody else.
const DELEGATE: &str = "delegate a cgroup: systemd-run --user --scope -p Delegate=yes foster run …";

/// Why a level cannot be had, and what to do about it where that is known; none where it can.
pub(crate) fn of(one: Availability) -> Option<(String, Option<&'static str>)> {
    let Availability {
        level,
        errno,
        obstacle,
    } = one;
    if errno == 0 {
        return None;
    }
    Some(match obstacle {
        None => (words::lack(Missing { level, errno }).to_owned(), None),
        // The error number is the helper's own way of saying the same.
        Some(Obstacle::NotOffered) => (
            obstacle_words(Obstacle::NotOffered).to_owned(),
            Some(remedy(Obstacle::NotOffered, errno)),
        ),
        Some(obstacle) => (
            format!("{}: {}", obstacle_words(obstacle), in_words(errno)),
            Some(remedy(obstacle, errno)),
        ),
    })
}

/// What a helper says of a level. What it does not mention it does not offer.
pub(crate) fn availability(capabilities: &Capabilities, level: Level) -> Availability {
    let mentioned = capabilities.levels.iter().find(|one| one.level == level);
    mentioned.copied().unwrap_or(Availability {
        level,
        errno: ENOSYS,
        obstacle: Some(Obstacle::NotOffered),
    })
}

/// Why a session lacks a level, and what to do about it: in the helper's fuller words where it
/// has told the same of the level at its start.
pub(crate) fn of_missing(
    missing: Missing,
    capabilities: Option<&Capabilities>,
) -> (String, Option<&'static str>) {
    let told = capabilities.map(|known| availability(known, missing.level));
    told.filter(|told| told.errno == missing.errno)
        .and_then(of)
        .unwrap_or_else(|| (words::lack(missing).to_owned(), None))
}

/// Why `foster sweep` would not find everything that a helper leaves.
pub(crate) fn no_janitor(errno: i32) -> String {
    match errno {
        ERANGE => {
            "processes cannot be marked below the inherited limit of file locks (ulimit -x); \
                   cgroups are found"
                .to_owned()
        }
        errno => format!("no record can be kept: {}", in_words(errno)),
    }
}

/// The error number in the system's words.
fn in_words(errno: i32) -> &'static str {
    Errno::from_raw(errno).desc()
}

/// The obstacle as one word, for scripts.
pub(crate) fn word(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::NotOffered => "not-offered",
        Obstacle::ChildrenFiles => "children-files",
        Obstacle::Pidfds => "pidfds",
        Obstacle::Threads => "threads",
        Obstacle::CgroupMount => "cgroup-mount",
        Obstacle::CgroupCreate => "cgroup-create",
        Obstacle::CgroupEnter => "cgroup-enter",
        Obstacle::CgroupKill => "cgroup-kill",
        Obstacle::CgroupRoot => "cgroup-root",
        Obstacle::UserNamespace => "user-namespace",
        Obstacle::PidNamespace => "pid-namespace",
        Obstacle::ProcMount => "proc-mount",
    }
}

/// What failed.
fn obstacle_words(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::NotOffered => "this build does not offer it",
        Obstacle::ChildrenFiles => "the kernel keeps no lists of children",
        Obstacle::Pidfds => "there are no pidfds",
        Obstacle::Threads => "several threads run in the helper's process",
        Obstacle::CgroupMount => "no cgroup v2 hierarchy is mounted",
        Obstacle::CgroupCreate => "no cgroup can be made here",
        Obstacle::CgroupEnter => "no process can be started in a cgroup",
        Obstacle::CgroupKill => "cgroup.kill cannot be written",
        Obstacle::CgroupRoot => "the cgroup root that was named cannot be used",
        Obstacle::UserNamespace => "no user namespace can be made",
        Obstacle::PidNamespace => "no pid namespace can be made",
        Obstacle::ProcMount => "/proc cannot be mounted in a namespace",
    }
}

/// What to do about it.
fn remedy(obstacle: Obstacle, errno: i32) -> &'static str {
    match obstacle {
        Obstacle::NotOffered => "use a build of foster that offers it",
        Obstacle::ChildrenFiles => {
            "mount /proc, and use a kernel that is built with CONFIG_PROC_CHILDREN"
        }
        Obstacle::Pidfds => {
            "use Linux 5.3 or newer, in a sandbox (seccomp) that lets pidfd_open pass"
        }
        Obstacle::Threads => {
            "launch the helper earlier, before there are threads, or use the foster-helper program"
        }
        Obstacle::CgroupMount => {
            "mount cgroup2 before foster starts: mount -t cgroup2 cgroup2 /sys/fs/cgroup"
        }
        Obstacle::CgroupCreate => cgroup_create(errno),
        Obstacle::CgroupEnter => cgroup_enter(errno),
        Obstacle::CgroupKill => match errno {
            ENOENT | EOPNOTSUPP => "use Linux 5.14 or newer, and no threaded cgroup",
            _ => DELEGATE,
        },
        Obstacle::CgroupRoot => {
            "name a cgroup without processes of its own that passes on memory, pids and cpu \
             (cgroup.subtree_control)"
        }
        Obstacle::UserNamespace => user_namespace(errno),
        Obstacle::PidNamespace => pid_namespace(errno),
        Obstacle::ProcMount => proc_mount(errno),
    }
}

fn cgroup_create(errno: i32) -> &'static str {
    match errno {
        EROFS => {
            "mount the hierarchy writable: mount -o remount,rw /sys/fs/cgroup, or an option of \
             the container"
        }
        EAGAIN | ENOSPC => {
            "raise cgroup.max.descendants and cgroup.max.depth above foster's cgroup"
        }
        ENOENT | ENODEV => "start foster in a cgroup that exists below the mounted hierarchy",
        // EACCES and EPERM: the cgroup is another user's.
        _ => DELEGATE,
    }
}

fn cgroup_enter(errno: i32) -> &'static str {
    match errno {
        ENOSYS | EINVAL | E2BIG => "use Linux 5.7 or newer, in a sandbox that lets clone3 pass",
        EBUSY | EOPNOTSUPP => "start foster in a cgroup that is not threaded",
        // A process that is started in a new cgroup is dead before it has run.
        ECANCELED => {
            "start foster in a cgroup that is new: this one has been killed once (cgroup.kill), \
             and since then the kernel kills whatever is started from it in another one"
        }
        _ => DELEGATE,
    }
}

/// `user_namespaces(7)`, and the switches of Debian and Ubuntu.
fn user_namespace(errno: i32) -> &'static str {
    match errno {
        ENOSPC => "allow user namespaces: raise user.max_user_namespaces (sysctl)",
        EUSERS => "nest fewer user namespaces",
        EINVAL | ENOSYS => "use a kernel that is built with CONFIG_USER_NS",
        EPERM | EACCES => {
            "allow unprivileged user namespaces: sysctl kernel.unprivileged_userns_clone=1 or \
             kernel.apparmor_restrict_unprivileged_userns=0, and the container's seccomp profile"
        }
        _ => "allow unprivileged user namespaces",
    }
}

/// `pid_namespaces(7)`.
fn pid_namespace(errno: i32) -> &'static str {
    match errno {
        ENOSPC => "raise user.max_pid_namespaces (sysctl), or nest fewer pid namespaces",
        EINVAL | ENOSYS => "use a kernel that is built with CONFIG_PID_NS",
        _ => "give foster CAP_SYS_ADMIN, or allow unprivileged user namespaces",
    }
}

/// A `/proc` that shows less than all keeps new ones out (`mount_namespaces(7)`).
fn proc_mount(errno: i32) -> &'static str {
    match errno {
        EPERM | EACCES => {
            "the container masks parts of /proc: start it with --security-opt \
             systempaths=unconfined (docker) or unmask=ALL (podman)"
        }
        _ => "let the sandbox allow mounts of proc",
    }
}

#[cfg(test)]
#[path = "remedy_tests.rs"]
mod tests;
