//! The folder of the records of guests.

use std::path::PathBuf;

use rtscope_lab::{error::LabError, record_folders};

use crate::{cli::wall_clock, record::fresh_folder};

/// Where the records go: into the folder that was named, or into a fresh one.
///
/// # Errors
///
/// The folder holds what is not the lab's.
pub(super) fn place(asked: Option<&PathBuf>, plan: &str) -> Result<PathBuf, LabError> {
    let out = named_or_fresh(asked, plan);
    record_folders::check(&out).map(|()| out)
}

/// As [`place`], for what can't be gone on with.
///
/// # Errors
///
/// The folder holds anything.
pub(super) fn empty(asked: Option<&PathBuf>, plan: &str) -> Result<PathBuf, LabError> {
    let out = named_or_fresh(asked, plan);
    record_folders::check_empty(&out).map(|()| out)
}

fn named_or_fresh(asked: Option<&PathBuf>, plan: &str) -> PathBuf {
    asked.cloned().unwrap_or_else(|| fresh_folder(&format!("lab-{plan}"), &wall_clock()))
}
