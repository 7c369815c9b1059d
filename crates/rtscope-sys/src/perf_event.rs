//! The kernel's event counters (`perf_event_open`), for the programs that the calling thread starts.

use std::{
    fs::File,
    io::Read,
    os::fd::{FromRawFd, OwnedFd},
};

use crate::error::{Error, check};

/// The kind of a counter: type and number of the kernel's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterKind {
    class: u32,
    config: u64,
}

/// Counted by the processor.
const HARDWARE: u32 = 0;
/// Counted by the kernel.
const SOFTWARE: u32 = 1;

impl CounterKind {
    /// CPU time, in nanoseconds.
    pub const TASK_CLOCK: CounterKind = CounterKind { class: SOFTWARE, config: 1 };
    pub const PAGE_FAULTS: CounterKind = CounterKind { class: SOFTWARE, config: 2 };
    pub const CONTEXT_SWITCHES: CounterKind = CounterKind { class: SOFTWARE, config: 3 };
    pub const MIGRATIONS: CounterKind = CounterKind { class: SOFTWARE, config: 4 };
    pub const CYCLES: CounterKind = CounterKind { class: HARDWARE, config: 0 };
    pub const INSTRUCTIONS: CounterKind = CounterKind { class: HARDWARE, config: 1 };
    pub const BRANCHES: CounterKind = CounterKind { class: HARDWARE, config: 4 };
    pub const BRANCH_MISSES: CounterKind = CounterKind { class: HARDWARE, config: 5 };
}

/// The first published size of `struct perf_event_attr`, which every kernel takes.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    class: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

// Bits of `flags`, in the order of the kernel's bit field.
const DISABLED: u64 = 1 << 0;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const ENABLE_ON_EXEC: u64 = 1 << 12;

/// `PERF_FORMAT_TOTAL_TIME_ENABLED` and `PERF_FORMAT_TOTAL_TIME_RUNNING`.
const WITH_TIMES: u64 = 1 | 2;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// A counter of what the calling thread's child programs do, each from its exec on, with all that they
/// start in turn. The thread itself is not counted.
#[derive(Debug)]
pub struct Counter {
    file: File,
    /// Only what programs do themselves is counted, not what the kernel does for them.
    pub user_only: bool,
}

/// What a counter has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterReading {
    pub value: u64,
    /// Time in which it was to count.
    pub enabled_ns: u64,
    /// Time in which it did: less, when the processor has fewer counters than were asked for.
    pub running_ns: u64,
}

impl Counter {
    /// Opens a counter for programs that this thread starts from now on.
    ///
    /// # Errors
    ///
    /// ENOENT, ENODEV or EOPNOTSUPP when the machine lacks it, ENOSYS when the kernel has no counters,
    /// EACCES or EPERM when `kernel.perf_event_paranoid` forbids it.
    pub fn of_children(kind: CounterKind) -> Result<Counter, Error> {
        let open = |exclude: u64| -> Result<Counter, Error> {
            let flags = DISABLED | INHERIT | ENABLE_ON_EXEC | EXCLUDE_HYPERVISOR | exclude;
            let attributes = Attributes {
                class: kind.class,
                size: size_of::<Attributes>() as u32,
                config: kind.config,
                read_format: WITH_TIMES,
                flags,
                ..Attributes::default()
            };
            // SAFETY: the pointer is valid for the size that its field says; the rest are integers: this
            // thread, any CPU, no group.
            let answer = unsafe {
                libc::syscall(
                    libc::SYS_perf_event_open,
                    &raw const attributes,
                    0,
                    -1,
                    -1,
                    CLOSE_ON_EXEC,
                )
            };
            let fd = check(answer, || "perf_event_open".to_owned())? as i32;
            // SAFETY: the descriptor is new and ours.
            let owned = unsafe { OwnedFd::from_raw_fd(fd) };
            Ok(Counter { file: File::from(owned), user_only: exclude != 0 })
        };
        // The kernel itself switches and migrates threads: without its part, both would be 0.
        let is_the_kernels =
            [CounterKind::CONTEXT_SWITCHES, CounterKind::MIGRATIONS].contains(&kind);
        match open(0) {
            // Without privilege the kernel's part stays hidden.
            Err(error) if error.is_permission() && !is_the_kernels => open(EXCLUDE_KERNEL),
            other => other,
        }
    }

    /// What was counted up to now. Programs that have ended and were waited for are complete.
    pub fn read(&mut self) -> Result<CounterReading, Error> {
        let mut bytes = [0; 24];
        let failed = |source| Error::Call { call: "read a counter".to_owned(), source };
        self.file.read_exact(&mut bytes).map_err(failed)?;
        let word =
            |n: usize| u64::from_ne_bytes(bytes[8 * n..8 * n + 8].try_into().expect("eight bytes"));
        Ok(CounterReading { value: word(0), enabled_ns: word(1), running_ns: word(2) })
    }
}

/// Whether an error says that the machine or its kernel has no such counter.
#[must_use]
pub fn is_absent(error: &Error) -> bool {
    matches!(
        error.errno(),
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_counted_and_its_parent_is_not() {
        let mut counter = match Counter::of_children(CounterKind::TASK_CLOCK) {
            Ok(counter) => counter,
            Err(_) => return rtscope_testing::skip::skip_this("needs perf events"),
        };
        let own = crate::thread::usage().cpu_ns;
        while crate::thread::usage().cpu_ns < own + 20_000_000 {}
        assert_eq!(counter.read().expect("read").value, 0, "the parent has worked for 20 ms");
        let ended = std::process::Command::new("true").status().expect("a child");
        assert!(ended.success());
        let reading = counter.read().expect("read");
        assert!(reading.value > 0 && reading.enabled_ns >= reading.running_ns, "{reading:?}");
    }

    #[test]
    fn the_attributes_have_their_published_size() {
        assert_eq!(size_of::<Attributes>(), 64);
    }
}
