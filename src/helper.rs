//! A handle on a running helper.

use std::fmt;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foster_protocol::{
    Capabilities, Counters, Farewell, Micros, Orphan, Reply, Request, Seal, SessionInfo,
};

use crate::connection::{Connection, Refusal};
use crate::error::{During, Error, ErrorKind, Loss, Repr, Result};
use crate::launch::{HelperBuilder, HelperProcess, Origin};
use crate::watch;

/// The helper that is used by commands that name none.
static GLOBAL: Mutex<Option<Helper>> = Mutex::new(None);

/// How long a helper that has said farewell may take to exit. It has nothing left to do.
const EXIT_LIMIT: Duration = Duration::from_secs(1);

/// A handle on a running helper. Clones share it.
///
/// When the last handle is dropped, those in its commands, children and sessions included,
/// the helper ends every session that was not released, and then itself. The drop does not
/// wait for that.
///
/// A process that is forked from the host cannot use the handle: its calls fail as with a
/// lost helper, and dropping it there does nothing.
#[derive(Clone)]
pub struct Helper {
    inner: Arc<Inner>,
}

struct Inner {
    connection: Connection,
    process: Mutex<Option<HelperProcess>>,
    id: u32,
    capabilities: Capabilities,
    origin: Origin,
    /// What it was sealed to, for one that is launched in its place.
    seal: Mutex<Option<Seal>>,
    is_watched: AtomicBool,
}

/// What a helper holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// Every session with a record.
    pub sessions: Vec<SessionInfo>,
    /// Adopted orphans that no session can be shown to own.
    pub unattributed: Vec<Orphan>,
}

impl Helper {
    /// Starts to configure a launch.
    pub fn builder() -> HelperBuilder {
        HelperBuilder::new()
    }

    /// Launches a helper from the first place that has one.
    ///
    /// # Errors
    ///
    /// As [`HelperBuilder::launch`].
    pub fn launch() -> Result<Self> {
        Self::builder().launch()
    }

    /// Returns the process-wide helper. It is launched at the first use, and again, as by
    /// [`relaunch`](Self::relaunch), after it was lost.
    ///
    /// # Errors
    ///
    /// As [`HelperBuilder::launch`].
    pub fn global() -> Result<Self> {
        let mut global = GLOBAL.lock().unwrap_or_else(PoisonError::into_inner);
        let helper = match &*global {
            Some(helper) if !helper.is_lost() => return Ok(helper.clone()),
            Some(lost) => lost.relaunch()?,
            None => Self::launch()?,
        };
        *global = Some(helper.clone());
        Ok(helper)
    }

    pub(crate) fn new(
        connection: Connection,
        process: HelperProcess,
        capabilities: Capabilities,
        origin: Origin,
    ) -> Self {
        let id = process.id();
        let process = Mutex::new(Some(process));
        Self {
            inner: Arc::new(Inner {
                connection,
                process,
                id,
                capabilities,
                origin,
                seal: Mutex::new(None),
                is_watched: AtomicBool::new(false),
            }),
        }
    }

    /// Returns the helper's process id. It says who was meant; it is never a licence to
    /// signal.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.inner.id
    }

    /// Returns what the helper can do on this kernel.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    /// Asks the helper whether it is there, and returns its counters.
    ///
    /// # Errors
    ///
    /// [`HelperSilent`](crate::ErrorKind::HelperSilent) where it does not answer within the
    /// builder's [`timeout`](HelperBuilder::timeout).
    pub fn ping(&self) -> Result<Counters> {
        let Reply::Pong { counters } = self.ask_quickly(Request::Ping)? else {
            return Err(self.breach());
        };
        Ok(counters)
    }

    /// Returns every session that the helper has a record of, and the orphans that it cannot
    /// attribute.
    ///
    /// # Errors
    ///
    /// As [`ping`](Self::ping).
    pub fn list(&self) -> Result<Listing> {
        let Reply::Sessions {
            sessions,
            unattributed,
        } = self.ask_quickly(Request::List)?
        else {
            return Err(self.breach());
        };
        Ok(Listing {
            sessions,
            unattributed,
        })
    }

    /// Seals what the helper may be asked for, for the rest of its life.
    ///
    /// # Errors
    ///
    /// Rejected where it is not the first request of all. As [`ping`](Self::ping) otherwise.
    pub fn restrict(&self, seal: Seal) -> Result<()> {
        let kept = seal.clone();
        let Reply::Restricted = self.ask_quickly(Request::Restrict { seal })? else {
            return Err(self.breach());
        };
        *self.seal() = Some(kept);
        Ok(())
    }

    /// Launches a fresh helper from the same place and with the same settings, to go on with
    /// after this one was lost or shut down.
    ///
    /// It is sealed as this one was, and [watched](Self::watch) if this one was. It has no log,
    /// and what it may do is what this process may do now: a host that has given up privileges
    /// gets a helper without them. This handle and its sessions stay as they are; what has
    /// become of those is what their errors say.
    ///
    /// # Errors
    ///
    /// As [`HelperBuilder::launch`] and [`restrict`](Self::restrict).
    pub fn relaunch(&self) -> Result<Self> {
        let helper = HelperBuilder::from(self.inner.origin.clone()).launch()?;
        let seal = self.seal().clone();
        if let Some(seal) = seal {
            helper.restrict(seal)?;
        }
        if self.inner.is_watched.load(Ordering::Relaxed) {
            helper.watch()?;
        }
        Ok(helper)
    }

    /// Starts a thread that acts on the loss of the helper at once.
    ///
    /// Without it, a loss that comes while nobody waits is acted on at the next call or drop:
    /// what is left of the helper's sessions lives until then. The thread sleeps until the
    /// helper is lost or its last handle is dropped, handles no signals, and ends then. A second
    /// call does nothing.
    ///
    /// # Errors
    ///
    /// [`HelperLost`](crate::ErrorKind::HelperLost) where it is lost already, and where the
    /// system has no room for a thread or a descriptor.
    pub fn watch(&self) -> Result<()> {
        let connection = &self.inner.connection;
        if let Some(loss) = connection.loss() {
            return Err(Error::lost(During::Request, loss));
        }
        if self.inner.is_watched.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let inner = Arc::downgrade(&self.inner);
        let started = connection.watched().and_then(|(socket, process)| {
            watch::start(socket, process, move || {
                // None: the last handle was dropped, and the helper ends what it has.
                inner
                    .upgrade()
                    .is_none_or(|inner| inner.connection.loss().is_some())
            })
        });
        started.map_err(|error| {
            self.inner.is_watched.store(false, Ordering::Relaxed);
            Error::system("helper cannot be watched", error)
        })
    }

    /// Ends every session that was not released, and then the helper. Returns what it did;
    /// survivors are named. Every other call on this helper fails from then on.
    ///
    /// # Errors
    ///
    /// [`EndUnknown`](crate::ErrorKind::EndUnknown) where the helper is lost before its
    /// farewell.
    pub fn shutdown(&self, grace: Duration) -> Result<Farewell> {
        self.shut_down(grace, None)
    }

    /// As [`shutdown`](Self::shutdown), but gives up on a helper that takes longer than this.
    pub(crate) fn shutdown_within(&self, grace: Duration, limit: Duration) -> Result<Farewell> {
        self.shut_down(grace, Instant::now().checked_add(limit))
    }

    fn shut_down(&self, grace: Duration, deadline: Option<Instant>) -> Result<Farewell> {
        let request = Request::Shutdown {
            grace: Micros::from(grace),
        };
        let Reply::Farewell { report } = self.ask_until(request, During::End, deadline)? else {
            return Err(self.breach());
        };
        self.inner.connection.retire();
        if let Some(mut process) = self.take_process() {
            // A helper that takes longer is collected when the next one is launched.
            if process.exit_within(EXIT_LIMIT).is_none() {
                process.park();
            }
        }
        Ok(report)
    }

    /// Whether the helper is gone. It never blocks.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.inner.connection.loss().is_some()
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.inner.connection
    }

    /// Asks and waits for the answer for a time. A silence leaves as much unknown as a loss.
    pub(crate) fn ask_within(
        &self,
        request: Request,
        during: During,
        limit: Duration,
    ) -> Result<Reply> {
        let deadline = Instant::now().checked_add(limit);
        match self.ask_until(request, during, deadline) {
            Err(error) if error.kind() == ErrorKind::HelperSilent && during != During::Request => {
                Err(Error::lost(during, Loss::Silent(limit)))
            }
            outcome => outcome,
        }
    }

    /// How long an answer may take that the helper gives at once.
    pub(crate) fn limit(&self) -> Duration {
        self.inner.origin.timeout
    }

    /// Asks for something that the helper answers at once.
    fn ask_quickly(&self, request: Request) -> Result<Reply> {
        let deadline = Instant::now().checked_add(self.inner.origin.timeout);
        self.ask_until(request, During::Request, deadline)
    }

    /// Asks and waits for the answer. A refusal is an error.
    fn ask_until(
        &self,
        request: Request,
        during: During,
        deadline: Option<Instant>,
    ) -> Result<Reply> {
        let ticket = match self.inner.connection.request(request, Vec::new()) {
            Ok(ticket) => ticket,
            Err(Refusal::Lost(loss)) => return Err(Error::lost(during, loss)),
            Err(Refusal::Encode(error)) => return Err(Repr::Unsendable(error).into()),
        };
        match ticket
            .wait(deadline)
            .map_err(|loss| Error::lost(during, loss))?
        {
            Some(Reply::Rejected { reason }) => Err(Error::rejected(reason)),
            Some(reply) => Ok(reply),
            None => Err(Repr::HelperSilent {
                limit: self.inner.origin.timeout,
            }
            .into()),
        }
    }

    fn breach(&self) -> Error {
        let loss: Loss = self.inner.connection.breach();
        Error::lost(During::Request, loss)
    }

    fn seal(&self) -> MutexGuard<'_, Option<Seal>> {
        self.inner
            .seal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn take_process(&self) -> Option<HelperProcess> {
        self.inner
            .process
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl fmt::Debug for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Helper")
            .field("id", &self.inner.id)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let process = self
            .process
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(process) = process {
            tracing::debug!(
                helper = self.id,
                host = process::id(),
                "last handle dropped"
            );
            // The socket is shut after this, so the helper is still there: it is collected
            // when the next one is launched or dropped.
            process.park();
        }
        self.connection.hang_up();
    }
}
