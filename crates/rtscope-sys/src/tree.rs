//! `/proc`, `/sys`, `/dev` and `/boot` under a root that tests can put elsewhere.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::Error;

/// A root folder. Paths are given without a leading slash: `proc/cmdline`.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree { root: PathBuf::from("/") }
    }
}

impl Tree {
    /// A tree under another root.
    #[must_use]
    pub fn under(root: impl Into<PathBuf>) -> Tree {
        Tree { root: root.into() }
    }

    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// The text of a file, without the white space around it. Bytes that are not UTF-8, as in the name of
    /// a thread that was cut inside of a letter, are replaced.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<String, Error> {
        let path = self.path(path);
        match fs::read(&path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).trim().to_owned()),
            Err(source) => Err(Error::File { operation: "read", path, source }),
        }
    }

    pub fn read_bytes(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
        let path = self.path(path);
        fs::read(&path).map_err(|source| Error::File { operation: "read", path, source })
    }

    /// Writes a text to a file that exists: the files of `/proc` and `/sys` are never made.
    ///
    /// # Errors
    ///
    /// When it is missing or the kernel refuses the value.
    pub fn write(&self, path: impl AsRef<Path>, text: &str) -> Result<(), Error> {
        let path = self.path(path);
        let written = fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)
            .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|source| Error::File { operation: "write", path, source })
    }

    /// The names in a folder, sorted; none when it can't be read.
    #[must_use]
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}
