//! A tracing instance of our own: it disturbs no other user of the kernel's trace, and goes when it is
//! dropped. What a killed rtscope left goes at the next start.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use rtscope_model::printable::guarded;
use rtscope_sys::{process, tracefs::Place, tree::Tree};

/// How our instances are called: this, the process, a number.
const NAME: &str = "rtscope-";

/// `O_NONBLOCK`, as reading must not wait for events.
const NON_BLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// The most memory that the buffers of all CPUs take together.
const BUFFERS_MAX_KIB: u32 = 128 << 10;

/// The smallest buffer of a CPU that is of any use: some hundred events.
const BUFFER_MIN_KIB: u32 = 64;

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Not permitted.
    #[error("tracing the kernel's events is not permitted: run as root, or with CAP_SYS_ADMIN")]
    Permission,
    /// No tracefs.
    #[error(
        "this kernel has no tracefs: one with CONFIG_FTRACE and CONFIG_EVENT_TRACING is needed"
    )]
    Absent,
    /// A file of it.
    #[error("can't {operation} {path}: {cause}", path = path.display())]
    File {
        /// What was to be done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel answered.
        cause: io::Error,
    },
}

/// A tracing instance that records, until it is dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    tree: Tree,
    /// Folder of the instance, below the tree's root.
    folder: String,
    _place: Place,
}

impl Instance {
    /// Makes an instance with the clock of `CLOCK_MONOTONIC` and so much buffer for each CPU, or less on
    /// a machine with so many that all buffers would exceed [`BUFFERS_MAX_KIB`]. No event is on.
    pub(crate) fn new(tree: &Tree, buffer_kib: u32) -> Result<Instance, TraceError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let place = Place::find(tree).ok_or_else(|| match process::is_root() {
            true => TraceError::Absent,
            false => TraceError::Permission,
        })?;
        remove_leftovers(tree, &place.folder);
        let number = COUNT.fetch_add(1, Relaxed);
        let folder = format!("{}/instances/{NAME}{}-{number}", place.folder, std::process::id());
        let path = tree.path(&folder);
        fs::create_dir(&path).map_err(|cause| match cause.kind() {
            io::ErrorKind::PermissionDenied => TraceError::Permission,
            _ => TraceError::File { operation: "make", path, cause },
        })?;
        // From here on, dropping it removes the instance.
        let instance = Instance { tree: tree.clone(), folder, _place: place };
        instance.write("trace_clock", "mono")?;
        let cpus = tree.list(format!("{}/per_cpu", instance.folder)).len() as u32;
        instance.write("buffer_size_kb", &bounded(buffer_kib, cpus).to_string())?;
        Ok(instance)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.tree.path(format!("{}/{file}", self.folder))
    }

    /// Writes to a file of the instance.
    pub(crate) fn write(&self, file: &str, text: &str) -> Result<(), TraceError> {
        let path = self.path(file);
        let opened = OpenOptions::new().write(true).open(&path);
        let written = opened.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|cause| TraceError::File { operation: "write", path, cause })
    }

    /// Switches an event on, as `sched/sched_switch`; whether it is there.
    pub(crate) fn enable(&self, event: &str) -> bool {
        self.write(&format!("events/{event}/enable"), "1").is_ok()
    }

    /// Opens the stream of its events, as text.
    pub(crate) fn events(&self) -> Result<Events, TraceError> {
        let path = self.path("trace_pipe");
        let opened = OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(&path);
        let pipe = opened.map_err(|cause| TraceError::File { operation: "open", path, cause })?;
        Ok(Events { pipe, rest: Vec::new(), lost: 0 })
    }

    /// Ends the recording and reads it.
    pub(crate) fn finish(self) -> Option<String> {
        self.write("tracing_on", "0").ok()?;
        self.tree.read(format!("{}/trace", self.folder)).ok()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.tree.path(&self.folder));
    }
}

/// The buffer of each of so many CPUs, in KiB, when so much was wanted.
fn bounded(wanted_kib: u32, cpus: u32) -> u32 {
    wanted_kib.min((BUFFERS_MAX_KIB / cpus.max(1)).max(BUFFER_MIN_KIB))
}

/// Removes instances of processes that are gone.
fn remove_leftovers(tree: &Tree, place: &str) {
    for name in tree.list(format!("{place}/instances")) {
        let Some(rest) = name.strip_prefix(NAME) else { continue };
        let pid = rest.split('-').next().unwrap_or_default();
        let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && !tree.path(format!("proc/{pid}")).exists() {
            let _ = fs::remove_dir(tree.path(format!("{place}/instances/{name}")));
        }
    }
}

/// The stream of an instance's events.
#[derive(Debug)]
pub(crate) struct Events {
    pipe: File,
    /// A line that has not ended yet.
    rest: Vec<u8>,
    /// Events that the buffers had no room for.
    lost: u64,
}

impl Events {
    /// Gives each line that has come since, without waiting.
    pub(crate) fn drain(&mut self, mut line: impl FnMut(&str)) -> io::Result<()> {
        let mut bytes = vec![0; 64 << 10];
        loop {
            match self.pipe.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => self.rest.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { continue };
            let whole: Vec<u8> = self.rest.drain(..=end).collect();
            // The names of threads are in it.
            for text in guarded(&String::from_utf8_lossy(&whole), false).lines() {
                match lost_in(text) {
                    Some(count) => self.lost += count,
                    None => line(text),
                }
            }
        }
    }

    /// Events that were lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

/// `CPU:1 [LOST 17 EVENTS]`.
fn lost_in(line: &str) -> Option<u64> {
    let (_, rest) = line.strip_prefix("CPU:")?.split_once(" [LOST ")?;
    rest.split_once(" EVENTS]")?.0.parse().ok()
}

/// Timestamps from 146 years on are rejected, so that differences of two fit 64 bits. Threads choose their
/// names, and a name can look like a line of the trace.
const INSTANTS_END_NS: u64 = 1 << 62;

/// Reads a timestamp in nanoseconds.
pub(crate) fn parse_instant_ns(word: &str) -> Option<u64> {
    word.parse().ok().filter(|ns| *ns < INSTANTS_END_NS)
}

/// The head of a line of the trace: `NAME-TID [CPU] FLAGS SECONDS.MICROSECONDS: EVENT`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// The thread that ran when it happened.
    pub(crate) tid: u32,
    pub(crate) cpu: u32,
    /// Whether it happened in an interrupt, which has nothing to do with the thread.
    pub(crate) in_interrupt: bool,
    pub(crate) at_ns: u64,
    /// The rest: `sched_switch: ...`.
    pub(crate) event: &'a str,
}

impl<'a> Line<'a> {
    /// None for a comment, or a line that is cut short.
    pub(crate) fn parse(line: &'a str) -> Option<Line<'a>> {
        if line.starts_with('#') {
            return None;
        }
        // A name may hold anything: the CPU stands in the first brackets with a number of three
        // digits and the flags and the time behind them.
        line.match_indices(" [").find_map(|(at, _)| Line::after(&line[..at], &line[at + 2..]))
    }

    fn after(name: &str, rest: &'a str) -> Option<Line<'a>> {
        let (cpu, rest) = rest.split_once("] ")?;
        let (flags, rest) = rest.split_once(' ')?;
        let (at, event) = rest.trim_start().split_once(": ")?;
        let (seconds, micros) = at.split_once('.')?;
        let second_us = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?;
        let at_us = second_us.checked_add(micros.parse().ok()?)?;
        Some(Line {
            tid: name.trim_end().rsplit_once('-')?.1.parse().ok()?,
            cpu: cpu.parse().ok()?,
            in_interrupt: flags.chars().any(|flag| "hHsSzZ".contains(flag)),
            at_ns: at_us.checked_mul(1_000).filter(|ns| *ns < INSTANTS_END_NS)?,
            event,
        })
    }
}

/// The value of `KEY=` in an event's words, up to a blank.
pub(crate) fn value<'a>(words: &'a str, key: &str) -> Option<&'a str> {
    let at = words.rfind(key)?;
    words[at + key.len()..].split(' ').next()
}

/// How many events had no room, from a line of the head of a trace.
pub(crate) fn lost(line: &str) -> Option<u64> {
    let counts = line.strip_prefix("# entries-in-buffer/entries-written: ")?;
    let mut numbers = counts.split(['/', ' ']).filter_map(|word| word.parse::<u64>().ok());
    let (kept, written) = (numbers.next()?, numbers.next()?);
    Some(written.saturating_sub(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name_is() {
        let text = " a [x] 9-1 b-41   [001] d.h2.  1858.317769: sched_waking: comm=a [002] pid=9";
        let line = Line::parse(text).expect("an event");
        assert_eq!((line.tid, line.cpu, line.in_interrupt), (41, 1, true));
        assert_eq!(
            (line.at_ns, line.event),
            (1_858_317_769_000, "sched_waking: comm=a [002] pid=9")
        );
        assert!(!Line::parse("x-1 [000] d..2. 1.5: y: z").expect("an event").in_interrupt);
        assert_eq!(Line::parse("# tracer: nop [000] d..2. 1.5: x"), None);
        assert_eq!(lost("# entries-in-buffer/entries-written: 4/9   #P:2"), Some(5));
    }

    #[test]
    fn a_line_that_is_cut_short_is_no_event() {
        let text = "app-41 [001] d..2. 10.400200: sched_switch: x";
        for end in 0..text.find("sched_switch").expect("the event") {
            assert_eq!(Line::parse(&text[..end]), None, "{}", &text[..end]);
        }
    }

    /// Such a name of a thread made the conversion to nanoseconds overflow.
    #[test]
    fn a_line_with_an_impossible_time_is_skipped() {
        for at in
            ["18446744073709551615.0", "18446744073709.999999", "18446744074.0", "4611686019.0"]
        {
            assert_eq!(Line::parse(&format!("a-1 [000] d..2. {at}: x: y")), None, "{at}");
        }
    }

    #[test]
    fn the_buffers_of_all_cpus_together_are_bounded() {
        assert_eq!([0, 1, 8].map(|cpus| bounded(16_384, cpus)), [16_384; 3]);
        assert_eq!(bounded(16_384, 256), 512);
        assert_eq!(bounded(2_048, 8_192), BUFFER_MIN_KIB);
    }

    #[test]
    fn what_a_killed_process_left_goes_and_what_others_have_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = Tree::under(folder.path());
        let instances = "sys/kernel/tracing/instances";
        for name in ["rtscope-4000000-0", "rtscope-77-1", "rtscope-x", "other-4000000"] {
            fs::create_dir_all(tree.path(format!("{instances}/{name}"))).expect("made");
        }
        fs::create_dir_all(tree.path("proc/77")).expect("made");
        assert!(Instance::new(&tree, 64).is_err(), "the files of an instance are missing");
        assert_eq!(tree.list(instances), ["other-4000000", "rtscope-77-1", "rtscope-x"]);
    }

    #[test]
    fn values_and_losses_are_read() {
        let words = "hrtimer=0000 function=hrtimer_wakeup softexpires=1132825748966 mode=ABS";
        assert_eq!(value(words, "softexpires="), Some("1132825748966"));
        assert_eq!((value(words, "mode="), value(words, "nothing=")), (Some("ABS"), None));
        assert_eq!(lost_in("CPU:1 [LOST 17 EVENTS]"), Some(17));
        assert_eq!(lost_in(words), None);
    }

    #[test]
    fn an_instance_is_gone_when_it_is_dropped() {
        if !process::is_root() {
            println!("skipped: needs root");
            return;
        }
        let instance = match Instance::new(&Tree::default(), 64) {
            Ok(instance) => instance,
            // A kernel of its own kind.
            Err(TraceError::Absent) => return,
            Err(error) => panic!("{error}"),
        };
        let folder = instance.path("");
        assert!(folder.is_dir());
        instance.events().expect("a stream").drain(|_| {}).expect("read");
        drop(instance);
        assert!(!folder.exists());
    }
}
