//! Signal names and numbers, as they are given on the command line and shown in lines.

use std::str::FromStr;

use nix::sys::signal::Signal;
use thiserror::Error;

/// The largest signal number of Linux, the last real-time signal.
const LAST: i32 = 64;

/// Names that the list of the system does not hold, beside the one that it does.
const ALIASES: [(&str, Signal); 3] = [
    ("CLD", Signal::SIGCHLD),
    ("IOT", Signal::SIGABRT),
    ("POLL", Signal::SIGIO),
];

/// A text that names no signal.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("not a signal: a name as in TERM or SIGTERM, or a number from 1 to {LAST}, is")]
pub(crate) struct SignalError;

/// Reads a signal: a name with or without `SIG`, in any case, or a number.
///
/// # Errors
///
/// [`SignalError`] where the text names no signal.
pub(crate) fn parse(text: &str) -> Result<i32, SignalError> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let number = text.parse().map_err(|_| SignalError)?;
        return if (1..=LAST).contains(&number) {
            Ok(number)
        } else {
            Err(SignalError)
        };
    }
    let name = text.to_ascii_uppercase();
    let short = name.strip_prefix("SIG").unwrap_or(&name);
    if let Some((_, signal)) = ALIASES.iter().find(|(alias, _)| *alias == short) {
        return Ok(*signal as i32);
    }
    Signal::from_str(&format!("SIG{short}"))
        .map(|signal| signal as i32)
        .map_err(|_| SignalError)
}

/// Names a signal without its `SIG`; one without a name is its number.
pub(crate) fn name(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => signal.as_str().trim_start_matches("SIG").to_owned(),
        Err(_) => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_and_without_their_prefix() {
        for text in ["TERM", "SIGTERM", "term", "SigTerm", "15"] {
            assert_eq!(parse(text), Ok(15), "{text}");
        }
        assert_eq!(parse("IO"), parse("POLL"));
        assert_eq!(parse("ABRT"), parse("SIGIOT"));
        assert_eq!(parse("CHLD"), parse("CLD"));
    }

    #[test]
    fn real_time_signals_are_numbers() {
        assert_eq!(parse("34"), Ok(34));
        assert_eq!(parse("64"), Ok(64));
        assert_eq!(name(64), "64");
    }

    #[test]
    fn what_is_no_signal_is_refused() {
        for text in [
            "",
            "0",
            "65",
            "-9",
            "+9",
            "9x",
            "SIG",
            "SIGSIGTERM",
            "TERMINATE",
            "1e1",
        ] {
            assert_eq!(parse(text), Err(SignalError), "{text}");
        }
    }

    #[test]
    fn a_name_reads_back_as_its_number() {
        for number in 1..=64 {
            assert_eq!(parse(&name(number)), Ok(number));
        }
    }
}
