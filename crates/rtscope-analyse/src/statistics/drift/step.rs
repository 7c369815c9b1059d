//! Whether two periodic threads keep in step: the distance of their activations of the same number.
//!
//! Activations are numbered in each thread as for its drift, so that a period without an activation counts. The
//! gap of number n is the instant of the first thread's, minus that of the second's. They are out of step by a
//! share of the period from the instant on at which the gap has moved by that share and doesn't come back until
//! the recording ends: one late wake-up is none.

use rtscope_model::drift::Periodic;
use serde::Serialize;

use super::{Drift, judge};

/// Periods that differ by more than this share aren't meant to be in step.
const SAME_PERIOD: f64 = 0.01;

/// Shares of a period that are looked for.
const SHARES: [f64; 3] = [0.1, 0.5, 1.0];

/// Two threads against each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadsInStep {
    /// Names of the threads: a gap above 0 says that the first is behind the second.
    pub threads: [String; 2],
    /// Activations that both have.
    pub activations: u64,
    /// The gap of the first activation.
    pub gap_ns_first: f64,
    pub gap_ns_last: f64,
    pub gap_ns_min: f64,
    pub gap_ns_max: f64,
    /// By how much the gap grows in an hour: the difference of both drifts.
    pub gap_ns_per_hour: f64,
    /// When they fell out of step, by growing shares of the period; empty when they kept in step.
    pub out_of_step: Vec<OutOfStep>,
    /// Instant since the first activation, and gap.
    #[serde(skip)]
    pub gaps: Vec<(f64, f64)>,
}

/// From when on two threads are out of step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OutOfStep {
    /// Share of the period.
    pub share: f64,
    /// Since the first activation.
    pub at_ns: f64,
    /// The number of the activation, from 0.
    pub activation: u64,
}

/// Sets two threads that were looked at together against each other.
///
/// # Errors
///
/// Why they have no common step.
pub fn step(a: &Periodic, b: &Periodic) -> Result<ThreadsInStep, String> {
    let few = |one: &Periodic| format!("{} has fewer than three activations", one.name);
    let drift_a = judge(a).ok_or_else(|| few(a))?;
    let drift_b = judge(b).ok_or_else(|| few(b))?;
    let (period_ns, other_ns) = (drift_a.period_ns, drift_b.period_ns);
    if (period_ns - other_ns).abs() > SAME_PERIOD * period_ns {
        let ms = |ns: f64| format!("{:.3} ms", ns / 1e6);
        return Err(format!("their periods differ: {} and {}", ms(period_ns), ms(other_ns)));
    }
    let instants_a = numbered(a, &drift_a);
    let mut instants_b = numbered(b, &drift_b).into_iter().peekable();
    let mut gaps: Vec<(u64, f64, f64)> = Vec::with_capacity(instants_a.len());
    for (number, at_ns) in instants_a {
        while instants_b.next_if(|(other, _)| *other < number).is_some() {}
        if let Some((_, other_ns)) = instants_b.next_if(|(other, _)| *other == number) {
            gaps.push((number, at_ns, at_ns - other_ns));
        }
    }
    let (Some(first), Some(last)) = (gaps.first().copied(), gaps.last().copied()) else {
        return Err("no activation of one has a partner in the other".to_owned());
    };
    let moved = |gap: &(u64, f64, f64)| (gap.2 - first.2).abs();
    let out_of_step = SHARES.iter().filter_map(|&share| {
        let is_within = |gap: &(u64, f64, f64)| moved(gap) < share * period_ns;
        let from = gaps.iter().rposition(is_within).map_or(0, |at| at + 1);
        let (activation, at_ns, _) = *gaps.get(from)?;
        Some(OutOfStep { share, at_ns: at_ns - first.1, activation })
    });
    Ok(ThreadsInStep {
        threads: [a.name.clone(), b.name.clone()],
        activations: gaps.len() as u64,
        gap_ns_first: first.2,
        gap_ns_last: last.2,
        gap_ns_min: gaps.iter().map(|gap| gap.2).fold(f64::INFINITY, f64::min),
        gap_ns_max: gaps.iter().map(|gap| gap.2).fold(f64::NEG_INFINITY, f64::max),
        gap_ns_per_hour: drift_a.drift_ns_per_hour - drift_b.drift_ns_per_hour,
        out_of_step: out_of_step.collect(),
        gaps: gaps.iter().map(|gap| (gap.1 - first.1, gap.2)).collect(),
    })
}

/// The number of each activation and its instant on the common clock.
fn numbered(thread: &Periodic, drift: &Drift) -> Vec<(u64, f64)> {
    let first_ns = thread.activations.first().map_or(0.0, |one| one.woke_ns as f64);
    let number = |&(at_ns, phase_ns): &(f64, f64)| {
        let number = ((at_ns - phase_ns) / drift.period_ns).round();
        (number as u64, first_ns + at_ns)
    };
    drift.phase.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use rtscope_model::{drift::LoopActivation, plan::Sleep};

    use super::*;

    const MS: u64 = 1_000_000;

    /// 100 activations at these instants.
    fn thread(name: &str, sleep: Sleep, woke: impl Fn(u64) -> u64) -> Periodic {
        let all = (1..=100u64).map(|n| {
            let woke_ns = woke(n);
            let expiry_ns = match sleep {
                Sleep::Absolute => n * 10 * MS,
                Sleep::Relative => woke_ns,
            };
            LoopActivation { armed_ns: woke_ns.saturating_sub(10 * MS), expiry_ns, woke_ns }
        });
        Periodic {
            name: name.to_owned(),
            sleep: Some(sleep),
            period_ns: Some(10 * MS),
            work_ns: None,
            placement: None,
            program: None,
            missed: 0,
            activations: all.collect(),
        }
    }

    #[test]
    fn a_delay_falls_out_of_step_with_a_delay_until() {
        // 200 us of work: a tenth of a period after 5, half of it after 25, a whole one after 50.
        let delay = thread("delay", Sleep::Relative, |n| n * 10 * MS + (n - 1) * MS / 5);
        let until = thread("delay until", Sleep::Absolute, |n| n * 10 * MS);
        let found = step(&delay, &until).expect("a step");
        let when: Vec<(f64, u64, u64)> =
            found.out_of_step.iter().map(|o| (o.share, o.activation, o.at_ns as u64)).collect();
        let expected = [5, 25, 50].map(|n| n * 10 * MS + n * MS / 5);
        assert_eq!(when, [(0.1, 5, expected[0]), (0.5, 25, expected[1]), (1.0, 50, expected[2])]);
        assert_eq!((found.gap_ns_first, found.gap_ns_last), (0.0, 99.0 * 0.2e6));
        // 0.2 ms of 10.2 ms.
        assert!((found.gap_ns_per_hour / (3.6e12 * 0.2 / 10.2) - 1.0).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn a_late_wakeup_is_not_out_of_step() {
        let late = |n: u64| n * 10 * MS + if n == 50 { 8 * MS } else { 0 };
        let (a, b) =
            (thread("a", Sleep::Absolute, late), thread("b", Sleep::Absolute, |n| n * 10 * MS));
        let found = step(&a, &b).expect("a step");
        assert_eq!((found.out_of_step.len(), found.gap_ns_max), (0, 8e6));
        // Two that are late together keep in step.
        let found = step(&a, &thread("c", Sleep::Absolute, late)).expect("a step");
        assert_eq!((found.gap_ns_min, found.gap_ns_max), (0.0, 0.0));
    }

    #[test]
    fn threads_of_other_periods_have_no_step() {
        let a = thread("a", Sleep::Absolute, |n| n * 10 * MS);
        let mut b = thread("b", Sleep::Absolute, |n| n * 20 * MS);
        b.period_ns = Some(20 * MS);
        assert_eq!(step(&a, &b), Err("their periods differ: 10.000 ms and 20.000 ms".to_owned()));
        b.activations.truncate(2);
        assert!(step(&a, &b).is_err_and(|why| why.contains("fewer than three")));
    }
}
