//! A host that dies or ends, in every way, with no, one and fifty sessions: nothing is left.

use std::time::{Duration, Instant};

use foster_tests::{DEATH, Host, Stage};

use crate::shapes::{GRACE, MARGIN, assert_in_time, time_to_end};

/// How a host leaves life.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The test kills it.
    Killed,
    /// It does this at a word, and this becomes of it: its code, or the signal that it died of.
    Word(&'static str, Result<i32, i32>),
}

/// With this many sessions, from none to more than one of each shape.
const COUNTS: [usize; 3] = [0, 1, 50];

fn assert_all_gone(way: Way) {
    use std::os::unix::process::ExitStatusExt;
    for count in COUNTS {
        let what = format!("{way:?} with {count} sessions");
        assert_in_time(&what, GRACE + MARGIN, || {
            let stage = Stage::new();
            let mut host = Host::with_sessions(&stage, count);
            let expected = match way {
                Way::Killed => {
                    host.process.signal(libc::SIGKILL);
                    Err(libc::SIGKILL)
                }
                Way::Word(word, expected) => {
                    host.process.say(word);
                    expected
                }
            };
            let status = host.process.wait(DEATH);
            let since = Instant::now();
            let found = status.code().ok_or(status.signal().unwrap_or_default());
            assert_eq!(found, expected, "{what}");
            let time = time_to_end(&mut host.process.stdout, since);
            host.helper.wait_for_death(DEATH);
            for member in host.members.values().flatten() {
                member.wait_for_death(Duration::ZERO);
            }
            time
        });
    }
}

#[test]
fn every_session_is_gone_when_the_host_is_killed() {
    assert_all_gone(Way::Killed);
}

#[test]
fn every_session_is_gone_when_the_host_aborts() {
    assert_all_gone(Way::Word("abort", Err(libc::SIGABRT)));
}

#[test]
fn every_session_is_gone_when_the_host_panics() {
    assert_all_gone(Way::Word("panic", Ok(101)));
}

#[test]
fn every_session_is_gone_when_the_host_exits_without_unwinding() {
    assert_all_gone(Way::Word("exit", Ok(3)));
}

#[test]
fn every_session_is_gone_when_the_host_returns() {
    assert_all_gone(Way::Word("return", Ok(0)));
}

#[test]
fn every_session_is_gone_when_the_host_shuts_its_helper_down() {
    assert_all_gone(Way::Word("shutdown", Ok(0)));
}
