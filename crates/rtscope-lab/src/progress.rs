//! What a long step says while it goes.

/// One thing that a step says.
#[derive(Clone, Debug, PartialEq)]
pub enum StepProgress {
    /// A part of the work begins, as `unpacking linux-6.12.tar.xz`.
    Step(String),
    /// Something the user should know, that stops nothing.
    Warning(String),
    /// How far a part is.
    Amount {
        /// What is counted, as `objects`.
        unit: &'static str,
        done: u64,
        /// Of how many; an estimate.
        total: Option<u64>,
        /// Time left, estimated.
        seconds_left: Option<f64>,
        /// The thing at hand.
        at: String,
    },
}

/// Takes what a step says.
pub type Report<'a> = dyn FnMut(StepProgress) + 'a;

pub(crate) fn step(report: &mut Report<'_>, text: impl Into<String>) {
    report(StepProgress::Step(text.into()));
}
