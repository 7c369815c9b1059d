//! Records for tests: chosen latencies in, a record as it is read from its files out.

use std::collections::BTreeMap;

use rtscope_model::{
    environment::{
        ClockSource, Cpu, Cpus, Environment, Kernel, Permission, Preemption, Throttling,
    },
    event::{CpuSpan, EndReason, Event, FORMAT, Stamped, SystemSpan, Tally},
    histogram::{Histogram, Layout, Unplaced},
    plan,
    record::{Files, Record},
    schedule::{Placement, Policy},
    slice::{Extent, Scope, Slice},
};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

pub(crate) const INTERVAL_NS: u64 = 1_000_000;

/// A run in which everything went well, for tests to spoil.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// `plan.toml`.
    pub(crate) plan: String,
    pub(crate) before: Option<Environment>,
    pub(crate) after: Option<Environment>,
    /// The events, in order, from the first to the last.
    pub(crate) events: Vec<Stamped>,
    pub(crate) slices: Vec<Slice>,
    /// `lab.json`.
    pub(crate) lab: String,
    layout: Layout,
    cells: u32,
    at_ns: u64,
}

/// Fifo 90 on one CPU.
pub(crate) fn fifo(cpu: u32) -> Placement {
    let cpus = std::iter::once(cpu).collect();
    Placement { policy: Policy::Fifo, priority: 90, nice: 0, budget: None, cpus }
}

/// A machine that nothing can be said against.
pub(crate) fn quiet_machine(cpus: u32) -> Environment {
    let each = |cpu| Cpu {
        cpu,
        governor: Some("performance".to_owned()),
        frequency_khz: Some((800_000, 3_000_000)),
        ..Cpu::default()
    };
    Environment {
        host: "board".to_owned(),
        kernel: Kernel {
            release: "6.12.0-rt".to_owned(),
            preemption: Preemption::RealTime,
            ..Kernel::default()
        },
        cpus: Cpus {
            online: (0..cpus).collect(),
            allowed: (0..cpus).collect(),
            each: (0..cpus).map(each).collect(),
            ..Cpus::default()
        },
        throttling: Throttling { runtime_us: Some(-1), period_us: Some(1_000_000) },
        clock: ClockSource {
            current: Some("tsc".to_owned()),
            available: vec!["tsc".to_owned()],
            resolution_ns: Some(1),
        },
        permission: Permission { root: true, real_time: true, ..Permission::default() },
        ..Environment::default()
    }
}

impl Run {
    /// A run of a plan on CPUs 0 to `threads - 1`, a thread each; the plan's cells follow by
    /// [`Run::cell`].
    pub(crate) fn new(plan: &str, threads: u32) -> Run {
        let parsed = plan::parse("plan.toml", plan).expect("the test's plan");
        let layout = parsed.phases[0].sampler.layout();
        let cells = parsed.phases.len() as u32;
        let mut run = Run {
            plan: plan.to_owned(),
            before: Some(quiet_machine(threads + 1)),
            after: Some(quiet_machine(threads + 1)),
            events: Vec::new(),
            slices: Vec::new(),
            lab: String::new(),
            layout,
            cells,
            at_ns: 0,
        };
        run.start(threads);
        run
    }

    fn start(&mut self, threads: u32) {
        self.event(Event::RunStarted {
            format: FORMAT,
            version: "0.1.0".to_owned(),
            command: vec!["rtscope".to_owned(), "run".to_owned()],
            wall_clock: "2025-01-02T03:04:05Z".to_owned(),
            monotonic_ns: 7,
        });
        self.event(Event::SessionStarted {
            session: 0,
            first_cell: 0,
            cells: self.cells,
            layout: self.layout,
            first_thread: 0,
            threads,
            locked_kib: 20_000,
            control: Placement { policy: Policy::Other, priority: 0, ..fifo(threads) },
        });
        for thread in 0..threads {
            self.event(Event::ThreadPlaced {
                thread,
                session: 0,
                tid: 100 + thread,
                interval_ns: INTERVAL_NS,
                asked: fifo(thread),
                found: fifo(thread),
            });
        }
    }

    fn event(&mut self, event: Event) {
        self.events.push(Stamped { at_ns: self.at_ns, event });
    }

    /// Runs a cell: the latencies of each thread, one each interval, in slices of a second.
    pub(crate) fn cell(mut self, cell: u32, latencies_ns: &[&[u64]]) -> Run {
        let start_ns = self.at_ns;
        let name = format!("cell {cell}");
        self.event(Event::PhaseStarted { cell, name });
        for (thread, latencies_ns) in (0u32..).zip(latencies_ns) {
            let mut slice_ns = start_ns;
            for part in latencies_ns.chunks((SECOND_NS / INTERVAL_NS) as usize) {
                let slice = slice_of(self.layout, cell, thread, slice_ns, part);
                slice_ns = slice.end_ns;
                self.slices.push(slice);
            }
            self.at_ns = self.at_ns.max(slice_ns);
        }
        let cpus = (0u32..).zip(latencies_ns).map(|(cpu, _)| CpuSpan {
            cpu,
            busy_ns: 5,
            ..CpuSpan::default()
        });
        let span_ns = self.at_ns - start_ns;
        let system = SystemSpan {
            span_ns,
            throttled: Some(0),
            cpus: cpus.collect(),
            ..SystemSpan::default()
        };
        self.event(Event::System(system));
        self.event(Event::PhaseEnded { cell, why: EndReason::Duration, bounds: None });
        self
    }

    /// Adds a load to the cell that was run last: a span of a second for each amount of work.
    pub(crate) fn load(mut self, cell: u32, line: &str, work: &[u64]) -> Run {
        let line = line.to_owned();
        self.event(Event::LoadStarted { cell, load: 0, line, pid: 200 });
        for &work in work {
            self.event(Event::load_rate(cell, 0, SECOND_NS, work, "messages"));
        }
        let (work, how) = (work.iter().sum(), "stopped".to_owned());
        self.event(Event::LoadEnded { cell, load: 0, work, ok: true, how });
        self
    }

    /// Ends the run: each thread's tally and the last event.
    pub(crate) fn end(mut self) -> Run {
        let placed = self.events.iter().filter(|e| matches!(e.event, Event::ThreadPlaced { .. }));
        for thread in 0..placed.count() as u32 {
            let ours = self.slices.iter().filter(|slice| slice.thread == thread);
            let wakeups = ours.map(|slice| slice.recorded).sum();
            let tally = Tally { wakeups, wall_ns: self.at_ns, cpu_ns: 1_000, ..Tally::default() };
            self.event(Event::ThreadEnded { thread, tally, found: None });
        }
        self.event(Event::run_ended(EndReason::Finished));
        self
    }

    /// Adds an event to the end of a run that has ended.
    pub(crate) fn happens(mut self, event: Event) -> Run {
        let last = self.events.len() - 1;
        self.events.insert(last, Stamped { at_ns: self.at_ns, event });
        self
    }

    /// Changes every event by hand.
    pub(crate) fn edit(mut self, mut edit: impl FnMut(&mut Event)) -> Run {
        self.events.iter_mut().for_each(|stamped| edit(&mut stamped.event));
        self
    }

    /// Changes the tally of every thread.
    pub(crate) fn tally(self, edit: impl Fn(&mut Tally)) -> Run {
        self.edit(|event| {
            if let Event::ThreadEnded { tally, .. } = event {
                edit(tally);
            }
        })
    }

    /// Changes the machine as it was before and after.
    pub(crate) fn machine(mut self, edit: impl Fn(&mut Environment)) -> Run {
        self.before.iter_mut().chain(&mut self.after).for_each(edit);
        self
    }

    /// The files, as they would be written.
    pub(crate) fn files(&self) -> Files {
        let mut slices: BTreeMap<u32, String> = BTreeMap::new();
        for slice in &self.slices {
            *slices.entry(slice.thread).or_default() += &line_of(slice);
        }
        let json = |machine: &Option<Environment>| {
            machine.as_ref().map(|m| serde_json::to_string(m).expect("json")).unwrap_or_default()
        };
        Files {
            plan: self.plan.clone(),
            before: json(&self.before),
            after: json(&self.after),
            events: self.events.iter().map(line_of).collect(),
            slices: slices.into_iter().map(|(t, text)| (format!("t{t}.jsonl"), text)).collect(),
            histograms: String::new(),
            lab: self.lab.clone(),
            explained: String::new(),
        }
    }

    /// The record, as it is read back.
    pub(crate) fn record(&self) -> Record {
        Record::read(&self.files()).expect("a record")
    }
}

fn line_of<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("json") + "\n"
}

/// The slice of some latencies, one each interval. A latency of several intervals swallows the
/// activations in between, as in the real loop.
pub(crate) fn slice_of(
    layout: Layout,
    cell: u32,
    thread: u32,
    start_ns: u64,
    latencies_ns: &[u64],
) -> Slice {
    let (mut measured, mut omitted) = (Histogram::new(layout), Histogram::new(layout));
    for &latency_ns in latencies_ns {
        measured.record(latency_ns);
        let mut left_ns = latency_ns;
        while left_ns > INTERVAL_NS {
            left_ns -= INTERVAL_NS;
            omitted.record(left_ns);
        }
    }
    let (recorded, missed) = (measured.count(), omitted.count());
    let worst = latencies_ns.iter().position(|&ns| Some(ns) == measured.max_ns()).unwrap_or(0);
    let extent = |of: &Histogram| Extent {
        min_ns: of.min_ns().unwrap_or(0),
        max_ns: of.max_ns().unwrap_or(0),
        sum_ns: of.sum_ns() as u64,
    };
    Slice {
        thread,
        scope: Scope::Cell(cell),
        start_ns,
        end_ns: start_ns + (recorded + missed) * INTERVAL_NS,
        planned: recorded + missed,
        recorded,
        missed,
        early: 0,
        migrations: 0,
        min_ns: extent(&measured).min_ns,
        max_ns: extent(&measured).max_ns,
        max_at_ns: start_ns + worst as u64 * INTERVAL_NS,
        max_cpu: thread,
        sum_ns: extent(&measured).sum_ns,
        bins: measured.bins(),
        unplaced: Unplaced::default(),
        omitted: omitted.bins(),
        omitted_extent: extent(&omitted),
        frames: None,
    }
}

/// A slice of a second that holds these latencies.
pub(crate) fn slice_of_histogram(thread: u32, second: u64, one: &Histogram) -> Slice {
    Slice {
        bins: one.bins(),
        planned: one.count(),
        recorded: one.count(),
        min_ns: one.min_ns().unwrap_or(0),
        max_ns: one.max_ns().unwrap_or(0),
        sum_ns: one.sum_ns() as u64,
        end_ns: (second + 1) * SECOND_NS,
        ..slice_of(one.layout(), 0, thread, second * SECOND_NS, &[])
    }
}
