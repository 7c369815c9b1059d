//! Signals that end a run: each sets a flag that the control thread looks at.
//!
//! From the first change of a system setting on, none of them ends the process any more, whatever verb it
//! runs: see [`protect_settings`].

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use signal_hook::{
    SigId,
    consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGXCPU},
};

/// The signals by which a user ends a run.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// What the process does at these signals.
static PROCESS: Mutex<Process> = Mutex::new(Process { shutdowns: Vec::new(), early: None });

struct Process {
    /// What ends it at a second SIGINT.
    shutdowns: Vec<SigId>,
    /// Set by a signal that came after the first change of a setting; none before that change.
    early: Option<Arc<AtomicBool>>,
}

fn process() -> MutexGuard<'static, Process> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// System settings are about to be changed: from now on no number of SIGINTs, SIGTERMs or SIGHUPs ends the
/// process before it has restored them. A signal that comes before anybody listens to it is kept for
/// [`Interrupt::install`]. SIGQUIT (Ctrl-\\) still ends the process at once.
pub(crate) fn protect_settings() -> io::Result<()> {
    let mut process = process();
    for shutdown in process.shutdowns.drain(..) {
        signal_hook::low_level::unregister(shutdown);
    }
    if process.early.is_none() {
        let early = Arc::new(AtomicBool::new(false));
        for signal in ENDING {
            signal_hook::flag::register(signal, early.clone())?;
        }
        process.early = Some(early);
    }
    Ok(())
}

/// Signals that are for a program that this process started and waits for.
///
/// A terminal sends Ctrl-C to that program as well, which decides what it means: a debugger goes on. So SIGINT does
/// nothing here. SIGTERM and SIGHUP are to be sent on.
#[derive(Debug)]
pub struct ForwardedSignals(Arc<AtomicUsize>);

impl ForwardedSignals {
    /// Listens to signals from now on. The program that is started gets the usual effects of all of them.
    pub fn install() -> io::Result<ForwardedSignals> {
        let last = Arc::new(AtomicUsize::new(0));
        for signal in [SIGTERM, SIGHUP] {
            signal_hook::flag::register_usize(signal, last.clone(), signal as usize)?;
        }
        // A handler that does nothing: exec resets it, but would hand an ignored signal on.
        signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)))?;
        Ok(ForwardedSignals(last))
    }

    /// The signal that came since the last call.
    #[must_use]
    pub fn take(&self) -> Option<i32> {
        i32::try_from(self.0.swap(0, Relaxed)).ok().filter(|signal| *signal != 0)
    }
}

/// Whether the run shall end, and why.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    stop: Arc<AtomicBool>,
    runaway: Arc<AtomicBool>,
    decided: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
}

impl Interrupt {
    /// Ends the run at SIGINT, SIGTERM or SIGHUP, and when the kernel says (SIGXCPU) that a
    /// real-time thread of ours ran too long without sleeping. A second SIGINT ends the process unless
    /// it has changed system settings. A second SIGXCPU always does: its handler runs in the thread
    /// that runs, however starved the machine is, and needs nobody else to end it.
    pub fn install() -> io::Result<Interrupt> {
        let interrupt = Interrupt::default();
        let mut process = process();
        if process.early.is_none() {
            let stop = interrupt.stop.clone();
            // Before the handlers that set the flags: it ends the process when they are set already.
            let shutdown = signal_hook::flag::register_conditional_shutdown(SIGINT, 130, stop)?;
            process.shutdowns.push(shutdown);
        }
        drop(process);
        interrupt.listen()
    }

    /// As [`Interrupt::install`], but further SIGINTs never change anything: a run must come to its verdict,
    /// and `timeout -s INT` sends two, one to the process and one to its group.
    pub fn install_patient() -> io::Result<Interrupt> {
        Interrupt::default().listen()
    }

    fn listen(self) -> io::Result<Interrupt> {
        signal_hook::flag::register_conditional_shutdown(SIGXCPU, 1, self.runaway.clone())?;
        for signal in ENDING {
            signal_hook::flag::register(signal, self.stop.clone())?;
        }
        if process().early.as_ref().is_some_and(|early| early.swap(false, Relaxed)) {
            self.stop();
        }
        signal_hook::flag::register(SIGXCPU, self.runaway.clone())?;
        signal_hook::flag::register(SIGCONT, self.continued.clone())?;
        Ok(self)
    }

    /// Ends the run from inside the process, as the live screen's `q` does.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Ends the running phase as if its time were over: whoever listens to its events knows what it
    /// was to show. The run goes on with the next phase.
    pub fn decide(&self) {
        self.decided.store(true, Relaxed);
    }

    /// Whether the running phase was decided since the last call.
    pub(crate) fn take_decided(&self) -> bool {
        self.decided.swap(false, Relaxed)
    }

    /// Whether the process was told to continue (SIGCONT) since the last call, as it is after SIGSTOP.
    pub(crate) fn take_continued(&self) -> bool {
        self.continued.swap(false, Relaxed)
    }

    /// Whether the run shall end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed) || self.is_runaway()
    }

    /// Whether a real-time thread of ours ran too long without blocking.
    #[must_use]
    pub fn is_runaway(&self) -> bool {
        self.runaway.load(Relaxed)
    }
}
