//! From a spec to what the child does.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use foster_protocol::{Mapping, Spec, Step};
use libc::{EBADF, EINVAL};

use super::Failed;
use crate::sys::{self, Orders, Strings, Wire};

/// Where programs are searched without a `PATH`.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// The death signal of a leader whose command does not say. Only Linux has one.
const DEATH_SIGNAL: i32 = if cfg!(target_os = "linux") {
    libc::SIGKILL
} else {
    0
};

/// The longest path that the kernel takes, its NUL included.
const PATH_MAX: usize = 4096;

/// Lays out what the child does. `status` and `go` are its ends of the two pipes.
///
/// # Errors
///
/// The step that could not succeed, with its error number.
pub(super) fn orders(
    spec: &Spec,
    mut descriptors: Vec<OwnedFd>,
    status: BorrowedFd<'_>,
    go: BorrowedFd<'_>,
) -> Result<Orders, Failed> {
    check_ids(spec)?;
    let prepare = |errno| Failed::at(Step::Prepare, errno);
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|error| prepare(error.raw_os_error().unwrap_or(libc::EIO)))?;
    let came = descriptors.len();
    descriptors.push(null.into());
    let mut places: Vec<i32> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    places.extend([status.as_raw_fd(), go.as_raw_fd()]);
    let base = match spec.directory_base {
        Some(index) => Some(place(index, came).ok_or(Failed::at(Step::Directory, EBADF))?),
        None => None,
    };
    let directory = match &spec.directory {
        Some(path) => {
            Some(CString::new(path.0.as_slice()).map_err(|_| Failed::at(Step::Directory, EINVAL))?)
        }
        None => None,
    };
    Ok(Orders {
        wires: wires(&spec.descriptors, came)
            .map_err(|errno| Failed::at(Step::Descriptors, errno))?,
        _descriptors: descriptors,
        places,
        status: came + 1,
        go: came + 2,
        base,
        directory,
        terminal: spec.controlling_terminal,
        umask: spec.umask,
        limits: spec.resource_limits.clone(),
        nice: spec.nice,
        oom_score_adj: spec
            .oom_score_adj
            .map(|score| score.to_string().into_bytes()),
        uid: spec.uid,
        gid: spec.gid,
        groups: spec.groups.clone(),
        no_new_privs: spec.no_new_privs,
        death_signal: death_signal(spec)?,
        blocked: spec.blocked,
        gated: spec.gated,
        candidates: candidates(spec).ok_or(prepare(EINVAL))?,
        arguments: Strings::new(&spec.args).ok_or(prepare(EINVAL))?,
        environment: Strings::new(&spec.env).ok_or(prepare(EINVAL))?,
        open_max: sys::open_max(),
        parent: std::process::id().cast_signed(),
    })
}

/// -1 leaves an id as it is: a command that was to lose its privileges would keep them.
fn check_ids(spec: &Spec) -> Result<(), Failed> {
    if spec.uid == Some(u32::MAX) {
        return Err(Failed::at(Step::Uid, EINVAL));
    }
    if spec.gid == Some(u32::MAX) {
        return Err(Failed::at(Step::Gid, EINVAL));
    }
    Ok(())
}

/// The place of a passed descriptor.
fn place(index: u32, came: usize) -> Option<usize> {
    usize::try_from(index).ok().filter(|&index| index < came)
}

fn wires(mappings: &[Mapping], came: usize) -> Result<Vec<Wire>, i32> {
    let mut wires = Vec::with_capacity(mappings.len() + 3);
    for mapping in mappings {
        if mapping.target < 0 {
            return Err(EBADF);
        }
        let place = place(mapping.source, came).ok_or(EBADF)?;
        wires.push(Wire {
            target: mapping.target,
            place,
        });
    }
    for target in 0..3 {
        if !wires.iter().any(|wire| wire.target == target) {
            // `/dev/null` stands behind what came.
            wires.push(Wire {
                target,
                place: came,
            });
        }
    }
    wires.sort_unstable_by_key(|wire| wire.target);
    let is_twice = wires
        .windows(2)
        .any(|pair| matches!(pair, [first, second] if first.target == second.target));
    if is_twice { Err(EINVAL) } else { Ok(wires) }
}

/// The thread that forks lives as long as its leader, so that the signal means what it says.
fn death_signal(spec: &Spec) -> Result<i32, Failed> {
    match (spec.death_signal, spec.detachable) {
        (None, false) => Ok(DEATH_SIGNAL),
        (None, true) => Ok(0),
        // It could not be disarmed when the session is released.
        (Some(number), true) if number != 0 => Err(Failed::at(Step::DeathSignal, EINVAL)),
        (Some(number), _) => Ok(number),
    }
}

/// What `execvp(3)` would try: a program with a slash is itself, another one is searched in
/// the command's `PATH`, where an empty entry is the current directory.
fn candidates(spec: &Spec) -> Option<Vec<CString>> {
    let program = &spec.program.0;
    if program.is_empty() || program.contains(&b'/') {
        return Some(vec![CString::new(program.as_slice()).ok()?]);
    }
    let path = spec
        .env
        .iter()
        .find_map(|entry| entry.0.strip_prefix(b"PATH=".as_slice()))
        .unwrap_or(DEFAULT_PATH);
    let mut candidates = Vec::new();
    for directory in path.split(|&byte| byte == b':') {
        let directory = match directory {
            [] => b".".as_slice(),
            directory => directory,
        };
        let candidate = [directory, b"/", program].concat();
        // A directory whose name is too long cannot hold it. A program whose name is too long
        // is left for the kernel to refuse.
        if candidate.len() < PATH_MAX || program.len() >= PATH_MAX {
            candidates.push(CString::new(candidate).ok()?);
        }
    }
    if candidates.is_empty() {
        candidates.push(CString::new([b"./".as_slice(), program].concat()).ok()?);
    }
    Some(candidates)
}

#[cfg(test)]
mod tests {
    use foster_protocol::Bytes;

    use super::*;

    #[test]
    fn a_program_is_searched_in_the_first_path_of_its_environment() {
        let of = |program: &str, env: &[&str]| {
            let spec = Spec {
                program: Bytes::from(program),
                env: env.iter().map(|entry| Bytes::from(*entry)).collect(),
                ..Spec::default()
            };
            let found = candidates(&spec).expect("no NUL");
            found
                .iter()
                .map(|path| path.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(of("x", &["A=1", "PATH=/a:", "PATH=/c"]), ["/a/x", "./x"]);
        assert_eq!(of("x", &[]), ["/bin/x", "/usr/bin/x"]);
        assert_eq!(of("./x", &["PATH=/a"]), ["./x"]);
    }

    #[test]
    fn a_target_twice_or_below_zero_and_a_missing_source_are_refused() {
        let map = |target, source| Mapping { target, source };
        assert_eq!(wires(&[map(5, 0), map(5, 0)], 1), Err(EINVAL));
        assert_eq!(wires(&[map(-1, 0)], 1), Err(EBADF));
        assert_eq!(wires(&[map(5, 1)], 1), Err(EBADF));
        assert!(wires(&[map(5, 0)], 1).is_ok());
    }
}
