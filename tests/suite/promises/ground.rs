//! The ground under one cell: its host, its helper, its keeper and the members.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use foster_protocol::Level;
use foster_tests::{
    Cgroup, DEATH, Process, Program, SETTLE, Stage, Tracer, Witness, clean_up, eventually,
    hold_tagged, is_root, proc,
};

use crate::cell::Cell;
use crate::events::Event;
use crate::levels::missing;
use crate::shapes::{BOMBED, NOBODY, Shape};

/// How long the helper of a dead host may take: a hard limit, and what a busy machine adds.
const HANGUP: Duration = Duration::from_secs(20);

/// The runtime directory, in the scratch folder.
const RUNTIME: &str = "run";

/// Everybody of one cell. The fields are dropped in this order.
pub(crate) struct Ground {
    pub(crate) host: Process,
    pub(crate) helper: Witness,
    pub(crate) keeper: Option<Witness>,
    pub(crate) members: Vec<Witness>,
    /// The pipe that every member holds but the daemon.
    pub(crate) pipe: Tracer,
    /// A file system that does not answer.
    mute: Option<Mute>,
    /// What a tag does not follow is held by this.
    cgroup: Option<Cgroup>,
    /// Whose helper it is, where it is not this user's.
    pub(crate) user: Option<u32>,
    pub(crate) stage: Stage,
}

impl Ground {
    /// Starts everybody and waits until the member is what it is to be.
    ///
    /// # Errors
    ///
    /// The condition that is missing here.
    pub(crate) fn new(cell: Cell, deadline: Duration) -> Result<Self, String> {
        if let Some(missing) = missing(cell.level) {
            return Err(missing);
        }
        let stage = Stage::new();
        let cgroup = cgroup(cell, &stage)?;
        let mut mute = Mute::of(cell.shape, &stage)?;
        let fixture = match &mute {
            Some(mute) => Some(mute.file()),
            None => fixture(cell.shape, &stage)?,
        };
        let last = match cell.event {
            Event::LeaderExits => "read x; exit 0",
            Event::Kill
            | Event::Timeout
            | Event::Drop
            | Event::Host
            | Event::Helper
            | Event::Keeper
            | Event::HostAndHelper
            | Event::AllThree
            | Event::HelperStopped => "exec sleep 60",
        };
        let command = cell.shape.command(stage.tag(), fixture.as_deref(), last);
        let user = (cell.shape == Shape::Setuid).then_some(NOBODY);
        let program = wrapped(&stage, cgroup.as_ref(), user)
            .env("XDG_RUNTIME_DIR", runtime_directory(&stage, user)?)
            .args(options(cell, deadline))
            .arg("--")
            .args(command);
        let (mut pipe, writer) = Tracer::new();
        let mut host = program.stderr(writer).start();
        let line = host.stdout.line();
        let mut numbers = line.split(' ').filter_map(|word| word.parse().ok());
        let helper = Witness::of(numbers.next().expect("the helper's number"));
        let leader: i32 = numbers.next().expect("the leader's number");
        match &mut mute {
            Some(mute) => mute.wait_for_reader(),
            // What it says is that it is there.
            None => drop(pipe.line()),
        }
        let keeper = (cell.level > Level::Group).then(|| keeper_of(leader, &helper));
        let mut others = vec![host.pid(), helper.pid()];
        others.extend(keeper.as_ref().map(Witness::pid));
        others.extend(mute.as_ref().map(|mute| mute.server.pid()));
        let members = match cell.shape.bomb() {
            Some(_) => Vec::new(),
            None => members(cell.shape, &stage, leader, &others),
        };
        Ok(Self {
            host,
            helper,
            keeper,
            members,
            pipe,
            mute,
            cgroup,
            user,
            stage,
        })
    }

    /// Where its helper keeps its record.
    pub(crate) fn records(&self) -> PathBuf {
        self.stage.scratch().join(RUNTIME).join("foster")
    }

    /// Whether a member lives.
    pub(crate) fn is_anybody_left(&mut self) -> bool {
        self.pipe.is_held() || self.members.iter().any(Witness::is_alive)
    }

    /// Whether somebody lives who can still end the members: a helper or a keeper that runs.
    pub(crate) fn is_supervised(&self) -> bool {
        let runs = |witness: &Witness| {
            witness.is_alive() && proc::state(witness.pid()).is_some_and(|state| state != 'T')
        };
        runs(&self.helper) || self.keeper.as_ref().is_some_and(runs)
    }

    /// Ends everybody of the cell.
    pub(crate) fn clear(self) {
        let Self {
            mut host,
            helper,
            keeper,
            members,
            mut pipe,
            mute,
            cgroup,
            user: _,
            stage: _stage,
        } = self;
        host.close_stdin();
        drop(mute);
        if let Some(cgroup) = &cgroup {
            cgroup
                .set("cgroup.kill", "1")
                .expect("a cgroup of the test's own");
        }
        for supervisor in std::iter::once(&helper).chain(&keeper) {
            // A stopped one goes on; one that is dead and reaped cannot be told.
            let told = foster_tests::sys::pidfd_signal(supervisor.as_fd(), libc::SIGCONT);
            assert!(told.is_ok() || !supervisor.is_alive(), "{told:?}");
        }
        host.wait(DEATH);
        helper.wait_for_death(HANGUP);
        clean_up(&members);
        pipe.wait_for_end(DEATH);
    }
}

/// A file system on which a read is never answered.
struct Mute {
    server: Process,
    folder: PathBuf,
}

impl Mute {
    /// Mounts one where the shape needs it.
    fn of(shape: Shape, stage: &Stage) -> Result<Option<Self>, String> {
        if shape != Shape::MuteFuse {
            return Ok(None);
        }
        let folder = stage.scratch().join("mute");
        std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
        let mut server = Program::fixture(stage, "mute-file-system")
            .arg(&folder)
            .start();
        let said = server.stdout.line();
        if said == "mounted" {
            Ok(Some(Self { server, folder }))
        } else {
            Err(said)
        }
    }

    fn file(&self) -> String {
        self.folder.join("file").display().to_string()
    }

    fn wait_for_reader(&mut self) {
        assert_eq!(self.server.stdout.line(), "asked");
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        // Whoever waits for an answer is let go when the server dies.
        self.server.signal(libc::SIGKILL);
        self.server.wait(DEATH);
        let taken = nix::mount::umount2(&self.folder, nix::mount::MntFlags::MNT_DETACH);
        assert!(std::thread::panicking() || taken.is_ok(), "{taken:?}");
    }
}

/// The cgroup of cells whose members a tag does not follow.
fn cgroup(cell: Cell, stage: &Stage) -> Result<Option<Cgroup>, String> {
    let is_needed = cell.shape.bomb().is_some() || cell.shape == Shape::Setuid;
    // Leaves that nobody comes back to remove are removed with what they are in.
    let is_of_use = cell.level == Level::Cgroup && is_root();
    if !is_needed && !is_of_use {
        return Ok(None);
    }
    if !is_root() {
        return Err("only root can become the user that it needs".to_owned());
    }
    let made = Cgroup::unified(stage)?;
    // Without this file (Linux 5.14) it could not be cleaned up.
    // It is not tried: Linux 6.18 kills whoever is cloned from a cgroup that has been killed once
    // into one that has not (`CLONE_INTO_CGROUP`).
    let kill = made.path().join("cgroup.kill");
    std::fs::metadata(kill).map_err(|error| format!("cgroup.kill: {error}"))?;
    Ok(Some(made))
}

/// The fixture, as it has to be for the shape.
fn fixture(shape: Shape, stage: &Stage) -> Result<Option<String>, String> {
    let own = shape.fixture();
    let (Shape::Setuid, Some(path)) = (shape, &own) else {
        return Ok(own);
    };
    let scratch = stage.scratch();
    let copy = scratch.join("becomes-root");
    let failed = |error: std::io::Error| format!("no set-user-id program: {error}");
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(scratch, mode(0o755)).map_err(failed)?;
    std::fs::copy(path, &copy).map_err(failed)?;
    std::fs::set_permissions(&copy, mode(0o4755)).map_err(failed)?;
    Ok(Some(copy.display().to_string()))
}

/// A runtime directory of the cell's own, so that a sweep of it meets no other instance.
fn runtime_directory(stage: &Stage, user: Option<u32>) -> Result<PathBuf, String> {
    let path = stage.scratch().join(RUNTIME);
    let made = std::fs::create_dir(&path);
    let made = made.and_then(|()| std::os::unix::fs::chown(&path, user, user));
    made.map_err(|error| format!("no runtime directory: {error}"))?;
    Ok(path)
}

/// The host, in the cgroup and as the user of its cell.
fn wrapped(stage: &Stage, cgroup: Option<&Cgroup>, user: Option<u32>) -> Program {
    let Some(cgroup) = cgroup else {
        return Program::fixture(stage, "host-of-one");
    };
    let mut program = Program::fixture(stage, "in-cgroup").arg(cgroup.procs());
    if let Some(user) = user {
        cgroup.give_to(user);
        program = program.arg(format!("user={user}"));
    }
    let host = foster_tests::places::fixture("host-of-one");
    program.arg("--").arg(host)
}

fn options(cell: Cell, deadline: Duration) -> Vec<String> {
    let level = cell.level_name();
    let mut words = vec![format!("level={level}"), "grace=200".to_owned()];
    match cell.event {
        Event::LeaderExits => words.push("end-on-exit".to_owned()),
        Event::Timeout => words.push(format!("deadline={}", deadline.as_millis())),
        Event::Kill
        | Event::Drop
        | Event::Host
        | Event::Helper
        | Event::Keeper
        | Event::HostAndHelper
        | Event::AllThree
        | Event::HelperStopped => {}
    }
    if let Some(count) = cell.shape.bomb() {
        words.push(format!("uid={}", BOMBED + cell.number));
        words.push(format!("processes={count}"));
        // It may outrun an ending; it is not to starve the rest of the machine.
        words.push("nice=19".to_owned());
    }
    words
}

/// The leader's parent, which is a child of the helper's.
fn keeper_of(leader: i32, helper: &Witness) -> Witness {
    let parent = || proc::stat(leader).map(|leader| leader.parent);
    let pid = parent().expect("the leader is not reaped");
    let keeper = Witness::of(pid);
    assert_eq!(parent(), Some(pid), "the number was the keeper's");
    let grandparent = proc::stat(pid).map(|keeper| keeper.parent);
    assert_eq!(grandparent, Some(helper.pid()), "the keeper's parent");
    keeper
}

/// Takes hold of everybody who carries the tag, once they are what they are to be.
fn members(shape: Shape, stage: &Stage, leader: i32, others: &[i32]) -> Vec<Witness> {
    let mut found = Vec::new();
    eventually("the member is what it is to be", SETTLE, || {
        found = hold_tagged(stage.tag());
        found.retain(|member| !others.contains(&member.pid()));
        let members = || found.iter().filter(|member| member.pid() != leader);
        let is_any = |is: &dyn Fn(i32) -> bool| members().any(|member| is(member.pid()));
        match shape {
            Shape::Stopped => is_any(&|pid| proc::state(pid) == Some('T')),
            Shape::Daemon => is_any(&|pid| {
                proc::stat(pid).is_some_and(|stat| stat.name == b"sleep" && stat.session != leader)
            }),
            Shape::SameGroup
            | Shape::OwnGroup
            | Shape::Setsid
            | Shape::IgnoresTerm
            | Shape::Nested
            | Shape::Bomb200
            | Shape::Bomb1000
            | Shape::Setuid
            | Shape::Tracer
            | Shape::MuteFuse => is_any(&|_| true),
        }
    });
    found
}
