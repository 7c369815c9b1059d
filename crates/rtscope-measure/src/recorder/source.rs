//! A record's files as they are read: on disk, in memory, or the beginning of each on disk and its end
//! in memory.

use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rtscope_model::record::{
    DRAWN_SPANS, EventReader, Files, LISTED_SPANS, NotARecord, Record, RecordReader, SampleReader,
    Samples, SliceFile, SliceReader,
};

use super::RecordError;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 << 10;

/// The histograms of some thousand threads are not longer.
const HISTOGRAMS_MAX: u64 = 256 << 20;

/// Largest `explain.json` that is read: a late wake-up may keep twenty thousand events.
const EXPLAINED_MAX: u64 = 256 << 20;

/// The other small files of a record are not longer. Reading a plan takes many times its size.
const WHOLE_MAX: u64 = 4 << 20;

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Files without a record.
    #[error(transparent)]
    NotARecord(#[from] NotARecord),
}

/// A file that grew line by line.
#[derive(Debug, Default)]
pub(super) struct Growing {
    /// What is on disk: an open file, whose name may be gone.
    pub(super) disk: Option<Arc<File>>,
    /// What follows it in memory.
    pub(super) rest: Vec<u8>,
}

/// The files of a record, to be read once or several times.
#[derive(Debug, Default)]
pub struct RecordFiles {
    /// The small files; neither events nor slices.
    pub(super) whole: Files,
    pub(super) events: Growing,
    pub(super) slices: Vec<(String, Growing)>,
    /// Files of every wake-up, by thread.
    pub(super) raw: Vec<(u32, Growing)>,
    /// Whether [`RecordFiles::read`] reads each wake-up of a run that kept them, as far as memory allows; else what a
    /// drawing needs, with neighbours joined.
    pub lists_samples: bool,
    /// Where they are or should be, for messages.
    pub(super) folder: std::path::PathBuf,
}

impl From<Files> for RecordFiles {
    fn from(mut files: Files) -> RecordFiles {
        let growing = |text: String| Growing { disk: None, rest: text.into_bytes() };
        let events = growing(std::mem::take(&mut files.events));
        let slices = std::mem::take(&mut files.slices);
        let slices = slices.into_iter().map(|(name, text)| (name, growing(text))).collect();
        RecordFiles { whole: files, events, slices, ..RecordFiles::default() }
    }
}

impl RecordFiles {
    /// Opens the files of a record's folder. A missing file is an empty one: what that means is for
    /// [`RecordFiles::read`] to say.
    ///
    /// # Errors
    ///
    /// When the folder can't be listed, or what has the name of a file of a record is something else:
    /// a FIFO would be waited for without end.
    pub fn open(folder: &Path) -> Result<RecordFiles, RecordError> {
        let failed = |source| RecordError::Read { path: folder.to_owned(), source };
        fs::read_dir(folder).map_err(failed)?;
        let text = |name: &str| whole(&folder.join(name), WHOLE_MAX);
        let grown = |name: &str| -> Result<Growing, RecordError> {
            let disk = regular(&folder.join(name))?.map(Arc::new);
            Ok(Growing { disk, rest: Vec::new() })
        };
        let slices: Result<_, RecordError> = slice_names(folder)
            .into_iter()
            .map(|name| {
                let file = grown(&name)?;
                Ok((name, file))
            })
            .collect();
        Ok(RecordFiles {
            whole: Files {
                plan: text("plan.toml")?,
                before: text("environment.before.json")?,
                after: text("environment.after.json")?,
                histograms: whole(&folder.join("histograms.json"), HISTOGRAMS_MAX)?,
                lab: text("lab.json")?,
                explained: whole(&folder.join("explain.json"), EXPLAINED_MAX)?,
                ..Files::default()
            },
            events: grown("events.jsonl")?,
            slices: slices?,
            raw: open_raw(folder)?,
            lists_samples: false,
            folder: folder.to_owned(),
        })
    }

    /// Adds what explains the run's late wake-ups, as `explain.json` holds it.
    pub fn explain(&mut self, text: String) {
        self.whole.explained = text;
    }

    /// Reads the record in one pass, several files of slices at a time.
    ///
    /// # Errors
    ///
    /// When a file can't be read, or the files are no record.
    pub fn read(&self) -> Result<Record, ReadError> {
        let mut events = EventReader::default();
        self.events.feed(|piece| events.feed(piece)).map_err(|e| self.failed(e))?;
        let reader = RecordReader::new(&self.whole, events.finish())?;
        let slices = self.read_slices(&reader).map_err(|e| self.failed(e))?;
        let mut record = reader.finish(slices);
        record.samples = self.read_samples().map_err(|e| self.failed(e))?;
        Ok(record)
    }

    fn read_samples(&self) -> io::Result<Vec<Samples>> {
        let spans_max = if self.lists_samples { LISTED_SPANS } else { DRAWN_SPANS };
        let read = |(thread, file): &(u32, Growing)| {
            let mut samples = SampleReader::new(*thread, spans_max);
            file.feed(|piece| samples.feed(piece))?;
            Ok(samples.finish())
        };
        self.raw.iter().map(read).collect()
    }

    fn read_slices(&self, reader: &RecordReader) -> io::Result<Vec<SliceFile>> {
        let next = AtomicUsize::new(0);
        let work = || -> io::Result<Vec<SliceFile>> {
            let mut done = Vec::new();
            while let Some((name, file)) = self.slices.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut slices: SliceReader = reader.slices(name, self.slices.len());
                file.feed(|piece| slices.feed(piece))?;
                done.push(slices.finish());
            }
            Ok(done)
        };
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let others = cpus.min(self.slices.len()).saturating_sub(1);
        thread::scope(|scope| {
            // Where no thread can be made, this one reads all.
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
            let others: Vec<_> = (0..others).filter_map(spawn).collect();
            let mut all = work()?;
            for other in others {
                all.extend(other.join().unwrap_or_else(|e| std::panic::resume_unwind(e))?);
            }
            Ok(all)
        })
    }

    fn failed(&self, source: io::Error) -> RecordError {
        RecordError::Read { path: self.folder.clone(), source }
    }
}

impl Growing {
    /// Gives the file piece by piece.
    fn feed(&self, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        if let Some(mut file) = self.disk.as_deref() {
            file.rewind()?;
            let mut piece = vec![0; PIECE_BYTES];
            loop {
                match file.read(&mut piece) {
                    Ok(0) => break,
                    Ok(n) => take(&piece[..n]),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
        }
        take(&self.rest);
        Ok(())
    }
}

#[cfg(test)]
impl Growing {
    pub(super) fn text(&self) -> String {
        let mut bytes = Vec::new();
        self.feed(|piece| bytes.extend(piece)).expect("readable");
        String::from_utf8(bytes).expect("text")
    }
}

/// Reads the plan of a record's folder and nothing else.
pub fn read_plan(folder: &Path) -> Result<String, RecordError> {
    whole(&folder.join("plan.toml"), WHOLE_MAX)
}

/// The names in a folder, in any order; none where it is missing.
fn names_in(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// The names of the files of slices, in order.
fn slice_names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = names_in(&folder.join("slices"))
        .filter(|name| name.ends_with(".jsonl"))
        .map(|name| format!("slices/{name}"))
        .collect();
    names.sort();
    names
}

/// Opens the files of every wake-up, in the order of their threads.
pub(super) fn open_raw(folder: &Path) -> Result<Vec<(u32, Growing)>, RecordError> {
    let mut threads: Vec<u32> = names_in(&folder.join("raw"))
        .filter_map(|name| name.strip_prefix('t')?.strip_suffix(".bin")?.parse().ok())
        .collect();
    threads.sort_unstable();
    let open = |thread| {
        let disk = regular(&folder.join(format!("raw/t{thread}.bin")))?.map(Arc::new);
        Ok((thread, Growing { disk, rest: Vec::new() }))
    };
    threads.into_iter().map(open).collect()
}

/// A small file as a text; empty when it is missing, and cut where it is longer than any of ours.
fn whole(path: &Path, longest: u64) -> Result<String, RecordError> {
    let mut bytes = Vec::new();
    if let Some(file) = regular(path)? {
        let failed = |source| RecordError::Read { path: path.to_owned(), source };
        file.take(longest).read_to_end(&mut bytes).map_err(failed)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Opens a file for reading; none when it is missing.
fn regular(path: &Path) -> Result<Option<File>, RecordError> {
    let failed = |source| RecordError::Read { path: path.to_owned(), source };
    // Looked at before it is opened: opening a FIFO waits for whoever writes to it.
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(failed(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file; remove it, or put the record's own file there",
        ))),
        Ok(_) => File::open(path).map(Some).map_err(failed),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_among_the_files_is_refused_at_once() {
        for name in ["plan.toml", "events.jsonl", "slices/t0.jsonl"] {
            let folder = tempfile::tempdir().expect("a folder");
            fs::create_dir(folder.path().join("slices")).expect("a folder");
            let path = folder.path().join(name);
            let mode = rustix::fs::Mode::RUSR;
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).expect("a FIFO");
            let error = RecordFiles::open(folder.path()).expect_err("refused").to_string();
            assert!(error.contains(name) && error.contains("not a regular file"), "{error}");
        }
    }
}
