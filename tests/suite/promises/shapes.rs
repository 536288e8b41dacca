//! The columns: what a command leaves beside itself.

use foster_tests::places;

/// A user of these tests alone, and the first of those that are bombed: the kernel counts every
/// process of a user.
pub(crate) const NOBODY: u32 = 65_534;
pub(crate) const BOMBED: u32 = 64_500;

/// What a command leaves beside itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    SameGroup,
    OwnGroup,
    Setsid,
    Daemon,
    IgnoresTerm,
    Stopped,
    Nested,
    Bomb200,
    Bomb1000,
    Setuid,
    Tracer,
    MuteFuse,
}

/// Every column.
pub(crate) const SHAPES: [Shape; 12] = [
    Shape::SameGroup,
    Shape::OwnGroup,
    Shape::Setsid,
    Shape::Daemon,
    Shape::IgnoresTerm,
    Shape::Stopped,
    Shape::Nested,
    Shape::Bomb200,
    Shape::Bomb1000,
    Shape::Setuid,
    Shape::Tracer,
    Shape::MuteFuse,
];

impl Shape {
    /// The head of its column.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SameGroup => "same group",
            Self::OwnGroup => "`set -m`",
            Self::Setsid => "`setsid`",
            Self::Daemon => "daemon",
            Self::IgnoresTerm => "ignores TERM",
            Self::Stopped => "stopped",
            Self::Nested => "nested",
            Self::Bomb200 => "bomb of 200",
            Self::Bomb1000 => "bomb of 1,000",
            Self::Setuid => "set-user-id",
            Self::Tracer => "own tracer",
            Self::MuteFuse => "mute FUSE",
        }
    }

    /// How many processes the bomb may have.
    pub(crate) fn bomb(self) -> Option<u32> {
        match self {
            Self::Bomb200 => Some(200),
            Self::Bomb1000 => Some(1_000),
            Self::SameGroup
            | Self::OwnGroup
            | Self::Setsid
            | Self::Daemon
            | Self::IgnoresTerm
            | Self::Stopped
            | Self::Nested
            | Self::Setuid
            | Self::Tracer
            | Self::MuteFuse => None,
        }
    }

    /// Whether most of its cells take as long as a supervisor or a sweep may try.
    pub(crate) fn is_slow(self) -> bool {
        matches!(self, Self::Setuid | Self::MuteFuse)
    }

    /// The command: its member says a line, and then the leader does the last of the script. The
    /// tag is `$0`, and `$1` the fixture of the shape.
    pub(crate) fn command(self, tag: &str, fixture: Option<&str>, last: &str) -> Vec<String> {
        let member = match self {
            Self::SameGroup => "sh -c 'echo ready; exec sleep 60' &",
            Self::OwnGroup => "set -m; sh -c 'echo ready; exec sleep 60' & set +m;",
            Self::Setsid => "setsid sh -c 'echo ready; exec sleep 60' &",
            // The tag stands in its arguments, because it has no environment.
            Self::Daemon => {
                "( setsid bash -c 'echo ready; cd /; exec env -i bash -c \"exec -a \\\"\\$0\\\" \
                 sleep 60 <&- >&- 2>&-\" \"$0\"' \"$0\" & );"
            }
            Self::IgnoresTerm => "sh -c 'trap \"\" TERM; echo ready; exec sleep 60' &",
            Self::Stopped => "sh -c 'echo ready; kill -STOP $$; exec sleep 60' &",
            Self::Nested => "sh -c 'timeout 60 sh -c \"echo ready; exec sleep 60\"; :' &",
            Self::Bomb200 | Self::Bomb1000 | Self::Setuid | Self::Tracer => "\"$1\" &",
            Self::MuteFuse => "cat \"$1\" &",
        };
        let script = format!("{member} {last}");
        let mut words = vec!["/bin/bash".into(), "-c".into(), script, tag.into()];
        words.extend(fixture.map(str::to_owned));
        words
    }

    /// The program of this package that the shape is made of.
    pub(crate) fn fixture(self) -> Option<String> {
        let name = match self {
            Self::SameGroup
            | Self::OwnGroup
            | Self::Setsid
            | Self::Daemon
            | Self::IgnoresTerm
            | Self::Stopped
            | Self::Nested
            | Self::MuteFuse => return None,
            Self::Bomb200 | Self::Bomb1000 => "bombs-with-sessions",
            Self::Setuid => "becomes-root",
            Self::Tracer => "traces-its-sibling",
        };
        Some(places::fixture(name).display().to_string())
    }
}
