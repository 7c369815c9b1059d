//! SHA-256 of what goes into a kernel or a record, and CRC-32 of what is only kept, in hexadecimal digits.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use flate2::Crc;
use sha2::{Digest, Sha256};

/// Hexadecimal digits of a key that name folders and identify a running kernel.
pub const KEY_DIGITS: usize = 16;

/// SHA-256 of some bytes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of a file, however long it is.
pub fn sha256_of_file(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    each_piece(path, |piece| hash.update(piece))?;
    Ok(hex(&hash.finalize()))
}

/// CRC-32 (IEEE 802.3) of some bytes: it tells a damaged file from a whole one, takes a small part of the time that SHA-256
/// takes, and keeps nobody from forging a file.
pub(crate) fn crc32(bytes: &[u8]) -> String {
    let mut crc = Crc::new();
    crc.update(bytes);
    hex(&crc.sum().to_be_bytes())
}

/// CRC-32 of a file, however long it is.
pub(crate) fn crc32_of_file(path: &Path) -> io::Result<String> {
    let mut crc = Crc::new();
    each_piece(path, |piece| crc.update(piece))?;
    Ok(hex(&crc.sum().to_be_bytes()))
}

/// Reads a file piece by piece.
fn each_piece(path: &Path, mut use_piece: impl FnMut(&[u8])) -> io::Result<()> {
    let mut file = fs::File::open(path)?;
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(()),
            n => use_piece(&piece[..n]),
        }
    }
}

/// Hash of named inputs: their names and lengths too, so that no two lists meet.
#[must_use]
pub fn key_of(inputs: &[(&str, &[u8])]) -> String {
    let mut hash = Sha256::new();
    for (name, bytes) in inputs {
        for part in [name.as_bytes(), bytes] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    let mut text = hex(&hash.finalize());
    text.truncate(KEY_DIGITS);
    text
}

/// Bytes in hexadecimal digits, two each.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lists_of_inputs_have_one_key() {
        let key = key_of(&[("source", b"6.12"), ("config", b"A=y")]);
        assert_eq!(key.len(), KEY_DIGITS);
        assert_ne!(key, key_of(&[("source", b"6.1"), ("config", b"2A=y")]));
        assert_ne!(key, key_of(&[("sourc", b"e6.12"), ("config", b"A=y")]));
        assert_eq!(key, key_of(&[("source", b"6.12"), ("config", b"A=y")]));
    }
}
