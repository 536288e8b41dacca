//! The harness of foster's tests: a raw link to any helper, and eyes on processes.
//!
//! Death is observed by end-of-file or by pidfd, life by a byte; every wait has a deadline
//! that fails with what was awaited. A [`Stage`] owns what one test starts, and looks at its
//! end whether anything is left. The harness signals only what it has started.

pub mod acting;
mod deadline;
mod launch;
mod link;
pub mod places;
pub mod proc;
mod scan;
mod stage;
pub mod sys;
mod talk;
mod tracer;

pub use deadline::{ANSWER, DEATH, Deadline, SETTLE, eventually, pass, poll_one, wait_readable};
pub use launch::Launch;
pub use link::{Answered, Link};
pub use scan::{TAG, assert_nothing_left, end_released, find_tagged};
pub use stage::{Stage, is_root, note_not_run};
pub use talk::{Command, Running};
pub use tracer::{Tracer, Witness};
