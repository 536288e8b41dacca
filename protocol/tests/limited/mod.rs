//! Runs one ignored test of this very binary again, under a limit of the shell's `ulimit`.

use std::env;
use std::process::{Command, Stdio};

/// Runs `test` alone in a process with this limit (`-n 64`, `-v 98304`) and expects it to pass.
pub(crate) fn run(limit: &str, test: &str) {
    let program = env::current_exe().expect("the test binary has a path");
    let output = Command::new("/bin/sh")
        .arg("-c")
        .arg(format!("ulimit {limit} && exec \"$0\" \"$@\""))
        .arg(program)
        .args([
            "--exact",
            test,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .expect("/bin/sh runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} under ulimit {limit}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
    );
}
