//! Files that are written as a whole, in folders that somebody else may have made.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rtscope_sys::process;

/// Writes a file by way of a second name, so that a reader never sees half of it. A link stays one, and a device or a pipe
/// is written to.
///
/// # Errors
///
/// What the kernel answered; the old file is still there then.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = &followed(path)?;
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return OpenOptions::new().write(true).open(path)?.write_all(bytes);
    }
    replace(path, bytes)
}

/// Where a path leads to. As with the kernel's `protected_symlinks`, nobody's link is followed in a folder such as `/tmp`,
/// where everybody may put one, but one's own and that of the folder's owner.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let link = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_symlink);
    if let (Some(link), Some(folder)) = (link, path.parent()) {
        let folder = if folder == Path::new("") { Path::new(".") } else { folder };
        let folder = fs::metadata(folder)?;
        const SHARED: u32 = 0o1002;
        let is_shared = folder.mode() & SHARED == SHARED;
        if is_shared && ![process::user(), folder.uid()].contains(&link.uid()) {
            return Err(io::Error::other(
                "it is a link that somebody else made, in a shared folder",
            ));
        }
    }
    Ok(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))
}

/// Writes a file into a folder that somebody else may have made: a link of that name is replaced, not followed.
///
/// # Errors
///
/// What the kernel answered; the old file is still there then.
pub fn write_into(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    replace(&folder.join(name), bytes)
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let _ = fs::remove_file(&part);
    let written = OpenOptions::new().write(true).create_new(true).open(&part);
    let written = written.and_then(|mut file| file.write_all(bytes));
    let written = written.and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_device_is_written_to_and_a_link_stays_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").expect("written");
        symlink(&file, &link).expect("made");
        write_whole(&link, b"new").expect("written");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read(&file).expect("there"), b"new");
        let full = Path::new("/dev/full");
        assert!(write_whole(full, b"lost").is_err(), "a device that is always full");
        let kind = fs::metadata(full).expect("there").file_type();
        assert!(kind.is_char_device(), "it is still a device");
    }

    #[test]
    fn a_link_of_somebody_else_in_a_shared_folder_is_not_followed() {
        if process::user() != 0 {
            return;
        }
        let room = tempfile::tempdir().expect("a folder");
        let (own, shared) = (room.path().join("own"), room.path().join("shared"));
        fs::write(&own, "own").expect("written");
        fs::create_dir(&shared).expect("made");
        let link = shared.join("report.html");
        symlink(&own, &link).expect("made");
        let everybody = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(&shared, everybody).expect("changed");
        write_whole(&link, b"mine").expect("one's own link");
        std::os::unix::fs::lchown(&link, Some(65534), None).expect("changed");
        let why = write_whole(&link, b"stolen").expect_err("another's").to_string();
        assert!(why.contains("somebody else made"), "{why}");
        assert_eq!(fs::read(&own).expect("there"), b"mine");
    }

    #[test]
    fn a_link_in_a_folder_of_others_is_replaced_and_not_followed() {
        let room = tempfile::tempdir().expect("a folder");
        let (folder, own) = (room.path().join("record"), room.path().join("own"));
        fs::create_dir(&folder).expect("made");
        fs::write(&own, "own").expect("written");
        for name in ["verdict.json", "verdict.json.part"] {
            symlink(&own, folder.join(name)).expect("a link");
        }
        write_into(&folder, "verdict.json", b"new").expect("written");
        assert_eq!(fs::read_to_string(folder.join("verdict.json")).expect("a file"), "new");
        assert_eq!(fs::read_to_string(&own).expect("a file"), "own");
        assert!(!folder.join("verdict.json.part").exists());
    }
}
