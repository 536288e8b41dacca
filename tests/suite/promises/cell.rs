//! One cell: an event, and what it leaves.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use foster_protocol::Level;
use foster_tests::{Deadline, pass};

use crate::events::Event;
use crate::ground::Ground;
use crate::outcome::Outcome;
use crate::shapes::Shape;
use crate::swept::sweep;
use crate::told::Told;

/// How long after the last supervisor's end, or after the verdict, the dead may take to be dead.
const SETTLE: Duration = Duration::from_millis(1_000);

/// How long the members may live while somebody runs who can end them: a hard limit, and time.
const SUPERVISED: Duration = Duration::from_secs(12);

/// A bomb ends by itself a second after this: that it is gone later than this proves nothing.
const BOMB: Duration = Duration::from_secs(14);

/// The deadline of a session at the first try: its shape has to be complete before.
const DEADLINE: Duration = Duration::from_millis(1_500);

const LOOK: Duration = Duration::from_millis(5);

/// What a bomb that outruns an ending leaves, with a host that is told and without.
const GONE_OR_NAMED: &str = "gone or named";
const GONE_OR_LEFT: &str = "gone or left";

/// What a sweep leaves of a bomb that outruns it.
const SWEEP_OR_LEFT: &str = "sweep or left";

/// What one leaves that is told of later than it lasts.
const ANYTHING: &str = "gone, named or left";

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) level: Level,
    pub(crate) event: Event,
    pub(crate) shape: Shape,
    /// Its place in the whole table.
    pub(crate) number: u32,
}

impl Cell {
    /// The level as the page and a host's option name it.
    pub(crate) fn level_name(self) -> &'static str {
        level_name(self.level)
    }

    /// What the page promises where it depends on the speed of a bomb which of two outcomes is
    /// seen: the weaker one.
    fn weaker(self) -> Option<&'static str> {
        let count = self.shape.bomb()?;
        let weaker = match (self.event.is_told(), count > 200) {
            (true, false) => GONE_OR_NAMED,
            (true, true) => ANYTHING,
            (false, _) => GONE_OR_LEFT,
        };
        match (self.level, self.event) {
            (Level::Group, Event::Helper | Event::HostAndHelper | Event::AllThree)
            | (Level::Tree, Event::AllThree) => Some(SWEEP_OR_LEFT),
            // Nobody ends anybody.
            (Level::Group, Event::HelperStopped) => None,
            (Level::Group, _) | (Level::Tree, Event::Keeper) => Some(weaker),
            (Level::Tree, _) => (count > 200).then_some(weaker),
            (Level::Direct | Level::Cgroup | Level::Namespace, _) => None,
        }
    }

    /// What the page says where this was seen; none where it has not run.
    pub(crate) fn text(self, outcome: &Outcome) -> Option<String> {
        let weaker = self.weaker().filter(|weaker| match outcome {
            Outcome::Gone => *weaker != SWEEP_OR_LEFT,
            Outcome::Named(_) => *weaker == GONE_OR_NAMED || *weaker == ANYTHING,
            Outcome::Swept => *weaker == SWEEP_OR_LEFT,
            Outcome::Left(_) => *weaker != GONE_OR_NAMED,
            Outcome::Void(_) | Outcome::NotRun(_) => false,
        });
        weaker.map(str::to_owned).or_else(|| outcome.text())
    }

    /// Runs it. A cell that fails in a way that is no outcome is said so.
    pub(crate) fn run(self) -> Result<Outcome, String> {
        if self.event == Event::Keeper && self.level == Level::Group {
            return Ok(Outcome::Void("there is no keeper at level `group`"));
        }
        if self.shape == Shape::Setuid && self.level == Level::Namespace {
            return Ok(Outcome::Void("in a user namespace the bit has no effect"));
        }
        let mut deadline = DEADLINE;
        let mut tries = 0;
        loop {
            tries += 1;
            let run = catch_unwind(AssertUnwindSafe(|| self.run_once(deadline)));
            match run {
                Ok(Ok(outcome)) => return Ok(outcome),
                Ok(Err(missing)) => return Ok(Outcome::NotRun(missing)),
                // The shape may not have been complete before the deadline.
                Err(_) if self.event == Event::Timeout && tries < 3 => deadline *= 3,
                Err(panic) => return Err(text(panic.as_ref())),
            }
        }
    }

    fn run_once(self, deadline: Duration) -> Result<Outcome, String> {
        let begin = Instant::now();
        let mut ground = Ground::new(self, deadline)?;
        let said = self.act(&mut ground);
        let outcome = match said {
            Some(said) => self.judge_told(&mut ground, &said),
            None => self.judge_untold(&mut ground)?,
        };
        let took = begin.elapsed();
        ground.clear();
        let is_over = matches!(outcome, Outcome::Gone | Outcome::Swept);
        if !is_over || self.shape.bomb().is_none() || took < BOMB {
            return Ok(outcome);
        }
        assert!(
            self.weaker().is_some(),
            "after {took:?} the bomb may have ended by itself"
        );
        Ok(Outcome::Left(BTreeSet::new()))
    }

    /// Does it, and gives what the host was told.
    fn act(self, ground: &mut Ground) -> Option<String> {
        let host = &mut ground.host;
        let keeper = ground.keeper.as_ref();
        match self.event {
            Event::Kill => host.say("end"),
            Event::Drop => host.say("close"),
            Event::Timeout => host.say("wait"),
            Event::LeaderExits => host.say("exit"),
            Event::Keeper => host.say("wait"),
            Event::Host => host.signal(libc::SIGKILL),
            Event::Helper => ground.helper.signal(libc::SIGKILL),
            // Stopped first, so that nobody acts between the deaths.
            Event::HostAndHelper => {
                ground.helper.stop();
                host.signal(libc::SIGKILL);
                ground.helper.signal(libc::SIGKILL);
            }
            Event::AllThree => {
                ground.helper.stop();
                keeper.iter().for_each(|keeper| keeper.stop());
                host.signal(libc::SIGKILL);
                ground.helper.signal(libc::SIGKILL);
                keeper
                    .iter()
                    .for_each(|keeper| keeper.signal(libc::SIGKILL));
            }
            Event::HelperStopped => {
                ground.helper.stop();
                host.signal(libc::SIGKILL);
            }
        }
        let is_asked = matches!(
            self.event,
            Event::Timeout | Event::LeaderExits | Event::Keeper
        );
        if is_asked {
            assert_eq!(host.stdout.line(), "asked");
        }
        if let (Event::Keeper, Some(keeper)) = (self.event, keeper) {
            keeper.signal(libc::SIGKILL);
        }
        if self.event.is_told() {
            host.stdout.line_within(SUPERVISED)
        } else {
            None
        }
    }

    /// What is left once the host was told of the end.
    fn judge_told(self, ground: &mut Ground, said: &str) -> Outcome {
        let told = Told::parse(said);
        if told.named.is_empty() && !told.is_incomplete {
            let is_gone = settles(ground);
            assert!(is_gone || !told.is_all_gone, "{said:?}, and somebody lives");
            return if is_gone {
                Outcome::Gone
            } else {
                Outcome::Left(BTreeSet::new())
            };
        }
        let wait = Deadline::after(SETTLE);
        while !told.names_all(&ground.members) && !wait.is_reached() {
            pass(LOOK);
        }
        if told.names_all(&ground.members) {
            Outcome::Named(told.reasons())
        } else {
            Outcome::Left(BTreeSet::new())
        }
    }

    /// What is left where nobody is told of it, and what a sweep makes of that.
    fn judge_untold(self, ground: &mut Ground) -> Result<Outcome, String> {
        let wait = Deadline::after(SUPERVISED);
        // A killed keeper that is process 1 of a namespace is over when the last one in it is.
        let ends_anybody = self.event != Event::AllThree;
        while ends_anybody
            && ground.is_anybody_left()
            && ground.is_supervised()
            && !wait.is_reached()
        {
            pass(LOOK);
        }
        if settles(ground) {
            return Ok(Outcome::Gone);
        }
        // A sweep is for those who have nobody else, and the page does not speak of one after a
        // race that may have had another end.
        if self.event.is_told() || self.weaker() == Some(GONE_OR_LEFT) {
            return Ok(Outcome::Left(BTreeSet::new()));
        }
        // A grace is time for a bomb.
        let grace = self.shape.bomb().map_or("200ms", |_| "0");
        let swept = sweep(ground, grace)?;
        let is_gone = settles(ground);
        assert!(is_gone || !swept.is_clean, "{swept:?}, and somebody lives");
        if is_gone {
            return Ok(Outcome::Swept);
        }
        Ok(Outcome::Left(swept.reasons))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {:?}", self.level, self.event, self.shape)
    }
}

/// Whether everybody is dead in a moment.
fn settles(ground: &mut Ground) -> bool {
    let wait = Deadline::after(SETTLE);
    while ground.is_anybody_left() {
        if wait.is_reached() {
            return false;
        }
        pass(LOOK);
    }
    true
}

/// A level as the page names it.
pub(crate) fn level_name(level: Level) -> &'static str {
    match level {
        Level::Direct => "direct",
        Level::Group => "group",
        Level::Tree => "tree",
        Level::Cgroup => "cgroup",
        Level::Namespace => "namespace",
    }
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let owned = panic.downcast_ref::<String>().cloned();
    let text = owned.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without a text".to_owned())
}
