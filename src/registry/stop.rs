//! Ending services: which of them there are, and what becomes of their rows.
//!
//! Whoever is not shown to be ours is not handed on to be ended.

use std::time::Duration;

use super::course::{self, Course};
use super::row::Row;
use super::standing::stand;
use super::{Registry, RegistryError, ServiceName, Stale, Standing, members};

/// How services are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The first signal, to every member of every service.
    pub first: i32,
    /// The time between the first signal and KILL. It ends early when nobody is left.
    pub grace: Duration,
    /// The time that all of it may take, whatever else the host is doing. Who lives then is a
    /// survivor. Where it is shorter than the grace, it cuts the grace to four fifths of
    /// itself, so that KILL has its time.
    pub budget: Duration,
}

impl Default for Stop {
    /// TERM, three seconds, and five in all.
    fn default() -> Self {
        Self {
            first: libc::SIGTERM,
            grace: Duration::from_secs(3),
            budget: Duration::from_secs(5),
        }
    }
}

/// What became of a service that was to end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It is gone, and everybody who could be shown to be of it.
    Gone {
        /// Its process.
        pid: u32,
        /// How many other members there were.
        members: usize,
        /// Whether anybody had to be killed.
        by_kill: bool,
    },
    /// Somebody lives at the end of the budget.
    Survived {
        /// Who.
        survivors: Vec<u32>,
    },
    /// Nobody was signalled: there was no process that was known to be ours.
    Stale(Stale),
    /// Nobody was signalled: it was never spawned.
    NotYet,
    /// Nobody was signalled: nobody can tell at the moment whether the process is ours.
    Unknown,
    /// Nobody was signalled: the caller is of the service itself.
    Inside,
}

impl Outcome {
    /// Whether nothing of the service is left, as far as can be known.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self {
            Self::Gone { .. } | Self::Stale(_) | Self::NotYet => true,
            Self::Survived { .. } | Self::Unknown | Self::Inside => false,
        }
    }
}

/// What became of each service that was to end, by its name.
pub type Stopped = Vec<(ServiceName, Outcome)>;

impl Registry {
    /// Ends these services at the same time and drops their rows.
    ///
    /// A row that could not be dropped is no failure of the stop: it is stale from now on.
    ///
    /// # Errors
    ///
    /// [`Unknown`](RegistryError::Unknown) where one of them is not registered, and
    /// [`RowRefused`](RegistryError::RowRefused) where its row is none; nobody is signalled
    /// then.
    pub fn stop(&self, names: &[ServiceName], how: Stop) -> Result<Stopped, RegistryError> {
        let rows = names.iter().map(|name| {
            let row = self.folder.row(&name.file())?;
            row.ok_or_else(|| RegistryError::Unknown { name: name.clone() })
        });
        Ok(self.end(rows.collect::<Result<_, _>>()?, how))
    }

    /// Ends every registered service at the same time and drops their rows.
    ///
    /// Files that are no rows are left alone; [`list`](Self::list) names them.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be read.
    pub fn stop_all(&self, how: Stop) -> Result<Stopped, RegistryError> {
        let rows = self.folder.rows()?.into_iter();
        Ok(self.end(rows.filter_map(|(_, row)| row.ok()).collect(), how))
    }

    fn end(&self, rows: Vec<Row>, how: Stop) -> Stopped {
        let mut stopped = Vec::new();
        let mut courses = Vec::new();
        for row in &rows {
            let name = row.name.clone();
            match stand(row) {
                (_, Some(leader)) if members::holds_caller(&leader) => {
                    stopped.push((name, Outcome::Inside));
                }
                (_, Some(leader)) => courses.push(Course::new(name, leader)),
                (Standing::Stale(why), None) => stopped.push((name, Outcome::Stale(why))),
                (Standing::NotYet, None) => stopped.push((name, Outcome::NotYet)),
                (Standing::Unknown | Standing::Ours, None) => {
                    stopped.push((name, Outcome::Unknown));
                }
            }
        }
        stopped.extend(course::run(courses, how));
        stopped.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (name, outcome) in &stopped {
            let row = rows.iter().find(|row| row.name == *name);
            if let (Some(row), true) = (row, outcome.is_over())
                && let Err(error) = self.forget(row)
            {
                tracing::warn!(service = %name, %error, "row of a stopped service is still there");
            }
        }
        stopped
    }
}
