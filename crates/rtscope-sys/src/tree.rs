//! `/proc`, `/sys`, `/dev` and `/boot` under a root that tests can put elsewhere.

use std::{
    fs,
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

use crate::Error;

/// More than any file of this machine's kernel holds, `/proc/interrupts` of thousands of CPUs included.
const OWN_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// More than a copy of such a file holds: a file that is something else must not take memory and time.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Symbolic links on the way to a file, as the kernel's own limit.
pub(crate) const LINKS_MAX: usize = 40;

/// A root folder. Paths are given without a leading slash: `proc/cmdline`.
///
/// Below another root than `/`, a symbolic link means what it means to the machine that the folder is of: an absolute
/// one begins at the root. So no link leads to a file of this machine.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
    /// Whether links below the root stay there.
    is_closed: bool,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree { root: PathBuf::from("/"), is_closed: false }
    }
}

impl Tree {
    /// A tree under another root.
    #[must_use]
    pub fn under(root: impl Into<PathBuf>) -> Tree {
        let root = root.into();
        Tree { is_closed: root != Path::new("/"), root }
    }

    /// A tree under another root whose links lead where they lead on this machine.
    #[must_use]
    pub fn with_open_links(root: impl Into<PathBuf>) -> Tree {
        Tree { root: root.into(), is_closed: false }
    }

    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// The place of a name: the links on the way to it are followed, itself it may be one. What replaces, removes or
    /// makes a file needs the place of its name.
    ///
    /// # Errors
    ///
    /// When links lead in a circle.
    pub fn place_of_name(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = path.as_ref();
        match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) => Ok(self.place(folder)?.join(name)),
            _ => self.place(path),
        }
    }

    /// The place of a file, with the links on the way followed. It need not be there. Below another root than `/`, no
    /// step of it is a link, and none leads out.
    ///
    /// # Errors
    ///
    /// When links lead in a circle.
    pub fn place(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = path.as_ref();
        if !self.is_closed {
            return Ok(self.root.join(path));
        }
        let mut ahead: Vec<PathBuf> = steps(path);
        let mut found = PathBuf::new();
        let mut links = 0;
        while let Some(step) = ahead.pop() {
            if step == Path::new("..") {
                found.pop();
                continue;
            }
            let Ok(target) = fs::read_link(self.root.join(&found).join(&step)) else {
                found.push(step);
                continue;
            };
            links += 1;
            if links > LINKS_MAX {
                return Err(io::Error::other("too many symbolic links"));
            }
            if target.is_absolute() {
                found = PathBuf::new();
            }
            ahead.extend(steps(&target));
        }
        Ok(self.root.join(found))
    }

    /// Whether there is a regular file.
    #[must_use]
    pub fn is_file(&self, path: impl AsRef<Path>) -> bool {
        self.place(path.as_ref()).is_ok_and(|path| path.is_file())
    }

    /// Whether there is a folder.
    #[must_use]
    pub fn is_folder(&self, path: impl AsRef<Path>) -> bool {
        self.place(path.as_ref()).is_ok_and(|path| path.is_dir())
    }

    /// Whether there is anything.
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.place(path.as_ref()).is_ok_and(|path| path.exists())
    }

    /// The text of a file, without the white space around it. Bytes that are not UTF-8, as in the name of
    /// a thread that was cut inside of a letter, are replaced.
    ///
    /// # Errors
    ///
    /// As [`Tree::read_bytes`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<String, Error> {
        Ok(String::from_utf8_lossy(&self.read_bytes(path)?).trim().to_owned())
    }

    /// The bytes of a file.
    ///
    /// # Errors
    ///
    /// When it can't be read, or is too large to be one of the kernel's. Below another root, only a regular file is
    /// read: a pipe there would never end.
    pub fn read_bytes(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
        let path = path.as_ref();
        let max = if self.root == Path::new("/") { OWN_BYTES_MAX } else { FILE_BYTES_MAX };
        let read = |file: fs::File| {
            let mut bytes = Vec::new();
            file.take(max + 1).read_to_end(&mut bytes)?;
            match bytes.len() as u64 > max {
                true => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
                false => Ok(bytes),
            }
        };
        self.open(path).and_then(read).map_err(|source| Error::File {
            operation: "read",
            path: self.path(path),
            source,
        })
    }

    /// Opens a file, to read a part of it. Below another root, only a regular file is opened.
    ///
    /// # Errors
    ///
    /// When it can't be opened.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<fs::File> {
        let place = self.place(path)?;
        self.refuse_special(&place)?;
        fs::File::open(place)
    }

    /// Refuses what isn't a regular file below another root: opening a pipe there may never end.
    fn refuse_special(&self, place: &Path) -> io::Result<()> {
        if self.root != Path::new("/") && !fs::metadata(place)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(())
    }

    /// Writes a text to a file that exists: the files of `/proc` and `/sys` are never made.
    ///
    /// # Errors
    ///
    /// When it is missing or the kernel refuses the value.
    pub fn write(&self, path: impl AsRef<Path>, text: &str) -> Result<(), Error> {
        let path = path.as_ref();
        let write = || {
            let place = self.place(path)?;
            self.refuse_special(&place)?;
            let mut file = fs::OpenOptions::new().write(true).truncate(true).open(place)?;
            io::Write::write_all(&mut file, text.as_bytes())
        };
        write().map_err(|source| Error::File { operation: "write", path: self.path(path), source })
    }

    /// The names in a folder, sorted; none when it can't be read.
    #[must_use]
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let folder = self.place(path.as_ref());
        let Ok(entries) = folder.and_then(fs::read_dir) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

/// The steps of a path, the last first. What leads above the root stays there.
fn steps(path: &Path) -> Vec<PathBuf> {
    let is_step =
        |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    let parts = path.components().filter(is_step);
    parts.rev().map(|part| PathBuf::from(part.as_os_str())).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree() -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = Tree::under(folder.path().join("root"));
        fs::create_dir_all(tree.path("etc")).expect("made");
        (folder, tree)
    }

    #[test]
    fn a_link_below_another_root_stays_there() {
        let (folder, tree) = tree();
        fs::write(folder.path().join("outside"), "of this machine").expect("written");
        fs::write(tree.path("etc/inside"), "of the card\n").expect("written");
        for (link, target) in [
            ("a", "/etc/inside"),
            ("b", "../../../../etc/inside"),
            ("c", "inside"),
            ("d", "/etc/a"),
        ] {
            symlink(target, tree.path(format!("etc/{link}"))).expect("linked");
            assert_eq!(tree.read(format!("etc/{link}")).ok().as_deref(), Some("of the card"));
        }
        symlink(folder.path().join("outside"), tree.path("etc/e")).expect("linked");
        symlink("../../outside", tree.path("etc/f")).expect("linked");
        symlink("/etc", tree.path("folder")).expect("linked");
        assert!(
            !tree.exists("etc/e") && tree.read("etc/e").is_err() && tree.read("etc/f").is_err()
        );
        assert!(
            tree.list("folder").contains(&"inside".to_owned()) && tree.is_file("folder/inside")
        );
        assert!(tree.is_folder("folder") && !tree.is_file("folder"));
    }

    #[test]
    fn what_is_written_below_another_root_stays_there() {
        let (folder, tree) = tree();
        let outside = folder.path().join("outside");
        fs::write(&outside, "of this machine").expect("written");
        fs::write(tree.path("etc/inside"), "old").expect("written");
        symlink(&outside, tree.path("etc/a")).expect("linked");
        symlink("../../outside", tree.path("etc/b")).expect("linked");
        symlink("/etc/inside", tree.path("etc/c")).expect("linked");
        symlink(folder.path(), tree.path("etc/d")).expect("linked");
        for path in ["etc/a", "etc/b", "etc/d/outside", "../outside"] {
            assert!(tree.write(path, "new").is_err(), "{path}");
        }
        assert_eq!(tree.write("etc/c", "new").ok(), Some(()));
        let read = |path: PathBuf| fs::read_to_string(path).expect("a file");
        assert_eq!(
            (read(tree.path("etc/inside")), read(outside)),
            ("new".into(), "of this machine".into())
        );
    }

    #[test]
    fn a_new_file_takes_the_place_of_a_link() {
        let (folder, tree) = tree();
        let outside = folder.path().join("outside");
        fs::write(&outside, "of this machine").expect("written");
        symlink(&outside, tree.path("etc/a")).expect("linked");
        symlink("etc", tree.path("here")).expect("linked");
        let place = tree.place_of_name("here/a").expect("a place");
        assert_eq!(place, tree.path("etc/a"));
        io::Write::write_all(&mut crate::whole::create_anew(&place).expect("made"), b"new")
            .expect("written");
        assert_eq!(fs::read_to_string(&place).expect("a file"), "new");
        assert_eq!(fs::read_to_string(outside).expect("a file"), "of this machine");
    }

    #[test]
    fn links_in_a_circle_end() {
        let (_folder, tree) = tree();
        symlink("b", tree.path("etc/a")).expect("linked");
        symlink("/etc/a", tree.path("etc/b")).expect("linked");
        symlink(".", tree.path("etc/c")).expect("linked");
        assert!(tree.read("etc/a").is_err() && !tree.exists("etc/b"));
        assert!(tree.list("etc/c/c/c").contains(&"a".to_owned()));
    }

    #[test]
    fn what_never_ends_is_not_read() {
        let (_folder, tree) = tree();
        symlink("/dev/zero", tree.path("etc/zero")).expect("linked");
        assert!(tree.read("etc/zero").is_err(), "there is no such device below the root");
        let _socket = std::os::unix::net::UnixListener::bind(tree.path("etc/socket"));
        assert!(tree.read("etc/socket").is_err());
        let file = fs::File::create(tree.path("etc/large")).expect("made");
        file.set_len(FILE_BYTES_MAX + 1).expect("a hole");
        let error = tree.read_bytes("etc/large").expect_err("too large");
        let Error::File { source, .. } = error else { panic!("{error}") };
        assert_eq!(source.kind(), io::ErrorKind::FileTooLarge);
    }
}
