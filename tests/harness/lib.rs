//! The harness of foster's tests: a raw link to any helper, and eyes on processes.
//!
//! Death is observed by end-of-file or by pidfd, life by a byte; every wait has a deadline
//! that fails with what was awaited. A [`Stage`] owns what one test starts, and looks at its
//! end whether anything is left. The harness signals only what it has started.

pub mod acting;
mod cgroups;
mod command_line;
mod conditions;
mod deadline;
mod ground;
mod host;
mod launch;
mod levels;
mod life;
mod link;
mod newborn;
pub mod places;
pub mod proc;
mod scan;
mod stage;
mod start;
pub mod sys;
mod talk;
mod tracer;

pub use cgroups::Cgroup;
pub use command_line::{Finished, Process, Program, clean_up, only_child_of};
pub use conditions::{REQUIRE_ALL, not_run};
pub use deadline::{ANSWER, DEATH, Deadline, SETTLE, eventually, pass, poll_one, wait_readable};
pub use ground::{GROUND, Ground};
pub use host::Host;
pub use launch::Launch;
pub use levels::{at_level, level, proof_of_keeper, proof_of_level};
pub use life::is_spare;
pub use link::{Answered, Link};
pub use newborn::Births;
pub use scan::{TAG, assert_nothing_left, find_tagged, hold_tagged};
pub use stage::{Stage, is_root, note_not_run};
pub use talk::{Command, Running};
pub use tracer::{Tracer, Witness};
