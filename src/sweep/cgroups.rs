//! The cgroups that an instance left: killed with one write each, and removed when empty.
//!
//! Only those below the recorded cgroup whose names are the instance's. One in which somebody is
//! that is spared is not killed as a whole.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use foster_protocol::Record;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use super::processes::stat;
use super::report::{During, Refusal};
use super::spared::Spared;

/// How deep a session's own cgroups may be nested before they are left where they are.
const DEEPEST: usize = 64;

/// The longest wait before a cgroup is looked at again. A change wakes it.
const LOOK: Duration = Duration::from_millis(100);

/// A cgroup of a dead instance, which is nobody's that was released.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) path: PathBuf,
    /// Somebody in it is spared.
    is_spared: bool,
}

/// Finds them. Those of released sessions go where nobody uses them any more.
pub(super) fn find(
    record: &Record,
    spared: &Spared,
    may_remove: bool,
) -> Result<Vec<Leaf>, Refusal> {
    let mut leaves = Vec::new();
    let Some(base) = &record.cgroup else {
        return Ok(leaves);
    };
    let base = Path::new(std::ffi::OsStr::from_bytes(&base.0));
    let kind = match statfs(base) {
        Ok(about) => about.filesystem_type(),
        // It has been removed, which needs everything below it to be gone.
        Err(nix::errno::Errno::ENOENT) => return Ok(leaves),
        Err(error) => return Err(error).during("look at the recorded cgroup"),
    };
    if kind != CGROUP2_SUPER_MAGIC {
        return Err(Refusal::NoCgroup);
    }
    let entries = fs::read_dir(base).during("list the recorded cgroup")?;
    for entry in entries {
        let entry = entry.during("list the recorded cgroup")?;
        let Ok(session) = record.session_of(entry.file_name().as_bytes()) else {
            continue;
        };
        let path = entry.path();
        if session.is_some_and(|session| record.released.contains(&session)) {
            if may_remove {
                remove_tree(&path, 0);
            }
            continue;
        }
        let is_spared = holds_spared(&path, spared, 0);
        leaves.push(Leaf { path, is_spared });
    }
    Ok(leaves)
}

/// Whether somebody in it, or in a cgroup below it, is spared.
fn holds_spared(path: &Path, spared: &Spared, depth: usize) -> bool {
    let members = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let pids = members.lines().filter_map(|line| line.parse().ok());
    let is_spared = |pid: i32| stat(pid).is_ok_and(|stat| spared.has(&stat));
    if pids.into_iter().any(is_spared) {
        return true;
    }
    // What is too deep to be looked at is not killed as a whole.
    depth > DEEPEST || below(path).any(|path| holds_spared(&path, spared, depth + 1))
}

fn below(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path())
}

impl Leaf {
    /// Kills everybody inside (`cgroup.kill`), unless somebody is spared.
    ///
    /// # Errors
    ///
    /// What the kernel says; that it is gone is none.
    pub(super) fn kill(&self) -> io::Result<()> {
        if self.is_spared {
            return Ok(());
        }
        // The file is never made: a cgroup that is gone has none.
        let file = File::options()
            .write(true)
            .open(self.path.join("cgroup.kill"));
        match file.and_then(|mut file| io::Write::write_all(&mut file, b"1")) {
            Err(error) if is_gone(&error) => Ok(()),
            other => other,
        }
    }

    /// Waits until nobody is inside, and removes it from the bottom up. False where it stays.
    pub(super) fn remove(&self, deadline: Instant) -> bool {
        if self.is_spared {
            return false;
        }
        if let Err(error) = wait_until_empty(&self.path, deadline) {
            tracing::debug!(%error, "a cgroup cannot be watched");
        }
        remove_tree(&self.path, 0)
    }
}

/// Waits for `populated 0` (`cgroup.events`); zombies do not count.
fn wait_until_empty(path: &Path, deadline: Instant) -> io::Result<()> {
    loop {
        let events = path.join("cgroup.events");
        let file = match File::open(&events) {
            Ok(file) => file,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let text = match io::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if text.lines().any(|line| line == "populated 0") || left.is_zero() {
            return Ok(());
        }
        let millis = u16::try_from(left.min(LOOK).as_millis() + 1).unwrap_or(u16::MAX);
        let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
        match poll(&mut polled, PollTimeout::from(millis)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn remove_tree(path: &Path, depth: usize) -> bool {
    match fs::remove_dir(path) {
        Ok(()) => return true,
        Err(error) if is_gone(&error) => return true,
        Err(_) if depth > DEEPEST => return false,
        Err(_) => {}
    }
    for path in below(path) {
        remove_tree(&path, depth + 1);
    }
    match fs::remove_dir(path) {
        Ok(()) => true,
        Err(error) => is_gone(&error),
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}
