//! Square waves on lines: generators that make them, and a scope that looks at them.

pub mod bench;
pub mod count;
pub mod generator;
pub mod gpio;
pub mod line;
pub mod scope;
pub mod scopes;
pub mod seat;
pub mod subject;

use std::{io, path::PathBuf};

/// What to name in place of a line that isn't there.
fn instead(there: &[String]) -> String {
    match there {
        [] => ": the system has none. Without hardware, use memory:NAME".to_owned(),
        there => format!("; there are {}", there.join(", ")),
    }
}

/// Why a line can't be used, or a wave not made or seen.
#[derive(Debug, thiserror::Error)]
pub enum WaveError {
    #[error(
        "{0:?} is not a line: write memory:NAME (letters, digits, - and _), gpio:CHIP/LINE or led:NAME"
    )]
    Address(String),
    /// A line of the system that isn't there.
    #[error("there is no {what}{}", instead(there))]
    Absent { what: String, there: Vec<String> },
    #[error(
        "{0} can't be captured: the scope reads memory: and gpio: lines; capture the pin with an instrument"
    )]
    NotReadable(String),
    /// The line refused.
    #[error("{line}: {source}")]
    Line { line: String, source: rtscope_sys::Error },
    /// A line of a GPIO chip that can't be had.
    #[error("{line}: {why}")]
    Gpio { line: String, why: String },
    /// A frequency or duty cycle that makes no wave.
    #[error("{0}")]
    Wave(String),
    /// What this machine is too small for, or isn't set up for.
    #[error("{0}")]
    Machine(String),
    #[error("can't place the thread: {0}")]
    Place(#[from] rtscope_sys::Error),
    #[error(
        "the subject {subject} needs {program}, which is not installed: run `apt-get install {package}`"
    )]
    NoTool {
        subject: &'static str,
        program: &'static str,
        /// The Debian package with it.
        package: &'static str,
    },
    #[error("subject {subject}: it made no edge within 5 s")]
    NoEdge { subject: String },
    /// A subject that can't be made or run.
    #[error("subject {subject}: {why}")]
    Subject { subject: String, why: String },
    #[error("can't {operation} {}: {source}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}
