//! The conformance suite: what any helper has to do, asked over the raw protocol.
//!
//! `FOSTER_HELPER=path cargo test -p foster-tests --test conformance` puts another executable
//! to the test; `FOSTER_HELPER_ARG` is its argument where it needs one.

#[path = "conformance/attached.rs"]
mod attached;
#[path = "conformance/clean.rs"]
mod clean;
#[path = "conformance/control.rs"]
mod control;
#[path = "conformance/descriptors.rs"]
mod descriptors;
#[path = "conformance/ending.rs"]
mod ending;
#[path = "conformance/escapes.rs"]
mod escapes;
#[path = "conformance/exhaustion.rs"]
mod exhaustion;
#[path = "conformance/exits.rs"]
mod exits;
#[path = "conformance/failures.rs"]
mod failures;
#[path = "conformance/fallbacks.rs"]
mod fallbacks;
#[path = "conformance/framing.rs"]
mod framing;
#[path = "conformance/gate.rs"]
mod gate;
#[path = "conformance/hangup.rs"]
mod hangup;
#[path = "conformance/hello.rs"]
mod hello;
#[path = "conformance/helper_signals.rs"]
mod helper_signals;
#[path = "conformance/load.rs"]
mod load;
#[path = "conformance/on_exit.rs"]
mod on_exit;
#[path = "conformance/oom.rs"]
mod oom;
#[path = "conformance/options.rs"]
mod options;
#[path = "conformance/pace.rs"]
mod pace;
#[path = "conformance/rejects.rs"]
mod rejects;
#[path = "conformance/restrict.rs"]
mod restrict;
#[path = "conformance/sizes.rs"]
mod sizes;
#[path = "conformance/states.rs"]
mod states;
