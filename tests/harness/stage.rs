//! What one test owns: its tag, its scratch folder, and the look at its end.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use foster_protocol::{Bytes, LevelChoice, Micros, Spec};
use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::launch::Launch;
use crate::levels::level;
use crate::link::Link;
use crate::places;
use crate::scan::{TAG, assert_nothing_left};

/// The search path of every command.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The grace of every command of which its test does not say otherwise, in microseconds.
const GRACE: Micros = Micros(300_000);

static COUNT: AtomicU64 = AtomicU64::new(0);

/// The ground under one test. Everything that it starts carries its tag; dropping it asserts
/// that nothing with this tag is left. It is made first, so that it is dropped last.
#[derive(Debug)]
pub struct Stage {
    tag: String,
    scratch: TempDir,
}

impl Stage {
    /// Creates one with a tag that no other test has.
    ///
    /// # Panics
    ///
    /// Where no scratch folder can be made.
    #[must_use]
    pub fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a scratch folder");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = scratch
            .path()
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let tag = format!("stage-{}-{count}-{folder}", std::process::id());
        Self { tag, scratch }
    }

    /// The tag.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The scratch folder.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The tag as an environment entry.
    #[must_use]
    pub fn tag_entry(&self) -> Bytes {
        Bytes::from(format!("{TAG}={}", self.tag).as_str())
    }

    /// A launch of the helper under test, to be changed before it is done.
    #[must_use]
    pub fn launch(&self) -> Launch {
        Launch::new(self.tag.clone(), places::helper())
    }

    /// Launches the helper under test and says hello.
    #[must_use]
    pub fn link(&self) -> Link {
        self.launch().greeted()
    }

    /// A command: the program and its arguments behind its name.
    #[must_use]
    pub fn command(&self, program: &str, args: &[&str]) -> Spec {
        let all = std::iter::once(program).chain(args.iter().copied());
        Spec {
            program: Bytes::from(program),
            args: all.map(Bytes::from).collect(),
            env: vec![Bytes::from(PATH), self.tag_entry()],
            grace: GRACE,
            level: LevelChoice::Exactly(level()),
            ..Spec::default()
        }
    }

    /// A command of the shell. Its `$0` is the tag.
    #[must_use]
    pub fn sh(&self, script: &str) -> Spec {
        self.command("/bin/sh", &["-c", script, &self.tag])
    }

    /// A command that says `ready` and sleeps for a minute.
    #[must_use]
    pub fn sleeper(&self) -> Spec {
        self.sh("echo ready; exec sleep 60")
    }

    /// A command of bash, for job control. Its `$0` is the tag.
    #[must_use]
    pub fn bash(&self, script: &str) -> Spec {
        self.command("/bin/bash", &["-c", script, &self.tag])
    }

    /// A fixture and its arguments.
    ///
    /// # Panics
    ///
    /// Where it was not built.
    #[must_use]
    pub fn fixture(&self, name: &str, args: &[&str]) -> Spec {
        let path = places::fixture(name);
        self.command(path.to_str().expect("a path of text"), args)
    }
}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A test that is failing has said why; a second panic would hide it.
        if !std::thread::panicking() {
            assert_nothing_left(&self.tag);
        }
    }
}

/// Whether this is root.
#[must_use]
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Says which condition is missing for a test, or for a part of it, that cannot run here.
#[expect(
    clippy::print_stderr,
    reason = "a test never passes silently without having run"
)]
pub fn note_not_run(what: &str, missing: &str) {
    eprintln!("not run here: {what}: {missing}");
}
