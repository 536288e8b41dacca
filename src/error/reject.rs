//! Texts and std's kinds for what a helper refuses.

use std::io;

use foster_protocol::{Feature, Field, Level, Reject, Sealed, StateName};

/// The reason as it stands in an error.
pub(super) fn reason(reject: &Reject) -> String {
    match reject {
        Reject::VersionMismatch { helper, client } => {
            format!("it speaks protocol version {helper}, this client {client}")
        }
        Reject::HelloRepeated => "hello came a second time".into(),
        Reject::RestrictTooLate => "a seal must come first of all, and once".into(),
        Reject::NotPermitted { what } => format!("its seal does not allow {}", sealed(*what)),
        Reject::UnknownSession => "it knows no such session".into(),
        Reject::DuplicateSession => "the session's id was used before".into(),
        Reject::IllegalState { state } => {
            format!(
                "it cannot be asked of a session that is {}",
                state_name(*state)
            )
        }
        Reject::NotDetachable => {
            "a running session can be released only if it was spawned detachable".into()
        }
        Reject::Unsupported {
            what: Feature::TreeLimits,
        } => "it has no cgroup root with controllers, which limits need".into(),
        Reject::Unsupported {
            what: Feature::Release,
        } => "a session at level namespace ends with its keeper and cannot be released".into(),
        Reject::Unsupported {
            what: Feature::Credentials,
        } => "a user namespace knows no credentials but the helper's own".into(),
        Reject::LevelUnavailable { level, errno } => format!(
            "level {} cannot be had here: {}",
            level_name(*level),
            io::Error::from_raw_os_error(*errno)
        ),
        Reject::WrongDescriptorCount { expected, came } => {
            format!("{came} descriptors came where {expected} were expected")
        }
        Reject::DescriptorsLost => "it has no room for the descriptors".into(),
        Reject::BadTarget { target } => {
            format!("descriptor {target} is negative, above its limit or named twice")
        }
        Reject::BadSignal { number } => format!("{number} is no signal"),
        Reject::StringWithNul { which } => format!("{} holds a NUL byte", field(*which)),
        Reject::StringTooLong {
            which,
            length,
            limit,
        } => {
            format!(
                "{} is {length} bytes long, above the limit of {limit}",
                field(*which)
            )
        }
        Reject::TooManySessions { limit } => format!("it holds {limit} sessions already"),
        Reject::TooManyRequests { limit } => format!("{limit} requests wait already"),
        Reject::ShuttingDown => "it is shutting down".into(),
        Reject::ReplyTooLong { limit } => format!("its reply is longer than {limit} bytes"),
        Reject::SupervisorLost => "the session's keeper died".into(),
    }
}

/// The kind that std has for a refusal.
pub(super) fn reject_kind(reject: &Reject) -> io::ErrorKind {
    match reject {
        Reject::NotPermitted { .. } => io::ErrorKind::PermissionDenied,
        Reject::UnknownSession => io::ErrorKind::NotFound,
        Reject::VersionMismatch { .. }
        | Reject::Unsupported { .. }
        | Reject::LevelUnavailable { .. } => io::ErrorKind::Unsupported,
        Reject::BadTarget { .. }
        | Reject::BadSignal { .. }
        | Reject::StringWithNul { .. }
        | Reject::StringTooLong { .. }
        | Reject::NotDetachable => io::ErrorKind::InvalidInput,
        Reject::HelloRepeated
        | Reject::RestrictTooLate
        | Reject::DuplicateSession
        | Reject::IllegalState { .. }
        | Reject::WrongDescriptorCount { .. }
        | Reject::DescriptorsLost
        | Reject::TooManySessions { .. }
        | Reject::TooManyRequests { .. }
        | Reject::ShuttingDown
        | Reject::ReplyTooLong { .. }
        | Reject::SupervisorLost => io::ErrorKind::Other,
    }
}

fn sealed(what: Sealed) -> &'static str {
    match what {
        Sealed::Uid => "this user id",
        Sealed::Gid => "this group id",
        Sealed::Program => "this program",
        Sealed::Level => "this level",
    }
}

fn state_name(state: StateName) -> &'static str {
    match state {
        StateName::Starting => "starting",
        StateName::Prepared => "prepared",
        StateName::Running => "running",
        StateName::Exited => "exited",
        StateName::Ending => "ending",
        StateName::Ended => "ended",
        StateName::Released => "released",
        StateName::Failed => "failed",
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Direct => "direct",
        Level::Group => "group",
        Level::Tree => "tree",
        Level::Cgroup => "cgroup",
        Level::Namespace => "namespace",
    }
}

fn field(which: Field) -> String {
    match which {
        Field::Program => "program".into(),
        Field::Argument { index } => format!("argument {index}"),
        Field::Variable { index } => format!("environment entry {index}"),
        Field::Directory => "directory".into(),
        Field::Label => "label".into(),
    }
}
