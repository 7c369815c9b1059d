//! `/dev/cpu_dma_latency`: a value that the kernel keeps as long as the file is open. It needs no
//! journal: when the process dies, the kernel drops the value.
//!
//! The kernel takes the smallest of all values that are held, and shows that one. Reading back can't
//! show whose value it is.

use std::{fs::OpenOptions, io, os::unix::fs::FileExt};

use rtscope_sys::{Error, tree::Tree};

/// A latency that is held.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) setting: &'static str,
    pub(super) path: &'static str,
    /// Before, and as read back, in us.
    pub(super) from: i32,
    pub(super) to: i32,
    file: std::fs::File,
}

impl Held {
    /// Asks for a latency of at most `latency_us`.
    pub(super) fn take(
        tree: &Tree,
        setting: &'static str,
        path: &'static str,
        latency_us: i32,
    ) -> Result<Held, Error> {
        let failed =
            |operation| move |source| Error::File { operation, path: tree.path(path), source };
        let file = OpenOptions::new().read(true).write(true).open(tree.path(path));
        let file = file.map_err(failed("open"))?;
        let from = read(&file).map_err(failed("read"))?;
        file.write_all_at(&latency_us.to_ne_bytes(), 0).map_err(failed("write"))?;
        let to = read(&file).map_err(failed("read"))?;
        Ok(Held { setting, path, from, to, file })
    }

    /// Lets go. The value in force after that, in us; none when it can't be read.
    pub(super) fn release(self, tree: &Tree) -> Option<i32> {
        drop(self.file);
        read(&std::fs::File::open(tree.path(self.path)).ok()?).ok()
    }
}

fn read(file: &std::fs::File) -> io::Result<i32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(i32::from_ne_bytes(bytes))
}
