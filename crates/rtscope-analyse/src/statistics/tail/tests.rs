//! Against reference fits, and against simulated systems whose tail is known.

use rtscope_model::{histogram::Layout, slice::Scope};
use serde_json::Value;

use super::*;
use crate::statistics::{modes, random::Random};

const FIXTURE: &str = include_str!("../../../../../fixtures/statistics/tail.json");

fn reference(family: &str) -> Vec<(String, Value)> {
    let all: Value = serde_json::from_str(FIXTURE).expect("json");
    let of = all[family].as_object().expect("an object");
    of.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The fixture's buckets of 1 us.
fn buckets(case: &Value) -> Vec<Interval> {
    let bin = |bin: &Value| {
        let low = bin[0].as_f64().expect("a bucket") * 1e3;
        Interval { low, high: low + 1e3, count: bin[1].as_f64().expect("a count") }
    };
    case["buckets"].as_array().expect("buckets").iter().map(bin).collect()
}

#[test]
fn a_level_of_a_flat_shape_is_that_of_gumbel() {
    let level = |shape: f64| {
        Extreme { location: 5.0, scale: 2.0, shape, log_likelihood: 0.0 }.level(1_000.0)
    };
    let gumbel = 5.0 + 2.0 * 1_000f64.ln();
    assert!((level(0.0) - gumbel).abs() < 1e-9, "{}", level(0.0));
    assert!((level(1e-6) - gumbel).abs() < 1e-3 && level(0.1) > gumbel && level(-0.1) < gumbel);
    assert!(takes_longer().contains(&format!("at least {BLOCKS_MIN} slices")));
}

#[test]
fn the_largest_value_is_held_against_all_others() {
    let bucket = |low: f64, count: f64| Interval { low, high: low + 1.0, count };
    for (count, buckets) in [(1.0, 1), (3.0, 2)] {
        let seen = std::cell::Cell::new((0, 0.0));
        let chance = |others: &[Interval], largest: f64, all: f64| {
            assert_eq!((largest, all), (9.0, 5.0 + count));
            seen.set((others.len(), others.iter().map(|bucket| bucket.count).sum()));
            None
        };
        let _ = has_one_cause(&[bucket(1.0, 5.0), bucket(9.0, count)], "maxima", chance);
        assert_eq!(seen.get(), (buckets, 4.0 + count));
    }
}

fn near(name: &str, found: f64, reference: &Value, unit: f64, tolerance: f64) {
    let reference = reference.as_f64().expect("a number") * unit;
    assert!((found - reference).abs() <= tolerance, "{name}: {found}, SciPy has {reference}");
}

fn near_ends(
    name: &str,
    found: (Option<f64>, Option<f64>),
    ends: &Value,
    unit: f64,
    tolerance: f64,
) {
    for (found, reference) in [(found.0, &ends[0]), (found.1, &ends[1])] {
        match found {
            Some(found) => near(name, found, reference, unit, tolerance),
            None => assert!(reference.is_null(), "{name}: no end, SciPy has {reference}"),
        }
    }
}

#[test]
fn each_threshold_is_exceeded_by_six_tenths_of_the_one_before() {
    // Quantiles of an exponential distribution above a body, each in a bucket of its own.
    let tail = (0..400).rev().map(|n| {
        let excess_us = 1_000.0 * (400.0 / (f64::from(n) + 0.5)).ln();
        (1_000 + excess_us as u32, 1)
    });
    let bins: Vec<_> = std::iter::once((5, 100_000)).chain(tail).collect();
    let mut histogram = Histogram::new(Layout::default());
    histogram.add(&bins, 5_000, 7_685_000, 0);
    let peaks: Vec<u64> = thresholds(&histogram).iter().map(|one| one.peaks).collect();
    assert_eq!(peaks, [400, 240, 144, 86, 51]);
}

#[test]
fn fifty_peaks_are_the_fewest_of_a_threshold() {
    let peaks = |last: u64| -> Vec<u64> {
        let mut histogram = Histogram::new(Layout::default());
        let sum_us = 100_000 * 5 + 300 * 1_000 + u128::from(last) * 1_500;
        histogram.add(
            &[(5, 100_000), (1_000, 300), (1_500, last)],
            5_000,
            1_500_999,
            sum_us * 1_000,
        );
        thresholds(&histogram).iter().map(|one| one.peaks).collect()
    };
    assert_eq!(peaks(50), [350, 50]);
    assert_eq!(peaks(49), [349]);
}

#[test]
fn pareto_fits_are_those_of_scipy() {
    for (name, case) in reference("pareto") {
        let (excess, scipy) = (buckets(&case), &case["scipy"]);
        let fit = Pareto::fit(&excess).expect("a fit");
        near(&name, fit.shape, &scipy["shape"], 1.0, 1e-3);
        near(&name, fit.scale, &scipy["scale"], 1e3, 5.0);
        near(&name, fit.log_likelihood, &scipy["log_likelihood"], 1.0, 1e-3);
        near_ends(&name, fit.shape_interval(&excess, 1.0), &scipy["shape_interval"], 1.0, 2e-3);
        let m = case["once_in"].as_f64().expect("m");
        near(&name, fit.level(m), &scipy["level"], 1e3, 2e-3 * fit.level(m));
        let ends = fit.level_interval(&excess, m, 1.0);
        near_ends(&name, ends, &scipy["level_interval"], 1e3, 5e-3 * fit.level(m));
        // Another likelihood, of the values before they were put into buckets.
        near(&name, fit.shape, &case["pyextremes"]["shape"], 1.0, 0.04);
        near(&name, fit.scale, &case["pyextremes"]["scale"], 1e3, 0.05 * fit.scale);
    }
}

#[test]
fn extreme_value_fits_are_those_of_scipy() {
    for (name, case) in reference("extreme") {
        let (maxima, scipy) = (buckets(&case), &case["scipy"]);
        let fit = Extreme::fit(&maxima).expect("a fit");
        near(&name, fit.shape, &scipy["shape"], 1.0, 1e-3);
        near(&name, fit.scale, &scipy["scale"], 1e3, 10.0);
        near(&name, fit.location, &scipy["location"], 1e3, 10.0);
        near(&name, fit.log_likelihood, &scipy["log_likelihood"], 1.0, 1e-3);
        near_ends(&name, fit.shape_interval(&maxima), &scipy["shape_interval"], 1.0, 2e-3);
        let m = case["once_in"].as_f64().expect("m");
        near(&name, fit.level(m), &scipy["level"], 1e3, 2e-3 * fit.level(m));
        let ends = fit.level_interval(&maxima, m, 1.0);
        near_ends(&name, ends, &scipy["level_interval"], 1e3, 5e-3 * fit.level(m));
        near(&name, fit.shape, &case["pyextremes"]["shape"], 1.0, 0.04);
        near(&name, fit.scale, &case["pyextremes"]["scale"], 1e3, 0.05 * fit.scale);
    }
}

/// A thread's slices of a second, `each` latencies in one.
fn slices(
    seconds: u64,
    each: usize,
    mut latency_ns: impl FnMut(u64) -> u64,
) -> (Vec<Slice>, Histogram) {
    let layout = Layout::default();
    let mut all = Histogram::new(layout);
    let slice = |second: u64| {
        let mut one = Histogram::new(layout);
        (0..each).for_each(|_| one.record(latency_ns(second)));
        all.merge(&one);
        Slice {
            thread: 0,
            scope: Scope::Cell(0),
            start_ns: second * 1_000_000_000,
            end_ns: (second + 1) * 1_000_000_000,
            planned: each as u64,
            recorded: each as u64,
            missed: 0,
            early: 0,
            migrations: 0,
            min_ns: one.min_ns().unwrap_or(0),
            max_ns: one.max_ns().unwrap_or(0),
            max_at_ns: 0,
            max_cpu: 0,
            sum_ns: one.sum_ns() as u64,
            bins: one.bins(),
            unplaced: rtscope_model::histogram::Unplaced::default(),
            omitted: Vec::new(),
            omitted_extent: rtscope_model::slice::Extent::default(),
            frames: None,
        }
    };
    let slices = (0..seconds).map(slice).collect();
    (slices, all)
}

fn wakeups(slices: &[&Slice]) -> dependence::Blocks {
    let mut blocks = dependence::Blocks::new(Layout::default());
    slices.iter().for_each(|slice| blocks.add(slice));
    blocks
}

fn tail_of(seconds: u64, each: usize, latency_ns: impl FnMut(u64) -> u64) -> Tail {
    let (slices, all) = slices(seconds, each, latency_ns);
    let slices: Vec<&Slice> = slices.iter().collect();
    estimate(&slices, &all, &wakeups(&slices), seconds * 1_000_000_000, &modes::find(&all), false)
}

/// A body near 8 us, and one wake-up of 50 delayed by an interrupt: 10 us and an exponential of 6 us.
fn mixture(random: &mut Random) -> u64 {
    let body = 5e3 + 1e3 * (0..3).map(|_| random.exponential()).sum::<f64>();
    let irq = if random.below(50) == 0 { 10e3 + 6e3 * random.exponential() } else { 0.0 };
    (body + irq) as u64
}

#[test]
fn a_steady_run_gives_levels_that_enclose_the_truth() {
    let mut random = Random::new(1);
    let tail = tail_of(120, 1_000, |_| mixture(&mut random));
    let texts = tail.sentences();
    assert!(tail.checks.len() == 4 && tail.checks.iter().all(|c| c.passed), "{:?}", tail.checks);
    // Beyond the body the tail is exponential of 6 us, with the factor E[e^(body / 6 us)] = (6/5)^3
    // of the body's part: P(X > x) = 0.02 (6/5)^3 e^(-(x - 15 us) / 6 us), 1000 times a second.
    let truth = |period_s: f64| 15e3 + 6e3 * (0.02 * 1.2f64.powi(3) * 1e3 * period_s).ln();
    for estimate in [&tail.maxima, &tail.peaks] {
        let fit = estimate.fit.as_ref().unwrap_or_else(|| panic!("{texts:?}"));
        let level = fit.levels[0];
        assert_eq!(level.period_ns, 600_000_000_000);
        let (low, high) = (level.low_ns.expect("low") as f64, level.high_ns.expect("high") as f64);
        let truth = truth(600.0);
        assert!(low < truth && truth < high, "{low} {truth} {high}");
        assert!(fit.shape.abs() < 0.3, "{texts:?}");
    }
    assert!(texts.iter().all(|text| text.contains("indicative")), "{texts:?}");
}

#[test]
fn a_run_that_breaks_an_assumption_is_refused_with_the_reason() {
    let refused = |tail: &Tail, of: &str, why: &str| {
        let estimate = if of == "maxima" { &tail.maxima } else { &tail.peaks };
        assert!(estimate.fit.is_none(), "{of}: {:?}", tail.sentences());
        assert!(estimate.refused.join(";").contains(why), "{:?}", estimate.refused);
    };
    let mut random = Random::new(2);
    let growing = tail_of(120, 300, |second| mixture(&mut random) + second * 400);
    refused(&growing, "maxima", "grow over the run");
    refused(&growing, "peaks", "grow over the run");
    // Every sixth second or so a burst of twenty late wake-ups.
    let mut left = 0;
    let burst = tail_of(240, 300, |second| {
        left = if left > 0 {
            left - 1
        } else if random.below(1_800) == 0 {
            20
        } else {
            0
        };
        mixture(&mut random) + if left > 0 { 60_000 } else { second % 2 }
    });
    refused(&burst, "peaks", "bursts");
    let heavy = tail_of(200, 300, |_| (5e3 * random.share().powf(-0.7)).min(5e9) as u64);
    refused(&heavy, "maxima", "too heavy");
    refused(&heavy, "peaks", "too heavy");
    let rare = tail_of(120, 1_000, |s| {
        if random.below(20_000) == 0 { 300_000 + s * 50 } else { mixture(&mut random) }
    });
    refused(&rare, "peaks", "separate mode");
}

#[test]
fn one_latency_of_another_cause_is_not_continued() {
    for seed in 0..5 {
        let mut random = Random::new(seed);
        let mut left = 61_111;
        let tail = tail_of(120, 1_000, |_| {
            left -= 1;
            if left == 0 { 210_000 } else { mixture(&mut random) }
        });
        for estimate in [&tail.maxima, &tail.peaks] {
            assert!(estimate.fit.is_none(), "{:?}", tail.sentences());
        }
        let reasons = format!("{:?} {:?}", tail.maxima.refused, tail.peaks.refused);
        assert!(reasons.contains("another cause") || reasons.contains("too heavy"), "{reasons}");
    }
}

/// As many slices as a tail needs, in a tenth of the time.
#[test]
fn short_slices_make_no_tail_of_a_short_run() {
    let mut random = Random::new(3);
    let (seconds, all) = slices(60, 1_000, |_| mixture(&mut random));
    let tenth = |slice: &Slice| Slice {
        start_ns: slice.start_ns / 10,
        end_ns: slice.end_ns / 10,
        max_at_ns: slice.max_at_ns / 10,
        ..slice.clone()
    };
    let short: Vec<Slice> = seconds.iter().map(tenth).collect();
    let short: Vec<&Slice> = short.iter().collect();
    let tail = estimate(&short, &all, &wakeups(&short), 6_000_000_000, &modes::find(&all), false);
    assert!(tail.sentences()[0].contains("lasts 6 s: a tail needs 40 s"), "{:?}", tail.sentences());
}

#[test]
fn a_single_histogram_and_a_short_run_say_what_they_lack() {
    let mut random = Random::new(3);
    let (slices, all) = slices(1, 50_000, |_| mixture(&mut random));
    let slices: Vec<&Slice> = slices.iter().collect();
    let single = |imported| {
        estimate(&slices, &all, &wakeups(&slices), 1_000_000_000, &modes::find(&all), imported)
    };
    let one = single(false);
    assert!(one.sentences()[0].contains("the phase has 1 slice: a tail needs 40"), "{one:?}");
    let single = single(true);
    assert!(single.sentences()[0].contains("a histogram doesn't keep the order"));
    let short = tail_of(10, 1_000, |_| mixture(&mut random));
    assert!(short.sentences()[0].contains("10 slices"), "{:?}", short.sentences());
    let nothing = tail_of(50, 0, |_| 0);
    assert!(nothing.sentences()[0].contains("no latency"), "{:?}", nothing.sentences());
}

#[test]
fn threads_that_begin_apart_share_their_blocks() {
    let (mut a, _) = slices(50, 10, |second| 1_000 * (second + 1));
    let (b, _) = slices(50, 10, |second| 500 + 2_000 * (second % 2) * second);
    a.extend(b.into_iter().map(|slice| Slice {
        thread: 1,
        start_ns: slice.start_ns + 300_000_000,
        end_ns: slice.end_ns + 300_000_000,
        ..slice
    }));
    let blocks = Blocks::new(&a.iter().collect::<Vec<_>>());
    assert_eq!((blocks.slots_ns.len(), blocks.length_ns), (50, 1_000_000_000));
    assert_eq!(blocks.slots_ns[..4], [1_000, 2_500, 3_000, 6_500]);
}

#[test]
fn slices_of_several_lengths_give_blocks_of_the_longest() {
    // Two minutes in slices of 4 s, as a long record keeps them, then a minute in slices of 1 s.
    let (all, _) = slices(180, 10, |second| 1_000 + second);
    let long = all[..120].chunks(4).map(|four| Slice {
        end_ns: four[3].end_ns,
        recorded: 40,
        max_ns: four[3].max_ns,
        ..four[0].clone()
    });
    let mixed: Vec<Slice> = long.chain(all[120..].iter().cloned()).collect();
    let blocks = Blocks::new(&mixed.iter().collect::<Vec<_>>());
    assert_eq!((blocks.slots_ns.len(), blocks.length_ns), (45, 4_000_000_000));
    assert!(blocks.slots_ns.iter().zip(0..).all(|(&ns, slot)| ns == 1_000 + slot * 4 + 3));
    // One slice that nobody came to end changes nothing.
    let mut held = all.clone();
    held[50].end_ns = held[52].end_ns;
    held.drain(51..53);
    assert_eq!(Blocks::new(&held.iter().collect::<Vec<_>>()).length_ns, 1_000_000_000);
}

/// Of 40 runs: how many give the level of an hour by peaks, and how many of those hold the truth.
fn held(truth_ns: f64, mut latency_ns: impl FnMut(&mut Random) -> f64) -> (u32, u32) {
    let (mut given, mut held) = (0, 0);
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let tail = tail_of(100, 500, |_| latency_ns(&mut random) as u64);
        let levels = tail.peaks.fit.map(|fit| fit.levels).unwrap_or_default();
        let hour = levels.iter().find(|level| level.period_ns == 3_600_000_000_000);
        let Some((low, high)) = hour.and_then(|level| level.low_ns.zip(level.high_ns)) else {
            continue;
        };
        given += 1;
        held += u32::from((low as f64..=high as f64).contains(&truth_ns));
    }
    (given, held)
}

#[test]
fn the_body_of_a_distribution_is_not_taken_for_its_tail() {
    let normal = |random: &mut Random| {
        (2.0 * random.exponential()).sqrt() * (std::f64::consts::TAU * random.share()).cos()
    };
    // Once in 1,800,000: 4.887 standard deviations of the logarithm.
    let lognormal =
        held(8e3 * (0.35f64 * 4.887).exp(), |random| 8e3 * (0.35 * normal(random)).exp());
    // 2 % late by up to 60 us, shape -0.2.
    let bounded = held(6e3 + 60e3 * (1.0 - (0.02f64 * 1.8e6).powf(-0.2)), |random| {
        let late = random.below(50) == 0;
        if late {
            6e3 + 60e3 * (1.0 - random.share().powf(0.2))
        } else {
            4e3 + 2e3 * random.share()
        }
    });
    for (given, held) in [lognormal, bounded] {
        assert!(given >= 20 && held * 100 >= given * 85, "{held} of {given}");
    }
}
