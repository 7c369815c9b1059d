//! A PC's kernel, unpacked once on the host: emulated instructions take seconds for what the host does in a
//! part of one.
//!
//! The emulator starts it by the entry that Xen's guests have (`XEN_ELFNOTE_PHYS32_ENTRY`; `CONFIG_PVH`,
//! which Debian's kernels have), with the same memory map, tables, command line and image. A kernel without that
//! entry, or one that nothing here can unpack, unpacks itself as ever.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::Command,
};

use flate2::read::GzDecoder;

use crate::{
    cache::{Cache, write_file},
    digest::{crc32, crc32_of_file},
    error::LabError,
    kernel_image::{GZIP, payload},
    program::Elf,
    tool,
};

/// Kind of an ELF file's segments of notes.
const NOTES: u32 = 4;

/// Name and type of the note with the entry: Xen's `public/elfnote.h`.
const ENTRY: (&[u8], u32) = (b"Xen\0", 18);

/// Beginnings of payloads, and what unpacks them.
const PACKERS: [(&[u8], &str); 3] =
    [(b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\x02\x21\x4c\x18", "lz4")];

/// The largest kernel: with all that can be built in, one has some hundred MiB.
const KERNEL_BYTES_MAX: u64 = 1 << 30;

/// The unpacked kernel of an image with this hash, from the cache or put there; none where it can't be started
/// as that. Beside it lies its checksum: a file that was damaged or cut is unpacked again, because the record of a
/// guest names the image only.
pub(crate) fn unpack(image: &[u8], hash: &str, cache: &Cache) -> Option<PathBuf> {
    let packed = payload(image)?;
    let folder = cache.root().join("unpacked");
    let path = folder.join(format!("{hash}.vmlinux"));
    if !is_intact(&path) {
        fs::create_dir_all(&folder).ok()?;
        // An empty file says that there is no such entry.
        let kernel = unpacked(packed, &folder).ok().flatten()?;
        let kernel = if has_entry(&kernel) { kernel } else { Vec::new() };
        write_file(&checksum_file(&path), crc32(&kernel).as_bytes()).ok()?;
        write_file(&path, &kernel).ok()?;
    }
    fs::metadata(&path).is_ok_and(|there| there.len() > 0).then_some(path)
}

/// File with the checksum of an unpacked kernel.
fn checksum_file(kernel: &Path) -> PathBuf {
    kernel.with_extension("crc32")
}

/// Whether an unpacked kernel is there, with the bytes that were put there.
fn is_intact(kernel: &Path) -> bool {
    let noted = fs::read_to_string(checksum_file(kernel)).unwrap_or_default();
    crc32_of_file(kernel).is_ok_and(|checksum| checksum == noted)
}

/// The bytes that a payload unpacks to, if they are as many as it says; none where nothing here unpacks it.
fn unpacked(packed: &[u8], folder: &Path) -> Result<Option<Vec<u8>>, LabError> {
    if packed.starts_with(&GZIP) {
        let mut bytes = Vec::new();
        let read = GzDecoder::new(packed).take(KERNEL_BYTES_MAX + 1).read_to_end(&mut bytes);
        let is_whole = read.is_ok() && bytes.len() as u64 <= KERNEL_BYTES_MAX;
        return Ok(is_whole.then_some(bytes));
    }
    let found = PACKERS.iter().find(|(start, _)| packed.starts_with(start));
    let Some((packed, size)) = packed.split_last_chunk::<4>() else { return Ok(None) };
    let size = u64::from(u32::from_le_bytes(*size));
    if size > KERNEL_BYTES_MAX {
        return Ok(None);
    }
    let Some((_, program)) = found.filter(|(_, program)| tool::find(program).is_some()) else {
        return Ok(None);
    };
    let part = folder.join(format!("payload.part{}", std::process::id()));
    fs::write(&part, packed).map_err(LabError::file("write", &part))?;
    let bytes = tool::bytes_of_at_most(Command::new(program).arg("-dc").arg(&part), size);
    let _ = fs::remove_file(&part);
    Ok(bytes.ok().filter(|bytes| bytes.len() as u64 == size))
}

/// Whether the notes of a kernel have the entry.
fn has_entry(kernel: &[u8]) -> bool {
    let segments = Elf::of(kernel).and_then(|elf| elf.segments()).unwrap_or_default();
    segments.iter().filter(|segment| segment.kind == NOTES).any(|segment| {
        let notes = kernel.get(segment.start as usize..segment.end as usize);
        notes.is_some_and(|notes| find_entry(notes).is_some())
    })
}

/// Sizes of name and description and the type, each in four bytes; then name and description, each padded to
/// four.
fn find_entry(mut notes: &[u8]) -> Option<()> {
    loop {
        let mut word = || {
            let (word, rest) = notes.split_first_chunk::<4>()?;
            notes = rest;
            Some(u32::from_le_bytes(*word))
        };
        let (name, description, kind) = (word()?, word()?, word()?);
        let named = notes.get(..name as usize)? == ENTRY.0;
        if named && kind == ENTRY.1 {
            return Some(());
        }
        let bytes = |size: u32| (size as usize).checked_next_multiple_of(4);
        notes = notes.get(bytes(name)?.checked_add(bytes(description)?)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;
    use crate::kernel_image::samples::bz_image;

    /// A kernel of nothing but notes: the build id, and one of Xen's of a kind.
    fn kernel(kind: u32) -> Vec<u8> {
        let mut elf = vec![0; 0x78];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[16], elf[18]) = (2, 62);
        (elf[0x20], elf[0x36], elf[0x38]) = (0x40, 56, 1);
        for (name, kind, body) in [(b"GNU\0", 3_u32, &b"12345"[..]), (b"Xen\0", kind, b"1234")] {
            for word in [4, body.len() as u32, kind] {
                elf.extend(word.to_le_bytes());
            }
            elf.extend(name);
            elf.extend(body);
            elf.resize(elf.len().next_multiple_of(4), 0);
        }
        let bytes = elf.len() as u64 - 0x78;
        elf[0x40] = NOTES as u8;
        elf[0x48] = 0x78;
        elf[0x60..0x68].copy_from_slice(&bytes.to_le_bytes());
        elf
    }

    /// An image whose payload is this.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = bz_image("6.1.0", 0x100);
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image[5 * 512..5 * 512 + payload.len()].copy_from_slice(payload);
        image
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(bytes).expect("packed");
        packer.finish().expect("packed")
    }

    #[test]
    fn a_kernel_with_the_entry_is_unpacked_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let (with, without) = (kernel(18), kernel(17));
        let path = unpack(&image(&gzip(&with)), "with", &cache).expect("unpacked");
        assert_eq!(fs::read(&path).expect("kept"), with);
        assert_eq!(unpack(&image(&gzip(&without)), "without", &cache), None);
        // Both are known now, and are not unpacked again.
        assert_eq!(unpack(&image(b"not read"), "with", &cache), Some(path.clone()));
        assert_eq!(unpack(&image(b"not read"), "without", &cache), None);
        // Guests would boot another kernel than the one that their records name.
        for altered in [&with[..with.len() - 1], b"another kernel", b""] {
            fs::write(&path, altered).expect("altered");
            let again = unpack(&image(&gzip(&with)), "with", &cache);
            assert_eq!(again.as_ref(), Some(&path), "unpacked again");
            assert_eq!(fs::read(&path).expect("kept"), with);
        }
        // What can't be unpacked is tried again.
        assert_eq!(unpack(&image(b"not gzip's"), "other", &cache), None);
        assert!(!folder.path().join("unpacked/other.vmlinux").exists());
        assert_eq!(unpack(&vec![0; 0x1000], "none", &cache), None);
    }
}
