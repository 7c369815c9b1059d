//! An application's thread: placed, parked, released, and what it hands back.

use rtscope_model::{
    sched::JobRun,
    schedule::{Placement, Policy},
    time::Nanos,
};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    mutex::Mutex,
    sched, thread as own,
};

use super::{
    SchedError,
    work::{Calibration, Pieces},
};

/// EBUSY: the kernel has no bandwidth left for a deadline thread.
const NO_BANDWIDTH: i32 = 16;

/// What a thread has to do.
pub(super) struct Task {
    pub(super) name: String,
    pub(super) asked: Placement,
    pub(super) slice: Option<Nanos>,
    /// Of each job.
    pub(super) work: Nanos,
    /// With the mutex.
    pub(super) holds: Nanos,
    pub(super) offset_ns: u64,
    pub(super) period_ns: Option<u64>,
    pub(super) jobs: u32,
    pub(super) calibration: Calibration,
}

/// How a thread was placed.
pub(super) struct Placed {
    pub(super) found: Placement,
    pub(super) slice_ns: Option<u64>,
    /// The kernel had no bandwidth for it.
    pub(super) is_refused: bool,
}

/// What a thread hands back, in the clock's own instants.
pub(super) struct Finished {
    pub(super) placed: Placed,
    pub(super) jobs: Vec<JobRun>,
    pub(super) cpu_ns: u64,
    pub(super) preemptions: u64,
    pub(super) pieces: Pieces,
}

impl Finished {
    pub(super) fn start_ns(&self) -> u64 {
        self.jobs.first().map_or(0, |job| job.start_ns)
    }

    pub(super) fn finish_ns(&self) -> u64 {
        self.jobs.last().map_or(0, |job| job.finish_ns)
    }
}

impl Task {
    /// Places the calling thread and reads back.
    pub(super) fn place(&self) -> Result<Placed, SchedError> {
        let asked = &self.asked;
        let refused = |source| SchedError::Place {
            name: self.name.clone(),
            asked: Box::new(asked.clone()),
            source,
        };
        sched::set_affinity(sched::SELF, &asked.cpus).map_err(refused)?;
        let set = match self.slice {
            Some(slice) => sched::set_slice(sched::SELF, asked, slice.0),
            None => sched::set_policy(sched::SELF, asked),
        };
        let is_refused = match set {
            Err(error)
                if asked.policy == Policy::Deadline && error.errno() == Some(NO_BANDWIDTH) =>
            {
                true
            }
            other => other.map(|()| false).map_err(refused)?,
        };
        Ok(Placed {
            found: sched::placement(sched::SELF).map_err(refused)?,
            slice_ns: self.slice.and_then(|_| sched::slice_ns(sched::SELF)),
            is_refused,
        })
    }

    /// From its release to the end of its last job. One that was refused has nothing to do.
    pub(super) fn run(
        &self,
        placed: Placed,
        release_ns: u64,
        mutex: &Mutex,
    ) -> Result<Finished, SchedError> {
        let clock = SystemClock::MONOTONIC;
        let mut pieces = Pieces::new();
        let mut jobs = Vec::with_capacity(self.jobs as usize);
        let count = if placed.is_refused { 0 } else { self.jobs };
        let before = own::usage();
        let mut until_now = before;
        for n in 0..count {
            let period_ns = self.period_ns.unwrap_or_default();
            let release_ns = release_ns + self.offset_ns + u64::from(n) * period_ns;
            clock.sleep_until_ns(release_ns);
            let start_ns = clock.now_ns();
            let holds = Nanos(self.holds.0.min(self.work.0));
            if holds > Nanos::ZERO {
                let _held = mutex.lock()?;
                self.calibration.compute(holds, &clock, &mut pieces);
            }
            let rest = Nanos(self.work.0 - holds.0);
            if rest > Nanos::ZERO {
                self.calibration.compute(rest, &clock, &mut pieces);
            }
            let finish_ns = clock.now_ns();
            let now = own::usage();
            let used = now - until_now;
            until_now = now;
            let (cpu_ns, preemptions) = (Some(used.cpu_ns), Some(used.involuntary_switches));
            jobs.push(JobRun { release_ns, start_ns, finish_ns, cpu_ns, preemptions });
        }
        let used = until_now - before;
        Ok(Finished {
            placed,
            jobs,
            cpu_ns: used.cpu_ns,
            preemptions: used.involuntary_switches,
            pieces,
        })
    }
}
