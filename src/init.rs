//! Playing the helper in a re-executed host.

use std::sync::atomic::{AtomicBool, Ordering};

/// The argument that a re-executed host is given. Alone, without a socket as standard input,
/// it does nothing.
pub(crate) const RESERVED: &str = "__foster-helper";

/// Whether the host has offered itself to be re-executed.
static CALLED: AtomicBool = AtomicBool::new(false);

/// Whether the host's `main` begins with `init`.
pub(crate) fn was_called() -> bool {
    CALLED.load(Ordering::Relaxed)
}

/// Plays the helper where this process was started as one, and returns at once otherwise.
///
/// It is the first line of a host's `main`, before any thread, any output and any look at the
/// arguments. A program that calls it needs no other executable for its helper: it is started
/// once more, as the helper, and never returns from this call then.
///
/// Started by hand with the helper's reserved argument, the process says so on standard error
/// and exits with code 100.
///
/// # Examples
///
/// ```no_run
/// fn main() -> foster::Result<()> {
///     foster::init();
///     let status = foster::Command::new("true").status()?;
///     assert!(status.success());
///     Ok(())
/// }
/// ```
#[cfg(feature = "embedded-helper")]
pub fn init() {
    if std::env::args_os().nth(1).as_deref() != Some(RESERVED.as_ref()) {
        CALLED.store(true, Ordering::Relaxed);
        return;
    }
    exit(play())
}

/// The exit code for wrong use, as the helper's own.
#[cfg(feature = "embedded-helper")]
const WRONG_USE: u8 = 100;

#[cfg(feature = "embedded-helper")]
#[expect(
    clippy::print_stderr,
    reason = "nobody else can say it: the host's main has not begun"
)]
fn play() -> std::process::ExitCode {
    use std::os::fd::AsFd;

    let stdin = std::io::stdin();
    let is_socket = nix::sys::stat::fstat(stdin.as_fd()).is_ok_and(|status| {
        nix::sys::stat::SFlag::from_bits_truncate(status.st_mode) & nix::sys::stat::SFlag::S_IFMT
            == nix::sys::stat::SFlag::S_IFSOCK
    });
    if is_socket {
        return foster_helper::run();
    }
    eprintln!("foster: {RESERVED} is not for use by hand: standard input is no control socket");
    WRONG_USE.into()
}

/// Ends the process, as `main` does with the same code.
#[cfg(feature = "embedded-helper")]
#[expect(
    clippy::disallowed_methods,
    reason = "the helper stands in for the host's main"
)]
fn exit(code: std::process::ExitCode) -> ! {
    // std gives no number for a code, so the number is found by comparison.
    let number = (0..=u8::MAX).find(|number| std::process::ExitCode::from(*number) == code);
    std::process::exit(number.unwrap_or(u8::MAX).into())
}
