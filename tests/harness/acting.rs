//! What fixtures have in common: a bound life, saying a line, becoming another program.

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;

use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, alarm, execvp, pause, setsid};

use crate::sys::{Fork, fork};
use crate::tracer::Witness;

/// How long a fixture lives at most, in seconds: what a failing test leaves behind ends too.
pub const LIFE: u32 = 60;

/// How often a number is asked for: another process may take it first.
const TRIES: u32 = 50;

/// Sees to it that this process ends by SIGALRM after its bound life, children not included.
pub fn bound_life() {
    alarm::set(LIFE);
}

/// Lives until a signal or the bound of its life ends it.
pub fn live() -> ! {
    bound_life();
    loop {
        pause();
    }
}

/// Writes a line to standard output at once.
///
/// # Errors
///
/// What the kernel says.
pub fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// The arguments before `--`, and those behind it.
///
/// # Panics
///
/// Where there is no `--`.
#[must_use]
pub fn split_arguments() -> (Vec<OsString>, Vec<OsString>) {
    let mut own: Vec<OsString> = std::env::args_os().skip(1).collect();
    let place = own
        .iter()
        .position(|word| word == "--")
        .expect("a -- before the program");
    let program = own.split_off(place).split_off(1);
    (own, program)
}

/// Becomes the program.
///
/// # Errors
///
/// What the kernel says; it does not return where it worked.
///
/// # Panics
///
/// Where there is no program.
pub fn become_program(words: Vec<OsString>) -> Result<Infallible, Errno> {
    let words: Vec<CString> = words
        .into_iter()
        .map(|word| CString::new(word.into_vec()).expect("an argument holds no NUL"))
        .collect();
    let program = words.first().expect("a program behind --");
    execvp(program, &words)
}

/// A stranger that leads a session under this number; none where the kernel never gives it.
/// Only for a process with one thread, in a pid namespace of its own.
///
/// # Errors
///
/// What the kernel says.
pub fn stranger_with(number: i32) -> io::Result<Option<Pid>> {
    for _ in 0..TRIES {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string())?;
        match fork()? {
            Fork::Child => {
                setsid()?;
                live();
            }
            Fork::Parent(pid) if pid == number => return Ok(Some(Pid::from_raw(pid))),
            Fork::Parent(pid) => {
                // A child of this process that is unreaped: the number is its own.
                Witness::of(pid).signal(libc::SIGKILL);
                waitpid(Pid::from_raw(pid), None)?;
            }
        }
    }
    Ok(None)
}
