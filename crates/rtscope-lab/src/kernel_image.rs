//! A kernel's image by its own headers: what it is for, and whether it is whole.
//!
//! An image that was damaged on its way says nothing in a guest: its unpacker halts before there is a
//! console. So it is looked at before the start, by what Linux's `Documentation/arch/x86/boot.rst`,
//! `arm64/booting.rst` and Microsoft's description of PE files and their signatures say of it.

use std::io;

use flate2::{Crc, read::GzDecoder};
use sha2::{Digest, Sha256};

/// What a CRC-32 is when the one that was appended to the bytes is right.
const RIGHT_CRC: u32 = 0xffff_ffff;

/// What gzip's files begin with.
pub(crate) const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Since this version of the boot protocol a bzImage says where its payload is, and ends with its checksum ...
const PROTOCOL_WITH_CRC: u16 = 0x0208;

/// ... and since this kernel it doesn't.
const RELEASE_WITHOUT_CRC: (u32, u32) = (6, 16);

/// The identifier of SHA-256 in a signature (2.16.840.1.101.3.4.2.1, as DER writes it).
const SHA256_IDENTIFIER: [u8; 11] =
    [0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];

/// The architecture of a kernel image, by the marks that boot loaders look for.
pub(crate) fn arch_of(image: &[u8]) -> Option<&'static str> {
    let at = |offset: usize, mark: &[u8]| image.get(offset..offset + mark.len()) == Some(mark);
    if at(0x202, b"HdrS") {
        Some("x86_64")
    } else if at(0x38, b"ARM\x64") || at(0, b"MZ\0\0zimg") {
        Some("arm64")
    } else if at(0x24, &0x016f_2818_u32.to_le_bytes()) {
        Some("arm")
    } else {
        None
    }
}

/// `uname -r` of a bzImage: the first word of the text that its header points to (`kernel_version`).
pub(crate) fn release_of(image: &[u8]) -> Option<String> {
    if arch_of(image)? != "x86_64" {
        return None;
    }
    let text = image.get(usize::from(u16_at(image, 0x20e)?) + 0x200..)?;
    let word = text.split(|byte| *byte == b' ' || *byte == 0).next()?;
    let word = std::str::from_utf8(word).ok()?;
    word.starts_with(|c: char| c.is_ascii_digit()).then(|| word.to_owned())
}

/// What is wrong with an image, as the end of a sentence; none where nothing shows.
pub(crate) fn damage(image: &[u8]) -> Option<String> {
    let whole = match arch_of(image)? {
        "x86_64" => pc_bytes(image),
        "arm" => Some(u64::from(u32_at(image, 0x2c)?.checked_sub(u32_at(image, 0x28)?)?)),
        _ => sections_end(image),
    };
    let there = image.len() as u64;
    if let Some(whole) = whole.filter(|whole| there < *whole) {
        return Some(format!("it is cut short, with {there} of {whole} bytes: copy it again"));
    }
    is_altered(image).then(|| {
        "it is damaged, because its own checksum is wrong: copy it again, or build it again"
            .to_owned()
    })
}

/// Whether the image's own checksum, or that of its signature, says that it is not what was built. No where
/// it has none.
fn is_altered(image: &[u8]) -> bool {
    if let Some((content, signature)) = signed(image) {
        // A signature is made after the checksum, and alters what that is of.
        let has = |part: &[u8]| signature.windows(part.len()).any(|found| found == part);
        return has(&SHA256_IDENTIFIER) && !has(&content);
    }
    if arch_of(image) != Some("x86_64") {
        return false;
    }
    let whole = pc_bytes(image).and_then(|bytes| image.get(..usize::try_from(bytes).ok()?));
    let Some(whole) = whole.filter(|_| u16_at(image, 0x206) >= Some(PROTOCOL_WITH_CRC)) else {
        return false;
    };
    if has_crc(image) {
        let mut crc = Crc::new();
        crc.update(whole);
        return crc.sum() != RIGHT_CRC;
    }
    // The programs that unpack other payloads may not be here.
    let packed = payload(image).filter(|packed| packed.starts_with(&GZIP));
    packed.is_some_and(|packed| io::copy(&mut GzDecoder::new(packed), &mut io::sink()).is_err())
}

/// Whether the kernel is old enough to have been built with a checksum. One that doesn't say its release is
/// taken for a new one.
fn has_crc(image: &[u8]) -> bool {
    let release = release_of(image).unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < RELEASE_WITHOUT_CRC,
        _ => false,
    }
}

/// Bytes of a bzImage: its sectors of set-up and `syssize` paragraphs.
fn pc_bytes(image: &[u8]) -> Option<u64> {
    Some(pc_setup(image)? + u64::from(u32_at(image, 0x1f4)?) * 16)
}

/// Bytes of a bzImage's boot sector and set-up. For old boot loaders, no sectors of it means four.
fn pc_setup(image: &[u8]) -> Option<u64> {
    let sectors = match *image.get(0x1f1)? {
        0 => 4,
        sectors => u64::from(sectors),
    };
    Some((sectors + 1) * 512)
}

/// A bzImage's packed kernel; all but gzip's is followed by four bytes with its size when it is unpacked.
pub(crate) fn payload(image: &[u8]) -> Option<&[u8]> {
    let protocol = u16_at(image, 0x206).filter(|_| arch_of(image) == Some("x86_64"))?;
    let at = pc_setup(image)? as usize + u32_at(image, 0x248)? as usize;
    let end = at.checked_add(u32_at(image, 0x24c)? as usize)?;
    image.get(at..end).filter(|payload| protocol >= PROTOCOL_WITH_CRC && !payload.is_empty())
}

/// Where the PE header of an image lies that firmware can start by itself.
fn pe_header(image: &[u8]) -> Option<usize> {
    let at = image.starts_with(b"MZ").then(|| u32_at(image, 0x3c))?? as usize;
    (image.get(at..at + 4)? == b"PE\0\0").then_some(at)
}

/// The end of the last section that a PE header lists.
fn sections_end(image: &[u8]) -> Option<u64> {
    let header = pe_header(image)?;
    let first = header + 24 + usize::from(u16_at(image, header + 20)?);
    let ends = (0..usize::from(u16_at(image, header + 6)?)).map(|i| {
        let size = u32_at(image, first + 40 * i + 16)?;
        Some(u64::from(size) + u64::from(u32_at(image, first + 40 * i + 20)?))
    });
    // An image that is cut short within the list shows the sections before.
    ends.map_while(|end| end).max()
}

/// What a signature must hold (the SHA-256 of all but the checksum, the place of the signature and the
/// signature itself), and the signature.
fn signed(image: &[u8]) -> Option<([u8; 32], &[u8])> {
    let header = pe_header(image)?;
    // The 64-bit form of the optional header, whose fifth directory is that of signatures.
    (u16_at(image, header + 24)? == 0x20b).then_some(())?;
    let (checksum, directory) = (header + 0x58, header + 0xa8);
    let at = u32_at(image, directory)? as usize;
    let signature = image.get(at..).filter(|rest| at > directory && !rest.is_empty())?;
    let mut hash = Sha256::new();
    for part in [0..checksum, checksum + 4..directory, directory + 8..at] {
        hash.update(image.get(part)?);
    }
    Some((hash.finalize().into(), signature))
}

/// A number of two bytes, the least significant first; none where the bytes end before.
pub(crate) fn u16_at(image: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(image.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// As [`u16_at`], of four bytes.
pub(crate) fn u32_at(image: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(image.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Images for tests.
#[cfg(test)]
pub(crate) mod samples {
    /// A bzImage of a release, whole, with its checksum.
    pub(crate) fn bz_image(release: &str, paragraphs: u32) -> Vec<u8> {
        let mut image = vec![0x5a; 5 * 512 + paragraphs as usize * 16];
        image[..0x400].fill(0);
        image[0x1f4..0x1f8].copy_from_slice(&paragraphs.to_le_bytes());
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
        image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        image[0x300..0x300 + release.len()].copy_from_slice(release.as_bytes());
        let end = image.len() - 4;
        let mut crc = flate2::Crc::new();
        crc.update(&image[..end]);
        image[end..].copy_from_slice(&(!crc.sum()).to_le_bytes());
        image
    }
}

#[cfg(test)]
mod tests {
    use super::{samples::bz_image, *};

    #[test]
    fn a_pc_s_image_says_its_release() {
        let image = bz_image("6.1.0-x (me)", 64);
        assert_eq!(release_of(&image).as_deref(), Some("6.1.0-x"));
        assert_eq!(release_of(&bz_image("\u{7f}6.1", 64)), None);
        assert_eq!(release_of(&image[..0x20f]), None);
    }

    #[test]
    fn an_image_that_is_cut_short_or_overwritten_is_told_from_a_whole_one() {
        let image = bz_image("6.12.1", 0x1000);
        assert_eq!(damage(&image), None);
        for bytes in [600, 20_000, image.len() - 1] {
            let said = damage(&image[..bytes]).expect("cut");
            assert!(said.contains(&format!("{bytes} of {} bytes", image.len())), "{said}");
        }
        for at in [0x380, image.len() / 2, image.len() - 1] {
            let mut altered = image.clone();
            altered[at] ^= 1;
            assert!(damage(&altered).expect("altered").contains("damaged"), "byte {at}");
        }
        // What stands behind the image is not of it.
        let more = [image.as_slice(), b"more"].concat();
        assert_eq!(damage(&more), None);
        // Nothing can be said of newer kernels, which have no checksum.
        let mut newer = bz_image("6.16.0", 0x1000);
        newer[3000] ^= 1;
        assert_eq!(damage(&newer), None);
    }

    #[test]
    fn a_payload_that_gzip_packed_is_unpacked_where_there_is_no_checksum() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        io::Write::write_all(&mut packer, &[7; 100_000]).expect("packed");
        let payload = packer.finish().expect("packed");
        let mut image = bz_image("6.17.2", 0x1000);
        image[0x248..0x24c].copy_from_slice(&64_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        let at = 5 * 512 + 64;
        image[at..at + payload.len()].copy_from_slice(&payload);
        assert_eq!(damage(&image), None);
        image[at + payload.len() - 6] ^= 1;
        assert!(damage(&image).expect("altered").contains("damaged"));
    }

    #[test]
    fn a_signed_image_must_be_the_one_that_was_signed() {
        const HEADER: usize = 0x40;
        let mut image = bz_image("6.1.0-signed", 0x100);
        image[..2].copy_from_slice(b"MZ");
        image[0x3c..0x40].copy_from_slice(&(HEADER as u32).to_le_bytes());
        image[HEADER..HEADER + 4].copy_from_slice(b"PE\0\0");
        image[HEADER + 24..HEADER + 26].copy_from_slice(&0x20b_u16.to_le_bytes());
        let end = image.len();
        image[HEADER + 0xa8..HEADER + 0xac].copy_from_slice(&(end as u32).to_le_bytes());
        // Neither the checksum nor where the signature lies is signed.
        let parts = [&image[..HEADER + 0x58], &image[HEADER + 0x5c..HEADER + 0xa8]];
        let content = [parts[0], parts[1], &image[HEADER + 0xb0..]].concat();
        image.extend(SHA256_IDENTIFIER);
        image.extend(Sha256::digest(content));
        assert_eq!(damage(&image), None, "its own checksum is of what it was before");
        image[HEADER + 0x58] ^= 1;
        assert_eq!(damage(&image), None);
        image[end - 100] ^= 1;
        assert!(damage(&image).expect("altered").contains("damaged"));
    }

    #[test]
    fn images_for_arm_say_how_long_they_are() {
        let mut image = vec![0; 0x1000];
        image[..2].copy_from_slice(b"MZ");
        image[0x38..0x3c].copy_from_slice(b"ARM\x64");
        image[0x3c..0x40].copy_from_slice(&0x40_u32.to_le_bytes());
        image[0x40..0x44].copy_from_slice(b"PE\0\0");
        image[0x46..0x48].copy_from_slice(&2_u16.to_le_bytes());
        // No optional header; the second section ends at 0x1000.
        image[0x58 + 40 + 16..0x58 + 40 + 20].copy_from_slice(&0x800_u32.to_le_bytes());
        image[0x58 + 40 + 20..0x58 + 40 + 24].copy_from_slice(&0x800_u32.to_le_bytes());
        assert_eq!(damage(&image), None);
        assert!(damage(&image[..0x900]).expect("cut").contains("2304 of 4096 bytes"));
        let mut packed = vec![0; 0x1000];
        packed[0x24..0x28].copy_from_slice(&0x016f_2818_u32.to_le_bytes());
        packed[0x2c..0x30].copy_from_slice(&0x1000_u32.to_le_bytes());
        assert_eq!((arch_of(&packed), damage(&packed)), (Some("arm"), None));
        assert!(damage(&packed[..600]).expect("cut").contains("600 of 4096 bytes"));
    }
}
