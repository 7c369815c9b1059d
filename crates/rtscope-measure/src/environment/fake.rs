//! A machine made of files in a temporary folder, for tests.

use std::{fs, path::Path};

use rtscope_sys::tree::Tree;
use tempfile::TempDir;

/// A root that holds what a test puts there, gone with the value.
pub(crate) struct FakeTree {
    _folder: TempDir,
    pub(crate) tree: Tree,
}

impl FakeTree {
    pub(crate) fn new() -> FakeTree {
        let folder = tempfile::tempdir().expect("a temporary folder");
        FakeTree { tree: Tree::under(folder.path()), _folder: folder }
    }

    /// A root with links to devices of this machine, as files that refuse to be written.
    pub(crate) fn with_open_links() -> FakeTree {
        let folder = tempfile::tempdir().expect("a temporary folder");
        FakeTree { tree: Tree::with_open_links(folder.path()), _folder: folder }
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        self.bytes(path, text.as_bytes());
    }

    pub(crate) fn bytes(&self, path: &str, bytes: &[u8]) {
        let path = self.tree.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }

    /// A path that leads to a file elsewhere, as one that the kernel does not let be written.
    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.tree.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::os::unix::fs::symlink(Path::new(target), path).expect("a link");
    }

    pub(crate) fn read(&self, path: &str) -> String {
        self.tree.read(path).expect("a file of the test")
    }
}
