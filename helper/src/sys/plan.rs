//! Everything that a child needs, worked out before the fork: the child cannot allocate.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use foster_protocol::{Bytes, Mapping, ResourceLimit, Spec, Step};
use libc::{EBADF, EINVAL, c_char};
use nix::sys::resource::Resource;

use super::raw::Scheduling;
use super::spawn::Context;

/// Where programs are searched without a `PATH`.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// The longest path that the kernel takes, its NUL included.
const PATH_MAX: usize = 4096;

/// Where `/dev/null` stands among the places.
const NULL: usize = 0;

/// How many places a spawn adds to those of the plan: the status pipe and the gate.
const EXTRA_PLACES: usize = 2;

/// A prepared spawn. Dropping it closes the descriptors that came with it.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Keeps the sources of `orders` open until the fork.
    _descriptors: Vec<OwnedFd>,
    pub(super) orders: Orders,
}

/// What the child does, in the order in which it does it.
#[derive(Debug)]
pub(super) struct Orders {
    /// Every descriptor that the child uses, by its number at the fork. The child moves those
    /// that stand where a target will be.
    pub(super) places: Vec<i32>,
    /// Which place goes to which target, sorted by target: never twice the same, and always
    /// 0, 1 and 2.
    pub(super) wires: Vec<Wire>,
    /// The place of the directory to start from.
    pub(super) base: Option<usize>,
    pub(super) directory: Option<CString>,
    pub(super) controlling_terminal: Option<i32>,
    pub(super) umask: Option<u32>,
    pub(super) resource_limits: Vec<ResourceLimit>,
    /// What the helper was started with, where it has changed its own; `nice` comes after it.
    pub(super) scheduling: Option<Scheduling>,
    pub(super) nice: Option<i32>,
    pub(super) oom_score_adj: Option<OomText>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) groups: Option<Vec<u32>>,
    pub(super) no_new_privs: bool,
    /// 0 is none.
    pub(super) death_signal: i32,
    pub(super) blocked: u64,
    pub(super) gated: bool,
    /// What to execute, the first one that is there.
    pub(super) candidates: Vec<CString>,
    pub(super) arguments: Strings,
    pub(super) environment: Strings,
}

/// An OOM score adjustment as it is written.
#[derive(Debug)]
pub(super) struct OomText {
    pub(super) text: Vec<u8>,
    /// Nobody asked for it: the child is given back what its helper was started with.
    pub(super) is_reset: bool,
}

/// A place that becomes a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wire {
    pub(super) target: i32,
    /// An index of `places`.
    pub(super) place: usize,
}

/// A null-terminated array of C strings.
#[derive(Debug)]
pub(super) struct Strings {
    /// Owns what `pointers` points to; never changed after they were taken.
    _bytes: Vec<u8>,
    pointers: Vec<*const c_char>,
}

impl Plan {
    /// Prepares a spawn.
    ///
    /// # Errors
    ///
    /// The step that could not succeed, with its error number: a string with a NUL, a mapping
    /// of a descriptor that did not come, a target that is negative or stands twice, an id
    /// that means "no change" to the kernel, a death signal for a detachable session.
    pub(crate) fn new(
        spec: &Spec,
        descriptors: Vec<OwnedFd>,
        context: &Context,
    ) -> Result<Self, (Step, i32)> {
        check_ids(spec)?;
        let places = places(&descriptors, context);
        let base = match spec.directory_base {
            Some(index) => Some(place(index, &descriptors).ok_or((Step::Directory, EBADF))?),
            None => None,
        };
        let directory = match &spec.directory {
            Some(directory) => Some(c_string(&directory.0).map_err(|e| (Step::Directory, e))?),
            None => None,
        };
        let prepare = |errno| (Step::Prepare, errno);
        let orders = Orders {
            places,
            wires: wires(&spec.descriptors, &descriptors).map_err(|e| (Step::Descriptors, e))?,
            base,
            directory,
            controlling_terminal: spec.controlling_terminal,
            umask: spec.umask,
            resource_limits: resource_limits(spec, context),
            nice: spec.nice,
            scheduling: None,
            oom_score_adj: oom_score(spec, context),
            uid: spec.uid,
            gid: spec.gid,
            groups: spec.groups.clone(),
            no_new_privs: spec.no_new_privs,
            death_signal: death_signal(spec)?,
            blocked: spec.blocked,
            gated: spec.gated,
            candidates: candidates(spec).map_err(prepare)?,
            arguments: Strings::new(&spec.args).map_err(prepare)?,
            environment: Strings::new(&spec.env).map_err(prepare)?,
        };
        Ok(Self {
            _descriptors: descriptors,
            orders,
        })
    }
}

impl Plan {
    /// Marks the child by a limit, unless its spec sets that limit itself.
    pub(crate) fn marked(mut self, mark: Option<ResourceLimit>) -> Self {
        let limits = &mut self.orders.resource_limits;
        let is_free = |mark: &ResourceLimit| limits.iter().all(|one| one.resource != mark.resource);
        let mark = mark.filter(is_free);
        limits.extend(mark);
        self
    }

    /// Gives the child a scheduling other than that of the thread which forks it.
    pub(crate) fn scheduled(mut self, scheduling: Option<Scheduling>) -> Self {
        self.orders.scheduling = scheduling;
        self
    }
}

impl Orders {
    /// Adds a descriptor of the spawn's own and gives its place. The room is there already.
    pub(super) fn add_place(&mut self, number: i32) -> usize {
        let place = self.places.len();
        self.places.push(number);
        place
    }
}

impl Strings {
    fn new(strings: &[Bytes]) -> Result<Self, i32> {
        let length = strings
            .iter()
            .map(|string| string.0.len().saturating_add(1))
            .sum();
        let mut bytes = Vec::with_capacity(length);
        for string in strings {
            if string.0.contains(&0) {
                return Err(EINVAL);
            }
            bytes.extend_from_slice(&string.0);
            bytes.push(0);
        }
        let mut pointers = Vec::with_capacity(strings.len().saturating_add(1));
        pointers.extend(
            bytes
                .split_inclusive(|&byte| byte == 0)
                .map(|string| string.as_ptr().cast()),
        );
        pointers.push(ptr::null());
        Ok(Self {
            _bytes: bytes,
            pointers,
        })
    }

    /// The array, as `execve(2)` takes it.
    pub(super) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// -1 leaves an id as it is: a command that was to lose its privileges would keep them.
fn check_ids(spec: &Spec) -> Result<(), (Step, i32)> {
    if spec.uid == Some(u32::MAX) {
        return Err((Step::Uid, EINVAL));
    }
    if spec.gid == Some(u32::MAX) {
        return Err((Step::Gid, EINVAL));
    }
    Ok(())
}

fn places(descriptors: &[OwnedFd], context: &Context) -> Vec<i32> {
    let room = descriptors
        .len()
        .saturating_add(1)
        .saturating_add(EXTRA_PLACES);
    let mut places = Vec::with_capacity(room);
    places.push(context.null.as_raw_fd());
    places.extend(descriptors.iter().map(AsRawFd::as_raw_fd));
    places
}

/// The place of a passed descriptor.
fn place(index: u32, descriptors: &[OwnedFd]) -> Option<usize> {
    let index = usize::try_from(index)
        .ok()
        .filter(|&index| index < descriptors.len())?;
    index.checked_add(1)
}

fn wires(mappings: &[Mapping], descriptors: &[OwnedFd]) -> Result<Vec<Wire>, i32> {
    let mut wires = Vec::with_capacity(mappings.len().saturating_add(3));
    for mapping in mappings {
        if mapping.target < 0 {
            return Err(EBADF);
        }
        let place = place(mapping.source, descriptors).ok_or(EBADF)?;
        wires.push(Wire {
            target: mapping.target,
            place,
        });
    }
    for target in 0..3 {
        if !wires.iter().any(|wire| wire.target == target) {
            wires.push(Wire {
                target,
                place: NULL,
            });
        }
    }
    wires.sort_unstable_by_key(|wire| wire.target);
    let is_twice = wires
        .windows(2)
        .any(|pair| matches!(pair, [first, second] if first.target == second.target));
    if is_twice { Err(EINVAL) } else { Ok(wires) }
}

/// The helper has raised its own limit of descriptors; the child gets the one that the helper
/// was started with.
fn resource_limits(spec: &Spec, context: &Context) -> Vec<ResourceLimit> {
    let resource = Resource::RLIMIT_NOFILE as u32;
    let mut limits = spec.resource_limits.clone();
    if !limits.iter().any(|limit| limit.resource == resource) {
        let (soft, hard) = context.nofile;
        limits.push(ResourceLimit {
            resource,
            soft,
            hard,
        });
    }
    limits
}

/// What is asked for, or what the helper was started with, where it lives with another one.
/// Written by a privileged child, it is also as low as the command can go by itself.
fn oom_score(spec: &Spec, context: &Context) -> Option<OomText> {
    let is_reset = spec.oom_score_adj.is_none();
    let score = spec.oom_score_adj.or(context.oom_score)?;
    Some(OomText {
        text: score.to_string().into_bytes(),
        is_reset,
    })
}

fn death_signal(spec: &Spec) -> Result<i32, (Step, i32)> {
    match (spec.death_signal, spec.detachable) {
        (None, false) => Ok(libc::SIGKILL),
        (None, true) => Ok(0),
        // It could not be disarmed when the session is released.
        (Some(number), true) if number != 0 => Err((Step::DeathSignal, EINVAL)),
        (Some(number), _) => Ok(number),
    }
}

/// What `execvp(3)` would try: a program with a slash is itself, another one is searched in
/// `PATH`, where an empty entry is the current directory.
fn candidates(spec: &Spec) -> Result<Vec<CString>, i32> {
    let program = &spec.program.0;
    if program.is_empty() || program.contains(&b'/') {
        return Ok(vec![c_string(program)?]);
    }
    let path = spec
        .env
        .iter()
        .find_map(|entry| entry.0.strip_prefix(b"PATH=".as_slice()))
        .unwrap_or(DEFAULT_PATH);
    let mut candidates = Vec::new();
    for directory in path.split(|&byte| byte == b':') {
        let directory = if directory.is_empty() {
            b".".as_slice()
        } else {
            directory
        };
        let candidate = [directory, b"/", program].concat();
        // A directory whose name is too long cannot hold it. A program whose name is too long
        // is left for the kernel to refuse.
        if candidate.len() < PATH_MAX || program.len() >= PATH_MAX {
            candidates.push(c_string(&candidate)?);
        }
    }
    if candidates.is_empty() {
        candidates.push(c_string(&[b"./".as_slice(), program].concat())?);
    }
    Ok(candidates)
}

fn c_string(bytes: &[u8]) -> Result<CString, i32> {
    CString::new(bytes).map_err(|_| EINVAL)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn candidates_of(program: &str, env: &[&str]) -> Vec<String> {
        let spec = Spec {
            program: Bytes::from(program),
            env: env.iter().map(|entry| Bytes::from(*entry)).collect(),
            ..Spec::default()
        };
        let found = candidates(&spec).unwrap();
        found.iter().map(|path: &CString| to_text(path)).collect()
    }

    fn to_text(path: &CStr) -> String {
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_program_with_a_slash_is_not_searched() {
        assert_eq!(candidates_of("./x", &["PATH=/a"]), ["./x"]);
        assert_eq!(candidates_of("", &["PATH=/a"]), [""]);
    }

    #[test]
    fn a_program_is_searched_in_the_first_path_of_its_environment() {
        assert_eq!(
            candidates_of("x", &["A=1", "PATH=/a:/b", "PATH=/c"]),
            ["/a/x", "/b/x"]
        );
        assert_eq!(candidates_of("x", &["XPATH=/a"]), ["/bin/x", "/usr/bin/x"]);
    }

    #[test]
    fn an_empty_entry_is_the_current_directory() {
        assert_eq!(candidates_of("x", &["PATH=:/a:"]), ["./x", "/a/x", "./x"]);
        assert_eq!(candidates_of("x", &["PATH="]), ["./x"]);
    }

    #[test]
    fn standard_descriptors_that_are_not_named_are_null() {
        let wires = wires(&[], &[]).unwrap();
        let expected = [0, 1, 2].map(|target| Wire {
            target,
            place: NULL,
        });
        assert_eq!(wires, expected);
    }

    #[test]
    fn a_target_twice_or_below_zero_and_a_missing_source_are_refused() {
        let null = || crate::sys::own::open_null().unwrap();
        let map = |target, source| Mapping { target, source };
        let one = [null()];
        assert_eq!(wires(&[map(5, 0), map(5, 0)], &one), Err(EINVAL));
        assert_eq!(wires(&[map(-1, 0)], &one), Err(EBADF));
        assert_eq!(wires(&[map(5, 1)], &one), Err(EBADF));
    }
}
