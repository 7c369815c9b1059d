//! An emulator that sleeps in a replay.
//!
//! A replay of a run in virtual time computes from its first instruction to its last. If what runs is not what
//! was logged, the emulator may wait for an event that its log doesn't have next: for ever, and without a word.
//! Such a sleep is told from a busy host by the kernel's own account: what a thread used of a CPU, and how long
//! it waited for one.

use std::{fs, time::Duration};

use rtscope_sys::thread::SchedStat;

/// How long the emulator is watched before a share is taken, and the longest time between two looks: this
/// program itself may have been stopped.
const WINDOW: Duration = Duration::from_secs(1);

/// An emulator that uses or wants less than one part in so many of a CPU sleeps.
const ASLEEP_PARTS: u32 = 10;

/// Since when an emulator sleeps.
#[derive(Debug, Default)]
pub(super) struct Sleep {
    /// What it had used and waited for when the window began.
    before: Option<Duration>,
    window: Duration,
    asleep: Duration,
}

impl Sleep {
    /// Takes a look after some time, with what the emulator has used of a CPU or waited for; how long it has slept.
    pub(super) fn look(&mut self, elapsed: Duration, wanted: Option<Duration>) -> Duration {
        let Some(wanted) = wanted else { return Duration::ZERO };
        let before = *self.before.get_or_insert(wanted);
        self.window += elapsed.min(WINDOW);
        if self.window >= WINDOW {
            let is_asleep = wanted.saturating_sub(before) * ASLEEP_PARTS < self.window;
            self.asleep = if is_asleep { self.asleep + self.window } else { Duration::ZERO };
            (self.before, self.window) = (Some(wanted), Duration::ZERO);
        }
        self.asleep
    }
}

/// How long all threads of a process have used a CPU or waited for one; none where the kernel keeps no account.
pub(super) fn wanted(process: u32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let of_thread = |path| of_schedstat(&fs::read_to_string(path).ok()?);
    let all = threads.map(|thread| of_thread(thread.path().join("schedstat")));
    // One that has just ended has no account.
    all.flatten().reduce(|a, b| a + b)
}

fn of_schedstat(text: &str) -> Option<Duration> {
    let SchedStat { ran_ns, queued_ns } = SchedStat::parse(text)?;
    Some(Duration::from_nanos(ran_ns.saturating_add(queued_ns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(500);

    /// How long an emulator has slept that wants so many milliseconds of a CPU between looks, 500 ms each.
    fn slept(wants_ms: &[u64]) -> Duration {
        let (mut sleep, mut wanted, mut slept) = (Sleep::default(), Duration::ZERO, Duration::ZERO);
        for ms in wants_ms {
            wanted += Duration::from_millis(*ms);
            slept = sleep.look(LOOK, Some(wanted));
        }
        slept
    }

    #[test]
    fn an_emulator_that_hardly_wants_a_cpu_sleeps_and_one_that_waits_for_a_cpu_does_not() {
        // QEMU 7.2 in a replay that had left its log: 9 ms of a CPU in a second.
        assert_eq!(slept(&[5; 60]), Duration::from_secs(30));
        assert_eq!(slept(&[500; 60]), Duration::ZERO, "it computes, or waits for its turn");
        let woken = [vec![5; 40], vec![400], vec![5; 9]].concat();
        assert_eq!(slept(&woken), Duration::from_secs(4), "only the time since it computed");
    }

    #[test]
    fn what_passed_while_this_program_was_stopped_is_not_sleep() {
        let mut sleep = Sleep::default();
        let hour = Duration::from_secs(3600);
        assert!(sleep.look(hour, Some(Duration::ZERO)) <= Duration::from_secs(1));
        assert_eq!(Sleep::default().look(hour, None), Duration::ZERO, "the kernel doesn't say");
    }

    #[test]
    fn the_kernel_s_account_is_read() {
        assert_eq!(of_schedstat("1500000000 500000000 7\n"), Some(Duration::from_secs(2)));
        assert_eq!(of_schedstat("1500000000"), None);
        assert_eq!(of_schedstat("x y 7"), None);
    }
}
