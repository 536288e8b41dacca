//! Commands on Windows: each in a job of its own, supervised by this process itself.
//!
//! A command is created suspended, put into a private job that ends its members when the last
//! handle to it is closed, and resumed. So it cannot start anything before it is held, and
//! whatever ends this process ends the tree. Ending is `TerminateJobObject`: Windows has no signal
//! that asks, and so there is no grace. Nothing is ended by number or by name, but by the
//! `taskkill` of a command that could not be put into a job.
//!
//! What is not reached: what another process starts on the command's behalf (a service, the task
//! scheduler), and, in the instant between creation and job, the suspended process of a host that
//! is killed.

mod capture;
mod child;
mod command;
pub mod contain;
mod ending;
mod gate;
mod options;
mod session;
mod spawn;
mod spawner;
mod stdio;
mod taskkill;
mod tree;
mod watch;

#[cfg(test)]
mod tests;

pub use child::Child;
pub use command::Command;
pub use gate::Gate;
pub use session::Session;
pub use spawner::Spawner;
pub use stdio::Stdio;
