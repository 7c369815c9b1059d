//! Signals that end a run: each sets a flag that the control thread looks at.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXCPU};

/// Whether the run shall end, and why.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    stop: Arc<AtomicBool>,
    runaway: Arc<AtomicBool>,
    decided: Arc<AtomicBool>,
}

impl Interrupt {
    /// Ends the run at SIGINT, SIGTERM or SIGHUP, and when the kernel says (SIGXCPU) that a
    /// real-time thread of ours ran too long without sleeping. A second SIGINT ends the process, and
    /// so does a second SIGXCPU: its handler runs in the thread that runs, however starved the
    /// machine is, and needs nobody else to end it.
    ///
    /// # Errors
    ///
    /// When the handlers can't be set.
    pub fn install() -> io::Result<Interrupt> {
        let interrupt = Interrupt::default();
        // Before the handlers that set the flags: it ends the process when they are set already.
        signal_hook::flag::register_conditional_shutdown(SIGINT, 130, interrupt.stop.clone())?;
        interrupt.listen()
    }

    /// As [`Interrupt::install`], but further SIGINTs change nothing: restoring settings must not be cut
    /// short, and `timeout -s INT` sends two, one to the process and one to its group. SIGQUIT
    /// (Ctrl-\) still ends the process at once.
    ///
    /// # Errors
    ///
    /// When the handlers can't be set.
    pub fn install_patient() -> io::Result<Interrupt> {
        Interrupt::default().listen()
    }

    fn listen(self) -> io::Result<Interrupt> {
        signal_hook::flag::register_conditional_shutdown(SIGXCPU, 1, self.runaway.clone())?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, self.stop.clone())?;
        }
        signal_hook::flag::register(SIGXCPU, self.runaway.clone())?;
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
