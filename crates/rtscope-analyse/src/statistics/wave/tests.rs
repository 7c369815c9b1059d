use proptest::prelude::*;
use rtscope_model::wave::Gap;

use super::*;

/// A capture of rising edges, each followed by a falling one `high_ns` later.
fn capture(rises_ns: &[u64], high_ns: u64) -> Capture {
    let edges: Vec<Edge> = rises_ns
        .iter()
        .flat_map(|&at| [Edge::new(at, true), Edge::new(at + high_ns, false)])
        .collect();
    let end_ns = edges.last().map_or(0, |edge| edge.at_ns());
    Capture {
        line: "memory:x".to_owned(),
        start_ns: 0,
        end_ns,
        resolution_ns: 10,
        starts_high: None,
        made: Some(edges.len() as u64),
        made_in_gaps: None,
        edges,
        gaps: Vec::new(),
        is_full: false,
    }
}

fn steady(count: u64, period_ns: u64) -> Vec<u64> {
    (1..=count).map(|n| n * period_ns).collect()
}

fn close(is: f64, wanted: f64) {
    assert!((is - wanted).abs() <= wanted.abs() * 1e-9 + 1e-6, "{is} is not {wanted}");
}

/// Drops the edges in a gap, as a scope does.
fn blind(mut capture: Capture, start_ns: u64, end_ns: u64) -> Capture {
    let before = capture.edges.len();
    capture.edges.retain(|edge| !(start_ns..=end_ns).contains(&edge.at_ns()));
    let moved = (before - capture.edges.len()) % 2 == 1;
    capture.gaps.push(Gap { start_ns, end_ns, moved });
    capture
}

#[test]
fn a_steady_wave_has_its_frequency_duty_and_no_jitter() {
    let wave = judge(&capture(&steady(1_001, 10_000), 3_000), Some(100_000.0));
    assert_eq!(wave.refused, None);
    close(wave.frequency_hz.expect("resolved"), 100_000.0);
    close(wave.error_ppm.expect("wanted"), 0.0);
    close(wave.duty.expect("periods"), 0.3);
    let period = wave.period.expect("periods");
    assert_eq!((period.ns_min, period.ns_median, period.ns_max), (10_000, 10_000, 10_000));
    close(period.jitter_ns_rms, 0.0);
    assert_eq!(period.cycle_to_cycle_ns_max, Some(0));
    assert_eq!(period.histogram, [(10_000, 1_000)]);
    assert_eq!((wave.missing_edges, wave.extra_edges, wave.glitches), (0, 0, 0));
    // One stretch of 10 ms between two edges of +-10 ns: 2 * 10 * sqrt(2 / 3) ns.
    close(wave.uncertainty_ppm.expect("resolved"), 20.0 * (2.0_f64 / 3.0).sqrt() / 1e7 * 1e6);
    let phase = wave.phase.expect("edges");
    close(phase.period_ns, 10_000.0);
    close(phase.tie_ns_peak_to_peak, 0.0);
}

#[test]
fn alternating_jitter_comes_out_exactly() {
    // Every other edge is 60 ns late: periods of 10,060 and 9,940 ns in turn.
    let rises: Vec<u64> = (1..=2_001).map(|n| n * 10_000 + (n % 2) * 60).collect();
    let wave = judge(&capture(&rises, 5_000), None);
    let period = wave.period.expect("periods");
    close(period.ns_mean, 10_000.0);
    close(period.jitter_ns_rms, 60.0);
    close(period.cycle_to_cycle_ns_rms.expect("pairs"), 120.0);
    assert_eq!(period.cycle_to_cycle_ns_max, Some(120));
    assert_eq!(period.histogram.iter().map(|bin| bin.1).collect::<Vec<_>>(), [1_000, 1_000]);
    let phase = wave.phase.expect("edges");
    close(phase.tie_ns_peak_to_peak, 60.0);
    // Phase alternates between +30 and -30: a second difference is 120 at odd m and 0 at even.
    let first = phase.allan[0];
    assert!((first.deviation - 120.0 / (2.0_f64.sqrt() * 10_000.0)).abs() < 1e-9, "{first:?}");
    assert!(phase.allan[1].deviation < 1e-9);
}

#[test]
fn a_drift_is_the_allan_deviation_of_its_theory() {
    // Each period is 2 ns longer than the last: x(n) = n^2 ns, whose second difference over m is 2 m^2.
    let rises: Vec<u64> = (0..1_000).map(|n| n * 100_000 + n * n).collect();
    let wave = judge(&capture(&rises, 50_000), None);
    let phase = wave.phase.expect("edges");
    for (octave, allan) in phase.allan.iter().enumerate() {
        let m = (1_u64 << octave) as f64;
        let theory = 2.0 * m * m / (2.0_f64.sqrt() * m * phase.period_ns);
        assert!((allan.deviation / theory - 1.0).abs() < 1e-6, "{octave}: {allan:?}");
        assert_eq!(allan.terms, 1_000 - 2 * (1 << octave));
    }
    assert!(phase.allan.len() >= 8);
    let period = wave.period.expect("periods");
    assert_eq!((period.ns_max - period.ns_min, period.cycle_to_cycle_ns_max), (2 * 998, Some(2)));
}

#[test]
fn a_gap_takes_its_edges_away_and_nothing_else() {
    let whole = capture(&steady(1_001, 10_000), 4_000);
    // From 2,000,500 to 3,000,500 ns: 100 rising and 100 falling edges are hidden.
    let wave = judge(&blind(whole, 2_000_500, 3_000_500), Some(100_000.0));
    assert_eq!((wave.edges, wave.lost), (2_002 - 200, Some(200)));
    assert_eq!((wave.blind_ns, wave.gaps), (1_000_000, 1));
    assert_eq!(wave.periods, 199 + 700);
    close(wave.frequency_hz.expect("resolved"), 100_000.0);
    close(wave.duty.expect("periods"), 0.4);
    assert_eq!(wave.missing_edges, 0);
    // Two stretches instead of one: a larger uncertainty, over less time.
    close(wave.uncertainty_ppm.expect("resolved"), 20.0 * (4.0_f64 / 3.0).sqrt() / 8.99e6 * 1e6);
    // Numbers go on across the gap, without inventing what was in it.
    let phase = wave.phase.expect("edges");
    assert_eq!(phase.edges, 901);
    close(phase.tie_ns_peak_to_peak, 0.0);
}

#[test]
fn a_missing_edge_pair_is_told_without_a_gap() {
    let mut rises = steady(1_001, 10_000);
    rises.remove(500);
    let wave = judge(&capture(&rises, 5_000), None);
    assert_eq!((wave.missing_edges, wave.extra_edges), (2, 0));
    assert_eq!(wave.period.expect("periods").ns_max, 20_000);
    close(wave.phase.expect("edges").tie_ns_peak_to_peak, 0.0);
}

#[test]
fn a_wave_at_half_the_wanted_frequency_lacks_half_of_its_edges() {
    let wave = judge(&capture(&steady(101, 20_000), 10_000), Some(100_000.0));
    close(wave.frequency_hz.expect("resolved"), 50_000.0);
    close(wave.error_ppm.expect("wanted"), -500_000.0);
    assert_eq!(wave.missing_edges, 200);
}

#[test]
fn the_line_s_count_is_compared_outside_the_gaps() {
    // 6 edges more in a gap: outside it the count agrees, whatever the gap hid.
    let mut seen = capture(&steady(1_001, 10_000), 5_000);
    let edges = seen.edges.len() as u64;
    assert_eq!(judge(&seen, None).counted_hz, None, "what was made in gaps isn't known");
    (seen.made, seen.made_in_gaps) = (Some(edges + 6), Some(6));
    seen.gaps = vec![Gap { start_ns: 500_100, end_ns: 501_100, moved: false }];
    let wave = judge(&seen, None);
    assert_eq!(wave.counted_hz.expect("counted"), wave.frequency_hz.expect("resolved"));
    // One edge that was made outside and not seen is seen in the figure.
    seen.made = Some(edges + 7);
    let wave = judge(&seen, None);
    let ratio = wave.counted_hz.expect("counted") / wave.frequency_hz.expect("resolved");
    close(ratio, (edges + 1) as f64 / edges as f64);
    seen.made = None;
    assert_eq!(judge(&seen, None).counted_hz, None, "the line doesn't count");
}

#[test]
fn glitches_are_counted_and_left_out_of_the_periods() {
    let mut whole = capture(&steady(1_001, 10_000), 5_000);
    // A short high pulse in a low phase, and a short low pulse in a high phase.
    for (at_ns, rises) in [(107_000, true), (107_200, false), (202_000, false), (202_100, true)] {
        whole.edges.push(Edge::new(at_ns, rises));
    }
    whole.edges.sort_unstable();
    whole.made = Some(whole.edges.len() as u64);
    let wave = judge(&whole, None);
    assert_eq!((wave.glitches, wave.extra_edges, wave.missing_edges), (2, 4, 0));
    close(wave.frequency_hz.expect("resolved"), 100_000.0);
    assert_eq!(wave.period.expect("periods").histogram, [(10_000, 1_000)]);
}

#[test]
fn what_cannot_be_resolved_is_refused_and_not_drawn_wrong() {
    let mut fast = capture(&steady(1_001, 100), 50);
    fast.resolution_ns = 30;
    let wave = judge(&fast, None);
    assert_eq!((wave.frequency_hz, wave.uncertainty_ppm), (None, None));
    assert!(wave.refused.expect("refused").contains("can't be resolved"));
    // Edges that the line's program made, and that no gap explains.
    let mut aliased = capture(&steady(101, 10_000), 5_000);
    aliased.made = Some(2_000);
    aliased.resolution_ns = 300;
    assert!(judge(&aliased, None).refused.expect("refused").contains("2,000 edges"));
    assert_eq!(judge(&aliased, None).refusal, Some(FrequencyRefusal::TooFast));
    let silent = judge(&capture(&[], 0), None);
    assert_eq!(silent.refusal, Some(FrequencyRefusal::Silent));
    assert!(silent.refused.expect("refused").contains("no edge"));
    assert!(judge(&capture(&[5], 5), None).refused.expect("refused").contains("no whole period"));
}

#[test]
fn a_blind_scope_is_told_from_a_wave_that_is_too_fast() {
    // Half of the edges fell into gaps that take a tenth of the time: no pulse is too short.
    let mut hidden = capture(&steady(101, 10_000), 5_000);
    hidden.made = Some(404);
    hidden.gaps = vec![Gap { start_ns: 500_100, end_ns: 501_100, moved: false }; 1];
    let wave = judge(&hidden, None);
    assert_eq!(wave.refusal, Some(FrequencyRefusal::Blind));
    assert!(wave.refused.expect("said").contains("202 of 404"));
    // The count says that they were not in the gaps: then there are pulses that no look can see.
    hidden.made_in_gaps = Some(2);
    assert_eq!(judge(&hidden, None).refusal, Some(FrequencyRefusal::TooFast));
    // Nothing but gaps.
    let mut dark = capture(&[], 0);
    dark.end_ns = 1_000_000;
    dark.gaps = vec![Gap { start_ns: 0, end_ns: 990_000, moved: true }];
    assert_eq!(judge(&dark, None).refusal, Some(FrequencyRefusal::Blind));
    assert_eq!(judge(&capture(&[5], 5), None).refusal, Some(FrequencyRefusal::Short));
}

#[test]
fn an_edge_far_from_its_place_is_still_the_next_one_of_its_stretch() {
    let mut edges = steady(20, 1_000);
    edges[7] += 400;
    let (_, run, errors, _) = phase::errors(&[edges]).expect("a run");
    let numbers: Vec<u64> = run.iter().map(|edge| edge.0).collect();
    assert_eq!(numbers, (0..20).collect::<Vec<u64>>());
    assert!(errors[7] > 300.0 && errors[6].abs() < 50.0, "{errors:?}");
}

#[test]
fn few_deviations_and_no_period_have_no_spectrum() {
    let deviation =
        |number| spectrum::Deviation { number, at_ns: number as f64 * 1e6, tie_ns: 1.0 };
    let deviations = |count: u64| (0..count).map(deviation).collect::<Vec<_>>();
    assert!(spectrum::spectrum(&deviations(3), 1e6).is_empty());
    assert!(spectrum::spectrum(&deviations(500), 0.0).is_empty());
    assert!(!spectrum::spectrum(&deviations(500), 1e6).is_empty());
}

#[test]
fn a_rhythm_of_the_lateness_is_a_line_of_its_frequency_and_amplitude() {
    // 100 ns of sine with a 16th of the wave's 100 kHz; some edges are hidden.
    let sine = |n: u64| 100.0 * (std::f64::consts::TAU * n as f64 / 16.0).sin();
    let rises: Vec<u64> =
        (1..=1_024).map(|n| (n as f64 * 10_000.0 + sine(n)).round() as u64).collect();
    for hidden in [false, true] {
        let mut whole = capture(&rises, 5_000);
        if hidden {
            whole = blind(whole, 2_002_500, 2_102_500);
        }
        let (deviations, period_ns) = spectrum::deviations(&whole).expect("edges");
        assert!((period_ns - 10_000.0).abs() < 0.1, "{period_ns}");
        assert!((deviations[3].at_ns - rises[3] as f64).abs() < 1e-6);
        let lines = spectrum::spectrum(&deviations, period_ns);
        let top = lines.iter().max_by(|a, b| a.amplitude_ns.total_cmp(&b.amplitude_ns));
        let top = top.expect("a line");
        assert!((top.hz / 6_250.0 - 1.0).abs() < 1e-3, "{top:?}");
        assert!((top.amplitude_ns - 100.0).abs() < 2.0, "{top:?}");
        assert!(lines.iter().all(|l| (l.hz - 6_250.0).abs() < 500.0 || l.amplitude_ns < 5.0));
    }
}

#[test]
fn a_hole_that_leaves_doubt_begins_a_new_run() {
    // After the gap the wave goes on 4,000 ns later than its clock: no number is beyond doubt.
    let mut rises = steady(100, 10_000);
    rises.extend((0..50).map(|n| 2_004_000 + n * 10_000));
    let wave = judge(&blind(capture(&rises, 5_000), 1_005_500, 2_000_000), None);
    let phase = wave.phase.expect("edges");
    assert_eq!(phase.edges, 100);
    close(phase.tie_ns_peak_to_peak, 0.0);
}

#[test]
fn a_late_edge_that_leaves_doubt_is_left_out_of_the_numbers() {
    // Two edges are missing, and the one after them is 4,500 ns late: whose it is can't be told. The clock is
    // that of all others.
    let mut rises = steady(1_001, 10_000);
    rises.drain(500..502);
    rises[500] += 4_500;
    let phase = judge(&capture(&rises, 1_000), None).phase.expect("edges");
    assert_eq!(phase.edges, 998);
    close(phase.period_ns, 10_000.0);
    close(phase.tie_ns_peak_to_peak, 0.0);
}

#[test]
fn a_late_edge_after_a_gap_does_not_shift_the_numbers_after_it() {
    // The first edge that is seen after the gap is so late that it could be an early next one.
    let mut rises = steady(1_001, 10_000);
    rises[600] += 7_700;
    let phase = judge(&blind(capture(&rises, 1_000), 5_500_000, 6_012_000), None).phase;
    let phase = phase.expect("edges");
    assert!((phase.period_ns - 10_000.0).abs() < 0.1, "{}", phase.period_ns);
    // It is taken for the next one, and the next one left out.
    assert!((phase.tie_ns_peak_to_peak - 2_300.0).abs() < 2.0, "{}", phase.tie_ns_peak_to_peak);
}

#[test]
fn a_slow_look_beside_long_pulses_keeps_its_edge_and_costs_resolution() {
    let mut whole = capture(&steady(1_001, 10_000), 5_000);
    // The looks at two edges took 300 ns, another of 400 ns saw nothing, and one of 2,000 ns is a gap.
    let slow = |at_ns: u64, before_ns: u64, after_ns: u64, moved| Gap {
        start_ns: at_ns - before_ns,
        end_ns: at_ns + after_ns,
        moved,
    };
    whole.gaps = vec![
        slow(500_000, 150, 150, true),
        slow(705_000, 100, 200, true),
        slow(902_000, 200, 200, false),
        slow(5_000_000, 1_000, 1_000, true),
    ];
    whole.edges.retain(|edge| ![500_000, 705_000, 5_000_000].contains(&edge.at_ns()));
    let wave = judge(&whole, None);
    assert_eq!((wave.edges, wave.lost), (2_001, Some(1)));
    assert_eq!((wave.gaps, wave.blind_ns), (1, 2_000));
    assert_eq!(wave.resolution_ns, 150 + 10);
    // The second edge lies 50 ns beside the middle of its look; it is a falling one.
    let period = wave.period.expect("periods");
    assert_eq!((period.ns_min, period.ns_max), (10_000, 10_000));
    close(wave.frequency_hz.expect("resolved"), 100_000.0);
    assert_eq!((wave.missing_edges, wave.extra_edges), (0, 0));
}

/// Each look at a word that another CPU has just written is slow: not one edge is seen outside of them.
#[test]
fn a_wave_of_which_every_edge_lies_in_a_slow_look_is_seen() {
    // Low for 3 us of each 10 us, and the capture begins in the middle of a high pulse.
    let falls = (1..=1_000).map(|n: u64| (n * 10_000, false));
    let rises = (1..=1_000).map(|n: u64| (n * 10_000 + 3_000, true));
    let mut changes: Vec<(u64, bool)> = falls.chain(rises).collect();
    changes.sort_unstable();
    let gap =
        |&(at_ns, _): &(u64, bool)| Gap { start_ns: at_ns - 150, end_ns: at_ns + 150, moved: true };
    let hidden = Capture {
        starts_high: Some(true),
        edges: Vec::new(),
        gaps: changes.iter().map(gap).collect(),
        end_ns: 10_010_000,
        made: Some(2_000),
        ..capture(&[], 0)
    };
    let wave = judge(&hidden, Some(100_000.0));
    assert_eq!((wave.edges, wave.lost, wave.gaps), (2_000, Some(0), 0));
    close(wave.frequency_hz.expect("resolved"), 100_000.0);
    close(wave.duty.expect("pulses"), 0.7);
    let seen: Vec<(u64, bool)> =
        admitted(&hidden).edges.iter().map(|edge| (edge.at_ns(), edge.rises())).collect();
    assert_eq!(seen, changes);
}

/// Two changes before the first edge that was seen, and a gap whose change isn't known to the nanosecond.
#[test]
fn slow_looks_keep_the_direction_of_their_edges_across_gaps() {
    let mut whole = capture(&steady(101, 10_000), 5_000);
    let gap = |at_ns: u64, half_ns: u64| Gap {
        start_ns: at_ns - half_ns,
        end_ns: at_ns + half_ns,
        moved: true,
    };
    whole.gaps = vec![gap(10_000, 150), gap(15_000, 150), gap(500_000, 2_000), gap(505_000, 150)];
    let changes: Vec<(u64, bool)> =
        whole.edges.iter().map(|edge| (edge.at_ns(), edge.rises())).collect();
    whole.edges.retain(|edge| ![10_000, 15_000, 500_000, 505_000].contains(&edge.at_ns()));
    let seen: Vec<(u64, bool)> =
        admitted(&whole).edges.iter().map(|edge| (edge.at_ns(), edge.rises())).collect();
    let expected: Vec<(u64, bool)> =
        changes.into_iter().filter(|(at_ns, _)| *at_ns != 500_000).collect();
    assert_eq!(seen, expected);
}

proptest! {
    #[test]
    fn gaps_anywhere_never_change_the_frequency_of_a_steady_wave(
        period in 1_000_u64..100_000,
        cuts in prop::collection::vec((0_u64..10_000_000, 10_000_u64..300_000), 0..8),
    ) {
        let mut capture = capture(&steady(10_000_000 / period + 20, period), period / 2);
        let mut cuts = cuts;
        cuts.sort_unstable();
        let mut end_ns = 0;
        for (start_ns, length_ns) in cuts {
            if start_ns > end_ns {
                capture = blind(capture, start_ns, start_ns + length_ns);
                end_ns = start_ns + length_ns;
            }
        }
        let seen = capture.edges.len() as u64;
        let wave = judge(&capture, None);
        prop_assert_eq!(wave.edges, seen);
        prop_assert_eq!((wave.missing_edges, wave.extra_edges), (0, 0));
        if let Some(frequency_hz) = wave.frequency_hz {
            prop_assert!((frequency_hz * period as f64 / 1e9 - 1.0).abs() < 1e-12);
        }
    }
}
