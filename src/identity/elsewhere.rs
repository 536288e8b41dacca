#![cfg_attr(
    all(test, target_os = "linux"),
    expect(unreachable_pub, reason = "public where it is not a test alone")
)]
//! Identity on platforms without `/proc` and pidfds: it is never confirmed.
//!
//! This module must never say yes: what is not confirmed is not signalled.

/// Whether a process is alive and carries the markers: nobody can tell here.
#[must_use]
pub fn is_live_child(pid: u32, key: &str, name: &str) -> bool {
    tracing::warn!(
        pid,
        key,
        name,
        "identity cannot be confirmed on this platform: the process is not signalled and lives on"
    );
    false
}

/// Whether a process is a zombie: nobody can tell here.
#[must_use]
pub fn is_zombie(_pid: u32) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_confirmed_where_nothing_can_be_read() {
        assert!(!is_live_child(std::process::id(), "KEY", "name"));
        assert!(!is_zombie(std::process::id()));
    }
}
