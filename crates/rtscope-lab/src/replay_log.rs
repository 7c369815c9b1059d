//! The log of a run in virtual time: what the emulator needs to make the same run again, to the bit.
//!
//! The emulator writes it while the guest runs and reads it in a replay. It lies with the record,
//! compressed; its content is the emulator's own and fits emulators of the same version.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use crate::error::LabError;

/// File of the log in a record's folder: what the emulator wrote, in gzip's format.
pub const LOG: &str = "replay.log.gz";

/// A file of a log while an emulator writes or reads it, or while it is compressed. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Raw(PathBuf);

impl Raw {
    /// The emulator's own file for a run in a folder.
    pub(crate) fn in_folder(folder: &Path) -> Raw {
        Raw(folder.join("replay.log.part"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Unpacks the log of a record for an emulator that runs in a folder.
    pub(crate) fn unpack(log: &Path, folder: &Path) -> Result<Raw, LabError> {
        let raw = Raw::in_folder(folder);
        let unpack = || {
            let mut unpacker = GzDecoder::new(File::open(log)?);
            io::copy(&mut unpacker, &mut File::create(&raw.0)?)
        };
        unpack().map_err(LabError::file("unpack", log))?;
        Ok(raw)
    }
}

/// Puts an emulator's log into a record's folder, compressed, in one step.
pub(crate) fn pack(raw: &Path, folder: &Path) -> Result<(), LabError> {
    let (packed, kept) = (Raw(folder.join("replay.log.gz.part")), folder.join(LOG));
    let pack = || {
        let mut packer = GzEncoder::new(File::create(packed.path())?, Compression::default());
        io::copy(&mut File::open(raw)?, &mut packer)?;
        packer.finish()?.sync_all()?;
        fs::rename(packed.path(), &kept)
    };
    pack().map_err(LabError::file("write", &kept))
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_comes_back_as_it_was_and_leaves_nothing_behind() {
        let (room, record) = (tempfile::tempdir().expect("a"), tempfile::tempdir().expect("b"));
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let raw = Raw::in_folder(room.path());
        fs::write(raw.path(), &bytes).expect("written");
        pack(raw.path(), record.path()).expect("packed");
        drop(raw);
        let again = Raw::unpack(&record.path().join(LOG), room.path()).expect("unpacked");
        assert_eq!(fs::read(again.path()).expect("there"), bytes);
        drop(again);
        assert_eq!(fs::read_dir(room.path()).expect("a folder").count(), 0);
        assert_eq!(fs::read_dir(record.path()).expect("a folder").count(), 1);
        // What can't be packed leaves no half of a log.
        pack(&room.path().join("none"), room.path()).expect_err("no log");
        assert_eq!(fs::read_dir(room.path()).expect("a folder").count(), 0);
    }
}
