//! Bombs that take the whole machine: an executable of its own, which `cargo test` runs alone, and
//! one bomb at a time.

#[path = "adversaries/ground.rs"]
#[expect(dead_code, reason = "shared with the other adversaries")]
mod ground;

#[path = "adversaries/bombs.rs"]
mod bombs;
