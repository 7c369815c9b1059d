//! Block bootstrap: what another run might have shown, drawn from the blocks of this one.
//!
//! Latencies that follow each other are not independent; seconds are nearly so. Whole blocks are drawn
//! with replacement (H. R. Künsch, Annals of Statistics 17, 1989), and where a side has three runs or
//! more, whole runs first: then the interval holds the differences from run to run.

use super::sample::{Counts, Sample};
use crate::statistics::random::Random;

/// Drawn pairs of sides.
pub(super) const DRAWS: usize = 400;

/// Runs of a side from which runs are drawn, too.
const RUNS_MIN: usize = 3;

/// Blocks of a side below which nothing is drawn.
const BLOCKS_MIN: usize = 8;

/// The same comparison draws the same numbers.
const SEED: u64 = 0x7274_7363_6f70_6531;

/// Drawn counts of both sides; none when a side has too few blocks.
pub(super) fn draws(a: &Sample, b: &Sample) -> Option<Vec<(Counts, Counts)>> {
    let blocks = |side: &Sample| side.runs.iter().map(Vec::len).sum::<usize>();
    if blocks(a) < BLOCKS_MIN || blocks(b) < BLOCKS_MIN {
        return None;
    }
    let mut random = Random::new(SEED);
    let with_runs = draws_runs(a, b);
    let mut both = || (draw(a, with_runs, &mut random), draw(b, with_runs, &mut random));
    Some((0..DRAWS).map(|_| both()).collect())
}

/// Whether both sides have runs enough to draw from.
pub(super) fn draws_runs(a: &Sample, b: &Sample) -> bool {
    a.runs.len() >= RUNS_MIN && b.runs.len() >= RUNS_MIN
}

fn draw(side: &Sample, with_runs: bool, random: &mut Random) -> Counts {
    let mut sum = vec![0; side.all.len()];
    for n in 0..side.runs.len() {
        let run = &side.runs[if with_runs { random.below(side.runs.len()) } else { n }];
        for _ in 0..run.len() {
            let block = &run[random.below(run.len())];
            sum.iter_mut().zip(block).for_each(|(sum, count)| *sum += count);
        }
    }
    sum
}

/// The middle 95 % of drawn values.
pub(super) fn interval(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    (at(0.025), at(0.975))
}
