//! The short version of the tables in `docs/method/coverage.md`, with fixed seeds. Intervals that take
//! wake-ups as independent fail it.

#![expect(dead_code, reason = "the program prints more than is checked here")]

#[path = "../examples/coverage/claims.rs"]
mod claims;
#[path = "../examples/coverage/drift.rs"]
mod drift;
#[path = "../examples/coverage/quantiles.rs"]
mod quantiles;
#[path = "../examples/coverage/rates.rs"]
mod rates;
#[path = "../examples/coverage/ratios.rs"]
mod ratios;
#[path = "../examples/coverage/score.rs"]
mod score;
#[path = "../examples/coverage/systems.rs"]
mod systems;
#[path = "../examples/coverage/whole.rs"]
mod whole;

use rtscope_model::plan::Sleep;
use score::{Figure, Score};
use systems::System;
use whole::Latencies;

/// Runs of each system: at 95 %, about seven of them miss the truth.
const RUNS: u32 = 150;

/// How long a system is measured: two minutes have three spells of 8 s.
fn seconds(system: System) -> u64 {
    if system == System::SlowWandering { 600 } else { 120 }
}

/// Asserts that intervals hold in nine of ten cases, and how many are refused at most.
fn check(what: &str, score: &Score, refused_at_most: f64) {
    // A system may be refused always.
    let held = score.held_percent().unwrap_or(100.0);
    assert!(held >= 90.0, "{what}: held {held:.0} %");
    let refused = score.refused_percent();
    assert!(refused <= refused_at_most, "{what}: refused {refused:.0} %");
}

/// Most refusals of a system, in percent.
fn refused_at_most(system: System) -> f64 {
    match system {
        System::Spells | System::Wandering | System::SlowWandering => 25.0,
        // Two waves say nothing of a third.
        System::Wave => 100.0,
        _ => 5.0,
    }
}

/// Asserts the same of a figure, and that intervals of independent wake-ups would fail, except in systems
/// where they hold.
fn check_figure(name: &str, system: System, figure: &Figure, fails_if_independent: bool) {
    check(&format!("{name}, {}", system.name()), &figure.all, refused_at_most(system));
    if fails_if_independent && !matches!(system, System::Independent | System::Wave) {
        let held = figure.independent.held_percent().expect("always");
        assert!(held < 80.0, "{name}, {}: the test can fail", system.name());
    }
}

#[test]
fn quantiles_and_means_hold_however_late_wake_ups_come_together() {
    for system in System::all() {
        let scores = quantiles::scores(system, seconds(system), RUNS);
        for ((_, name), figure) in quantiles::QUANTILES.iter().zip(&scores.quantiles) {
            check_figure(name, system, figure, *name == "p99");
        }
        check_figure("mean", system, &scores.mean, false);
    }
}

#[test]
fn rates_hold_however_late_wake_ups_come_together() {
    for system in System::all() {
        let scores = rates::scores(system, seconds(system), RUNS);
        for ((_, name), figure) in rates::LIMITS.iter().zip(&scores) {
            check_figure(name, system, figure, *name == rates::LIMITS[0].1);
        }
    }
}

/// In buckets of 1 us, the design effect of a quantile was once that of a class that nothing reaches.
#[test]
fn bursts_of_one_delay_and_wandering_latencies_hold_in_buckets_of_a_microsecond() {
    // Where there is no exceedance, there is no interval of wake-ups.
    let all = [
        (Latencies::Bursts, 20.0),
        (Latencies::Wandering(2.0), 25.0),
        (Latencies::Wandering(4.8), 50.0),
    ];
    for (latencies, refused_at_most) in all {
        let [rate, quantile] = whole::scores(latencies, 120, RUNS);
        check(&format!("rate, {}", latencies.name()), &rate.all, refused_at_most);
        check(&format!("p99.9, {}", latencies.name()), &quantile.all, 5.0);
    }
}

#[test]
fn a_run_as_short_as_a_spell_is_refused_or_describes_itself() {
    for system in System::all() {
        let scores = quantiles::scores(system, 10, RUNS);
        for figure in [&scores.quantiles[0], &scores.mean] {
            let of_run = 100.0 * f64::from(figure.all.held_of_run) / f64::from(figure.all.given);
            // Ten seconds have one burst of 200.
            let least = if system == System::LongBursts { 0.0 } else { 90.0 };
            assert!(of_run >= least, "{}: held {of_run:.0} %", system.name());
        }
        let p99 = &scores.quantiles[0];
        match system {
            System::Spells => assert!(p99.met.refused_percent() > 50.0, "{:?}", p99.met),
            System::Independent | System::Bursts | System::ShortBursts => {
                check(system.name(), &p99.all, 10.0);
            }
            _ => {}
        }
    }
}

/// In 30 slices of 100 ms, the intervals of p99 were as narrow as those of a long phase. Two of three phases
/// of 3 s meet no burst, and their intervals missed the truth.
#[test]
fn short_slices_make_no_narrow_intervals_of_short_phases() {
    for system in [System::Independent, System::Bursts, System::ShortBursts, System::LongBursts] {
        let scores = quantiles::scores_in_slices(system, 3, 10, RUNS);
        check(system.name(), &scores.quantiles[0].all, 15.0);
        assert!(scores.mean.all.given == 0, "{}: {:?}", system.name(), scores.mean.all);
    }
}

#[test]
fn a_system_has_the_rate_of_itself() {
    for system in [System::Independent, System::Bursts] {
        let scores = ratios::scores(system, 1, 0.0, 20);
        assert!(scores.ratio.held >= scores.ratio.given - 3, "{}: {scores:?}", system.name());
        assert!(scores.ratio.given >= 15, "{}: {scores:?}", system.name());
        assert!(scores.different <= 3, "{}: {scores:?}", system.name());
    }
}

#[test]
fn claims_are_rarely_decided_wrongly() {
    for system in [System::Bursts, System::Spells] {
        // At 5 % in 60 runs, eight are rarer than 1 in 100.
        let false_claim = claims::decided(system, 0.97, 60);
        assert!(false_claim.backed < 8, "{}: {false_claim:?}", system.name());
        let true_claim = claims::decided(system, 5.0, 20);
        assert!(true_claim.refuted == 0 && true_claim.backed > 10, "{true_claim:?}");
    }
}

#[test]
fn drifts_hold_when_late_activations_come_together() {
    for system in &drift::SYSTEMS {
        for sleep in [Sleep::Relative, Sleep::Absolute] {
            let scores = drift::scores(system, sleep, 5_000, 100);
            check(&format!("{}, {sleep:?}", system.name), &scores.all, 45.0);
        }
    }
}
