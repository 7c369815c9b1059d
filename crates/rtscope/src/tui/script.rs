//! A scripted run for the tests of the screens.

use rtscope_model::{
    cpu::CpuSet,
    event::{EndReason, Event, Live, Progress, Stamped},
    histogram::{Histogram, Layout, Unplaced},
    plan::{self, Plan},
    schedule::{Placement, Policy},
    slice::{Extent, Scope, Slice},
};

use super::state::State;

const SECOND_NS: u64 = 1_000_000_000;

/// Rest, a message load with a limit on the maximum, rest; no warm-up.
pub(crate) fn plan() -> Plan {
    let text = r#"
        name = "quick"
        title = "Rest, message load, rest"
        about = "A test."
        require = ["missed = 0"]
        [sampler]
        warmup = "0"
        [[phase]]
        name = "rest"
        duration = "5s"
        [[phase]]
        name = "message load"
        duration = "10s"
        load = ["message groups=10"]
        require = ["max < 200us", "max < 100us"]
        [[phase]]
        name = "rest again"
        duration = "5s"
    "#;
    plan::parse("test", text).expect("a plan")
}

pub(crate) fn slice(thread: u32, cell: u32, layout: Layout, latencies_ns: &[u64]) -> Slice {
    let mut histogram = Histogram::new(layout);
    latencies_ns.iter().for_each(|&ns| histogram.record(ns));
    Slice {
        thread,
        scope: Scope::Cell(cell),
        start_ns: 0,
        end_ns: 0,
        planned: histogram.count(),
        recorded: histogram.count(),
        missed: 0,
        early: 0,
        migrations: 0,
        min_ns: histogram.min_ns().unwrap_or(0),
        max_ns: histogram.max_ns().unwrap_or(0),
        max_at_ns: 0,
        max_cpu: 0,
        sum_ns: histogram.sum_ns() as u64,
        bins: histogram.bins(),
        unplaced: Unplaced::default(),
        omitted: Vec::new(),
        omitted_extent: Extent::default(),
        frames: None,
    }
}

/// A state and the time of its run.
pub(crate) struct Script {
    pub(super) state: State,
    pub(super) at_ns: u64,
    pub(super) threads: u32,
}

impl Script {
    /// A session with as many pinned threads, placed and parked.
    pub(super) fn placed(threads: u32) -> Script {
        let mut script = Script { state: State::new(&plan()), at_ns: 0, threads: 0 };
        script.session(0, threads);
        script
    }

    pub(super) fn session(&mut self, first_thread: u32, threads: u32) {
        self.threads = threads;
        self.happens(session_started(first_thread, threads));
        (0..threads).for_each(|n| self.happens(thread_placed(first_thread + n, n)));
    }

    pub(super) fn happens(&mut self, event: Event) {
        self.state.apply(&Stamped { at_ns: self.at_ns, event });
    }

    pub(super) fn after_ms(&mut self, ms: u64) -> &mut Script {
        self.at_ns += ms * 1_000_000;
        self
    }

    pub(super) fn begins(&mut self, cell: u32) {
        let name = self.state.cells[cell as usize].name.clone();
        self.happens(Event::PhaseStarted { cell, name });
    }

    pub(super) fn ends(&mut self, cell: u32, why: EndReason) {
        self.happens(Event::PhaseEnded { cell, why, bounds: None });
    }

    /// A thread hands over a slice of these latencies; the largest was seen just now.
    pub(super) fn sees(&mut self, thread: u32, cell: u32, latencies_ns: &[u64]) {
        let made = slice(thread, cell, Layout::default(), latencies_ns);
        self.happens(Event::Slice(Slice { max_at_ns: self.at_ns, ..made }));
    }

    /// Live figures of all threads: the last has this maximum, each before it 1 us less.
    pub(super) fn shows(&mut self, cell: Option<u32>, max_ns: u64) {
        self.happens(Script::live(cell, self.threads, max_ns, self.at_ns));
    }

    /// A look at live figures.
    pub(crate) fn live(cell: Option<u32>, threads: u32, max_ns: u64, at_ns: u64) -> Event {
        let live = (0..threads).map(|n| Live {
            thread: n,
            cpu: n,
            now_ns: 3_400,
            min_ns: 1_200,
            mean_ns: 4_500,
            max_ns: max_ns.saturating_sub(u64::from(threads - 1 - n) * 1_000),
            recorded: 5_000,
            missed: 0,
        });
        Event::Progress(Progress {
            cell,
            done: at_ns as f64 / (20.0 * SECOND_NS as f64),
            left_ns: (20 * SECOND_NS).saturating_sub(at_ns),
            threads: live.collect(),
        })
    }

    /// A run in the middle of its second phase: the first was quiet, the second is above its limit
    /// on the last CPU.
    pub(super) fn under_load(threads: u32) -> Script {
        let mut script = Script::placed(threads);
        script.begins(0);
        for _ in 0..5 {
            script.after_ms(1_000);
            (0..threads).for_each(|n| script.sees(n, 0, &[1_200, 2_300, 2_900, 3_400, 20_000]));
        }
        script.ends(0, EndReason::Duration);
        script.begins(1);
        let line = "message groups=10".to_owned();
        script.happens(Event::LoadStarted { cell: 1, load: 0, line, pid: 77 });
        for second in 0..4 {
            script.after_ms(1_000);
            for n in 0..threads {
                let peak_ns = 30_000 + 20_000 * second + if n + 1 == threads { 10_000 } else { 0 };
                script.sees(n, 1, &[1_200, 2_300, 2_900, 3_400, 7_000, peak_ns]);
            }
            script.happens(Event::load_rate(1, 0, SECOND_NS, 123_456, "messages"));
        }
        script.shows(Some(1), 100_000);
        script
    }
}

fn placement(n: u32) -> Placement {
    let cpus: CpuSet = [n].into_iter().collect();
    Placement { policy: Policy::Fifo, priority: 90, nice: 0, budget: None, cpus }
}

pub(crate) fn session_started(first_thread: u32, threads: u32) -> Event {
    Event::SessionStarted {
        session: 0,
        first_cell: 0,
        cells: 3,
        layout: Layout::default(),
        first_thread,
        threads,
        locked_kib: 1_000,
        control: placement(0),
    }
}

pub(crate) fn thread_placed(thread: u32, cpu: u32) -> Event {
    Event::ThreadPlaced {
        thread,
        session: 0,
        tid: 1_000 + thread,
        interval_ns: 1_000_000,
        asked: placement(cpu),
        found: placement(cpu),
    }
}
