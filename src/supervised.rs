//! Children that die with this process, without a helper: `PR_SET_PDEATHSIG` done right.
//!
//! The kernel sends that signal when the *thread* that forked ends, not when the process does.
//! So one thread forks every child, and it is never joined and ends with the process. The
//! signal reaches the child alone, not what it has started; it can be anything but ignored
//! only if it is KILL; and the kernel forgets it when the child changes its credentials. A
//! [`Command`](crate::Command) has none of these limits.
//!
//! Children are std's: nothing here reaps a child that it has handed out.
//!
//! # Examples
//!
//! ```no_run
//! let mut command = std::process::Command::new("indexer");
//! let mut child = foster::supervised::spawn(command)?;
//! // However this process ends from here on, the indexer gets KILL.
//! child.wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Platform
//!
//! Linux. Elsewhere the child is spawned as by std, and a warning says that it outlives this
//! process.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use thiserror::Error;

/// How long [`spawn`] waits for its child: what holds an exec longer is a file system that
/// hangs.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(30);

/// How a child is supervised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supervision {
    /// The signal that the child gets when this process ends. KILL without a word; TERM can
    /// be ignored.
    pub signal: i32,
    /// How long the spawn may take. A child that comes later is killed and reaped.
    pub patience: Duration,
}

impl Default for Supervision {
    fn default() -> Self {
        Self {
            signal: libc::SIGKILL,
            patience: DEFAULT_PATIENCE,
        }
    }
}

/// Why there is no child.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SupervisedError {
    /// The thread that spawns could not be started. It is tried once: every later call has
    /// this same error.
    #[error("the spawning thread could not be started: {message}")]
    NoThread {
        /// The error number, where there was one.
        errno: Option<i32>,
        /// The system's words.
        message: String,
    },
    /// The child could not be spawned: std's error, with the program.
    #[error("{program} cannot be spawned")]
    Spawn {
        /// The program.
        program: String,
        /// std's error.
        source: io::Error,
    },
    /// The child did not come in time. If it comes later, it is killed and reaped.
    #[error("{program} was not spawned within {patience:?}")]
    Late {
        /// The program.
        program: String,
        /// How long was waited.
        patience: Duration,
    },
    /// The number is no signal.
    #[error("{number} is no signal")]
    NoSignal {
        /// The number.
        number: i32,
    },
}

/// Why the spawning thread is not there, kept for every later call.
#[derive(Clone, Debug)]
struct StartError {
    errno: Option<i32>,
    message: String,
}

/// One child to be spawned.
struct Job {
    command: Command,
    program: String,
    /// Without room: what is handed over has been taken, or comes back.
    answer: SyncSender<io::Result<Child>>,
}

/// Spawns a command that gets KILL when this process ends, in whatever way, and not before.
///
/// The thread that calls may end: the child lives on.
///
/// # Errors
///
/// See [`SupervisedError`].
pub fn spawn(command: Command) -> Result<Child, SupervisedError> {
    spawn_with(command, Supervision::default())
}

/// Spawns a command as [`spawn`] does, with this signal and patience.
///
/// # Errors
///
/// See [`SupervisedError`].
pub fn spawn_with(command: Command, how: Supervision) -> Result<Child, SupervisedError> {
    static THREAD: OnceLock<Result<Sender<Job>, StartError>> = OnceLock::new();
    let number = how.signal;
    if !(1..=64).contains(&number) {
        return Err(SupervisedError::NoSignal { number });
    }
    let thread = THREAD.get_or_init(start).as_ref().map_err(|error| {
        let StartError { errno, message } = error.clone();
        SupervisedError::NoThread { errno, message }
    })?;
    request(thread, command, how)
}

/// Hands a command to the spawning thread and waits for the child.
fn request(
    thread: &Sender<Job>,
    mut command: Command,
    how: Supervision,
) -> Result<Child, SupervisedError> {
    let program = command.get_program().to_string_lossy().into_owned();
    supervise(&mut command, how.signal);
    let (answer, child) = sync_channel(0);
    let job = Job {
        command,
        program: program.clone(),
        answer,
    };
    if thread.send(job).is_err() {
        return Err(ended());
    }
    match child.recv_timeout(how.patience) {
        Ok(Ok(child)) => Ok(child),
        Ok(Err(source)) => Err(SupervisedError::Spawn { program, source }),
        Err(RecvTimeoutError::Timeout) => Err(SupervisedError::Late {
            program,
            patience: how.patience,
        }),
        Err(RecvTimeoutError::Disconnected) => Err(ended()),
    }
}

/// The thread is gone, which only a panic in a `pre_exec` of the caller's could do: std runs
/// those in the child.
fn ended() -> SupervisedError {
    SupervisedError::NoThread {
        errno: None,
        message: "it has ended".to_owned(),
    }
}

#[cfg(target_os = "linux")]
fn supervise(command: &mut Command, signal: i32) {
    crate::sys::arm_death_signal(command, signal, std::process::id());
}

#[cfg(not(target_os = "linux"))]
fn supervise(command: &mut Command, signal: i32) {
    tracing::warn!(
        program = %command.get_program().to_string_lossy(),
        signal,
        "there is no parent death signal on this platform: the child outlives this process"
    );
}

/// Starts the thread that spawns. It is never joined, and lives as long as the process: the
/// sender is never dropped.
fn start() -> Result<Sender<Job>, StartError> {
    let (sender, jobs) = channel::<Job>();
    let thread = thread::Builder::new().name("foster-supervised".to_owned());
    let started = thread.spawn(move || {
        for job in jobs {
            serve(job);
        }
    });
    match started {
        Ok(_never_joined) => Ok(sender),
        Err(error) => Err(StartError {
            errno: error.raw_os_error(),
            message: error.to_string(),
        }),
    }
}

/// Spawns one child and hands it over, or ends it where nobody takes it.
fn serve(job: Job) {
    let Job {
        mut command,
        program,
        answer,
    } = job;
    let outcome = command.spawn();
    // Stdio that the command holds is not held while the requester is awaited.
    drop(command);
    let Err(unsent) = answer.send(outcome) else {
        return;
    };
    match unsent.0 {
        Ok(mut child) => {
            tracing::warn!(
                program,
                pid = child.id(),
                "requester is gone: the child is killed"
            );
            let killed = child.kill().and_then(|()| child.wait());
            if let Err(error) = killed {
                tracing::warn!(program, pid = child.id(), %error, "child cannot be killed");
            }
        }
        Err(error) => tracing::warn!(program, %error, "requester is gone, and nothing was spawned"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_no_signal_is_refused() {
        for number in [-1, 0, 65] {
            let how = Supervision {
                signal: number,
                ..Supervision::default()
            };
            let error = spawn_with(Command::new("true"), how).expect_err("it is no signal");
            assert!(matches!(error, SupervisedError::NoSignal { .. }), "{error}");
        }
    }

    #[test]
    fn a_missing_program_is_named_and_the_next_spawn_works() {
        let error = spawn(Command::new("/nowhere/to/be/found")).expect_err("it is not there");
        assert!(
            error.to_string().contains("/nowhere/to/be/found"),
            "{error}"
        );
        let mut child = spawn(Command::new("true")).expect("true is there");
        assert!(child.wait().expect("it is ours").success());
    }

    #[test]
    fn a_thread_that_is_gone_is_an_error_and_no_hang() {
        let (sender, jobs) = channel();
        drop(jobs);
        let outcome = request(&sender, Command::new("true"), Supervision::default());
        let error = outcome.expect_err("nobody serves");
        assert!(matches!(error, SupervisedError::NoThread { .. }), "{error}");
    }
}
