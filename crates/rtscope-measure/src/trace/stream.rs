//! The stream of an instance's events, in the order of time over all CPUs.
//!
//! They are read in binary form, a page at a time: for 130,000 events the kernel took 12 ms, and 283 ms to
//! write them as text. Text is read only where the kernel has a form that we don't know, or hides the
//! addresses of its functions.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};

use rtscope_sys::{
    clock::{Clock, SystemClock},
    tree::Tree,
};

use super::{
    Event, KernelSymbols, TraceError,
    format::Decoder,
    page::Layout,
    pages::Pages,
    text,
    trace_dat::{self, Description},
};

/// `O_NONBLOCK`, as reading must not wait for events.
const NON_BLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// The stream of an instance's events.
#[derive(Debug)]
pub(crate) struct Events {
    source: Source,
    tree: Tree,
    /// Folder of the instance, below the tree's root.
    folder: String,
    /// Events that were read and not given yet.
    held: Vec<Event>,
}

#[derive(Debug)]
enum Source {
    Binary(Box<Binary>),
    Text {
        pipe: File,
        /// A line that has not ended yet.
        rest: Vec<u8>,
    },
}

#[derive(Debug)]
struct Binary {
    /// The buffer of each CPU.
    buffers: Vec<(u32, File)>,
    layout: Layout,
    decoder: Decoder,
    page: Vec<u8>,
    about: Description,
    /// Pages as they came, where they are wanted.
    kept: Option<Pages>,
}

impl Events {
    /// Opens the stream of these events of an instance, in binary form where that can be read.
    pub(super) fn open(
        tree: &Tree,
        folder: &str,
        events: &[String],
        symbols: Option<Arc<KernelSymbols>>,
    ) -> Result<Events, TraceError> {
        let source = match binary(tree, folder, events, symbols) {
            Some(binary) => Source::Binary(Box::new(binary)),
            None => text_of(tree, folder)?,
        };
        Ok(Events { source, tree: tree.clone(), folder: folder.to_owned(), held: Vec::new() })
    }

    /// Opens the stream as text, whatever could be read.
    #[cfg(test)]
    fn open_as_text(tree: &Tree, folder: &str) -> Result<Events, TraceError> {
        let source = text_of(tree, folder)?;
        Ok(Events { source, tree: tree.clone(), folder: folder.to_owned(), held: Vec::new() })
    }

    /// Gives each event that has come since, without waiting.
    pub(crate) fn drain(&mut self, event: impl FnMut(&Event)) -> io::Result<()> {
        // CPUs are read one after the other: what happens meanwhile comes with the next look, or a later
        // event of one would be given before an earlier one of the next.
        let until_ns = SystemClock::MONOTONIC.now_ns();
        self.read()?;
        self.give(until_ns, event);
        Ok(())
    }

    /// Gives all that is left. Nothing may be recorded any more.
    pub(crate) fn finish(&mut self, event: impl FnMut(&Event)) -> io::Result<()> {
        self.read()?;
        self.give(u64::MAX, event);
        Ok(())
    }

    /// Events that had no room so far, of each CPU.
    pub(crate) fn lost(&self) -> BTreeMap<u32, u64> {
        let cpus = self.tree.list(format!("{}/per_cpu", self.folder));
        let lost = |cpu: &String| {
            let path = format!("{}/per_cpu/{cpu}/stats", self.folder);
            let number = cpu.strip_prefix("cpu")?.parse().ok()?;
            Some((number, lost_in(&self.tree.read(path).unwrap_or_default())))
        };
        cpus.iter().filter_map(lost).collect()
    }

    /// The kernel's functions, where events have addresses; none where they are read as text.
    pub(super) fn symbols(&self) -> Option<Arc<KernelSymbols>> {
        match &self.source {
            Source::Binary(binary) => Some(binary.decoder.symbols()),
            Source::Text { .. } => None,
        }
    }

    /// Keeps the kernel's pages from now on, where they are read.
    pub(super) fn keep_pages(&mut self) {
        if let Source::Binary(binary) = &mut self.source {
            binary.kept.get_or_insert_default();
        }
    }

    /// Lets go of pages that end before an instant and aren't of any of these times, of which the first ones matter most.
    pub(super) fn retain_pages(&mut self, since_ns: u64, times: &[(u64, u64)]) {
        if let Source::Binary(binary) = &mut self.source
            && let Some(kept) = &mut binary.kept
        {
            kept.retain(since_ns, times);
        }
    }

    /// The pages that are kept as the file of another program; none where there are none.
    pub(super) fn trace_dat(&self, names: &BTreeMap<u32, String>) -> Option<Vec<u8>> {
        let Source::Binary(binary) = &self.source else { return None };
        let kept = binary.kept.as_ref().filter(|kept| !kept.is_empty())?;
        Some(trace_dat::write(&binary.about, kept, &binary.decoder.symbols(), names))
    }

    fn give(&mut self, until_ns: u64, event: impl FnMut(&Event)) {
        // In binary form the CPUs come one after the other; as text the kernel has merged them.
        if matches!(self.source, Source::Binary(_)) {
            self.held.sort_by_key(|event| event.at_ns);
            let end = self.held.partition_point(|event| event.at_ns < until_ns);
            self.held.drain(..end).as_slice().iter().for_each(event);
        } else {
            self.held.drain(..).as_slice().iter().for_each(event);
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let held = &mut self.held;
        match &mut self.source {
            Source::Binary(binary) => {
                let Binary { buffers, layout, decoder, page, kept, .. } = &mut **binary;
                for (cpu, buffer) in buffers {
                    while let Some(bytes) = read_some(buffer, page)? {
                        let mut times = None;
                        // What is left of a page that makes no sense is given up.
                        let _ = layout.walk(&page[..bytes], |at_ns, data| {
                            let (from_ns, _) = times.unwrap_or((at_ns, at_ns));
                            times = Some((from_ns, at_ns));
                            held.extend(decoder.decode(at_ns, *cpu, data));
                        });
                        if let (Some(kept), Some(times)) = (kept.as_mut(), times) {
                            kept.push(*cpu, times, &page[..bytes], layout.size);
                        }
                    }
                }
            }
            Source::Text { pipe, rest } => {
                let mut bytes = vec![0; 64 << 10];
                while let Some(count) = read_some(pipe, &mut bytes)? {
                    rest.extend_from_slice(&bytes[..count]);
                    let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else { continue };
                    let whole: Vec<u8> = rest.drain(..=end).collect();
                    held.extend(String::from_utf8_lossy(&whole).lines().filter_map(text::parse));
                }
            }
        }
        Ok(())
    }
}

/// Reads what is there; none when nothing is.
fn read_some(file: &mut File, into: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match file.read(into) {
            Ok(0) => return Ok(None),
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(path)
}

fn binary(
    tree: &Tree,
    folder: &str,
    events: &[String],
    symbols: Option<Arc<KernelSymbols>>,
) -> Option<Binary> {
    let read = |file: &str| tree.read(format!("{folder}/events/{file}")).ok();
    let header_page = header(&tree.path(format!("{folder}/events/header_page")))?;
    let layout = Layout::parse(&header_page)?;
    let formats = events.iter().map(|event| {
        let text = read(&format!("{event}/format"))?;
        Some((event.clone(), text))
    });
    let formats = formats.collect::<Option<Vec<_>>>()?;
    if Decoder::needs_symbols(events) && symbols.is_none() {
        return None;
    }
    let decoder = Decoder::new(&formats, symbols)?;
    let buffer = |cpu: &String| {
        let number = cpu.strip_prefix("cpu")?.parse().ok()?;
        let path = tree.path(format!("{folder}/per_cpu/{cpu}/trace_pipe_raw"));
        Some((number, open(&path).ok()?))
    };
    let cpus = tree.list(format!("{folder}/per_cpu"));
    let buffers: Vec<(u32, File)> = cpus.iter().map(buffer).collect::<Option<_>>()?;
    let page = vec![0; layout.size];
    let last = buffers.iter().map(|(cpu, _)| *cpu).max()?;
    let about = Description {
        headers: [header_page, read("header_event").unwrap_or_default()],
        formats,
        page_size: layout.size,
        cpus: last.checked_add(1)?,
    };
    Some(Binary { buffers, layout, decoder, page, about, kept: None })
}

/// The text of `header_page`, which the kernel gives in one read or not at all.
fn header(path: &Path) -> Option<String> {
    let mut bytes = vec![0; 4096];
    let count = File::open(path).ok()?.read(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

fn text_of(tree: &Tree, folder: &str) -> Result<Source, TraceError> {
    let path = tree.path(format!("{folder}/trace_pipe"));
    match open(&path) {
        Ok(pipe) => Ok(Source::Text { pipe, rest: Vec::new() }),
        Err(cause) => Err(TraceError::File { operation: "open", path, cause }),
    }
}

/// Events that a CPU's `stats` file counts as lost: overwritten before they were read, or dropped.
fn lost_in(stats: &str) -> u64 {
    let counts = ["overrun: ", "commit overrun: ", "dropped events: "];
    let value = |line: &str| {
        counts.iter().find_map(|key| line.strip_prefix(key)?.trim().parse::<u64>().ok())
    };
    stats.lines().filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Instance, Recording, What};

    #[test]
    fn losses_are_counted_from_the_kernels_own_figures() {
        let stats = "entries: 3\noverrun: 7\ncommit overrun: 1\nbytes: 9\ndropped events: 2\n";
        assert_eq!((lost_in(stats), lost_in("")), (10, 0));
    }

    /// Both ways of reading agree on what a busy thread did, in order and in time.
    #[test]
    fn the_binary_form_says_what_the_text_says() {
        let tree = Tree::default();
        let both = [Instance::new(&tree, 1024), Instance::new(&tree, 1024)];
        let [Ok(mut binary), Ok(mut text)] = both else {
            return rtscope_testing::skip::skip_this("needs the kernel's events (tracefs)");
        };
        let own = rtscope_sys::thread::id().to_string();
        for instance in [&mut binary, &mut text] {
            instance.write("set_event_pid", &own).expect("a filter");
            assert!(instance.enable("sched/sched_switch") && instance.enable("sched/sched_waking"));
            assert!(instance.enable("timer/hrtimer_start"));
        }
        let binary = binary.record().expect("a stream");
        assert!(matches!(binary.events.source, Source::Binary(_)), "the fallback was taken");
        let events = Events::open_as_text(&tree, text.folder()).expect("a stream");
        let mut recordings = [binary, Recording { events, instance: text }];
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        for recording in &recordings {
            recording.instance.write("tracing_on", "0").expect("written");
        }
        let mut found = [Vec::new(), Vec::new()];
        for (Recording { events, .. }, found) in recordings.iter_mut().zip(&mut found) {
            events.finish(|event| found.push(*event)).expect("read");
            assert_eq!(events.lost().values().sum::<u64>(), 0);
            // Instances are switched on one after the other: compared is what lies between the sleeps.
            let is_sleep = |event: &Event| matches!(event.what, What::TimerStart { function, .. } if function.ends_a_sleep());
            let first = found.iter().position(is_sleep).expect("a sleep");
            let last = found.iter().rposition(is_sleep).expect("a sleep");
            *found = found[first..=last].to_vec();
            assert_eq!(found.iter().filter(|event| is_sleep(event)).count(), 20);
        }
        let [binary, text] = found;
        assert!(binary.is_sorted_by_key(|event| event.at_ns));
        assert_eq!(binary.len(), text.len());
        for (exact, cut) in binary.iter().zip(&text) {
            // Each instance takes its own time stamp, a moment apart.
            let same = Event { at_ns: 0, ..*exact } == Event { at_ns: 0, ..*cut };
            assert!(same, "{exact:?} {cut:?}");
        }
    }

    #[test]
    fn a_machine_with_an_unknown_form_is_read_as_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = Tree::under(folder.path());
        let write = |path: &str, text: &str| {
            let path = tree.path(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write("i/trace_pipe", "a-7 [000] d..2. 1.5: page_fault_user: x\nb-8 [000] d..2. 1.6: page");
        write("i/events/header_page", "nothing that we know");
        let mut events = Events::open(&tree, "i", &[], None).expect("a stream");
        let mut found = Vec::new();
        events.drain(|event| found.push((event.tid, event.what))).expect("read");
        assert_eq!(found, [(7, What::PageFault)]);
    }

    /// A file in place of each CPU's buffer: what is younger than the look waits for the next one.
    #[test]
    fn events_of_all_cpus_come_in_the_order_of_time() {
        use crate::trace::{format::tests as format, page::tests as page};

        let folder = tempfile::tempdir().expect("a folder");
        let tree = Tree::under(folder.path());
        let write = |path: &str, bytes: &[u8]| {
            let path = tree.path(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, bytes).expect("written");
        };
        let now = SystemClock::MONOTONIC.now_ns();
        let far = now + 3_600_000_000_000;
        let one = |tid: u32| page::entry(10, &format::switch(tid, 0, (0, 120), 1));
        write("i/events/header_page", page::HEADER.as_bytes());
        write("i/events/sched/sched_switch/format", format::SWITCH.as_bytes());
        write("i/per_cpu/cpu0/trace_pipe_raw", &page::page(2_000, &[one(1), one(3)].concat()));
        let second = [page::page(2_005, &one(2)), page::page(far, &one(4))].concat();
        write("i/per_cpu/cpu1/trace_pipe_raw", &second);
        let mut events =
            Events::open(&tree, "i", &["sched/sched_switch".to_owned()], None).expect("open");
        let mut tids = Vec::new();
        events.drain(|event| tids.push((event.tid, event.cpu))).expect("read");
        assert_eq!(tids, [(1, 0), (2, 1), (3, 0)]);
        events.finish(|event| tids.push((event.tid, event.cpu))).expect("read");
        assert_eq!(tids[3..], [(4, 1)]);
    }
}
