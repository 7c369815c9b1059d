//! The one stream of events: stamped, recorded, and shown to whoever listens.

use rtscope_model::{
    event::{Event, Stamped},
    finding::Finding,
};
use rtscope_sys::clock::{Clock, SystemClock};

use crate::recorder::Recorder;

/// Stamps events with the age of the run, gives them to the recorder and to a listener.
pub(crate) struct Stream<'a> {
    start_ns: u64,
    pub(crate) recorder: Recorder,
    listener: &'a mut dyn FnMut(&Stamped),
}

impl<'a> Stream<'a> {
    pub(crate) fn new(recorder: Recorder, listener: &'a mut dyn FnMut(&Stamped)) -> Stream<'a> {
        Stream { start_ns: SystemClock::MONOTONIC.now_ns(), recorder, listener }
    }

    /// `CLOCK_MONOTONIC` at the start of the run.
    pub(crate) fn start_ns(&self) -> u64 {
        self.start_ns
    }

    pub(crate) fn elapsed_ns(&self) -> u64 {
        SystemClock::MONOTONIC.now_ns() - self.start_ns
    }

    pub(crate) fn emit(&mut self, event: Event) {
        let stamped = Stamped { at_ns: self.elapsed_ns(), event };
        self.recorder.event(&stamped);
        (self.listener)(&stamped);
        if let Some(finding) = self.recorder.new_trouble() {
            let stamped = Stamped { at_ns: self.elapsed_ns(), event: Event::Found(finding) };
            self.recorder.event(&stamped);
            (self.listener)(&stamped);
        }
    }

    pub(crate) fn found(&mut self, finding: Finding) {
        self.emit(Event::Found(finding));
    }

    /// The recorder, when no event will follow.
    pub(crate) fn into_recorder(self) -> Recorder {
        self.recorder
    }
}
