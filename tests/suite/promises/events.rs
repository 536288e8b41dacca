//! The rows: who acts, or dies.

/// Who acts, or dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Kill,
    Timeout,
    Drop,
    LeaderExits,
    Host,
    Helper,
    Keeper,
    HostAndHelper,
    AllThree,
    HelperStopped,
}

/// Every row.
pub(crate) const EVENTS: [Event; 10] = [
    Event::Kill,
    Event::Timeout,
    Event::Drop,
    Event::LeaderExits,
    Event::Host,
    Event::Helper,
    Event::Keeper,
    Event::HostAndHelper,
    Event::AllThree,
    Event::HelperStopped,
];

impl Event {
    /// The head of its row.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "the host asks for the end",
            Self::Timeout => "the deadline is reached",
            Self::Drop => "the host drops the session",
            Self::LeaderExits => "the leader exits",
            Self::Host => "KILL to the host",
            Self::Helper => "KILL to the helper",
            Self::Keeper => "KILL to the keeper",
            Self::HostAndHelper => "KILL to host and helper",
            Self::AllThree => "KILL to host, helper and keeper",
            Self::HelperStopped => "STOP to the helper, then KILL to the host",
        }
    }

    /// Whether the host lives and is told what became of the session.
    pub(crate) fn is_told(self) -> bool {
        match self {
            Self::Kill | Self::Timeout | Self::Drop | Self::LeaderExits | Self::Keeper => true,
            Self::Host
            | Self::Helper
            | Self::HostAndHelper
            | Self::AllThree
            | Self::HelperStopped => false,
        }
    }
}
