#![expect(
    unsafe_code,
    reason = "a process that is not a child is held by its number here"
)]
//! Holding processes that are no children of the test.

use std::io;
use std::os::windows::io::{AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::time::Duration;

use windows_sys::Win32::Foundation::{WAIT_OBJECT_0, WAIT_TIMEOUT};
use windows_sys::Win32::System::Threading::{
    OpenProcess, PROCESS_SYNCHRONIZE, PROCESS_TERMINATE, TerminateProcess, WaitForSingleObject,
};

/// Opens a process that somebody else holds, so that the number is its own.
pub(crate) fn open(pid: u32) -> io::Result<OwnedHandle> {
    // SAFETY: the call takes integers.
    let handle = unsafe { OpenProcess(PROCESS_SYNCHRONIZE | PROCESS_TERMINATE, 0, pid) };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just returned this handle and nobody else knows of it.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Whether a process exits within a time.
pub(crate) fn exits(process: BorrowedHandle<'_>, within: Duration) -> bool {
    let millis = u32::try_from(within.as_millis()).expect("a short time");
    // SAFETY: the handle is borrowed and so open.
    match unsafe { WaitForSingleObject(process.as_raw_handle(), millis) } {
        WAIT_OBJECT_0 => true,
        WAIT_TIMEOUT => false,
        _ => panic!("wait: {}", io::Error::last_os_error()),
    }
}

/// Ends a process that the test has started, by itself or through others.
pub(crate) fn end(process: BorrowedHandle<'_>) {
    // SAFETY: the handle is borrowed and so open. A process that has exited stays as it is.
    let _has_exited = unsafe { TerminateProcess(process.as_raw_handle(), 1) };
}
