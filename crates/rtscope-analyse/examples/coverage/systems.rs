//! Systems whose wake-ups depend on each other in a known way: 2 % of them are late.

use rtscope_analyse::statistics::{dependence::Blocks, exceedance::Watch, random::Random};
use rtscope_model::{
    histogram::{Histogram, Layout, Unplaced},
    slice::{Extent, Scope, Slice},
};

/// Wake-ups of a thread in a second.
pub(crate) const RATE: u64 = 1_000;

/// Share of the wake-ups that are late.
pub(crate) const LATE: f64 = 0.02;

/// Latency of a wake-up that isn't late.
const ON_TIME_NS: u64 = 5_000;

/// Late wake-ups take longer than this, by an exponential time of the same mean.
pub(crate) const LATE_FROM_NS: f64 = 6_000.0;

const SECOND_NS: u64 = 1_000_000_000;

/// Buckets of 1 ns, so that no bucket's width makes an interval look better.
pub(crate) const LAYOUT: Layout = Layout { unit_ns: 1, exact: 1_000_000 };

/// How late wake-ups come in clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// Each is late by itself.
    Independent,
    /// Fifty in a row.
    Bursts,
    /// One in ten during spells of 8 s, none in the pauses between them: 32 s in the mean.
    Spells,
    /// Each by itself, but on eight threads at once.
    Common,
}

impl System {
    /// All of them.
    pub(crate) const ALL: [System; 4] =
        [System::Independent, System::Bursts, System::Spells, System::Common];

    /// What a table calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            System::Independent => "independent",
            System::Bursts => "bursts of 50",
            System::Spells => "spells of 8 s",
            System::Common => "common cause, 8 threads",
        }
    }

    /// How many threads.
    pub(crate) fn threads(self) -> u32 {
        if self == System::Common { 8 } else { 1 }
    }

    /// The numbers of the late wake-ups of a thread, ascending.
    fn late(self, wakeups: u64, random: &mut Random) -> Vec<u64> {
        let mut late = Vec::new();
        match self {
            System::Independent | System::Common => {
                late.extend(chosen(0..wakeups, LATE, random));
            }
            System::Bursts => {
                let starts = chosen(0..wakeups, LATE / 50.0, random);
                late.extend(starts.flat_map(|start| start..(start + 50).min(wakeups)));
                late.dedup();
            }
            System::Spells => {
                // Long before the run, so that it starts anywhere.
                let mut at = -200.0;
                while at < (wakeups / RATE) as f64 {
                    at += 32.0 * random.exponential();
                    let number =
                        |second: f64| ((second * RATE as f64).max(0.0) as u64).min(wakeups);
                    late.extend(chosen(number(at)..number(at + 8.0), 5.0 * LATE, random));
                    at += 8.0;
                }
            }
        }
        late
    }
}

/// Each number of a range with a chance, by the gaps between those that are chosen.
fn chosen(
    range: std::ops::Range<u64>,
    chance: f64,
    random: &mut Random,
) -> impl Iterator<Item = u64> {
    let gap = move |random: &mut Random| (random.share().ln() / (-chance).ln_1p()) as u64;
    let mut next = range.start + gap(random);
    std::iter::from_fn(move || {
        let found = Some(next).filter(|next| *next < range.end)?;
        next += 1 + gap(random);
        Some(found)
    })
}

/// The latency that a share of all wake-ups exceeds, below that of the late ones.
pub(crate) fn exceeded_by_ns(share: f64) -> f64 {
    LATE_FROM_NS * (1.0 + (LATE / share).ln())
}

/// The share of all wake-ups that exceeds a latency above that of the wake-ups on time.
pub(crate) fn share_above(latency_ns: f64) -> f64 {
    LATE * (1.0 - latency_ns / LATE_FROM_NS).exp()
}

/// The mean latency.
pub(crate) fn mean_ns() -> f64 {
    (1.0 - LATE) * ON_TIME_NS as f64 + LATE * 2.0 * LATE_FROM_NS
}

/// What was measured of a system.
#[derive(Debug)]
pub(crate) struct Run {
    /// All latencies.
    pub(crate) histogram: Histogram,
    /// The same in blocks of time.
    pub(crate) blocks: Blocks,
    /// How long it took.
    pub(crate) watch: Watch,
    /// The slices of each thread, a second each.
    pub(crate) slices: Vec<Slice>,
}

/// Measures a system for so many seconds.
pub(crate) fn run(system: System, seconds: u64, random: &mut Random) -> Run {
    let late = system.late(seconds * RATE, random);
    let latency_ns = |random: &mut Random| LATE_FROM_NS * (1.0 + random.exponential());
    let late: Vec<(u64, u64)> =
        late.into_iter().map(|number| (number / RATE, latency_ns(random) as u64)).collect();
    let watch = Watch {
        exposure_ns: seconds * SECOND_NS * u64::from(system.threads()),
        wall_ns: seconds * SECOND_NS,
        threads: system.threads() as usize,
    };
    let mut run = Run {
        histogram: Histogram::new(LAYOUT),
        blocks: Blocks::new(LAYOUT),
        watch,
        slices: Vec::new(),
    };
    for second in 0..seconds {
        let from = late.partition_point(|one| one.0 < second);
        let to = late.partition_point(|one| one.0 <= second);
        let mut one = Histogram::new(LAYOUT);
        late[from..to].iter().for_each(|&(_, ns)| one.record(ns));
        let on_time = RATE - one.count();
        let sum_ns = u128::from(on_time * ON_TIME_NS);
        one.add(&[(ON_TIME_NS as u32, on_time)], ON_TIME_NS, ON_TIME_NS, sum_ns);
        for thread in 0..system.threads() {
            run.histogram.merge(&one);
            let slice = slice_of(thread, second, &one);
            run.blocks.add(&slice);
            run.slices.push(slice);
        }
    }
    run
}

/// The slice of one second.
pub(crate) fn slice_of(thread: u32, second: u64, one: &Histogram) -> Slice {
    Slice {
        thread,
        scope: Scope::Cell(0),
        start_ns: second * SECOND_NS,
        end_ns: (second + 1) * SECOND_NS,
        planned: one.count(),
        recorded: one.count(),
        missed: 0,
        early: 0,
        migrations: 0,
        min_ns: one.min_ns().unwrap_or(0),
        max_ns: one.max_ns().unwrap_or(0),
        max_at_ns: 0,
        max_cpu: thread,
        sum_ns: u64::try_from(one.sum_ns()).unwrap_or(u64::MAX),
        bins: one.bins(),
        unplaced: Unplaced::default(),
        omitted: Vec::new(),
        omitted_extent: Extent::default(),
    }
}
