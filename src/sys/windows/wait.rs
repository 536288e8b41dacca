//! Waits for handles, and looks into pipes.

use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle, RawHandle};
use std::ptr;
use std::time::Duration;

use windows_sys::Win32::Foundation::{ERROR_BROKEN_PIPE, WAIT_OBJECT_0, WAIT_TIMEOUT};
use windows_sys::Win32::System::Pipes::PeekNamedPipe;
use windows_sys::Win32::System::Threading::{
    CreateEventW, INFINITE, SetEvent, WaitForMultipleObjects,
};

use super::{check, own};

/// A flag that can be waited for, and that stays set.
#[derive(Debug)]
pub(crate) struct Event(OwnedHandle);

impl Event {
    /// Creates one that is not set (`CreateEventW`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: without attributes and name, both may be null.
        let handle = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
        own(handle).map(Self)
    }

    /// Sets it (`SetEvent`).
    pub(crate) fn set(&self) {
        // SAFETY: the handle is open.
        let answer = unsafe { SetEvent(self.0.as_raw_handle()) };
        if let Err(error) = check(answer) {
            tracing::error!(%error, "event cannot be set");
        }
    }
}

impl AsHandle for Event {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.0.as_handle()
    }
}

/// Waits until one of a few handles is set or its process has exited, and gives its place; none
/// where the time was up first (`WaitForMultipleObjects`). A limit of more than 49 days is cut:
/// the caller looks at its own clock.
///
/// # Errors
///
/// What the system says.
pub(crate) fn wait_any(
    handles: &[BorrowedHandle<'_>],
    limit: Option<Duration>,
) -> io::Result<Option<usize>> {
    let raw: Vec<RawHandle> = handles.iter().map(AsRawHandle::as_raw_handle).collect();
    let count = u32::try_from(raw.len()).map_err(io::Error::other)?;
    // Rounded up, so that a wait never spins.
    let millis = limit.map(|limit| limit.as_nanos().div_ceil(1_000_000));
    let millis = millis.map_or(INFINITE, |millis| {
        u32::try_from(millis)
            .unwrap_or(INFINITE - 1)
            .min(INFINITE - 1)
    });
    // SAFETY: the handles are borrowed and so open, and there are as many as are told.
    let answer = unsafe { WaitForMultipleObjects(count, raw.as_ptr(), 0, millis) };
    match answer {
        WAIT_TIMEOUT => Ok(None),
        place if place.wrapping_sub(WAIT_OBJECT_0) < count => {
            Ok(usize::try_from(place.wrapping_sub(WAIT_OBJECT_0)).ok())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// How many bytes a pipe has to read; none at its end (`PeekNamedPipe`).
///
/// # Errors
///
/// What the system says.
pub(crate) fn available(pipe: BorrowedHandle<'_>) -> io::Result<Option<usize>> {
    let (nothing, none) = (ptr::null_mut(), ptr::null_mut());
    let mut count = 0;
    // SAFETY: the handle is borrowed and so open; nothing is read, and the count is written here.
    let answer = unsafe {
        PeekNamedPipe(
            pipe.as_raw_handle(),
            nothing,
            0,
            none,
            &raw mut count,
            ptr::null_mut(),
        )
    };
    match check(answer) {
        Ok(()) => Ok(usize::try_from(count).ok()),
        Err(error) if error.raw_os_error() == Some(ERROR_BROKEN_PIPE.cast_signed()) => Ok(None),
        Err(error) => Err(error),
    }
}
