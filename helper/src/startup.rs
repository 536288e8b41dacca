//! From exec to the first answer: the helper makes itself a clean parent and greets its host.
//!
//! The order matters. 1. Refuse to run for anyone but a host. 2. Move the control socket away
//! and let go of everything inherited. 3. Leave the host's session. 4. Adopt orphans, and
//! watch the host by pidfd, because a stranger that was forked off may hold the socket open.
//! 5. Wait for the greeting, no longer than the deadline.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Instant;

use foster_protocol::{
    Answer, Availability, BUILD, Bytes, Capabilities, Frame, HELLO_TIMEOUT, Inbox, Level, Obstacle,
    Outbox, Received, Reject, Reply, Request, VERSION, decode_call, encode_answer, receive, send,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use thiserror::Error;

use crate::contain::cgroup::{self, Base, Lack};
use crate::contain::namespace;
use crate::dispatch::Own;
use crate::instance::Instance;
use crate::reserve::Reserve;
use crate::sys::fork::Isolation;
use crate::sys::kernel::{self, Features};
use crate::sys::oom::OomScore;
use crate::sys::own;
use crate::sys::pace;
use crate::sys::proc::Adopted;
use crate::sys::spawn::Context;

/// Why a helper does not start.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    /// It was started by somebody who is no host.
    #[error("the helper is started by its host, and not by hand: {0}")]
    NotAHost(&'static str),
    /// The host speaks another version, or not at all.
    #[error("{0}")]
    BadGreeting(String),
    /// The host went away before it said anything.
    #[error("the host is gone")]
    HostGone,
    /// A call failed.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Names what was tried when a call fails.
trait During<T> {
    fn during(self, what: &'static str) -> Result<T, Refusal>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: &'static str) -> Result<T, Refusal> {
        self.map_err(|source| Refusal::System { what, source })
    }
}

/// A helper that is ready to serve.
pub(crate) struct Ready {
    pub(crate) control: OwnedFd,
    /// Pidfds whose owners' deaths are hangups.
    pub(crate) guards: Vec<OwnedFd>,
    pub(crate) inbox: Inbox,
    pub(crate) adopted: Option<Adopted>,
    pub(crate) context: Context,
    pub(crate) capabilities: Capabilities,
    pub(crate) own: Own,
    pub(crate) reserve: Reserve,
    /// Where cgroups are made.
    pub(crate) base: Option<Base>,
    /// The namespaces of keepers at level `namespace`.
    pub(crate) isolation: Option<Isolation>,
    /// Who this helper is to the janitor.
    pub(crate) instance: Instance,
}

/// Becomes a helper.
pub(crate) fn start() -> Result<Ready, Refusal> {
    check_starter()?;
    let control = own::take_stdin().during("move the control socket")?;
    own::close_all_but(&[control.as_fd()]).during("close inherited descriptors")?;
    own::point_at_null(&[0, 1]).during("open /dev/null")?;
    own::reset_signals().during("reset signals")?;
    // What is sent from here on waits for the handlers.
    own::block_all_signals().during("block signals")?;
    std::env::set_current_dir("/").during("change to /")?;
    own::new_session().during("make a session")?;
    own::become_subreaper().during("become a subreaper")?;
    pace::weigh_more();
    let oom_score = OomScore::open();
    own::set_dumpable(false).during("become undumpable")?;
    crate::log::start();
    let host = watch_host(&control)?;
    let nofile = own::raise_descriptor_limit().during("raise the descriptor limit")?;
    let reserve = Reserve::keep_back().during("keep descriptors back")?;
    let features = kernel::probe();
    let adopted = match features.children_files {
        true => Some(Adopted::open().during("open the list of orphans")?),
        false => None,
    };
    let mut context = Context {
        features,
        null: own::open_null().during("open /dev/null")?,
        nofile,
        oom_score: None,
        helper_pid: own_pid(),
    };
    let Greeted {
        inbox,
        base,
        isolation,
        capabilities,
        instance,
    } = greet(&control, features)?;
    context.oom_score = lower_oom_score(oom_score, isolation);
    let own = Own {
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        descriptors: reserve.usual(),
        limits: base.as_ref().is_some_and(Base::has_controllers),
    };
    Ok(Ready {
        control,
        guards: host.into_iter().collect(),
        inbox,
        adopted,
        context,
        capabilities,
        own,
        reserve,
        base,
        isolation,
        instance,
    })
}

/// Asks to be among the last whom the kernel kills. A helper whose keepers would enter user
/// namespaces does not: there, a child could not be kept from lowering its own as far
/// (`oom_score_adj_min` falls with it, and is raised again only by the privileged).
fn lower_oom_score(score: io::Result<OomScore>, isolation: Option<Isolation>) -> Option<i32> {
    match (score, isolation) {
        (Ok(_), Some(Isolation::UserAndPid)) => None,
        (Ok(score), Some(Isolation::Pid) | None) => score.lower(),
        (Err(error), _) => {
            tracing::debug!(%error, "the OOM score cannot be seen");
            None
        }
    }
}

fn own_pid() -> i32 {
    nix::unistd::getpid().as_raw()
}

/// The helper serves its parent over the socket that is its standard input, and nobody else.
fn check_starter() -> Result<(), Refusal> {
    if own::is_secure() {
        return Err(Refusal::NotAHost("it runs set-user-id"));
    }
    let stdin = io::stdin();
    if !own::is_socket(stdin.as_fd()) {
        return Err(Refusal::NotAHost("standard input is no socket"));
    }
    let peer = own::peer_pid(stdin.as_fd())
        .map_err(|_| Refusal::NotAHost("standard input is no connected local socket"))?;
    if peer != own::parent_pid() {
        return Err(Refusal::NotAHost(
            "the other end of standard input is not its parent",
        ));
    }
    Ok(())
}

/// Takes a pidfd of the host; none where there are no pidfds. The parent is looked at again
/// after it was opened, so that it is the host's and nobody else's.
fn watch_host(control: &OwnedFd) -> Result<Option<OwnedFd>, Refusal> {
    let parent = own::parent_pid();
    let host = match own::open_pidfd(parent) {
        Ok(host) => Some(host),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(Refusal::HostGone),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => None,
        Err(source) => {
            return Err(Refusal::System {
                what: "watch the host",
                source,
            });
        }
    };
    let peer = own::peer_pid(control.as_fd()).during("look at the control socket")?;
    if own::parent_pid() != parent || peer != parent {
        return Err(Refusal::HostGone);
    }
    Ok(host)
}

/// What this helper offers on this kernel.
fn capabilities(
    features: Features,
    cgroup: Result<&Base, Lack>,
    namespace: Result<Isolation, Lack>,
) -> Capabilities {
    let offered = |level| Availability {
        level,
        errno: 0,
        obstacle: None,
    };
    let missing = |level, errno, obstacle| Availability {
        level,
        errno,
        obstacle: Some(obstacle),
    };
    // A keeper tells its tree by these files alone.
    let tree = match features.children_files {
        // Whom nobody can hold, nobody can end without a risk to others.
        true if !features.pidfd => missing(Level::Tree, libc::ENOSYS, Obstacle::Pidfds),
        true => offered(Level::Tree),
        false => missing(Level::Tree, libc::ENOENT, Obstacle::ChildrenFiles),
    };
    // Whatever is above has a keeper too.
    let above_tree = |level| Availability { level, ..tree };
    Capabilities {
        levels: vec![
            offered(Level::Group),
            tree,
            match cgroup {
                Ok(_) => above_tree(Level::Cgroup),
                Err((obstacle, errno)) => missing(Level::Cgroup, errno, obstacle),
            },
            match namespace {
                Ok(_) => above_tree(Level::Namespace),
                Err((obstacle, errno)) => missing(Level::Namespace, errno, obstacle),
            },
        ],
        clone3: features.clone3,
        pidfd: features.pidfd,
        pidfd_group: features.pidfd_group,
        children_files: features.children_files,
        janitor: libc::ENOENT,
    }
}

/// What came of the greeting.
struct Greeted {
    inbox: Inbox,
    base: Option<Base>,
    isolation: Option<Isolation>,
    capabilities: Capabilities,
    instance: Instance,
}

/// Waits for the greeting and answers it.
fn greet(control: &OwnedFd, features: Features) -> Result<Greeted, Refusal> {
    let mut inbox = Inbox::new();
    let mut frame = first_frame(control, &mut inbox)?;
    let call = decode_call(&frame.body)
        .map_err(|error| Refusal::BadGreeting(format!("the first frame: {error}")))?;
    let Request::Hello {
        version,
        cgroup_root,
        build: _,
    } = call.request
    else {
        return Err(Refusal::BadGreeting(
            "the first request is not Hello".to_owned(),
        ));
    };
    if version != VERSION {
        let reason = Reject::VersionMismatch {
            helper: VERSION,
            client: version,
        };
        answer(
            control,
            Answer {
                id: call.id,
                reply: Reply::Rejected { reason },
            },
        )?;
        return Err(Refusal::BadGreeting(format!(
            "the client speaks version {version} and this helper {VERSION}"
        )));
    }
    if frame.descriptors_lost || frame.descriptors.len() > 1 {
        return Err(Refusal::BadGreeting(
            "Hello carries more than a log".to_owned(),
        ));
    }
    let root = cgroup_root.map(|root| PathBuf::from(OsString::from_vec(root.0)));
    let mut instance = Instance::draw().during("read a resource limit")?;
    let base = match features.clone3 {
        true => cgroup::find(root.as_deref(), instance.name()),
        // Only clone3 starts a child inside.
        false => Err((Obstacle::CgroupEnter, libc::ENOSYS)),
    };
    // Before the first thing is made that could be left behind.
    instance.record(base.as_ref().ok().map(Base::parent));
    let base = base.and_then(Base::try_out);
    let isolation = match features.clone3 {
        true => namespace::probe(),
        false => Err((Obstacle::PidNamespace, libc::ENOSYS)),
    };
    let mut capabilities = capabilities(features, base.as_ref().map_err(|lack| *lack), isolation);
    capabilities.janitor = instance.errno();
    answer(
        control,
        Answer {
            id: call.id,
            reply: Reply::Welcome {
                version: VERSION,
                build: Bytes::from(BUILD),
                capabilities: capabilities.clone(),
            },
        },
    )?;
    let base = base.ok();
    // From here on the helper holds no pipe of the host's but the log it was given.
    own::replace_stderr(frame.descriptors.pop()).during("set the log")?;
    Ok(Greeted {
        inbox,
        base,
        isolation: isolation.ok(),
        capabilities,
        instance,
    })
}

fn first_frame(control: &OwnedFd, inbox: &mut Inbox) -> Result<Frame, Refusal> {
    let deadline = Instant::now() + HELLO_TIMEOUT;
    loop {
        match inbox.next_frame() {
            Ok(Some(frame)) => return Ok(frame),
            Ok(None) => {}
            Err(error) => return Err(Refusal::BadGreeting(error.to_string())),
        }
        wait_readable(control, deadline)?;
        match receive(control.as_fd(), inbox) {
            Ok(Received::Bytes(_)) => {}
            Ok(Received::Closed) => return Err(Refusal::HostGone),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(Refusal::HostGone);
            }
            Err(source) => {
                return Err(Refusal::System {
                    what: "read the greeting",
                    source,
                });
            }
        }
    }
}

fn wait_readable(control: &OwnedFd, deadline: Instant) -> Result<(), Refusal> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let seconds = HELLO_TIMEOUT.as_secs();
            return Err(Refusal::BadGreeting(format!(
                "no greeting within {seconds} seconds"
            )));
        }
        // One millisecond more, so that a rest below one is waited for and not spun over.
        let millis = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
        let mut watched = [PollFd::new(control.as_fd(), PollFlags::POLLIN)];
        match poll(&mut watched, PollTimeout::from(millis)) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => {
                return Err(Refusal::System {
                    what: "wait for the greeting",
                    source: error.into(),
                });
            }
        }
    }
}

/// Sends one of the first two replies: they fit into any socket buffer.
fn answer(control: &OwnedFd, answer: Answer) -> Result<(), Refusal> {
    let mut outbox = Outbox::new();
    let body = encode_answer(&answer)
        .map_err(io::Error::other)
        .during("encode the answer")?;
    outbox
        .push(&body, Vec::new())
        .map_err(io::Error::other)
        .during("encode the answer")?;
    match send(control.as_fd(), &mut outbox) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Refusal::BadGreeting("the client does not read".to_owned())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Refusal::HostGone),
        Err(source) => Err(Refusal::System {
            what: "answer the greeting",
            source,
        }),
    }
}
