//! The fallback for a command that is in no job: the system's own `taskkill`.

use std::io;
use std::os::windows::io::AsHandle;
use std::os::windows::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::sys;

/// How long `taskkill` may take: as long as an ending waits for those who are left.
const LIMIT: Duration = super::ending::HARD_LIMIT;

/// `CREATE_NO_WINDOW`: a host without a console opens none for it.
const NO_WINDOW: u32 = 0x0800_0000;

/// Ends a process and what it has started, as far as their parents still live (`taskkill /T /F`).
/// The caller holds the process by a handle, so that the number is its own.
///
/// # Errors
///
/// Where `taskkill` cannot be run, does not return in time, or says that it has failed.
pub(super) fn kill_by_number(pid: u32) -> io::Result<()> {
    let mut taskkill = Command::new(sys::system_directory()?.join("taskkill.exe"))
        .args(["/T", "/F", "/PID"])
        .arg(pid.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .creation_flags(NO_WINDOW)
        .spawn()?;
    if sys::wait_any(&[taskkill.as_handle()], Some(LIMIT))?.is_none() {
        taskkill.kill()?;
        return Err(io::ErrorKind::TimedOut.into());
    }
    match taskkill.wait()? {
        status if status.success() => Ok(()),
        status => Err(io::Error::other(format!("taskkill: {status}"))),
    }
}
