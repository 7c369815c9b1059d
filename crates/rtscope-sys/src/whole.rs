//! Files that are written as a whole, in folders that somebody else may have made.
//!
//! Each is written under a second name, `NAME.part`, and renamed, so that a reader sees the old file or the new one. A
//! writer that is killed leaves the second name behind, and the next writer replaces it. Two that write one file at a
//! time are not kept apart.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::{process, tree::LINKS_MAX};

/// Writes a file that the user has named. A link stays one, and a device or a pipe is written to.
///
/// # Errors
///
/// What the kernel answered; the old file is still there then.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = &followed(path)?;
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return OpenOptions::new().write(true).open(path)?.write_all(bytes);
    }
    write_anew(path, bytes)
}

/// Where a link leads to. As with the kernel's `protected_symlinks`, nobody's link is followed in a folder such as `/tmp`,
/// where everybody may put one, but one's own and that of the folder's owner.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(link) = fs::symlink_metadata(&path) else { return Ok(path) };
        if !link.is_symlink() {
            return Ok(path);
        }
        let folder = folder_of(&path);
        let found = fs::metadata(folder)?;
        if !may_follow(link.uid(), found.mode(), found.uid(), process::user()) {
            let why = "it is another user's symbolic link in a folder that everyone can write to: remove it, or \
                       choose another path";
            return Err(io::Error::other(why));
        }
        let next = folder.join(fs::read_link(&path)?);
        // What /proc/self/fd/1 leads to may have no name.
        if fs::symlink_metadata(&next).is_err() && fs::metadata(&path).is_ok() {
            return Ok(path);
        }
        path = next;
    }
    Err(io::Error::other("too many levels of symbolic links: name the file itself"))
}

/// The rule of `protected_symlinks` (`may_follow_link` in the kernel's `fs/namei.c`), by the owner of a link and the mode
/// and owner of its folder.
fn may_follow(link: u32, folder_mode: u32, folder: u32, user: u32) -> bool {
    const SHARED: u32 = 0o1002;
    folder_mode & SHARED != SHARED || [user, folder].contains(&link)
}

/// Writes a file in the place of whatever has its name: a link is replaced, not followed.
///
/// # Errors
///
/// What the kernel answered; the old file is still there then.
pub fn write_anew(path: &Path, bytes: &[u8]) -> io::Result<()> {
    by_second_name(path, |part| create_anew(part)?.write_all(bytes))
}

/// The same for a file that has to outlive a power cut: it is on the disk when this returns. With a mode, it has these
/// permissions from the start.
///
/// # Errors
///
/// What the kernel answered. The old file is still there then, unless the disk failed after the change of names.
pub fn write_to_disk(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    by_second_name(path, |part| {
        let mut file = create_with(OpenOptions::new().mode(mode.unwrap_or(0o666)), part)?;
        if let Some(mode) = mode {
            // The umask may have taken some.
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        file.write_all(bytes)?;
        file.sync_all()
    })?;
    File::open(folder_of(path))?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

fn by_second_name(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let written = write(&part).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

/// A new file in the place of whatever has its name, without following a link there.
///
/// # Errors
///
/// When it can't be made, or a folder has its name.
pub fn create_anew(path: &Path) -> io::Result<File> {
    create_with(&mut OpenOptions::new(), path)
}

fn create_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    options.write(true).create_new(true).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, symlink},
    };

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
        let (user, other, owner) = (1000, 1001, 0);
        assert!(may_follow(user, 0o1777, owner, user) && may_follow(owner, 0o1777, owner, user));
        assert!(!may_follow(other, 0o1777, owner, user) && !may_follow(other, 0o1777, owner, 0));
        assert!(may_follow(other, 0o755, owner, user) && may_follow(other, 0o1775, owner, user));
    }

    #[test]
    fn links_are_followed_one_by_one_and_not_for_ever() {
        let room = tempfile::tempdir().expect("a folder");
        let at = |name: &str| room.path().join(name);
        symlink("second", at("first")).expect("made");
        symlink(at("file"), at("second")).expect("made");
        write_whole(&at("first"), b"new").expect("written");
        assert_eq!(fs::read(at("file")).expect("there"), b"new");
        assert!(at("first").is_symlink() && at("second").is_symlink());
        symlink("loop", at("loop")).expect("made");
        write_whole(&at("loop"), b"lost").expect_err("no end");
        // What /proc/self/fd leads to may have no name.
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let name = format!("/proc/self/fd/{}", writer.as_raw_fd());
        write_whole(Path::new(&name), b"written").expect("a pipe takes it");
        drop(writer);
        assert_eq!(io::read_to_string(&mut reader).expect("read"), "written");
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
        write_anew(&folder.join("verdict.json"), b"new").expect("written");
        assert_eq!(fs::read_to_string(folder.join("verdict.json")).expect("a file"), "new");
        assert_eq!(fs::read_to_string(&own).expect("a file"), "own");
        assert!(!folder.join("verdict.json.part").exists());
    }

    #[test]
    fn what_goes_to_the_disk_has_its_permissions_and_leaves_no_second_name() {
        let room = tempfile::tempdir().expect("a folder");
        let path = room.path().join("journal");
        fs::write(room.path().join("journal.part"), "torn").expect("written");
        for (mode, bytes) in [(0o600, b"first"), (0o755, b"again")] {
            write_to_disk(&path, bytes, Some(mode)).expect("written");
            assert_eq!(fs::read(&path).expect("there"), bytes);
            assert_eq!(fs::metadata(&path).expect("there").mode() & 0o7777, mode);
        }
        // A folder of that name can't be replaced: what was there stays.
        fs::create_dir(room.path().join("journal.part")).expect("made");
        write_to_disk(&path, b"lost", None).expect_err("no second name");
        assert_eq!(fs::read(&path).expect("there"), b"again");
        assert_eq!(fs::read_dir(room.path()).expect("there").count(), 2);
    }
}
