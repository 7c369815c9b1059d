use rtscope_model::histogram::Unplaced;

use super::*;
use crate::statistics::random::Random;

fn shares(counts: &[u64]) -> Vec<Share> {
    counts.iter().map(|&beyond| Share { of: 1_000, beyond }).collect()
}

fn slice(thread: u32, start_ms: u64, length_ms: u64, late: u64, omitted: u64) -> Slice {
    let all = length_ms - omitted;
    Slice {
        thread,
        scope: rtscope_model::slice::Scope::Cell(0),
        start_ns: start_ms * 1_000_000,
        end_ns: (start_ms + length_ms) * 1_000_000,
        planned: length_ms,
        recorded: all,
        missed: omitted,
        early: 0,
        migrations: 0,
        min_ns: 5_000,
        max_ns: 90_000,
        max_at_ns: 0,
        max_cpu: 0,
        sum_ns: 0,
        bins: vec![(5, all - late), (90, late)],
        unplaced: Unplaced::default(),
        omitted: vec![(70, omitted)],
        omitted_extent: rtscope_model::slice::Extent::default(),
        frames: None,
    }
}

#[test]
fn independent_wake_ups_have_a_design_effect_near_one() {
    let mut random = Random::new(1);
    let counts: Vec<u64> =
        (0..500).map(|_| (0..1_000).filter(|_| random.share() < 0.02).count() as u64).collect();
    let found = estimate(&shares(&counts), 1_000_000_000).expect("long enough");
    assert!(found.design_effect < 2.0, "{found:?}");
}

#[test]
fn bursts_count_as_one_event_each() {
    // 50 late wake-ups at once, in every tenth second or so.
    let mut random = Random::new(2);
    let counts: Vec<u64> = (0..600).map(|_| if random.share() < 0.1 { 50 } else { 0 }).collect();
    let found = estimate(&shares(&counts), 1_000_000_000).expect("long enough");
    assert!((30.0..100.0).contains(&found.design_effect), "{found:?}");
    assert!((found.effective * found.design_effect - 600_000.0).abs() < 1.0, "{found:?}");
}

#[test]
fn threads_are_summed_and_the_order_does_not_matter() {
    let late = |second: u64| if second.is_multiple_of(7) { 30 } else { 0 };
    let slices: Vec<Slice> = (0..4u32)
        .flat_map(|thread| {
            (0..40).map(move |second| slice(thread, second * 1_000, 1_001, late(second), 3))
        })
        .collect();
    let fed = |slices: &mut dyn Iterator<Item = &Slice>| {
        let mut blocks = Blocks::new(Layout::default());
        slices.for_each(|slice| blocks.add(slice));
        blocks
    };
    let (one, other) = (fed(&mut slices.iter()), fed(&mut slices.iter().rev()));
    assert_eq!(one.block_ns(), 1_000_000_000);
    assert_eq!(one.shares(50_000, false), other.shares(50_000, false));
    assert_eq!(one.shares(50_000, false)[7], Share { of: 4 * 998, beyond: 120 });
    assert_eq!(one.shares(50_000, true)[7], Share { of: 4 * 1_001, beyond: 132 });
}

/// The late ones are in the bucket from 90 us on: whether they reach 90.5 us isn't known, so they count.
#[test]
fn a_limit_inside_a_bucket_counts_the_whole_bucket() {
    let mut blocks = Blocks::new(Layout::default());
    (0..40).for_each(|second| blocks.add(&slice(0, second * 1_000, 1_000, 30, 0)));
    let beyond = |limit_ns: u64| blocks.shares(limit_ns, false)[7].beyond;
    assert_eq!([90_000, 90_999, 94_000].map(beyond), [30, 30, 0]);
}

#[test]
fn a_slice_belongs_to_the_block_that_holds_its_middle() {
    let mut blocks = Blocks::new(Layout::default());
    (0..3).for_each(|second| blocks.add(&slice(0, second * 1_000, 1_000, 0, 0)));
    // From 0.6 s to 1.6 s, and from 1.4 s to 2.4 s: both lie in the second block for the most part.
    [600, 1_400].iter().for_each(|start_ms| blocks.add(&slice(1, *start_ms, 1_000, 0, 0)));
    let counts: Vec<u64> = blocks.shares(50_000, false).iter().map(|share| share.of).collect();
    assert_eq!(counts, [1_000, 3_000, 1_000]);
}

#[test]
fn memory_is_bounded_and_long_slices_fit() {
    let mut blocks = Blocks::new(Layout::default());
    (0..5_000).for_each(|second| blocks.add(&slice(0, second * 1_000, 1_000, 1, 0)));
    assert_eq!(blocks.block_ns(), 8_000_000_000);
    assert!(blocks.shares(50_000, false).len() <= BLOCKS_MAX);
    blocks.add(&slice(1, 0, 60_000, 10, 0));
    assert_eq!(blocks.block_ns(), 64_000_000_000);
    let shares = blocks.shares(50_000, false);
    let (of, beyond) = shares.iter().fold((0, 0), |sum, one| (sum.0 + one.of, sum.1 + one.beyond));
    assert_eq!((of, beyond), (5_060_000, 5_010));
}

#[test]
fn spells_as_long_as_the_run_are_refused() {
    // Twelve seconds out of thirty are bad, all in a row.
    let counts: Vec<u64> = (0..30).map(|n| if (9..21).contains(&n) { 100 } else { 0 }).collect();
    assert_eq!(estimate(&shares(&counts), 1_000_000_000), Err(IntervalRefusal::Slow));
    // Many short ones in a long run are not.
    let counts: Vec<u64> = (0..600).map(|n| if n % 37 < 5 { 100 } else { 0 }).collect();
    assert!(estimate(&shares(&counts), 1_000_000_000).is_ok());
    // Nor is a strong dependence that has no slow part.
    let mut random = Random::new(1);
    let counts: Vec<u64> = (0..100).map(|_| 900 * random.below(2) as u64).collect();
    assert!(estimate(&shares(&counts), 1_000_000_000).expect("no spell").design_effect > 3.0);
}

#[test]
fn without_order_nothing_is_known() {
    let mut blocks = Blocks::new(Layout::default()).without_order();
    (0..20).for_each(|second| blocks.add(&slice(0, second * 1_000, 1_000, 1, 0)));
    assert_eq!(blocks.measured(50_000), Err(IntervalRefusal::Unordered));
    assert_eq!(blocks.mean_margins_ns(), Err(IntervalRefusal::Unordered));
    assert_eq!(Blocks::new(Layout::default()).measured(50_000), Err(IntervalRefusal::Nothing));
}

#[test]
fn one_stall_is_one_event_however_many_activations_it_swallows() {
    let mut blocks = Blocks::new(Layout::default());
    (0..60).for_each(|second| {
        blocks.add(&slice(0, second * 1_000, 1_000, 0, if second == 31 { 400 } else { 0 }));
    });
    let found = blocks.corrected(50_000).expect("long enough");
    assert!(found.design_effect > 300.0, "{found:?}");
    assert!(blocks.measured(50_000).expect("long enough").design_effect == 1.0);
}

#[test]
fn few_blocks_widen_by_students_t() {
    for (blocks, t) in [(2, 12.706), (4, 4.303), (10, 2.571), (12, 2.447), (1_000, 2.447)] {
        let found = Dependence { design_effect: 2.0, effective: 1.0, block_ns: 1, blocks };
        let expected = 2.0 * (t / NORMAL) * (t / NORMAL);
        assert!((found.inflation() / expected - 1.0).abs() < 1e-3, "{blocks}");
    }
}

#[test]
fn few_disturbances_widen_the_mean_upwards() {
    // Of four disturbances Garwood's interval is 1.09 to 10.24.
    let four = Margins::new(4.0, 2.0);
    assert!((four.below - 2.910).abs() < 1e-3 && (four.above - 6.242).abs() < 1e-3, "{four:?}");
    // Of many it is nearly normal. One is the least, and less than half of one is none.
    let many = Margins::new(1e4, 100.0);
    assert!((many.below / 196.0 - 1.0).abs() < 0.02, "{many:?}");
    assert!((many.above / 196.0 - 1.0).abs() < 0.02, "{many:?}");
    assert_eq!(Margins::new(2.0, 3.0), Margins::new(3.0, 3.0));
    assert_eq!(Margins::new(1.0, 3.0), Margins { below: 3.0 * NORMAL, above: 3.0 * NORMAL });
    assert_eq!(Margins::new(0.0, 0.0), Margins { below: 0.0, above: 0.0 });
}

#[test]
fn too_few_blocks_are_refused_with_what_it_takes() {
    let refused = estimate(&shares(&[3]), 1_000_000_000).expect_err("too short");
    assert_eq!(
        refused.to_string(),
        "only a phase of at least 2 s shows whether late wake-ups come in clusters"
    );
}

/// Late wake-ups of one delay: the largest latency of their bucket is in another class than their bucket, which nothing
/// reaches.
#[test]
fn a_burst_in_one_bucket_is_one_event_for_each_quantile() {
    let mut blocks = Blocks::new(Layout::default());
    (0..120).for_each(|second| {
        let late = if second == 60 { 100 } else { 0 };
        blocks.add(&Slice {
            bins: vec![(6, 1_000 - late), (50, late)],
            ..slice(0, second * 1_000, 1_000, 0, 0)
        });
    });
    assert_ne!(CLASSES.index(50_000), CLASSES.index(50_999));
    for beyond in [1e-2, 1e-3, 1e-4, 1e-5] {
        let found = blocks.at_quantile(50_999, beyond, false).expect("long enough");
        assert!(found.design_effect > 80.0, "{beyond}: {found:?}");
    }
}

#[test]
fn few_late_wake_ups_are_judged_by_the_clusters_of_more() {
    // A burst of 60 at 50 us in every tenth second; two of them have one wake-up at 90 us each.
    let mut blocks = Blocks::new(Layout::default());
    let mut random = Random::new(3);
    (0..300).for_each(|second| {
        let late = if random.share() < 0.1 { 60 } else { 0 };
        let worst = u64::from(second == 100 || second == 200);
        blocks.add(&Slice {
            bins: vec![(6, 1_000 - late - worst), (50, late), (90, worst)],
            ..slice(0, second * 1_000, 1_000, 0, 0)
        });
    });
    let alone = blocks.measured(90_000).expect("long enough");
    assert!(alone.design_effect < 3.0, "{alone:?}");
    let wider = blocks.measured_with_wider(90_000).expect("long enough");
    assert!(wider.design_effect > 20.0, "{wider:?}");
    // Those at 50 us and more are known by themselves, and nothing is known of what nobody reached.
    assert_eq!(blocks.measured_with_wider(50_000), blocks.measured(50_000));
    assert_eq!(blocks.measured_with_wider(900_000), blocks.measured(900_000));
}

/// By hand: one tenth has half the latency of the others.
#[test]
fn an_excess_is_what_the_mean_has_more_than_the_quietest_tenth() {
    let mut blocks = vec![(2.0, 20.0); 10];
    blocks[3] = (2.0, 10.0);
    assert!((excess(&blocks, 9.5) - 4.5).abs() < 1e-12);
    assert_eq!(excess(&[(2.0, 20.0); 20], 10.0), 0.0);
}

#[test]
fn the_share_of_one_slow_cosine_of_two_follows_the_arc_sine() {
    let share = (std::f64::consts::FRAC_PI_2 * SLOW_BY_CHANCE).sin().powi(2);
    assert!((slow_share(3) - share).abs() < 1e-9 && share > SLOW.0);
}

/// A pause between two slices makes the blocks longer, and not more.
#[test]
fn blocks_stay_as_few_as_was_asked_for() {
    let mut blocks = Blocks::bounded(Layout::default(), 4);
    for start_ms in [0, 100_000] {
        blocks.add(&slice(0, start_ms, 1_000, 1, 0));
    }
    assert!(blocks.span() <= 4, "{}", blocks.span());
}

/// By hand: all that varies is one slow cosine, 3.1 times what independent wake-ups have in all slow ones. Less what these
/// have, it is more than what varies in all.
#[test]
fn what_varies_slowly_alone_is_refused() {
    let blocks = 20;
    let energy = 3.1 * f64::from(waves_in(blocks));
    let height = (energy / (blocks as f64 / 2.0)).sqrt();
    let cosine =
        |n: usize| height * (std::f64::consts::PI * (n as f64 + 0.5) / blocks as f64).cos();
    let residuals: Vec<f64> = (0..blocks).map(cosine).collect();
    let found = of_residuals(1_000.0, &residuals, blocks as f64, 1);
    assert!(matches!(found, Err(IntervalRefusal::Slow)), "{found:?}");
}

#[test]
fn latencies_without_a_bucket_are_in_a_class_and_blocks_are_counted_from_the_first() {
    let mut blocks = Blocks::new(Layout::default());
    for second in [3, 5] {
        let unplaced = Unplaced { count: 4, from_ns: 1_000_000 };
        blocks.add(&Slice { unplaced, ..slice(0, second * 1_000, 1_000, 0, 0) });
    }
    assert_eq!(blocks.span(), 3);
    let class = CLASSES.index(1_000_000);
    let classes = blocks.blocks.values().map(|block| block.measured.classes.contains(&(class, 4)));
    assert_eq!(classes.collect::<Vec<bool>>(), [true, true]);
}

/// Of six cosines, a mean square has a relative error of 0.58: twice that is noise.
#[test]
fn clusters_are_told_of_beyond_their_noise() {
    let told = |design_effect: f64| {
        let found = Dependence { design_effect, effective: 0.0, block_ns: 1, blocks: 100 };
        found.sentence(2_500)
    };
    assert_eq!(told(2.1), None);
    assert!(told(2.5).expect("told").ends_with("2,500 count as 1,000 independent ones"));
}
