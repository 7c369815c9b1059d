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
    slice::{RawSample, Scope, Slice},
};
use rtscope_sys::{clock::Clock, sched};

use super::{cover::Cover, reign::is_cell, *};

mod frames;
mod offset;
mod stall;

const INTERVAL_NS: u64 = 1_000_000;
const LAYOUT: Layout = Layout { unit_ns: 1, exact: 1_000 };

/// What happens at a wake-up: how late it is, and what the control thread does meanwhile.
#[derive(Clone, Debug, Default)]
struct Step {
    latency_ns: i64,
    /// Instants at which a cell begins or, if one runs, ends.
    turns_ns: Vec<u64>,
    /// The same, as a part of the sleep in thousandths.
    turn: Option<u64>,
    /// All ends.
    stop_ns: Option<u64>,
    drain: bool,
}

/// A clock that wakes its sleeper as late as the script says, then ends the loop.
struct Script<'a> {
    now_ns: Cell<u64>,
    steps: RefCell<VecDeque<Step>>,
    shared: &'a Shared,
    slots: RefCell<Slots>,
    cover: RefCell<Cover>,
    cells: RefCell<Vec<u32>>,
    slices: RefCell<Vec<Slice>>,
    grid_ns: Option<u64>,
    /// Signals that end a sleep early, and tell of nothing.
    signals: Cell<u32>,
}

impl Script<'_> {
    fn wake_at(&self, expiry_ns: u64) {
        let before_ns = self.now_ns.get();
        let Some(step) = self.steps.borrow_mut().pop_front() else {
            self.shared.stop(before_ns);
            return;
        };
        let due_ns = expiry_ns.saturating_add_signed(step.latency_ns);
        // A sleeper whose expiry has passed is not put to sleep; an early wake-up is a clock step.
        self.now_ns.set(if step.latency_ns < 0 { due_ns } else { due_ns.max(before_ns) });
        let slept_ns = self.now_ns.get().saturating_sub(before_ns);
        let turn = step.turn.map(|part| before_ns + slept_ns * part / 1_000);
        for at_ns in step.turns_ns.into_iter().chain(turn) {
            self.turn(at_ns);
        }
        if let Some(at_ns) = step.stop_ns {
            self.shared.stop(at_ns);
        }
        if step.drain {
            self.drain();
        }
    }

    fn turn(&self, at_ns: u64) {
        let reign = self.shared.reign();
        if is_cell(reign) {
            return self.shared.end_cell(reign, at_ns);
        }
        let mut cells = self.cells.borrow_mut();
        let next = cells.len() as u32;
        cells.push(next);
        self.shared.enter(at_ns, None);
    }

    fn drain(&self) {
        let (mut slices, mut cover) = (self.slices.borrow_mut(), self.cover.borrow_mut());
        let cells = self.cells.borrow();
        let sampled = SlotOwner { thread: 0, origin_ns: 0, grid_ns: self.grid_ns, cells: &cells };
        self.slots.borrow_mut().drain(&sampled, |taken| {
            cover.add(&sampled, self.shared, taken, |slice| slices.push(slice));
        });
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

    fn doze_until_ns(&self, instant_ns: u64) -> bool {
        let signals = self.signals.get();
        self.signals.set(signals.saturating_sub(1));
        if signals == 0 {
            self.sleep_until_ns(instant_ns);
        }
        signals > 0
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
        offset: Offset::None,
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
    let mut cover = Cover::new(LAYOUT, 0);
    cover.start(beat.first_ns);
    let clock = Script {
        now_ns: Cell::new(0),
        steps: RefCell::new(steps.into_iter().collect()),
        shared,
        slots: RefCell::new(slots),
        cover: RefCell::new(cover),
        cells: RefCell::new(if is_cell(shared.reign()) { vec![0] } else { Vec::new() }),
        slices: RefCell::default(),
        grid_ns,
        signals: Cell::new(3),
    };
    let live = LiveFigures::default();
    let tally = run(&clock, beat, shared, &live, &mut ours, ring);
    clock.drain();
    let Script { slices, cover, cells, .. } = clock;
    let (mut slices, mut cover, cells) =
        (slices.into_inner(), cover.into_inner(), cells.into_inner());
    let sampled = SlotOwner { thread: 0, origin_ns: 0, grid_ns, cells: &cells };
    if let Some(taken) = ours.rest(&sampled) {
        cover.add(&sampled, shared, taken, |slice| slices.push(slice));
    }
    if tally.without_slot == 0 {
        cover.close(&sampled, shared, tally.ended_ns, |slice| slices.push(slice));
    }
    Ran { slices, tally, live }
}

/// In the only cell, from the beginning of time.
fn in_cell(limit: Option<u64>) -> Shared {
    let shared = Shared::new(1);
    shared.enter(0, limit);
    shared
}

fn steps(latencies_ns: &[i64]) -> Vec<Step> {
    let step = |&latency_ns: &i64| Step { latency_ns, ..Step::default() };
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
    let ran = play(&beat(), &in_cell(None), with_stall(5_300_000));
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
    let ran = play(&beat(), &in_cell(None), with_stall(5_000_000));
    assert_eq!((ran.total(|s| s.recorded), ran.total(|s| s.missed)), (21, 4));
}

#[test]
fn replay_runs_every_activation_late() {
    let replay = Beat { overrun: Overrun::Replay, ..beat() };
    let ran = play(&replay, &in_cell(None), with_stall(5_300_000));
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
    let ran = play(&relative, &in_cell(None), with_stall(5_300_000));
    assert_eq!((ran.total(|s| s.planned), ran.total(|s| s.missed)), (21, 0));
    assert_eq!(ran.slices[0].max_ns, 5_300_000);
}

#[test]
fn an_early_wake_up_is_counted_and_is_no_latency() {
    let ran = play(&beat(), &in_cell(None), steps(&[10_000, -500_000, 10_000]));
    assert_eq!(ran.total(|s| s.early), 1);
    assert_eq!((ran.slices[0].min_ns, ran.slices[0].max_ns), (0, 10_000));
}

#[test]
fn a_cell_takes_as_many_cycles_as_asked() {
    let shared = in_cell(Some(7));
    let ran = play(&beat(), &shared, steps(&[10_000; 20]));
    assert_eq!(ran.in_cell(0), 7);
    assert_eq!(ran.total(|s| s.recorded), 20, "the rest is discarded, and counted");
    // The seventh was due at 16 ms and answered 10 us later.
    assert_eq!(shared.span_ns(1), (0, 16 * INTERVAL_NS + 10_000));
}

#[test]
fn a_latency_above_the_threshold_breaks_the_run() {
    let shared = in_cell(None);
    let strict = Beat { break_above_ns: 50_000, ..beat() };
    let ran = play(&strict, &shared, steps(&[50_000, 50_001, 10_000, 90_000]));
    assert!(shared.is_broken());
    assert_eq!(ran.tally.broke_at, Some((50_001, 11 * INTERVAL_NS)));
    assert_eq!(ran.in_cell(0), 2, "what follows the break is not part of the cell");
}

#[test]
fn a_session_of_one_cell_ends_with_it_and_keeps_its_figures() {
    let shared = Shared::with_cells(1, true, None);
    shared.enter(0, Some(3));
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
    let ran =
        play_raw(&beat, &in_cell(None), steps(&[10_000, 50_000, 49_999, 70_000]), Some(&mut ring));
    let kept = std::iter::from_fn(|| samples.pop().ok());
    let kept: Vec<(u64, u64)> = kept.map(|sample| (sample.cycle, sample.latency_ns)).collect();
    assert_eq!(kept, [(1, 50_000), (3, 70_000)]);
    assert_eq!((ran.in_cell(0), ran.tally.raw_lost), (4, 0));
}

#[test]
fn slices_follow_the_clock() {
    let ran = play(&beat(), &in_cell(None), steps(&[10_000; 250]));
    let lengths: Vec<u64> = ran.slices.iter().map(|s| s.planned).collect();
    assert_eq!(lengths, [100, 100, 50]);
    assert!(ran.slices.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns));
}

#[test]
fn the_first_slice_of_a_cell_ends_with_the_running_slice() {
    // Slices of 100 activations; the cell begins in the sleep before the 21st.
    let step =
        |n: u64| Step { latency_ns: 10_000, turn: (n == 20).then_some(500), ..Step::default() };
    let ran = play(&beat(), &Shared::new(1), (0..150).map(step));
    let counts: Vec<u64> = ran.slices.iter().map(|slice| slice.recorded).collect();
    assert_eq!(counts, [20, 80, 50]);
}

#[test]
fn a_control_thread_that_is_held_up_costs_resolution_not_samples() {
    // 3000 activations are 30 slices; nobody empties the slots.
    let ran = play(&beat(), &in_cell(None), steps(&[10_000; 3000]));
    assert_eq!(ran.total(|s| s.recorded), 3000);
    assert!(ran.slices.len() < 30 && ran.slices.iter().all(Slice::adds_up));
}

#[test]
fn activations_without_a_slot_are_counted() {
    // A cell begins or ends every other wake-up, and nobody empties the slots.
    let step = |i: u64| Step {
        latency_ns: 10_000,
        turn: i.is_multiple_of(2).then_some(500),
        ..Step::default()
    };
    let ran = play(&beat(), &Shared::new(20), (0..40).map(step));
    assert!(ran.tally.without_slot > 0 && ran.tally.cell_without_slot > 0);
    assert_eq!(ran.total(|s| s.recorded) + ran.tally.without_slot, 40);
    assert_eq!(ran.total(|s| s.missed), 0, "they were answered");
}

#[test]
fn a_thread_that_fills_a_cell_that_is_over_does_not_fill_the_next() {
    let shared = Shared::new(2);
    shared.enter(0, Some(5));
    shared.end_cell(1, 10);
    shared.enter(20, Some(5));
    shared.end_cell(1, 30);
    assert_eq!(
        (shared.reign(), shared.span_ns(1), shared.span_ns(3)),
        (3, (0, 10), (20, u64::MAX))
    );
}

#[test]
fn a_clock_that_steps_by_years_does_not_keep_the_loop_busy() {
    let year_ns = 365 * 86_400 * 1_000_000_000;
    let ran = play(&beat(), &in_cell(None), steps(&[10_000, year_ns, 10_000]));
    let missed = ran.total(|s| s.missed);
    assert_eq!(missed, (year_ns as u64 - 1) / INTERVAL_NS);
    let kept = ran.total(|s| s.omitted.iter().map(|b| b.1).sum());
    assert_eq!(kept + ran.tally.omitted_unexpanded, missed);
}

/// One thread of this machine.
fn session(asked: Placement) -> SessionSpec {
    SessionSpec {
        threads: vec![ThreadPlan { thread: 0, asked, interval_ns: INTERVAL_NS }],
        layout: LAYOUT,
        slice_ns: 1_000 * INTERVAL_NS,
        clock: ClockName::Monotonic,
        beat: Beat { first_ns: 0, ..beat() },
        raw_capacity: 0,
        wake: Wake::ClockNanosleep,
        timer_slack_ns: Some(1),
        marker: None,
        cells: 1,
        one_cell: false,
        network: None,
        name_holder: |_| "not looked up".to_owned(),
    }
}

/// Its threads are in their first cell.
fn started(spec: &SessionSpec) -> Session {
    let mut session = Session::park(spec, 0).expect("threads");
    session.enter(0, None);
    session.release(session.now_ns());
    session
}

fn until_it_records(session: &mut Session) {
    let until = Instant::now() + Duration::from_secs(60);
    while session.live()[0].recorded == 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A phase whose load doesn't start ends before its cell, which lies a little ahead, has begun.
#[test]
fn a_cell_that_ends_before_it_began_is_empty() {
    for ends in [|shared: &Shared| shared.end_cell(1, 500), |shared: &Shared| shared.stop(500)] {
        let shared = Shared::new(1);
        shared.enter(600, None);
        ends(&shared);
        assert_eq!(shared.span_ns(1), (600, 600));
    }
}

/// A thread may wake for the last time after the last look at its ring.
#[test]
fn each_wake_up_has_its_sample_although_the_session_ends() {
    let asked = sched::placement(sched::SELF).expect("own place");
    let spec = SessionSpec { raw_capacity: 1_000_000, ..session(asked) };
    let mut session = started(&spec);
    until_it_records(&mut session);
    let (mut recorded, mut samples) = (0, 0);
    session.stop(|left| match left {
        // The first wake-ups may be before the cell, and have no samples.
        Remainder::Slice(slice) if matches!(slice.scope, Scope::Cell(_)) => {
            recorded += slice.recorded
        }
        Remainder::Slice(_) => {}
        Remainder::Sample(..) => samples += 1,
    });
    assert!(recorded > 0);
    assert_eq!(samples, recorded);
}

/// The nice value is what every user may change, to a higher one.
#[test]
fn a_thread_s_place_is_read_back_at_its_end() {
    let cpus = sched::affinity(sched::SELF).expect("own CPUs");
    let asked = sched::placement(sched::SELF).expect("own place");
    let asked = Placement { policy: Policy::Other, priority: 0, budget: None, cpus, ..asked };
    let spec = session(asked.clone());
    let mut session = started(&spec);
    let (tid, found) = session.placed[0].clone();
    assert_eq!(found, asked);
    until_it_records(&mut session);
    let changed = Placement { nice: 19, ..asked };
    sched::set_policy(tid, &changed).expect("a higher nice value");
    let (ended, starved) = session.stop(|_| ());
    assert_eq!(ended[0].found, Some(changed));
    assert!(starved.is_empty());
}

#[test]
fn a_session_ends_long_before_its_next_expiry() {
    for (wake, sleep) in [
        (Wake::ClockNanosleep, Sleep::Absolute),
        (Wake::ClockNanosleep, Sleep::Relative),
        (Wake::Nanosleep, Sleep::Relative),
        (Wake::Timer, Sleep::Absolute),
    ] {
        let hour_ns = 3_600_000_000_000;
        let cpus = sched::affinity(sched::SELF).expect("own CPUs");
        let asked = sched::placement(sched::SELF).expect("own place");
        let asked = Placement { policy: Policy::Other, priority: 0, budget: None, cpus, ..asked };
        let thread = |thread| ThreadPlan { thread, asked: asked.clone(), interval_ns: hour_ns };
        let spec = SessionSpec {
            threads: vec![thread(0), thread(1)],
            slice_ns: hour_ns,
            // The second thread starts an hour after the first.
            beat: Beat { first_ns: hour_ns, interval_ns: hour_ns, sleep, ..beat() },
            wake,
            ..session(asked.clone())
        };
        let mut slices = Vec::new();
        let (ended, starved) = started(&spec).stop(|left| {
            if let Remainder::Slice(slice) = left {
                slices.push(slice);
            }
        });
        assert_eq!((ended.len(), starved.len()), (2, 0), "{wake:?}");
        assert!(slices.iter().all(|slice| slice.missed == 0), "{wake:?}: {slices:?}");
    }
}

fn scripts() -> impl Strategy<Value = Vec<Step>> {
    // Not 0: of a cell that begins at the very instant of a wake-up, nobody knows whether it had begun.
    let latency_ns = prop_oneof![8 => 1i64..20_000, 2 => 1i64..3_000_000, 1 => 1i64..30_000_000];
    let turn = proptest::option::weighted(0.2, 0u64..1_000);
    let step = (latency_ns, turn, proptest::bool::weighted(0.5));
    let step = step.prop_map(|(latency_ns, turn, drain)| Step {
        latency_ns,
        turn,
        drain,
        ..Step::default()
    });
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn nothing_is_lost_whatever_happens(script in scripts(), replay: bool, seed: Option<u64>) {
        let overrun = if replay { Overrun::Replay } else { Overrun::Skip };
        let shared = Shared::new(400);
        let offset = seed.map_or(Offset::None, |seed| Offset::Spread { percent: 100, seed });
        let ran = play(&Beat { overrun, offset, ..beat() }, &shared, script);
        let Ran { tally, .. } = &ran;
        prop_assert_eq!(ran.total(|s| s.recorded) + tally.without_slot, tally.wakeups);
        for slice in &ran.slices {
            prop_assert!(slice.adds_up(), "{:?}", slice);
            let omitted: u64 = slice.omitted.iter().map(|b| b.1).sum();
            prop_assert_eq!(omitted, slice.missed);
        }
        let ends = ran.slices.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns);
        prop_assert!(ends, "slices overlap");
        // Each cell has every instant of the grid in it, once.
        for nth in (0..400).filter(|_| tally.without_slot == 0) {
            let (from_ns, to_ns) = shared.span_ns(2 * nth + 1);
            let due = |end_ns: u64| {
                end_ns.saturating_sub(beat().first_ns).div_ceil(INTERVAL_NS)
            };
            let cell = ran.slices.iter().filter(|slice| slice.scope == Scope::Cell(nth));
            let planned: u64 = cell.map(|slice| slice.planned).sum();
            prop_assert_eq!(planned, due(to_ns) - due(from_ns), "cell {}", nth);
        }
    }
}
