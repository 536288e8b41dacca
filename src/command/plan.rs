//! From a `Command` to what is sent: the spec, the descriptors, and this side's pipe ends.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout};

use foster_protocol::{Bytes, LevelChoice, Mapping, Micros, ResourceLimit, Spec, TreeLimits};

use super::Command;
use crate::error::{Error, Repr, Result, Subject, directory};
use crate::on_exit::OnExit;
use crate::size::{Item, Size, bytes, checked};
use crate::stdio::{Own, Source};
use crate::sys;

/// A directory is opened to be entered. Elsewhere than on Linux it has to be readable for that.
#[cfg(target_os = "linux")]
const TO_ENTER: i32 = libc::O_PATH;
#[cfg(not(target_os = "linux"))]
const TO_ENTER: i32 = 0;

/// The options of a spec that are passed on as they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) controlling_terminal: Option<i32>,
    pub(super) umask: Option<u32>,
    pub(super) resource_limits: Vec<ResourceLimit>,
    pub(super) nice: Option<i32>,
    pub(super) oom_score_adj: Option<i32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) groups: Option<Vec<u32>>,
    pub(super) no_new_privs: bool,
    pub(super) death_signal: Option<i32>,
    pub(super) inherit_signal_mask: bool,
    pub(super) first_signal: Option<i32>,
}

/// What a stream is connected to where the command does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defaults {
    /// All three are inherited.
    Inherit,
    /// No input, and both outputs through pipes.
    Capture,
}

/// Everything about one attempt to spawn.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) spec: Spec,
    pub(super) descriptors: Vec<OwnedFd>,
    pub(super) ends: Ends,
    pub(super) size: Size,
}

/// This side's ends of the pipes.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
}

/// Descriptors that travel with the request.
#[derive(Debug, Default)]
struct Passed {
    descriptors: Vec<OwnedFd>,
    mappings: Vec<Mapping>,
}

impl Passed {
    fn pass(&mut self, descriptor: OwnedFd) -> Result<u32> {
        let index = u32::try_from(self.descriptors.len())
            .map_err(|error| Error::system("too many descriptors", io::Error::other(error)))?;
        self.descriptors.push(descriptor);
        Ok(index)
    }

    fn map(&mut self, target: i32, descriptor: OwnedFd) -> Result<()> {
        let source = self.pass(descriptor)?;
        self.mappings.push(Mapping { target, source });
        Ok(())
    }
}

impl Command {
    /// What the spawn is about, for its errors.
    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject {
            program: Path::new(&self.program),
            directory: self.directory.as_deref(),
        }
    }

    /// Makes everything that one attempt to spawn needs.
    pub(super) fn plan(&self, defaults: Defaults, gated: bool) -> Result<Plan> {
        let mut size = Size::new();
        let program = checked(|| Item::Program, bytes(&self.program))?;
        let args = self.all_args(&mut size)?;
        let env = self.environment.entries(&mut size)?;
        let mut passed = Passed::default();
        let ends = self.pass_streams(defaults, &mut passed)?;
        for (target, descriptor) in &self.descriptors {
            passed.map(*target, descriptor.try_clone().map_err(no_descriptor)?)?;
        }
        let directory_base = self.pass_directory(&mut passed)?;
        let directory = match &self.directory {
            Some(path) => Some(checked(|| Item::Directory, bytes(path.as_os_str()))?),
            None => None,
        };
        let blocked = match self.options.inherit_signal_mask {
            true => sys::blocked_signals()
                .map_err(|error| Error::system("signal mask cannot be read", error))?,
            false => 0,
        };
        let options = self.options.clone();
        let spec = Spec {
            program,
            args,
            env,
            directory_base,
            directory,
            descriptors: passed.mappings,
            controlling_terminal: options.controlling_terminal,
            umask: options.umask,
            resource_limits: options.resource_limits,
            nice: options.nice,
            oom_score_adj: options.oom_score_adj,
            uid: options.uid,
            gid: options.gid,
            groups: options.groups,
            no_new_privs: options.no_new_privs,
            death_signal: options.death_signal,
            blocked,
            level: self.level.unwrap_or(LevelChoice::Auto),
            require: self.require,
            limits: TreeLimits::default(),
            on_exit: OnExit::to_wire(self.on_exit),
            deadline: self.deadline.map(Micros::from),
            first_signal: options.first_signal,
            grace: Micros::from(self.grace),
            detachable: self.detachable,
            gated,
            label: checked(|| Item::Label, bytes(&self.label))?,
        };
        Ok(Plan {
            spec,
            descriptors: passed.descriptors,
            ends,
            size,
        })
    }

    /// The arguments, the program's name for itself first.
    fn all_args(&self, size: &mut Size) -> Result<Vec<Bytes>> {
        let name = self.arg0.as_ref().unwrap_or(&self.program);
        std::iter::once(name)
            .chain(&self.args)
            .enumerate()
            .map(|(index, arg)| size.add(|| Item::Argument(index), bytes(arg)))
            .collect()
    }

    fn pass_streams(&self, defaults: Defaults, passed: &mut Passed) -> Result<Ends> {
        let (input, output) = match defaults {
            Defaults::Inherit => (&Source::Inherit, &Source::Inherit),
            Defaults::Capture => (&Source::Null, &Source::Piped),
        };
        let mut ends = Ends::default();
        let stdin = self.stdin.as_ref().map_or(input, |stdio| &stdio.0);
        if let Some(child) = stream(stdin, Own::Stdin, |theirs, ours| {
            ends.stdin = Some(OwnedFd::from(ours).into());
            theirs.into()
        })? {
            passed.map(0, child)?;
        }
        let stdout = self.stdout.as_ref().map_or(output, |stdio| &stdio.0);
        if let Some(child) = stream(stdout, Own::Stdout, |ours, theirs| {
            ends.stdout = Some(OwnedFd::from(ours).into());
            theirs.into()
        })? {
            passed.map(1, child)?;
        }
        let stderr = self.stderr.as_ref().map_or(output, |stdio| &stdio.0);
        if let Some(child) = stream(stderr, Own::Stderr, |ours, theirs| {
            ends.stderr = Some(OwnedFd::from(ours).into());
            theirs.into()
        })? {
            passed.map(2, child)?;
        }
        Ok(ends)
    }

    /// Passes the directory in which relative paths begin: this process's own, also where its
    /// name is gone. It is not needed, and may be out of reach, where the path is absolute.
    fn pass_directory(&self, passed: &mut Passed) -> Result<Option<u32>> {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(TO_ENTER | libc::O_DIRECTORY | libc::O_CLOEXEC)
            .open(".");
        match opened {
            Ok(own) => passed.pass(File::into(own)).map(Some),
            Err(_) if self.directory.as_deref().is_some_and(Path::is_absolute) => Ok(None),
            Err(source) if source.raw_os_error() == Some(libc::EACCES) => Err(Repr::Directory {
                directory: directory(&self.subject()),
                source,
            }
            .into()),
            Err(source) => Err(Error::system("directory cannot be passed on", source)),
        }
    }
}

impl OnExit {
    fn to_wire(self) -> foster_protocol::OnExit {
        match self {
            OnExit::Hold => foster_protocol::OnExit::Hold,
            OnExit::End { grace } => foster_protocol::OnExit::End {
                grace: grace.into(),
            },
            OnExit::Linger { limit, grace } => foster_protocol::OnExit::Linger {
                limit: Micros::from(limit),
                grace: Micros::from(grace),
            },
            OnExit::Leave => foster_protocol::OnExit::Leave,
        }
    }
}

/// The child's end of one stream; none where it is `/dev/null`. `split` gets the ends of a new
/// pipe, keeps this side's and gives the child's.
fn stream(
    source: &Source,
    own: Own,
    split: impl FnOnce(PipeReader, PipeWriter) -> OwnedFd,
) -> Result<Option<OwnedFd>> {
    match source {
        Source::Inherit => own.duplicate().map_err(no_descriptor),
        Source::Own(own) => own.duplicate().map_err(no_descriptor),
        Source::Null => Ok(None),
        Source::Piped => {
            let (reader, writer) =
                io::pipe().map_err(|error| Error::system("pipe cannot be made", error))?;
            Ok(Some(split(reader, writer)))
        }
        Source::Descriptor(descriptor) => descriptor.try_clone().map(Some).map_err(no_descriptor),
    }
}

fn no_descriptor(error: io::Error) -> Error {
    Error::system("descriptor cannot be duplicated for the command", error)
}
