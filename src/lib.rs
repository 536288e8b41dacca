//! Spawns commands through a small helper process and leaves nothing of them behind.

mod child;
#[cfg(feature = "cli")]
pub mod cli;
mod command;
mod connection;
mod error;
mod helper;
mod init;
mod launch;
mod output;
mod session;
mod stdio;
mod sys;

pub use child::Child;
pub use command::{Command, DEFAULT_DRAIN, DEFAULT_GRACE, OnExit};
pub use connection::Ended;
pub use error::{Error, ErrorKind, Result};
pub use foster_protocol::{
    Availability, Bytes, Capabilities, Cause, Containment, Counters, Ended as MemberEnd, Ending,
    Exit, Farewell, Feature, Field, Level, LevelChoice, Member, Micros, Missing, Orphan, Pid,
    Proof, Reject, Seal, Sealed, SessionId, SessionInfo, StateName, Step, Survivor, Target, Usage,
    Verdict, Why,
};
pub use helper::{Helper, Listing};
#[cfg(feature = "embedded-helper")]
pub use init::init;
pub use launch::HelperBuilder;
pub use output::Output;
pub use session::Session;
pub use stdio::Stdio;
