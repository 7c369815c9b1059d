//! The log of a run in virtual time: what the emulator needs to make the same run again, to the bit.
//!
//! The emulator writes it while the guest runs and reads it in a replay. It lies with the record,
//! compressed; its content is the emulator's own and fits emulators of the same version.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use crate::error::LabError;

/// File of the log in a record's folder: what the emulator wrote, in gzip's format.
pub const LOG: &str = "replay.log.gz";

/// Bytes before a log's events: a version, which is zero until the emulator ends in order, and eight more.
const HEADER_BYTES: usize = 12;

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
        check(raw.path(), log)?;
        Ok(raw)
    }
}

/// Refuses a log that the emulator didn't finish, by its bytes in a file. `named` is the file that the user sees.
fn check(raw: &Path, named: &Path) -> Result<(), LabError> {
    let mut start = Vec::new();
    let mut file = File::open(raw).map_err(LabError::file("read", raw))?;
    let more = HEADER_BYTES as u64 + 1;
    (&mut file).take(more).read_to_end(&mut start).map_err(LabError::file("read", raw))?;
    let why = match start.as_slice() {
        [] => "is empty",
        [0, 0, 0, 0, ..] => "has no header, so the emulator did not finish it",
        start if start.len() <= HEADER_BYTES => "was cut off",
        _ => return Ok(()),
    };
    let named = named.display();
    Err(LabError::NoRecord(format!(
        "{named} is not the log of a run: it {why}. Run the guest again"
    )))
}

/// Puts an emulator's log into a record's folder, compressed, in one step.
///
/// # Errors
///
/// The emulator didn't finish the log, or files.
pub(crate) fn pack(raw: &Path, folder: &Path) -> Result<(), LabError> {
    check(raw, raw)?;
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
        let bytes: Vec<u8> = (1..100_000_u32).flat_map(u32::to_le_bytes).collect();
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

    #[test]
    fn a_log_that_the_emulator_did_not_finish_is_neither_kept_nor_replayed() {
        let room = tempfile::tempdir().expect("a folder");
        let raw = room.path().join("raw");
        let begun = [[0; 12].as_slice(), b"events"].concat();
        for (bytes, why) in [
            (b"".as_slice(), "is empty"),
            (begun.as_slice(), "has no header"),
            (b"\x00\xe0\x20\x0c\x00", "was cut off"),
        ] {
            fs::write(&raw, bytes).expect("written");
            let said = pack(&raw, room.path()).expect_err(why).to_string();
            assert!(said.contains("raw is not the log") && said.contains(why), "{said}");
            let log = room.path().join(LOG);
            assert!(!log.exists());
            let mut packer =
                GzEncoder::new(File::create(&log).expect("made"), Compression::default());
            io::copy(&mut &*bytes, &mut packer).expect("packed");
            packer.finish().expect("packed");
            let said = Raw::unpack(&log, room.path()).expect_err(why).to_string();
            assert!(said.contains("replay.log.gz is not the log") && said.contains(why), "{said}");
            fs::remove_file(log).expect("removed");
        }
    }
}
