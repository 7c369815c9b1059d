//! Drift of a periodic thread: its phase against an ideal clock, how fast that moves, and whether one
//! late activation makes all later ones late.
//!
//! Activations are numbered; the phase of number n is its instant, less that of the first, less n
//! periods. Drift is the slope of the phase against time, told as a time an hour.
//!
//! Errors of a phase are never independent. Two kinds of threads are separated first, by two witnesses.
//!
//! * The variance ratio (Cochrane 1988; Lo and MacKinlay 1988): the variance of the error over q periods
//!   against q times that over one. It is near 1 where errors are carried on (a relative sleep: the phase is
//!   a random walk), and near 1/q where the thread comes back to its grid. Windows run over the end
//!   into the beginning, so that a long delay near either end counts as much as any other.
//! * The sleeps: a thread that sleeps for a time has even sleeps and uneven steps, one that keeps to a grid
//!   has uneven sleeps and even steps.
//!
//! Where the witnesses disagree, or neither says anything, nothing is decided.
//!
//! A program that was held up may catch up, activation by activation, or leave periods out; nobody can
//! see which it means to do. So the activations are numbered both ways, and the way counts in which it
//! comes closer to a grid.
//!
//! * Carried on: the best line through a random walk is that from its first to its last point. The
//!   slope is the mean step.
//! * Otherwise: least squares of phase against time.
//!
//! [`super::slope`] has the intervals of both.

pub mod step;

use rtscope_model::{
    drift::{LoopActivation, Periodic},
    plan::Sleep,
};
use serde::Serialize;

use super::slope::{self, NoInterval, Slope};

/// The fewest activations of which the way of sleeping is told.
const ACTIVATIONS_MIN: usize = 32;

/// A variance ratio over fewer periods separates nothing.
const RATIO_LAG_MIN: usize = 4;

/// Errors are carried on above this variance ratio, and not below the other: a random walk has a smaller
/// one in less than one of 10,000 looks.
const RATIO_CARRIED: f64 = 0.67;
const RATIO_GRID: f64 = 0.2;

/// Sleeps and steps are compared to this: the kernel's events are that exact.
const EVEN_NS: i128 = 1_000;

/// Expiries that are so equally spaced come from a sum of periods: no relative sleep does that.
const GRID_NS: f64 = 2.0;

/// Expiries further from the wake-up than this are on another clock.
const OTHER_CLOCK_NS: u128 = 3_600_000_000_000;

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

/// Where the period comes from against which the phase is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meant {
    /// It was given.
    Given,
    /// The time for which the thread asks to sleep: the period that a program with relative sleeps intends.
    Slept,
    /// The spacing of the instants that the thread sleeps until.
    Grid,
    /// The round number next to the mean, at most a thousandth away from it.
    Plain,
    /// The mean: it can't show a drift.
    Mean,
}

/// A periodic thread judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drift {
    pub activations: u64,
    /// Periods that passed without an activation.
    pub missed: u64,
    /// The period that it is meant to have.
    pub period_ns: f64,
    /// Where that comes from.
    pub meant: Meant,
    pub period_ns_mean: f64,
    /// Phase gained in an hour; above 0 it falls behind.
    pub drift_ns_per_hour: f64,
    /// Lower end of its 95 % interval, where there is one.
    pub drift_ns_per_hour_low: Option<f64>,
    pub drift_ns_per_hour_high: Option<f64>,
    pub no_interval: Option<NoInterval>,
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
pub fn judge(thread: &Periodic) -> Option<Drift> {
    let activations = &thread.activations;
    if activations.len() < 3 {
        return None;
    }
    let expiries = expiries(activations);
    let carry = carry(thread, expiries.as_deref());
    let numbers = &carry.numbers;
    let (period_ns, meant) = period(thread, &carry, is_same_clock(activations));
    let first = activations[0].woke_ns;
    let phase: Vec<(f64, f64)> = activations
        .iter()
        .zip(numbers)
        .map(|(one, n)| {
            let at = (one.woke_ns - first) as f64;
            (at, at - *n as f64 * period_ns)
        })
        .collect();
    let Slope { value: slope, half } = slope(&phase, carry.behaviour);
    let end = |sign: f64| half.ok().map(|half| (slope + sign * half) * HOUR_NS);
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
        drift_ns_per_hour_low: end(-1.0),
        drift_ns_per_hour_high: end(1.0),
        no_interval: half.err(),
        behaviour: carry.behaviour,
        variance_ratio: carry.ratio,
        variance_ratio_lag: carry.lag,
        deviation_ns_max: phase.iter().map(off).fold(0.0, f64::max),
        phase,
    })
}

/// The slope of the phase. Whether a line is drawn through it or its steps are summed hangs on what becomes
/// of errors.
fn slope(phase: &[(f64, f64)], behaviour: Behaviour) -> Slope {
    if behaviour == Behaviour::Absolute {
        return slope::of_points(phase);
    }
    let step = |pair: &[(f64, f64)]| (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
    let steps: Vec<(f64, f64)> = phase.windows(2).map(step).collect();
    let found = slope::of_steps(&steps);
    match behaviour {
        Behaviour::Unknown => Slope { half: Err(NoInterval::Unknown), ..found },
        _ => found,
    }
}

/// The programmed expiries, where all are on one clock. It may be another than that of the wake-ups:
/// then the difference of the two hardly changes.
fn expiries(activations: &[LoopActivation]) -> Option<Vec<u64>> {
    let ahead = |one: &LoopActivation| i128::from(one.expiry_ns) - i128::from(one.woke_ns);
    let first = ahead(activations.first()?);
    let is_steady = |one: &LoopActivation| (ahead(one) - first).unsigned_abs() < OTHER_CLOCK_NS;
    let all = activations.iter().map(|one| one.expiry_ns);
    activations.iter().all(is_steady).then(|| all.collect())
}

/// Whether the expiries are on the clock of the wake-ups.
fn is_same_clock(activations: &[LoopActivation]) -> bool {
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
fn carry(thread: &Periodic, expiries: Option<&[u64]>) -> Carry {
    let woke: Vec<u64> = thread.activations.iter().map(|one| one.woke_ns).collect();
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
    let behaviour = match thread.sleep {
        Some(Sleep::Relative) => Behaviour::Relative,
        Some(Sleep::Absolute) => Behaviour::Absolute,
        None if grid_ns.is_some() => Behaviour::Absolute,
        None => agreed(of_ratio(ratio), of_sleeps(&thread.activations, expiries)),
    };
    let numbers = match (thread.sleep, thread.period_ns) {
        (Some(Sleep::Absolute), Some(period_ns)) => {
            let first = thread.activations[0].expiry_ns;
            let number = |one: &LoopActivation| (one.expiry_ns - first) / period_ns.max(1);
            thread.activations.iter().map(number).collect()
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

/// What two witnesses say, of which either may not know.
fn agreed(one: Behaviour, other: Behaviour) -> Behaviour {
    match (one, other) {
        (known, Behaviour::Unknown) | (Behaviour::Unknown, known) => known,
        (one, other) if one == other => one,
        _ => Behaviour::Unknown,
    }
}

/// What the variance ratio says. Over so few periods that the two kinds lie close, nothing.
fn of_ratio(ratio: Option<(f64, usize)>) -> Behaviour {
    match ratio {
        Some((ratio, lag)) if lag >= RATIO_LAG_MIN && ratio > RATIO_CARRIED => Behaviour::Relative,
        Some((ratio, lag)) if lag >= RATIO_LAG_MIN && ratio < RATIO_GRID => Behaviour::Absolute,
        _ => Behaviour::Unknown,
    }
}

/// What the sleeps say, where the instants that they end at are on one clock: which of sleeps and steps
/// are the more even. Half-spreads, for one long delay makes a few of both uneven.
fn of_sleeps(activations: &[LoopActivation], expiries: Option<&[u64]>) -> Behaviour {
    let Some(expiries) = expiries.filter(|all| all.len() >= ACTIVATIONS_MIN) else {
        return Behaviour::Unknown;
    };
    let since = |later: u64, earlier: u64| i128::from(later) - i128::from(earlier);
    let steps = half_spread(expiries.windows(2).map(|pair| since(pair[1], pair[0])).collect());
    let sleeps =
        half_spread(activations.iter().map(|one| since(one.expiry_ns, one.armed_ns)).collect());
    if steps > 2 * sleeps + EVEN_NS {
        Behaviour::Relative
    } else if sleeps > 2 * steps + EVEN_NS {
        Behaviour::Absolute
    } else {
        Behaviour::Unknown
    }
}

/// The median distance from the median.
fn half_spread(mut values: Vec<i128>) -> i128 {
    let median = |values: &mut Vec<i128>| {
        values.sort_unstable();
        values[values.len() / 2]
    };
    let middle = median(&mut values);
    values.iter_mut().for_each(|value| *value = (*value - middle).abs());
    median(&mut values)
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
    // The errors of the first and the last activation are 0: the series is a ring.
    let ring = error.len() - 1;
    let variance = |lag: usize| {
        let over = |i: usize| (error[(i + lag) % ring] - error[i]).powi(2);
        (0..ring).map(over).sum::<f64>() / ring as f64
    };
    let one = variance(1);
    (one > 0.0).then(|| (variance(lag) / (lag as f64 * one), lag))
}

fn period(thread: &Periodic, carry: &Carry, same_clock: bool) -> (f64, Meant) {
    let activations = &thread.activations;
    if let Some(given) = thread.period_ns {
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

#[cfg(test)]
mod tests;
