//! A helper of the test's own process, and commands on it.

use foster::{Command, Helper, LevelChoice, Stdio};
use foster_tests::{Stage, TAG, places};

use crate::shapes::GRACE;

/// Launches a helper.
pub(crate) fn helper() -> Helper {
    Helper::builder()
        .path(places::fixture("helper-under-test"))
        .launch()
        .expect("the helper")
}

/// A command that carries the tag, with the grace of the matrix and nothing on its streams.
pub(crate) fn command(stage: &Stage, helper: &Helper, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env(TAG, stage.tag())
        .grace(GRACE)
        .stdin(Stdio::null())
        .helper(helper);
    // Where no level is named, it is what a user gets.
    if std::env::var_os("FOSTER_TEST_LEVEL").is_some() {
        command.level(LevelChoice::Exactly(foster_tests::level()));
    }
    command
}

/// A command of the shell.
pub(crate) fn sh(stage: &Stage, helper: &Helper, script: &str) -> Command {
    let mut command = command(stage, helper, "/bin/sh");
    command.args(["-c", script]);
    command
}

/// The helper's process id.
pub(crate) fn pid(helper: &Helper) -> i32 {
    i32::try_from(helper.id()).expect("a pid fits")
}
