//! The janitor: ends what instances left whose host, helper and keepers were all killed.
//!
//! A record that is locked is a live instance's and is left alone. Of any other one, everybody
//! who bears its mark is held by pidfd first, looked at then, and only signalled when both belong
//! together; no number from a file is ever signalled. This process, its ancestors and its group
//! are spared. Nothing here prints, and nothing that a record says is believed unless the record
//! is this user's own.

mod cgroups;
mod course;
mod marks;
mod processes;
mod records;
mod report;
mod spared;

use std::env;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use foster_protocol::record_folders;
use nix::unistd::geteuid;

use crate::error::Result;
use crate::on_exit::DEFAULT_GRACE;
use course::Here;
use records::{Look, Taken, look_at, names_in};
pub use report::{Fate, Found, Refusal, Refused, Swept, SweptInstance};

/// Ends what instances of this user left, with the grace of [`Command`](crate::Command).
///
/// An instance is a helper and its keepers. What is left when a host, its helper and its keepers
/// are all killed at once bears the instance's mark, which this looks for; released sessions are
/// left alone, and so are live instances. Root ends what instances of root left.
///
/// # Errors
///
/// [`System`](crate::ErrorKind::System) where `/proc` cannot be read or the kernel has no
/// pidfds. Nothing has been signalled then. What is wrong with one record is in the report.
///
/// # Examples
///
/// ```no_run
/// let swept = foster::sweep()?;
/// assert!(swept.is_clean());
/// # Ok::<(), foster::Error>(())
/// ```
pub fn sweep() -> Result<Swept> {
    Sweep::new().run()
}

/// How the janitor is to go about it.
///
/// # Examples
///
/// ```no_run
/// # fn main() -> foster::Result<()> {
/// for instance in foster::Sweep::new().dry_run(true).run()?.instances {
///     println!("{}: {:?}", instance.record.display(), instance.found);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Sweep {
    folders: Vec<PathBuf>,
    grace: Duration,
    dry_run: bool,
}

impl Default for Sweep {
    fn default() -> Self {
        Self::new()
    }
}

impl Sweep {
    /// Creates one for the folders in which helpers of this user keep their records.
    #[must_use]
    pub fn new() -> Self {
        Self {
            folders: Vec::new(),
            grace: DEFAULT_GRACE,
            dry_run: false,
        }
    }

    /// Looks into this folder in place of the usual ones; may be repeated.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folders.push(folder.into());
        self
    }

    /// Sets the time between TERM and KILL; zero is KILL at once.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Only tells what there is: nothing is signalled and nothing is removed.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Goes through the records. It takes the grace and a few seconds at most for each instance
    /// of which something is left.
    ///
    /// # Errors
    ///
    /// As [`sweep`].
    pub fn run(&self) -> Result<Swept> {
        let here = Here::find()?;
        let mut swept = Swept::default();
        for folder in self.folders() {
            let names = match names_in(&folder) {
                Ok(Some(names)) => names,
                Ok(None) => continue,
                Err(reason) => {
                    swept.refuse(folder, reason);
                    continue;
                }
            };
            for name in &names.records {
                let path = folder.join(name);
                match look_at(&names.folder, name) {
                    Ok(Look::Gone) => {}
                    Ok(Look::Held(helper)) => {
                        let live = SweptInstance::new(path, helper, Fate::Live);
                        swept.instances.push(live);
                    }
                    Ok(Look::Taken(taken)) => match self.deal_with(&here, taken, path.clone()) {
                        Ok(instance) => swept.instances.push(instance),
                        Err(reason) => swept.refuse(path, reason),
                    },
                    Err(reason) => swept.refuse(path, reason),
                }
            }
            if !self.dry_run {
                names.remove_unfinished();
            }
        }
        Ok(swept)
    }

    fn folders(&self) -> Vec<PathBuf> {
        if self.folders.is_empty() {
            let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
            record_folders(runtime, geteuid().as_raw())
        } else {
            self.folders.clone()
        }
    }

    /// A record whose lock is ours.
    fn deal_with(
        &self,
        here: &Here,
        taken: Taken,
        path: PathBuf,
    ) -> std::result::Result<SweptInstance, Refusal> {
        let started = Instant::now();
        let helper = Some(taken.record.helper);
        let fate = here.place(&taken.record);
        let mut instance = SweptInstance::new(path, helper, fate);
        match fate {
            Fate::Elsewhere | Fate::Live => return Ok(instance),
            Fate::Past => {}
            Fate::Left | Fate::AllGone | Fate::Incomplete => {
                match self.dry_run {
                    true => here.list(&taken.record, &mut instance)?,
                    false => here.end(&taken.record, self.grace, &mut instance)?,
                }
                instance.conclude(self.dry_run);
            }
        }
        instance.took = started.elapsed();
        if !self.dry_run && instance.is_over() {
            taken.remove();
        }
        Ok(instance)
    }
}
