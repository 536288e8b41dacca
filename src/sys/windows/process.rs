//! Processes that are held by a handle: their threads, times, exit codes and names.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::windows::ffi::OsStringExt;
use std::os::windows::io::{AsRawHandle, BorrowedHandle, OwnedHandle};
use std::path::PathBuf;
use std::time::Duration;

use windows_sys::Win32::Foundation::{ERROR_NO_MORE_FILES, FILETIME, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CREATE_TOOLHELP_SNAPSHOT_FLAGS, CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW,
    Process32NextW, TH32CS_SNAPPROCESS, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First,
    Thread32Next,
};
use windows_sys::Win32::System::SystemInformation::GetSystemDirectoryW;
use windows_sys::Win32::System::Threading::{
    GetExitCodeProcess, GetProcessTimes, OpenThread, ResumeThread, THREAD_SUSPEND_RESUME,
    TerminateProcess,
};

use super::{check, own, size};

/// What a process has used, and how long it lived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    /// From its creation to its exit.
    pub(crate) wall: Duration,
}

/// Resumes every thread of a process, and gives how many there are (`ResumeThread`). The caller
/// holds the process by a handle, so that the number is its own.
///
/// # Errors
///
/// What the system says of the first thread that cannot be resumed. `NotFound` where the process
/// has no thread.
pub(crate) fn resume(pid: u32) -> io::Result<usize> {
    let snapshot = snapshot(TH32CS_SNAPTHREAD)?;
    let mut entry = THREADENTRY32 {
        dwSize: size::<THREADENTRY32>(),
        ..THREADENTRY32::default()
    };
    let mut count = 0;
    // SAFETY: the snapshot is open, and the entry says its size.
    let mut answer = unsafe { Thread32First(snapshot.as_raw_handle(), &raw mut entry) };
    while is_there(answer)? {
        if entry.th32OwnerProcessID == pid {
            resume_thread(entry.th32ThreadID)?;
            count += 1;
        }
        // A shorter entry says that it is shorter.
        entry.dwSize = size::<THREADENTRY32>();
        // SAFETY: as above.
        answer = unsafe { Thread32Next(snapshot.as_raw_handle(), &raw mut entry) };
    }
    match count {
        0 => Err(io::ErrorKind::NotFound.into()),
        count => Ok(count),
    }
}

fn resume_thread(id: u32) -> io::Result<()> {
    // SAFETY: the call takes integers.
    let handle = unsafe { OpenThread(THREAD_SUSPEND_RESUME, 0, id) };
    let thread = own(handle)?;
    // SAFETY: the handle is open and has the right.
    let before = unsafe { ResumeThread(thread.as_raw_handle()) };
    if before == u32::MAX {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The names of the executables of all processes, by number (`Process32FirstW`). For a report.
///
/// # Errors
///
/// What the system says.
pub(crate) fn names() -> io::Result<HashMap<u32, OsString>> {
    let snapshot = snapshot(TH32CS_SNAPPROCESS)?;
    let mut entry = PROCESSENTRY32W {
        dwSize: size::<PROCESSENTRY32W>(),
        ..PROCESSENTRY32W::default()
    };
    let mut names = HashMap::new();
    // SAFETY: the snapshot is open, and the entry says its size.
    let mut answer = unsafe { Process32FirstW(snapshot.as_raw_handle(), &raw mut entry) };
    while is_there(answer)? {
        let name: Vec<u16> = entry
            .szExeFile
            .into_iter()
            .take_while(|&unit| unit != 0)
            .collect();
        names.insert(entry.th32ProcessID, OsString::from_wide(&name));
        // SAFETY: as above.
        answer = unsafe { Process32NextW(snapshot.as_raw_handle(), &raw mut entry) };
    }
    Ok(names)
}

fn snapshot(what: CREATE_TOOLHELP_SNAPSHOT_FLAGS) -> io::Result<OwnedHandle> {
    // SAFETY: the call takes integers.
    let handle = unsafe { CreateToolhelp32Snapshot(what, 0) };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    own(handle)
}

/// Whether a walk through a snapshot has come to an entry, and not to its end.
fn is_there(answer: i32) -> io::Result<bool> {
    match check(answer) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(ERROR_NO_MORE_FILES.cast_signed()) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The exit code of a process that has exited (`GetExitCodeProcess`).
///
/// # Errors
///
/// What the system says.
pub(crate) fn exit_code(process: BorrowedHandle<'_>) -> io::Result<u32> {
    let mut code = 0;
    // SAFETY: the handle is borrowed and so open; the code is written here.
    let answer = unsafe { GetExitCodeProcess(process.as_raw_handle(), &raw mut code) };
    check(answer).map(|()| code)
}

/// Ends one process with an exit code (`TerminateProcess`).
///
/// # Errors
///
/// `ERROR_ACCESS_DENIED` where it has exited; otherwise what the system says.
pub(crate) fn terminate(process: BorrowedHandle<'_>, code: u32) -> io::Result<()> {
    // SAFETY: the handle is borrowed and so open.
    let answer = unsafe { TerminateProcess(process.as_raw_handle(), code) };
    check(answer)
}

/// The times of a process that has exited (`GetProcessTimes`).
///
/// # Errors
///
/// What the system says.
pub(crate) fn times(process: BorrowedHandle<'_>) -> io::Result<Times> {
    let [mut created, mut exited, mut system, mut user] = [FILETIME::default(); 4];
    // SAFETY: the handle is borrowed and so open; the four times are written here.
    let answer = unsafe {
        GetProcessTimes(
            process.as_raw_handle(),
            &raw mut created,
            &raw mut exited,
            &raw mut system,
            &raw mut user,
        )
    };
    check(answer)?;
    Ok(Times {
        user: duration(ticks(user)),
        system: duration(ticks(system)),
        wall: duration(ticks(exited).saturating_sub(ticks(created))),
    })
}

/// Units of 100 nanoseconds.
fn ticks(time: FILETIME) -> u64 {
    u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)
}

fn duration(ticks: u64) -> Duration {
    Duration::from_nanos(ticks.saturating_mul(100))
}

/// The directory of the system's own programs (`GetSystemDirectoryW`), which no `PATH` names
/// and no user may write to.
///
/// # Errors
///
/// What the system says.
pub(crate) fn system_directory() -> io::Result<PathBuf> {
    /// `MAX_PATH`: the system's directory has no longer name.
    const LENGTH: u32 = 260;
    let mut name = [0_u16; LENGTH as usize];
    // SAFETY: there is room for as many units as are told.
    let length = unsafe { GetSystemDirectoryW(name.as_mut_ptr(), LENGTH) };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    match name.get(..length) {
        Some([]) => Err(io::Error::last_os_error()),
        Some(name) => Ok(OsString::from_wide(name).into()),
        None => Err(io::Error::other(
            "the system's directory has too long a name",
        )),
    }
}
