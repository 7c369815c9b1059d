//! The latency sampler beside a transfer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use rtscope_model::{plan::Sleep, schedule::Placement, throughput::SampledLatencies, time::Nanos};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    sched, thread as own,
};

use super::ThroughputError;
use crate::{
    drift::beat::{self, Beat},
    watchdog::{UNATTENDED, Watchdog},
};

/// Between two expiries of the sampler.
const INTERVAL_NS: u64 = 1_000_000;

/// From the sampler's placing to its first expiry.
const LEAD_NS: u64 = 20_000_000;

/// A thread that wakes each millisecond and notes how late.
pub(super) struct Sampler {
    stop: Arc<AtomicBool>,
    /// Until it ends.
    thread: Option<thread::JoinHandle<Result<SampledLatencies, ThroughputError>>>,
    /// Dropped after the thread has ended.
    _watchdog: Watchdog,
}

/// How long the thread may take to place itself.
const PLACING_LIMIT: Duration = Duration::from_secs(5);

impl Sampler {
    pub(super) fn start(place: &Placement, duration: Nanos) -> Result<Sampler, ThroughputError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (told, asked, wanted) = (stop.clone(), place.clone(), place.clone());
        // Transfers take a little longer than asked.
        let room = (duration.0 / INTERVAL_NS * 2 + 10_000) as usize;
        let mut noted = Vec::with_capacity(room);
        let (tell, placed) = mpsc::channel();
        let watchdog = Watchdog::over_sleepers(Duration::from_nanos(duration.0) + UNATTENDED);
        let thread = thread::spawn(move || {
            own::block_signals();
            own::set_timer_slack_ns(1);
            let placement = sched::place(&asked)
                .map_err(|cause| ThroughputError::Place { asked: Box::new(asked), cause })?;
            let _ = tell.send(());
            let beat = Beat {
                start_ns: SystemClock::MONOTONIC.now_ns() + LEAD_NS,
                period_ns: INTERVAL_NS,
                sleep: Sleep::Absolute,
                duration_ns: u64::MAX,
            };
            let missed = beat::run(&SystemClock::MONOTONIC, &beat, &told, &mut noted, || {});
            let latencies_ns =
                noted.iter().map(|one| one.woke_ns.saturating_sub(one.expiry_ns)).collect();
            Ok(SampledLatencies { placement, interval_ns: INTERVAL_NS, latencies_ns, missed })
        });
        let mut sampler = Sampler { stop, thread: Some(thread), _watchdog: watchdog };
        // A thread that can't be placed ends, and its end of the channel with it.
        match placed.recv_timeout(PLACING_LIMIT) {
            Ok(()) => Ok(sampler),
            Err(RecvTimeoutError::Disconnected) => {
                Err(sampler.finish().err().unwrap_or(ThroughputError::Thread))
            }
            Err(RecvTimeoutError::Timeout) => {
                // Joining the thread would block, too.
                drop(sampler.thread.take());
                Err(ThroughputError::Starved(Box::new(wanted), PLACING_LIMIT.as_secs()))
            }
        }
    }

    pub(super) fn finish(mut self) -> Result<SampledLatencies, ThroughputError> {
        self.end().ok_or(ThroughputError::Thread)?
    }

    fn end(&mut self) -> Option<Result<SampledLatencies, ThroughputError>> {
        self.stop.store(true, Relaxed);
        self.thread.take()?.join().ok()
    }
}

/// A real-time thread must not go on after its transfer has failed.
impl Drop for Sampler {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
