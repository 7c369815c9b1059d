//! Against loops whose drift is known, and programs that are held up.

use super::*;
use crate::statistics::random::Random;

const MS: u64 = 1_000_000;

fn thread(sleep: Option<Sleep>, period_ns: Option<u64>, all: Vec<LoopActivation>) -> Periodic {
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
fn program(sleep: Sleep, latencies: impl Iterator<Item = u64>) -> Vec<LoopActivation> {
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
            LoopActivation { armed_ns, expiry_ns, woke_ns }
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
    let all = program(Sleep::Relative, std::iter::repeat_n(50_000, 600));
    let drift = judge(&thread(Some(Sleep::Relative), Some(10 * MS), all)).expect("judged");
    let expected = 2.05 / 12.05 * HOUR_NS;
    for found in
        [Some(drift.drift_ns_per_hour), drift.drift_ns_per_hour_low, drift.drift_ns_per_hour_high]
    {
        let found = found.expect("an interval");
        assert!((found / expected - 1.0).abs() < 1e-9, "{drift:?}");
    }
    assert!((drift.period_ns_mean - 12.05e6).abs() < 1e-6);
    let all = program(Sleep::Absolute, std::iter::repeat_n(50_000, 600));
    let drift = judge(&thread(Some(Sleep::Absolute), Some(10 * MS), all)).expect("judged");
    assert_eq!((drift.drift_ns_per_hour, drift.deviation_ns_max), (0.0, 0.0));
}

#[test]
fn a_clock_of_another_speed_is_drift_of_a_grid() {
    // A grid of 10.0001 ms where 10 ms was meant: 10 ppm, 36 ms in an hour.
    let all = (1..=500).map(|n| {
        let at = n * 10_000_100;
        LoopActivation { armed_ns: at - 8 * MS, expiry_ns: at, woke_ns: at + (n % 7) * 10_000 }
    });
    let drift = judge(&thread(None, Some(10 * MS), all.collect())).expect("judged");
    assert_eq!(drift.behaviour, Behaviour::Absolute);
    assert!((drift.drift_ns_per_hour / 36e6 - 1.0).abs() < 0.02, "{drift:?}");
    assert!(drift.drift_ns_per_hour_low.is_some_and(|low| low < 36e6));
    assert!(drift.drift_ns_per_hour_high.is_some_and(|high| high > 35.9e6));
}

#[test]
fn relative_and_absolute_sleeps_are_told_apart_by_what_becomes_of_errors() {
    for seed in 1..40 {
        for (sleep, expected) in
            [(Sleep::Relative, Behaviour::Relative), (Sleep::Absolute, Behaviour::Absolute)]
        {
            let all = program(sleep, latencies(seed).take(300));
            let seen = judge(&thread(None, None, all.clone())).expect("judged");
            assert_eq!(seen.behaviour, expected, "seed {seed}");
            assert_eq!(seen.period_ns, 10e6, "what it sleeps, or its grid");
            // On another clock the instants tell the same; on two clocks in turn they tell
            // nothing, and the wake-ups are left.
            for on_two in [false, true] {
                let other = |(n, one): (usize, &LoopActivation)| LoopActivation {
                    expiry_ns: match on_two && n % 2 == 0 {
                        true => one.expiry_ns,
                        false => one.expiry_ns + 1_700_000_000_000_000_000,
                    },
                    ..*one
                };
                let all = all.iter().enumerate().map(other).collect();
                let seen = judge(&thread(None, None, all)).expect("judged");
                assert_eq!(seen.behaviour, expected, "seed {seed} {:?}", seen.variance_ratio);
            }
        }
    }
}

#[test]
fn the_grid_of_a_starved_program_is_found() {
    // Most instants are two or three periods apart.
    let mut at = 0;
    let all: Vec<LoopActivation> = (0..60)
        .map(|n| {
            at += [2, 3, 2, 1, 2][n % 5] * 10 * MS;
            LoopActivation { armed_ns: at - 5 * MS, expiry_ns: at, woke_ns: at + n as u64 * 1_000 }
        })
        .collect();
    let drift = judge(&thread(None, None, all)).expect("judged");
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
    let mut woke_ns = 0;
    let all = (1..=200).map(|n| {
        let armed_ns = woke_ns + 2 * MS;
        let expiry_ns = n * 10 * MS + random.below(20_000) as u64;
        woke_ns = expiry_ns + random.below(90_000) as u64;
        LoopActivation { armed_ns, expiry_ns, woke_ns }
    });
    let drift = judge(&thread(None, None, all.collect())).expect("judged");
    assert_eq!((drift.behaviour, drift.meant), (Behaviour::Absolute, Meant::Plain));
    assert_eq!(drift.period_ns, 1e7);
}

#[test]
fn a_program_that_catches_up_comes_back_to_its_grid() {
    // Held up for 55 ms in each 50 periods; then as many activations at once as it owes.
    let mut random = Random::new(3);
    let mut now = 0;
    let all: Vec<LoopActivation> = (1..=300)
        .map(|n| {
            let armed_ns = now;
            let expiry_ns = armed_ns.max(n * 10 * MS) + random.below(9_000) as u64;
            let held = if n % 50 == 20 { 55 * MS } else { 0 };
            let woke_ns = expiry_ns + held + random.below(60_000) as u64;
            now = woke_ns + MS;
            LoopActivation { armed_ns, expiry_ns, woke_ns }
        })
        .collect();
    let drift = judge(&thread(None, Some(10 * MS), all)).expect("judged");
    assert_eq!((drift.behaviour, drift.missed), (Behaviour::Absolute, 0), "{drift:?}");
    assert!((drift.period_ns_mean / 1e7 - 1.0).abs() < 1e-3);
}

#[test]
fn the_interval_holds_the_truth_as_often_as_it_says() {
    // Mean latency: 1 % of 3 ms and 99 % of 50 us, 79.5 us; phase gained in each 12.0795 ms.
    let truth = (2e6 + 79_500.0) / (12e6 + 79_500.0) * HOUR_NS;
    let judged = |sleep: Sleep, n: usize, seed: u64| {
        let all = program(sleep, latencies(seed).take(n));
        let drift = judge(&thread(Some(sleep), Some(10 * MS), all)).expect("judged");
        drift.drift_ns_per_hour_low.zip(drift.drift_ns_per_hour_high)
    };
    for (sleep, truth) in [(Sleep::Relative, truth), (Sleep::Absolute, 0.0)] {
        let given: Vec<_> = (1..=200).filter_map(|seed| judged(sleep, 1_000, seed)).collect();
        let holds = given.iter().filter(|(low, high)| *low <= truth && truth <= *high).count();
        // About 95 % of those that are given, which are nearly all.
        assert!(given.len() > 170 && holds * 100 > given.len() * 91, "{sleep:?} {holds}");
        assert_eq!(judged(sleep, 200, 1), None, "too few for an interval");
    }
}

/// A program that sleeps relatively and is held up now and then, for up to three periods.
fn held_up(seed: u64, n: usize) -> Vec<LoopActivation> {
    let mut random = Random::new(seed);
    let latencies = std::iter::repeat_with(move || match random.below(60) {
        0 => random.below(30_000_000) as u64,
        _ => random.below(90_000) as u64,
    });
    program(Sleep::Relative, latencies.take(n))
}

#[test]
fn a_relative_sleep_that_is_held_up_is_never_called_absolute() {
    let mut undecided = 0;
    for seed in 0..300 {
        for n in [40, 70, 150, 400] {
            let seen = held_up(seed, n);
            let on_two_clocks = |(n, one): (usize, &LoopActivation)| LoopActivation {
                expiry_ns: one.expiry_ns + n as u64 % 2 * 1_700_000_000_000_000_000,
                ..*one
            };
            let from_wakeups = seen.iter().enumerate().map(on_two_clocks).collect();
            for all in [seen, from_wakeups] {
                let drift = judge(&thread(None, None, all)).expect("judged");
                let ratio = drift.variance_ratio;
                assert_ne!(drift.behaviour, Behaviour::Absolute, "seed {seed}, {n}: {ratio:?}");
                undecided += u32::from(drift.behaviour == Behaviour::Unknown);
            }
        }
    }
    // Wake-ups alone say nothing below 64 activations: 300 of the 2,400 looks.
    assert!(undecided < 400, "{undecided} of 2,400 undecided");
}

#[test]
fn left_out_periods_are_counted_and_few_activations_tell_little() {
    let at = [10, 20, 30, 60, 70];
    let all = at.map(|ms| LoopActivation {
        armed_ns: ms * MS - 8 * MS,
        expiry_ns: ms * MS,
        woke_ns: ms * MS,
    });
    let drift = judge(&thread(None, None, all.to_vec())).expect("judged");
    assert_eq!((drift.missed, drift.behaviour), (2, Behaviour::Unknown));
    assert_eq!(drift.period_ns, 10e6);
    assert!(judge(&thread(None, None, all[..2].to_vec())).is_none());
}

#[test]
fn a_sleep_is_told_as_it_was_written() {
    assert_eq!([9_992_400.0, 3_300.0, 1_234_567.0].map(plain), [1e7, 3_300.0, 1_234_567.0]);
}

#[test]
fn a_typical_step_is_the_median_and_the_variance_does_not_depend_on_the_start() {
    assert_eq!(typical(&[0, 1, 3, 13, 23, 33]), Some(10.0));
    assert_eq!(typical(&[7, 7, 7]), None);
    let wakeups = program(Sleep::Absolute, latencies(3).take(400));
    let at: Vec<u64> = wakeups.iter().map(|one| one.woke_ns).collect();
    let later: Vec<u64> = at.iter().map(|at_ns| at_ns + 3_600_000 * MS).collect();
    let numbers: Vec<u64> = (0..at.len() as u64).collect();
    let ratio = |at: &[u64]| variance_ratio(at, &numbers).expect("enough activations").0;
    assert!((ratio(&at) / ratio(&later) - 1.0).abs() < 1e-3);
    let even: Vec<u64> = numbers.iter().map(|n| n * 10 * MS).collect();
    assert_eq!(variance_ratio(&even, &numbers), None, "nothing varies");
}

#[test]
fn a_steady_drift_deviates_nowhere_from_its_line() {
    let steady = program(Sleep::Relative, std::iter::repeat_n(50_000, 400));
    let found = judge(&thread(Some(Sleep::Relative), Some(10 * MS), steady)).expect("a drift");
    let (off_ns, drift_ns) = (found.deviation_ns_max, found.drift_ns_per_hour);
    assert!(off_ns < 10.0 && drift_ns > 1e9, "{off_ns} off, {drift_ns} in an hour");
}

/// Steps that vary by half more than the sleeps say nothing, and those that vary three times as much do.
#[test]
fn only_a_clear_difference_of_steps_and_sleeps_decides() {
    let of = |step_ns: u64, sleep_ns: u64| {
        let vary = |n: u64, by_ns: u64| 10 * MS + n % 3 * by_ns;
        let mut expiry_ns = 1_000 * MS;
        let activations: Vec<LoopActivation> = (0..64)
            .map(|n| {
                expiry_ns += vary(n, step_ns);
                LoopActivation {
                    armed_ns: expiry_ns - vary(n / 3, sleep_ns),
                    expiry_ns,
                    woke_ns: expiry_ns,
                }
            })
            .collect();
        let expiries: Vec<u64> = activations.iter().map(|one| one.expiry_ns).collect();
        of_sleeps(&activations, Some(&expiries))
    };
    assert_eq!(of(150_000, 100_000), Behaviour::Unknown);
    assert_eq!(of(100_000, 150_000), Behaviour::Unknown);
    assert_eq!(of(300_000, 100_000), Behaviour::Relative);
    assert_eq!(of(100_000, 300_000), Behaviour::Absolute);
    // Where one is perfectly even, it counts from when on the other isn't.
    assert_eq!(of(2 * EVEN_NS as u64 / 3, 0), Behaviour::Unknown);
    assert_eq!(of(0, 2 * EVEN_NS as u64 / 3), Behaviour::Unknown);
    assert_eq!(of(2 * EVEN_NS as u64, 0), Behaviour::Relative);
    assert_eq!(of(0, 2 * EVEN_NS as u64), Behaviour::Absolute);
}
