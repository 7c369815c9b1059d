//! What the guest of a run brought: a record of the kernel that was asked for, or nothing, and why.

use std::{fs, path::Path};

use rtscope_model::guest::{FAILURES, GuestStart, START, Timing};

use crate::{
    boot::{CONSOLE, Ending},
    error::LabError,
    guest_run::GuestOutcome,
    queue::QueuedRun,
    verify::{self, Verification},
};

/// What a guest brought.
#[derive(Debug)]
pub enum Brought {
    /// A whole record, of this kernel as far as it shows itself.
    Record(Box<(GuestOutcome, Option<Verification>)>),
    /// Nothing: the user ended everything before its turn came.
    NotReached(String),
    /// No record, or that of another kernel.
    Nothing {
        why: String,
        /// Whether the user ended it.
        interrupted: bool,
    },
}

impl QueuedRun {
    /// Looks at what its guest brought. `shown` is the folder of a record in which a kernel shows itself.
    #[must_use]
    pub fn brought(&self, outcome: Result<GuestOutcome, LabError>, shown: &str) -> Brought {
        let nothing = |why| Brought::Nothing { why, interrupted: false };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error @ LabError::NotReached) => return Brought::NotReached(error.to_string()),
            Err(error) => return nothing(error.to_string()),
        };
        if outcome.ending != Ending::Sent {
            let interrupted = outcome.ending == Ending::Interrupted;
            return Brought::Nothing { why: self.why_nothing(&outcome), interrupted };
        }
        let identity = self.run.kernel.identity.clone();
        let verify = |asked| verify::verify_against(&outcome.folder.join(shown), Some(asked));
        // A guest without /proc shows nothing of its kernel.
        let verified = identity.and_then(|identity| verify(identity).ok());
        match verified {
            Some(wrong) if wrong.failed() => {
                nothing(format!("the guest ran another kernel: {wrong}"))
            }
            verified => Brought::Record(Box::new((outcome, verified))),
        }
    }

    fn why_nothing(&self, outcome: &GuestOutcome) -> String {
        if self.run.spec.timing == Timing::Kvm && outcome.ending == Ending::Mute {
            return "KVM is there and does not run the guest: use --wall, or leave --kvm out"
                .to_owned();
        }
        let console = outcome.folder.join(CONSOLE);
        format!("{} (its console: {})", self.run.explain(&outcome.ending), console.display())
    }
}

/// What the guest of a record found before it measured; records of guests before there was such a file say
/// nothing.
#[must_use]
pub fn start(record: &Path) -> Option<GuestStart> {
    serde_json::from_str(&fs::read_to_string(record.join(START)).ok()?).ok()
}

/// What the guest of a record could not do beside its plan, a line each; none when it could do all.
#[must_use]
pub fn failures(record: &Path) -> Option<Vec<String>> {
    let text = fs::read_to_string(record.join(FAILURES)).ok()?;
    Some(text.lines().map(str::to_owned).collect())
}

/// What the lab says of the kernels of some runs, and of what all their guests share: name and value.
#[must_use]
pub fn facts(runs: &[QueuedRun]) -> Vec<(String, String)> {
    let mut facts: Vec<(String, String)> = Vec::new();
    for queued in runs {
        let kernel = &queued.run.kernel;
        let release = kernel.release.as_deref().unwrap_or("unknown release");
        let typed = kernel.reference.to_string();
        let asked = if kernel.label == typed { String::new() } else { format!("{typed}, ") };
        let fact = (kernel.label.clone(), format!("{asked}{release}, sha256 {}", kernel.sha256));
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    if let Some(QueuedRun { run, .. }) = runs.first() {
        facts.push(("machine".to_owned(), run.machine.name.clone()));
        facts.push(("guest's files".to_owned(), format!("sha256 {}", run.image_sha256)));
    }
    facts
}
