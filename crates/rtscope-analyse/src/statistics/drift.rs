//! Drift of a periodic thread: its phase against an ideal clock, how fast that moves, and whether one
//! late activation makes all later ones late.
//!
//! Activations are numbered; the phase of number n is its instant, less that of the first, less n
//! periods. Drift is the slope of the phase against time, told as a time an hour.
//!
//! Errors of a phase are never independent. Two worlds are told apart first, by the variance ratio (Cochrane
//! 1988; Lo and MacKinlay 1988): the variance of the error over q periods against q times that over
//! one. It is 1 where errors are carried on (a relative sleep: the phase is a random walk), and 1/q where
//! the thread comes back to its grid. The decision lies at 1 / sqrt(q).
//!
//! A program that was held up may catch up, activation by activation, or leave periods out; nobody can
//! see which it means to do. So the activations are numbered both ways, and the way counts in which it
//! comes closer to a grid.
//!
//! * Carried on: the best line through a random walk is that from its first to its last point. The
//!   slope is the mean step; its interval is from the long-run variance of the steps.
//! * Otherwise: least squares of phase against time, with an interval that allows for dependence.
//!
//! Both variances are those of Newey and West (1987), with lags up to 4 (n/100)^(2/9).

use rtscope_model::{
    drift::{Activation, Periodic},
    plan::Sleep,
};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The fewest activations of which the way of sleeping is told.
const ACTIVATIONS_MIN: usize = 32;

/// Expiries that are so equally spaced come from a sum of periods: no relative sleep does that.
const GRID_NS: f64 = 2.0;

/// Expiries further from the wake-up than this are on another clock.
const OTHER_CLOCK_NS: u128 = 3_600_000_000_000;

/// Nanoseconds in an hour.
const HOUR_NS: f64 = 3.6e12;

/// What becomes of an error: whether a late activation makes the later ones late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Behaviour {
    /// Every error stays in the phase: as a relative sleep does.
    Relative,
    /// The thread comes back to its grid: as a sleep until an instant does.
    Absolute,
    /// Too little was seen to tell.
    Unknown,
}

/// Where the period comes from that the phase is told against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meant {
    /// It was said.
    Given,
    /// The time that the thread asks to sleep for, as a program means it that sleeps relatively.
    Slept,
    /// The spacing of the instants that the thread sleeps until.
    Grid,
    /// The plain number next to the mean, not further than a thousandth.
    Plain,
    /// The mean: no drift against it can be seen.
    Mean,
}

/// A periodic thread judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drift {
    /// Activations.
    pub activations: u64,
    /// Periods that passed without an activation.
    pub missed: u64,
    /// The period that it is meant to have.
    pub period_ns: f64,
    /// Where that comes from.
    pub meant: Meant,
    /// The period that it has.
    pub period_ns_mean: f64,
    /// Phase gained in an hour; above 0 it falls behind.
    pub drift_ns_per_hour: f64,
    /// 95 % interval, from.
    pub drift_ns_per_hour_low: f64,
    /// 95 % interval, to.
    pub drift_ns_per_hour_high: f64,
    /// What becomes of an error.
    pub behaviour: Behaviour,
    /// The variance ratio that says so; none where the expiries are an exact grid, or nothing varies.
    pub variance_ratio: Option<f64>,
    /// Periods over which it was taken.
    pub variance_ratio_lag: Option<u64>,
    /// Largest distance of the phase from its line.
    pub deviation_ns_max: f64,
    /// Instant since the first activation, and phase.
    #[serde(skip)]
    pub phase: Vec<(f64, f64)>,
}

/// Judges a thread. None with fewer than three activations.
#[must_use]
pub fn judge(subject: &Periodic) -> Option<Drift> {
    let activations = &subject.activations;
    if activations.len() < 3 {
        return None;
    }
    let expiries = expiries(activations);
    let carry = carry(subject, expiries.as_deref());
    let numbers = &carry.numbers;
    let (period_ns, meant) = period(subject, &carry, is_same_clock(activations));
    let first = activations[0].woke_ns;
    let phase: Vec<(f64, f64)> = activations
        .iter()
        .zip(numbers)
        .map(|(one, n)| {
            let at = (one.woke_ns - first) as f64;
            (at, at - *n as f64 * period_ns)
        })
        .collect();
    let (slope, half) = match carry.behaviour {
        Behaviour::Absolute => least_squares(&phase),
        _ => mean_step(&phase),
    };
    let (elapsed, last) = (phase[phase.len() - 1].0, numbers[numbers.len() - 1]);
    let middle =
        |pick: fn(&(f64, f64)) -> f64| phase.iter().map(pick).sum::<f64>() / phase.len() as f64;
    let (at, height) = (middle(|p| p.0), middle(|p| p.1));
    let off = |(t, p): &(f64, f64)| (p - height - slope * (t - at)).abs();
    Some(Drift {
        activations: activations.len() as u64,
        missed: (last + 1).saturating_sub(activations.len() as u64),
        period_ns,
        meant,
        period_ns_mean: elapsed / last as f64,
        drift_ns_per_hour: slope * HOUR_NS,
        drift_ns_per_hour_low: (slope - half) * HOUR_NS,
        drift_ns_per_hour_high: (slope + half) * HOUR_NS,
        behaviour: carry.behaviour,
        variance_ratio: carry.ratio,
        variance_ratio_lag: carry.lag,
        deviation_ns_max: phase.iter().map(off).fold(0.0, f64::max),
        phase,
    })
}

/// The programmed expiries, where all are on one clock. It may be another than that of the wake-ups:
/// then the difference of the two hardly changes.
fn expiries(activations: &[Activation]) -> Option<Vec<u64>> {
    let ahead = |one: &Activation| i128::from(one.expiry_ns) - i128::from(one.woke_ns);
    let first = ahead(activations.first()?);
    let is_steady = |one: &Activation| (ahead(one) - first).unsigned_abs() < OTHER_CLOCK_NS;
    let all = activations.iter().map(|one| one.expiry_ns);
    activations.iter().all(is_steady).then(|| all.collect())
}

/// Whether the expiries are on the clock of the wake-ups.
fn is_same_clock(activations: &[Activation]) -> bool {
    activations.iter().all(|one| u128::from(one.expiry_ns.abs_diff(one.woke_ns)) < OTHER_CLOCK_NS)
}

/// What becomes of errors, and how that is known.
struct Carry {
    behaviour: Behaviour,
    ratio: Option<f64>,
    lag: Option<u64>,
    /// The expiries are equally spaced: by so much.
    grid_ns: Option<f64>,
    /// The number of each activation.
    numbers: Vec<u64>,
}

/// How a loop of ours sleeps is known; a program shows it in the instants that it sleeps until, or, where
/// those are on several clocks, in those at which it wakes.
fn carry(subject: &Periodic, expiries: Option<&[u64]>) -> Carry {
    let woke: Vec<u64> = subject.activations.iter().map(|one| one.woke_ns).collect();
    let shown = expiries.unwrap_or(&woke);
    let next: Vec<u64> = (0..shown.len() as u64).collect();
    let skipping = rounded(shown, typical(shown).unwrap_or(1.0));
    let of = |numbers: &[u64]| variance_ratio(shown, numbers);
    let (by_next, by_skipping) = (of(&next), of(&skipping));
    let closer = |a: Option<(f64, usize)>, b: Option<(f64, usize)>| match (a, b) {
        (Some(a), Some(b)) => b.0 < a.0,
        _ => true,
    };
    let skips = closer(by_next, by_skipping);
    let ratio = if skips { by_skipping } else { by_next };
    let grid_ns = expiries.filter(|all| all.len() >= ACTIVATIONS_MIN).and_then(grid);
    let behaviour = match (subject.sleep, grid_ns, ratio) {
        (Some(Sleep::Relative), ..) => Behaviour::Relative,
        (Some(Sleep::Absolute), ..) | (_, Some(_), _) => Behaviour::Absolute,
        (.., Some((ratio, lag))) if ratio > 1.0 / (lag as f64).sqrt() => Behaviour::Relative,
        (.., Some(_)) => Behaviour::Absolute,
        _ => Behaviour::Unknown,
    };
    let numbers = match (subject.sleep, subject.period_ns) {
        (Some(Sleep::Absolute), Some(period_ns)) => {
            let first = subject.activations[0].expiry_ns;
            let number = |one: &Activation| (one.expiry_ns - first) / period_ns.max(1);
            subject.activations.iter().map(number).collect()
        }
        // Who sleeps relatively leaves none out.
        _ if behaviour == Behaviour::Relative => next,
        _ if grid_ns.is_some() => rounded(shown, grid_ns.unwrap_or(1.0)),
        _ if skips => skipping,
        _ => next,
    };
    Carry {
        behaviour,
        ratio: ratio.map(|found| found.0),
        lag: ratio.map(|found| found.1 as u64),
        grid_ns,
        numbers,
    }
}

/// The spacing of instants that are equally spaced, but for whole multiples. On a starved machine most
/// steps may be multiples: then the smallest is the spacing.
fn grid(at: &[u64]) -> Option<f64> {
    let typical = typical(at)?;
    let steps = at.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64);
    let smallest = steps.filter(|step| *step > typical / 16.0).fold(typical, f64::min);
    [typical, smallest].into_iter().find_map(|step| {
        let numbers = rounded(at, step);
        let spacing = (at[at.len() - 1] - at[0]) as f64 / *numbers.last()? as f64;
        let fits = |(at_ns, n): (&u64, &u64)| {
            ((at_ns - at[0]) as f64 - *n as f64 * spacing).abs() <= GRID_NS
        };
        at.iter().zip(&numbers).all(fits).then_some(spacing)
    })
}

/// The median step.
fn typical(at: &[u64]) -> Option<f64> {
    let mut steps: Vec<u64> = at.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).map(|ns| *ns as f64).filter(|ns| *ns > 0.0)
}

/// Numbers instants: each is the next, or as many steps further as fit.
fn rounded(at: &[u64], step_ns: f64) -> Vec<u64> {
    let mut number = 0;
    let mut numbers = vec![0];
    for pair in at.windows(2) {
        let steps = pair[1].saturating_sub(pair[0]) as f64 / step_ns;
        number += (steps.round() as u64).max(1);
        numbers.push(number);
    }
    numbers
}

/// The variance of errors over q periods, against q times that over one, and q.
fn variance_ratio(at: &[u64], numbers: &[u64]) -> Option<(f64, usize)> {
    if at.len() < ACTIVATIONS_MIN {
        return None;
    }
    let mean = (at[at.len() - 1] as f64 - at[0] as f64) / *numbers.last()? as f64;
    let error: Vec<f64> = at
        .iter()
        .zip(numbers)
        .map(|(at_ns, n)| (*at_ns as f64 - at[0] as f64) - *n as f64 * mean)
        .collect();
    let lag = (at.len() / 16).clamp(2, 64);
    let variance = |lag: usize| {
        let terms = error.len() - lag;
        (0..terms).map(|i| (error[i + lag] - error[i]).powi(2)).sum::<f64>() / terms as f64
    };
    let one = variance(1);
    (one > 0.0).then(|| (variance(lag) / (lag as f64 * one), lag))
}

/// The period that the thread is meant to have.
fn period(subject: &Periodic, carry: &Carry, same_clock: bool) -> (f64, Meant) {
    let activations = &subject.activations;
    if let Some(given) = subject.period_ns {
        return (given as f64, Meant::Given);
    }
    if let Some(spacing) = carry.grid_ns {
        return (spacing, Meant::Grid);
    }
    if carry.behaviour == Behaviour::Relative && same_clock {
        let mut slept: Vec<u64> =
            activations.iter().map(|one| one.expiry_ns.saturating_sub(one.armed_ns)).collect();
        slept.sort_unstable();
        return (plain(slept[slept.len() / 2] as f64), Meant::Slept);
    }
    let elapsed = activations[activations.len() - 1].woke_ns - activations[0].woke_ns;
    let mean = elapsed as f64 / carry.numbers[carry.numbers.len() - 1] as f64;
    let written = plain(mean);
    match carry.behaviour == Behaviour::Absolute && (written / mean - 1.0).abs() < 1e-3 {
        true => (written, Meant::Plain),
        false => (mean, Meant::Mean),
    }
}

/// A time as a person would have written it, where one with two digits is within a hundredth: what is
/// left of a sleep when the kernel hears of it is a little less than what was written.
fn plain(ns: f64) -> f64 {
    if ns <= 0.0 {
        return 1.0;
    }
    let unit = 10f64.powi(ns.log10().floor() as i32 - 1);
    let written = (ns / unit).round() * unit;
    if (written / ns - 1.0).abs() <= 0.01 { written } else { ns }
}

/// The slope of a random walk, and half of its 95 % interval.
fn mean_step(phase: &[(f64, f64)]) -> (f64, f64) {
    let steps: Vec<f64> = phase.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    let elapsed = phase[phase.len() - 1].0 - phase[0].0;
    let (n, sum) = (steps.len() as f64, steps.iter().sum::<f64>());
    let errors: Vec<f64> = steps.iter().map(|step| step - sum / n).collect();
    let deviation = (long_run(&errors) * n / (n - 1.0)).sqrt();
    (sum / elapsed, quantile(n - 1.0) * deviation / elapsed)
}

/// The slope of a line through points whose errors may depend on each other, and half of its 95 %
/// interval.
fn least_squares(phase: &[(f64, f64)]) -> (f64, f64) {
    let n = phase.len() as f64;
    let at = phase.iter().map(|p| p.0).sum::<f64>() / n;
    let height = phase.iter().map(|p| p.1).sum::<f64>() / n;
    let own: f64 = phase.iter().map(|p| (p.0 - at).powi(2)).sum();
    let with: f64 = phase.iter().map(|p| (p.0 - at) * (p.1 - height)).sum();
    let slope = with / own;
    let scores: Vec<f64> =
        phase.iter().map(|p| (p.0 - at) * (p.1 - height - slope * (p.0 - at))).collect();
    let deviation = (long_run(&scores) * n / (n - 2.0)).sqrt() / own;
    (slope, quantile(n - 2.0) * deviation)
}

/// The variance of a sum of dependent terms with mean 0 (Newey and West, 1987).
fn long_run(terms: &[f64]) -> f64 {
    let lags = (4.0 * (terms.len() as f64 / 100.0).powf(2.0 / 9.0)).floor() as usize;
    let at_lag = |lag: usize| {
        terms.iter().skip(lag).zip(terms).map(|(later, earlier)| later * earlier).sum::<f64>()
    };
    let weighted = |lag: usize| 2.0 * (1.0 - lag as f64 / (lags as f64 + 1.0)) * at_lag(lag);
    (at_lag(0) + (1..=lags).map(weighted).sum::<f64>()).max(0.0)
}

fn quantile(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom.max(1.0)).map_or(1.96, |t| t.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::random::Random;

    const MS: u64 = 1_000_000;

    fn subject(sleep: Option<Sleep>, period_ns: Option<u64>, all: Vec<Activation>) -> Periodic {
        Periodic {
            name: "x".to_owned(),
            sleep,
            period_ns,
            work_ns: None,
            placement: None,
            program: None,
            missed: 0,
            activations: all,
        }
    }

    /// A loop with a period of 10 ms, work of 2 ms, and latencies.
    fn program(sleep: Sleep, latencies: impl Iterator<Item = u64>) -> Vec<Activation> {
        let (mut now, mut grid) = (0, 0);
        latencies
            .map(|late_ns| {
                let armed_ns = now;
                grid += 10 * MS;
                let expiry_ns = match sleep {
                    Sleep::Relative => armed_ns + 10 * MS,
                    Sleep::Absolute => grid,
                };
                let woke_ns = expiry_ns.max(armed_ns) + late_ns;
                now = woke_ns + 2 * MS;
                Activation { armed_ns, expiry_ns, woke_ns }
            })
            .collect()
    }

    /// Uniform up to 100 us, and now and then 3 ms.
    fn latencies(seed: u64) -> impl Iterator<Item = u64> {
        let mut random = Random::new(seed);
        std::iter::repeat_with(move || match random.below(100) {
            0 => 3 * MS,
            n => n as u64 * 1_000,
        })
    }

    #[test]
    fn a_known_drift_is_found_exactly() {
        // Each period is 10 ms + 2 ms + 50 us: 2.05 ms of phase in 12.05 ms.
        let all = program(Sleep::Relative, std::iter::repeat_n(50_000, 200));
        let drift = judge(&subject(Some(Sleep::Relative), Some(10 * MS), all)).expect("judged");
        let expected = 2.05 / 12.05 * HOUR_NS;
        for found in
            [drift.drift_ns_per_hour, drift.drift_ns_per_hour_low, drift.drift_ns_per_hour_high]
        {
            assert!((found / expected - 1.0).abs() < 1e-9, "{drift:?}");
        }
        assert!((drift.period_ns_mean - 12.05e6).abs() < 1e-6);
        let all = program(Sleep::Absolute, std::iter::repeat_n(50_000, 200));
        let drift = judge(&subject(Some(Sleep::Absolute), Some(10 * MS), all)).expect("judged");
        assert_eq!((drift.drift_ns_per_hour, drift.deviation_ns_max), (0.0, 0.0));
    }

    #[test]
    fn a_clock_of_another_speed_is_drift_of_a_grid() {
        // A grid of 10.0001 ms where 10 ms was meant: 10 ppm, 36 ms in an hour.
        let all = (1..=500).map(|n| {
            let at = n * 10_000_100;
            Activation { armed_ns: at - 8 * MS, expiry_ns: at, woke_ns: at + (n % 7) * 10_000 }
        });
        let drift = judge(&subject(None, Some(10 * MS), all.collect())).expect("judged");
        assert_eq!(drift.behaviour, Behaviour::Absolute);
        assert!((drift.drift_ns_per_hour / 36e6 - 1.0).abs() < 0.02, "{drift:?}");
        assert!(drift.drift_ns_per_hour_low < 36e6 && drift.drift_ns_per_hour_high > 35.9e6);
    }

    #[test]
    fn relative_and_absolute_sleeps_are_told_apart_by_what_becomes_of_errors() {
        for seed in 1..40 {
            for (sleep, expected) in
                [(Sleep::Relative, Behaviour::Relative), (Sleep::Absolute, Behaviour::Absolute)]
            {
                let all = program(sleep, latencies(seed).take(300));
                let seen = judge(&subject(None, None, all.clone())).expect("judged");
                assert_eq!(seen.behaviour, expected, "seed {seed}");
                assert_eq!(seen.period_ns, 10e6, "what it sleeps, or its grid");
                // On another clock the instants tell the same; on two clocks in turn they tell
                // nothing, and the wake-ups are left.
                for on_two in [false, true] {
                    let other = |(n, one): (usize, &Activation)| Activation {
                        expiry_ns: match on_two && n % 2 == 0 {
                            true => one.expiry_ns,
                            false => one.expiry_ns + 1_700_000_000_000_000_000,
                        },
                        ..*one
                    };
                    let all = all.iter().enumerate().map(other).collect();
                    let seen = judge(&subject(None, None, all)).expect("judged");
                    assert_eq!(seen.behaviour, expected, "seed {seed} {:?}", seen.variance_ratio);
                }
            }
        }
    }

    #[test]
    fn the_grid_of_a_starved_program_is_found() {
        // Most instants are two or three periods apart.
        let mut at = 0;
        let all: Vec<Activation> = (0..60)
            .map(|n| {
                at += [2, 3, 2, 1, 2][n % 5] * 10 * MS;
                Activation { armed_ns: at - 5 * MS, expiry_ns: at, woke_ns: at + n as u64 * 1_000 }
            })
            .collect();
        let drift = judge(&subject(None, None, all)).expect("judged");
        assert_eq!(
            (drift.behaviour, drift.meant, drift.period_ns),
            (Behaviour::Absolute, Meant::Grid, 1e7)
        );
        // Twelve rounds of ten periods, from the second on: 118 steps, 59 of them made.
        assert_eq!(drift.missed, 59);
    }

    #[test]
    fn a_corrected_relative_sleep_counts_as_absolute() {
        // It computes the time that is left, a few us too much or too little, and asks for that.
        let mut random = Random::new(7);
        let all = (1..=200).map(|n| {
            let at = n * 10 * MS + random.below(20_000) as u64;
            Activation {
                armed_ns: at - 8 * MS,
                expiry_ns: at,
                woke_ns: at + random.below(90_000) as u64,
            }
        });
        let drift = judge(&subject(None, None, all.collect())).expect("judged");
        assert_eq!((drift.behaviour, drift.meant), (Behaviour::Absolute, Meant::Plain));
        assert_eq!(drift.period_ns, 1e7);
    }

    #[test]
    fn a_program_that_catches_up_comes_back_to_its_grid() {
        // Held up for 55 ms in each 50 periods; then as many activations at once as it owes.
        let mut random = Random::new(3);
        let mut now = 0;
        let all: Vec<Activation> = (1..=300)
            .map(|n| {
                let armed_ns = now;
                let expiry_ns = armed_ns.max(n * 10 * MS) + random.below(9_000) as u64;
                let held = if n % 50 == 20 { 55 * MS } else { 0 };
                let woke_ns = expiry_ns + held + random.below(60_000) as u64;
                now = woke_ns + MS;
                Activation { armed_ns, expiry_ns, woke_ns }
            })
            .collect();
        let drift = judge(&subject(None, Some(10 * MS), all)).expect("judged");
        assert_eq!((drift.behaviour, drift.missed), (Behaviour::Absolute, 0), "{drift:?}");
        assert!((drift.period_ns_mean / 1e7 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn the_interval_holds_the_truth_as_often_as_it_says() {
        // Mean latency: 1 % of 3 ms and 99 % of 50 us, 79.5 us; phase gained in each 12.0795 ms.
        let truth = (2e6 + 79_500.0) / (12e6 + 79_500.0) * HOUR_NS;
        let covers = |sleep: Sleep, truth: f64| {
            let holds = |seed: u64| {
                let all = program(sleep, latencies(seed).take(1_000));
                let drift = judge(&subject(Some(sleep), Some(10 * MS), all)).expect("judged");
                (drift.drift_ns_per_hour_low..=drift.drift_ns_per_hour_high).contains(&truth)
            };
            (1..=200).filter(|seed| holds(*seed)).count()
        };
        for (sleep, truth) in [(Sleep::Relative, truth), (Sleep::Absolute, 0.0)] {
            let share = covers(sleep, truth);
            // 190 of 200 are expected; heavy tails cost a little.
            assert!((174..=200).contains(&share), "{sleep:?} {share}");
        }
    }

    #[test]
    fn left_out_periods_are_counted_and_few_activations_tell_little() {
        let at = [10, 20, 30, 60, 70];
        let all = at.map(|ms| Activation {
            armed_ns: ms * MS - 8 * MS,
            expiry_ns: ms * MS,
            woke_ns: ms * MS,
        });
        let drift = judge(&subject(None, None, all.to_vec())).expect("judged");
        assert_eq!((drift.missed, drift.behaviour), (2, Behaviour::Unknown));
        assert_eq!(drift.period_ns, 10e6);
        assert!(judge(&subject(None, None, all[..2].to_vec())).is_none());
    }

    #[test]
    fn a_sleep_is_told_as_it_was_written() {
        assert_eq!([9_992_400.0, 3_300.0, 1_234_567.0].map(plain), [1e7, 3_300.0, 1_234_567.0]);
    }
}
