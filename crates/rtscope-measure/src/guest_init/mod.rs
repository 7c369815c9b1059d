//! The first process of an emulated guest: runs the plan or the verbs that the lab asks for, and sends
//! the record out.
//!
//! ```text
//! mount -> read /plan.toml or /guest.toml, and the kernel command line -> wait for the kernel's own work -> run
//! -> frames on a serial line -> power off
//! ```
//!
//! The guest holds nothing but this program, and what `guest.toml` names: modules of the kernel, Debian's
//! cyclictest. Words of the kernel command line that begin with
//! `rtscope.` are its options:
//!
//! * `rtscope.channel=ttyS1`: the line that the record leaves by. Default: the console.
//! * `rtscope.seed=3`: shifts the run against the kernel's own periodic work, by up to 10 ms. In
//!   virtual time seeds give replicas that differ in phase and, by the next word, in layout. They can't
//!   show what differs between two pieces of hardware.
//! * `rtscope.layout=xxx`: nothing. Its length differs from seed to seed, and with it where things lie in
//!   memory.
//! * `rtscope.events=1`: the guest also records the kernel's events around the worst wake-ups of each phase.
//! * `rtscope.symbols=1`: the guest measures nothing. It loads its modules, and sends the kernel's symbols.
//!
//! A file `aim` moves one expiry of the run to an instant of CLOCK_MONOTONIC, in nanoseconds; 0 moves none. All other
//! expiries are then a nanosecond less than an interval after their instants of the grid. So two runs that differ in
//! this number only are the same up to the smaller one that isn't 0.
//!
//! Nothing that is sent or done depends on the host: no time-out of the host's, no random number that
//! the emulator doesn't give.

mod beside;
mod commands;
mod cyclictest;
mod events;
mod gpio;
mod stage;
mod start;

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::fd::AsFd,
    panic,
    path::{Path, PathBuf},
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use rtscope_model::{
    event::{Event, Stamped},
    finding::Weight,
    guest::{self, RECORD},
    guest_link,
    plan::{self, Plan},
};
use rtscope_sampler::GuestExpiries;
use rtscope_sys::{
    mount::mount,
    net,
    power::{SystemEnd, end_system},
    terminal,
    tree::Tree,
};

use self::{cyclictest::Watch, events::WatchedKernel};
use crate::{RunOptions, leave_out, run, signals::Interrupt};

/// The plan of a guest.
const PLAN: &str = "/plan.toml";

/// Folder in a record of a guest with what its kernel shows of itself.
pub const SHOWN: &str = guest::SHOWN;

/// What a kernel shows of itself: enough to tell it from every other.
const SHOWS: [&str; 6] = [
    "proc/config.gz",
    "proc/version",
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/version",
    "sys/kernel/notes",
    "sys/kernel/realtime",
];

/// The file systems of a guest. Those that a kernel lacks are left out: what needs them says so.
const MOUNTS: [(&str, &str); 10] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/dev/shm"),
    ("tmpfs", "/run"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/var/tmp"),
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
];

/// The most that a seed shifts a run.
const SHIFT_NS_MAX: u64 = 10_000_000;

/// The guest's name as a host.
const HOST: &str = "guest";

/// Whether this process is the first one of an emulated guest of ours: a plan lies there, or what to do
/// without one.
#[must_use]
pub fn is_guest() -> bool {
    let told = || Path::new("/").join(guest::PATH).exists();
    std::process::id() == 1 && (Path::new(PLAN).exists() || told())
}

/// Runs the guest from its first instruction in user space to its end. `wall_clock` is called when
/// the run begins.
///
/// Returns only when the kernel refuses to end the system; for a first process, returning is a panic
/// of the kernel, which the emulator's other side recognises.
pub fn main(version: &str, wall_clock: fn() -> String) {
    for (kind, folder) in MOUNTS {
        let _ = fs::create_dir(folder);
        let _ = mount(kind, Path::new(folder));
    }
    // Or plots would say that they were measured "on (none)".
    let _ = rustix::system::sethostname(HOST.as_bytes());
    // A guest without a network is one whose network loads will say so.
    let _ = net::set_up("lo");
    let tree = Tree::default();
    let options = Options::read(&tree.read("proc/cmdline").unwrap_or_default());
    if options.symbols {
        leave(&options.channel, &keep_symbols());
        return;
    }
    let start = start::settle(&tree);
    std::thread::sleep(Duration::from_nanos(options.shift_ns()));
    leave_on_panic(options.channel.clone());
    let aim = fs::read_to_string(Path::new("/").join(guest::AIM)).ok();
    let outcome = measure(version, wall_clock(), options.events, options.expiries(aim.as_deref()))
        .and_then(|()| {
            start::keep(&start, Path::new(RECORD)).map_err(|e| format!("{}: {e}", guest::START))
        });
    leave(&options.channel, &outcome);
}

/// A release ends at a panic, and the end of a first process is a panic of the kernel: the record goes first.
fn leave_on_panic(channel: PathBuf) {
    let say_where = panic::take_hook();
    panic::set_hook(Box::new(move |found| {
        say_where(found);
        leave(&channel, &Err("the agent panicked: see its message on the console".to_owned()));
    }));
}

/// Sends what there is, and switches the guest off.
fn leave(channel: &Path, outcome: &Result<(), String>) {
    if let Err(why) = outcome {
        say(&format!("failed: {why}"));
    }
    match send(channel, outcome) {
        Ok(files) => say(&format!("sent {files} files")),
        Err(e) => say(&format!("can't send the record: {e}")),
    }
    let refused = end_system(SystemEnd::PowerOff);
    say(&format!("can't power off: {refused}"));
}

/// What the kernel command line tells the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    channel: PathBuf,
    seed: u64,
    /// Whether the guest records the kernel's events.
    events: bool,
    /// Whether the guest only sends the kernel's symbols.
    symbols: bool,
}

impl Options {
    fn read(line: &str) -> Options {
        let value = |name: &str| {
            let mut words = line.split_whitespace();
            words.find_map(|word| {
                word.strip_prefix("rtscope.")?.strip_prefix(name)?.strip_prefix('=')
            })
        };
        Options {
            channel: Path::new("/dev").join(value("channel").unwrap_or("console")),
            seed: value("seed").and_then(|text| text.parse().ok()).unwrap_or(0),
            events: value("events") == Some("1"),
            symbols: value("symbols") == Some("1"),
        }
    }

    /// What the guest is told of its expiries; `aim` is the text of the file.
    fn expiries(&self, aim: Option<&str>) -> GuestExpiries {
        GuestExpiries { seed: self.seed, aim_ns: aim.and_then(|text| text.parse().ok()) }
    }

    /// How much later the run begins: spread evenly over the seeds by the golden ratio; none for 0.
    fn shift_ns(&self) -> u64 {
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let spread = u128::from(self.seed.wrapping_mul(GOLDEN)) * u128::from(SHIFT_NS_MAX);
        (spread >> 64) as u64
    }
}

/// Puts the kernel's symbols into the record, with those of the modules that a run has.
fn keep_symbols() -> Result<(), String> {
    let (_, failures) = beside::before(&beside::read()?);
    let symbols = fs::read("/proc/kallsyms").map_err(|e| format!("/proc/kallsyms: {e}"))?;
    beside::note(Path::new(RECORD), &failures);
    fs::create_dir_all(RECORD)
        .and_then(|()| fs::write(Path::new(RECORD).join(guest::SYMBOLS), symbols))
        .map_err(|e| format!("{}: {e}", guest::SYMBOLS))
}

/// A line on the console: the host watches it.
fn say(text: &str) {
    let _ = writeln!(io::stdout(), "rtscope: {text}");
}

fn measure(
    version: &str,
    wall_clock: String,
    events: bool,
    expiries: GuestExpiries,
) -> Result<(), String> {
    let beside = beside::read()?;
    let (gpio, mut failures) = beside::before(&beside);
    let record = Path::new(RECORD);
    if !beside.commands.is_empty() {
        beside::note(record, &failures);
        beside::note(record, &commands::run(&beside.commands));
        return Ok(());
    }
    let text = fs::read_to_string(PLAN).map_err(|e| format!("{PLAN}: {e}"))?;
    let mut plan = plan::parse_kept(PLAN, &text).map_err(|e| e.to_string())?;
    let findings = leave_out(&mut plan, &Tree::default()).into_iter().collect();
    let options = RunOptions {
        plan,
        findings,
        folder: PathBuf::from(RECORD),
        tree: Tree::default(),
        journal: PathBuf::from("/run/rtscope"),
        program: PathBuf::from("/proc/self/exe"),
        command: std::env::args().collect(),
        version: version.to_owned(),
        wall_clock,
        interrupt: Interrupt::install().map_err(|e| format!("signals: {e}"))?,
        unattended: crate::watchdog::UNATTENDED,
        expiries,
    };
    let plan = options.plan.clone();
    let mut watch = Watch::new(&beside, &plan);
    let kernel = events.then(|| WatchedKernel::start(&options.version, &options.wall_clock));
    let mut listener = |stamped: &Stamped| {
        print_event(&plan, stamped);
        watch.see(stamped);
        kernel.iter().for_each(|kernel| kernel.see(&plan, stamped));
    };
    let finished = run(&options, &mut listener).map_err(|e| e.to_string())?;
    if let Some(kernel) = kernel {
        kernel.finish(&mut failures);
    }
    if let Some(why) = finished.not_written {
        return Err(format!("the record does not fit the guest's memory: {why}"));
    }
    if let Some(said) = gpio {
        beside::write(guest::GPIO, &said, &mut String::new());
    }
    beside::after(watch);
    beside::note(record, &failures);
    Ok(())
}

/// Says on the console where the run is: between phases, when nothing is measured.
fn print_event(plan: &Plan, stamped: &Stamped) {
    match &stamped.event {
        Event::PhaseStarted { cell, name } => {
            say(&format!("phase {}/{} {name}", cell + 1, plan.phases.len()))
        }
        Event::Found(finding) if finding.weight == Weight::Invalidates => {
            say(&format!("finding {}: {}", finding.code, finding.text));
        }
        _ => {}
    }
}

/// Sends the record, or why there is none. Returns how many files were sent.
fn send(channel: &Path, outcome: &Result<(), String>) -> io::Result<usize> {
    let mut line = OpenOptions::new().write(true).open(channel)?;
    terminal::make_raw(line.as_fd()).map_err(io::Error::other)?;
    let mut files = contents(Path::new(RECORD))?;
    let shown = SHOWS.iter().filter_map(|name| {
        let bytes = fs::read(Path::new("/").join(name)).ok()?;
        Some((format!("{SHOWN}/{name}"), bytes))
    });
    files.extend(shown);
    if let Err(why) = outcome {
        files.push((guest_link::FAILURE.to_owned(), why.clone().into_bytes()));
    }
    for (name, body) in &files {
        let frame = guest_link::file(name, &packed(body)?)
            .ok_or_else(|| io::Error::other(format!("{name} is too long")))?;
        line.write_all(&frame)?;
    }
    line.write_all(&guest_link::end(files.len()))?;
    terminal::drain(line.as_fd()).map_err(io::Error::other)?;
    Ok(files.len())
}

/// A file's bytes, packed: a kernel's configuration alone would otherwise take seconds on the line. The
/// packed form holds no time, so that equal files stay equal.
fn packed(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(body)?;
    packer.finish()
}

/// Every file below a folder with its path in it, in order of the path, but the pages; none when there is no folder.
fn contents(folder: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries = match fs::read_dir(&next) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with(guest::PAGE) {
                continue;
            } else if let Ok(inner) = path.strip_prefix(folder) {
                found.push((inner.to_string_lossy().into_owned(), fs::read(&path)?));
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_read() {
        let options = Options::read("console=ttyS0 rtscope.seed=3 panic=-1 rtscope.channel=ttyS1");
        assert_eq!(options, Options { channel: "/dev/ttyS1".into(), seed: 3, ..Options::read("") });
        let options = Options::read("console=ttyAMA0 rtscope.seeds=9 myrtscope.seed=4");
        assert_eq!(
            options,
            Options { channel: "/dev/console".into(), seed: 0, events: false, symbols: false }
        );
        let aimed = Options::read("rtscope.seed=2").expiries(Some("000001234567890123"));
        assert_eq!(aimed, GuestExpiries { seed: 2, aim_ns: Some(1_234_567_890_123) });
        assert!(Options::read("rtscope.symbols=1").symbols);
        assert!(Options::read(guest::EVENTS_WORD).events);
    }

    #[test]
    fn seeds_shift_by_different_times_within_the_bound() {
        let shift = |seed| Options { seed, ..Options::read("") }.shift_ns();
        let mut shifts: Vec<u64> = (0..100).map(shift).collect();
        assert_eq!(shifts[0], 0);
        shifts.sort_unstable();
        assert!(shifts[99] < SHIFT_NS_MAX);
        // Evenly spread: no two of a hundred seeds are closer than a two-hundredth of the bound.
        assert!(shifts.windows(2).all(|w| w[1] - w[0] >= SHIFT_NS_MAX / 300), "{shifts:?}");
    }

    #[test]
    fn files_are_listed_in_order_with_their_paths() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("slices")).expect("made");
        for name in ["slices/t1.jsonl", "slices/t0.jsonl", "events.jsonl", "slices/report.html"] {
            fs::write(folder.path().join(name), name).expect("written");
        }
        let names: Vec<String> =
            contents(folder.path()).expect("readable").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["events.jsonl", "slices/t0.jsonl", "slices/t1.jsonl"]);
        assert_eq!(contents(&folder.path().join("none")).expect("no folder is no file"), []);
    }
}
