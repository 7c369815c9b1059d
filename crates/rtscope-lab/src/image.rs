//! The guest's file system: an initramfs with one program in it.
//!
//! The archive is `cpio` in the kernel's `newc` form. Inode numbers count up, owners and times are 0:
//! the same contents give the same bytes, and so the same run in virtual time.

use std::io;

use cpio::newc::{self, ModeFileType};
use rtscope_model::guest;

/// Folders that the agent mounts on, and those of the files.
const FOLDERS: [&str; 8] = ["boot", "dev", "proc", "run", "sys", "tmp", "var", "var/tmp"];

/// What goes into an image.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// The static program: the guest's first process, and all its loads.
    pub program: Vec<u8>,
    /// The plan's text; empty for a guest without a plan.
    pub plan: String,
    /// The kernel's release and its configuration, for kernels that don't show it themselves.
    pub config: Option<(String, Vec<u8>)>,
    /// Further files: path without a leading slash, bytes, whether it can be run.
    pub files: Vec<(String, Vec<u8>, bool)>,
}

/// An entry of the archive.
struct Entry<'a> {
    name: String,
    kind: ModeFileType,
    mode: u32,
    device: (u32, u32),
    body: &'a [u8],
}

impl<'a> Entry<'a> {
    fn folder(name: &str) -> Entry<'a> {
        let (kind, mode) = (ModeFileType::Directory, 0o755);
        Entry { name: name.to_owned(), kind, mode, device: (0, 0), body: &[] }
    }

    fn file(name: impl Into<String>, body: &'a [u8], runs: bool) -> Entry<'a> {
        let mode = if runs { 0o755 } else { 0o644 };
        Entry { name: name.into(), kind: ModeFileType::Regular, mode, device: (0, 0), body }
    }
}

/// Writes the archive.
///
/// # Errors
///
/// A file of 4 GiB or more.
pub fn write(contents: &Contents) -> io::Result<Vec<u8>> {
    let mut entries: Vec<Entry<'_>> = FOLDERS.into_iter().map(Entry::folder).collect();
    // The kernel opens it for the first process before that can mount anything.
    entries.push(Entry {
        kind: ModeFileType::Char,
        mode: 0o600,
        device: (5, 1),
        ..Entry::file("dev/console", &[], false)
    });
    entries.push(Entry::file("init", &contents.program, true));
    if !contents.plan.is_empty() {
        entries.push(Entry::file("plan.toml", contents.plan.as_bytes(), false));
    }
    if let Some((release, config)) = &contents.config {
        entries.push(Entry::file(format!("boot/config-{release}"), config, false));
    }
    for folder in folders_of(&contents.files) {
        entries.push(Entry::folder(&folder));
    }
    for (path, body, runs) in &contents.files {
        entries.push(Entry::file(path.clone(), body, *runs));
    }
    let mut archive = Vec::new();
    for (i, entry) in entries.into_iter().enumerate() {
        append(&mut archive, entry, i as u32 + 1)?;
    }
    newc::trailer(&mut archive)?;
    // The kernel reads archives in blocks of 512 bytes; a boot loader may put more behind.
    archive.resize(archive.len().next_multiple_of(512), 0);
    Ok(archive)
}

/// An archive behind another one, with the instant that a guest aims an expiry at. It is as long for each instant, so that
/// nothing else differs between two guests.
///
/// # Errors
///
/// None that happens.
pub fn aim(at_ns: u64) -> io::Result<Vec<u8>> {
    let text = format!("{at_ns:018}");
    let mut archive = Vec::new();
    append(&mut archive, Entry::file(guest::AIM, text.as_bytes(), false), 1)?;
    newc::trailer(&mut archive)?;
    archive.resize(archive.len().next_multiple_of(512), 0);
    Ok(archive)
}

fn append(archive: &mut Vec<u8>, entry: Entry<'_>, inode: u32) -> io::Result<()> {
    let size = u32::try_from(entry.body.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let folder = matches!(entry.kind, ModeFileType::Directory);
    let mut writer = newc::Builder::new(&entry.name)
        .ino(inode)
        .nlink(if folder { 2 } else { 1 })
        .mode(entry.mode)
        .set_mode_file_type(entry.kind)
        .rdev_major(entry.device.0)
        .rdev_minor(entry.device.1)
        .write(archive, size);
    io::Write::write_all(&mut writer, entry.body)?;
    writer.finish().map(drop)
}

/// Every folder on the way to a file, each once, before what is in it.
fn folders_of(files: &[(String, Vec<u8>, bool)]) -> Vec<String> {
    let ancestors = files.iter().flat_map(|(path, ..)| {
        path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect::<Vec<_>>()
    });
    let mut all: Vec<String> = ancestors.filter(|path| !FOLDERS.contains(&path.as_str())).collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn contents() -> Contents {
        Contents {
            program: vec![7; 1001],
            plan: "name = 'x'".to_owned(),
            config: Some(("6.1.0".to_owned(), b"CONFIG_HZ=250\n".to_vec())),
            files: vec![("lib/modules/6.1.0/a.ko".to_owned(), vec![1, 2, 3], false)],
        }
    }

    /// Name, mode, device and bytes of an entry.
    type Entry = (String, u32, (u32, u32), Vec<u8>);

    /// Each entry, read back by another reader than the writer.
    fn read(mut archive: &[u8]) -> Vec<Entry> {
        let mut entries = Vec::new();
        loop {
            let mut reader = newc::Reader::new(archive).expect("an entry");
            let entry = reader.entry().clone();
            if entry.is_trailer() {
                return entries;
            }
            let mut body = Vec::new();
            reader.read_to_end(&mut body).expect("its bytes");
            assert_eq!((entry.mtime(), entry.uid(), entry.gid()), (0, 0, 0));
            assert_eq!(entry.ino() as usize, entries.len() + 1);
            let device = (entry.rdev_major(), entry.rdev_minor());
            entries.push((entry.name().to_owned(), entry.mode(), device, body));
            archive = reader.finish().expect("the rest");
        }
    }

    #[test]
    fn equal_contents_give_equal_bytes_and_others_do_not() {
        let first = write(&contents()).expect("written");
        assert_eq!(first, write(&contents()).expect("written"));
        let other = Contents { plan: "name = 'y'".to_owned(), ..contents() };
        assert_ne!(first, write(&other).expect("written"));
        assert_eq!(first.len() % 512, 0);
    }

    #[test]
    fn two_aims_differ_in_their_digits_only() {
        let (one, other) = (aim(0).expect("written"), aim(1_234_567_890_123).expect("written"));
        assert_eq!((one.len(), one.len() % 512), (other.len(), 0));
        let differing = one.iter().zip(&other).filter(|(one, other)| one != other).count();
        assert!(differing <= 18, "{differing}");
        assert_eq!(read(&other)[0].3, b"000001234567890123");
    }

    #[test]
    fn everything_is_there_and_every_folder_before_what_is_in_it() {
        let entries = read(&write(&contents()).expect("written"));
        let find = |name: &str| {
            let at = entries.iter().position(|entry| entry.0 == name);
            at.unwrap_or_else(|| panic!("{name} is missing"))
        };
        let (_, mode, _, body) = &entries[find("init")];
        assert_eq!((*mode, body.as_slice()), (0o100_755, &[7; 1001][..]));
        let (_, mode, device, _) = &entries[find("dev/console")];
        assert_eq!((*mode, *device), (0o020_600, (5, 1)));
        assert_eq!(entries[find("plan.toml")].3, b"name = 'x'");
        assert_eq!(entries[find("boot/config-6.1.0")].3, b"CONFIG_HZ=250\n");
        for (name, ..) in &entries {
            if let Some((folder, _)) = name.rsplit_once('/') {
                assert!(find(folder) < find(name), "{folder} comes after {name}");
            }
        }
    }
}
