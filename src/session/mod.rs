//! A shareable handle on one session, whoever supervises it.

#[cfg(target_os = "linux")]
mod helped;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[cfg(target_os = "linux")]
use foster_protocol::Level;
use foster_protocol::{Containment, Ending, Exit, Pid, SessionId, Target, Verdict};

use crate::direct::{Direct, Failed};
use crate::ended::Ended;
use crate::error::{During, Error, ErrorKind, Loss, Result};
use crate::notice::Notice;

#[cfg(not(target_os = "linux"))]
use crate::elsewhere::Helped;
#[cfg(target_os = "linux")]
pub(crate) use helped::Helped;

/// A handle on a session that can be cloned and shared between threads.
///
/// Every method takes `&self` and works while other threads wait. The session is closed when
/// its [`Child`](crate::Child) is dropped: what was waited for by then still comes, and
/// anything else is rejected.
#[derive(Clone)]
pub struct Session {
    kind: Kind,
    noted: Arc<Mutex<Option<Notice>>>,
}

/// Who supervises the session.
#[derive(Clone)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "there are no helpers there")
)]
enum Kind {
    /// A helper.
    Helped(Helped),
    /// This process.
    Direct(Direct),
    /// A helper that did not say whether it was started.
    Unknown(Arc<Unknown>),
}

/// A session of which nothing is known.
struct Unknown {
    loss: Loss,
    containment: Containment,
}

impl Session {
    fn new(kind: Kind, notice: Option<Notice>) -> Self {
        Self {
            kind,
            noted: Arc::new(Mutex::new(notice)),
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn helped(session: Helped) -> Self {
        Self::new(Kind::Helped(session), None)
    }

    pub(crate) fn direct(session: Direct, notice: Option<Notice>) -> Self {
        Self::new(Kind::Direct(session), notice)
    }

    /// A session whose spawn was sent and not answered.
    #[cfg(target_os = "linux")]
    pub(crate) fn unknown(loss: Loss) -> Self {
        let containment = Containment {
            level: Level::Direct,
            missing: Vec::new(),
        };
        let kind = Kind::Unknown(Arc::new(Unknown { loss, containment }));
        Self::new(kind, Some(Notice::StartUnknown))
    }

    /// Returns the session's id at its helper; 0 where it has none.
    #[must_use]
    pub fn id(&self) -> SessionId {
        match &self.kind {
            Kind::Helped(session) => session.id(),
            Kind::Direct(_) | Kind::Unknown(_) => SessionId(0),
        }
    }

    /// Returns the leader's process id; 0 where it is not known. It says who was meant; it is
    /// never a licence to signal.
    #[must_use]
    pub fn pid(&self) -> Pid {
        match &self.kind {
            Kind::Helped(session) => session.pid(),
            Kind::Direct(session) => session.pid(),
            Kind::Unknown(_) => Pid(0),
        }
    }

    /// Returns what contains the session: at least this.
    #[must_use]
    pub fn containment(&self) -> &Containment {
        match &self.kind {
            Kind::Helped(session) => session.containment(),
            Kind::Direct(session) => session.containment(),
            Kind::Unknown(unknown) => &unknown.containment,
        }
    }

    /// Returns a pidfd of the leader (`pidfd_open(2)`), where the kernel has pidfds and this
    /// process had room for it.
    #[must_use]
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Helped(session) => session.pidfd(),
            Kind::Direct(session) => session.pidfd(),
            Kind::Unknown(_) => None,
        }
    }

    /// Returns what there is to tell whoever sees the command's result: the last of what has
    /// become of its supervision, and none where all is well.
    #[must_use]
    pub fn notice(&self) -> Option<Notice> {
        let noted = *self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.kind {
            Kind::Helped(session) if noted.is_none() && session.is_exit_lost() => {
                Some(Notice::ExitUnknown)
            }
            Kind::Helped(_) | Kind::Direct(_) | Kind::Unknown(_) => noted,
        }
    }

    /// Sends one signal and returns how many processes it was sent to.
    ///
    /// # Errors
    ///
    /// Rejected where the number is no signal or the session is past its end.
    pub fn signal(&self, number: i32, to: Target) -> Result<u32> {
        match &self.kind {
            Kind::Helped(session) => session.signal(number, to),
            Kind::Direct(session) => session.signal(number, to),
            Kind::Unknown(unknown) => Err(unknown.error()),
        }
    }

    /// Ends the tree: the first signal to every member, KILL after the grace to those who are
    /// left. Returns when the tree has ended, or with the survivors named.
    ///
    /// A second call joins the first and can only shorten its grace. Where the session has
    /// ended already, its ending is returned.
    ///
    /// # Errors
    ///
    /// Rejected where the session was released.
    pub fn end(&self, first: i32, grace: Duration) -> Result<Ending> {
        let ended = match &self.kind {
            Kind::Helped(session) => session.end(first, grace),
            Kind::Direct(session) => session.end(first, grace),
            Kind::Unknown(unknown) => Err(unknown.error()),
        };
        self.note_end(&ended);
        ended
    }

    /// Waits for the leader's exit; none where the time was up first.
    ///
    /// # Errors
    ///
    /// [`ExitUnknown`](crate::ErrorKind::ExitUnknown) where the helper is lost before, or,
    /// without a helper, where something else in this process collected the exit.
    pub fn wait_exit(&self, timeout: Option<Duration>) -> Result<Option<Exit>> {
        let exit = match &self.kind {
            Kind::Helped(session) => session.wait_exit(timeout),
            Kind::Direct(session) => session.wait_exit(timeout),
            Kind::Unknown(unknown) => Err(unknown.error()),
        };
        self.note_error(exit.as_ref().err());
        exit
    }

    /// Waits for the session's end; none where the time was up first.
    ///
    /// # Errors
    ///
    /// [`EndUnknown`](crate::ErrorKind::EndUnknown) where the helper is lost before.
    pub fn wait_end(&self, timeout: Option<Duration>) -> Result<Option<Ended>> {
        let ended = match &self.kind {
            Kind::Helped(session) => session.wait_end(timeout),
            Kind::Direct(session) => session.wait_end(timeout),
            Kind::Unknown(unknown) => Err(unknown.error()),
        };
        match &ended {
            Ok(Some(Ended::Ending(ending))) => self.note_verdict(ending),
            Ok(Some(Ended::Released { .. }) | None) => {}
            Err(error) => self.note_error(Some(error)),
        }
        ended
    }

    /// Lets the rest of the session go, and returns how many members still run, the leader
    /// included.
    ///
    /// # Errors
    ///
    /// Rejected where the leader runs and the command was not spawned
    /// [`detachable`](crate::Command::detachable), or where the session is being ended.
    pub fn release(&self) -> Result<u32> {
        let released = match &self.kind {
            Kind::Helped(session) => session.release(),
            Kind::Direct(session) => session.release(),
            Kind::Unknown(unknown) => Err(unknown.error()),
        };
        self.note_error(released.as_ref().err());
        released
    }

    /// Lets a gated child go. Outside, what went wrong with the link; inside, with the spawn.
    pub(crate) fn open(&self, within: Option<Duration>) -> Result<std::result::Result<(), Failed>> {
        match &self.kind {
            Kind::Helped(session) => session.open(within),
            Kind::Direct(session) => Ok(session.open()),
            Kind::Unknown(unknown) => Err(unknown.error()),
        }
    }

    /// What hangs up when its supervisor is lost.
    pub(crate) fn supervisor(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Helped(session) => Some(session.supervisor()),
            Kind::Direct(_) | Kind::Unknown(_) => None,
        }
    }

    /// Closes the session without waiting. Handles that are still held learn of its end.
    pub(crate) fn close(&self) {
        match &self.kind {
            Kind::Helped(session) => session.close(),
            Kind::Direct(session) => session.close(),
            // Its close was sent when it was given up.
            Kind::Unknown(_) => {}
        }
    }

    /// The exit, if it has come.
    pub(crate) fn exit(&self) -> Option<Exit> {
        match &self.kind {
            Kind::Helped(session) => session.exit(),
            Kind::Direct(session) => session.exit(),
            Kind::Unknown(_) => None,
        }
    }

    fn note_end(&self, ended: &Result<Ending>) {
        match ended {
            Ok(ending) => self.note_verdict(ending),
            Err(error) => self.note_error(Some(error)),
        }
    }

    fn note_verdict(&self, ending: &Ending) {
        if ending.verdict == Verdict::Incomplete {
            self.note(Notice::EndUnconfirmed);
        }
    }

    /// Notes what an error tells. An end that is not known matters less than an exit that is
    /// not.
    fn note_error(&self, error: Option<&Error>) {
        let Some(error) = error else { return };
        let Some(notice) = error.notice() else { return };
        if error.kind() == ErrorKind::EndUnknown && self.notice() == Some(Notice::ExitUnknown) {
            return;
        }
        self.note(notice);
    }

    /// What is noted first of all stays where nothing is known.
    fn note(&self, notice: Notice) {
        if let Kind::Helped(_) | Kind::Direct(_) = self.kind {
            *self.noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(notice);
        }
    }
}

impl Unknown {
    fn error(&self) -> Error {
        Error::lost(During::Spawn, self.loss.clone())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id())
            .field("pid", &self.pid())
            .field("containment", self.containment())
            .finish_non_exhaustive()
    }
}
