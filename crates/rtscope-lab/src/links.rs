//! Symbolic links in folders that somebody else made: one may lead to any file of this machine.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Component, Path},
};

use crate::error::LabError;

/// Whether a path stays below the folder that it is joined to, as far as its text says.
pub(crate) fn stays_below(path: &Path) -> bool {
    let mut parts = path.components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Removes whatever is neither a file nor a folder below a folder that an archive was unpacked into. A guest or a record
/// would get the bytes of the file that a link leads to.
pub(crate) fn remove(folder: &Path) -> Result<(), LabError> {
    each(folder, &mut |path| {
        // Archives of some distributions have folders that nobody may write to.
        match fs::symlink_metadata(path)?.is_dir() {
            true => fs::set_permissions(path, Permissions::from_mode(0o755)),
            false => fs::remove_file(path),
        }
    })
    .map_err(LabError::file("clean up", folder))
}

/// Refuses a folder that is a link or has links in it, before anything is written into it. One that isn't there has none.
pub(crate) fn refuse(folder: &Path) -> Result<(), LabError> {
    if fs::symlink_metadata(folder).is_err() {
        return Ok(());
    }
    let is_link = |path: &Path| {
        io::Error::other(format!(
            "{} is a symbolic link and may point to one of your files: remove it, or choose another folder with --out",
            path.display()
        ))
    };
    each(folder, &mut |path| match path.is_symlink() {
        true => Err(is_link(path)),
        false => Ok(()),
    })
    .map_err(|e| LabError::Refused(format!("can't write into {}: {e}", folder.display())))
}

/// Calls for the folder, each folder below it before what is in it, and each thing that is no regular file.
fn each(folder: &Path, call: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    call(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            each(&entry.path(), call)?;
        } else if !kind.is_file() {
            call(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_removed_or_refused_wherever_they_are() {
        let room = tempfile::tempdir().expect("a folder");
        let (folder, inner) = (room.path().join("record"), room.path().join("record/slices"));
        refuse(&folder).expect("not there");
        fs::create_dir_all(&inner).expect("made");
        fs::write(inner.join("t0.jsonl"), "kept").expect("written");
        refuse(&folder).expect("no link");
        symlink(room.path(), inner.join("link")).expect("made");
        let why = refuse(&folder).expect_err("a link").to_string();
        assert!(why.contains("slices/link is a symbolic link") && why.contains("--out"), "{why}");
        fs::set_permissions(&inner, Permissions::from_mode(0o555)).expect("closed");
        remove(&folder).expect("removed");
        refuse(&folder).expect("no link");
        assert!(inner.join("t0.jsonl").is_file() && room.path().is_dir());
        symlink(&folder, room.path().join("other")).expect("made");
        refuse(&room.path().join("other")).expect_err("a link itself");
    }

    #[test]
    fn a_path_that_stays_below_goes_only_down() {
        assert!(stays_below(Path::new("kernel/a.ko")));
        for path in ["", "/etc/passwd", "../a", "a/../../b"] {
            assert!(!stays_below(Path::new(path)), "{path}");
        }
    }
}
