//! The real loop on a simulated clock: what it counts is known exactly.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use rtscope_model::{
    histogram::Layout,
    plan::{ClockName, Overrun, Sleep},
    schedule::{Placement, Policy},
    slice::{Scope, Slice},
};
use rtscope_sys::{clock::Clock, sched};

use super::*;

const INTERVAL_NS: u64 = 1_000_000;
const LAYOUT: Layout = Layout { unit_ns: 1, exact: 1_000 };

/// What happens at a wake-up: how late it is, and what the control thread does meanwhile.
#[derive(Clone, Debug)]
struct Step {
    latency_ns: i64,
    scope: u32,
    drain: bool,
}

/// A clock that wakes its sleeper as late as the script says, then ends the loop.
struct Script<'a> {
    now_ns: Cell<u64>,
    steps: RefCell<VecDeque<Step>>,
    shared: &'a Shared,
    slots: RefCell<Slots>,
    slices: RefCell<Vec<Slice>>,
    grid_ns: Option<u64>,
}

impl Script<'_> {
    fn wake_at(&self, expiry_ns: u64) {
        let Some(step) = self.steps.borrow_mut().pop_front() else {
            self.shared.scope.store(STOP, Relaxed);
            return;
        };
        let due_ns = expiry_ns.saturating_add_signed(step.latency_ns);
        // A sleeper whose expiry has passed is not put to sleep; an early wake-up is a clock step.
        self.now_ns.set(if step.latency_ns < 0 { due_ns } else { due_ns.max(self.now_ns.get()) });
        self.shared.scope.store(step.scope, Relaxed);
        if step.drain {
            self.drain();
        }
    }

    fn drain(&self) {
        let mut slices = self.slices.borrow_mut();
        self.slots.borrow_mut().drain(0, 0, self.grid_ns, |slice| slices.push(slice));
    }
}

impl Clock for Script<'_> {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn sleep_until_ns(&self, instant_ns: u64) {
        self.wake_at(instant_ns);
    }

    fn sleep_for_ns(&self, duration_ns: u64) {
        self.wake_at(self.now_ns.get() + duration_ns);
    }

    fn cpu(&self) -> u32 {
        0
    }
}

struct Ran {
    slices: Vec<Slice>,
    tally: LoopTally,
    live: LiveFigures,
}

impl Ran {
    fn total(&self, of: impl Fn(&Slice) -> u64) -> u64 {
        self.slices.iter().map(of).sum()
    }

    fn in_cell(&self, cell: u32) -> u64 {
        let slices = self.slices.iter().filter(|slice| slice.scope == Scope::Cell(cell));
        slices.map(|slice| slice.recorded).sum()
    }
}

fn beat() -> Beat {
    Beat {
        first_ns: 10 * INTERVAL_NS,
        interval_ns: INTERVAL_NS,
        sleep: Sleep::Absolute,
        overrun: Overrun::Skip,
        break_above_ns: u64::MAX,
        raw_from_ns: 0,
    }
}

fn play(beat: &Beat, shared: &Shared, steps: impl IntoIterator<Item = Step>) -> Ran {
    play_raw(beat, shared, steps, None)
}

fn play_raw(
    beat: &Beat,
    shared: &Shared,
    steps: impl IntoIterator<Item = Step>,
    ring: Option<&mut rtrb::Producer<RawSample>>,
) -> Ran {
    let (mut ours, slots) = exchange(LAYOUT, 100 * INTERVAL_NS);
    let grid_ns = (beat.sleep == Sleep::Absolute).then_some(beat.interval_ns);
    let clock = Script {
        now_ns: Cell::new(0),
        steps: RefCell::new(steps.into_iter().collect()),
        shared,
        slots: RefCell::new(slots),
        slices: RefCell::default(),
        grid_ns,
    };
    let live = LiveFigures::default();
    let tally = run(&clock, beat, shared, &live, &mut ours, ring);
    clock.drain();
    let mut slices = clock.slices.into_inner();
    slices.extend(ours.rest(0, 0, grid_ns));
    Ran { slices, tally, live }
}

fn steps(latencies_ns: &[i64]) -> Vec<Step> {
    let step = |&latency_ns: &i64| Step { latency_ns, scope: 0, drain: false };
    latencies_ns.iter().map(step).collect()
}

/// 10 wake-ups at 10 us, one that is `stall_ns` late, 10 more at 10 us.
fn with_stall(stall_ns: i64) -> Vec<Step> {
    let mut latencies_ns = vec![10_000; 10];
    latencies_ns.push(stall_ns);
    latencies_ns.extend([10_000; 10]);
    steps(&latencies_ns)
}

#[test]
fn a_stall_of_five_periods_is_counted_exactly() {
    let ran = play(&beat(), &Shared::default(), with_stall(5_300_000));
    let [slice] = &ran.slices[..] else { panic!("{:?}", ran.slices) };
    assert_eq!((slice.planned, slice.recorded, slice.missed), (26, 21, 5));
    assert_eq!(slice.max_ns, 5_300_000);
    assert_eq!(slice.max_at_ns, 20 * INTERVAL_NS);
    // What the five would have seen: one interval less each.
    let expected_ns = [300_000, 1_300_000, 2_300_000, 3_300_000, 4_300_000];
    let omitted: Vec<(u32, u64)> = expected_ns.iter().map(|&ns| (LAYOUT.index(ns), 1)).collect();
    assert_eq!(slice.omitted, omitted);
    assert_eq!(slice.omitted_extent.sum_ns, expected_ns.iter().sum::<u64>());
    assert_eq!(slice.omitted_extent.max_ns, 4_300_000);
    assert!(slice.adds_up());
    assert_eq!(ran.live.missed.load(Relaxed), 5);
}

#[test]
fn an_expiry_that_is_met_exactly_is_not_missed() {
    let ran = play(&beat(), &Shared::default(), with_stall(5_000_000));
    assert_eq!((ran.total(|s| s.recorded), ran.total(|s| s.missed)), (21, 4));
}

#[test]
fn replay_runs_every_activation_late() {
    let replay = Beat { overrun: Overrun::Replay, ..beat() };
    let ran = play(&replay, &Shared::default(), with_stall(5_300_000));
    assert_eq!((ran.total(|s| s.recorded), ran.total(|s| s.missed)), (21, 0));
    // The five that follow the stall see what is left of it.
    let late = |slice: &Slice| {
        slice.bins.iter().filter(|b| b.0 >= LAYOUT.index(100_000)).map(|b| b.1).sum()
    };
    assert_eq!(ran.total(late), 6);
    assert!(ran.slices.iter().all(Slice::adds_up));
}

#[test]
fn a_relative_sleep_misses_nothing_by_definition() {
    let relative = Beat { sleep: Sleep::Relative, ..beat() };
    let ran = play(&relative, &Shared::default(), with_stall(5_300_000));
    assert_eq!((ran.total(|s| s.planned), ran.total(|s| s.missed)), (21, 0));
    assert_eq!(ran.slices[0].max_ns, 5_300_000);
}

#[test]
fn an_early_wake_up_is_counted_and_is_no_latency() {
    let ran = play(&beat(), &Shared::default(), steps(&[10_000, -500_000, 10_000]));
    assert_eq!(ran.total(|s| s.early), 1);
    assert_eq!((ran.slices[0].min_ns, ran.slices[0].max_ns), (0, 10_000));
}

#[test]
fn a_cell_takes_as_many_cycles_as_asked() {
    let shared = Shared::default();
    shared.limit.store(7, Relaxed);
    let ran = play(&beat(), &shared, steps(&[10_000; 20]));
    assert_eq!(ran.in_cell(0), 7);
    assert_eq!(ran.total(|s| s.recorded), 20, "the rest is discarded, and counted");
    assert_eq!(shared.full.load(Relaxed), 0);
}

#[test]
fn a_latency_above_the_threshold_breaks_the_run() {
    let shared = Shared::default();
    let strict = Beat { break_above_ns: 50_000, ..beat() };
    let ran = play(&strict, &shared, steps(&[50_000, 50_001, 10_000, 90_000]));
    assert!(shared.broken.load(Relaxed));
    assert_eq!(ran.tally.broke_at, Some((50_001, 11 * INTERVAL_NS)));
    assert_eq!(ran.in_cell(0), 2, "what follows the break is not part of the cell");
}

#[test]
fn a_session_of_one_cell_ends_with_it_and_keeps_its_figures() {
    let shared = Shared { one_cell: true, ..Shared::default() };
    shared.limit.store(3, Relaxed);
    let ran = play(&beat(), &shared, steps(&[10_000, 20_000, 30_000, 990_000, 990_000]));
    assert_eq!((ran.tally.wakeups, ran.in_cell(0)), (3, 3));
    let live = &ran.live;
    let shown = [&live.recorded, &live.now_ns, &live.min_ns, &live.max_ns].map(|f| f.load(Relaxed));
    assert_eq!(shown, [3, 30_000, 10_000, 30_000]);
}

#[test]
fn raw_samples_below_the_limit_are_left_out_and_keep_their_number() {
    let beat = Beat { raw_from_ns: 50_000, ..beat() };
    let (mut ring, mut samples) = rtrb::RingBuffer::new(8);
    let ran = play_raw(
        &beat,
        &Shared::default(),
        steps(&[10_000, 50_000, 49_999, 70_000]),
        Some(&mut ring),
    );
    let kept = std::iter::from_fn(|| samples.pop().ok());
    let kept: Vec<(u64, u64)> = kept.map(|sample| (sample.cycle, sample.latency_ns)).collect();
    assert_eq!(kept, [(1, 50_000), (3, 70_000)]);
    assert_eq!((ran.in_cell(0), ran.tally.raw_lost), (4, 0));
}

#[test]
fn slices_follow_the_clock() {
    let ran = play(&beat(), &Shared::default(), steps(&[10_000; 250]));
    let lengths: Vec<u64> = ran.slices.iter().map(|s| s.planned).collect();
    assert_eq!(lengths, [100, 100, 50]);
    assert!(ran.slices.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns));
}

#[test]
fn the_first_slice_of_a_cell_ends_with_the_running_slice() {
    // Of slices of 100: the cell begins 20 activations after the warm-up.
    let (mut ours, mut slots) = exchange(LAYOUT, 100 * INTERVAL_NS);
    for n in 0..150 {
        let (scope, expiry_ns) = (if n < 20 { DISCARD } else { 0 }, n * INTERVAL_NS);
        let slot = ours.slot(scope, expiry_ns).expect("a slot");
        slot.record(10_000, expiry_ns, 0);
        slot.end_ns = expiry_ns + INTERVAL_NS;
    }
    let mut counts = Vec::new();
    slots.drain(0, 0, Some(INTERVAL_NS), |slice| counts.push(slice.recorded));
    assert_eq!(counts, [20, 80]);
}

#[test]
fn a_control_thread_that_is_held_up_costs_resolution_not_samples() {
    // 3000 activations are 30 slices; nobody empties the slots.
    let ran = play(&beat(), &Shared::default(), steps(&[10_000; 3000]));
    assert_eq!(ran.total(|s| s.recorded), 3000);
    assert!(ran.slices.len() < 30 && ran.slices.iter().all(Slice::adds_up));
}

#[test]
fn activations_without_a_slot_are_counted() {
    let scope_of = |i: u32| i / 2;
    let switching = (0..40).map(|i| Step { latency_ns: 10_000, scope: scope_of(i), drain: false });
    let ran = play(&beat(), &Shared::default(), switching);
    assert!(ran.tally.without_slot > 0);
    assert_eq!(ran.total(|s| s.recorded) + ran.tally.without_slot, 40);
}

#[test]
fn a_clock_that_steps_by_years_does_not_keep_the_loop_busy() {
    let year_ns = 365 * 86_400 * 1_000_000_000;
    let ran = play(&beat(), &Shared::default(), steps(&[10_000, year_ns, 10_000]));
    let missed = ran.total(|s| s.missed);
    assert_eq!(missed, (year_ns as u64 - 1) / INTERVAL_NS);
    let kept = ran.total(|s| s.omitted.iter().map(|b| b.1).sum());
    assert_eq!(kept + ran.tally.omitted_unexpanded, missed);
}

/// The nice value is what every user may change, to a higher one.
#[test]
fn a_thread_s_place_is_read_back_at_its_end() {
    let cpus = sched::affinity(sched::SELF).expect("own CPUs");
    let asked = sched::placement(sched::SELF).expect("own place");
    let asked = Placement { policy: Policy::Other, priority: 0, budget: None, cpus, ..asked };
    let spec = SessionSpec {
        threads: vec![ThreadPlan { thread: 0, asked: asked.clone(), interval_ns: INTERVAL_NS }],
        layout: LAYOUT,
        slice_ns: 1_000 * INTERVAL_NS,
        clock: ClockName::Monotonic,
        beat: Beat { first_ns: 0, ..beat() },
        raw_capacity: 0,
        wake: Wake::ClockNanosleep,
        marker: None,
        one_cell: false,
    };
    let session = Session::park(&spec, 0).expect("threads");
    let (tid, found) = session.placed[0].clone();
    assert_eq!(found, asked);
    session.enter(0, None);
    session.release(session.now_ns());
    let until = Instant::now() + Duration::from_secs(60);
    while session.live()[0].recorded == 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let changed = Placement { nice: 19, ..asked };
    sched::set_policy(tid, &changed).expect("a higher nice value");
    let ended = session.stop(|_| ());
    assert_eq!(ended[0].found, Some(changed));
}

fn scripts() -> impl Strategy<Value = Vec<Step>> {
    let latency_ns = prop_oneof![8 => 0i64..20_000, 2 => 0i64..3_000_000, 1 => 0i64..30_000_000];
    let scope = prop_oneof![5 => Just(0u32), 1 => Just(1), 1 => Just(DISCARD)];
    let step = (latency_ns, scope, proptest::bool::weighted(0.3));
    let step = step.prop_map(|(latency_ns, scope, drain)| Step { latency_ns, scope, drain });
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn nothing_is_lost_whatever_happens(script in scripts(), replay: bool) {
        let overrun = if replay { Overrun::Replay } else { Overrun::Skip };
        let wakeups = script.len() as u64;
        let ran = play(&Beat { overrun, ..beat() }, &Shared::default(), script);
        prop_assert_eq!(ran.tally.wakeups, wakeups);
        // Discarded activations that found no slot are the only ones that may go uncounted.
        prop_assert!(ran.total(|s| s.recorded) + ran.tally.without_slot <= wakeups);
        for slice in &ran.slices {
            prop_assert!(slice.adds_up(), "{:?}", slice);
            let omitted: u64 = slice.omitted.iter().map(|b| b.1).sum();
            prop_assert_eq!(omitted, slice.missed);
        }
        let measured = ran.slices.iter().filter(|s| s.scope != Scope::Discarded);
        let ends: Vec<(u64, u64)> = measured.map(|s| (s.start_ns, s.end_ns)).collect();
        prop_assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "slices overlap");
    }
}
