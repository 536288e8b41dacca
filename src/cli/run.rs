//! One run of a command, conducted: news come in, requests go out, an outcome is left.
//!
//! The only place that decides, on the main thread. Whatever it waits for has a limit as soon
//! as an end is asked for or a limit of the command is set.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use nix::libc::{SIGCONT, SIGSTOP};
use nix::sys::signal::{Signal, raise};

use crate::cli::course::{Action, Course};
use crate::cli::follow::{Story, end_beside};
use crate::cli::news::News;
use crate::cli::options::{ReportTarget, RunOptions};
use crate::cli::outcome::{FAILED, Failure, Outcome};
use crate::cli::plan::Plan;
use crate::cli::report::{Report, Sink};
use crate::cli::watch::Watch;
use crate::cli::words::{self, Voice};
use crate::stdio::give_up_standard_streams;
use crate::{Error, Helper, Session, Target};

/// How much later than the grace an ending may be known: the helper's own hard limit is 5 s, for
/// the tree and again for what has left it, and the rest is for a machine without a free core.
const LATE: Duration = Duration::from_secs(15);

/// How long news may take that came while foster was stopped.
const SECOND_LOOK: Duration = Duration::from_secs(2);

/// Whether there is more to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Next,
    Last,
}

/// Runs a command and returns foster's exit code.
pub(crate) fn run(options: &RunOptions) -> u8 {
    let voice = Voice::new(options.detail);
    let opened = options
        .report
        .as_ref()
        .map(|target| (target, Sink::open(target)));
    let mut sink = match opened {
        None => None,
        Some((_, Ok(sink))) => Some(sink),
        Some((target, Err(error))) => {
            voice.failure(&unwritable(target, &error));
            return FAILED;
        }
    };
    let outcome = conduct(options, voice);
    let code = outcome.exit_code(options.preserve_status);
    if let Some(text) = words::end_phase(&outcome) {
        voice.phase(&text);
    }
    if let Some(text) = outcome.failure_text() {
        voice.failure(&text);
    }
    if let Some(text) = words::unusual(&outcome, options) {
        voice.unusual(&text);
    }
    if let (Some(target), Some(sink)) = (&options.report, &mut sink)
        && let Err(error) = sink.write(&Report::new(&outcome, code))
    {
        let text = unwritable(target, &error);
        voice.failure(&format!("{text}; the exit code without it is {code}"));
        return FAILED;
    }
    code
}

fn unwritable(target: &ReportTarget, error: &io::Error) -> String {
    let place = match target {
        ReportTarget::Stderr => "standard error".to_owned(),
        ReportTarget::Descriptor(number) => format!("descriptor {number}"),
        ReportTarget::File(path) => path.display().to_string(),
    };
    format!("report cannot be written to {place}: {error}")
}

fn conduct(options: &RunOptions, voice: Voice) -> Outcome {
    let (news, inbox) = mpsc::channel();
    let mut conductor = Conductor::new(options, voice, news);
    match conductor.set_off() {
        Ok(Turn::Next) => conductor.attend(&inbox),
        Ok(Turn::Last) => {}
        Err(failure) => conductor.outcome.failure = Some(failure),
    }
    conductor.outcome.stop = conductor.course.stop();
    conductor.outcome
}

/// What is known and wanted while a command runs.
struct Conductor<'a> {
    options: &'a RunOptions,
    voice: Voice,
    plan: Plan,
    course: Course,
    session: Option<Session>,
    outcome: Outcome,
    /// When the next news must have come, where something bounds it.
    due: Option<Instant>,
    /// Whether `due` has passed once.
    is_late: bool,
    news: Sender<News>,
}

impl<'a> Conductor<'a> {
    fn new(options: &'a RunOptions, voice: Voice, news: Sender<News>) -> Self {
        let plan = Plan::new(options);
        let has_timeout = options.timeout.is_some();
        let mut conductor = Self {
            options,
            voice,
            plan,
            course: Course::new(plan.grace),
            session: None,
            outcome: Outcome {
                has_timeout,
                ..Outcome::default()
            },
            due: None,
            is_late: false,
            news,
        };
        if let Some(deadline) = plan.deadline {
            conductor.expect_end_within(deadline.saturating_add(plan.grace));
        }
        conductor
    }

    /// Starts everything: 1. handlers, so that no signal is lost; 2. the helper, while there
    /// are no threads; 3. the threads that wait.
    fn set_off(&mut self) -> Result<Turn, Failure> {
        let own = |what: &'static str| move |error| Failure::Own(format!("{what}: {error}"));
        let mut watch = Watch::install().map_err(own("signals cannot be handled"))?;
        if !self.options.outlive_parent
            && let Err(error) = watch.hold_parent()
        {
            self.voice
                .unusual(&format!("death of foster's parent cannot be seen: {error}"));
        }
        let helper = Helper::launch().map_err(Failure::Call)?;
        self.voice
            .phase(&format!("helper {} launched", helper.id()));
        self.outcome.capabilities = Some(helper.capabilities().clone());
        for item in watch.poll_now().map_err(own("signals cannot be seen"))? {
            if self.take(item) == Turn::Last {
                return Ok(Turn::Last);
            }
        }
        if self.course.stop().is_some() {
            return Ok(Turn::Last);
        }
        watch
            .start(self.news.clone())
            .map_err(own("no thread for signals"))?;
        let story = Story::new(helper, self.options, self.plan, self.news.clone());
        story.start().map_err(own("no thread for the command"))?;
        Ok(Turn::Next)
    }

    fn attend(&mut self, inbox: &Receiver<News>) {
        loop {
            match self.next(inbox) {
                Some(item) => {
                    if self.take(item) == Turn::Last {
                        return;
                    }
                }
                // A command that has not started when the grace is over is given up: the
                // hangup ends it wherever it is.
                None if self.session.is_none() && self.course.stop().is_some() => return,
                None => {
                    self.outcome.failure = Some(Failure::Silent);
                    return;
                }
            }
        }
    }

    /// Waits for the next news; none where they are overdue.
    fn next(&mut self, inbox: &Receiver<News>) -> Option<News> {
        loop {
            let Some(due) = self.due else {
                return inbox.recv().ok();
            };
            match inbox.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(item) => return Some(item),
                Err(RecvTimeoutError::Timeout) if !self.is_late => {
                    self.is_late = true;
                    self.due = Instant::now().checked_add(SECOND_LOOK);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn take(&mut self, item: News) -> Turn {
        match item {
            News::Signal(number) => {
                self.voice.phase(&format!("{} came", words::signal(number)));
                let action = self.course.on_signal(number);
                self.act_on(action)
            }
            News::ParentGone => {
                self.voice.phase("foster's parent died");
                let action = self.course.on_parent_gone();
                self.act_on(action)
            }
            News::Blind(error) => self.fail(Failure::Own(format!("signals unseen: {error}"))),
            News::Started(session) => self.started(session),
            News::Exited(exit) => {
                self.outcome.exit = Some(exit);
                let status = self.outcome.status().map(|status| status.to_string());
                self.voice
                    .phase(&format!("command ended: {}", status.unwrap_or_default()));
                if let Some(limit) = self.plan.end_within() {
                    self.expect_end_within(limit);
                }
                Turn::Next
            }
            News::Ended(ended) => {
                self.outcome.ended = Some(ended);
                self.course.on_ended();
                self.expect_anew();
                self.expect_end_within(self.plan.grace);
                Turn::Next
            }
            News::Done(farewell) => {
                self.outcome.farewell = farewell;
                Turn::Last
            }
            News::Failed(error) => self.fail(Failure::Call(error)),
            News::NotEnded(error) => {
                self.not_done("end the tree", error);
                Turn::Next
            }
            News::Over => self.fail(Failure::Own("internal error".to_owned())),
        }
    }

    fn started(&mut self, session: Session) -> Turn {
        let pid = session.pid().0;
        self.voice.phase(&format!(
            "{pid} started, {}",
            words::contained(session.containment(), self.outcome.capabilities.as_ref())
        ));
        self.outcome.pid = Some(pid);
        self.outcome.containment = Some(session.containment().clone());
        self.session = Some(session);
        if let Err(error) = give_up_standard_streams() {
            self.voice
                .phase(&format!("standard streams are kept: {error}"));
        }
        if self.course.stop().is_some() {
            // The limit on the start is over; the one on the end comes with its request.
            self.expect_anew();
        }
        for action in self.course.on_started() {
            if self.act_on(action) == Turn::Last {
                return Turn::Last;
            }
        }
        Turn::Next
    }

    fn act_on(&mut self, action: Action) -> Turn {
        match action {
            Action::Nothing => {
                if self.session.is_none() && self.course.stop().is_some() {
                    self.expect_within(self.plan.grace);
                }
            }
            Action::End { first, grace } => self.end(first, grace),
            Action::Forward(number) => self.signal_tree(number),
            Action::Suspend => self.suspend(),
            Action::Resume => self.signal_tree(SIGCONT),
            Action::Abandon => return Turn::Last,
        }
        Turn::Next
    }

    fn end(&mut self, first: i32, grace: Duration) {
        let Some(session) = self.session.clone() else {
            return;
        };
        self.expect_end_within(grace);
        let name = words::signal(first);
        self.voice.phase(&format!(
            "ending with {name}, KILL after {}",
            words::spell(grace)
        ));
        if end_beside(session.clone(), first, grace, self.news.clone()).is_err() {
            // Without a thread the answer is waited for here, and signals wait with it.
            if let Err(error) = session.end(first, grace) {
                self.not_done("end the tree", error);
            }
        }
    }

    fn signal_tree(&mut self, number: i32) {
        let Some(session) = &self.session else { return };
        match session.signal(number, Target::Tree) {
            Ok(reached) => {
                let name = words::signal(number);
                self.voice
                    .phase(&format!("{name} sent to {reached} of the tree"));
            }
            Err(error) => self.not_done("signal the tree", error),
        }
    }

    /// Stops the tree and then foster. STOP, because orphaned groups ignore TSTP.
    fn suspend(&mut self) {
        self.signal_tree(SIGSTOP);
        if let Err(errno) = raise(Signal::SIGSTOP) {
            self.voice
                .unusual(&format!("foster cannot stop itself: {errno}"));
        }
    }

    /// Says that a request came to nothing. A refusal means that there is no tree any more.
    fn not_done(&self, what: &str, error: Error) {
        let is_expected = error.is_rejected() || error.is_helper_lost();
        let text = format!("cannot {what}: {}", Failure::Call(error).text());
        // A lost helper is told once, by the thread that follows the command.
        if is_expected {
            self.voice.phase(&text)
        } else {
            self.voice.unusual(&text)
        }
    }

    fn fail(&mut self, failure: Failure) -> Turn {
        self.outcome.failure = Some(failure);
        Turn::Last
    }

    /// Lifts the bound on a wait that is over.
    fn expect_anew(&mut self) {
        self.due = None;
        self.is_late = false;
    }

    /// Bounds the wait for the end; a bound that comes earlier stays.
    fn expect_end_within(&mut self, limit: Duration) {
        self.expect_within(limit.saturating_add(LATE));
    }

    fn expect_within(&mut self, limit: Duration) {
        let due = Instant::now().checked_add(limit);
        self.due = match (self.due, due) {
            (Some(known), Some(due)) => Some(known.min(due)),
            (known, due) => known.or(due),
        };
    }
}
