//! A pid namespace of its own for a session, with its keeper as process 1.
//!
//! When process 1 dies in any way the kernel ends everybody else in the namespace, so that
//! nothing has to be left running for it. The price is that a command sees other process
//! numbers than the host, and in a user namespace that set-user-id programs do nothing; so this
//! level is never chosen by itself.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use foster_protocol::Obstacle;
use nix::mount::{MsFlags, mount};

use super::cgroup::Lack;
use crate::sys::fork::{Forked, Isolation, fork_isolated, leave};
use crate::sys::{outer, own};

/// Obstacles as the trial reports them.
const OBSTACLES: [Obstacle; 3] = [
    Obstacle::UserNamespace,
    Obstacle::PidNamespace,
    Obstacle::ProcMount,
];

/// Finds out whether the level can be had, by doing all of it once in a child. It must be the
/// only thread.
pub(crate) fn probe() -> Result<Isolation, Lack> {
    let kinds: &[Isolation] = match nix::unistd::geteuid().is_root() {
        true => &[Isolation::Pid, Isolation::UserAndPid],
        false => &[Isolation::UserAndPid],
    };
    let mut lack = (Obstacle::PidNamespace, libc::ENOSYS);
    for kind in kinds {
        match try_out(*kind) {
            Ok(()) => return Ok(*kind),
            Err(one) => lack = one,
        }
    }
    Err(lack)
}

/// A user, as it is called before the fork: in a fresh user namespace nobody has a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

fn try_out(kind: Isolation) -> Result<(), Lack> {
    let user = User {
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
    };
    let refused = |error: io::Error| {
        let obstacle = match kind {
            Isolation::Pid => Obstacle::PidNamespace,
            Isolation::UserAndPid => Obstacle::UserNamespace,
        };
        (obstacle, error.raw_os_error().unwrap_or(libc::EIO))
    };
    let (mut read, mut write) = io::pipe().map_err(refused)?;
    let child = match fork_isolated(kind).map_err(refused)? {
        Forked::Keeper => {
            drop(read);
            let said = match enter(kind, user) {
                Ok(_) => [u8::MAX, 0, 0, 0, 0],
                Err(lack) => report(lack),
            };
            // Without its word the trial counts as failed.
            let _said = write.write_all(&said);
            leave(0);
        }
        Forked::Helper(child) => child,
    };
    drop(write);
    let mut said = Vec::new();
    let heard = read.read_to_end(&mut said);
    // End-of-file is its death, or right before it; process 1 takes its namespace along.
    let mut held = Some(child);
    while let Some(child) = held.take() {
        if let Err((child, error)) = child.reap() {
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(refused(error));
            }
            child
                .wait(std::time::Duration::from_secs(1))
                .map_err(refused)?;
            held = Some(child);
        }
    }
    heard.map_err(refused)?;
    match said.as_slice() {
        [u8::MAX, ..] => Ok(()),
        [obstacle, errno @ ..] => {
            let errno = <[u8; 4]>::try_from(errno).map(i32::from_le_bytes);
            let obstacle = OBSTACLES.get(usize::from(*obstacle)).copied();
            Err((
                obstacle.unwrap_or(Obstacle::PidNamespace),
                errno.unwrap_or(libc::EPROTO),
            ))
        }
        [] => Err((Obstacle::PidNamespace, libc::ECHILD)),
    }
}

fn report((obstacle, errno): Lack) -> [u8; 5] {
    let place = OBSTACLES.iter().position(|one| *one == obstacle);
    let place = place
        .and_then(|place| u8::try_from(place).ok())
        .unwrap_or(1);
    let [a, b, c, d] = errno.to_le_bytes();
    [place, a, b, c, d]
}

/// Settles as process 1 of the namespace: maps the user, and mounts `/proc`. Gives back the
/// outer `/proc`'s view of our descriptors, for process numbers as the host knows them.
pub(crate) fn enter(kind: Isolation, user: User) -> Result<OwnedFd, Lack> {
    let lack = |obstacle: Obstacle| {
        move |error: io::Error| (obstacle, error.raw_os_error().unwrap_or(libc::EIO))
    };
    let view = outer::open().map_err(lack(Obstacle::ProcMount))?;
    if kind == Isolation::UserAndPid {
        map_user(user).map_err(lack(Obstacle::UserNamespace))?;
    }
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(io::Error::from)
        .map_err(lack(Obstacle::ProcMount))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, none)
        .map_err(io::Error::from)
        .map_err(lack(Obstacle::ProcMount))?;
    Ok(view)
}

/// The user keeps its number (`user_namespaces(7)`).
fn map_user(user: User) -> io::Result<()> {
    let User { uid, gid } = user;
    // The maps of a process that cannot be dumped are root's.
    own::set_dumpable(true)?;
    let mapped = fs::write("/proc/self/setgroups", "deny")
        .and_then(|()| fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")))
        .and_then(|()| fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")));
    own::set_dumpable(false)?;
    mapped
}
