//! What a host does with the rows of the one before it.
//!
//! It drops rows and never signals: whom a row does not name for certain is a stranger.

use super::standing::stand;
use super::{Registry, RegistryError, ServiceName, Stale, Standing};

/// What was decided about one file of the registry.
#[derive(Debug)]
pub struct Reconciled {
    /// The file.
    pub file: String,
    /// The service, where the file is a row.
    pub name: Option<ServiceName>,
    /// What was decided.
    pub decision: Decision,
}

/// What is done with a row.
#[derive(Debug)]
#[non_exhaustive]
pub enum Decision {
    /// Its process lives and is ours: the row stays.
    Kept {
        /// The process. It says who was meant; it is never a licence to signal.
        pid: Option<u32>,
    },
    /// It is about to be spawned by somebody, or nobody can tell: the row stays.
    Untouched(Standing),
    /// The row is gone. Whoever has the number now was not touched.
    Dropped(Stale),
    /// The row is stale and could not be removed.
    NotDropped(Stale, RegistryError),
    /// The file is no row: it was left as it is.
    Refused(RegistryError),
}

impl Registry {
    /// Looks at every row and drops the stale ones; each decision is told.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be read or locked. A single bad row is a decision, no error.
    pub fn reconcile(&self) -> Result<Vec<Reconciled>, RegistryError> {
        let locked = self.folder.lock()?;
        let mut told = Vec::new();
        for (file, row) in self.folder.rows()? {
            let (name, decision) = match row {
                Err(error) => (None, Decision::Refused(error)),
                Ok(row) => {
                    let decision = match stand(&row).0 {
                        Standing::Ours => Decision::Kept { pid: row.pid },
                        standing @ (Standing::NotYet | Standing::Unknown) => {
                            Decision::Untouched(standing)
                        }
                        Standing::Stale(why) => match locked.remove(&file) {
                            Ok(()) => Decision::Dropped(why),
                            Err(error) => Decision::NotDropped(why, error),
                        },
                    };
                    (Some(row.name), decision)
                }
            };
            tracing::debug!(file, ?decision, "reconciled");
            told.push(Reconciled {
                file,
                name,
                decision,
            });
        }
        Ok(told)
    }
}
