//! A cgroup of a test's own, below this process's: it holds what a tag cannot follow, bombs
//! and members of other users, and what is left in it can be ended with one write.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::deadline::{DEATH, eventually};

/// A cgroup that one test has made. Dropping it ends what is in it and removes it.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// Makes one of this name.
    ///
    /// # Errors
    ///
    /// What keeps it away: no cgroup v2 hierarchy, or no right to make one in it.
    pub fn new(name: &str) -> io::Result<Self> {
        let folder = own()?.join(format!("foster-test-{name}"));
        fs::create_dir(&folder)?;
        let cgroup = Self { folder };
        // Without this file (Linux 5.14) it could not be cleaned up.
        fs::metadata(cgroup.folder.join("cgroup.kill"))?;
        Ok(cgroup)
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes a folder in it.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn child(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.folder.join(name);
        fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// Gives it to a user, with what is needed to make cgroups in it and to start processes there.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn give_to(&self, folder: &Path, user: u32) -> io::Result<()> {
        let (uid, gid) = (Some(user), Some(user));
        std::os::unix::fs::chown(folder, uid, gid)?;
        std::os::unix::fs::chown(folder.join("cgroup.procs"), uid, gid)
    }

    /// Whether a process is in it or below.
    #[must_use]
    pub fn is_populated(&self) -> bool {
        fs::read_to_string(self.folder.join("cgroup.events"))
            .is_ok_and(|text| text.lines().any(|line| line == "populated 1"))
    }

    /// Ends everybody in it, and waits until it is empty.
    ///
    /// # Panics
    ///
    /// Where it is not in time.
    pub fn clear(&self) {
        let kill = self.folder.join("cgroup.kill");
        eventually("the cgroup of the test is empty", DEATH, || {
            !self.is_populated() || fs::write(&kill, "1").is_err()
        });
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let is_failing = std::thread::panicking();
        if !is_failing {
            self.clear();
        }
        let removed = remove(&self.folder);
        assert!(is_failing || removed.is_ok(), "{removed:?}");
    }
}

/// Removes a cgroup and those below it, bottom up.
fn remove(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

/// This process's own cgroup in the v2 hierarchy.
fn own() -> io::Result<PathBuf> {
    let missing = || io::Error::other("no cgroup v2 hierarchy is mounted");
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mount = mounts
        .lines()
        .find(|line| line.contains(" - cgroup2 "))
        .and_then(|line| line.split(' ').nth(4))
        .ok_or_else(missing)?;
    let cgroups = fs::read_to_string("/proc/self/cgroup")?;
    let path = cgroups
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .ok_or_else(missing)?;
    Ok(Path::new(mount).join(path))
}
