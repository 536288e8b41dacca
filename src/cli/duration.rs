//! Durations as coreutils `timeout` spells them: `30`, `1.5m`, `2h`, and `500ms`.
//!
//! A number as strtod(3) reads it in decimal, then a unit: `ms`, `s` (also without one), `m`,
//! `h` or `d`. What does not fit saturates; what is above zero never becomes zero.

use std::time::Duration;

use thiserror::Error;

/// The shortest duration that limits are counted in.
const SHORTEST: Duration = Duration::from_micros(1);

/// Why a text is no duration.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum DurationError {
    /// There is no number at its start.
    #[error("not a number with a unit, as in 30, 1.5m or 500ms")]
    Number,
    /// The unit is not known.
    #[error("unknown unit \"{0}\" (ms, s, m, h and d are known)")]
    Unit(String),
}

/// Reads a duration.
///
/// # Errors
///
/// [`DurationError`] where the text has no number, a sign that makes it negative, or a unit
/// that is not known.
pub(crate) fn parse(text: &str) -> Result<Duration, DurationError> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.strip_prefix(number).unwrap_or_default();
    // The parser of numbers also takes "inf" and "nan", which are no limits.
    if !number.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '+') {
        return Err(DurationError::Number);
    }
    // Digits decide, because a tiny number is 0.0 to the parser and no limit to a reader.
    let is_off = !number.split(['e', 'E']).take(1).any(has_value);
    let number: f64 = number.parse().map_err(|_| DurationError::Number)?;
    let scale = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        unknown => return Err(DurationError::Unit(unknown.to_owned())),
    };
    let duration = Duration::try_from_secs_f64(number * scale).unwrap_or(Duration::MAX);
    Ok(if is_off {
        Duration::ZERO
    } else {
        duration.max(SHORTEST)
    })
}

/// Whether a number's digits before its exponent are not all zero.
fn has_value(digits: &str) -> bool {
    digits.contains(|c: char| ('1'..='9').contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_of_timeout_is_read() {
        for (text, millis) in [
            ("30", 30_000),
            ("30s", 30_000),
            ("1.5m", 90_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("500ms", 500),
            (".5", 500),
            ("5.", 5_000),
            ("+2", 2_000),
            ("1e3", 1_000_000),
            ("1e-1s", 100),
            ("1E1ms", 10),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn zero_is_zero_in_every_unit() {
        for text in ["0", "0s", "0.0m", "0ms", "0d", "0e9"] {
            assert_eq!(parse(text), Ok(Duration::ZERO), "{text}");
        }
    }

    #[test]
    fn a_duration_above_zero_never_becomes_zero() {
        for text in ["1e-30", "0.0000001ms", "1e-300d", "1e-999"] {
            assert_eq!(parse(text), Ok(SHORTEST), "{text}");
        }
    }

    #[test]
    fn a_duration_that_does_not_fit_saturates() {
        for text in ["1e30", "99999999999999999999999d", "1e999"] {
            assert_eq!(parse(text), Ok(Duration::MAX), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "", "s", "-1", "-0", "inf", "infinity", "nan", "+inf", " 1", "1 s", "1,5",
        ] {
            assert_eq!(parse(text), Err(DurationError::Number), "{text}");
        }
        for (text, unit) in [
            ("5x", "x"),
            ("1S", "S"),
            ("1min", "min"),
            ("1e", "e"),
            ("3us", "us"),
        ] {
            assert_eq!(
                parse(text),
                Err(DurationError::Unit(unit.to_owned())),
                "{text}"
            );
        }
    }
}
