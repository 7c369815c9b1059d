//! The short version of the table in `docs/method/coverage.md`, with fixed seeds. Intervals that take
//! wake-ups as independent fail it.

#![expect(dead_code, reason = "the program prints more than is checked here")]

#[path = "../examples/coverage/quantiles.rs"]
mod quantiles;
#[path = "../examples/coverage/rates.rs"]
mod rates;
#[path = "../examples/coverage/score.rs"]
mod score;
#[path = "../examples/coverage/systems.rs"]
mod systems;

use score::Score;
use systems::System;

/// Runs of each system: at 95 %, about seven of them miss the truth.
const RUNS: u32 = 150;

/// Two minutes have three spells.
const SECONDS: u64 = 120;

/// Asserts that intervals hold in nine of ten cases and are refused in no more than so many.
fn check(what: &str, score: &Score, refused_at_most: f64) {
    let held = score.held_percent().expect("an interval");
    assert!(held >= 90.0, "{what}: held {held:.0} %");
    let refused = score.refused_percent();
    assert!(refused <= refused_at_most, "{what}: refused {refused:.0} %");
}

/// Most refusals of a system, in percent.
fn refused_at_most(system: System) -> f64 {
    match system {
        System::Spells | System::Wandering => 10.0,
        System::Wave => 100.0,
        _ => 1.0,
    }
}

#[test]
fn quantiles_hold_however_late_wake_ups_come_together() {
    for system in System::ALL {
        let scores = quantiles::scores(system, SECONDS, RUNS);
        for ((_, name), figure) in quantiles::QUANTILES.iter().zip(&scores.quantiles) {
            check(&format!("{name}, {}", system.name()), &figure.all, refused_at_most(system));
            if system != System::Independent && *name == "p99" {
                assert!(
                    figure.independent.held_percent().expect("always") < 70.0,
                    "the test can fail"
                );
            }
        }
    }
}

#[test]
fn rates_hold_however_late_wake_ups_come_together() {
    for system in System::ALL {
        let scores = rates::scores(system, SECONDS, RUNS);
        for ((_, name), figure) in rates::LIMITS.iter().zip(&scores) {
            check(&format!("{name}, {}", system.name()), &figure.all, refused_at_most(system));
            if system != System::Independent && *name == rates::LIMITS[0].1 {
                assert!(
                    figure.independent.held_percent().expect("always") < 75.0,
                    "the test can fail"
                );
            }
        }
    }
}
