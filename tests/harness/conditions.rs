//! Conditions that a test needs and that not every machine offers.

use crate::stage::note_not_run;

/// Set to 1, a test that cannot run fails.
pub const REQUIRE_ALL: &str = "FOSTER_REQUIRE_ALL";

/// Says that a test, or a part of it, has not run here, and which condition is missing.
///
/// # Panics
///
/// Where `FOSTER_REQUIRE_ALL` is 1.
pub fn not_run(what: &str, missing: &str) {
    note_not_run(what, missing);
    let is_required = std::env::var_os(REQUIRE_ALL).is_some_and(|value| value == "1");
    assert!(!is_required, "{what} has to run, and {missing}");
}
