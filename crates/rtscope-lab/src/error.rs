//! Why a step of the kernel lab was not done, and what to do about it.

use std::{io, path::PathBuf};

use rtscope_model::text::TextError;

use crate::{disk::Shortage, patch_report::PatchReport};

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The spec's text is wrong.
    #[error(transparent)]
    Spec(#[from] TextError),
    /// What was asked makes no sense, or would break something.
    #[error("{0}")]
    Refused(String),
    #[error("can't {operation} {path}: {cause}{}", full(cause), path = path.display())]
    File {
        /// As `read` or `write`.
        operation: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
    #[error("can't make {path}: {cause}: make space, or choose another folder with --out", path = path.display())]
    Full { path: PathBuf, cause: io::Error },
    /// Programs or headers that this machine lacks.
    #[error("this machine lacks {}: {command}", lacking.join(", "))]
    Lacking {
        lacking: Vec<String>,
        /// The command that gets it.
        command: String,
    },
    /// A program ran and failed.
    #[error("{program} failed ({status}){}", said_last(said))]
    Program {
        /// With its arguments, as far as they say something.
        program: String,
        status: String,
        /// What it said on standard error, or at its end.
        said: String,
    },
    #[error(
        "can't fetch {reference} from {from}: {cause}: give another address of a git repository, or a \
         folder with the unpacked source, with --from"
    )]
    NotFetched {
        /// A branch or a tag.
        reference: String,
        from: String,
        cause: String,
    },
    /// What was fetched isn't what was asked for.
    #[error(
        "{path} has the SHA-256 {found}, not {asked}: it is damaged or is a different file; remove it and \
         fetch it again, or correct the spec",
        path = path.display()
    )]
    Checksum {
        path: PathBuf,
        /// As the spec says.
        asked: String,
        found: String,
    },
    /// Patch and source don't belong together.
    #[error("{0}")]
    Pairing(String),
    /// A patch doesn't apply. The tree is as it was.
    #[error("{}", .0.refusal())]
    Patch(Box<PatchReport>),
    /// Options that the kernel's configuration didn't take.
    #[error("the kernel configuration dropped {} requested option(s):\n{}", .0.len(), .0.join("\n"))]
    LostOptions(Vec<String>),
    #[error(
        "{path} has {free_mib} MiB free and this needs about {needed_mib} MiB: make space, or give \
         another folder{option}",
        path = path.display()
    )]
    Space {
        /// On which file system.
        path: PathBuf,
        free_mib: u64,
        /// Estimated.
        needed_mib: u64,
        /// How to give another folder, as ` with --cache DIR`.
        option: &'static str,
    },
    /// A kernel doesn't fit on file systems of the system that gets it.
    #[error(
        "there is no room for {kernel}: {}. Nothing was changed; make space there and run it again",
        shortages.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    NoRoom { kernel: String, shortages: Vec<Shortage> },
    /// The compiler or the linker failed.
    #[error("the build failed in {file}:\n{}\nthe whole output is in {log}", lines.join("\n"), log = log.display())]
    Build {
        /// The file that failed, as make names it.
        file: String,
        /// Lines that say why, at most 20.
        lines: Vec<String>,
        /// All that make said.
        log: PathBuf,
    },
    #[error("{0}")]
    NoRecord(String),
    /// The emulator loads no plugin that shows the guest's instructions, and why.
    #[error("rtscope can't see the guest's instructions: {0}")]
    NoPlugin(String),
    #[error("not reached: it was interrupted before")]
    NotReached,
    /// The user ended everything between two steps.
    #[error("interrupted")]
    Interrupted,
    /// A stop that a test asked for in the middle of an installation.
    #[error("stopped before step {0}")]
    Stopped(usize),
}

fn full(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => ": make space and run it again",
        io::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => {
            ": run it with sudo"
        }
        _ => "",
    }
}

fn said_last(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(8)..];
    if last.is_empty() { String::new() } else { format!(": {}", last.join("\n  ")) }
}

impl LabError {
    /// For `map_err` of a file operation.
    pub(crate) fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> LabError {
        let path = path.into();
        move |cause| LabError::File { operation, path, cause }
    }

    /// Whether it was asked wrongly, rather than that the surroundings fail.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, LabError::Spec(_) | LabError::Refused(_))
    }
}
