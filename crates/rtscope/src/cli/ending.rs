//! Ctrl-C and SIGTERM while other programs work for us.

use std::{io, sync::OnceLock, thread, time::Duration};

use rtscope_lab::tool;
use rtscope_measure::signals::Interrupt;

use crate::exit;

/// How often is looked whether the user asked for the end.
const LOOK: Duration = Duration::from_millis(50);

/// How long the step at hand may take to come back when its program has ended.
const COMES_BACK_IN: Duration = Duration::from_secs(1);

/// What [`of_programs`] looks at.
static WATCHED: OnceLock<Interrupt> = OnceLock::new();

/// An interruption ends the programs that run for us; the step at hand fails then, and
/// [`of_interrupted`] says how.
pub(super) fn of_programs(interrupt: &Interrupt) {
    let interrupt = WATCHED.get_or_init(|| interrupt.clone()).clone();
    thread::spawn(move || wait_and_end(&interrupt));
}

fn wait_and_end(interrupt: &Interrupt) {
    while !interrupt.is_stopped() {
        thread::sleep(LOOK);
    }
    tool::end_all();
}

/// The exit code of a verb that [`of_programs`] looks after and that didn't succeed, if it was interrupted.
pub(super) fn of_interrupted() -> Option<u8> {
    WATCHED.get().is_some_and(Interrupt::is_stopped).then_some(exit::INTERRUPTED)
}

/// An interruption ends the programs that run for us and then us, with a word on what is left.
pub(super) fn of_all(left: &'static str) -> io::Result<Ending> {
    let interrupt = Interrupt::install_patient()?;
    let seen = interrupt.clone();
    thread::spawn(move || {
        wait_and_end(&seen);
        thread::sleep(COMES_BACK_IN);
        // A step without a program of its own, as a copy of many files.
        note_interruption(left);
        signal_hook::low_level::exit(i32::from(exit::INTERRUPTED));
    });
    Ok(Ending { interrupt, left })
}

fn note_interruption(left: &str) {
    note!("rtscope: interrupted; {left}");
}

/// What [`of_all`] looks after.
#[derive(Debug)]
pub(super) struct Ending {
    interrupt: Interrupt,
    left: &'static str,
}

impl Ending {
    /// The exit code of an interrupted verb, in place of the failure that the interruption made of it.
    pub(super) fn code(&self) -> Option<u8> {
        self.interrupt.is_stopped().then(|| {
            note_interruption(self.left);
            exit::INTERRUPTED
        })
    }
}
