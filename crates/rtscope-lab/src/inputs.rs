//! What the run of a record was made of, as `lab.json` in the record's folder says it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use rtscope_sys::whole::write_anew;
use serde::{Deserialize, Serialize};

use crate::{digest::key_of, error::LabError, links::stays_below, qemu::GuestSpec};

/// File in a record's folder that says what it was made of.
pub const INPUTS: &str = "lab.json";

/// Version of [`Inputs`].
pub(crate) const FORMAT: u32 = 1;

/// Everything that a run was made of: what it takes to run it again, and to see that nothing changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// [`FORMAT`].
    pub format: u32,
    /// Hash of all below that the record depends on.
    pub key: String,
    /// The kernel as it was asked for, as `mine=debian-stock:preempt=full`.
    pub kernel: String,
    pub kernel_file: PathBuf,
    /// SHA-256 of the kernel.
    pub kernel_sha256: String,
    /// SHA-256 of the image: of the program, the plan, and everything else in the guest.
    pub image_sha256: String,
    pub machine: String,
    /// What the guest was given.
    #[serde(flatten)]
    pub spec: GuestSpec,
    /// The emulator's version.
    pub emulator: String,
    /// The emulator's words, files by what they are.
    pub arguments: Vec<String>,
    /// Whether the guest brought its whole record.
    #[serde(default)]
    pub whole: bool,
    /// SHA-256 of the run's log, compressed as it lies in the record's folder; none by the host's clock, with
    /// several CPUs, and in records that were made before runs had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_sha256: Option<String>,
    /// SHA-256 of each file of the record.
    pub files: BTreeMap<String, String>,
}

/// The key of a run: the hash of all that its record depends on.
pub(crate) fn key_of_run(
    kernel_sha256: &str,
    image_sha256: &str,
    emulator: &str,
    arguments: &[String],
) -> String {
    key_of(&[
        ("kernel", kernel_sha256.as_bytes()),
        ("image", image_sha256.as_bytes()),
        ("emulator", emulator.as_bytes()),
        ("arguments", arguments.join("\n").as_bytes()),
    ])
}

impl Inputs {
    /// Refuses inputs that were altered: their key must be theirs, and the seed that of the emulator's arguments.
    ///
    /// # Errors
    ///
    /// Which of the two isn't so.
    pub(crate) fn check(&self, record: &Path) -> Result<(), LabError> {
        let Inputs { kernel_sha256, image_sha256, emulator, arguments, .. } = self;
        let seed = ["-seed", &self.spec.seed.to_string()].map(str::to_owned);
        let why = if key_of_run(kernel_sha256, image_sha256, emulator, arguments) != self.key {
            "its key does not match the inputs in it".to_owned()
        } else if !arguments.windows(2).any(|pair| pair == seed) {
            format!("the emulator's arguments have a seed other than {}", self.spec.seed)
        } else {
            return Ok(());
        };
        let path = record.join(INPUTS);
        Err(LabError::Refused(format!(
            "{} was altered: {why}. Without its inputs, the run can't be repeated",
            path.display()
        )))
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<(), LabError> {
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        let path = folder.join(INPUTS);
        write_anew(&path, text.as_bytes()).map_err(LabError::file("write", &path))
    }
}

/// Reads what a record was made of.
///
/// # Errors
///
/// The folder holds no record of the lab.
pub fn read_inputs(folder: &Path) -> Result<Inputs, LabError> {
    let path = folder.join(INPUTS);
    let missing = || LabError::file("read", &path)(rustix::io::Errno::NOENT.into());
    let text = read_file(&path)?.ok_or_else(missing)?;
    let refused = |why: String| {
        LabError::Refused(format!("{} is not a record of the lab: {why}", path.display()))
    };
    let inputs: Inputs = serde_json::from_slice(&text).map_err(|e| refused(e.to_string()))?;
    match inputs.files.keys().find(|name| !stays_below(Path::new(name))) {
        Some(name) => Err(refused(format!("it names a file outside its folder, {name:?}"))),
        None => Ok(inputs),
    }
}

/// The bytes of a record's file; none where there is no such file.
///
/// # Errors
///
/// It can't be read, or isn't a regular file: reading a pipe would wait for whoever writes into it.
pub(crate) fn read_file(path: &Path) -> Result<Option<Vec<u8>>, LabError> {
    let is_file = fs::symlink_metadata(path).map(|found| found.is_file());
    match is_file.and_then(|is_file| is_file.then(|| fs::read(path)).transpose()) {
        Ok(Some(bytes)) => Ok(Some(bytes)),
        Ok(None) => Err(LabError::Refused(format!(
            "{} is not a regular file; remove it, or put the record's own file there",
            path.display()
        ))),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(e) => Err(LabError::file("read", path)(e)),
    }
}

/// Whether a folder holds all that a guest brought.
#[must_use]
pub fn is_whole(folder: &Path) -> bool {
    read_inputs(folder).is_ok_and(|inputs| inputs.whole)
}

/// Writes a file of a record. A name that leads out of the folder is refused: a guest is not trusted.
pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), LabError> {
    if !stays_below(Path::new(name)) {
        return Err(LabError::Refused(format!("the guest sent a file with the name {name:?}")));
    }
    let path = folder.join(name);
    let parent = path.parent().unwrap_or(folder);
    fs::create_dir_all(parent).map_err(LabError::file("make", parent))?;
    fs::write(&path, bytes).map_err(LabError::file("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_can_t_write_outside_its_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let inside = folder.path().join("record");
        write(&inside, "slices/t0.jsonl", b"x").expect("inside");
        assert_eq!(fs::read(inside.join("slices/t0.jsonl")).expect("written"), b"x");
        for name in ["../out", "/tmp/rtscope-out", "slices/../../out", ""] {
            assert!(write(&inside, name, b"x").is_err(), "{name:?} was accepted");
        }
        assert!(!folder.path().join("out").exists());
    }
}
