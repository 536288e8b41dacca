//! Cgroups of a test's own, below the one that the tests are in. Each is removed at its end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::deadline::{DEATH, eventually};
use crate::stage::Stage;

/// A cgroup that a test has made.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Makes one in the v2 hierarchy.
    ///
    /// # Errors
    ///
    /// The condition that is missing.
    pub fn unified(stage: &Stage) -> Result<Self, String> {
        Self::make(stage.tag(), "")
    }

    /// Makes another one in the v2 hierarchy.
    ///
    /// # Errors
    ///
    /// The condition that is missing.
    pub fn of_name(stage: &Stage, name: &str) -> Result<Self, String> {
        Self::make(&format!("{}-{name}", stage.tag()), "")
    }

    /// Makes one in the v1 hierarchy of a controller.
    ///
    /// # Errors
    ///
    /// The condition that is missing.
    pub fn of_controller(stage: &Stage, controller: &str) -> Result<Self, String> {
        Self::make(stage.tag(), controller)
    }

    fn make(name: &str, controller: &str) -> Result<Self, String> {
        let own = own_cgroup(controller)?;
        let path = own.join(name);
        fs::create_dir(&path)
            .map_err(|error| format!("no cgroup below {}: {error}", own.display()))?;
        Ok(Self { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that moves whoever writes its number into it.
    #[must_use]
    pub fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Lets a user make cgroups below it and move processes within it.
    ///
    /// # Panics
    ///
    /// Where this is not root.
    pub fn give_to(&self, user: u32) {
        for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
            let path = match file {
                "" => self.path.clone(),
                file => self.path.join(file),
            };
            std::os::unix::fs::chown(&path, Some(user), Some(user))
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }

    /// Writes one of its files.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn set(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.path.join(file), text)
    }

    /// The cgroups right below it.
    #[must_use]
    pub fn below(&self) -> Vec<PathBuf> {
        below(&self.path)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let is_failing = std::thread::panicking();
        if is_failing {
            // What the kernel still holds stays; the failure says why.
            let _removed = remove(&self.path);
            return;
        }
        eventually("the cgroup of the test is empty", DEATH, || {
            remove(&self.path).is_ok()
        });
    }
}

fn below(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn remove(path: &Path) -> io::Result<()> {
    for child in below(path) {
        remove(&child)?;
    }
    fs::remove_dir(path)
}

/// The directory of this process's cgroup: of the v2 hierarchy without a controller.
fn own_cgroup(controller: &str) -> Result<PathBuf, String> {
    let text = |path| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let (mounts, cgroups) = (text("/proc/self/mountinfo")?, text("/proc/self/cgroup")?);
    let what = match controller {
        "" => "version 2".to_owned(),
        controller => format!("controller {controller} of version 1"),
    };
    let own = cgroups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let has = fields.next()?.split(',').any(|one| one == controller);
        fields.next().filter(|_| has)
    });
    let own = own.ok_or_else(|| format!("this process is in no cgroup of {what}"))?;
    let point = mounts.lines().find_map(|line| mount_of(line, controller));
    let point = point.ok_or_else(|| format!("no cgroup hierarchy is mounted of {what}"))?;
    Ok(PathBuf::from(point).join(own.trim_start_matches('/')))
}

/// The mount point of a line of mountinfo, where it is the whole hierarchy that is looked for.
fn mount_of<'a>(line: &'a str, controller: &str) -> Option<&'a str> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let is_it = match controller {
        "" => kind.starts_with("cgroup2 "),
        controller => {
            let options = kind.rsplit(' ').next()?;
            kind.starts_with("cgroup ") && options.split(',').any(|one| one == controller)
        }
    };
    (is_it && root == "/").then_some(point)
}
