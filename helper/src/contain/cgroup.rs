//! A cgroup v2 leaf of its own for a session.
//!
//! The leaf lies below the helper's own cgroup and needs no controllers, or below a root that
//! the host named, where it can have limits. The host is never moved. Every file that an ending
//! needs is opened before the leader starts, and the leader is started inside. `cgroup.kill`
//! reaches whoever is in it, of whatever user; a member of the same user can move itself out,
//! so the walk over the tree always comes after it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use foster_protocol::{Micros, Obstacle, Peaks, SessionId, TreeLimits, prefix};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use crate::sys::spawn::spawn_sleeper;

/// The controllers that limits need.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// How long a probe's process may take to die.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// How deep a session's own cgroups may be nested before they are left where they are.
const DEEPEST: usize = 64;

/// The period that `cpu.max` is given in.
const CPU_PERIOD: u64 = 100_000;

/// Where one helper makes its sessions' leaves. A helper without sessions has made nothing, so
/// that one that is killed leaves nothing either.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    parent: PathBuf,
    /// What the names of its leaves begin with.
    prefix: String,
    /// Leaves can have limits.
    has_controllers: bool,
}

/// The cgroup of one session.
#[derive(Debug)]
pub(crate) struct Leaf {
    path: PathBuf,
    directory: File,
    kill: File,
    events: File,
}

/// What keeps the level away, and the error number that says so.
pub(crate) type Lack = (Obstacle, i32);

fn lack(obstacle: Obstacle) -> impl Fn(io::Error) -> Lack {
    move |error| (obstacle, error.raw_os_error().unwrap_or(libc::EIO))
}

/// Finds where the leaves of the helper with this name would be. Nothing is made yet.
pub(crate) fn find(root: Option<&Path>, name: u64) -> Result<Base, Lack> {
    let parent = match root {
        Some(root) => checked_root(root)?,
        None => own_cgroup()?,
    };
    Ok(Base {
        parent,
        prefix: prefix(name),
        has_controllers: root.is_some(),
    })
}

/// A root for limits holds no processes and hands its controllers down.
fn checked_root(root: &Path) -> Result<PathBuf, Lack> {
    let read = |name: &str| fs::read_to_string(root.join(name)).map_err(lack(Obstacle::CgroupRoot));
    if !read("cgroup.procs")?.is_empty() {
        return Err((Obstacle::CgroupRoot, libc::EBUSY));
    }
    let handed_down = read("cgroup.subtree_control")?;
    let has = |name: &&str| handed_down.split_whitespace().any(|one| one == *name);
    if !CONTROLLERS.iter().all(has) {
        return Err((Obstacle::CgroupRoot, libc::ENODEV));
    }
    Ok(root.to_path_buf())
}

/// The directory of the cgroup that this process is in.
fn own_cgroup() -> Result<PathBuf, Lack> {
    let missing = lack(Obstacle::CgroupMount);
    let mounts = fs::read("/proc/self/mountinfo").map_err(&missing)?;
    let cgroups = fs::read("/proc/self/cgroup").map_err(&missing)?;
    find_own(&mounts, &cgroups).ok_or((Obstacle::CgroupMount, libc::ENOENT))
}

/// Puts together where the hierarchy is mounted (`proc_pid_mountinfo(5)`) and which cgroup of
/// it this is (`cgroups(7)`).
fn find_own(mounts: &[u8], cgroups: &[u8]) -> Option<PathBuf> {
    let own = cgroups
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))?;
    for line in mounts.split(|byte| *byte == b'\n') {
        let mut halves = line.splitn(2, |byte| *byte == b'-');
        let fields: Vec<&[u8]> = halves.next()?.split(|byte| *byte == b' ').collect();
        let (Some(root), Some(point)) = (fields.get(3), fields.get(4)) else {
            continue;
        };
        let kind = halves.next().unwrap_or_default();
        if !kind.starts_with(b" cgroup2 ") {
            continue;
        }
        // A mount of a part of the hierarchy shows only what is below its root.
        let root = unescaped(root);
        let below = match root.as_slice() {
            b"/" => Some(own),
            root => own.strip_prefix(root),
        };
        if let Some(below) = below {
            let mut path = PathBuf::from(std::ffi::OsStr::from_bytes(&unescaped(point)));
            path.push(std::ffi::OsStr::from_bytes(
                below.strip_prefix(b"/").unwrap_or(below),
            ));
            return Some(path);
        }
    }
    None
}

/// Blanks and backslashes stand as three octal digits in mountinfo.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let code = behind
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(code.unwrap_or(*first));
        rest = match code {
            Some(_) => behind.get(3..).unwrap_or_default(),
            None => behind,
        };
    }
    plain
}

impl Base {
    /// Whether leaves can have limits.
    pub(crate) fn has_controllers(&self) -> bool {
        self.has_controllers
    }

    /// The cgroup below which the leaves are.
    pub(crate) fn parent(&self) -> &Path {
        &self.parent
    }

    /// Finds out whether the level can be had, by doing all of it once: make a leaf, start a
    /// process in it, see it run, kill it by the leaf, see the leaf empty, remove it.
    pub(crate) fn try_out(self) -> Result<Self, Lack> {
        let leaf = self
            .make("probe", TreeLimits::default())
            .map_err(lack(Obstacle::CgroupCreate))?;
        let tried = leaf.try_out();
        leaf.remove();
        tried.map(|()| self)
    }

    /// Makes a session's leaf.
    ///
    /// # Errors
    ///
    /// What the kernel says; nothing is left of it then.
    pub(crate) fn create(&self, session: SessionId, limits: TreeLimits) -> io::Result<Leaf> {
        self.make(&name_of(session), limits)
    }

    fn make(&self, name: &str, limits: TreeLimits) -> io::Result<Leaf> {
        let path = self.place(name);
        fs::create_dir(&path)?;
        let made = Leaf::open(path.clone()).and_then(|leaf| leaf.limit(limits).map(|()| leaf));
        if made.is_err() {
            remove_tree(&path, 0);
        }
        made
    }

    /// A leaf whose keeper is dead.
    ///
    /// # Errors
    ///
    /// `NotFound` where there is none.
    pub(crate) fn reopen(&self, session: SessionId) -> io::Result<Leaf> {
        Leaf::open(self.place(&name_of(session)))
    }

    /// Removes what a session left. False where it stays, because it is still in use.
    pub(crate) fn remove_of(&self, session: SessionId) -> bool {
        remove_tree(&self.place(&name_of(session)), 0)
    }

    /// Removes what any session of this helper left. What is still in use stays.
    pub(crate) fn remove_all(&self) {
        let Ok(entries) = fs::read_dir(&self.parent) else {
            return;
        };
        for entry in entries.flatten() {
            if entry
                .file_name()
                .as_bytes()
                .starts_with(self.prefix.as_bytes())
            {
                remove_tree(&entry.path(), 0);
            }
        }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.parent.join(format!("{}{name}", self.prefix))
    }
}

fn name_of(session: SessionId) -> String {
    format!("session-{}", session.0)
}

impl Leaf {
    fn open(path: PathBuf) -> io::Result<Self> {
        let directory = File::open(&path)?;
        Ok(Self {
            kill: open_in(&directory, "cgroup.kill", OFlag::O_WRONLY)?,
            events: open_in(&directory, "cgroup.events", OFlag::O_RDONLY)?,
            directory,
            path,
        })
    }

    fn limit(&self, limits: TreeLimits) -> io::Result<()> {
        let set = |file: &str, value: Option<String>| match value {
            Some(value) => fs::write(self.path.join(file), value),
            None => Ok(()),
        };
        set("memory.max", limits.memory.map(|bytes| bytes.to_string()))?;
        set("pids.max", limits.processes.map(|count| count.to_string()))?;
        let quota = limits.cpu.map(|thousandths| {
            let quota = (thousandths.saturating_mul(CPU_PERIOD) / 1000).max(1000);
            format!("{quota} {CPU_PERIOD}")
        });
        set("cpu.max", quota)
    }

    /// Starts a process inside, sees it run, kills it by the leaf, and sees the leaf empty.
    ///
    /// It may be dead before it has run: since Linux 6.14 a fork is killed whose cgroup has been
    /// killed meanwhile, and that is told by comparing how often `cgroup.kill` has hit the cgroup
    /// of the parent and the one of the child (`kill_seq`, `cgroup_post_fork`). They are two
    /// cgroups here, and a new one has been hit by none, so where the helper's own was ever hit,
    /// or one above it while it was there, every child that is started in a leaf dies at birth.
    fn try_out(&self) -> Result<(), Lack> {
        let enter = lack(Obstacle::CgroupEnter);
        let kill = lack(Obstacle::CgroupKill);
        let sleeper = spawn_sleeper(self.directory()).map_err(&enter)?;
        let has_run = sleeper.has_run(PROBE_LIMIT);
        let sleeper = sleeper.leader;
        let killed = self.kill();
        if killed.is_err() {
            // It must not be left behind, whatever the leaf can do.
            sleeper.signal(libc::SIGKILL).map_err(&kill)?;
        }
        let give_up = Instant::now() + PROBE_LIMIT;
        let mut sleeper = Some(sleeper);
        while let Some(held) = sleeper.take() {
            match held.reap() {
                Ok(()) => {}
                Err((_, error)) if Instant::now() > give_up => return Err(kill(error)),
                Err((held, _)) => {
                    held.wait(Duration::from_millis(10)).map_err(&kill)?;
                    sleeper = Some(held);
                }
            }
        }
        if !has_run.map_err(&enter)? {
            return Err((Obstacle::CgroupEnter, libc::ECANCELED));
        }
        killed.map_err(&kill)?;
        match self.is_populated().map_err(&kill)? {
            false => Ok(()),
            true => Err((Obstacle::CgroupKill, libc::EBUSY)),
        }
    }

    /// What a leader is started in.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The open `cgroup.kill`. The right to write it was looked at when it was opened, so that
    /// whoever holds it can, of whatever user.
    pub(crate) fn kill_file(&self) -> BorrowedFd<'_> {
        self.kill.as_fd()
    }

    /// Kills everybody inside, in cgroups below it too (`cgroup.kill`).
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub(crate) fn kill(&self) -> io::Result<()> {
        let mut kill = &self.kill;
        kill.write_all(b"1")
    }

    /// Whether anybody lives inside (`cgroup.events`). Zombies do not count.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub(crate) fn is_populated(&self) -> io::Result<bool> {
        let mut text = [0_u8; 256];
        match self.events.read_at(&mut text, 0) {
            Ok(length) => {
                let text = text.get(..length).unwrap_or_default();
                Ok(!text
                    .split(|byte| *byte == b'\n')
                    .any(|line| line == b"populated 0"))
            }
            // It has been removed, so nobody is inside.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a process is inside, or in a cgroup below. Also true where nobody can say.
    pub(crate) fn holds(&self, pid: i32) -> bool {
        let Ok(text) = fs::read(format!("/proc/{pid}/cgroup")) else {
            return true;
        };
        let mut lines = text.split(|byte| *byte == b'\n');
        let own = lines.find_map(|line| line.strip_prefix(b"0::"));
        let name = self.path.file_name().map(OsStr::as_bytes);
        // No other cgroup has this name: it is made of this helper's own random number.
        own.is_none_or(|own| {
            own.split(|byte| *byte == b'/')
                .any(|part| Some(part) == name)
        })
    }

    /// What the tree used at most, where controllers have counted.
    pub(crate) fn peaks(&self) -> Option<Peaks> {
        let number = |file: &str| self.read(file)?.trim().parse::<u64>().ok();
        let peaks = Peaks {
            memory: number("memory.peak"),
            processes: number("pids.peak"),
            cpu: self.keyed("cpu.stat", "usage_usec").map(Micros),
            oom_kills: self.oom_kills(),
        };
        (peaks != Peaks::default()).then_some(peaks)
    }

    /// How many members the kernel has killed for want of memory, where controllers have counted.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        self.keyed("memory.events", "oom_kill")
    }

    fn keyed(&self, file: &str, key: &str) -> Option<u64> {
        let text = self.read(file)?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let (_, value) = lines.find(|(name, _)| *name == key)?;
        value.trim().parse().ok()
    }

    /// What a file says. One that is not there belongs to a controller that is not on.
    fn read(&self, file: &str) -> Option<String> {
        let file = open_in(&self.directory, file, OFlag::O_RDONLY).ok()?;
        let mut text = [0_u8; 4096];
        let length = file.read_at(&mut text, 0).ok()?;
        String::from_utf8(text.get(..length)?.to_vec()).ok()
    }

    /// Removes the leaf and what the session made below it. What is still in use stays.
    pub(crate) fn remove(&self) {
        remove_tree(&self.path, 0);
    }
}

/// Opens a file of a cgroup without the walk down from the root.
fn open_in(directory: &File, name: &str, access: OFlag) -> io::Result<File> {
    let flags = access | OFlag::O_CLOEXEC;
    Ok(File::from(openat(directory, name, flags, Mode::empty())?))
}

/// Removes cgroups from the bottom up. One that is in use stays, and so do those above it; a
/// later sweep finds them. True where nothing stays.
fn remove_tree(path: &Path, depth: usize) -> bool {
    if depth > DEEPEST {
        return false;
    }
    match fs::remove_dir(path) {
        Ok(()) => return true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
        Err(_) => {}
    }
    let Ok(entries) = fs::read_dir(path) else {
        return false;
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path(), depth + 1);
        }
    }
    let removed = fs::remove_dir(path);
    if let Err(error) = &removed {
        let busy = error.raw_os_error() == Some(Errno::EBUSY as i32);
        tracing::debug!(%error, busy, "a cgroup stays");
    }
    removed.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"22 1 0:20 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        23 1 0:21 / /sys/fs/cgroup\\040here rw,nosuid - cgroup2 cgroup2 rw\n";

    #[test]
    fn own_cgroup_is_found_in_a_hybrid_hierarchy() {
        let cgroups = b"4:memory:/elsewhere\n0::/user.slice/a\n";
        assert_eq!(
            find_own(MOUNTS, cgroups),
            Some(PathBuf::from("/sys/fs/cgroup here/user.slice/a"))
        );
    }

    #[test]
    fn a_mount_of_a_part_shows_what_is_below_its_root() {
        let mounts = b"23 1 0:21 /user.slice /cg rw - cgroup2 cgroup2 rw\n";
        assert_eq!(
            find_own(mounts, b"0::/user.slice/a\n"),
            Some(PathBuf::from("/cg/a"))
        );
        assert_eq!(find_own(mounts, b"0::/system.slice/a\n"), None);
    }

    #[test]
    fn without_a_second_version_there_is_none() {
        let mounts = b"22 1 0:20 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert_eq!(find_own(mounts, b"0::/a\n"), None);
        assert_eq!(find_own(MOUNTS, b"4:memory:/a\n"), None);
    }

    #[test]
    fn a_root_with_processes_or_without_controllers_is_refused() {
        let root = std::env::temp_dir().join(format!("foster-root-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("cgroup.procs"), "17\n").unwrap();
        fs::write(root.join("cgroup.subtree_control"), "memory pids cpu\n").unwrap();
        let occupied = checked_root(&root);
        fs::write(root.join("cgroup.procs"), "").unwrap();
        let whole = checked_root(&root);
        fs::write(root.join("cgroup.subtree_control"), "memory pids\n").unwrap();
        let lacking = checked_root(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(occupied, Err((Obstacle::CgroupRoot, libc::EBUSY)));
        assert_eq!(whole, Ok(root));
        assert_eq!(lacking, Err((Obstacle::CgroupRoot, libc::ENODEV)));
    }
}
