use rtscope_model::{
    event::Event,
    frames::Frames,
    histogram::{Histogram, Layout},
};

use super::*;
use crate::{statistics::random::Random, test_support::Run};

/// A normal deviate (G. E. P. Box and M. E. Muller, 1958).
fn normal(random: &mut Random) -> f64 {
    (-2.0 * random.share().ln()).sqrt() * (std::f64::consts::TAU * random.share()).cos()
}

fn cell(block: u64, load: &str, figure: Figure, rate: f64) -> TrialCell {
    TrialCell {
        block,
        load: load.to_owned(),
        figures: vec![Some(figure)],
        work: vec![("message".to_owned(), rate)],
        power_w: Some(rate / 10.0),
    }
}

fn side(name: &str, cells: Vec<TrialCell>) -> TrialSide {
    TrialSide { name: name.to_owned(), cells }
}

const P99: [TrialStatistic; 1] = [TrialStatistic::Latency(Statistic::Quantile(990_000_000))];

/// Latencies in us by block under one load.
fn latencies(name: &str, all_us: &[u64]) -> TrialSide {
    let of =
        |(block, us): (u64, &u64)| cell(block, "rest", Figure::exact_latency(us * 1_000), 100.0);
    side(name, (0..).zip(all_us).map(of).collect())
}

fn one(found_us: &[u64], tried_us: &[u64]) -> Trial {
    let (found, tried) = (latencies("found", found_us), latencies("tried", tried_us));
    trials(&found, &[tried], &P99, 1.0).remove(0)
}

#[test]
fn a_change_in_every_round_is_a_difference_and_its_size_is_that_of_the_ratios() {
    // The machine drifts by four times; in each round the setting halves the latency.
    let trial = one(&[100, 200, 300, 400, 150], &[50, 100, 150, 200, 75]);
    assert_eq!(trial.effect, TrialEffect::Better);
    let change = trial.figures[0].change.expect("five rounds");
    assert!((change.ratio - 0.5).abs() < 1e-9, "{change:?}");
    assert!(
        change.low > 0.47 && change.high < 0.53,
        "as wide as a hundredth leaves it: {change:?}"
    );
    // The fifth root of 100 x 200 x 300 x 400 x 150.
    let found_us = 3.6e11_f64.powf(0.2);
    let (found, tried) = (trial.figures[0].found / 1e3, trial.figures[0].tried / 1e3);
    assert!((found - found_us).abs() < 1e-6 && (tried - found_us / 2.0).abs() < 1e-6, "{found}");
    assert_eq!(one(&[50, 100, 150], &[100, 200, 300]).effect, TrialEffect::Worse);
    assert_eq!(one(&[50, 100], &[100, 200]).effect, TrialEffect::NotShown, "two rounds");
    assert_eq!(one(&[], &[]).figures, []);
}

#[test]
fn the_interval_is_student_s_of_the_differences() {
    // By hand: differences of logarithms ln 2, ln 4, ln 2: mean 0.92420, standard error 0.23105, t(2; 97.5 %) 4.30265.
    let change = one(&[10, 10, 10], &[20, 40, 20]).figures[0].change.expect("three rounds");
    let low = (0.924_196_2_f64 - 4.302_652_7 * 0.231_049_1).exp();
    assert!((change.low - low).abs() < 1e-4, "{change:?} {low}");
}

/// Latencies of a thousand rounds that are equal on each side, as a histogram shows them that counts microseconds.
fn rounded(found_ns: u64, tried_ns: u64) -> Trial {
    let of = |name: &str, ns: u64| {
        let mut histogram = Histogram::new(Layout::default());
        (0..1_000).for_each(|_| histogram.record(ns));
        // The last rank alone is exact.
        histogram.record(1_000_000);
        let ns = quantile::statistic_ns(&histogram, DEFAULT_QUANTILE).expect("latencies");
        let begin_ns = quantile::bucket_begin_ns(&histogram, ns).expect("latencies");
        let figure = Figure::latency(ns, begin_ns);
        side(name, (0..1_000).map(|block| cell(block, "rest", figure, 1.0)).collect())
    };
    trials(&of("found", found_ns), &[of("tried", tried_ns)], &P99, 1.0).remove(0)
}

/// Two systems that differ by 2 ns differ by a bucket of 1 us in every round, where the edge of the bucket lies between.
#[test]
fn a_latency_that_rounding_alone_makes_longer_is_no_difference() {
    for edge_ns in [4_000, 20_000, 99_000] {
        for (found_ns, tried_ns) in [(edge_ns - 1, edge_ns + 1), (edge_ns + 1, edge_ns - 1)] {
            let trial = rounded(found_ns, tried_ns);
            assert_eq!(trial.effect, TrialEffect::NotShown, "{found_ns} {tried_ns}");
            let change = trial.figures[0].change.expect("rounds");
            let truth = tried_ns as f64 / found_ns as f64;
            assert!(change.low < truth && truth < change.high, "{change:?}");
        }
    }
    // Two buckets apart, of which one may be rounding.
    assert_eq!(rounded(20_500, 22_500).effect, TrialEffect::Worse);
    assert_eq!(rounded(4_500, 2_500).effect, TrialEffect::Better);
}

#[test]
fn counts_of_zero_are_no_proof() {
    let share = |count: u64| Figure::share(count, 10_000);
    let of = |name: &str, counts: &[u64]| {
        let cells = (0..).zip(counts).map(|(block, n)| cell(block, "rest", share(*n), 1.0));
        side(name, cells.collect())
    };
    let effect = |found: &[u64], tried: &[u64]| {
        let statistics = [TrialStatistic::AtOrAbove(200_000)];
        trials(&of("found", found), &[of("tried", tried)], &statistics, 1.0).remove(0).effect
    };
    assert_eq!(effect(&[1, 1, 0, 1, 1], &[0, 0, 0, 0, 0]), TrialEffect::NotShown);
    assert_eq!(effect(&[90, 110, 100, 95, 105], &[0, 0, 0, 0, 0]), TrialEffect::Better);
    assert_eq!(effect(&[0; 5], &[0; 5]), TrialEffect::NotShown);
}

#[test]
fn a_setting_that_helps_under_one_load_and_hurts_under_another_is_both() {
    let loaded = |name: &str, rest_us: u64, busy_us: u64| {
        let cells = (0..5).flat_map(|block| {
            let at = |load, us: u64| {
                cell(block, load, Figure::exact_latency((us + block) * 1_000), 50.0)
            };
            [at("rest", rest_us), at("busy", busy_us)]
        });
        side(name, cells.collect())
    };
    let found = loaded("found", 100, 100);
    let all = trials(
        &found,
        &[loaded("both", 20, 500), loaded("same", 100, 100), loaded("slightly", 80, 100)],
        &P99,
        1.5,
    );
    let effects: Vec<TrialEffect> = all.iter().map(|trial| trial.effect).collect();
    // 20 % less is clear, and smaller than what another build of a kernel does.
    assert_eq!(effects, [TrialEffect::Mixed, TrialEffect::NotShown, TrialEffect::NotShown]);
    assert!(all[2].figures[0].chance.is_some_and(Chance::is_different));
}

#[test]
fn the_work_of_loads_and_the_power_are_costs() {
    let of = |name: &str, rate: f64| {
        let one = |block: u64| {
            let rate = rate * (1.0 + block as f64 / 1_000.0);
            cell(block, "busy", Figure::exact_latency(10_000), rate)
        };
        side(name, (0..4).map(one).collect())
    };
    let trial = trials(&of("found", 1_000.0), &[of("tried", 800.0)], &P99, 1.0).remove(0);
    let costs: Vec<(&str, f64)> =
        trial.costs.iter().map(|cost| (cost.what.as_str(), cost.change.ratio)).collect();
    assert_eq!(costs.len(), 2);
    assert_eq!((costs[0].0, costs[1].0), ("work of message", "power"));
    assert!(costs.iter().all(|cost| (cost.1 - 0.8).abs() < 1e-9), "{costs:?}");
}

/// A judged cell under a load, whose events were changed.
fn busy_cell(edit: impl FnMut(&mut Event)) -> CellSummary {
    let plan = "name = 'busy'\n[[phase]]\nname = 'busy'\nduration = '2s'\nload = ['cpu']\n";
    let (rest, work) = ([[20_000u64; 8]; 2], [100, 100]);
    let run = Run::new(plan, 1).cell(0, &rest.each_ref().map(|it| it.as_slice()));
    let record = run.load(0, "cpu", &work).end().edit(edit).record();
    crate::judge(&record, &[]).cells.remove(0)
}

/// The figures of a cell whose load had failed were taken for those under the load.
#[test]
fn a_cell_whose_load_failed_is_left_out_and_counted() {
    let sound = busy_cell(|_| ());
    assert!(is_usable(&sound) && !is_left_out(&sound));
    let failed = busy_cell(|event| {
        if let Event::LoadEnded { ok, .. } = event {
            *ok = false;
        }
    });
    assert!(failed.all.recorded > 0 && !is_usable(&failed) && is_left_out(&failed));
    let mut never = failed;
    (never.all.recorded, never.all.planned) = (0, 0);
    assert!(!is_usable(&never) && !is_left_out(&never), "after Ctrl-C");
}

/// The frames of a network sampler: requirements of `late` and `lost` had no figure, and trials by them were empty.
#[test]
fn late_and_lost_frames_are_shares_of_those_sent() {
    let statistics =
        TrialStatistic::of(&["late = 0", "lost = 0"].map(|text| text.parse().expect("sound")));
    assert_eq!(statistics, [TrialStatistic::Late, TrialStatistic::Lost]);
    let mut row = busy_cell(|_| ()).all;
    assert!(statistics.iter().all(|one| one.of_row(&row).is_none()), "a sampler without frames");
    row.frames = Some(Frames { sent: 1_000, late: 20, lost: 3, ..Frames::default() });
    let shares = statistics.iter().map(|one| one.of_row(&row).map(|figure| figure.value));
    assert_eq!(shares.collect::<Vec<_>>(), [Some(0.02), Some(0.003)]);
}

fn named(name: &str, effect: TrialEffect, ratio: f64) -> Trial {
    let change = TrialRatio { ratio, low: ratio, high: ratio };
    let figure = TrialFigure {
        load: "rest".to_owned(),
        statistic: "p99".to_owned(),
        is_share: false,
        found: 1.0,
        tried: ratio,
        change: Some(change),
        chance: None,
        differs: effect != TrialEffect::NotShown,
    };
    Trial { name: name.to_owned(), effect, blocks: 5, figures: vec![figure], costs: vec![] }
}

#[test]
fn of_two_that_contradict_each_other_the_better_one_goes_with_the_others() {
    let tried = ["thp=never", "thp=madvise", "throttling=off", "timer-migration=off"];
    let trials = [
        named("thp=never", TrialEffect::Better, 0.9),
        named("thp=madvise", TrialEffect::Better, 0.5),
        named("throttling=off", TrialEffect::NotShown, 0.1),
        named("timer-migration=off", TrialEffect::Better, 0.8),
    ];
    let join = |all: &String, one: &String| {
        (!(all.contains("thp=") && one.contains("thp="))).then(|| format!("{all} {one}"))
    };
    let tried = tried.map(str::to_owned);
    let best = |trials: &[Trial]| best_together(&tried, trials, String::clone, join);
    assert_eq!(best(&trials).as_deref(), Some("thp=madvise timer-migration=off"));
    assert_eq!(best(&[named("thp=never", TrialEffect::Worse, 2.0)]), None);
    assert_eq!(best(&[named("something else", TrialEffect::Better, 0.5)]), None);
}

#[test]
fn blocks_count_that_have_the_system_as_found_and_a_setting() {
    let found = latencies("found", &[1, 1, 1]);
    let (two, none) = (latencies("tried", &[1, 1]), latencies("tried", &[]));
    assert_eq!(measured_blocks(&found, &[two.clone(), none.clone()]), 2);
    assert_eq!(measured_blocks(&none, &[two]), 0);
    assert_eq!(measured_blocks(&found, &[]), 0);
}

/// How often any of 8 settings under 2 loads is called better or worse, of 400 trials of `rounds` rounds. The logarithm
/// of a figure differs by 0.15 from cell to cell, and by 0.4 from round to round.
fn called_different(rounds: u64, times: f64) -> [u32; 2] {
    let mut random = Random::new(11);
    let mut called = [0, 0];
    for _ in 0..400 {
        let drift: Vec<f64> = (0..rounds).map(|_| 0.4 * normal(&mut random)).collect();
        let mut of = |name: &str, times: f64, cells: u64| {
            let mut all = Vec::new();
            for (block, drift) in (0..).zip(&drift) {
                for load in ["rest", "busy"].iter().cycle().take(2 * cells as usize) {
                    let log = drift + 0.15 * normal(&mut random);
                    let ns = (50_000.0 * times * log.exp()) as u64;
                    all.push(cell(block, load, Figure::exact_latency(ns), 1.0));
                }
            }
            side(name, all)
        };
        let found = of("found", 1.0, 2);
        let tried: Vec<TrialSide> =
            (0..8).map(|nth| of("tried", if nth == 0 { times } else { 1.0 }, 1)).collect();
        let all = trials(&found, &tried, &P99, 1.0);
        called[0] += u32::from(all[0].effect == TrialEffect::Better);
        called[1] += u32::from(all[1..].iter().any(|one| one.effect != TrialEffect::NotShown));
    }
    called
}

#[test]
fn settings_without_an_effect_are_called_different_in_few_of_many_trials() {
    for rounds in [3, 5, 10] {
        let [_, wrong] = called_different(rounds, 1.0);
        // At most 5 % are allowed: 20 of 400; 36 are three and a half standard deviations more.
        assert!(wrong <= 36, "{wrong} of 400 with {rounds} rounds");
    }
}

#[test]
fn a_setting_that_halves_a_latency_is_found_among_others_that_do_nothing() {
    let [found, wrong] = called_different(5, 0.5);
    assert!(found >= 240 && wrong <= 36, "{found} found, {wrong} wrong, of 400");
}
