//! What happens during a run, as one stream. The terminal, the recorder, the live screen and every
//! other consumer read the same events.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    chain::Chain,
    finding::Finding,
    histogram::Layout,
    machine_use::{CpuClass, InterruptLine, absorb_lines},
    origin::Origin,
    other_work::{NewRealTimeThreads, OtherWork},
    schedule::Placement,
    slice::Slice,
};

/// Version of the record's format. It grows when an old reader would misread a new record.
pub const FORMAT: u32 = 1;

/// An event and when it was seen, in nanoseconds since the start of the run (`CLOCK_MONOTONIC`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stamped {
    pub at_ns: u64,
    #[serde(flatten)]
    pub event: Event,
}

/// Why a phase or a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// Its duration passed.
    Duration,
    /// A thread recorded the asked number of cycles.
    Cycles,
    /// A load with an end of its own did its work.
    LoadEnded,
    /// Every claim of the phase was backed or refuted (phases only): its own end, as a duration is.
    Decided,
    /// A latency was above the break threshold.
    Break,
    /// SIGINT or SIGTERM.
    Interrupted,
    /// Something failed; a finding says what.
    Failed,
    /// All phases are done (runs only).
    Finished,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// First event of a record.
    RunStarted {
        /// [`FORMAT`].
        format: u32,
        version: String,
        /// The command line, as typed.
        command: Vec<String>,
        /// RFC 3339.
        wall_clock: String,
        /// `CLOCK_MONOTONIC` at the start of the run, to line up with a trace.
        monotonic_ns: u64,
    },
    /// A system setting was changed and read back.
    SettingChanged {
        /// Name, as `throttling`.
        setting: String,
        path: String,
        from: String,
        to: String,
    },
    /// A system setting was put back.
    SettingRestored { setting: String, path: String, to: String },
    /// A set of sampling threads is about to start.
    SessionStarted {
        session: u32,
        first_cell: u32,
        cells: u32,
        /// Buckets of its histograms.
        layout: Layout,
        /// Index of its first thread over all sessions.
        first_thread: u32,
        threads: u32,
        /// Memory that was locked when the threads were released (`VmLck`), in KiB.
        locked_kib: u64,
        /// Where the control thread ran.
        control: Placement,
    },
    /// A thread was placed while parked, and read back.
    ThreadPlaced {
        /// Index over all sessions.
        thread: u32,
        session: u32,
        tid: u32,
        interval_ns: u64,
        asked: Placement,
        found: Placement,
    },
    /// A cell's figures were read from another tool's file.
    CellImported {
        cell: u32,
        /// Buckets of its histograms.
        layout: Layout,
        /// Index of its threads' session.
        session: u32,
        origin: Origin,
    },
    /// A thread of an imported cell. Where and how it ran was not read back by anyone.
    ThreadImported {
        /// Index over all sessions.
        thread: u32,
        session: u32,
        label: String,
        /// Its CPU, where the source says it.
        cpu: Option<u32>,
        /// Its interval, where the source or the user says it.
        interval_ns: Option<u64>,
    },
    /// A phase began. Samples count from slightly later on: see `bounds` of its end.
    PhaseStarted { cell: u32, name: String },
    /// A phase ended: samples count no longer. Its loads are ended after it.
    PhaseEnded {
        cell: u32,
        /// Why; never [`EndReason::Finished`].
        #[serde(deserialize_with = "of_phase")]
        why: EndReason,
        /// Which activations belong to the cell; none in older records, and when it had not begun to count.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bounds: Option<Bounds>,
    },
    LoadStarted {
        cell: u32,
        /// Index in the cell's list of loads.
        load: u32,
        line: String,
        pid: u32,
    },
    /// What a load achieved in about one slice.
    LoadRate {
        cell: u32,
        /// Index in the cell's list of loads.
        load: u32,
        /// Length of the span that ends now.
        span_ns: u64,
        /// Units of work done in the span.
        work: u64,
        /// What a unit is, as `messages`.
        unit: String,
        /// Spans of about a second that this one joins.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        spans: u64,
        /// Those of several in which no unit of work was done; see [`Event::idle_spans`].
        #[serde(default, skip_serializing_if = "IdleSpans::is_empty")]
        idle: IdleSpans,
    },
    LoadEnded {
        cell: u32,
        /// Index in the cell's list of loads.
        load: u32,
        /// Units of work done in its phase.
        work: u64,
        /// Whether it ended as it should: by our stop, or because its work was done.
        ok: bool,
        how: String,
    },
    /// The machine's own counters over about one slice.
    System(SystemSpan),
    /// Who used the CPUs in a phase; seen at its end.
    OtherWork(OtherWork),
    /// Real-time threads that came up since the run began, seen at the end of a phase.
    NewRealTimeThreads(NewRealTimeThreads),
    /// What a thread saw in one slice.
    Slice(Slice),
    /// For live screens, several times a second; never recorded.
    Progress(Progress),
    /// A latency was above the break threshold.
    BreakHit {
        thread: u32,
        latency_ns: u64,
        /// Its programmed expiry, since the start of the run.
        expiry_ns: u64,
    },
    /// A thread left the loop.
    ThreadEnded {
        /// Index over all sessions.
        thread: u32,
        /// What it cost and suffered inside the loop.
        tally: Tally,
        /// Its place, read back when it had left the loop.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<Placement>,
    },
    /// Something its reader must know.
    Found(Finding),
    /// Last event of a record.
    RunEnded {
        why: EndReason,
        /// How each file of slices ends, by name; none in older records.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        files: BTreeMap<String, Chain>,
        /// The checksum of each file that is written as a whole, by name; none in older records.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        whole: BTreeMap<String, u32>,
    },
}

/// The activations of a cell: those that are due from `from_ns` on and before `to_ns`, whenever they are
/// answered. In nanoseconds since the start of the run, on the sampler's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// The first instant.
    pub from_ns: u64,
    /// The first instant after it.
    pub to_ns: u64,
}

/// Why a phase ended. Only a run is finished.
fn of_phase<'de, D: Deserializer<'de>>(d: D) -> Result<EndReason, D::Error> {
    match EndReason::deserialize(d)? {
        EndReason::Finished => Err(serde::de::Error::custom("a run is finished, a phase never is")),
        why => Ok(why),
    }
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(n: &u64) -> bool {
    *n == 1
}

/// Shorter spans are not asked whether a load was idle in them: the last one of a phase may be a few
/// milliseconds, in which the scheduler may well have run something else.
const IDLE_FROM_NS: u64 = 100_000_000;

/// Spans in which a load did nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleSpans {
    pub spans: u64,
    /// How long they are together, in nanoseconds.
    pub span_ns: u64,
}

impl IdleSpans {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans == 0
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: IdleSpans) -> IdleSpans {
        IdleSpans {
            spans: self.spans.saturating_add(other.spans),
            span_ns: self.span_ns.saturating_add(other.span_ns),
        }
    }
}

impl Event {
    /// The end of a run; the recorder adds what its files hold.
    #[must_use]
    pub fn run_ended(why: EndReason) -> Event {
        Event::RunEnded { why, files: BTreeMap::new(), whole: BTreeMap::new() }
    }

    /// What a load achieved in one span.
    #[must_use]
    pub fn load_rate(cell: u32, load: u32, span_ns: u64, work: u64, unit: &str) -> Event {
        let (unit, idle) = (unit.to_owned(), IdleSpans::default());
        Event::LoadRate { cell, load, span_ns, work, unit, spans: 1, idle }
    }

    /// Spans of a load's rate in which it did nothing.
    #[must_use]
    pub fn idle_spans(&self) -> IdleSpans {
        match self {
            Event::LoadRate { spans: 1, work: 0, span_ns: span_ns @ IDLE_FROM_NS.., .. } => {
                IdleSpans { spans: 1, span_ns: *span_ns }
            }
            Event::LoadRate { spans: 2.., idle, .. } => *idle,
            _ => IdleSpans::default(),
        }
    }
}

/// The machine's own counters over a span.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemSpan {
    /// Length of the span that ends now.
    pub span_ns: u64,
    /// Context switches on all CPUs.
    pub context_switches: u64,
    /// Interrupts on all CPUs.
    pub interrupts: u64,
    /// Times that the scheduler throttled real-time threads, where the kernel shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<u64>,
    /// CPU time of rtscope's own process; that of its loads is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_ns: Option<u64>,
    /// Energy that the CPUs' packages used, in microjoules, where the kernel shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_uj: Option<u64>,
    /// CPU time by CPU.
    pub cpus: Vec<CpuSpan>,
    /// Interrupts by line, the busiest first; none in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<InterruptLine>,
}

impl SystemSpan {
    /// Joins the span that follows to this one: every counter is the sum of both.
    pub fn absorb(&mut self, next: &SystemSpan) {
        self.span_ns = self.span_ns.saturating_add(next.span_ns);
        self.context_switches = self.context_switches.saturating_add(next.context_switches);
        self.interrupts = self.interrupts.saturating_add(next.interrupts);
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.throttled = sum(self.throttled, next.throttled);
        self.own_ns = sum(self.own_ns, next.own_ns);
        self.energy_uj = sum(self.energy_uj, next.energy_uj);
        for cpu in &next.cpus {
            match self.cpus.iter_mut().find(|own| own.cpu == cpu.cpu) {
                Some(own) => own.absorb(cpu),
                None => self.cpus.push(*cpu),
            }
        }
        absorb_lines(&mut self.lines, &next.lines);
    }
}

/// One CPU's time over a span, in nanoseconds (a clock tick, often 10 ms, is the grain).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSpan {
    pub cpu: u32,
    /// Not idle.
    pub busy_ns: u64,
    /// Taken by the hypervisor while the CPU wanted to run.
    pub steal_ns: u64,
    /// User, nice, system, waiting for a device, interrupts, soft interrupts, idle: in this order, which is
    /// that of [`CpuClass::ALL`] without steal. None in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_ns: Option<[u64; 7]>,
}

impl CpuSpan {
    /// The time of a class; none in older records.
    #[must_use]
    pub fn class_ns(&self, class: CpuClass) -> Option<u64> {
        let [user, nice, system, iowait, irq, softirq, idle] = self.times_ns?;
        Some(match class {
            CpuClass::User => user,
            CpuClass::Nice => nice,
            CpuClass::System => system,
            CpuClass::Iowait => iowait,
            CpuClass::Irq => irq,
            CpuClass::Softirq => softirq,
            CpuClass::Steal => self.steal_ns,
            CpuClass::Idle => idle,
        })
    }

    fn absorb(&mut self, next: &CpuSpan) {
        self.busy_ns = self.busy_ns.saturating_add(next.busy_ns);
        self.steal_ns = self.steal_ns.saturating_add(next.steal_ns);
        // Of a span whose classes are not known, the sum isn't known either.
        self.times_ns = self.times_ns.zip(next.times_ns).map(|(mut sum, next)| {
            sum.iter_mut().zip(next).for_each(|(sum, next)| *sum = sum.saturating_add(next));
            sum
        });
    }
}

/// What a thread cost and suffered between its first and its last wake-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Wake-ups, discarded ones included.
    pub wakeups: u64,
    /// CPU time, user and system.
    pub cpu_ns: u64,
    pub wall_ns: u64,
    /// Page faults without I/O: must be 0.
    pub minor_faults: u64,
    /// Page faults with I/O: must be 0.
    pub major_faults: u64,
    /// Times it went to sleep.
    pub voluntary_switches: u64,
    /// Times it was preempted.
    pub involuntary_switches: u64,
    /// Wake-ups on another CPU than the one before.
    pub migrations: u64,
    /// Raw samples that found the ring full.
    pub raw_lost: u64,
    /// Omitted activations that were counted as missed but not expanded into the corrected histogram.
    pub omitted_unexpanded: u64,
    /// Wake-ups that are in no slice, because the control thread was held up so long that none was free.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub without_slot: u64,
    /// System management interrupts on its CPU, where readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smi: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What a live screen shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Index of the running cell; none in warm-up and between cells.
    pub cell: Option<u32>,
    /// How much of the whole plan is done, 0 to 1.
    pub done: f64,
    /// Time left in the whole plan.
    pub left_ns: u64,
    /// Each thread of the running session.
    pub threads: Vec<Live>,
}

/// The live figures of one thread, in the running cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// Index over all sessions.
    pub thread: u32,
    /// Its CPU, or where it was last seen.
    pub cpu: u32,
    /// Latency of its last wake-up.
    pub now_ns: u64,
    /// Smallest in the cell.
    pub min_ns: u64,
    /// Mean in the cell.
    pub mean_ns: u64,
    /// Largest in the cell.
    pub max_ns: u64,
    /// Recorded in the cell.
    pub recorded: u64,
    /// Missed in the cell.
    pub missed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_never_finished() {
        let ended = |event: &str, why: &str| {
            let text = format!(r#"{{"at_ns":1,"event":"{event}","cell":0,"why":"{why}"}}"#);
            serde_json::from_str::<Stamped>(&text)
        };
        assert!(ended("phase-ended", "duration").is_ok());
        assert!(ended("phase-ended", "finished").is_err());
        assert!(ended("run-ended", "finished").is_ok());
    }
}
