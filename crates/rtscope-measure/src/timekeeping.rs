//! Whether time went on as it should: steps of the wall clock, a suspended machine, and times in which
//! the whole machine stood still.
//!
//! A step is a change of `CLOCK_REALTIME` against `CLOCK_BOOTTIME`, a suspend one of `CLOCK_BOOTTIME`
//! against `CLOCK_MONOTONIC`: adjusting the clocks' speed (NTP, PTP) changes none of the two. Both are
//! looked at once a second.
//!
//! What it can't show: a virtual machine that was paused together with its clocks. Nothing inside it
//! tells that. One whose clocks went on is seen as a control thread that overslept on idle CPUs, or without waiting
//! for one, which is also what firmware, a kernel that is locked up, or a stopped rtscope looks like.

use rtscope_model::{
    cpu::CpuSet,
    event::SystemSpan,
    finding::{Finding, Weight},
    plan::ClockName,
    printable::quoted,
    time::Nanos,
};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    thread::SchedStat,
    tree::Tree,
};

/// A smaller step is no more than the latencies that are measured.
const STEP_MIN_NS: u64 = 10_000;

/// A shorter suspend is none: the kernel takes longer to freeze and thaw.
const SUSPEND_MIN_NS: u64 = 1_000_000;

/// A control thread that sleeps so much longer than it asked for was kept from running.
pub(crate) const STALL_MIN: Nanos = Nanos::from_secs(1);

/// How many steps and suspends are told.
const TOLD_MAX: u32 = 5;

/// One reading of the three clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    monotonic_ns: u64,
    realtime_ns: u64,
    boot_ns: u64,
    /// How long the reading took: differences are known no better.
    took_ns: u64,
}

impl Reading {
    /// Reads the clocks.
    pub(crate) fn now() -> Reading {
        let begin_ns = SystemClock::MONOTONIC.now_ns();
        let realtime_ns = SystemClock::REALTIME.now_ns();
        let boot_ns = SystemClock::BOOTTIME.now_ns();
        let took_ns = SystemClock::MONOTONIC.now_ns() - begin_ns;
        Reading { monotonic_ns: begin_ns, realtime_ns, boot_ns, took_ns }
    }

    /// How much more one clock has advanced than another since an earlier reading; 0 when that may be the
    /// time that reading takes.
    fn gained(&self, earlier: &Reading, of: [fn(&Reading) -> u64; 2], min_ns: u64) -> i64 {
        let [ahead, base] = of.map(|clock| clock(self).wrapping_sub(clock(earlier)).cast_signed());
        let gained = ahead.wrapping_sub(base);
        let unsure_ns = self.took_ns + earlier.took_ns;
        if gained.unsigned_abs() >= min_ns + unsure_ns { gained } else { 0 }
    }
}

/// Looks at the clocks again and again.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    last: Reading,
    told: u32,
}

impl ClockWatch {
    pub(crate) fn new(first: Reading) -> ClockWatch {
        ClockWatch { last: first, told: 0 }
    }

    /// What happened to the clocks since the last look, in a phase that samples on `clock`; `age_ns` is
    /// the age of the run.
    pub(crate) fn look(
        &mut self,
        now: Reading,
        clock: ClockName,
        phase: &str,
        age_ns: u64,
    ) -> Vec<Finding> {
        let step_ns = now.gained(&self.last, [|r| r.realtime_ns, |r| r.boot_ns], STEP_MIN_NS);
        let asleep_ns = now.gained(&self.last, [|r| r.boot_ns, |r| r.monotonic_ns], SUSPEND_MIN_NS);
        self.last = now;
        let when = format!("{} into the run, in phase {}", Nanos(age_ns), quoted(phase));
        let mut found = Vec::new();
        if step_ns != 0 && clock == ClockName::Realtime {
            let direction = if step_ns > 0 { "forward" } else { "back" };
            let by = Nanos(step_ns.unsigned_abs());
            let text = format!(
                "the clock that the phase samples on (CLOCK_REALTIME) was set {direction} by {by}, {when}"
            );
            let advice = "do not let any program set the time during the measurement, or sample on the monotonic clock";
            found.push(Finding::new("clock-stepped", Weight::Invalidates, text).advise(advice));
        }
        if asleep_ns > 0 {
            let text = format!("the machine was suspended for {}, {when}", Nanos(asleep_ns as u64));
            let advice = "keep the machine awake: systemd-inhibit --what=sleep rtscope run ...";
            found.push(Finding::new("suspended", Weight::Invalidates, text).advise(advice));
        }
        let left = TOLD_MAX.saturating_sub(self.told) as usize;
        found.truncate(left);
        self.told += found.len() as u32;
        found
    }
}

/// How long the calling thread has been ready to run and waited for a CPU, in its whole life. None where the kernel
/// doesn't count it (`CONFIG_SCHED_INFO`), and on PREEMPT_RT: there a kernel thread wakes ordinary threads, so that who
/// is held up by others may not be ready to run.
pub(crate) fn queued_ns(tree: &Tree) -> Option<u64> {
    if tree.read("sys/kernel/realtime").is_ok_and(|text| text.trim() == "1") {
        return None;
    }
    let stat = SchedStat::parse(&tree.read("proc/thread-self/schedstat").ok()?)?;
    (stat.ran_ns > 0).then_some(stat.queued_ns)
}

/// What it means that the control thread overslept by [`STALL_MIN`] or more, when the CPUs did this
/// meanwhile. `control` are those that it may use. `queued_ns` is how long it waited for one of them in that time, where
/// that is known. `was_stopped` says that it was told to continue.
pub(crate) fn stall(
    overslept_ns: u64,
    was_stopped: bool,
    queued_ns: Option<u64>,
    control: &CpuSet,
    meanwhile: &SystemSpan,
) -> Finding {
    let overslept = Nanos(overslept_ns);
    if was_stopped {
        let text = format!(
            "rtscope was stopped by a signal and continued: its control thread overslept by {overslept}"
        );
        return Finding::new("stopped", Weight::PreventsPass, text).advise(
            "do not stop rtscope while it measures (SIGSTOP, Ctrl-Z, a debugger): its sampling threads \
             stop with it",
        );
    }
    let idle = meanwhile
        .cpus
        .iter()
        .find(|cpu| control.contains(cpu.cpu) && cpu.busy_ns < overslept_ns / 2)
        .map(|cpu| cpu.cpu);
    // Whoever is held up by others is ready to run most of the time.
    let queued_ns = queued_ns.filter(|&queued_ns| queued_ns < overslept_ns / 2);
    let although = match (idle, queued_ns) {
        (Some(cpu), _) => Some(format!("although CPU {cpu} was free")),
        (None, Some(ns)) => Some(format!("although it waited for a CPU for only {}", Nanos(ns))),
        (None, None) => None,
    };
    match although {
        Some(although) => Finding::new(
            "stood-still",
            Weight::PreventsPass,
            format!(
                "rtscope's control thread overslept by {overslept} {although}: the whole machine was paused, or \
                    rtscope was stopped"
            ),
        )
        .advise(
            "check the host and the kernel log. Possible causes are a paused virtual machine, firmware or a \
                kernel that holds all CPUs, a frozen cgroup and SIGSTOP",
        ),
        None => Finding::new(
            "control-held-up",
            Weight::Warning,
            format!(
                "rtscope's control thread could not run for {overslept}, so slices and phases are longer than \
                    requested"
            ),
        )
        .advise("give it a CPU without real-time threads: measure fewer CPUs, or move the load"),
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::event::CpuSpan;

    use super::*;
    use crate::environment::fake::FakeTree;

    const SECOND_NS: u64 = 1_000_000_000;

    /// A reading after so many seconds, in which the wall clock was set by, and the machine slept.
    fn after(seconds: u64, step_ns: i64, asleep_ns: u64) -> Reading {
        let monotonic_ns = 1_000 * SECOND_NS + seconds * SECOND_NS;
        let boot_ns = monotonic_ns + asleep_ns;
        let realtime_ns = (1_700_000_000 * SECOND_NS + boot_ns).saturating_add_signed(step_ns);
        Reading { monotonic_ns, realtime_ns, boot_ns, took_ns: 500 }
    }

    fn looked(clock: ClockName, now: Reading) -> Vec<(String, Weight, String)> {
        let mut watch = ClockWatch::new(after(0, 0, 0));
        let found = watch.look(now, clock, "rest", 12 * SECOND_NS);
        found.into_iter().map(|f| (f.code, f.weight, f.text)).collect()
    }

    #[test]
    fn a_step_of_the_clock_invalidates_a_phase_that_samples_on_it() {
        let back = -3_600 * SECOND_NS.cast_signed();
        let found = looked(ClockName::Realtime, after(1, back, 0));
        let text = "the clock that the phase samples on (CLOCK_REALTIME) was set back by 1 h, 12 s \
                    into the run, in phase \"rest\"";
        assert_eq!(found, [("clock-stepped".into(), Weight::Invalidates, text.into())]);
        assert_eq!(looked(ClockName::Monotonic, after(1, back, 0)), []);
        // The time that reading takes is no step.
        assert_eq!(looked(ClockName::Realtime, after(1, 10_500, 0)), []);
        assert_eq!(looked(ClockName::Realtime, after(1, 12_000, 0)).len(), 1);
    }

    #[test]
    fn a_suspend_is_no_step_and_counts_on_every_clock() {
        for clock in [ClockName::Realtime, ClockName::Monotonic] {
            let found = looked(clock, after(1, 0, 40 * SECOND_NS));
            let text = "the machine was suspended for 40 s, 12 s into the run, in phase \"rest\"";
            assert_eq!(found, [("suspended".into(), Weight::Invalidates, text.into())]);
        }
    }

    #[test]
    fn a_clock_that_is_set_again_and_again_is_told_a_few_times() {
        let mut watch = ClockWatch::new(after(0, 0, 0));
        let told: usize = (1..100u64)
            .map(|n| {
                let now = after(n, n.cast_signed() * 1_000_000, 0);
                watch.look(now, ClockName::Realtime, "rest", n).len()
            })
            .sum();
        assert_eq!(told, TOLD_MAX as usize);
    }

    #[test]
    fn this_machines_clocks_are_read_alike() {
        let mut watch = ClockWatch::new(Reading::now());
        assert_eq!(watch.look(Reading::now(), ClockName::Realtime, "rest", 0), []);
    }

    #[test]
    fn the_wait_for_a_cpu_is_counted_or_known_to_be_unknown() {
        let of = |text: &str| {
            let fake = FakeTree::new();
            fake.file("proc/thread-self/schedstat", text);
            queued_ns(&fake.tree)
        };
        assert_eq!(of("1500 300 7\n"), Some(300));
        assert_eq!(of("0 0 0\n"), None, "a kernel that doesn't count");
        assert_eq!(of(""), None);
        assert!(queued_ns(&Tree::default()).is_none_or(|ns| ns < 3_600 * SECOND_NS));
        let fake = FakeTree::new();
        fake.file("proc/thread-self/schedstat", "1500 300 7\n");
        fake.file("sys/kernel/realtime", "1\n");
        assert_eq!(queued_ns(&fake.tree), None, "a kernel thread wakes it there");
    }

    #[test]
    fn a_control_thread_that_overslept_tells_a_busy_machine_from_one_that_stood_still() {
        let span = |busy_ns: [u64; 2]| SystemSpan {
            cpus: (0..)
                .zip(busy_ns)
                .map(|(cpu, busy_ns)| CpuSpan { cpu, busy_ns, ..CpuSpan::default() })
                .collect(),
            ..SystemSpan::default()
        };
        let second: CpuSet = "1".parse().expect("a set");
        let told_of = |was_stopped, queued_ns, busy_ns| {
            let finding = stall(3 * SECOND_NS, was_stopped, queued_ns, &second, &span(busy_ns));
            (finding.code, finding.weight)
        };
        let told = |was_stopped, busy_ns| told_of(was_stopped, None, busy_ns);
        let busy = 3 * SECOND_NS;
        let still = ("stood-still".to_owned(), Weight::PreventsPass);
        assert_eq!(told(false, [busy, 40_000_000]), still);
        let held_up = ("control-held-up".to_owned(), Weight::Warning);
        assert_eq!(told(false, [0, busy]), held_up);
        // A frozen thread doesn't wait for a CPU, whoever uses that.
        assert_eq!(told_of(false, Some(2 * SECOND_NS), [0, busy]), held_up);
        assert_eq!(told_of(false, Some(SECOND_NS), [0, busy]), still);
        // Whatever the CPUs did meanwhile.
        for busy_ns in [[busy, 40_000_000], [0, busy]] {
            assert_eq!(told(true, busy_ns), ("stopped".to_owned(), Weight::PreventsPass));
        }
    }
}
