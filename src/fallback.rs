//! What happens to a command for which there is no supervision as it should be.

/// What happens to a command when no helper can be had; on Windows, when no job can, of which
/// [`Notice::NoJob`](crate::Notice::NoJob) tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// This process runs it itself, at [`Level::Direct`](crate::Level::Direct), and the child
    /// carries [`Notice::NoHelper`](crate::Notice::NoHelper). For commands of the user's own: a shell tool that fails
    /// because its supervision does would be worse.
    Direct,
    /// It is refused, and never runs. For commands that nobody has looked at.
    Refuse,
}
