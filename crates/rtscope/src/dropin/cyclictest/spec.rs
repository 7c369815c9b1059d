//! What a command line asks for as a session of the sampler.

use rtscope_measure::ps;
use rtscope_model::{
    histogram::{EXACT_MIN, Layout},
    plan::{Overrun, Sleep},
    schedule::{Placement, Policy},
};
use rtscope_sampler::{Beat, Offset, SessionSpec, ThreadPlan, Wake};
use rtscope_sys::tracefs::Marker;

use super::{
    options::{Affinity, Alignment},
    run::{Measurement, Stop},
};

/// Samples that the ring of a thread holds, as in cyclictest.
const RING: usize = 16_384;

/// Exact buckets without a histogram on the command line: for the percentiles.
const BUCKETS: u32 = 10_000;

const SECOND_NS: u64 = 1_000_000_000;

impl Measurement<'_> {
    pub(super) fn spec(&self) -> Result<SessionSpec, Stop> {
        let options = self.options;
        self.check_priorities()?;
        let unit_ns = self.unit().ns();
        // The first latency above a number of whole units.
        let beyond_ns = |units: u64| units.saturating_add(1).saturating_mul(unit_ns);
        let threads = (0..options.threads).map(|n| ThreadPlan {
            thread: n as u32,
            asked: self.placement(n),
            interval_ns: options.interval_of(n).unsigned_abs().saturating_mul(1_000),
        });
        let marker = match options.break_above {
            Some(_) if options.tracemark => {
                Some(Marker::open(self.tree, unit_ns).map_err(Stop::fatal)?)
            }
            _ => None,
        };
        let overflow_ns = (options.buckets > 0).then(|| u64::from(options.buckets) * unit_ns);
        let noted_ns = overflow_ns.into_iter().chain(options.spike.map(beyond_ns)).min();
        let raw_from_ns = if options.verbose { Some(0) } else { noted_ns };
        Ok(SessionSpec {
            threads: threads.collect(),
            layout: Layout {
                unit_ns,
                exact: if options.buckets > 0 { options.buckets.max(EXACT_MIN) } else { BUCKETS },
            },
            slice_ns: SECOND_NS,
            clock: options.clock,
            beat: Beat {
                first_ns: match options.alignment {
                    Alignment::Aligned(us) => us.unsigned_abs() * 1_000,
                    _ => 0,
                },
                interval_ns: SECOND_NS,
                offset: Offset::None,
                sleep: match options.wake {
                    Wake::Nanosleep => Sleep::Relative,
                    _ if options.relative => Sleep::Relative,
                    _ => Sleep::Absolute,
                },
                overrun: Overrun::Skip,
                break_above_ns: options
                    .break_above
                    .map_or(u64::MAX, |b| b.saturating_add(1).saturating_mul(unit_ns) - 1),
                raw_from_ns: raw_from_ns.unwrap_or(u64::MAX),
            },
            raw_capacity: if raw_from_ns.is_some() { RING } else { 0 },
            wake: options.wake,
            // cyclictest leaves it alone, so its ordinary threads are 50 us later than those of a run of ours.
            timer_slack_ns: None,
            marker,
            cells: 1,
            one_cell: true,
            network: None,
            name_holder: ps::holder,
        })
    }

    /// Refuses a spread of priorities that goes below 0, in cyclictest's words, which name the CPU.
    fn check_priorities(&self) -> Result<(), Stop> {
        let options = self.options;
        let below = (0..options.threads).find(|thread| options.priority_of(*thread) < 0);
        let Some(thread) = below else { return Ok(()) };
        let allowed = &self.machine.allowed;
        let cpu = match options.affinity {
            Affinity::Free => allowed.iter().nth(thread % allowed.len().max(1)),
            _ => options.cpus_of(thread, self.machine).last(),
        };
        let (cpu, priority) = (cpu.unwrap_or(0), options.priority_of(thread));
        Err(Stop::fatal(format!("timerthread{cpu}: failed to set priority to {priority}")))
    }

    fn placement(&self, thread: usize) -> Placement {
        let priority = self.options.priority_of(thread).clamp(0, 99) as u8;
        let policy = match self.options.policy {
            // A spread that has reached 0.
            Policy::Fifo | Policy::Rr if priority == 0 => Policy::Other,
            policy => policy,
        };
        let cpus = self.options.cpus_of(thread, self.machine);
        Placement { policy, priority, nice: 0, budget: None, cpus }
    }
}
