//! A simulated machine with a sampling thread on each CPU, whose clock is as fast as the recorder.

use std::path::Path;

use rtscope_measure::recorder::Recorder;
use rtscope_model::{
    cpu::CpuSet,
    event::{Bounds, CpuSpan, EndReason, Event, FORMAT, Stamped, SystemSpan, Tally},
    histogram::{Bin, Layout, Unplaced},
    plan::{self, Plan},
    schedule::{Placement, Policy},
    slice::{Extent, Scope, Slice},
};

const SECOND_NS: u64 = 1_000_000_000;
const INTERVAL_NS: u64 = 1_000_000;

/// Wake-ups of a thread in a second.
pub(crate) const WAKEUPS: u64 = SECOND_NS / INTERVAL_NS;

/// Different seconds of a thread; they come again and again, so that days are simulated fast.
const MODELS: usize = 512;

/// The machine and how far its run is.
pub(crate) struct Machine {
    /// One on each CPU.
    pub(crate) threads: u32,
    pub(crate) seconds: u64,
    /// Latencies that are longer than all others: thread, second, length.
    pub(crate) spikes: Vec<(u32, u64, u64)>,
    /// Seconds that have passed.
    pub(crate) second: u64,
    layout: Layout,
    models: Vec<Slice>,
}

impl Machine {
    pub(crate) fn new(threads: u32, seconds: u64) -> Machine {
        let layout = Layout::default();
        let mut latencies = Latencies { layout, state: 1 };
        let models = (0..MODELS).map(|_| latencies.slice()).collect();
        Machine { threads, seconds, spikes: Vec::new(), second: 0, layout, models }
    }

    pub(crate) fn plan(&self) -> Plan {
        let text = format!(
            "name = 'long'\nrequire = ['max < 1ms']\n[[phase]]\nname = 'long'\nduration = '{}s'\n\
             sampler.threads = {}",
            self.seconds, self.threads
        );
        plan::parse("long", &text).expect("a plan")
    }

    /// A recorder that has heard the beginning of the run.
    pub(crate) fn recorder(&self, folder: &Path) -> Recorder {
        let mut recorder = Recorder::create(folder, &self.plan().to_toml()).expect("a new folder");
        let beginning = beginning(self.layout, self.threads);
        beginning.into_iter().for_each(|event| record_event(&mut recorder, 1, event));
        recorder
    }

    /// Goes on for so many seconds, or up to the end.
    pub(crate) fn run(&mut self, recorder: &mut Recorder, seconds: u64) {
        for _ in 0..seconds.min(self.seconds - self.second) {
            for thread in 0..self.threads {
                record_event(
                    recorder,
                    self.second + 2,
                    Event::Slice(self.slice(thread, self.second)),
                );
            }
            record_event(recorder, self.second + 2, Event::System(system(self.threads)));
            self.second += 1;
        }
    }

    /// Tells the end of the run.
    pub(crate) fn end(&self, recorder: &mut Recorder) {
        let ended = self.second + 1;
        let bounds = Some(Bounds { from_ns: SECOND_NS, to_ns: ended * SECOND_NS });
        record_event(
            recorder,
            ended,
            Event::PhaseEnded { cell: 0, why: EndReason::Duration, bounds },
        );
        for thread in 0..self.threads {
            let tally = Tally { wakeups: self.second * WAKEUPS, ..Tally::default() };
            record_event(recorder, ended, Event::ThreadEnded { thread, tally, found: None });
        }
        record_event(recorder, ended, Event::run_ended(EndReason::Finished));
    }

    /// What a thread saw in a second. The first activation is due a second after the start of the run.
    pub(crate) fn slice(&self, thread: u32, second: u64) -> Slice {
        let start_ns = (second + 1) * SECOND_NS;
        let model = &self.models[(second * 31 + u64::from(thread) * 17) as usize % MODELS];
        let mut slice = Slice {
            thread,
            start_ns,
            end_ns: start_ns + SECOND_NS,
            max_at_ns: start_ns + model.max_at_ns,
            max_cpu: thread,
            ..model.clone()
        };
        let spike = self.spikes.iter().find(|spike| (spike.0, spike.1) == (thread, second));
        if let Some(&(_, _, latency_ns)) = spike {
            self.raise(&mut slice, latency_ns);
        }
        slice
    }

    /// Makes the largest latency of a slice larger.
    fn raise(&self, slice: &mut Slice, latency_ns: u64) {
        slice.sum_ns += latency_ns - slice.max_ns;
        slice.max_ns = latency_ns;
        let last = slice.bins.last_mut().expect("the bin of the maximum");
        last.1 -= 1;
        slice.bins.retain(|bin| bin.1 > 0);
        slice.bins.push((self.layout.index(latency_ns), 1));
    }
}

fn record_event(recorder: &mut Recorder, second: u64, event: Event) {
    recorder.event(&Stamped { at_ns: second * SECOND_NS, event });
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
    let cpus = (0..cpus).map(|cpu| CpuSpan { cpu, busy_ns: 20_000_000, ..CpuSpan::default() });
    SystemSpan {
        span_ns: SECOND_NS,
        context_switches: 5_000,
        interrupts: 4_000,
        throttled: Some(0),
        own_ns: Some(10_000_000),
        energy_uj: None,
        cpus: cpus.collect(),
        ..SystemSpan::default()
    }
}

/// Latencies with a body of 3 to 11 us and a tail that falls by half every 8 us, up to 200 us.
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

    /// A second that starts at 0.
    fn slice(&mut self) -> Slice {
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
            thread: 0,
            scope: Scope::Cell(0),
            start_ns: 0,
            end_ns: SECOND_NS,
            planned: WAKEUPS,
            recorded: WAKEUPS,
            missed: 0,
            early: 0,
            migrations: 0,
            min_ns: latencies[0],
            max_ns,
            max_at_ns: at as u64 * INTERVAL_NS,
            max_cpu: 0,
            sum_ns,
            bins,
            unplaced: Unplaced::default(),
            omitted: Vec::new(),
            omitted_extent: Extent::default(),
            frames: None,
        }
    }
}
