//! Job objects: what holds a process together with everything that it starts.

use std::io;
use std::mem;
use std::os::windows::io::{AsRawHandle, BorrowedHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::ERROR_MORE_DATA;
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectBasicAccountingInformation, JobObjectBasicProcessIdList,
    JobObjectExtendedLimitInformation, QueryInformationJobObject, SetInformationJobObject,
    TerminateJobObject,
};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

use super::{check, own, size};

/// The most members that one question answers.
const MOST: usize = 256;

/// A job without a name, whose handle nobody inherits.
#[derive(Debug)]
pub(crate) struct Job(OwnedHandle);

/// `JOBOBJECT_BASIC_PROCESS_ID_LIST` with room for some.
#[repr(C)]
struct Members {
    assigned: u32,
    listed: u32,
    ids: [usize; MOST],
}

impl Job {
    /// Creates an empty job (`CreateJobObjectW`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: without attributes and name, both may be null.
        let handle = unsafe { CreateJobObjectW(ptr::null(), ptr::null()) };
        own(handle).map(Self)
    }

    /// Says whether the members are ended when the last handle is closed, in whatever way
    /// (`SetInformationJobObject`, `JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE`). No other limit is set,
    /// so that nobody may break away.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(crate) fn kill_on_close(&self, kill: bool) -> io::Result<()> {
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        if kill {
            limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        }
        // SAFETY: the handle is open, and the structure is the one of this class and lives here.
        let answer = unsafe {
            SetInformationJobObject(
                self.0.as_raw_handle(),
                JobObjectExtendedLimitInformation,
                (&raw const limits).cast(),
                size::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>(),
            )
        };
        check(answer)
    }

    /// Puts a process into the job (`AssignProcessToJobObject`).
    ///
    /// # Errors
    ///
    /// `ERROR_ACCESS_DENIED` where a job that it is in allows no other inside; otherwise what
    /// the system says.
    pub(crate) fn assign(&self, process: BorrowedHandle<'_>) -> io::Result<()> {
        // SAFETY: both handles are open: one is owned here, the other one borrowed.
        let answer =
            unsafe { AssignProcessToJobObject(self.0.as_raw_handle(), process.as_raw_handle()) };
        check(answer)
    }

    /// Puts this process into the job.
    ///
    /// # Errors
    ///
    /// As [`assign`](Self::assign).
    pub(crate) fn assign_this_process(&self) -> io::Result<()> {
        // SAFETY: the call takes nothing, and its pseudo handle is never closed.
        let this = unsafe { GetCurrentProcess() };
        // SAFETY: the job's handle is open, and the pseudo handle always is.
        let answer = unsafe { AssignProcessToJobObject(self.0.as_raw_handle(), this) };
        check(answer)
    }

    /// Ends every member, with this exit code (`TerminateJobObject`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(crate) fn terminate(&self, code: u32) -> io::Result<()> {
        // SAFETY: the handle is open.
        let answer = unsafe { TerminateJobObject(self.0.as_raw_handle(), code) };
        check(answer)
    }

    /// How many members have not exited (`QueryInformationJobObject`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(crate) fn active(&self) -> io::Result<u32> {
        let mut accounting = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        // SAFETY: the handle is open, the structure is the one of this class, and its size is
        // the one that is told.
        let answer = unsafe {
            QueryInformationJobObject(
                self.0.as_raw_handle(),
                JobObjectBasicAccountingInformation,
                (&raw mut accounting).cast(),
                size::<JOBOBJECT_BASIC_ACCOUNTING_INFORMATION>(),
                ptr::null_mut(),
            )
        };
        check(answer)?;
        Ok(accounting.ActiveProcesses)
    }

    /// The numbers of the members, 256 at most (`QueryInformationJobObject`). They are for a
    /// report: who has them may change at once.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(crate) fn members(&self) -> io::Result<Vec<u32>> {
        let mut members = Members {
            assigned: 0,
            listed: 0,
            ids: [0; MOST],
        };
        // SAFETY: the handle is open, the structure begins as the one of this class does, and
        // its size is the one that is told.
        let answer = unsafe {
            QueryInformationJobObject(
                self.0.as_raw_handle(),
                JobObjectBasicProcessIdList,
                (&raw mut members).cast(),
                size::<Members>(),
                ptr::null_mut(),
            )
        };
        match check(answer) {
            // There are more members than room: those that fit are there.
            Err(error) if error.raw_os_error() == Some(ERROR_MORE_DATA.cast_signed()) => {}
            outcome => outcome?,
        }
        let listed = usize::try_from(members.listed).unwrap_or(MOST).min(MOST);
        let ids = members.ids.get(..listed).unwrap_or_default();
        Ok(ids
            .iter()
            .filter_map(|&id| u32::try_from(id).ok())
            .collect())
    }

    /// Keeps the handle open for as long as this process lives.
    pub(crate) fn leak(self) {
        mem::forget(self.0);
    }
}
