//! The kernel's events, for all that watch them: a tracing instance of our own, and its events as values.
//!
//! An instance disturbs no other user of the kernel's trace, and goes when it is dropped. What a killed
//! rtscope left records on, and delays whatever is measured, until [`remove_left`] removes it.

pub(crate) mod foreign;
mod format;
mod page;
mod pages;
mod stream;
pub(crate) mod text;
mod trace_dat;

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use self::{format::Decoder, stream::Events};
pub(crate) use rtscope_model::symbols::KernelSymbols;
pub(crate) use rtscope_model::trace::{Event, Name, TimerFunction, What};
use rtscope_sys::{process, tracefs::TracefsFolder, tree::Tree};

/// How our instances are called: this, the process, a number.
const NAME: &str = "rtscope-";

/// The most memory that the buffers of all CPUs take together.
const BUFFERS_MAX_KIB: u32 = 128 << 10;

/// An expiry this far from the present is on another clock, as `CLOCK_REALTIME`.
pub(crate) const OTHER_CLOCK_NS: u64 = 365 * 86_400 * 1_000_000_000;

/// The smallest buffer of a CPU that is of any use: some hundred events.
const BUFFER_MIN_KIB: u32 = 64;

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error(
        "tracing the kernel's events is not permitted: run as root, or with CAP_SYS_ADMIN, which root in a container may \
         lack"
    )]
    Permission,
    #[error("this kernel has no tracefs: use a kernel with CONFIG_FTRACE and CONFIG_EVENT_TRACING")]
    Absent,
    #[error("can't {operation} {path}: {cause}", path = path.display())]
    File {
        /// What was to be done.
        operation: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
}

/// The most instances that one process makes.
const INSTANCES_MAX: u32 = 10_000;

/// A tracing instance, until it is dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    tree: Tree,
    /// Folder of the instance, below the tree's root.
    folder: String,
    /// The events that are on.
    enabled: Vec<String>,
    /// The kernel's functions, once they were read: some hundred thousand lines.
    symbols: Option<Arc<KernelSymbols>>,
    place: TracefsFolder,
}

impl Instance {
    /// Makes an instance with the clock of `CLOCK_MONOTONIC` and so much buffer for each CPU, or less on
    /// a machine with so many that all buffers would exceed [`BUFFERS_MAX_KIB`]. No event is on.
    pub(crate) fn new(tree: &Tree, buffer_kib: u32) -> Result<Instance, TraceError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let place = TracefsFolder::find(tree).ok_or_else(|| unusable(tree))?;
        remove_left_in(tree, &place.folder);
        let folder = loop {
            let number = COUNT.fetch_add(1, Relaxed);
            let folder =
                format!("{}/instances/{NAME}{}-{number}", place.folder, std::process::id());
            let path = tree.path(&folder);
            match fs::create_dir(&path) {
                Ok(()) => break folder,
                // A killed process with our process ID left it: in a container, that ID may always be the same.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < INSTANCES_MAX => {}
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(TraceError::Permission);
                }
                Err(cause) => return Err(TraceError::File { operation: "make", path, cause }),
            }
        };
        // From here on, dropping it removes the instance.
        let (tree, enabled, symbols) = (tree.clone(), Vec::new(), None);
        let instance = Instance { tree, folder, enabled, symbols, place };
        instance.write("trace_clock", "mono")?;
        let cpus = instance.tree.list(format!("{}/per_cpu", instance.folder)).len() as u32;
        instance.write("buffer_size_kb", &bounded(buffer_kib, cpus).to_string())?;
        Ok(instance)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.tree.path(format!("{}/{file}", self.folder))
    }

    pub(crate) fn write(&self, file: &str, text: &str) -> Result<(), TraceError> {
        let path = self.path(file);
        let opened = OpenOptions::new().write(true).open(&path);
        let written = opened.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|cause| TraceError::File { operation: "write", path, cause })
    }

    /// Switches an event on, as `sched/sched_switch`.
    pub(crate) fn switch_on(&mut self, event: &str) -> Result<(), TraceError> {
        self.write(&format!("events/{event}/enable"), "1")?;
        self.enabled.push(event.to_owned());
        Ok(())
    }

    /// Switches an event on for those that a filter of the kernel lets pass (Documentation/trace/events.rst).
    pub(crate) fn switch_on_where(&mut self, event: &str, filter: &str) -> Result<(), TraceError> {
        self.write(&format!("events/{event}/filter"), filter)?;
        self.switch_on(event)
    }

    /// Switches an event on where it is there; whether it is.
    pub(crate) fn enable(&mut self, event: &str) -> bool {
        self.switch_on(event).is_ok()
    }

    /// Has the kernel note the stack of each sleep's end; whether it can.
    pub(crate) fn stacks_of_sleeps(&mut self) -> bool {
        let Some(symbols) = self.read_symbols() else { return false };
        let Some(address) = symbols.address("hrtimer_wakeup") else { return false };
        let trigger = format!("stacktrace if function == {address:#x}");
        let noted = self.write("events/timer/hrtimer_expire_entry/trigger", &trigger).is_ok();
        if noted {
            self.enabled.push(format::STACK.to_owned());
        }
        noted
    }

    fn read_symbols(&mut self) -> Option<Arc<KernelSymbols>> {
        if self.symbols.is_none() {
            self.symbols =
                KernelSymbols::parse(self.tree.read("proc/kallsyms").ok()?).map(Arc::new);
        }
        self.symbols.clone()
    }

    /// Opens the stream of the events that are on.
    pub(crate) fn record(mut self) -> Result<Recording, TraceError> {
        let symbols = match Decoder::needs_symbols(&self.enabled) {
            true => self.read_symbols(),
            false => None,
        };
        Ok(Recording {
            events: Events::open(&self.tree, &self.folder, &self.enabled, symbols)?,
            instance: self,
        })
    }

    /// Its folder, below the tree's root.
    #[cfg(test)]
    fn folder(&self) -> &str {
        &self.folder
    }
}

/// An instance and the stream of its events. Dropping it ends both.
#[derive(Debug)]
pub(crate) struct Recording {
    // The stream first: an instance whose files are open can't be removed.
    events: Events,
    instance: Instance,
}

impl Recording {
    /// Gives the events that have come since.
    pub(crate) fn drain(&mut self, event: impl FnMut(&Event)) -> io::Result<()> {
        self.events.drain(event)
    }

    /// Events that had no room so far.
    pub(crate) fn lost(&self) -> u64 {
        self.events.lost().values().sum()
    }

    /// Of which CPUs these were.
    pub(crate) fn lost_by_cpu(&self) -> BTreeMap<u32, u64> {
        self.events.lost().into_iter().filter(|(_, lost)| *lost > 0).collect()
    }

    /// The kernel's functions, where events have addresses.
    pub(crate) fn symbols(&self) -> Option<Arc<KernelSymbols>> {
        self.events.symbols()
    }

    /// Names of threads that the kernel remembers from its events, also of those that have ended.
    pub(crate) fn thread_names(&self) -> BTreeMap<u32, String> {
        let instance = &self.instance;
        let path = format!("{}/saved_cmdlines", instance.place.folder);
        let text = instance.tree.read(path).unwrap_or_default();
        let named = text.lines().filter_map(|line| line.split_once(' '));
        let named = named.filter_map(|(tid, name)| Some((tid.parse().ok()?, name.to_owned())));
        named.filter(|(_, name)| name != "<...>").collect()
    }

    /// Keeps the kernel's pages from now on, where they are read.
    pub(crate) fn keep_pages(&mut self) {
        self.events.keep_pages();
    }

    /// Lets go of pages that end before an instant and aren't of any of these times, of which the first ones matter most.
    pub(crate) fn retain_pages(&mut self, since_ns: u64, times: &[(u64, u64)]) {
        self.events.retain_pages(since_ns, times);
    }

    /// Has an event that is on pass another filter of the kernel.
    pub(crate) fn filter(&self, event: &str, filter: &str) -> Result<(), TraceError> {
        self.instance.write(&format!("events/{event}/filter"), filter)
    }

    /// Stops recording, or goes on.
    pub(crate) fn pause(&self, is_paused: bool) -> Result<(), TraceError> {
        self.instance.write("tracing_on", if is_paused { "0" } else { "1" })
    }

    /// Gives what is left after the end, and answers how many events had no room.
    pub(crate) fn drain_all(&mut self, event: impl FnMut(&Event)) -> io::Result<u64> {
        let _ = self.instance.write("tracing_on", "0");
        self.events.finish(event)?;
        Ok(self.lost())
    }

    /// The pages that are kept as a `trace.dat`, with the names of threads; none where there are none.
    pub(crate) fn trace_dat(&self, names: &BTreeMap<u32, String>) -> Option<Vec<u8>> {
        self.events.trace_dat(names)
    }

    /// Ends the recording, gives what is left of its stream, and answers how many events had no room.
    pub(crate) fn finish(mut self, event: impl FnMut(&Event)) -> io::Result<u64> {
        self.drain_all(event)
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

/// Why tracefs can't be used: root in a container may not mount it, though the kernel has it.
fn unusable(tree: &Tree) -> TraceError {
    let is_known =
        tree.read("proc/filesystems").map(|all| all.split_whitespace().any(|it| it == "tracefs"));
    match is_known.unwrap_or_else(|_| !process::is_root()) {
        true => TraceError::Permission,
        false => TraceError::Absent,
    }
}

/// Removes the tracing instances of killed processes of ours, and gives their names. Nothing without tracefs or
/// permission: then there is none either.
#[must_use]
pub fn remove_left(tree: &Tree) -> Vec<String> {
    TracefsFolder::find(tree).map_or_else(Vec::new, |place| remove_left_in(tree, &place.folder))
}

fn remove_left_in(tree: &Tree, place: &str) -> Vec<String> {
    let is_left = |name: &String| {
        let Some(rest) = name.strip_prefix(NAME) else { return false };
        let pid = rest.split('-').next().unwrap_or_default();
        let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
        is_number && !tree.path(format!("proc/{pid}")).exists()
    };
    let names = tree.list(format!("{place}/instances")).into_iter().filter(is_left);
    names
        .filter(|name| fs::remove_dir(tree.path(format!("{place}/instances/{name}"))).is_ok())
        .collect()
}

/// Timestamps from 146 years on are rejected, so that differences of two fit 64 bits. In a trace as text a
/// thread's name can look like a line of the trace.
pub(super) const INSTANTS_END_NS: u64 = 1 << 62;

/// A futex call's event from its arguments.
pub(super) fn futex(operation: u64, value: u64, timeout: u64) -> Option<What> {
    // The flags say whose the word is and which clock counts.
    const FLAGS: u64 = 0x80 | 0x100;
    let operation = u32::try_from(operation & !FLAGS).ok()?;
    Some(What::Futex { operation, value, is_limited: timeout != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffers_of_all_cpus_together_are_bounded() {
        assert_eq!([0, 1, 8].map(|cpus| bounded(16_384, cpus)), [16_384; 3]);
        assert_eq!(bounded(16_384, 256), 512);
        assert_eq!(bounded(2_048, 8_192), BUFFER_MIN_KIB);
    }

    #[test]
    fn a_kernel_whose_tracefs_may_not_be_mounted_is_not_called_one_without_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = Tree::under(folder.path());
        fs::create_dir_all(tree.path("proc")).expect("made");
        for (kinds, is_there) in [("nodev\ttracefs\n\text4\n", true), ("nodev\tproc\n", false)] {
            fs::write(tree.path("proc/filesystems"), kinds).expect("written");
            let why = Instance::new(&tree, 64).expect_err("no folder");
            assert_eq!(matches!(why, TraceError::Permission), is_there, "{why}");
            assert_eq!(matches!(why, TraceError::Absent), !is_there, "{why}");
        }
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
        assert_eq!(remove_left(&tree), ["rtscope-4000000-0"]);
        fs::create_dir_all(tree.path(format!("{instances}/rtscope-4000000-1"))).expect("made");
        assert!(Instance::new(&tree, 64).is_err(), "the files of an instance are missing");
        assert_eq!(tree.list(instances), ["other-4000000", "rtscope-77-1", "rtscope-x"]);
    }

    #[test]
    fn an_instance_is_gone_when_it_is_dropped() {
        if !process::is_root() {
            return rtscope_testing::skip::skip_this("needs root");
        }
        let instance = match Instance::new(&Tree::default(), 64) {
            Ok(instance) => instance,
            // A kernel of its own kind.
            Err(TraceError::Absent) => return,
            Err(error) => panic!("{error}"),
        };
        let folder = instance.path("");
        assert!(folder.is_dir());
        let recording = instance.record().expect("a stream");
        assert_eq!(recording.finish(|_| {}).expect("read"), 0);
        assert!(!folder.exists());
    }
}
