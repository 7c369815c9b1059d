//! What a round does: drawn from the seed and the round's number alone, so that one round can be repeated.

use std::time::Duration;

use super::{
    fault::{Fault, Strength},
    subject::{LASTS_WHILE_HELD, LOADS, Subject},
};

/// Settings are changed in the first part of a run, and restored in the last.
const BEGINNING_S: f64 = 0.4;

/// A subject that runs here.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) subject: &'static Subject,
    /// How long it ran when nothing happened to it.
    pub(super) span: Duration,
}

/// What there is to draw from.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) faults: Vec<Fault>,
    pub(super) subjects: Vec<Ready>,
    pub(super) settings: Vec<&'static str>,
    /// Others use the machine as well: faults are shorter and smaller.
    pub(super) is_mild: bool,
}

/// What restores settings after a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restorer {
    TuneRestore,
    Restore,
    /// The next command that measures.
    Measures,
}

/// A round.
#[derive(Debug)]
pub(super) struct Drawn<'a> {
    pub(super) fault: Fault,
    pub(super) ready: &'a Ready,
    pub(super) settings: Vec<&'static str>,
    pub(super) load: &'static str,
    /// From the start of the command to the fault.
    pub(super) moment: Duration,
    pub(super) strength: Strength,
    pub(super) restorer: Restorer,
    /// What restores is killed too, so long after its start, and started again.
    pub(super) second_kill: Option<Duration>,
}

impl Choice {
    /// The round of a number. None when there is nothing to draw from.
    pub(super) fn draw(&self, seed: u64, round: u64) -> Option<Drawn<'_>> {
        // Two seeds that follow each other must not have the same rounds one later.
        let own = fastrand::Rng::with_seed(seed).u64(..) ^ round;
        let mut random = fastrand::Rng::with_seed(own);
        let fits = |fault: &Fault| self.subjects.iter().any(|one| one.subject.fits(*fault));
        let faults = self.faults.iter().filter(|fault| fits(fault));
        let fault = *weighted(&mut random, faults.map(|fault| (fault, fault.weight())).collect())?;
        let subjects = self.subjects.iter().filter(|one| one.subject.fits(fault));
        let ready = weighted(&mut random, subjects.map(|one| (one, one.subject.weight)).collect())?;
        let keeps = ready.subject.keeps;
        let settings = match ready.subject.changes_settings() {
            true => {
                let bears = |one: &&str| !keeps || *one != LASTS_WHILE_HELD;
                let all: Vec<_> = self.settings.iter().copied().filter(bears).collect();
                let most = all.len().min(4);
                let count = random.usize(most.min(1)..=most);
                random.choose_multiple(all, count)
            }
            false => Vec::new(),
        };
        Some(Drawn {
            fault,
            ready,
            settings,
            load: random.choice(LOADS.iter().copied())?,
            moment: moment(&mut random, fault, ready.span),
            strength: self.strength(&mut random, fault),
            restorer: match random.u32(0..10) {
                0..7 => Restorer::TuneRestore,
                _ if keeps => Restorer::TuneRestore,
                7 => Restorer::Measures,
                _ => Restorer::Restore,
            },
            second_kill: (fault == Fault::Kill && random.u32(0..4) == 0)
                .then(|| Duration::from_micros(random.u64(0..60_000))),
        })
    }

    fn strength(&self, random: &mut fastrand::Rng, fault: Fault) -> Strength {
        let (shortest_ms, longest_ms) = match (fault, self.is_mild) {
            (Fault::Stop, false) => (1000, 5000),
            (Fault::Stop, true) => (1000, 2000),
            (_, false) => (100, 3000),
            (_, true) => (100, 1000),
        };
        let step_s = if self.is_mild { 1..=2 } else { 5..=30 };
        let sign = if random.bool() { 1 } else { -1 };
        Strength {
            lasts: Duration::from_millis(random.u64(shortest_ms..=longest_ms)),
            step_ns: sign * random.i64(step_s) * 1_000_000_000,
            memory_mib: if self.is_mild { 1024 } else { u64::MAX },
        }
    }
}

/// The moment of a fault: anywhere, or in the part in which settings are changed. A fault that lasts needs time to be felt.
fn moment(random: &mut fastrand::Rng, fault: Fault, span: Duration) -> Duration {
    let whole_s = span.as_secs_f64();
    let lasts = fault.ending_signal().is_none() || fault == Fault::OutOfMemory;
    let until_s = if lasts {
        whole_s * 0.7
    } else if random.bool() {
        whole_s.min(BEGINNING_S)
    } else {
        whole_s
    };
    Duration::from_secs_f64(random.f64() * until_s)
}

fn weighted<T>(random: &mut fastrand::Rng, all: Vec<(T, u32)>) -> Option<T> {
    let sum: u32 = all.iter().map(|(_, weight)| weight).sum();
    let mut left = random.u32(0..sum.max(1));
    for (one, weight) in all {
        match left.checked_sub(weight) {
            Some(rest) => left = rest,
            None => return Some(one),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{super::subject::SUBJECTS, *};

    fn choice(is_mild: bool) -> Choice {
        let ready = |subject| Ready { subject, span: Duration::from_secs(2) };
        Choice {
            faults: Fault::all().collect(),
            subjects: SUBJECTS.iter().map(ready).collect(),
            settings: vec![LASTS_WHILE_HELD, "thp=never", "ksm=on", "shield=last"],
            is_mild,
        }
    }

    #[test]
    fn a_seed_and_a_number_are_a_round() {
        let choice = choice(false);
        let shown = |seed, round| format!("{:?}", choice.draw(seed, round).expect("a round"));
        assert_eq!(shown(1, 7), shown(1, 7));
        assert_ne!(shown(1, 7), shown(1, 8));
        assert_ne!(shown(1, 7), shown(2, 6));
        assert_ne!(shown(1, 7), shown(2, 7));
    }

    #[test]
    fn every_fault_comes_and_half_of_them_kill() {
        let choice = choice(true);
        let mut counts: BTreeMap<Fault, u32> = BTreeMap::new();
        let mut second_kills = 0;
        for round in 0..2000 {
            let drawn = choice.draw(3, round).expect("a round");
            assert!(drawn.ready.subject.fits(drawn.fault));
            assert!(drawn.moment <= drawn.ready.span);
            assert!(drawn.strength.step_ns.abs() <= 2_000_000_000);
            let has_settings = !drawn.settings.is_empty();
            assert_eq!(has_settings, drawn.ready.subject.changes_settings());
            assert!(!drawn.ready.subject.keeps || drawn.restorer == Restorer::TuneRestore);
            assert!(!drawn.ready.subject.keeps || !drawn.settings.contains(&LASTS_WHILE_HELD));
            *counts.entry(drawn.fault).or_default() += 1;
            second_kills += u32::from(drawn.second_kill.is_some());
        }
        assert_eq!(counts.len(), Fault::all().count(), "{counts:?}");
        assert!(counts[&Fault::Kill] > 900 && second_kills > 150, "{counts:?}, {second_kills}");
    }

    #[test]
    fn nothing_is_drawn_from_nothing() {
        let none = Choice { subjects: Vec::new(), ..choice(true) };
        assert!(none.draw(1, 1).is_none());
        let only = Choice { faults: vec![Fault::TracefsGone], ..choice(true) };
        assert_eq!(only.draw(1, 1).expect("a round").fault, Fault::TracefsGone);
    }
}
