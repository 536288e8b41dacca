//! Spawners of the test's own process, their helpers, and commands that leave marks.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use foster::{Child, Command, Fallback, Helper, Level, LevelChoice, Spawner, Stdio};
use foster_tests::{SETTLE, Stage, TAG, Witness, places};

/// The time between TERM and KILL of every command here.
pub(crate) const GRACE: Duration = Duration::from_millis(300);

/// How long a call may take that has nothing to wait for, on a machine that has much to do: far
/// less than what it would wait for if it did.
pub(crate) const SOON: Duration = Duration::from_secs(15);

/// A spawner on the helper under test.
pub(crate) fn spawner() -> Spawner {
    Spawner::new().path(places::fixture("helper-under-test"))
}

/// A spawner whose helper is this script, which may execute `$HELPER` or `$MISHELPER`. Each
/// start leaves a line in the log.
pub(crate) fn scripted(stage: &Stage, script: &str) -> (Spawner, PathBuf) {
    let log = stage.scratch().join("starts");
    let path = stage.scratch().join("scripted-helper");
    let text = format!(
        "#!/bin/sh\nLOG='{}'\nHELPER='{}'\nMISHELPER='{}'\necho start >> \"$LOG\"\n{script}\n",
        log.display(),
        places::fixture("helper-under-test").display(),
        places::fixture("runs-then-dies").display(),
    );
    // The tests' own forks may hold a file open for writing for a moment, so it is written by
    // a process of its own.
    let status = std::process::Command::new("sh")
        .args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""])
        .arg(&path)
        .arg(text)
        .status();
    assert!(status.expect("a shell").success());
    (Spawner::new().path(path), log)
}

/// How many lines a file has; none where it is not there.
pub(crate) fn lines(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// A command of the shell, with nothing on its streams.
pub(crate) fn sh(stage: &Stage, script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", script])
        .env(TAG, stage.tag())
        .grace(GRACE)
        .stdin(Stdio::null());
    command
}

/// The same, to be run without a helper.
pub(crate) fn direct(stage: &Stage, script: &str) -> Command {
    let mut command = sh(stage, script);
    command.level(LevelChoice::Exactly(Level::Direct));
    command
}

/// A command that leaves a line in the file each time that it runs.
pub(crate) fn marking(stage: &Stage) -> (Command, PathBuf) {
    let marker = stage.scratch().join("marker");
    let mut command = sh(stage, "echo ran >> \"$0\"");
    command.arg(&marker);
    (command, marker)
}

/// Spawns what has to work.
pub(crate) fn spawn(spawner: &Spawner, command: &Command) -> Child {
    spawner
        .spawn(command, Fallback::Direct)
        .expect("the command")
}

/// The helper of a spawner, as a process that can be watched and signalled.
pub(crate) fn witness(helper: &Helper) -> Witness {
    Witness::of(i32::try_from(helper.id()).expect("a pid fits"))
}

/// Kills a helper and waits for its death.
pub(crate) fn kill(helper: &Witness) {
    helper.signal(libc::SIGKILL);
    helper.wait_for_death(SETTLE);
}

/// The leader of a child that is known to be unreaped.
pub(crate) fn leader(child: &Child) -> Witness {
    Witness::of(i32::try_from(child.id()).expect("a pid fits"))
}
