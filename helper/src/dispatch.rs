//! What may be asked for, and when. Decisions only: nothing here touches a process.
//!
//! A request that fails a check is rejected before anything has happened, and the link goes
//! on serving.

use std::collections::BTreeSet;

use foster_protocol::{
    Availability, Bytes, Containment, Feature, Field, Level, LevelChoice, MAX_STRING, Mapping,
    Missing, OnExit, Reject, Seal, Sealed, Spec, TreeLimits,
};

use crate::session::State;

/// What a request asks of an existing session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Open,
    SignalLeader,
    SignalTree,
    End,
    Release,
}

/// Which request is legal in which state.
pub(crate) fn permit(
    state: State,
    verb: Verb,
    detachable: bool,
    level: Level,
) -> Result<(), Reject> {
    if verb == Verb::Release && level == Level::Namespace {
        return Err(Reject::Unsupported {
            what: Feature::Release,
        });
    }
    let legal = match (verb, state) {
        (Verb::Open, State::Prepared) => true,
        (Verb::SignalLeader, State::Running) => true,
        (
            Verb::SignalTree,
            State::Running | State::Exited | State::Lingering | State::Graceful | State::Killing,
        ) => true,
        // An ended session tells its verdict once more.
        (
            Verb::End,
            State::Starting
            | State::Prepared
            | State::Running
            | State::Exited
            | State::Lingering
            | State::Aborting
            | State::Graceful
            | State::Killing
            | State::Ended,
        ) => true,
        (Verb::Release, State::Running) if detachable => true,
        (Verb::Release, State::Running) => return Err(Reject::NotDetachable),
        (Verb::Release, State::Exited | State::Lingering | State::Released) => true,
        (
            Verb::Open | Verb::SignalLeader | Verb::SignalTree | Verb::End | Verb::Release,
            State::Starting
            | State::Prepared
            | State::Running
            | State::Exited
            | State::Lingering
            | State::Aborting
            | State::Graceful
            | State::Killing
            | State::Ended
            | State::Released
            | State::Failed,
        ) => false,
    };
    if legal {
        Ok(())
    } else {
        Err(Reject::IllegalState {
            state: state.name(),
        })
    }
}

/// Checks a signal number. 0 is none: it would only ask whether somebody is there.
pub(crate) fn check_signal(number: i32) -> Result<(), Reject> {
    if (1..=64).contains(&number) {
        Ok(())
    } else {
        Err(Reject::BadSignal { number })
    }
}

/// Whom the helper is itself, for seals that a spawn meets by naming nobody.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Descriptor numbers are below this.
    pub(crate) descriptors: u64,
    /// Trees can have limits.
    pub(crate) limits: bool,
}

/// Checks everything about a spec that can be known before a fork.
pub(crate) fn check_spec(
    spec: &Spec,
    came: usize,
    seal: Option<&Seal>,
    own: Own,
) -> Result<(), Reject> {
    check_descriptors(spec, came, own)?;
    check_string(&spec.program, Field::Program)?;
    for (index, argument) in (0..).zip(&spec.args) {
        check_string(argument, Field::Argument { index })?;
    }
    for (index, entry) in (0..).zip(&spec.env) {
        check_string(entry, Field::Variable { index })?;
    }
    if let Some(directory) = &spec.directory {
        check_string(directory, Field::Directory)?;
    }
    check_string(&spec.label, Field::Label)?;
    let death_signal = spec.death_signal.filter(|number| *number != 0);
    for number in death_signal.into_iter().chain(spec.first_signal) {
        check_signal(number)?;
    }
    if spec.limits != TreeLimits::default() && !own.limits {
        return Err(Reject::Unsupported {
            what: Feature::TreeLimits,
        });
    }
    seal.map_or(Ok(()), |seal| check_seal(spec, seal, own))
}

/// The level that a session gets: the one that is asked for, or what is left of it. A level
/// that is required and cannot be had is refused, and never weakened.
pub(crate) fn choose_level(spec: &Spec, levels: &[Availability]) -> Result<Containment, Reject> {
    let asked = match spec.level {
        // What changes nothing of what a command sees.
        LevelChoice::Auto => Level::Cgroup,
        LevelChoice::Exactly(level) => level,
    };
    // Limits are a cgroup's.
    let limited = (spec.limits != TreeLimits::default()).then_some(Level::Cgroup);
    let require = spec.require.max(limited);
    let asked = require.map_or(asked, |required| asked.max(required));
    let mut containment = Containment {
        level: Level::Group,
        missing: Vec::new(),
    };
    for &Availability { level, errno, .. } in levels.iter().filter(|one| one.level <= asked) {
        if errno == 0 {
            containment.level = level;
            continue;
        }
        if spec.require == Some(level) || limited == Some(level) {
            return Err(Reject::LevelUnavailable { level, errno });
        }
        containment.missing.push(Missing { level, errno });
    }
    Ok(containment)
}

/// Every passed descriptor is referred to, and every target is one number below the limit.
fn check_descriptors(spec: &Spec, came: usize, own: Own) -> Result<(), Reject> {
    let sources: BTreeSet<u32> = spec
        .descriptors
        .iter()
        .map(|mapping| mapping.source)
        .chain(spec.directory_base)
        .collect();
    let expected = sources.last().map_or(0, |last| last.saturating_add(1));
    let came = u32::try_from(came).unwrap_or(u32::MAX);
    if expected != came || sources.len() != came as usize {
        return Err(Reject::WrongDescriptorCount { expected, came });
    }
    let mut targets = BTreeSet::new();
    for &Mapping { target, source: _ } in &spec.descriptors {
        let number = u64::try_from(target).map_err(|_| Reject::BadTarget { target })?;
        if number >= own.descriptors || !targets.insert(target) {
            return Err(Reject::BadTarget { target });
        }
    }
    match spec.controlling_terminal {
        Some(target) if !targets.contains(&target) => Err(Reject::BadTarget { target }),
        Some(_) | None => Ok(()),
    }
}

fn check_string(string: &Bytes, which: Field) -> Result<(), Reject> {
    if string.0.len() > MAX_STRING {
        return Err(Reject::StringTooLong {
            which,
            length: string.0.len() as u64,
            limit: MAX_STRING as u64,
        });
    }
    if string.0.contains(&0) {
        return Err(Reject::StringWithNul { which });
    }
    Ok(())
}

fn check_seal(spec: &Spec, seal: &Seal, own: Own) -> Result<(), Reject> {
    let refuse = |what| Err(Reject::NotPermitted { what });
    let allows = |list: &Option<Vec<u32>>, id: u32| list.as_ref().is_none_or(|l| l.contains(&id));
    if !allows(&seal.uids, spec.uid.unwrap_or(own.uid)) {
        return refuse(Sealed::Uid);
    }
    let named = spec.groups.iter().flatten().copied();
    if !named
        .chain([spec.gid.unwrap_or(own.gid)])
        .all(|gid| allows(&seal.gids, gid))
    {
        return refuse(Sealed::Gid);
    }
    if seal
        .programs
        .as_ref()
        .is_some_and(|programs| !programs.contains(&spec.program))
    {
        return refuse(Sealed::Program);
    }
    Ok(())
}

/// Checks what a session at level `namespace` cannot have.
pub(crate) fn check_namespace(spec: &Spec, level: Level, user: bool) -> Result<(), Reject> {
    let unsupported = |what| Err(Reject::Unsupported { what });
    if level != Level::Namespace {
        return Ok(());
    }
    if spec.detachable || spec.on_exit == OnExit::Leave {
        return unsupported(Feature::Release);
    }
    if user && (spec.uid.is_some() || spec.gid.is_some() || spec.groups.is_some()) {
        return unsupported(Feature::Credentials);
    }
    Ok(())
}

/// Checks the level that a session would get.
pub(crate) fn check_sealed_level(level: Level, seal: Option<&Seal>) -> Result<(), Reject> {
    let levels = seal.and_then(|seal| seal.levels.as_ref());
    if levels.is_some_and(|levels| !levels.contains(&level)) {
        return Err(Reject::NotPermitted {
            what: Sealed::Level,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Own = Own {
        uid: 7,
        gid: 8,
        descriptors: 1024,
        limits: false,
    };

    fn spec() -> Spec {
        Spec {
            program: Bytes::from("/bin/true"),
            args: vec![Bytes::from("true")],
            ..Spec::default()
        }
    }

    fn mapped(pairs: &[(i32, u32)]) -> Spec {
        let descriptors = pairs
            .iter()
            .map(|&(target, source)| Mapping { target, source })
            .collect();
        Spec {
            descriptors,
            ..spec()
        }
    }

    #[test]
    fn every_passed_descriptor_must_be_referred_to() {
        assert_eq!(
            check_spec(&mapped(&[(0, 0), (1, 0), (2, 1)]), 2, None, OWN),
            Ok(())
        );
        for (pairs, came, expected) in [
            (&[(0, 0)][..], 0, 1),
            (&[(0, 0)][..], 2, 1),
            (&[(0, 1)][..], 2, 2),
            (&[(0, u32::MAX)][..], 1, u32::MAX),
            (&[][..], 1, 0),
        ] {
            assert_eq!(
                check_spec(&mapped(pairs), came, None, OWN),
                Err(Reject::WrongDescriptorCount {
                    expected,
                    came: u32::try_from(came).unwrap()
                }),
                "{pairs:?}"
            );
        }
    }

    #[test]
    fn a_directory_descriptor_counts_as_a_reference() {
        let spec = Spec {
            directory_base: Some(1),
            ..mapped(&[(0, 0)])
        };
        assert_eq!(check_spec(&spec, 2, None, OWN), Ok(()));
    }

    #[test]
    fn a_target_is_one_number_below_the_limit() {
        for (pairs, target) in [
            (&[(-1, 0)][..], -1),
            (&[(1024, 0)][..], 1024),
            (&[(3, 0), (3, 0)][..], 3),
        ] {
            assert_eq!(
                check_spec(&mapped(pairs), 1, None, OWN),
                Err(Reject::BadTarget { target })
            );
        }
    }

    #[test]
    fn a_controlling_terminal_must_be_a_target() {
        let spec = Spec {
            controlling_terminal: Some(0),
            ..spec()
        };
        assert_eq!(
            check_spec(&spec, 0, None, OWN),
            Err(Reject::BadTarget { target: 0 })
        );
    }

    #[test]
    fn strings_are_checked_to_the_byte() {
        let long = Bytes(vec![b'x'; MAX_STRING]);
        let longer = Bytes(vec![b'x'; MAX_STRING + 1]);
        let with = |entry: Bytes| Spec {
            env: vec![Bytes::from("A=1"), entry],
            ..spec()
        };
        assert_eq!(check_spec(&with(long), 0, None, OWN), Ok(()));
        assert_eq!(
            check_spec(&with(longer), 0, None, OWN),
            Err(Reject::StringTooLong {
                which: Field::Variable { index: 1 },
                length: 131_072,
                limit: 131_071
            })
        );
        assert_eq!(
            check_spec(&with(Bytes(vec![b'A', 0])), 0, None, OWN),
            Err(Reject::StringWithNul {
                which: Field::Variable { index: 1 }
            })
        );
    }

    #[test]
    fn a_seal_holds_for_what_is_named_and_for_what_is_not() {
        let seal = Seal {
            uids: Some(vec![5]),
            ..Seal::default()
        };
        let refused = Err(Reject::NotPermitted { what: Sealed::Uid });
        assert_eq!(
            check_spec(
                &Spec {
                    uid: Some(5),
                    ..spec()
                },
                0,
                Some(&seal),
                OWN
            ),
            Ok(())
        );
        assert_eq!(
            check_spec(
                &Spec {
                    uid: Some(0),
                    ..spec()
                },
                0,
                Some(&seal),
                OWN
            ),
            refused
        );
        // A spawn that names nobody runs as the helper, who is not in the list.
        assert_eq!(check_spec(&spec(), 0, Some(&seal), OWN), refused);
        let seal = Seal {
            gids: Some(vec![8]),
            ..Seal::default()
        };
        let groups = Spec {
            groups: Some(vec![8, 9]),
            ..spec()
        };
        assert_eq!(
            check_spec(&groups, 0, Some(&seal), OWN),
            Err(Reject::NotPermitted { what: Sealed::Gid })
        );
        assert_eq!(check_spec(&spec(), 0, Some(&seal), OWN), Ok(()));
    }

    #[test]
    fn no_signal_but_1_to_64() {
        for number in [0, -1, 65, i32::MIN, i32::MAX] {
            assert_eq!(check_signal(number), Err(Reject::BadSignal { number }));
        }
        assert_eq!(check_signal(1), Ok(()));
        assert_eq!(check_signal(64), Ok(()));
    }
}
