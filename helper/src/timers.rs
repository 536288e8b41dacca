//! Alarms on the monotonic clock: at most one of a kind for a session.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use foster_protocol::SessionId;

/// What an alarm is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// The session's deadline.
    Deadline,
    /// The limit of a linger.
    Linger,
    /// The grace of an ending.
    Grace,
    /// The hard limit of an ending.
    Hard,
    /// Time to look again who is left.
    Look,
    /// Time to look at a session that cannot be watched.
    Poll,
}

const ALARMS: [Alarm; 6] = [
    Alarm::Deadline,
    Alarm::Linger,
    Alarm::Grace,
    Alarm::Hard,
    Alarm::Look,
    Alarm::Poll,
];

/// Whose alarm it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A session's.
    Session(SessionId),
    /// The last sweep's.
    Sweep,
    /// A list's that waits for keepers.
    List(u64),
    /// The spare keepers'.
    Spares,
    /// The control socket's, which takes no more for the moment.
    Socket,
}

/// Every alarm that is set.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    order: BTreeSet<(Instant, Owner, Alarm)>,
    set: HashMap<(Owner, Alarm), Instant>,
}

impl Timers {
    /// Sets an alarm, in place of an earlier one of its kind. A time too far for the clock is
    /// no alarm.
    pub(crate) fn set(&mut self, owner: Owner, alarm: Alarm, from: Instant, after: Duration) {
        self.cancel(owner, alarm);
        if let Some(at) = from.checked_add(after) {
            self.order.insert((at, owner, alarm));
            self.set.insert((owner, alarm), at);
        }
    }

    /// When an alarm is due, if it is set.
    pub(crate) fn due(&self, owner: Owner, alarm: Alarm) -> Option<Instant> {
        self.set.get(&(owner, alarm)).copied()
    }

    /// Takes back an alarm.
    pub(crate) fn cancel(&mut self, owner: Owner, alarm: Alarm) {
        if let Some(at) = self.set.remove(&(owner, alarm)) {
            self.order.remove(&(at, owner, alarm));
        }
    }

    /// Takes back every alarm of an owner.
    pub(crate) fn cancel_all(&mut self, owner: Owner) {
        for alarm in ALARMS {
            self.cancel(owner, alarm);
        }
    }

    /// How long until the next alarm; none where none is set.
    pub(crate) fn next(&self, now: Instant) -> Option<Duration> {
        self.order
            .first()
            .map(|(at, _, _)| at.saturating_duration_since(now))
    }

    /// Takes one alarm that is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Owner, Alarm)> {
        let &(at, owner, alarm) = self.order.first()?;
        if at > now {
            return None;
        }
        self.cancel(owner, alarm);
        Some((owner, alarm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Owner = Owner::Session(SessionId(1));
    const B: Owner = Owner::Session(SessionId(2));

    #[test]
    fn alarms_come_in_the_order_of_their_times() {
        let now = Instant::now();
        let mut timers = Timers::default();
        timers.set(A, Alarm::Deadline, now, Duration::from_millis(2));
        timers.set(B, Alarm::Grace, now, Duration::from_millis(1));
        assert_eq!(timers.next(now), Some(Duration::from_millis(1)));
        assert_eq!(timers.pop(now), None);
        let later = now + Duration::from_millis(5);
        assert_eq!(timers.pop(later), Some((B, Alarm::Grace)));
        assert_eq!(timers.pop(later), Some((A, Alarm::Deadline)));
        assert_eq!(timers.pop(later), None);
    }

    #[test]
    fn a_second_alarm_of_a_kind_takes_the_place_of_the_first() {
        let now = Instant::now();
        let mut timers = Timers::default();
        timers.set(A, Alarm::Look, now, Duration::from_millis(1));
        timers.set(A, Alarm::Look, now, Duration::from_millis(9));
        assert_eq!(timers.pop(now + Duration::from_millis(5)), None);
        assert_eq!(
            timers.pop(now + Duration::from_millis(9)),
            Some((A, Alarm::Look))
        );
        assert_eq!(timers.next(now), None);
    }

    #[test]
    fn a_time_beyond_the_clock_is_no_alarm() {
        let mut timers = Timers::default();
        timers.set(A, Alarm::Deadline, Instant::now(), Duration::MAX);
        assert_eq!(timers.next(Instant::now()), None);
        assert_eq!(timers.due(A, Alarm::Deadline), None);
    }

    #[test]
    fn an_owner_that_is_gone_has_no_alarms() {
        let now = Instant::now();
        let mut timers = Timers::default();
        timers.set(A, Alarm::Hard, now, Duration::ZERO);
        timers.set(B, Alarm::Hard, now, Duration::ZERO);
        timers.cancel_all(A);
        assert_eq!(timers.pop(now), Some((B, Alarm::Hard)));
        assert_eq!(timers.pop(now), None);
    }
}
