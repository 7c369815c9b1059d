//! What the kernel says of a running process and its threads.

use std::{
    collections::BTreeMap,
    fs,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::shell;

/// `SCHED_FIFO` in `/proc/PID/stat`.
const FIFO: &str = "1";

/// Unit of user and system time in `/proc/PID/stat`: the kernel shows hundredths of a second
/// whatever its own tick is.
const TICK: Duration = Duration::from_millis(10);

/// The CPUs that we may use.
pub(super) fn cpus() -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "Cpus_allowed_list").map(cpu_list).unwrap_or_default()
}

/// `0-2,5` as numbers.
fn cpu_list(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// The value of a line `name: value` in a `status` file.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// The largest memory that a process has used up to now, in bytes.
pub(super) fn peak_memory_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib: u64 = field(&status, "VmHWM")?.strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// CPU time, user and system, of all processes that we started and waited for.
pub(super) fn children_cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = shell::stat_fields(&stat).unwrap_or_default();
    let ticks = |i: usize| fields.get(i).and_then(|text| text.parse().ok()).unwrap_or(0);
    TICK * (ticks(13) + ticks(14))
}

/// What one thread has used up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    cpu_ns: u64,
    /// Times it went to sleep.
    sleeps: u64,
}

/// What the threads of a process have used up to now.
#[derive(Clone, Debug)]
pub(super) struct Snapshot(BTreeMap<u32, Used>);

/// What a process used between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// CPU time of the sampling thread for each of its wake-ups.
    pub(super) thread_us: f64,
    /// CPU time of the whole process for each wake-up of the sampling thread.
    pub(super) process_us: f64,
}

impl Snapshot {
    pub(super) fn take(pid: u32) -> Result<Snapshot> {
        let threads = threads(pid)?.into_iter().filter_map(|tid| {
            let read =
                |file: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{file}")).ok();
            Some((tid, used(&read("schedstat")?, &read("status")?)?))
        });
        Ok(Snapshot(threads.collect()))
    }

    /// The cost from an earlier snapshot to this one, where `sampler` is the sampling thread.
    pub(super) fn since(&self, earlier: &Snapshot, sampler: u32) -> Option<Cost> {
        let before = |tid: &u32| earlier.0.get(tid).copied().unwrap_or_default();
        let (first, last) = (earlier.0.get(&sampler)?, self.0.get(&sampler)?);
        let wakeups = (last.sleeps - first.sleeps) as f64;
        let all_ns: u64 = self.0.iter().map(|(tid, used)| used.cpu_ns - before(tid).cpu_ns).sum();
        (wakeups > 0.0).then(|| Cost {
            thread_us: (last.cpu_ns - first.cpu_ns) as f64 / wakeups / 1e3,
            process_us: all_ns as f64 / wakeups / 1e3,
        })
    }
}

/// Reads `schedstat` (time on a CPU, time waiting, times run) and `status`.
fn used(schedstat: &str, status: &str) -> Option<Used> {
    Some(Used {
        cpu_ns: schedstat.split_whitespace().next()?.parse().ok()?,
        sleeps: field(status, "voluntary_ctxt_switches")?.parse().ok()?,
    })
}

fn threads(pid: u32) -> Result<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect())
}

/// Waits until the process has a FIFO thread of this priority: the one that samples.
pub(super) fn sampling_thread(child: &mut Child, priority: u8) -> Result<u32> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let pid = child.id();
    while Instant::now() < deadline {
        if child.try_wait()?.is_some() {
            bail!("it ended before it sampled");
        }
        let samples = |tid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat"));
            stat.is_ok_and(|stat| is_fifo(&stat, priority))
        };
        if let Some(tid) = threads(pid).unwrap_or_default().into_iter().find(samples) {
            return Ok(tid);
        }
        thread::sleep(Duration::from_millis(10));
    }
    None.with_context(|| format!("it has no FIFO thread of priority {priority}"))
}

/// Whether a line of `/proc/PID/stat` is of a FIFO thread of this priority.
fn is_fifo(stat: &str, priority: u8) -> bool {
    let fields = shell::stat_fields(stat).unwrap_or_default();
    fields.get(38) == Some(&FIFO) && fields.get(37) == Some(&priority.to_string().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(cpu_list("7"), [7]);
        assert!(!cpus().is_empty());
    }

    #[test]
    fn the_cost_of_a_wake_up() {
        let thread = |cpu_ns, sleeps| Used { cpu_ns, sleeps };
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(used("3456 1 99\n", status), Some(thread(3456, 12)));
        let before = Snapshot(BTreeMap::from([(1, thread(500, 1)), (2, thread(1_000, 10))]));
        let after = Snapshot(BTreeMap::from([
            (1, thread(1_500, 2)),
            (2, thread(9_000, 14)),
            (3, thread(1_000, 1)),
        ]));
        let cost = after.since(&before, 2).expect("a cost");
        assert_eq!(cost, Cost { thread_us: 2.0, process_us: 2.5 });
        assert!(after.since(&before, 3).is_none() && before.since(&before, 2).is_none());
    }

    #[test]
    fn a_sampling_thread_is_known_by_its_policy_and_priority() {
        let fields: Vec<String> = (0..38).map(|i| i.to_string()).collect();
        let stat =
            |priority, policy| format!("9 (a b) {} {priority} {policy} 0", fields[..37].join(" "));
        assert!(is_fifo(&stat(80, 1), 80));
        assert!(!is_fifo(&stat(80, 2), 80) && !is_fifo(&stat(81, 1), 80) && !is_fifo("", 80));
    }

    #[test]
    fn this_process_has_a_peak() {
        assert!(peak_memory_bytes(std::process::id()).is_some_and(|bytes| bytes > 100_000));
        assert!(Snapshot::take(std::process::id()).is_ok_and(|snapshot| !snapshot.0.is_empty()));
    }
}
