//! Writes a record as the run goes, and reads its folder back.
//!
//! Every line is handed to the kernel when it is made, so that a SIGKILL loses nothing that was
//! said. A disk that is full, or gone, loses nothing either: what can't be written waits in memory,
//! is tried again with every later line and once more at the end, and the verdict is made of both.
//!
//! Every 5 s the lines are synced to the disk, so that a machine that locks up loses at most 10 s.
//!
//! The record of a long run stays small: slices and spans of counters that lie far back are joined.
//!
//! Raw samples are the exception: they are no part of the verdict, and too many to wait. They leave
//! [`RESERVE_BYTES`] of the disk to the rest of the record, and are written no more once a write has
//! failed. What is left out is counted.

mod file;
mod rewrite;
mod source;
mod sync;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError},
    },
};

pub use self::source::{ReadError, RecordFiles, read_plan};
use self::{
    file::{Appender, RawFile},
    rewrite::{Rewritten, SliceFile},
    sync::Syncer,
};
use rtscope_model::{
    chain::checksum,
    environment::Environment,
    event::{Event, FORMAT, Stamped},
    finding::{Finding, Weight},
    histogram::Layout,
    plan,
    record::{CellSum, Files, Histograms, JUDGED_HERE, Spans, limits_ns, span_length_ns},
    slice::{RawSample, Scope, Slice},
};
use rtscope_sys::whole::write_anew;

/// What went wrong with a record's folder.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("can't write a record to {path}: {source} (choose another folder with --out)", path = path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error("{path} already holds a record: choose another folder with --out, or remove it", path = .0.display())]
    Occupied(PathBuf),
    #[error(
        "{path} is a symbolic link, or a file that rtscope would read as part of the new record: remove it, or choose \
         another folder with --out",
        path = .0.display()
    )]
    Prepared(PathBuf),
    #[error("can't read a record from {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// What raw samples leave free on the disk: room for hours of slices, and for the page.
const RESERVE_BYTES: u64 = 8 << 20;

/// Writes one record.
#[derive(Debug)]
pub struct Recorder {
    folder: PathBuf,
    events: Appender,
    /// Counters that may still be joined.
    spans: Spans,
    slices: BTreeMap<u32, SliceFile>,
    /// The limit of each cell's maximum.
    limits_ns: Arc<[Option<u64>]>,
    /// Gives the file of slices that is being rewritten.
    rewriting: Option<Receiver<Rewritten>>,
    raw: BTreeMap<u32, RawFile>,
    /// Why raw samples are no longer written.
    raw_ended: Option<String>,
    sums: BTreeMap<(u32, u32), CellSum>,
    layout: Layout,
    whole: BTreeMap<&'static str, String>,
    /// Names in `whole` that the disk has not taken.
    unwritten: BTreeSet<&'static str>,
    trouble: Option<String>,
    /// Codes of the findings that were told.
    told: BTreeSet<&'static str>,
    syncer: Syncer,
}

impl Recorder {
    /// Makes the folder and writes the plan.
    ///
    /// # Errors
    ///
    /// When the folder holds a record already or can't be written.
    pub fn create(folder: &Path, plan: &str) -> Result<Recorder, RecordError> {
        let failed = |source| RecordError::Create { path: folder.to_owned(), source };
        require_no_record(folder)?;
        fs::create_dir_all(folder.join("slices")).map_err(failed)?;
        let mut recorder = Recorder {
            folder: folder.to_owned(),
            events: Appender::new(folder.join("events.jsonl")),
            spans: Spans::default(),
            slices: BTreeMap::new(),
            limits_ns: plan::parse_kept("plan.toml", plan)
                .map_or([].into(), |plan| limits_ns(&plan)),
            rewriting: None,
            raw: BTreeMap::new(),
            raw_ended: None,
            sums: BTreeMap::new(),
            layout: Layout::default(),
            whole: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            trouble: None,
            told: BTreeSet::new(),
            syncer: Syncer::start(),
        };
        ["", "slices"].into_iter().for_each(|name| recorder.sync(name));
        recorder.write("plan.toml", plan.to_owned());
        match recorder.trouble {
            Some(why) => Err(failed(io::Error::other(why))),
            None => Ok(recorder),
        }
    }

    /// Takes an event to its file. Live figures are not recorded.
    pub fn event(&mut self, stamped: &Stamped) {
        let outcome = match &stamped.event {
            Event::Progress(_) => return,
            Event::Slice(slice) => self.slice(slice),
            Event::RunEnded { why, .. } => {
                self.catch_up();
                self.write_sums();
                let chain = |(&n, slices): (&u32, &SliceFile)| (slices_name(n), slices.file.chain);
                let sum = |(name, text): (&&str, &String)| {
                    ((*name).to_owned(), checksum(text.as_bytes()))
                };
                let files = self.slices.iter().map(chain).collect();
                let whole = self.whole.iter().map(sum).collect();
                let event = Event::RunEnded { why: *why, files, whole };
                self.line(Stamped { at_ns: stamped.at_ns, event })
            }
            event => {
                if let Event::SessionStarted { layout, control, .. } = event {
                    self.layout = *layout;
                    self.syncer.move_to(&control.cpus);
                }
                self.line(stamped.clone())
            }
        };
        self.note(outcome);
    }

    /// Writes an event, after the spans before it. Of a long run, spans are held back to be joined.
    fn line(&mut self, stamped: Stamped) -> io::Result<()> {
        let mut outcome = Ok(());
        let length_ns = span_length_ns(stamped.at_ns);
        let (events, syncer) = (&mut self.events, &self.syncer);
        self.spans.add(stamped, length_ns, &mut |stamped| {
            let written = events.line(&stamped, syncer);
            outcome = std::mem::replace(&mut outcome, Ok(())).and(written);
        });
        outcome
    }

    fn slice(&mut self, slice: &Slice) -> io::Result<()> {
        if let Scope::Cell(cell) = slice.scope {
            let sum = self.sums.entry((cell, slice.thread));
            sum.or_insert_with(|| CellSum::new(self.layout)).add(slice);
        }
        let path = || self.folder.join(slices_name(slice.thread));
        let file = self.slices.entry(slice.thread);
        let file = file.or_insert_with(|| SliceFile::new(path(), slice));
        let outcome = file.add(slice, &self.syncer);
        match self.rewriting.as_ref().map(Receiver::try_recv) {
            None | Some(Err(TryRecvError::Disconnected)) => self.rewrite(slice.thread),
            Some(done) => done.into_iter().for_each(|done| self.replace(done)),
        }
        outcome
    }

    /// Has a thread's file of slices rewritten when it is worth it: one file at a time.
    fn rewrite(&mut self, thread: u32) {
        let rewrite = self.slices[&thread].rewrite(thread, &self.limits_ns);
        self.rewriting = rewrite.map(|rewrite| self.syncer.run(|| rewrite.run()));
    }

    fn replace(&mut self, done: Rewritten) {
        self.rewriting = None;
        if let Some(file) = self.slices.get_mut(&done.thread) {
            file.replace(done, &self.syncer);
        }
    }

    /// Waits for the file that is being rewritten, and has the others rewritten that are due: at the end of
    /// a run, and in a simulated one, whose clock may be faster than any disk.
    pub fn catch_up(&mut self) {
        let mut threads: Vec<u32> = self.slices.keys().copied().collect();
        while self.rewriting.is_some() || !threads.is_empty() {
            match self.rewriting.as_ref().map(Receiver::recv) {
                Some(Ok(done)) => self.replace(done),
                // There is no thread that rewrites.
                Some(Err(_)) => return,
                None => threads.pop().into_iter().for_each(|thread| self.rewrite(thread)),
            }
        }
    }

    pub(crate) fn has_measured(&self) -> bool {
        !self.slices.is_empty()
    }

    /// Takes a raw sample: 16 bytes, expiry since the start of the run and latency, little-endian ns.
    pub fn raw(&mut self, thread: u32, sample: RawSample) {
        let path = || {
            let _ = fs::create_dir_all(self.folder.join("raw"));
            self.folder.join(format!("raw/t{thread}.bin"))
        };
        let new = || RawFile { file: Appender::new(path()), lost: 0 };
        let raw = self.raw.entry(thread).or_insert_with(new);
        if self.raw_ended.is_some() {
            raw.lost += 1;
            return;
        }
        raw.file.waiting.extend(sample.expiry_ns.to_le_bytes());
        raw.file.waiting.extend(sample.latency_ns.to_le_bytes());
    }

    /// Hands waiting raw samples to the kernel, unless the rest of the record needs the room.
    pub fn flush_raw(&mut self) {
        let waiting: usize = self.raw.values().map(|raw| raw.file.waiting.len()).sum();
        if waiting == 0 {
            return;
        }
        // Where free space can't be told, the first write that fails is the sign.
        let disk = rustix::fs::statvfs(&self.folder).ok().filter(|disk| disk.f_blocks > 0);
        let free = disk.map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        let ended = if let Some(why) = &self.trouble {
            Some(why.clone())
        } else if free < RESERVE_BYTES + waiting as u64 {
            let reserve = RESERVE_BYTES >> 20;
            Some(format!("less than {reserve} MiB would be left for the rest of the record"))
        } else {
            let outcome = self.raw.values_mut().try_for_each(|raw| raw.file.flush());
            outcome.err().map(|e| e.to_string())
        };
        if ended.is_some() {
            self.raw_ended = ended;
            self.raw.values_mut().for_each(RawFile::end);
        }
    }

    /// Raw samples of a thread that are not in its file.
    #[must_use]
    pub fn raw_lost(&self, thread: u32) -> u64 {
        self.raw.get(&thread).map_or(0, |raw| raw.lost)
    }

    /// Writes what was found on the machine.
    pub fn environment(&mut self, name: &'static str, environment: &Environment) {
        match serde_json::to_string_pretty(environment) {
            Ok(text) => self.write(name, text),
            Err(e) => self.trouble = Some(e.to_string()),
        }
    }

    /// Writes a whole file by way of a second name, so that it is never half there.
    fn write(&mut self, name: &'static str, text: String) {
        let outcome = write_anew(&self.folder.join(name), text.as_bytes());
        if outcome.is_ok() {
            self.unwritten.remove(name);
            self.sync(name);
        } else {
            self.unwritten.insert(name);
        }
        self.whole.insert(name, text);
        self.note(outcome);
    }

    /// Has a small file or a folder of the record synced.
    fn sync(&self, name: &str) {
        if let Ok(file) = File::open(self.folder.join(name)) {
            self.syncer.add(Arc::new(file));
        }
    }

    fn note(&mut self, outcome: io::Result<()>) {
        if let (Err(e), None) = (outcome, &self.trouble) {
            self.trouble = Some(e.to_string());
        }
    }

    /// What is wrong with the disk, if anything: each thing is said once, when it is first seen.
    pub fn new_trouble(&mut self) -> Option<Finding> {
        let all = |why| ("record-not-written", "record", why, "it is kept in memory");
        let raw = |why| ("raw-not-written", "raw samples", why, "they are left out from now on");
        let troubles = self.trouble.as_ref().map(all).into_iter();
        let mut troubles = troubles.chain(self.raw_ended.as_ref().map(raw));
        let (code, what, why, then) = troubles.find(|(code, ..)| !self.told.contains(code))?;
        self.told.insert(code);
        let folder = self.folder.display();
        let text = format!("the {what} can't be written to {folder}: {why}; {then}");
        let advice =
            "make room on the disk while the run goes on, or choose another folder with --out";
        Some(Finding::new(code, Weight::Warning, text).advise(advice))
    }

    /// Writes the sums of the slices: the last file before the end of the events, which has its
    /// checksum.
    fn write_sums(&mut self) {
        let histograms = self.sums.iter().map(|(&(cell, thread), sum)| sum.histogram(cell, thread));
        let histograms = Histograms { format: FORMAT, histograms: histograms.collect() };
        match serde_json::to_string(&histograms) {
            Ok(text) => self.write("histograms.json", text),
            Err(e) => self.trouble = Some(e.to_string()),
        }
    }

    /// Writes whatever still waits. The record as it is, on disk or not, and why a part of it could not
    /// be written.
    pub fn finish(mut self) -> (RecordFiles, Option<String>) {
        self.trouble = None;
        for name in std::mem::take(&mut self.unwritten) {
            let text = self.whole.remove(name).unwrap_or_default();
            self.write(name, text);
        }
        let (events, syncer) = (&mut self.events, &self.syncer);
        // Without a last event, as when the run failed, spans are still held back.
        self.spans.end(&mut |stamped| drop(events.line(&stamped, syncer)));
        let slices = self.slices.values_mut().map(|slices| &mut slices.file);
        let mut outcome = Ok(());
        for file in slices.chain([events]) {
            outcome = outcome.and(file.close());
        }
        self.note(outcome);
        if self.raw.values().any(|raw| raw.file.is_removed()) {
            self.raw_ended = Some("the files were removed".to_owned());
        }
        let mut text = |name: &str| self.whole.remove(name).unwrap_or_default();
        let whole = Files {
            plan: text("plan.toml"),
            before: text("environment.before.json"),
            after: text("environment.after.json"),
            histograms: text("histograms.json"),
            ..Files::default()
        };
        let slices = self.slices.into_iter();
        let slices = slices.map(|(n, slices)| (slices_name(n), slices.file.into_growing()));
        let slices = slices.collect();
        let events = self.events.into_growing();
        // They are only drawn: a run without them is judged as one with them.
        let raw = source::open_raw(&self.folder).unwrap_or_default();
        let folder = self.folder;
        let source = RecordFiles { whole, events, slices, raw, lists_samples: false, folder };
        let raw_ended = self.raw_ended.map(|why| format!("raw samples: {why}"));
        (source, self.trouble.or(raw_ended))
    }
}

fn slices_name(thread: u32) -> String {
    format!("slices/t{thread}.jsonl")
}

/// Refuses a folder that has a record already, or what would be taken for parts of a new one: somebody else may have made
/// it.
fn require_no_record(folder: &Path) -> Result<(), RecordError> {
    let found = |name: &str| fs::symlink_metadata(folder.join(name)).ok();
    if ["events.jsonl", "plan.toml"].iter().any(|name| found(name).is_some()) {
        return Err(RecordError::Occupied(folder.to_owned()));
    }
    let is_used = |name: &&&str| {
        let is_empty = || fs::read_dir(folder.join(name)).is_ok_and(|mut all| all.next().is_none());
        found(name).is_some_and(|found| found.is_symlink() || !is_empty())
    };
    let names = ["slices", "raw", "explain.json", "lab.json"];
    match names.iter().chain(&JUDGED_HERE).find(is_used) {
        Some(name) => Err(RecordError::Prepared(folder.join(name))),
        None => Ok(()),
    }
}

/// Removes a record in which nothing was measured, so that it isn't in the way of the next try: the
/// files that every record begins with, and the folder unless it was there before.
pub fn remove_unused(folder: &Path, was_there: bool) {
    for file in ["plan.toml", "events.jsonl", "environment.before.json"] {
        let _ = fs::remove_file(folder.join(file));
    }
    let _ = fs::remove_dir(folder.join("slices"));
    if !was_there {
        // Whatever else is in it stays, and the folder with it.
        let _ = fs::remove_dir(folder);
    }
}

/// Writes a record that was made at once, as an import is; an empty text gives no file.
///
/// # Errors
///
/// When the folder holds a record already or can't be written.
pub fn store(folder: &Path, files: &Files) -> Result<(), RecordError> {
    require_no_record(folder)?;
    let failed = |source| RecordError::Create { path: folder.to_owned(), source };
    fs::create_dir_all(folder.join("slices")).map_err(failed)?;
    let whole = files.whole().into_iter().chain([("events.jsonl", files.events.as_str())]);
    let whole = whole.filter(|(_, text)| !text.is_empty());
    let slices = files.slices.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    for (name, text) in slices.chain(whole) {
        write_anew(&folder.join(name), text.as_bytes()).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::symlink};

    use rtscope_model::{
        chain::{Chain, Link},
        event::EndReason,
    };

    use super::{file::RAW_BYTES, *};

    fn ended() -> Stamped {
        Stamped { at_ns: 1, event: Event::run_ended(EndReason::Finished) }
    }

    #[test]
    fn a_prepared_folder_leads_a_record_nowhere_else() {
        for (folder, name) in
            [("", "events.jsonl"), ("", "accepted.json"), ("", "slices"), ("slices", "t0.jsonl")]
        {
            let room = tempfile::tempdir().expect("a folder");
            let out = room.path().join("run");
            fs::create_dir_all(out.join(folder)).expect("made");
            symlink(room.path().join("elsewhere"), out.join(folder).join(name)).expect("made");
            for outcome in [
                Recorder::create(&out, "name = 'x'").map(drop),
                store(&out, &Files { plan: "name = 'x'".to_owned(), ..Files::default() }),
            ] {
                let why = outcome.expect_err(name).to_string();
                assert!(why.contains("with --out"), "{name}: {why}");
            }
            assert!(!room.path().join("elsewhere").exists(), "{name}");
        }
        // A link that comes later isn't followed either.
        let room = tempfile::tempdir().expect("a folder");
        let (out, elsewhere) = (room.path().join("run"), room.path().join("elsewhere"));
        let mut recorder = Recorder::create(&out, "name = 'x'").expect("new");
        symlink(&elsewhere, out.join("events.jsonl")).expect("made");
        recorder.event(&ended());
        assert!(!elsewhere.exists() && recorder.finish().1.is_some());
    }

    #[test]
    fn a_folder_is_never_written_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("run");
        Recorder::create(&out, "name = 'x'").expect("new");
        assert!(matches!(Recorder::create(&out, ""), Err(RecordError::Occupied(_))));
    }

    #[test]
    fn what_the_disk_does_not_take_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("run");
        let mut recorder = Recorder::create(&out, "name = 'x'").expect("new");
        recorder.event(&ended());
        refuse(&mut recorder.events);
        recorder.event(&ended());
        let finding = recorder.new_trouble().expect("a finding");
        assert!(finding.text.contains("Bad file descriptor"), "{}", finding.text);
        recorder.event(&Stamped { event: Event::Found(finding), at_ns: 2 });
        assert_eq!(recorder.new_trouble(), None, "it is said once");
        let (source, trouble) = recorder.finish();
        let text = source.events.text();
        let mut chain = Chain::default();
        let links: Vec<Link> = text.lines().map(|line| chain.check(line.as_bytes())).collect();
        assert_eq!(links, [Link::Intact; 3], "{text}");
        assert!(trouble.is_some());
        // Once there is room again, what waited is written.
        assert_eq!(on_disk(&out).lines().count(), 1);
    }

    /// From now on no write to the file succeeds.
    fn refuse(file: &mut Appender) {
        file.file = Some(Arc::new(File::open(&file.path).expect("for reading")));
    }

    fn on_disk(folder: &Path) -> String {
        RecordFiles::open(folder).expect("a folder").events.text()
    }

    #[test]
    fn a_record_whose_folder_is_removed_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("run");
        let mut recorder = Recorder::create(&out, "name = 'x'").expect("new");
        recorder.event(&ended());
        fs::remove_dir_all(&out).expect("removed");
        recorder.event(&ended());
        let (source, trouble) = recorder.finish();
        assert_eq!(source.events.text().lines().count(), 2, "{}", source.events.text());
        assert_eq!(source.whole.plan, "name = 'x'");
        assert!(trouble.expect("told").contains("No such file"));
    }

    #[test]
    fn a_file_that_is_removed_is_written_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("run");
        let mut recorder = Recorder::create(&out, "name = 'x'").expect("new");
        recorder.event(&ended());
        fs::remove_file(out.join("events.jsonl")).expect("removed");
        recorder.event(&ended());
        assert_eq!(recorder.finish().1, None);
        assert_eq!(on_disk(&out).lines().count(), 2);
    }

    #[test]
    fn raw_samples_end_at_the_first_write_that_fails_and_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("run");
        let mut recorder = Recorder::create(&out, "name = 'x'").expect("new");
        let sample = RawSample { expiry_ns: 1, latency_ns: 2, cycle: 0 };
        recorder.raw(0, sample);
        recorder.flush_raw();
        let raw = recorder.raw.get_mut(&0).expect("a file");
        raw.file.file.as_deref().expect("open").write_all(&[0; 5]).expect("half a sample");
        // 11 bytes of the sample wait.
        raw.file.waiting.extend([0; 11]);
        recorder.trouble = Some("full".to_owned());
        for _ in 0..3 {
            recorder.raw(0, sample);
            recorder.flush_raw();
        }
        assert_eq!((recorder.raw_lost(0), recorder.raw[&0].file.waiting.len()), (4, 0));
        assert_eq!(fs::metadata(out.join("raw/t0.bin")).expect("raw").len(), RAW_BYTES);
        assert_eq!(
            recorder.new_trouble().map(|told| told.code).as_deref(),
            Some("record-not-written")
        );
        assert_eq!(
            recorder.new_trouble().map(|told| told.code).as_deref(),
            Some("raw-not-written")
        );
        assert_eq!(recorder.new_trouble(), None);
        // Of the rest all can be written in the end; the record lacks samples all the same.
        assert_eq!(recorder.finish().1.as_deref(), Some("raw samples: full"));
    }
}
