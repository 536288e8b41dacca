//! A keeper: a fork of the helper that keeps one session at a time, by the same code.
//!
//! What a fork inherits is dangerous, so the order is fixed. Every signal is blocked across the
//! fork and stays so: the copied handlers would wake the helper in our name, and the copied
//! locks of theirs may be held for ever, so signals are read from a descriptor instead. 1. The
//! server is dropped whole, by the return from the loop: a copied epoll set must not be changed,
//! and other sessions' pipes must not be held. 2. Every descriptor is closed but the link, the
//! pidfds of host and helper, the record's lock, and what the session brings: a copied control
//! socket would hide the helper's death from the host, a copied link a sibling's keeper's from the
//! helper. 3. A session, a subreaper and an epoll set of its own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use foster_protocol::{Capabilities, Inbox, RequestId};

use crate::contain::cgroup::Base;
use crate::contain::namespace::{self, User};
use crate::dispatch::Own;
use crate::instance::Instance;
use crate::orphans::Reaper;
use crate::reserve::Reserve;
use crate::server::{Admitted, Role, Server, Start};
use crate::startup::Ready;
use crate::sys::fork::{Isolation, leave};
use crate::sys::kernel::Features;
use crate::sys::proc::Adopted;
use crate::sys::spawn::Context;
use crate::sys::{Scheduling, outer, own, pace};
use crate::{SYSTEM, run_server};

/// The id of the spawn that a keeper is born with, and of each that it is handed later.
pub(crate) const BIRTH: RequestId = RequestId(1);

/// The id under which a keeper says what nobody has asked for: that its session is forgotten, by
/// a `Pong` where it can keep another one.
pub(crate) const FORGOTTEN: RequestId = RequestId(0);

/// What a keeper takes along.
#[derive(Debug)]
pub(crate) struct Birth {
    /// Its end of the link to the helper.
    pub(crate) link: OwnedFd,
    /// The host's pidfd.
    pub(crate) guards: Vec<OwnedFd>,
    /// The helper's pidfd.
    pub(crate) own_pidfd: Option<OwnedFd>,
    /// The session that it is born for.
    pub(crate) admitted: Admitted,
    pub(crate) nofile: (u64, u64),
    pub(crate) oom_score: Option<i32>,
    /// What it is to take back, where the helper has forked it in haste.
    pub(crate) scheduling: Option<Scheduling>,
    pub(crate) features: Features,
    pub(crate) reserve: Reserve,
    /// Where the session's cgroup is made.
    pub(crate) base: Option<Base>,
    /// The namespaces that it was forked into.
    pub(crate) isolation: Option<Isolation>,
    pub(crate) capabilities: Capabilities,
    pub(crate) identity: Own,
    /// Whose lock it holds as well.
    pub(crate) instance: Instance,
}

/// Lives as a keeper, from the fork to the exit. The server that was copied is gone.
pub(crate) fn live(birth: Birth) -> ! {
    let code = match settle(birth) {
        Ok((server, admitted)) => run_server(server, |server| server.keep(admitted)),
        Err(error) => {
            crate::complain(&error);
            SYSTEM
        }
    };
    leave(code)
}

/// Makes a server of its own, and gives the session that it is for.
fn settle(birth: Birth) -> io::Result<(Server, Admitted)> {
    let Birth {
        link,
        guards,
        own_pidfd,
        admitted,
        ..
    } = birth;
    let guards: Vec<OwnedFd> = guards.into_iter().chain(own_pidfd).collect();
    let kept: Vec<BorrowedFd<'_>> = guards
        .iter()
        .chain(&admitted.descriptors)
        .chain([&link])
        .map(AsFd::as_fd)
        .chain(birth.instance.lock())
        .collect();
    own::close_all_but(&kept)?;
    if let Some(kind) = birth.isolation {
        let user = User {
            uid: birth.identity.uid,
            gid: birth.identity.gid,
        };
        let view =
            namespace::enter(kind, user).map_err(|(_, errno)| io::Error::from_raw_os_error(errno));
        outer::show_by(view?);
    }
    own::new_session()?;
    pace::take_back(birth.scheduling);
    pace::weigh_more();
    own::become_subreaper()?;
    let reaper = Reaper::on_this_thread()?;
    let context = Context {
        features: birth.features,
        null: own::open_null()?,
        nofile: birth.nofile,
        oom_score: birth.oom_score,
        helper_pid: nix::unistd::getpid().as_raw(),
    };
    let ready = Ready {
        control: link,
        guards,
        inbox: Inbox::new(),
        adopted: Some(Adopted::open()?),
        context,
        capabilities: birth.capabilities,
        own: birth.identity,
        reserve: birth.reserve,
        base: birth.base,
        isolation: birth.isolation,
        instance: birth.instance,
    };
    let server = Server::new(Start {
        ready,
        reaper,
        role: Role::Keeper,
    })?;
    Ok((server, admitted))
}
