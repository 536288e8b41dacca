//! Finding everybody who bears an instance's mark.

use std::io;

use foster_protocol::{Mark, Record, SessionId};

use super::processes::{Held, all_pids, marked};
use super::report::Found;
use super::spared::Spared;

/// What a scan of `/proc` says beside whom it met.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Who bears the mark and is spared.
    pub(super) spared: Vec<Found>,
    /// Somebody could not be held, for want of descriptors.
    pub(super) is_cut: bool,
}

/// Looks at every process once and gives those to `meet`, held, that bear the instance's mark,
/// are of no released session, and are not spared. Without a mark there is nobody to find.
///
/// # Errors
///
/// What `/proc` says.
pub(super) fn scan(
    record: &Record,
    spared: &Spared,
    meet: &mut dyn FnMut(Held),
) -> io::Result<Scan> {
    let mut scan = Scan::default();
    let Some(mark) = record.mark else {
        return Ok(scan);
    };
    for pid in all_pids()? {
        // Holding every process of the machine would be dear, so that a first look goes by the
        // number. The look that counts is at the held process.
        match marked(pid, mark) {
            Ok(Some(session)) if !record.is_released(session) => {}
            Ok(_) => continue,
            Err(error) if is_out_of_descriptors(&error) => {
                scan.is_cut = true;
                continue;
            }
            Err(error) => return Err(error),
        }
        match hold(pid, mark, record) {
            Ok(Some(held)) if spared.has(&held.stat) => scan.spared.push(held.found()),
            Ok(Some(held)) => meet(held),
            Ok(None) => {}
            Err(error) if is_out_of_descriptors(&error) => scan.is_cut = true,
            Err(error) => return Err(error),
        }
    }
    Ok(scan)
}

fn hold(pid: i32, mark: Mark, record: &Record) -> io::Result<Option<Held>> {
    let is_left = |session: SessionId| !record.is_released(session);
    let held = Held::open(pid, mark)?;
    Ok(held.filter(|held| is_left(held.session())))
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
    )
}
