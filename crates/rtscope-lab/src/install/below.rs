//! Files of the system below a root, which others wrote.
//!
//! Below another root than `/`, a link means what it means to that system, so that none leads to a file of this
//! machine. Only regular files are read: a pipe there would never end.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use rtscope_sys::tree::Tree;

use crate::error::LabError;

/// More than any file has that a boot loader, or a journal, keeps its lines in.
const BYTES_MAX: u64 = 8 * 1024 * 1024;

fn tree(root: &Path) -> Tree {
    Tree::under(root)
}

/// A path as the system below the root names it.
fn named<'a>(root: &Path, path: &'a Path) -> &'a Path {
    path.strip_prefix(root).unwrap_or(path)
}

/// The place of a file, with every link followed.
pub(super) fn place(root: &Path, path: &Path) -> Result<PathBuf, LabError> {
    tree(root).place(named(root, path)).map_err(LabError::file("find", path))
}

/// The place of a name: itself it may be a link.
pub(super) fn place_of_name(root: &Path, path: &Path) -> Result<PathBuf, LabError> {
    tree(root).place_of_name(named(root, path)).map_err(LabError::file("find", path))
}

pub(super) fn is_file(root: &Path, path: &Path) -> bool {
    tree(root).is_file(named(root, path))
}

pub(super) fn is_there(root: &Path, path: &Path) -> bool {
    tree(root).exists(named(root, path))
}

/// The bytes of a file.
pub(super) fn read(root: &Path, path: &Path) -> Result<Vec<u8>, LabError> {
    let read = || {
        let mut bytes = Vec::new();
        let file = tree(root).open(named(root, path))?;
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > BYTES_MAX {
            true => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
            false => Ok(bytes),
        }
    };
    read().map_err(LabError::file("read", path))
}

/// The text of a file.
pub(super) fn read_text(root: &Path, path: &Path) -> Result<String, LabError> {
    let is_no_text = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    String::from_utf8(read(root, path)?).map_err(is_no_text).map_err(LabError::file("read", path))
}
