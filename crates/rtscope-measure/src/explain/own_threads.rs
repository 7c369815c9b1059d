//! The sampling threads of a run, watched while it measures.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use rtscope_model::{
    cpu::CpuSet,
    event::{Event, Stamped},
    plan::Plan,
};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    sched, thread as own,
    tree::Tree,
};

use super::{ExplainError, ExplainLook, Keep, LOOK, Watch, finder::Finder};

/// The sampling threads of this process, watched beside what it does. Dropping it ends the recording.
#[derive(Debug)]
pub struct OwnThreads {
    told: Arc<Told>,
    /// Until it ends.
    watching: Option<thread::JoinHandle<Result<ExplainLook, ExplainError>>>,
}

/// What the thread that reads the events is told.
#[derive(Debug, Default)]
struct Told {
    /// To end.
    stop: AtomicBool,
    /// The times whose worst activations are kept; all of it where there are none.
    phases: Mutex<Vec<Range<u64>>>,
    /// Where the control thread runs, from the start of a session until the reader has moved there.
    control: Mutex<Option<CpuSet>>,
    /// When the run began, on `CLOCK_MONOTONIC`, as far as that is known.
    start_ns: AtomicU64,
}

impl Told {
    fn phases(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the latest phase.
    fn set_phase(&self, span: Range<u64>) {
        if let Some(phase) = self.phases().last_mut() {
            *phase = span;
        }
    }

    /// Moves the calling thread to the control thread's CPUs. On other CPUs, its work would delay measured threads.
    fn follow_control(&self) {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(cpus) = control {
            let _ = sched::set_affinity(sched::SELF, &cpus);
        }
    }

    fn tell(&self, finder: &mut Finder) {
        finder.keep_in(&self.phases());
    }
}

/// Whether a look interrupts its recording to find out what recording costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pauses {
    /// It does, in a run that is long enough.
    Alternate,
    /// It records all the time: the cost is known otherwise.
    None,
}

impl OwnThreads {
    /// Starts to watch them.
    ///
    /// # Errors
    ///
    /// When the kernel's events can't be read.
    pub fn watch(tree: &Tree, keep: Keep, pauses: Pauses) -> Result<OwnThreads, ExplainError> {
        let mut watch = Watch::start(tree, keep)?;
        let told = Arc::new(Told { start_ns: AtomicU64::new(u64::MAX), ..Told::default() });
        let hears = told.clone();
        let watching = thread::spawn(move || {
            own::block_signals();
            while !hears.stop.load(Relaxed) {
                watch.follow_samplers();
                hears.follow_control();
                thread::sleep(LOOK);
                hears.tell(&mut watch.finder);
                watch.read()?;
                if pauses == Pauses::Alternate {
                    watch.alternate()?;
                }
            }
            hears.tell(&mut watch.finder);
            watch.finish("rtscope run".to_owned())
        });
        Ok(OwnThreads { told, watching: Some(watching) })
    }

    /// Sees an event of the run: of each phase the worst activations are kept, and of no other time.
    pub fn see(&self, plan: &Plan, stamped: &Stamped) {
        let now_ns = SystemClock::MONOTONIC.now_ns();
        // An event is seen after it happened: the shortest delay tells the run's start best.
        let start_ns = now_ns.saturating_sub(stamped.at_ns);
        let start_ns = start_ns.min(self.told.start_ns.fetch_min(start_ns, Relaxed));
        let settles = |cell: u32| {
            let phase = plan.phases.get(cell as usize);
            now_ns + phase.map_or(0, |phase| phase.settle.0)..u64::MAX
        };
        match &stamped.event {
            // Beside a control thread that has to outrank a load, an ordinary thread would starve.
            Event::SessionStarted { control, .. } if !control.policy.is_real_time() => {
                let cpus = Some(control.cpus.clone());
                *self.told.control.lock().unwrap_or_else(PoisonError::into_inner) = cpus;
            }
            Event::PhaseStarted { cell, .. } => self.told.phases().push(settles(*cell)),
            // Only now does the phase settle.
            Event::LoadStarted { cell, .. } => self.told.set_phase(settles(*cell)),
            Event::PhaseEnded { bounds: Some(bounds), .. } => {
                self.told.set_phase(start_ns + bounds.from_ns..start_ns + bounds.to_ns);
            }
            // It counted nothing.
            Event::PhaseEnded { bounds: None, .. } => self.told.set_phase(0..0),
            _ => {}
        }
    }

    /// Ends the look.
    ///
    /// # Errors
    ///
    /// When the kernel's events could not be read.
    ///
    /// # Panics
    ///
    /// If the look did.
    pub fn finish(mut self) -> Result<ExplainLook, ExplainError> {
        let watching = self.watching.take().expect("nothing else ends it");
        self.told.stop.store(true, Relaxed);
        watching.join().expect("the look does not panic")
    }
}

/// A run that could not begin leaves no tracing instance behind.
impl Drop for OwnThreads {
    fn drop(&mut self) {
        if let Some(watching) = self.watching.take() {
            self.told.stop.store(true, Relaxed);
            let _ = watching.join();
        }
    }
}
