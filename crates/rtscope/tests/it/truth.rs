//! End-to-end truth: a known distribution through the real loop on a simulated clock, the recorder,
//! the statistics and the page reappears unchanged.

use std::cell::{Cell, RefCell};

use rtscope_analyse::{judge, report, verdict_document};
use rtscope_measure::recorder::Recorder;
use rtscope_model::{
    event::{Bounds, EndReason, Event, FORMAT, Stamped, Tally},
    histogram::Layout,
    plan::{self, Overrun, Sleep},
    record::Record,
    schedule::{Placement, Policy},
    slice::Slice,
};
use rtscope_sampler::{Beat, LiveFigures, Offset, Shared, SlotOwner, Slots, exchange, run};
use rtscope_sys::clock::Clock;

const INTERVAL_NS: u64 = 1_000_000;
const SAMPLES: u64 = 100_000;

/// The n-th latency: a body from 3 to 13 us, one in a hundred from 40 us, one stall of 5.5 periods.
fn latency_ns(n: u64) -> u64 {
    match n {
        50_000 => 5_500_000,
        n if n.is_multiple_of(100) => 40_000 + n % 977,
        n => 3_000 + (n * 7_919) % 10_007,
    }
}

/// Wakes its sleeper as late as [`latency_ns`] says, and empties the slots as the control thread does.
struct Known {
    now_ns: Cell<u64>,
    n: Cell<u64>,
    shared: Shared,
    slots: RefCell<Slots>,
    slices: RefCell<Vec<Slice>>,
}

impl Clock for Known {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn sleep_until_ns(&self, expiry_ns: u64) {
        let n = self.n.get();
        if n == SAMPLES {
            self.shared.stop(self.now_ns.get());
        }
        self.n.set(n + 1);
        self.now_ns.set(expiry_ns + latency_ns(n));
        self.drain();
    }

    fn sleep_for_ns(&self, duration_ns: u64) {
        self.sleep_until_ns(self.now_ns() + duration_ns);
    }

    fn cpu(&self) -> u32 {
        1
    }
}

impl Known {
    fn drain(&self) {
        let mut slices = self.slices.borrow_mut();
        let sampled =
            SlotOwner { thread: 0, origin_ns: 0, grid_ns: Some(INTERVAL_NS), cells: &[0] };
        self.slots.borrow_mut().drain(&sampled, |taken| slices.push(taken.slice));
    }
}

const PLAN: &str = "name = 'truth'\n[sampler]\nresolution = '1ns'\nbuckets = 100000\ncpus = '1'\n\
                    [[phase]]\nname = 'known'\nduration = '100s'\n";

/// What a run says before its first slice.
fn beginning(layout: Layout) -> [Event; 4] {
    let cpus: rtscope_model::cpu::CpuSet = [1].into_iter().collect();
    let placement = Placement { policy: Policy::Fifo, priority: 90, nice: 0, budget: None, cpus };
    let found = placement.clone();
    let (asked, control) = (placement.clone(), placement);
    [
        Event::RunStarted {
            format: FORMAT,
            version: "0".to_owned(),
            command: Vec::new(),
            wall_clock: "2026-01-01T00:00:00Z".to_owned(),
            monotonic_ns: 0,
        },
        Event::SessionStarted {
            session: 0,
            first_cell: 0,
            cells: 1,
            layout,
            first_thread: 0,
            threads: 1,
            locked_kib: 1,
            control,
        },
        Event::ThreadPlaced {
            thread: 0,
            session: 0,
            tid: 1,
            interval_ns: INTERVAL_NS,
            asked,
            found,
        },
        Event::PhaseStarted { cell: 0, name: "known".to_owned() },
    ]
}

/// The record of the known distribution, written and read back.
fn record() -> Record {
    let plan = plan::parse("truth", PLAN).expect("a plan");
    let layout = plan.phases[0].sampler.layout();
    let (mut ours, slots) = exchange(layout, 1_000_000_000);
    let clock = Known {
        now_ns: Cell::new(0),
        n: Cell::new(0),
        shared: Shared::new(1),
        slots: RefCell::new(slots),
        slices: RefCell::default(),
    };
    clock.shared.enter(0, None);
    let beat = Beat {
        first_ns: 1_000_000_000,
        interval_ns: INTERVAL_NS,
        offset: Offset::None,
        sleep: Sleep::Absolute,
        overrun: Overrun::Skip,
        break_above_ns: u64::MAX,
        raw_from_ns: 0,
    };
    let tally = run(&clock, &beat, &clock.shared, &LiveFigures::default(), &mut ours, None);
    clock.drain();
    let folder = tempfile::tempdir().expect("a folder");
    let mut recorder = Recorder::create(&folder.path().join("run"), &plan.to_toml()).expect("new");
    let slices = clock.slices.into_inner();
    let to_ns = slices.last().expect("slices").end_ns;
    let bounds = Some(Bounds { from_ns: 1_000_000_000, to_ns });
    let slices = slices.into_iter().map(Event::Slice);
    let tally = Tally { wakeups: tally.wakeups, ..Tally::default() };
    let ends = [
        Event::PhaseEnded { cell: 0, why: EndReason::Duration, bounds },
        Event::ThreadEnded { thread: 0, tally, found: None },
        Event::run_ended(EndReason::Finished),
    ];
    for (n, event) in beginning(layout).into_iter().chain(slices).chain(ends).enumerate() {
        recorder.event(&Stamped { at_ns: n as u64 * 1_000_000_000, event });
    }
    let (source, trouble) = recorder.finish();
    assert_eq!(trouble, None);
    source.read().expect("a record")
}

#[test]
fn a_known_distribution_reappears_unchanged() {
    let record = record();
    assert_eq!(record.findings, [], "nothing was damaged on the way");
    let judgement = judge(&record, &[]);
    let document = verdict_document::document(&judgement, &record);
    let row = &document["cells"][0]["cpus"][0];

    let mut sorted: Vec<u64> = (0..SAMPLES).map(latency_ns).collect();
    sorted.sort_unstable();
    assert_eq!(row["recorded"], SAMPLES);
    assert_eq!(row["missed"], 5);
    assert_eq!(row["planned"], SAMPLES + 5);
    assert_eq!(row["latency_ns"]["min"], sorted[0]);
    assert_eq!(row["latency_ns"]["max"], sorted[SAMPLES as usize - 1]);
    let mean = sorted.iter().sum::<u64>() as f64 / SAMPLES as f64;
    assert_eq!(row["latency_ns"]["mean"], mean.round() as u64);
    for (key, per_million) in
        [("p50", 500_000), ("p99", 990_000), ("p99_9", 999_000), ("p99_99", 999_900)]
    {
        let rank = (SAMPLES * per_million).div_ceil(1_000_000) as usize;
        assert_eq!(row["latency_ns"][key], sorted[rank - 1], "{key}");
    }
    // The corrected figures hold the five that the stall swallowed: 0.5 to 4.5 ms.
    let corrected = &row["corrected_latency_ns"];
    assert_eq!(corrected["max"], 5_500_000);
    let mut all = sorted.clone();
    all.extend((0..5).map(|n| 500_000 + n * INTERVAL_NS));
    let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
    assert_eq!(corrected["mean"], mean.round() as u64);

    // And on the page: the exact integers are among its raw numbers.
    let page = report::html::page(&record, &judgement);
    for figure in [sorted[0], sorted[SAMPLES as usize - 1], sorted[SAMPLES as usize / 2 - 1]] {
        assert!(page.contains(&figure.to_string()), "{figure} is not on the page");
    }
}
