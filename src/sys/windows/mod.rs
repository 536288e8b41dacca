#![expect(unsafe_code, reason = "calls of Windows that std does not offer")]
//! Calls of Windows that std does not offer: jobs, threads of a process, waits, pipes.
//!
//! Each wrapper names its calls. Nothing here decides. A process is meant by its handle alone,
//! but for its threads, which are found by its number: there the caller holds the handle, so
//! that the number is nobody else's.

mod job;
mod process;
mod wait;

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::windows::io::{FromRawHandle, OwnedHandle, RawHandle};

pub(crate) use job::Job;
pub(crate) use process::{exit_code, names, resume, system_directory, terminate, times};
pub(crate) use wait::{Event, available, wait_any};

/// The result of a call that answers with a boolean.
fn check(answer: i32) -> io::Result<()> {
    if answer == 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Takes a handle that a call has just made; null where it failed.
fn own(handle: RawHandle) -> io::Result<OwnedHandle> {
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every caller passes what the system has just returned and nobody else knows of.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// The size of a structure, as calls take it.
fn size<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX)
}

/// Removes a variable from the environment of this process (`SetEnvironmentVariableW`).
pub(crate) fn remove_variable(name: &OsStr) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the system itself guards the environment on this platform"
    )]
    // SAFETY: on Windows the call may be made beside any number of threads, as std documents.
    unsafe {
        env::remove_var(name);
    }
}
