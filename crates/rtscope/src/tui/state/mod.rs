//! What the screens know: the sum of the events so far. Nothing is drawn here, no clock is read.
//!
//! Live figures (`now`, and the running `min`, `avg`, `max`) come from [`Progress`] several times a
//! second. Histograms, trails and the figures of a finished phase come from slices, which are the
//! record's own truth and arrive up to a slice later.

mod density;
mod lane;
mod log;

use std::collections::VecDeque;

use rtscope_model::{
    event::{Bounds, EndReason, Event, Progress, Stamped, SystemSpan},
    histogram::Layout,
    machine_use::CpuClass,
    plan::{Phase, Plan},
    slice::{Scope, Slice},
    time::Nanos,
    verdict::Statistic,
};

use self::lane::{label_of, place_of};
pub(crate) use self::{
    density::Density,
    lane::{Lane, Sum, Trail},
    log::{Log, Tone, busy_others, reason},
};

/// Where a phase is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    ToCome,
    Running,
    Done,
    /// Ended early, by the user or by the break threshold.
    Cut,
    Failed,
}

/// What the plan requires of a phase: the strictest of each kind that can be watched live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) max_ns: Option<u64>,
    pub(crate) mean_ns: Option<u64>,
    pub(crate) missed: Option<u64>,
}

/// One phase of the plan.
#[derive(Clone, Debug)]
pub(crate) struct CellState {
    pub(crate) name: String,
    pub(crate) status: Status,
    pub(crate) limits: Limits,
    /// How long it is expected to take.
    pub(crate) expected: Nanos,
    /// When it began and ended, since the start of the run; 0 before.
    pub(crate) started_ns: u64,
    pub(crate) ended_ns: u64,
}

/// A load of the running phase.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Load {
    /// As in the plan.
    pub(crate) line: String,
    /// Units of work a second over the last span; none before the first.
    pub(crate) rate: Option<f64>,
    pub(crate) unit: String,
    /// Whether it ended, and whether as it should.
    pub(crate) ended: Option<bool>,
}

/// The machine's own counters over the last span, by second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Machine {
    pub(crate) switches: f64,
    pub(crate) interrupts: f64,
    /// Part of the CPUs' time that the hypervisor took, 0 to 1.
    pub(crate) stolen: f64,
    /// Part of the CPUs' time that was used by neither rtscope's own process nor idling, 0 to 1: by
    /// others, where no load runs.
    pub(crate) others: Option<f64>,
    /// Part of the CPUs' time of each class of [`CpuClass::ALL`], 0 to 1.
    pub(crate) classes: Option<[f64; 8]>,
    /// The interrupt line that came most often, and how often.
    pub(crate) busiest: Option<(String, f64)>,
}

/// What a phase came to, once its last slices are in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) cell: usize,
    pub(crate) why: EndReason,
    pub(crate) took_ns: u64,
    /// Label and sum of each thread.
    pub(crate) lanes: Vec<(String, Sum)>,
}

/// A phase that ended, whose last slices may still be on their way.
#[derive(Clone, Debug)]
struct Closing {
    summary: Summary,
    due_ns: u64,
    bounds: Option<Bounds>,
    /// Interval of each thread.
    intervals: Vec<u64>,
}

/// How long after a phase's end its last slices are waited for, at least: two looks of the control
/// thread. A thread hands a slice over at its next activation.
const SLICES_DUE_NS: u64 = 100_000_000;

/// Everything that the screens show.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) plan: String,
    pub(crate) title: String,
    pub(crate) cells: Vec<CellState>,
    /// The phase that runs; none in warm-up and between phases.
    pub(crate) running: Option<usize>,
    /// The phase that the figures belong to: the running one, or the last that ran.
    pub(crate) shown: Option<usize>,
    pub(crate) lanes: Vec<Lane>,
    /// The histograms of all lanes together.
    pub(crate) all: Density,
    pub(crate) trails: Vec<Trail>,
    pub(crate) loads: Vec<Load>,
    pub(crate) machine: Option<Machine>,
    pub(crate) log: Log,
    /// How far the claim is that the run goes on for, in words.
    pub(crate) claim: Option<String>,
    /// Age of the run at the last event.
    pub(crate) at_ns: u64,
    /// How much of the plan is done, 0 to 1, and how much time is left.
    pub(crate) done: f64,
    pub(crate) left_ns: u64,
    /// How long the whole plan is expected to take.
    pub(crate) expected_ns: u64,
    pub(crate) ended: Option<EndReason>,
    layout: Layout,
    first_thread: u32,
    sums: Vec<Sum>,
    closing: Option<Closing>,
    summaries: VecDeque<Summary>,
}

impl State {
    pub(crate) fn new(plan: &Plan) -> State {
        let layout = plan.phases.first().map(|phase| phase.sampler.layout()).unwrap_or_default();
        let expected_ns = plan.expected().0;
        State {
            plan: plan.name.clone(),
            title: plan.title.clone(),
            cells: plan.phases.iter().map(|phase| cell_of(plan, phase)).collect(),
            running: None,
            shown: None,
            lanes: Vec::new(),
            all: Density::new(layout),
            trails: Vec::new(),
            loads: Vec::new(),
            machine: None,
            log: Log::default(),
            claim: None,
            at_ns: 0,
            done: 0.0,
            left_ns: expected_ns,
            expected_ns,
            ended: None,
            layout,
            first_thread: 0,
            sums: Vec::new(),
            closing: None,
            summaries: VecDeque::new(),
        }
    }

    pub(crate) fn apply(&mut self, stamped: &Stamped) {
        self.at_ns = self.at_ns.max(stamped.at_ns);
        self.log.note(stamped, &self.lanes, self.first_thread);
        match &stamped.event {
            Event::SessionStarted { layout, first_thread, .. } => {
                self.close();
                self.lanes.clear();
                self.sums.clear();
                (self.layout, self.first_thread) = (*layout, *first_thread);
                self.all = Density::new(*layout);
            }
            Event::ThreadPlaced { interval_ns, found, .. } => {
                let label = label_of(&found.cpus, self.lanes.len(), &self.lanes);
                let trail = self.trail_of(&label);
                self.lanes.push(Lane {
                    label,
                    place: place_of(found),
                    interval_ns: *interval_ns,
                    live: Default::default(),
                    density: Density::new(self.layout),
                    trail,
                });
                self.sums.push(Sum::default());
            }
            Event::PhaseStarted { cell, .. } => self.begin(*cell as usize),
            Event::PhaseEnded { cell, why, bounds } => self.end(*cell as usize, *why, *bounds),
            Event::LoadStarted { line, load, .. } => {
                self.load(*load, |known| known.line.clone_from(line))
            }
            Event::LoadRate { load, span_ns, work, unit, .. } => self.load(*load, |known| {
                let span_s = *span_ns as f64 / 1e9;
                known.rate = (*span_ns > 0).then(|| *work as f64 / span_s).or(known.rate);
                known.unit.clone_from(unit);
            }),
            Event::LoadEnded { load, ok, .. } => self.load(*load, |known| known.ended = Some(*ok)),
            Event::System(span) => self.machine = machine_of(span),
            Event::Slice(slice) => self.slice(slice),
            Event::Progress(progress) => self.progress(progress),
            Event::RunEnded { why, .. } => {
                self.close();
                self.ended = Some(*why);
            }
            _ => {}
        }
    }

    /// The next finished phase, in order, once.
    pub(crate) fn take_summary(&mut self) -> Option<Summary> {
        if self.closing.as_ref().is_some_and(|closing| self.at_ns >= closing.due_ns) {
            self.close();
        }
        self.summaries.pop_front()
    }

    /// Whether the last slices of a finished phase are still awaited.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// No more events will come: what is still awaited is closed as it is.
    pub(crate) fn close(&mut self) {
        let Some(mut closing) = self.closing.take() else { return };
        let lanes = closing.summary.lanes.iter_mut().zip(&closing.intervals);
        for ((_, sum), interval_ns) in lanes {
            if let Some(bounds) = closing.bounds {
                sum.look(bounds, *interval_ns, self.at_ns);
            }
        }
        self.summaries.push_back(closing.summary);
    }

    /// The limits of the phase that the figures belong to.
    pub(crate) fn limits(&self) -> Limits {
        self.shown.map(|cell| self.cells[cell].limits).unwrap_or_default()
    }

    /// What runs now, in words.
    pub(crate) fn phase_name(&self) -> &str {
        match (self.running, self.shown) {
            (Some(cell), _) => &self.cells[cell].name,
            (None, _) if self.ended.is_some() => "finished",
            (None, None) if self.lanes.is_empty() => "starting",
            (None, None) => "warm-up",
            (None, Some(_)) => "between phases",
        }
    }

    fn trail_of(&mut self, label: &str) -> usize {
        let known = self.trails.iter().position(|trail| trail.label == label);
        known.unwrap_or_else(|| {
            self.trails.push(Trail::new(label));
            self.trails.len() - 1
        })
    }

    fn begin(&mut self, cell: usize) {
        let Some(known) = self.cells.get_mut(cell) else { return };
        (known.status, known.started_ns) = (Status::Running, self.at_ns);
        (self.running, self.shown) = (Some(cell), Some(cell));
        self.all.clear();
        self.loads.clear();
        self.sums.fill(Sum::default());
        for lane in &mut self.lanes {
            lane.density.clear();
            lane.live = Default::default();
        }
    }

    fn end(&mut self, cell: usize, why: EndReason, bounds: Option<Bounds>) {
        self.close();
        let Some(known) = self.cells.get_mut(cell) else { return };
        known.ended_ns = self.at_ns;
        known.status = match why {
            EndReason::Failed => Status::Failed,
            EndReason::Break | EndReason::Interrupted => Status::Cut,
            _ => Status::Done,
        };
        self.running = None;
        let lanes = self.lanes.iter().zip(&self.sums);
        let lanes = lanes.map(|(lane, sum)| (lane.label.clone(), *sum)).collect();
        let took_ns = self.at_ns.saturating_sub(known.started_ns);
        let slowest_ns = self.lanes.iter().map(|lane| lane.interval_ns).max().unwrap_or(0);
        let due_ns = self.at_ns + SLICES_DUE_NS.max(slowest_ns.saturating_mul(2));
        let summary = Summary { cell, why, took_ns, lanes };
        let intervals = self.lanes.iter().map(|lane| lane.interval_ns).collect();
        self.closing = Some(Closing { summary, due_ns, bounds, intervals });
    }

    fn load(&mut self, load: u32, change: impl FnOnce(&mut Load)) {
        let nth = load as usize;
        if self.loads.len() == nth {
            let (line, unit) = (String::new(), String::new());
            self.loads.push(Load { line, rate: None, unit, ended: None });
        }
        self.loads.get_mut(nth).map(change);
    }

    fn slice(&mut self, slice: &Slice) {
        let Scope::Cell(cell) = slice.scope else { return };
        let nth = slice.thread.wrapping_sub(self.first_thread) as usize;
        let Some(lane) = self.lanes.get_mut(nth) else { return };
        if slice.recorded > 0 {
            self.trails[lane.trail].push(slice.max_at_ns, slice.max_ns);
        }
        if let Some(closing) = &mut self.closing
            && closing.summary.cell == cell as usize
        {
            closing.summary.lanes[nth].1.add(slice);
        }
        if self.shown == Some(cell as usize) {
            self.sums[nth].add(slice);
            lane.density.add(slice, self.layout);
            self.all.add(slice, self.layout);
        }
    }

    fn progress(&mut self, progress: &Progress) {
        (self.done, self.left_ns) = (progress.done.clamp(0.0, 1.0), progress.left_ns);
        let is_running = progress.cell.is_some_and(|cell| self.running == Some(cell as usize));
        for live in &progress.threads {
            let nth = live.thread.wrapping_sub(self.first_thread) as usize;
            if let (Some(lane), Some(sum)) = (self.lanes.get_mut(nth), self.sums.get_mut(nth)) {
                if is_running && live.recorded > lane.live.recorded {
                    sum.answer(self.at_ns);
                }
                lane.live = *live;
            }
        }
    }
}

fn cell_of(plan: &Plan, phase: &Phase) -> CellState {
    let limit = |statistic| {
        let all = plan.require.iter().chain(&phase.require);
        // A claim allows some latencies above its limit: the screen warns of none.
        let strict = all.filter(|r| r.statistic == statistic && r.once_in.is_none());
        strict.map(|r| r.limit).min()
    };
    CellState {
        name: phase.name.clone(),
        status: Status::ToCome,
        limits: Limits {
            max_ns: limit(Statistic::Max),
            mean_ns: limit(Statistic::Mean),
            missed: limit(Statistic::Missed),
        },
        expected: phase.expected(),
        started_ns: 0,
        ended_ns: 0,
    }
}

fn machine_of(span: &SystemSpan) -> Option<Machine> {
    let span_s = span.span_ns as f64 / 1e9;
    let stolen_ns: u64 = span.cpus.iter().map(|cpu| cpu.steal_ns).sum();
    let busy_ns: u64 = span.cpus.iter().map(|cpu| cpu.busy_ns).sum();
    let all_ns = span.span_ns as f64 * span.cpus.len().max(1) as f64;
    (span.span_ns > 0).then(|| Machine {
        switches: span.context_switches as f64 / span_s,
        interrupts: span.interrupts as f64 / span_s,
        stolen: stolen_ns as f64 / all_ns,
        others: span.own_ns.map(|own_ns| busy_ns.saturating_sub(own_ns) as f64 / all_ns),
        classes: classes_of(span),
        busiest: span.lines.first().map(|line| {
            let name = if line.name.is_empty() { &line.line } else { &line.name };
            (name.clone(), line.total() as f64 / span_s)
        }),
    })
}

/// The part of each class of CPU time, all CPUs together.
fn classes_of(span: &SystemSpan) -> Option<[f64; 8]> {
    let sum = |class| span.cpus.iter().map(|cpu| cpu.class_ns(class)).sum::<Option<u64>>();
    let [a, b, c, d, e, f, g, h] = CpuClass::ALL.map(sum);
    let sums = [a?, b?, c?, d?, e?, f?, g?, h?];
    let all_ns: u64 = sums.iter().sum();
    (all_ns > 0).then(|| sums.map(|ns| ns as f64 / all_ns as f64))
}

#[cfg(test)]
mod tests;
