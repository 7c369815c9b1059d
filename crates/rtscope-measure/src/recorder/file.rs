//! The files of a record that grow while it runs.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::Arc,
};

use rtscope_model::chain::Chain;
use serde::Serialize;

use super::{source::Growing, sync::Syncer};

/// A file that grows by lines and keeps what the disk doesn't take.
#[derive(Debug)]
pub(super) struct Appender {
    pub(super) path: PathBuf,
    pub(super) file: Option<Arc<File>>,
    pub(super) waiting: Vec<u8>,
    /// Of all lines, those that wait among them.
    pub(super) chain: Chain,
    /// Whether the open file is synced from time to time.
    is_synced: bool,
}

impl Appender {
    pub(super) fn new(path: PathBuf) -> Appender {
        Appender {
            path,
            file: None,
            waiting: Vec::new(),
            chain: Chain::default(),
            is_synced: false,
        }
    }

    /// Adds a line, and has the file synced from now on.
    pub(super) fn line(&mut self, value: &impl Serialize, syncer: &Syncer) -> io::Result<()> {
        self.chain.write(&mut self.waiting, value)?;
        let outcome = self.flush();
        if let (Some(file), false) = (&self.file, self.is_synced) {
            syncer.add(file.clone());
            self.is_synced = true;
        }
        outcome
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            // Read at the end, by this handle: the name may be gone by then. It is a new file: a link of that name, which
            // somebody put there, isn't followed.
            let mut options = OpenOptions::new();
            let file = options.create_new(true).append(true).read(true).open(&self.path)?;
            self.file = Some(Arc::new(file));
        }
        let mut file = self.file.as_deref().expect("was opened above");
        let mut written = 0;
        let outcome = loop {
            match file.write(&self.waiting[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(n) if written + n == self.waiting.len() => {
                    written += n;
                    break Ok(());
                }
                Ok(n) => written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break Err(e),
            }
        };
        self.waiting.drain(..written);
        outcome
    }

    /// Goes on with another file, which has the place of the old one.
    pub(super) fn exchange(&mut self, file: File, chain: Chain, syncer: &Syncer) {
        let file = Arc::new(file);
        syncer.add(file.clone());
        self.file.replace(file).into_iter().for_each(|old| syncer.forget(old));
        self.chain = chain;
    }

    /// Writes what waits, and all of it once more where the file was removed.
    pub(super) fn close(&mut self) -> io::Result<()> {
        if self.is_removed() {
            let written = self.written();
            self.waiting.splice(..0, written);
            self.file = None;
        }
        self.flush()
    }

    pub(super) fn is_removed(&self) -> bool {
        let found = self.file.as_ref().and_then(|file| file.metadata().ok());
        found.is_some_and(|found| found.nlink() == 0)
    }

    fn written(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(mut file) = self.file.as_deref() {
            let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
        }
        bytes
    }

    /// What is on disk, and what still waits.
    pub(super) fn into_growing(self) -> Growing {
        Growing { disk: self.file, rest: self.waiting }
    }
}

/// Bytes of a raw sample.
pub(super) const RAW_BYTES: u64 = 16;

/// The raw samples of a thread.
#[derive(Debug)]
pub(super) struct RawFile {
    pub(super) file: Appender,
    /// Samples that are not in the file.
    pub(super) lost: u64,
}

impl RawFile {
    /// Writes no more: what waits is counted as lost, with a sample that is half in the file.
    pub(super) fn end(&mut self) {
        let mut left_bytes = std::mem::take(&mut self.file.waiting).len() as u64;
        if let Some(file) = &self.file.file {
            let len = file.metadata().map_or(0, |found| found.len());
            let _ = file.set_len(len - len % RAW_BYTES);
            left_bytes += len % RAW_BYTES;
        }
        self.lost += left_bytes / RAW_BYTES;
    }
}
