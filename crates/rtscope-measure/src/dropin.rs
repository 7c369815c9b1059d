//! A session without plan and record: what `rtscope cyclictest` measures with.

use std::{io, time::Duration};

use rtscope_model::{
    cpu::CpuSet,
    event::Live,
    schedule::Placement,
    slice::{RawSample, Slice},
};
use rtscope_sampler::{EndedThread, Remainder, SampleError, Session, SessionSpec, Starved};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    sched,
};

use crate::{
    signals::Interrupt,
    watchdog::{UNATTENDED, Watchdog},
};

/// How long parked threads are given between release and first expiry.
const RELEASE_MARGIN_NS: u64 = 10_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// Why threads could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ParkError {
    #[error(transparent)]
    Interrupt(#[from] io::Error),
    #[error(transparent)]
    Sample(#[from] SampleError),
}

/// When threads start, and when they end by themselves.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// So long after a full second of the clock; none for at once.
    pub after_second_ns: Option<u64>,
    /// Activations of a thread.
    pub loops: Option<u64>,
    /// From the first expiry on.
    pub duration_ns: Option<u64>,
    /// Time between two looks.
    pub look: Duration,
}

/// Threads that measure, or wait for their release.
#[derive(Debug)]
pub struct Measurement {
    session: Session,
    interrupt: Interrupt,
    watchdog: Watchdog,
    look: Duration,
    until_ns: u64,
}

/// What became of the threads.
#[derive(Debug)]
pub struct EndedThreads {
    pub ended: Vec<EndedThread>,
    /// Those that did not run any more.
    pub starved: Vec<Starved>,
    /// A thread ran for a second without sleeping.
    pub is_runaway: bool,
}

impl Measurement {
    /// Starts the threads, which wait. A signal that ends the process ends their measuring.
    ///
    /// # Errors
    ///
    /// When a thread can't be had or placed, or no signal can be handled.
    pub fn park(spec: &SessionSpec) -> Result<Measurement, ParkError> {
        let interrupt = Interrupt::install_patient()?;
        // Before there is a real-time thread: nobody may be left to look after the first one.
        let watchdog = Watchdog::over_sleepers(UNATTENDED);
        // The oldest age there is puts the origin of all instants at that of the clock.
        let session = Session::park(spec, u64::MAX)?;
        Ok(Measurement { session, interrupt, watchdog, look: Duration::ZERO, until_ns: u64::MAX })
    }

    /// The kernel's number and the place of each thread.
    #[must_use]
    pub fn placed(&self) -> &[(i32, Placement)] {
        &self.session.placed
    }

    /// Lets the threads measure.
    pub fn release(&mut self, limits: &Limits) {
        self.look = limits.look;
        self.session.enter(0, limits.loops);
        let start_ns = start_ns(self.session.now_ns(), limits.after_second_ns);
        self.session.release(start_ns);
        let duration_ns = limits.duration_ns.unwrap_or(u64::MAX);
        self.until_ns = start_ns.saturating_add(duration_ns);
    }

    /// How long to wait for the next look.
    #[must_use]
    pub fn pause(&self) -> Duration {
        let left_ns = self.until_ns.saturating_sub(self.session.now_ns());
        self.look.min(Duration::from_nanos(left_ns))
    }

    /// Hands over the slices that are full.
    pub fn drain(&mut self, slice: impl FnMut(Slice)) {
        self.watchdog.renew();
        self.session.drain(slice);
    }

    /// Hands over the single samples since the last look, and what the threads show now.
    pub fn look(&mut self, sample: impl FnMut(u32, RawSample)) -> Vec<Live> {
        self.session.drain_raw(sample);
        self.session.live()
    }

    /// Whether a limit, a signal or a latency above the threshold ends the measuring, or a thread that doesn't run.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let session = &self.session;
        session.is_broken()
            || session.is_full()
            || self.interrupt.is_stopped()
            || session.now_ns() >= self.until_ns
            || session.starved(self.look).is_some()
    }

    /// Ends the threads and hands over what was left.
    pub fn end(self, left: impl FnMut(Remainder)) -> EndedThreads {
        let (ended, starved) = self.session.stop(left);
        EndedThreads { ended, starved, is_runaway: self.interrupt.is_runaway() }
    }
}

impl EndedThreads {
    /// The thread whose latency was the first above the threshold, and that latency.
    #[must_use]
    pub fn first_break(&self) -> Option<(u32, u64)> {
        let broke = |ended: &EndedThread| {
            ended.broke_at.map(|(latency_ns, at_ns)| (at_ns + latency_ns, latency_ns, ended.thread))
        };
        let (_, latency_ns, thread) = self.ended.iter().filter_map(broke).min()?;
        Some((thread, latency_ns))
    }
}

/// The instant of the first expiry.
fn start_ns(now_ns: u64, after_second_ns: Option<u64>) -> u64 {
    let Some(offset_ns) = after_second_ns else { return now_ns + RELEASE_MARGIN_NS };
    let more = if now_ns % SECOND_NS > 900_000_000 { 2 } else { 1 };
    (now_ns / SECOND_NS + more) * SECOND_NS + offset_ns
}

/// Places the calling thread: as it was asked to, or off the CPUs of threads that are pinned if there are others.
pub fn place_control(
    asked: Option<&CpuSet>,
    pinned: Option<&SessionSpec>,
    allowed: &CpuSet,
) -> Result<(), rtscope_sys::Error> {
    let off = pinned.map(|spec| {
        let measured: CpuSet = spec.threads.iter().flat_map(|t| t.asked.cpus.iter()).collect();
        allowed.without(&measured)
    });
    match asked.or(off.as_ref().filter(|others| !others.is_empty())) {
        Some(cpus) => sched::set_affinity(sched::SELF, cpus),
        None => Ok(()),
    }
}

/// The smallest step that a clock shows.
#[must_use]
pub fn smallest_step_ns(clock: &SystemClock) -> u64 {
    let mut last_ns = clock.now_ns();
    let steps = (0..1_000_000).filter_map(|_| {
        let now_ns = clock.now_ns();
        let step_ns = now_ns - std::mem::replace(&mut last_ns, now_ns);
        (step_ns > 0).then_some(step_ns)
    });
    steps.take(100_000).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use rtscope_model::event::Tally;

    use super::*;

    #[test]
    fn a_start_after_a_full_second_leaves_time_to_get_there() {
        let at = |now_ns| start_ns(now_ns, Some(250));
        assert_eq!([5_000_000_000, 5_900_000_000].map(at), [6_000_000_250; 2]);
        assert_eq!(at(5_900_000_001), 7_000_000_250);
    }

    #[test]
    fn the_latency_that_ended_first_broke_the_run() {
        let ended = |thread, broke_at| EndedThread {
            thread,
            tally: Tally::default(),
            found: None,
            without_slot: 0,
            broke_at,
        };
        // The second expired earlier, but the first had its answer earlier.
        let ended = vec![ended(0, Some((50, 1_000))), ended(1, Some((900, 500))), ended(2, None)];
        let ending = EndedThreads { ended, starved: Vec::new(), is_runaway: false };
        assert_eq!(ending.first_break(), Some((0, 50)));
    }
}
