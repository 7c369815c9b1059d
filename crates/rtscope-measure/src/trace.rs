//! A private instance of the kernel's trace: buffers and switches of its own, so that nobody else's
//! tracing is disturbed, and removed when it is dropped.
//!
//! Where tracefs is not mounted it is mounted for this process only, without a place in the tree of
//! files: nothing of it is left behind.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// Where tracefs may be.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// `O_NONBLOCK`, as reading must not wait for events.
const NON_BLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Not permitted.
    #[error("tracing the kernel's events is not permitted: run as root, or with CAP_SYS_ADMIN")]
    Permission,
    /// No tracefs.
    #[error(
        "this kernel has no tracefs ({0}): one with CONFIG_FTRACE and CONFIG_EVENT_TRACING is needed"
    )]
    Absent(io::Error),
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

/// An instance. It records nothing until events are switched on.
#[derive(Debug)]
pub struct Instance {
    folder: PathBuf,
    /// Keeps a mount of our own.
    _mount: Option<OwnedFd>,
}

/// Instances that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

impl Instance {
    /// Makes an instance whose time stamps are those of `CLOCK_MONOTONIC`, with a buffer of so many
    /// KiB a CPU.
    ///
    /// # Errors
    ///
    /// When the kernel has no tracing, or we may not.
    pub fn new(buffer_kib: u32) -> Result<Instance, TraceError> {
        let (place, mount) = place()?;
        let number = MADE.fetch_add(1, Relaxed);
        let folder =
            place.join("instances").join(format!("rtscope-{}-{number}", std::process::id()));
        fs::create_dir(&folder).map_err(|cause| match cause.kind() {
            io::ErrorKind::PermissionDenied => TraceError::Permission,
            _ => TraceError::File { operation: "make", path: folder.clone(), cause },
        })?;
        // From here on, dropping it removes the folder.
        let instance = Instance { folder, _mount: mount };
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", &buffer_kib.to_string())?;
        Ok(instance)
    }

    /// Writes to one of its files.
    ///
    /// # Errors
    ///
    /// When the kernel refuses it.
    pub fn write(&self, file: &str, text: &str) -> Result<(), TraceError> {
        let path = self.folder.join(file);
        let written = OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|cause| TraceError::File { operation: "write", path, cause })
    }

    /// Opens the stream of its events, as text.
    ///
    /// # Errors
    ///
    /// When it can't be opened.
    pub fn events(&self) -> Result<Events, TraceError> {
        let path = self.folder.join("trace_pipe");
        let opened = OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(&path);
        let pipe = opened.map_err(|cause| TraceError::File { operation: "open", path, cause })?;
        Ok(Events { pipe, rest: Vec::new(), lost: 0 })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join("tracing_on"), "0");
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The folder of tracefs, and a mount of our own where there was none.
fn place() -> Result<(PathBuf, Option<OwnedFd>), TraceError> {
    let is_there = |place: &&str| PathBuf::from(place).join("instances").is_dir();
    if let Some(place) = PLACES.into_iter().find(is_there) {
        return Ok((PathBuf::from(place), None));
    }
    let mounted = || -> rustix::io::Result<OwnedFd> {
        let system = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&system)?;
        let (flags, attributes) = (FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
        rustix::mount::fsmount(&system, flags, attributes)
    };
    match mounted() {
        Ok(mount) => {
            Ok((PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())), Some(mount)))
        }
        Err(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => Err(TraceError::Permission),
        Err(error) => Err(TraceError::Absent(error.into())),
    }
}

/// The stream of an instance's events.
#[derive(Debug)]
pub struct Events {
    pipe: File,
    /// A line that has not ended yet.
    rest: Vec<u8>,
    /// Events that the buffers had no room for.
    lost: u64,
}

impl Events {
    /// Gives each line that has come since, without waiting.
    ///
    /// # Errors
    ///
    /// When it can't be read.
    pub fn drain(&mut self, mut line: impl FnMut(&str)) -> io::Result<()> {
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
            for text in String::from_utf8_lossy(&whole).lines() {
                match lost_in(text) {
                    Some(count) => self.lost += count,
                    None => line(text),
                }
            }
        }
    }

    /// Events that were lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// `CPU:1 [LOST 17 EVENTS]`.
fn lost_in(line: &str) -> Option<u64> {
    let (_, rest) = line.strip_prefix("CPU:")?.split_once(" [LOST ")?;
    rest.split_once(" EVENTS]")?.0.parse().ok()
}

/// What stands before an event's own words: `NAME-TID [CPU] FLAGS SECONDS.MICROSECONDS: event: `.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The thread in which it happened.
    pub tid: i32,
    /// When, on `CLOCK_MONOTONIC`, to a microsecond.
    pub at_ns: u64,
    /// Whether an interrupt handler did it, not the thread.
    pub in_interrupt: bool,
}

/// Takes a line apart: its head, the event's name, its words.
#[must_use]
pub fn parse(line: &str) -> Option<(Head, &str, &str)> {
    // A thread's name may hold anything but a newline: what follows it has a fixed form, and the
    // CPU's brackets are the last ones before the time.
    let mut from = 0;
    loop {
        let open = from + line[from..].find(" [")?;
        if let Some(found) = parse_at(line, open) {
            return Some(found);
        }
        from = open + 2;
    }
}

fn parse_at(line: &str, open: usize) -> Option<(Head, &str, &str)> {
    let (cpu, rest) = line[open + 2..].split_once("] ")?;
    cpu.parse::<u32>().ok()?;
    let tid = line[..open].trim_end().rsplit_once('-')?.1.parse().ok()?;
    let (flags, rest) = rest.split_once(' ')?;
    let (at, rest) = rest.trim_start().split_once(": ")?;
    let (seconds, micros) = at.split_once('.')?;
    let at_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    let (event, words) = rest.split_once(": ")?;
    let in_interrupt = flags.chars().nth(2).is_some_and(|c| "hHsSzZ*".contains(c));
    Some((Head { tid, at_ns: at_us * 1_000, in_interrupt }, event, words))
}

/// The value of `KEY=` in an event's words, up to a blank.
#[must_use]
pub fn value<'a>(words: &'a str, key: &str) -> Option<&'a str> {
    let at = words.rfind(key)?;
    words[at + key.len()..].split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "  a [1] b-19960   [001] d..1.  1132.815757: hrtimer_start: hrtimer=0000 function=hrtimer_wakeup expires=1132825798966 softexpires=1132825748966 mode=ABS was_armed=0";

    #[test]
    fn a_line_is_taken_apart_whatever_the_thread_is_called() {
        let (head, event, words) = parse(LINE).expect("an event");
        let expected = Head { tid: 19_960, at_ns: 1_132_815_757_000, in_interrupt: false };
        assert_eq!((head, event), (expected, "hrtimer_start"));
        assert_eq!(value(words, "softexpires="), Some("1132825748966"));
        assert_eq!(value(words, "mode="), Some("ABS"));
        assert_eq!(value(words, "nothing="), None);
        let timer = LINE.replace("d..1.", "d.h1.");
        assert!(parse(&timer).expect("an event").0.in_interrupt);
    }

    #[test]
    fn a_line_that_is_cut_is_none_and_losses_are_counted() {
        for end in 0..LINE.find(": hrtimer=").expect("its words") {
            assert!(parse(&LINE[..end]).is_none(), "{}", &LINE[..end]);
        }
        assert_eq!(lost_in("CPU:1 [LOST 17 EVENTS]"), Some(17));
        assert_eq!(lost_in(LINE), None);
    }

    #[test]
    fn an_instance_is_gone_when_it_is_dropped() {
        if !rtscope_sys::process::is_root() {
            println!("skipped: needs root");
            return;
        }
        let instance = match Instance::new(64) {
            Ok(instance) => instance,
            // A kernel of its own kind.
            Err(TraceError::Absent(_)) => return,
            Err(error) => panic!("{error}"),
        };
        let folder = instance.folder.clone();
        assert!(folder.is_dir());
        instance.events().expect("a stream").drain(|_| {}).expect("read");
        drop(instance);
        assert!(!folder.exists());
    }
}
