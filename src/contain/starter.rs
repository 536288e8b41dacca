//! The starter of a contained program: it starts the program's session, stands beside it, and
//! leaves after it.
//!
//! One thread, one loop. The order is the promise: the session exists, the acknowledgement is
//! written, the program is let go, and whatever ends it, the starter waits for the end of the tree.
//! It relays no byte and signals nobody: it asks the helper, which outlives it where it is killed.

use std::io::{self, Write};
use std::os::fd::{AsFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use foster_protocol::{Capabilities, Exit, Farewell, How, Micros, Request, Target};
use nix::libc::{SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use nix::poll::PollFlags;
use nix::sys::signal::{Signal, raise};

use super::lines;
use super::triggers::{Trigger, Triggers};
use crate::command::Held;
use crate::connection::Ticket;
use crate::ended::Ended;
use crate::error::{Error, ErrorKind, Repr, Result};
use crate::on_exit::OnExit;
use crate::stdio::give_up_standard_streams;
use crate::{Command, Helper};

/// How much later than the grace an answer may come: the helper's own hard limit is 5 s, for the
/// tree and again for what has left it, and the rest is for a machine without a free core.
const LATE: Duration = Duration::from_secs(15);

/// The exit code where the program's own status is not known.
pub(crate) const UNKNOWN: u8 = 125;

/// What is to be started, and what ends it.
pub(crate) struct Orders {
    /// The program.
    pub(crate) command: Command,
    /// The line on standard output that says that containment is in force, without its newline.
    pub(crate) acknowledgement: Option<String>,
    /// The time between TERM and KILL.
    pub(crate) grace: Duration,
    /// The descriptor whose other end's closing ends the program.
    pub(crate) control: Option<RawFd>,
    /// Whether the death of the parent ends the program.
    pub(crate) watch_parent: bool,
    /// Whether only this program itself may play the helper.
    pub(crate) own_program: bool,
}

/// What became of a program.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It never ran: this signal, or what counts as it, came first.
    Prevented(i32),
    /// It ran, and its tree is over.
    Over(Box<Over>),
}

/// A tree that is over.
#[derive(Debug)]
pub(crate) struct Over {
    /// The program's exit; none where it is a survivor itself, an error where the process that
    /// kept the tree died first.
    exit: Result<Option<Exit>>,
    ended: Ended,
    farewell: Option<Farewell>,
}

/// Why a starter gave up.
#[derive(Debug)]
pub(crate) struct Failed {
    /// What went wrong.
    pub(crate) error: Error,
    /// What the helper can do here, where it said so.
    #[cfg_attr(
        not(feature = "cli"),
        expect(dead_code, reason = "only the command line has remedies to tell")
    )]
    pub(crate) capabilities: Option<Box<Capabilities>>,
    /// Whether the program was let go or an acknowledgement was written.
    pub(crate) is_begun: bool,
}

impl Fate {
    /// The exit code: the program's own, 128 + n where it died of signal n or n prevented it.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Prevented(number) => died(*number),
            Self::Over(over) => match &over.exit {
                Ok(Some(exit)) => code(ExitStatus::from_raw(exit.status)),
                Ok(None) | Err(_) => UNKNOWN,
            },
        }
    }

    /// What there is to say of it on standard error; none where everything is as usual.
    pub(crate) fn unusual(&self) -> Option<String> {
        match self {
            Self::Prevented(_) => None,
            Self::Over(over) => lines::unusual(
                over.exit.as_ref().err(),
                &over.ended,
                over.farewell.as_ref(),
            ),
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(UNKNOWN),
        (None, Some(number)) => died(number),
        (None, None) => UNKNOWN,
    }
}

/// The code of a death by a signal.
fn died(number: i32) -> u8 {
    u8::try_from(number)
        .ok()
        .and_then(|number| number.checked_add(128))
        .unwrap_or(UNKNOWN)
}

/// Starts the program, and returns when its tree is over, when it was prevented, or where
/// containment is not to be had; then nothing of it is left.
pub(crate) fn start(orders: Orders) -> std::result::Result<Fate, Failed> {
    let early = |error| Failed {
        error,
        capabilities: None,
        is_begun: false,
    };
    let Orders {
        mut command,
        acknowledgement,
        grace,
        control,
        watch_parent,
        own_program,
    } = orders;
    // 1. The signals, so that none is lost; 2. the helper, while there are no threads.
    let triggers = Triggers::install(watch_parent, control).map_err(early)?;
    let builder = Helper::builder();
    let builder = match own_program {
        true => builder.own_program(),
        false => builder,
    };
    let helper = builder.launch().map_err(early)?;
    command.on_exit(OnExit::End { grace }).grace(grace);
    let mut starter = Starter {
        helper: helper.clone(),
        triggers,
        grace,
        asked: Asked::Nothing,
        is_begun: false,
        due: None,
        held_back: Vec::new(),
    };
    let outcome = starter.conduct(&command, acknowledgement.as_deref());
    let farewell = starter.dismiss();
    if outcome.is_ok() || starter.is_begun {
        // What is still pending must not change the status of a process that is about to leave.
        starter.triggers.keep();
    }
    match outcome {
        Ok(Some((exit, ended))) => Ok(Fate::Over(Box::new(Over {
            exit,
            ended,
            farewell,
        }))),
        Ok(None) => Ok(Fate::Prevented(starter.asked.number())),
        Err(error) => Err(Failed {
            error,
            capabilities: Some(Box::new(helper.capabilities().clone())),
            is_begun: starter.is_begun,
        }),
    }
}

/// What has been asked for so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// An ending, by this signal or what counts as it.
    End(i32),
    /// The same, and then KILL at once.
    Now(i32),
}

impl Asked {
    fn number(self) -> i32 {
        match self {
            Self::Nothing => SIGTERM,
            Self::End(number) | Self::Now(number) => number,
        }
    }
}

struct Starter {
    helper: Helper,
    triggers: Triggers,
    grace: Duration,
    asked: Asked,
    is_begun: bool,
    /// When the helper must have told more, where something bounds it.
    due: Option<Instant>,
    /// Signals for a program that does not run yet.
    held_back: Vec<i32>,
}

impl Starter {
    /// Everything from the spawn to the end of the tree; none where the program never ran.
    fn conduct(
        &mut self,
        command: &Command,
        acknowledgement: Option<&str>,
    ) -> Result<Option<(Result<Option<Exit>>, Ended)>> {
        let held = command.spawn_held(&self.helper, LATE)?;
        if self.wait_at_gate(&held, acknowledgement.is_some())? {
            return Ok(None);
        }
        if let Some(line) = acknowledgement {
            acknowledge(line)?;
        }
        self.is_begun = true;
        let ticket = held.open()?;
        match self.wait_for_start(&held, &ticket) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::EndedEarly => return Ok(None),
            Err(error) => return Err(error),
        }
        drop(ticket);
        // A copy that cannot be given up is one that is held until the end.
        drop(give_up_standard_streams());
        for number in std::mem::take(&mut self.held_back) {
            self.send(&held, number, Target::Leader);
        }
        self.wait_for_end(&held).map(Some)
    }

    /// Waits until the acknowledgement can be written without blocking. True where an end was
    /// asked for meanwhile: the program is not let go then.
    fn wait_at_gate(&mut self, held: &Held<'_>, is_written: bool) -> Result<bool> {
        let stdout = io::stdout();
        loop {
            let socket = held.session().connection().as_fd();
            let mut others = vec![(socket, PollFlags::POLLIN)];
            if is_written {
                others.push((stdout.as_fd(), PollFlags::POLLOUT));
            }
            // Where nothing is written, one look is enough.
            let now = (!is_written).then(Instant::now);
            let (batch, ready) = self.triggers.wait(&others, now)?;
            for trigger in batch {
                self.take(held, trigger, false);
            }
            if self.asked != Asked::Nothing {
                return Ok(true);
            }
            // A session that has failed, or a lost helper, shows here.
            held.session().wait_exit(Some(Duration::ZERO))?;
            if ready.get(1).is_none_or(|is_writable| *is_writable) {
                return Ok(false);
            }
        }
    }

    fn wait_for_start(&mut self, held: &Held<'_>, ticket: &Ticket<'_>) -> Result<()> {
        while !held.opened(ticket)? {
            self.attend(held, false)?;
        }
        Ok(())
    }

    fn wait_for_end(&mut self, held: &Held<'_>) -> Result<(Result<Option<Exit>>, Ended)> {
        let session = held.session();
        let mut exit = None;
        loop {
            if exit.is_none() {
                exit = match session.wait_exit(Some(Duration::ZERO)) {
                    Ok(known) => known.map(Ok),
                    Err(error) if error.is_helper_lost() => return Err(error),
                    Err(error) => Some(Err(error)),
                };
                if exit.is_some() {
                    self.expect_end_within(self.grace);
                }
            }
            if let Some(ended) = session.wait_end(Some(Duration::ZERO))? {
                // The exit comes before the end, save that of a program that outlives it.
                let exit = match exit {
                    Some(known) => known.map(Some),
                    None => session.wait_exit(Some(Duration::ZERO)),
                };
                return Ok((exit, ended));
            }
            self.attend(held, true)?;
        }
    }

    /// Waits for the next thing to happen, and does what it asks for.
    fn attend(&mut self, held: &Held<'_>, is_running: bool) -> Result<()> {
        let socket = held.session().connection().as_fd();
        let others = [(socket, PollFlags::POLLIN)];
        let (batch, ready) = self.triggers.wait(&others, self.due)?;
        let is_told = ready.contains(&true);
        if batch.is_empty() && !is_told && self.due.is_some_and(|due| due <= Instant::now()) {
            return Err(Repr::HelperSilent { limit: LATE }.into());
        }
        for trigger in batch {
            self.take(held, trigger, is_running);
        }
        Ok(())
    }

    fn take(&mut self, held: &Held<'_>, trigger: Trigger, is_running: bool) {
        match trigger {
            Trigger::Signal(number @ (SIGUSR1 | SIGUSR2)) if is_running => {
                self.send(held, number, Target::Leader);
            }
            Trigger::Signal(number @ (SIGUSR1 | SIGUSR2)) => self.held_back.push(number),
            Trigger::Signal(SIGTSTP) => {
                self.send(held, SIGSTOP, Target::Tree);
                // STOP cannot be caught or refused: whoever continues this process is heard next.
                let _cannot_fail = raise(Signal::SIGSTOP);
            }
            Trigger::Signal(SIGCONT) => self.send(held, SIGCONT, Target::Tree),
            Trigger::Signal(number) => self.end(held, number),
            Trigger::ParentGone | Trigger::ControlGone => self.end(held, SIGTERM),
        }
    }

    /// Asks for the end of the tree: TERM and the grace, whatever it was that came. A second INT
    /// or TERM means now.
    fn end(&mut self, held: &Held<'_>, number: i32) {
        let (asked, first, grace) = match self.asked {
            Asked::Nothing => (Asked::End(number), SIGTERM, self.grace),
            Asked::End(first) if number == SIGINT || number == SIGTERM => {
                (Asked::Now(first), SIGKILL, Duration::ZERO)
            }
            Asked::End(_) | Asked::Now(_) => return,
        };
        self.asked = asked;
        if self.is_begun {
            self.due = None;
            self.expect_end_within(grace);
            let grace = Micros::from(grace);
            self.ask(held, How::End { first, grace });
        }
    }

    fn send(&self, held: &Held<'_>, number: i32, to: Target) {
        self.ask(held, How::Signal { number, to });
    }

    /// Asks without waiting for the answer: what comes of it shows in the exit and the end.
    fn ask(&self, held: &Held<'_>, how: How) {
        let session = held.session().id();
        let request = Request::Kill { session, how };
        // A helper that is lost is told of by whoever waits for it.
        drop(self.helper.connection().request(request, Vec::new()));
    }

    fn expect_end_within(&mut self, grace: Duration) {
        let due = Instant::now().checked_add(grace.saturating_add(LATE));
        self.due = self.due.or(due);
    }

    /// Sends the helper away, which ends whoever has left the tree, and waits for it to be done.
    fn dismiss(&self) -> Option<Farewell> {
        let grace = match self.asked {
            Asked::Nothing | Asked::End(_) if self.is_begun => self.grace,
            Asked::Nothing | Asked::End(_) | Asked::Now(_) => Duration::ZERO,
        };
        // A helper that is lost, or does not answer, ends what it holds when this process leaves.
        let limit = grace.saturating_add(LATE);
        self.helper.shutdown_within(grace, limit).ok()
    }
}

/// Writes the acknowledgement, in one write.
fn acknowledge(line: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(format!("{line}\n").as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|error| Error::system("acknowledgement cannot be written", error))
}
