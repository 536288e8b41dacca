//! What there is to tell whoever sees a command's result.

use std::fmt;

/// What has become of a command's supervision, where it is not as it should be.
///
/// A host acts on the value and shows the text: beside the command's result, never in its
/// place. The text of each is fixed, without any number, time or content, so that a host whose
/// output is compared or cached stays the same. Nobody needs to read it back.
///
/// Where all is well there is none. A command that a [`Spawner`](crate::Spawner) without a
/// helper runs directly has none either: that is how it was meant.
///
/// # Examples
///
/// ```
/// use foster::Notice;
///
/// let notice = Notice::ExitUnknown;
/// println!("{notice}");
/// assert!(notice.is_unknown());
/// assert!(!Notice::NoHelper.is_unknown());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Notice {
    /// No helper could be started, so this process runs the command itself.
    NoHelper,
    /// The helper was lost, or did not answer, before it said whether the command was started.
    /// It may have run, and is not started again.
    StartUnknown,
    /// The helper was lost before the command's exit was known.
    ExitUnknown,
    /// The command's exit is known, and the release of what it left running was not
    /// acknowledged.
    ReleaseUnknown,
    /// The tree was sent its signals, and its end is not confirmed.
    EndUnconfirmed,
    /// The command runs without a job. Never but on Windows.
    NoJob,
}

impl Notice {
    /// Whether something about the command is not known, so that its result may be incomplete.
    #[must_use]
    pub fn is_unknown(self) -> bool {
        match self {
            Notice::NoHelper | Notice::NoJob => false,
            Notice::StartUnknown
            | Notice::ExitUnknown
            | Notice::ReleaseUnknown
            | Notice::EndUnconfirmed => true,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Notice::NoHelper => {
                "no spawn helper could be started; the command ran without one, and processes \
                 that it starts may outlive this program"
            }
            Notice::StartUnknown => {
                "the spawn helper stopped answering before it said whether the command was \
                 started; the command may have run, and was not started again"
            }
            Notice::ExitUnknown => {
                "the spawn helper was lost while the command ran; how the command ended, and \
                 what it left running, is unknown"
            }
            Notice::ReleaseUnknown => {
                "the command has finished, but what it left running could not be handed over; \
                 whether that still runs is unknown"
            }
            Notice::EndUnconfirmed => {
                "the command's processes were told to end, but it is not confirmed that all of \
                 them have"
            }
            Notice::NoJob => {
                "the command could not be put into a job; it ran without one, and processes that \
                 it starts may outlive it and this program"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_fixed_and_differ_and_hold_no_number() {
        let all = [
            Notice::NoHelper,
            Notice::StartUnknown,
            Notice::ExitUnknown,
            Notice::ReleaseUnknown,
            Notice::EndUnconfirmed,
            Notice::NoJob,
        ];
        let texts = all.map(|notice| notice.to_string());
        for (index, text) in texts.iter().enumerate() {
            assert!(
                !text.contains(|letter: char| letter.is_ascii_digit()),
                "{text}"
            );
            assert!(!text.contains('\n') && !text.ends_with('.'), "{text}");
            assert_eq!(texts.iter().position(|other| other == text), Some(index));
        }
    }
}
