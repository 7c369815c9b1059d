//! Exit codes. The first three are those of rtla; all are part of the interface.

use std::process::ExitCode;

use rtscope_analyse::Judgement;
use rtscope_model::{finding::Weight, verdict::Verdict};

/// Every requirement is met, or none was asked.
pub(crate) const PASS: u8 = 0;

/// The tool or its surroundings failed: a file, a permission, a system call.
pub(crate) const ERROR: u8 = 1;

/// A requirement is not met.
pub(crate) const FAIL: u8 = 2;

/// The run can't answer; the reasons say why.
pub(crate) const INCONCLUSIVE: u8 = 3;

/// The command line or a plan is wrong (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;

/// As a shell says it of a program that SIGINT ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// The code of a record's verdict. Figures without a requirement are no success when a phase failed,
/// as one whose load did not start; nor is anything when a part of it, or its page, could not be
/// written: it is not `whole`.
pub(crate) fn of_record(judgement: &Judgement, whole: bool) -> ExitCode {
    let failed =
        judgement.findings.iter().any(|f| f.code == "run-failed" && f.weight > Weight::Warning);
    match judgement.verdict {
        Verdict::Measured if failed => ExitCode::from(ERROR),
        Verdict::Measured | Verdict::Pass if !whole => ExitCode::from(ERROR),
        verdict => of_verdict(verdict),
    }
}

pub(crate) fn of_verdict(verdict: Verdict) -> ExitCode {
    ExitCode::from(match verdict {
        Verdict::Measured | Verdict::Pass => PASS,
        Verdict::Fail => FAIL,
        Verdict::Inconclusive => INCONCLUSIVE,
    })
}
