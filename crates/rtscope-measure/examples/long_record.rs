//! Writes the record of a long run without running it: the recorder's own files, with latencies that
//! are made up. What reading it takes is in `docs/format/record.md`.
//!
//! ```sh
//! cargo run --release -p rtscope-measure --example long_record -- DIR THREADS HOURS
//! ```

use std::{env, path::Path, process::ExitCode};

use rtscope_measure::recorder::Recorder;
use rtscope_model::{
    cpu::CpuSet,
    event::{Bounds, CpuSpan, EndReason, Event, FORMAT, Stamped, SystemSpan, Tally},
    histogram::{Bin, Layout, Unplaced},
    plan,
    schedule::{Placement, Policy},
    slice::{Extent, Scope, Slice},
};

const SECOND_NS: u64 = 1_000_000_000;
const INTERVAL_NS: u64 = 1_000_000;
const WAKEUPS: u64 = SECOND_NS / INTERVAL_NS;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
    let (Some(folder), Some(threads), Some(hours)) = (words.first(), number(1), number(2)) else {
        eprintln!("usage: long_record DIR THREADS HOURS");
        return ExitCode::FAILURE;
    };
    write(Path::new(folder), threads, u64::from(hours) * 3600);
    ExitCode::SUCCESS
}

fn write(folder: &Path, threads: u32, seconds: u64) {
    let text = format!(
        "name = 'long'\nrequire = ['max < 1ms']\n[[phase]]\nname = 'long'\nduration = '{seconds}s'\n\
         sampler.threads = {threads}"
    );
    let plan = plan::parse("long", &text).expect("a plan");
    let layout = plan.phases[0].sampler.layout();
    let mut recorder = Recorder::create(folder, &plan.to_toml()).expect("a new folder");
    let mut take = |second: u64, event| {
        recorder.event(&Stamped { at_ns: second * SECOND_NS, event });
    };
    beginning(layout, threads).into_iter().for_each(|event| take(1, event));
    let mut latencies = Latencies { layout, state: 1 };
    for second in 1..=seconds {
        for thread in 0..threads {
            take(second + 1, Event::Slice(latencies.slice(thread, second)));
        }
        take(second + 1, Event::System(system(threads)));
    }
    let bounds = Some(Bounds { from_ns: SECOND_NS, to_ns: (seconds + 1) * SECOND_NS });
    take(seconds + 1, Event::PhaseEnded { cell: 0, why: EndReason::Duration, bounds });
    for thread in 0..threads {
        let tally = Tally { wakeups: seconds * WAKEUPS, ..Tally::default() };
        take(seconds + 1, Event::ThreadEnded { thread, tally, found: None });
    }
    take(seconds + 1, Event::run_ended(EndReason::Finished));
    let (_, trouble) = recorder.finish();
    assert_eq!(trouble, None, "all of it is on disk");
}

fn beginning(layout: Layout, threads: u32) -> Vec<Event> {
    let on = |cpu: u32| Placement {
        policy: Policy::Fifo,
        priority: 90,
        nice: 0,
        budget: None,
        cpus: CpuSet::from_iter([cpu]),
    };
    let mut events = vec![
        Event::RunStarted {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: vec!["rtscope".to_owned(), "run".to_owned(), "long".to_owned()],
            wall_clock: "2026-01-01T00:00:00Z".to_owned(),
            monotonic_ns: 0,
        },
        Event::SessionStarted {
            session: 0,
            first_cell: 0,
            cells: 1,
            layout,
            first_thread: 0,
            threads,
            locked_kib: 100_000,
            control: on(0),
        },
    ];
    events.extend((0..threads).map(|thread| Event::ThreadPlaced {
        thread,
        session: 0,
        tid: 100 + thread,
        interval_ns: INTERVAL_NS,
        asked: on(thread),
        found: on(thread),
    }));
    events.push(Event::PhaseStarted { cell: 0, name: "long".to_owned() });
    events
}

fn system(cpus: u32) -> SystemSpan {
    let cpus = (0..cpus).map(|cpu| CpuSpan { cpu, busy_ns: 20_000_000, steal_ns: 0 });
    SystemSpan {
        span_ns: SECOND_NS,
        context_switches: 5_000,
        interrupts: 4_000,
        throttled: Some(0),
        own_ns: Some(10_000_000),
        cpus: cpus.collect(),
    }
}

/// Latencies with a body of 3 to 30 us and a tail that falls by half every 8 us, up to 200 us.
struct Latencies {
    layout: Layout,
    state: u64,
}

impl Latencies {
    fn next_ns(&mut self) -> u64 {
        // Xorshift of 64 bits (Marsaglia 2003).
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let body = 3_000 + (self.state & 0xfff) + (self.state >> 12 & 0xfff);
        body + u64::from((self.state >> 32 | 1 << 24).trailing_zeros()) * 8_000
    }

    fn slice(&mut self, thread: u32, second: u64) -> Slice {
        let start_ns = second * SECOND_NS;
        let mut latencies = [0; WAKEUPS as usize];
        latencies.fill_with(|| self.next_ns());
        let (at, max_ns) =
            latencies.iter().copied().enumerate().max_by_key(|&(_, ns)| ns).expect("some");
        let sum_ns = latencies.iter().sum();
        latencies.sort_unstable();
        let mut bins: Vec<Bin> = Vec::new();
        for index in latencies.map(|ns| self.layout.index(ns)) {
            match bins.last_mut() {
                Some((last, count)) if *last == index => *count += 1,
                _ => bins.push((index, 1)),
            }
        }
        Slice {
            thread,
            scope: Scope::Cell(0),
            start_ns,
            end_ns: start_ns + SECOND_NS,
            planned: WAKEUPS,
            recorded: WAKEUPS,
            missed: 0,
            early: 0,
            migrations: 0,
            min_ns: latencies[0],
            max_ns,
            max_at_ns: start_ns + at as u64 * INTERVAL_NS,
            max_cpu: thread,
            sum_ns,
            bins,
            unplaced: Unplaced::default(),
            omitted: Vec::new(),
            omitted_extent: Extent::default(),
        }
    }
}
