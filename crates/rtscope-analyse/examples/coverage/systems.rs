//! Systems whose wake-ups depend on each other in a known way: 1 or 2 % of them are late.

use std::iter::repeat_n;

use rtscope_analyse::statistics::{dependence::Blocks, exceedance::WatchedTime, random::Random};
use rtscope_model::{
    histogram::{Histogram, Layout, Unplaced},
    slice::{Extent, Scope, Slice},
};

/// Wake-ups of a thread in a second.
pub(crate) const RATE: u64 = 1_000;

/// Share of the wake-ups that are late, in most systems.
const LATE: f64 = 0.02;

/// Latency of a wake-up that isn't late.
const ON_TIME_NS: u64 = 5_000;

/// Late wake-ups take longer than this, by an exponential time of the same mean.
pub(crate) const LATE_FROM_NS: f64 = 6_000.0;

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

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
    /// Twenty in a row, 1 % of all.
    ShortBursts,
    /// One in ten during spells of 3 s, none in the pauses between them: 12 s in the mean.
    ShortSpells,
    /// Each by itself, but their rate wanders: its logarithm is a first-order autoregressive process with a
    /// standard deviation of 0.8, which forgets in 5 s.
    Wandering,
    /// Each by itself, but their rate rises and falls by 80 % in a minute.
    Wave,
    /// Two hundred in a row.
    LongBursts,
    /// The same as `Wandering`, but it forgets in 12 s.
    SlowWandering,
}

impl System {
    /// Those that every table has.
    pub(crate) const ALL: [System; 4] =
        [System::Independent, System::Bursts, System::Spells, System::Common];

    /// Those that the rules were chosen with as well.
    pub(crate) const OTHERS: [System; 4] =
        [System::ShortBursts, System::ShortSpells, System::Wandering, System::Wave];

    /// Those that no rule was chosen with.
    pub(crate) const HELD_OUT: [System; 2] = [System::LongBursts, System::SlowWandering];

    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = System> {
        System::ALL.into_iter().chain(System::OTHERS).chain(System::HELD_OUT)
    }

    /// What a table calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            System::Independent => "independent",
            System::Bursts => "bursts of 50",
            System::Spells => "spells of 8 s",
            System::Common => "common cause, 8 threads",
            System::ShortBursts => "bursts of 20",
            System::ShortSpells => "spells of 3 s",
            System::Wandering => "wandering rate, 5 s",
            System::Wave => "wave of 60 s",
            System::LongBursts => "bursts of 200",
            System::SlowWandering => "wandering rate, 12 s",
        }
    }

    pub(crate) fn threads(self) -> u32 {
        if self == System::Common { 8 } else { 1 }
    }

    /// The share of its wake-ups that are late in the long run.
    pub(crate) fn late_share(self) -> f64 {
        if self == System::ShortBursts { LATE / 2.0 } else { LATE }
    }

    /// How many wake-ups one event makes late in a second, and for how many seconds.
    pub(crate) fn event(self) -> (u64, u32) {
        match self {
            System::Bursts => (50, 1),
            System::ShortBursts => (20, 1),
            System::Spells => (10, 8),
            System::ShortSpells => (10, 3),
            System::LongBursts => (200, 1),
            System::Independent
            | System::Common
            | System::Wandering
            | System::SlowWandering
            | System::Wave => (1, 1),
        }
    }

    /// The numbers of the late wake-ups of a thread, ascending, and the share of them that the conditions of
    /// this run make late in the long run: the spells that it met, or the rates that it wandered through.
    fn late(self, wakeups: u64, random: &mut Random) -> (Vec<u64>, f64) {
        match self {
            System::Independent | System::Common => {
                (chosen(0..wakeups, LATE, random).collect(), LATE)
            }
            System::Bursts | System::ShortBursts | System::LongBursts => {
                let (length, _) = self.event();
                let chance = self.late_share() / length as f64;
                let starts = chosen(0..wakeups, chance, random);
                let in_row = |start: u64| start..(start + length).min(wakeups);
                let mut late: Vec<u64> = starts.flat_map(in_row).collect();
                late.dedup();
                (late, self.late_share())
            }
            System::Spells => spells(8.0, wakeups, random),
            System::ShortSpells => spells(3.0, wakeups, random),
            System::Wandering => wandering(5.0, wakeups, random),
            System::SlowWandering => wandering(12.0, wakeups, random),
            System::Wave => {
                let begin = random.share();
                let turn = std::f64::consts::TAU;
                let rate = |second: f64, _: &mut Random| {
                    1.0 + 0.8 * (turn * (begin + second / 60.0)).sin()
                };
                at_rate(rate, wakeups, random)
            }
        }
    }
}

/// One in ten late during spells of so many seconds, none in the pauses: four times as long in the mean.
fn spells(length: f64, wakeups: u64, random: &mut Random) -> (Vec<u64>, f64) {
    let (mut late, mut inside) = (Vec::new(), 0);
    // Long before the run, so that it starts anywhere.
    let mut at = -25.0 * length;
    while at < (wakeups / RATE) as f64 {
        at += 4.0 * length * random.exponential();
        let number = |second: f64| ((second * RATE as f64).max(0.0) as u64).min(wakeups);
        let spell = number(at)..number(at + length);
        inside += spell.end - spell.start;
        late.extend(chosen(spell, 5.0 * LATE, random));
        at += length;
    }
    (late, 5.0 * LATE * inside as f64 / wakeups as f64)
}

/// Late by themselves at a rate that wanders and forgets in so many seconds.
fn wandering(forgets_s: f64, wakeups: u64, random: &mut Random) -> (Vec<u64>, f64) {
    let kept = (-STEP_S / forgets_s).exp();
    let mut log = normal(random);
    let rate = move |_, random: &mut Random| {
        log = kept * log + (1.0 - kept * kept).sqrt() * normal(random);
        (0.8 * log - 0.32).exp()
    };
    at_rate(rate, wakeups, random)
}

/// A rate is constant for so many seconds.
const STEP_S: f64 = 0.05;

/// Late by themselves at a rate that changes, 1 in the mean.
fn at_rate(
    mut rate: impl FnMut(f64, &mut Random) -> f64,
    wakeups: u64,
    random: &mut Random,
) -> (Vec<u64>, f64) {
    let step = (STEP_S * RATE as f64) as u64;
    let (mut late, mut sum) = (Vec::new(), 0.0);
    for from in (0..wakeups).step_by(step as usize) {
        let chance = (LATE * rate(from as f64 / RATE as f64, random)).min(1.0 - f64::EPSILON);
        sum += chance;
        late.extend(chosen(from..from + step, chance, random));
    }
    (late, sum * step as f64 / wakeups as f64)
}

pub(crate) fn normal(random: &mut Random) -> f64 {
    (2.0 * random.exponential()).sqrt() * (std::f64::consts::TAU * random.share()).cos()
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

/// The latency that a share of all wake-ups exceeds, when `late` is the share of late ones.
pub(crate) fn exceeded_by_ns(share: f64, late: f64) -> f64 {
    if late < share { ON_TIME_NS as f64 } else { LATE_FROM_NS * (1.0 + (late / share).ln()) }
}

/// The share of all wake-ups that exceeds a latency above that of the wake-ups on time.
pub(crate) fn share_above(latency_ns: f64, late: f64) -> f64 {
    late * (1.0 - latency_ns / LATE_FROM_NS).exp()
}

pub(crate) fn mean_ns(late: f64) -> f64 {
    (1.0 - late) * ON_TIME_NS as f64 + late * 2.0 * LATE_FROM_NS
}

/// What was measured of a system.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) histogram: Histogram,
    /// The same in blocks of time.
    pub(crate) blocks: Blocks,
    /// How long it took.
    pub(crate) watch: WatchedTime,
    /// The slices of each thread.
    pub(crate) slices: Vec<Slice>,
    /// The share of late wake-ups that the conditions of this run have in the long run.
    pub(crate) late: f64,
}

/// Measures a system for so many seconds, in slices of one.
pub(crate) fn run(system: System, seconds: u64, random: &mut Random) -> Run {
    run_in_slices(system, seconds, 1, random)
}

/// Measures a system for so many seconds, each of so many slices.
pub(crate) fn run_in_slices(
    system: System,
    seconds: u64,
    slices_a_second: u64,
    random: &mut Random,
) -> Run {
    let (late, share) = system.late(seconds * RATE, random);
    let latency_ns = |random: &mut Random| LATE_FROM_NS * (1.0 + random.exponential());
    let wakeups = RATE / slices_a_second;
    let late: Vec<(u64, u64)> =
        late.into_iter().map(|number| (number / wakeups, latency_ns(random) as u64)).collect();
    let wall_ns = seconds * SECOND_NS;
    let watch = WatchedTime::of_threads(repeat_n(wall_ns, system.threads() as usize), wall_ns);
    let mut run = Run {
        histogram: Histogram::new(LAYOUT),
        blocks: Blocks::new(LAYOUT),
        watch,
        slices: Vec::new(),
        late: share,
    };
    for number in 0..seconds * slices_a_second {
        let from = late.partition_point(|one| one.0 < number);
        let to = late.partition_point(|one| one.0 <= number);
        let mut one = Histogram::new(LAYOUT);
        late[from..to].iter().for_each(|&(_, ns)| one.record(ns));
        let on_time = wakeups.saturating_sub(one.count());
        let sum_ns = u128::from(on_time * ON_TIME_NS);
        one.add(&[(ON_TIME_NS as u32, on_time)], ON_TIME_NS, ON_TIME_NS, sum_ns);
        for thread in 0..system.threads() {
            run.histogram.merge(&one);
            let length_ns = SECOND_NS / slices_a_second;
            let slice = Slice {
                start_ns: number * length_ns,
                end_ns: (number + 1) * length_ns,
                ..slice_of(thread, number, &one)
            };
            run.blocks.add(&slice);
            run.slices.push(slice);
        }
    }
    run
}

/// Latencies of a thread in ns, in the order of its wake-ups: all of them, and in slices of a second.
pub(crate) fn recorded(
    all_ns: impl Iterator<Item = u64>,
    per_second: u64,
    layout: Layout,
) -> (Histogram, Blocks) {
    let (mut all, mut blocks) = (Histogram::new(layout), Blocks::new(layout));
    let all_ns: Vec<u64> = all_ns.collect();
    for (second, ns) in (0u64..).zip(all_ns.chunks(per_second as usize)) {
        let mut one = Histogram::new(layout);
        ns.iter().for_each(|&ns| one.record(ns));
        blocks.add(&slice_of(0, second, &one));
        all.merge(&one);
    }
    (all, blocks)
}

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
        frames: None,
    }
}
