//! Spawns commands through a small helper process and leaves nothing of them behind.
//!
//! A command that a program runs starts others, and those start more. `foster` ends the whole
//! tree: when the host says so, when a limit is reached, or when the host dies, in whatever
//! way. What cannot be ended is named. No process is ever signalled that is not the command's
//! own, and however large, threaded or busy the host is, spawning costs the same.
//!
//! # Quick start
//!
//! A host calls [`init`] first of all, so that its own program can play the helper, and then
//! uses [`Command`] as it would use std's:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use foster::{Command, Helper};
//!
//! fn main() -> foster::Result<()> {
//!     foster::init();
//!     // Early, before there are threads: later commands need none of what the host becomes.
//!     let helper = Helper::launch()?;
//!
//!     let output = Command::new("cargo").arg("--version").helper(&helper).output()?;
//!     println!("{}", String::from_utf8_lossy(&output.stdout));
//!
//!     let mut server = Command::new("sh")
//!         .args(["-c", "sleep 600 & sleep 600"])
//!         .helper(&helper)
//!         .spawn()?;
//!     if server.wait_timeout(Duration::from_secs(2))?.is_none() {
//!         let ending = server.end(Duration::from_secs(1))?;
//!         println!("{:?}, {} others ended", ending.verdict, ending.members.len());
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Without [`Command::helper`], the process-wide helper of [`Helper::global`] is used, which
//! is launched at its first use.
//!
//! # Concepts
//!
//! - The **helper** is a small process that is the parent of every command. It is this program
//!   itself, re-executed, or an executable of its own; see [`HelperBuilder::launch`]. It holds
//!   the host's end of life: when the host is gone, it ends what is left.
//! - A **session** is one command, its *leader*, with everything that it starts. A [`Child`]
//!   owns it: dropping the child ends the session. [`Session`] handles can be cloned and used
//!   from any thread.
//! - The leader's **exit** and the session's **end** are two events. The exit is reported at
//!   once; the leader is kept unreaped until the session ends, so that its process id cannot
//!   become somebody else's. [`OnExit`] says what happens to the rest in between.
//! - An **ending** sends a signal to every member, waits for a grace, and sends KILL to those
//!   who are left. Its [`Ending`] tells the verdict, the proof that it rests on, who was there
//!   and who survived, and why.
//! - **Containment** says how far members are held. [`Child::containment`] tells the level
//!   that is in force, and which ones that were asked for are missing, with the reason.
//!
//! # What differs from std
//!
//! - A command is the leader of its own session. It has no controlling terminal, and a Ctrl-C
//!   at the host's does not reach it: pass it on with [`Child::signal`].
//! - It gets descriptors 0, 1 and 2, those of [`Command::fd`], and no other, whether or not
//!   the host marked them close-on-exec. Signals are at their defaults and unblocked.
//! - Its directory, environment and streams are the host's at the spawn. Its umask, resource
//!   limits and priorities are those that the host had when it launched the helper.
//! - [`Command::output`] returns at the leader's exit and a short drain, also where a
//!   background process keeps the output open.
//! - Dropping a [`Child`] ends its tree, also after [`Child::wait`]: a background process that
//!   is to live on needs [`Child::release`] or [`OnExit::Leave`].
//! - The host never forks, installs no signal handler, waits for no child but the helper, and
//!   has no background thread but one that [`Helper::watch`] asks for: replies are read by
//!   whoever waits.
//!
//! # When the helper is lost
//!
//! Every pending call returns at once, with an error that tells what is not known:
//! [`SpawnFateUnknown`](ErrorKind::SpawnFateUnknown) where a command may have run,
//! [`ExitUnknown`](ErrorKind::ExitUnknown), [`EndUnknown`](ErrorKind::EndUnknown),
//! [`ReleaseFateUnknown`](ErrorKind::ReleaseFateUnknown). Each session that was not released is
//! killed: its cgroup, where it has one, and the process group of its leader. With nobody
//! waiting, that happens at the next call or drop, or at once after [`Helper::watch`].
//! [`Helper::global`] launches a new helper at the next use, and [`Helper::relaunch`] at once;
//! nothing is run twice.
//!
//! A host that must not fail for want of a helper uses a [`Spawner`]: it launches a lost one
//! once more, and then runs a command itself, at [`Level::Direct`], or refuses it. What has
//! become of a command's supervision is told by a [`Notice`].
//!
//! # Platform
//!
//! Linux. Elsewhere there is no helper, and a command is supervised by the host itself, at
//! [`Level::Direct`]: on Windows by a job, which ends the tree with the host; on macOS and FreeBSD
//! by its process group, which does not. What a platform cannot do is an error of the kind
//! [`Unsupported`](ErrorKind::Unsupported), and nothing has happened then. README.md says which
//! platforms are tested and which are compiled only.

#![cfg_attr(
    not(target_os = "linux"),
    expect(
        rustdoc::broken_intra_doc_links,
        reason = "this page speaks of what is Linux's"
    )
)]

#[cfg(unix)]
mod capture;
#[cfg(unix)]
mod child;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub mod cli;
#[cfg(unix)]
mod command;
#[cfg(target_os = "linux")]
mod connection;
#[cfg(target_os = "linux")]
pub mod contain;
#[cfg(unix)]
mod direct;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
mod ended;
mod environment;
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "most errors are of a helper")
)]
mod error;
mod fallback;
#[cfg(unix)]
mod gate;
#[cfg(target_os = "linux")]
mod helper;
pub mod identity;
#[cfg(target_os = "linux")]
mod init;
#[cfg(target_os = "linux")]
mod launch;
mod notice;
mod on_exit;
mod output;
#[cfg(target_os = "linux")]
mod parent;
#[cfg(unix)]
mod poll;
#[cfg(all(feature = "registry", target_os = "linux"))]
pub mod registry;
#[cfg(unix)]
mod session;
#[cfg_attr(
    windows,
    expect(dead_code, reason = "the sums are for the limits of Unix")
)]
mod size;
#[cfg(target_os = "linux")]
mod spawner;
#[cfg(unix)]
mod stdio;
#[cfg(target_os = "linux")]
pub mod supervised;
#[cfg(target_os = "linux")]
mod sweep;
#[cfg(unix)]
mod sys;
#[cfg(windows)]
#[path = "sys/windows/mod.rs"]
mod sys;
#[cfg(target_os = "linux")]
mod watch;
#[cfg(windows)]
mod windows;

#[cfg(all(unix, not(target_os = "linux")))]
pub use elsewhere::Spawner;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Helper, init, sweep};
pub use ended::Ended;
pub use error::{Error, ErrorKind, Result};
pub use fallback::Fallback;
pub use foster_protocol::{
    Availability, Bytes, Capabilities, Cause, Containment, Counters, Ended as MemberEnd, Ending,
    Exit, Farewell, Feature, Field, Level, LevelChoice, Member, Micros, Missing, Obstacle, Orphan,
    Peaks, Pid, Proof, RecordError, Reject, Seal, Sealed, SessionId, SessionInfo, StateName, Step,
    Survivor, Target, Usage, Verdict, Why,
};
pub use notice::Notice;
pub use on_exit::{DEFAULT_DRAIN, DEFAULT_GRACE, OnExit};
pub use output::Output;

#[cfg(windows)]
pub use windows::{Child, Command, Gate, Session, Spawner, Stdio, contain};

#[cfg(unix)]
pub use child::Child;
#[cfg(unix)]
pub use command::Command;
#[cfg(unix)]
pub use gate::Gate;
#[cfg(target_os = "linux")]
pub use helper::{Helper, Listing};
#[cfg(all(feature = "embedded-helper", target_os = "linux"))]
pub use init::init;
#[cfg(target_os = "linux")]
pub use launch::HelperBuilder;
#[cfg(unix)]
pub use session::Session;
#[cfg(target_os = "linux")]
pub use spawner::Spawner;
#[cfg(unix)]
pub use stdio::Stdio;
#[cfg(target_os = "linux")]
pub use sweep::{Fate, Found, Refusal, Refused, Sweep, Swept, SweptInstance, sweep};

/// The example of README.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
