//! Rewrites the files of slices of a long run, with those that lie far back joined.
//!
//! The new file is made beside the old one while that one grows, and takes its place by its name: whenever
//! the run is killed, one of the two is there, and both have the same sums.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, IntoInnerError, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use rtscope_model::{
    chain::Chain,
    record::{FINE_NS, Pyramid},
    slice::Slice,
};

use super::{file::Appender, sync::Syncer};

/// A file is rewritten when its slices that are as they were measured have grown by so much.
const STEP_NS: u64 = FINE_NS / 2;

/// Bytes that are read and written at a time: memory of a run is locked.
const BUFFER_BYTES: usize = 32 << 10;

/// The file of a thread's slices.
#[derive(Debug)]
pub(super) struct SliceFile {
    pub(super) file: Appender,
    /// From here on slices are as they were measured.
    fine_from_ns: u64,
    end_ns: u64,
}

/// What is needed to make a new file of the first `bytes` of an old one.
#[derive(Debug)]
pub(super) struct Rewrite {
    thread: u32,
    path: PathBuf,
    /// Whole lines.
    bytes: u64,
    end_ns: u64,
    limits_ns: Arc<[Option<u64>]>,
}

/// A file that was made, or why not.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) thread: u32,
    bytes: u64,
    end_ns: u64,
    outcome: io::Result<(File, Chain)>,
}

impl SliceFile {
    pub(super) fn new(path: PathBuf, first: &Slice) -> SliceFile {
        SliceFile { file: Appender::new(path), fine_from_ns: first.start_ns, end_ns: first.end_ns }
    }

    pub(super) fn add(&mut self, slice: &Slice, syncer: &Syncer) -> io::Result<()> {
        self.end_ns = slice.end_ns;
        self.file.line(slice, syncer)
    }

    /// What to do when the file is worth rewriting.
    pub(super) fn rewrite(&self, thread: u32, limits_ns: &Arc<[Option<u64>]>) -> Option<Rewrite> {
        let is_due = self.end_ns.saturating_sub(self.fine_from_ns) >= FINE_NS + STEP_NS;
        if !is_due || !self.is_on_disk() {
            return None;
        }
        Some(Rewrite {
            thread,
            path: self.file.path.clone(),
            bytes: self.file.file.as_ref()?.metadata().ok()?.len(),
            end_ns: self.end_ns,
            limits_ns: limits_ns.clone(),
        })
    }

    /// Whether the file is there and has every line: what waits for room on the disk is no part of it.
    fn is_on_disk(&self) -> bool {
        self.file.waiting.is_empty() && !self.file.is_removed()
    }

    /// Puts the new file in the place of the old one, after the lines that were added meanwhile. When
    /// that fails, the old file stays, and is tried again when it has grown.
    pub(super) fn replace(&mut self, new: Rewritten, syncer: &Syncer) {
        self.fine_from_ns = new.end_ns.saturating_sub(FINE_NS);
        let part = part_of(&self.file.path);
        match self.complete(new, &part) {
            Ok((file, chain)) => self.file.exchange(file, chain, syncer),
            Err(_) => drop(std::fs::remove_file(part)),
        }
    }

    fn complete(&self, new: Rewritten, part: &Path) -> io::Result<(File, Chain)> {
        let (mut file, mut chain) = new.outcome?;
        let old = self.file.file.as_deref().filter(|_| self.is_on_disk());
        let mut old = old.ok_or(io::ErrorKind::NotFound)?;
        old.seek(SeekFrom::Start(new.bytes))?;
        let mut lines = Vec::new();
        for line in BufReader::with_capacity(BUFFER_BYTES, old).split(b'\n') {
            chain.write(&mut lines, &serde_json::from_slice::<Slice>(&line?)?)?;
        }
        file.write_all(&lines)?;
        std::fs::rename(part, &self.file.path)?;
        Ok((file, chain))
    }
}

impl Rewrite {
    /// Makes the new file, and waits until the disk has it.
    pub(super) fn run(self) -> Rewritten {
        let outcome = self.make();
        if outcome.is_err() {
            let _ = std::fs::remove_file(part_of(&self.path));
        }
        Rewritten { thread: self.thread, bytes: self.bytes, end_ns: self.end_ns, outcome }
    }

    fn make(&self) -> io::Result<(File, Chain)> {
        let old = File::open(&self.path)?.take(self.bytes);
        let mut old = BufReader::with_capacity(BUFFER_BYTES, old);
        let part = part_of(&self.path);
        // What a failure left would otherwise be added to. The file is made to be appended to and to
        // be read at the end, as the old one was.
        let _ = std::fs::remove_file(&part);
        let new = OpenOptions::new().create_new(true).append(true).read(true).open(part)?;
        let mut new = BufWriter::with_capacity(BUFFER_BYTES, new);
        let mut pyramid = Pyramid::new(self.end_ns, self.limits_ns.clone());
        let mut chain = Chain::default();
        let (mut line, mut text) = (Vec::new(), Vec::new());
        let mut put = |slice: &Slice| {
            text.clear();
            chain.write(&mut text, slice)?;
            new.write_all(&text)
        };
        while old.read_until(b'\n', &mut line)? > 0 {
            pyramid.add(serde_json::from_slice(&line)?).map_or(Ok(()), |slice| put(&slice))?;
            line.clear();
        }
        pyramid.finish().try_for_each(|slice| put(&slice))?;
        let new = new.into_inner().map_err(IntoInnerError::into_error)?;
        new.sync_data()?;
        Ok((new, chain))
    }
}

/// The name of a file in the making: no reader takes it for a file of slices.
fn part_of(path: &Path) -> PathBuf {
    path.with_extension("part")
}
