//! Spawning for hosts that must not fail for want of a helper, and for those that must.
//!
//! Keeps one helper, launches it again when it is lost, and decides what happens to a command
//! when there is none. It must never run a command twice, never run one directly that may have
//! run already, and never run one unhelped without saying so.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::child::Child;
use crate::command::{Command, Defaults, Failure, How, Made};
use crate::error::{Attempt, Error, Repr, Result};
use crate::fallback::Fallback;
use crate::gate::Gate;
use crate::helper::Helper;
use crate::notice::Notice;
use crate::output::Output;

/// How long a helper's hello, and its answer to a spawn, may take where the host does not say.
const LIMIT: Duration = Duration::from_secs(5);

/// How often one call launches a helper where there was none, and where one has died.
const FIRST_LAUNCHES: u32 = 2;
const RELAUNCHES: u32 = 1;

/// Spawns commands through one helper, and has a rule for when there is none.
///
/// - A helper that cannot be started, or that has died, is started once more for the call at
///   hand. If that fails too, the command's [`Fallback`] decides. A command that
///   [requires](Command::require) a level is refused, whatever the fallback says.
/// - A command that was sent to a helper that died before a byte of it had left is sent again.
///   One that was sent and not answered is never run again: its child is returned with
///   [`Notice::StartUnknown`], and every call on it says the same.
/// - A helper that does not answer a spawn within the [`timeout`](Self::timeout) gets no
///   further commands, and a fresh one takes its place. The session is closed right behind its
///   spawn, so that the silent helper, should it go on, ends what it starts late; the other
///   sessions of that helper go on as they are.
///
/// What [`Command::helper`] says is not used. A spawner can be a `static`.
///
/// # Examples
///
/// ```no_run
/// use foster::{Command, Fallback, Spawner};
///
/// static SPAWNER: Spawner = Spawner::new();
///
/// fn main() -> foster::Result<()> {
///     foster::init();
///     let output = SPAWNER.output(Command::new("git").arg("status"), Fallback::Direct)?;
///     if let Some(notice) = output.notice {
///         println!("note: {notice}");
///     }
///     println!("{}", String::from_utf8_lossy(&output.stdout));
///     Ok(())
/// }
/// ```
pub struct Spawner {
    path: Option<PathBuf>,
    timeout: Duration,
    is_helperless: bool,
    slot: Mutex<Slot>,
    /// How many calls have failed to get a helper. Those that waited for one of them take its
    /// outcome, so that a helper that hangs costs each call its time once.
    failures: AtomicU64,
}

/// Where the helper is.
struct Slot {
    /// The last one that was launched; it may be lost. A fresh one is sealed as it was.
    helper: Option<Helper>,
    /// Whether it is sent nothing more.
    is_given_up: bool,
    /// What the last call that failed to get one has said.
    failure: String,
}

/// What a call has left to try.
struct Tries {
    /// Launches; none before the slot was seen.
    launches: Option<u32>,
    /// The count of failures when the call began.
    seen: u64,
}

impl Spawner {
    /// Creates a spawner whose helper is looked for as [`Helper::launch`] does, and launched at
    /// the first spawn.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            path: None,
            timeout: LIMIT,
            is_helperless: false,
            slot: Mutex::new(Slot {
                helper: None,
                is_given_up: false,
                failure: String::new(),
            }),
            failures: AtomicU64::new(0),
        }
    }

    /// Creates a spawner that is meant to have no helper: it runs every command directly, and
    /// without a notice.
    #[must_use]
    pub const fn without_helper() -> Self {
        let mut spawner = Self::new();
        spawner.is_helperless = true;
        spawner
    }

    /// Sets the helper's executable. No other place is tried then.
    #[must_use]
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Sets how long the helper's hello, and its answer to a spawn, may take. Without it: 5
    /// seconds. A program on a file system that hangs is given up after it, too.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Launches the helper ahead of its first use, before the host has threads.
    ///
    /// # Errors
    ///
    /// As [`HelperBuilder::launch`](crate::HelperBuilder::launch), and where the spawner is
    /// meant to have none.
    pub fn launch(&self) -> Result<Helper> {
        if self.is_helperless {
            return Err(no_helper("none", "this spawner is meant to have no helper"));
        }
        self.helper(&mut self.tries())
    }

    /// Spawns the command, as [`Command::spawn`] does. Standard streams that were not set are
    /// inherited.
    ///
    /// # Errors
    ///
    /// As [`Command::spawn`], of the command itself. For want of a helper only where the
    /// fallback or the command refuses to run without one; it did not run then. Never
    /// [`SpawnFateUnknown`](crate::ErrorKind::SpawnFateUnknown): that is told by the child.
    pub fn spawn(&self, command: &Command, fallback: Fallback) -> Result<Child> {
        self.spawn_with(command, fallback, Defaults::Inherit)
    }

    /// Spawns the command, waits for its exit and returns what it wrote, as
    /// [`Command::output`] does, with the notice if there is one.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn) and [`Child::wait_with_output`]. Where the command may have
    /// run, [`Error::notice`] says what is not known.
    pub fn output(&self, command: &Command, fallback: Fallback) -> Result<Output> {
        self.spawn_with(command, fallback, Defaults::Capture)?
            .wait_with_output()
    }

    /// Spawns the command and holds it before its program, as [`Command::gated`] does.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn). The command did not run.
    pub fn gated(&self, command: &Command, fallback: Fallback) -> Result<Gate> {
        let how = self.how(Defaults::Inherit, true);
        match self.make(command, fallback, how)? {
            Ok(made) => Ok(Gate::new(command, made, how.within)),
            // A gate that was not opened has let nobody through.
            Err(loss) => Err(Failure::Unsent(loss).into()),
        }
    }

    fn spawn_with(
        &self,
        command: &Command,
        fallback: Fallback,
        defaults: Defaults,
    ) -> Result<Child> {
        let how = self.how(defaults, false);
        match self.make(command, fallback, how)? {
            Ok(made) => Ok(made.child),
            Err(loss) => Ok(command.unknown(loss)),
        }
    }

    fn how(&self, defaults: Defaults, gated: bool) -> How {
        How {
            defaults,
            gated,
            within: Some(self.timeout),
        }
    }

    /// The rule. Inside, what was sent and not answered.
    fn make(
        &self,
        command: &Command,
        fallback: Fallback,
        how: How,
    ) -> Result<std::result::Result<Made, crate::error::Loss>> {
        if self.is_helperless || command.is_direct() {
            return command.make_direct(how, None).map(Ok);
        }
        let mut tries = self.tries();
        let error = loop {
            let helper = match self.helper(&mut tries) {
                Ok(helper) => helper,
                Err(error) => break error,
            };
            match command.attempt(&helper, how) {
                Ok(made) => return Ok(Ok(made)),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Unanswered(loss)) => {
                    self.give_up(&helper);
                    return Ok(Err(loss));
                }
                Err(Failure::Unsent(loss)) => {
                    tracing::debug!(%loss, "command did not run; trying once more");
                    self.give_up(&helper);
                    if tries.launches == Some(0) {
                        break Failure::Unsent(loss).into();
                    }
                }
            }
        };
        tracing::debug!(%error, "no helper could be had");
        match fallback {
            Fallback::Direct if command.may_be_direct() => {
                command.make_direct(how, Some(Notice::NoHelper)).map(Ok)
            }
            Fallback::Direct | Fallback::Refuse => Err(error),
        }
    }

    fn tries(&self) -> Tries {
        Tries {
            launches: None,
            seen: self.failures.load(Ordering::Relaxed),
        }
    }

    /// The helper that is there, or a fresh one, as long as there are tries left.
    fn helper(&self, tries: &mut Tries) -> Result<Helper> {
        let mut slot = self.slot();
        if let Some(helper) = &slot.helper
            && !slot.is_given_up
            && !helper.is_lost()
        {
            tries.launches.get_or_insert(RELAUNCHES);
            return Ok(helper.clone());
        }
        let failures = self.failures.load(Ordering::Relaxed);
        if tries.launches.is_none() && failures != tries.seen {
            // While this call waited for the slot, another one has tried for both.
            return Err(failed_before(&slot.failure));
        }
        let most = match &slot.helper {
            Some(_) => RELAUNCHES,
            None => FIRST_LAUNCHES,
        };
        let mut left = tries.launches.unwrap_or(most);
        let mut last = None;
        while left > 0 {
            left -= 1;
            tries.launches = Some(left);
            match self.start(slot.helper.as_ref()) {
                Ok(helper) => {
                    slot.helper = Some(helper.clone());
                    slot.is_given_up = false;
                    return Ok(helper);
                }
                Err(error) => {
                    tracing::debug!(%error, "helper cannot be launched");
                    last = Some(error);
                }
            }
        }
        let error = last.unwrap_or_else(|| failed_before(&slot.failure));
        slot.failure = error.to_string();
        self.failures.fetch_add(1, Ordering::Relaxed);
        Err(error)
    }

    fn start(&self, lost: Option<&Helper>) -> Result<Helper> {
        if let Some(lost) = lost {
            return lost.relaunch();
        }
        let builder = Helper::builder().timeout(self.timeout);
        match &self.path {
            Some(path) => builder.path(path).launch(),
            None => builder.launch(),
        }
    }

    /// Sends nothing more to a helper. Its sessions go on.
    fn give_up(&self, helper: &Helper) {
        let mut slot = self.slot();
        if slot
            .helper
            .as_ref()
            .is_some_and(|held| held.id() == helper.id())
        {
            slot.is_given_up = true;
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed_before(why: &str) -> Error {
    no_helper("another call just before", why)
}

fn no_helper(place: &str, why: &str) -> Error {
    Repr::NoHelper(vec![Attempt {
        place: place.into(),
        why: why.into(),
    }])
    .into()
}

impl Default for Spawner {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner")
            .field("path", &self.path)
            .field("timeout", &self.timeout)
            .field("is_helperless", &self.is_helperless)
            .finish_non_exhaustive()
    }
}
