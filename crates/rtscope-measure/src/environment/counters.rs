//! The kernel's own counters: CPU time, context switches and interrupts since boot, and what passed
//! between two readings.
//!
//! CPU time is counted in clock ticks (10 ms, mostly), so a span shorter than some ticks shows little.
//! Steal time is what a hypervisor admits to; many admit to nothing. The kernel counts nowhere how
//! often it throttled real-time threads, so that figure stays empty.

use std::io::Read;

use rtscope_model::{
    event::{CpuSpan, SystemSpan},
    other_work::BusyCpu,
};
use rtscope_sys::{system::ticks_per_second, tree::Tree};

/// One reading of `/proc/stat`, cheap enough for once a second: the buffer is used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemCounters {
    text: String,
    context_switches: u64,
    interrupts: u64,
    cpus: Vec<Ticks>,
}

/// A CPU's time since boot, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    cpu: u32,
    /// In the kernel's order: user, nice, system, idle, waiting for a device, interrupts, soft interrupts,
    /// steal.
    fields: [u64; 8],
}

impl Ticks {
    fn sum(&self, fields: &[usize]) -> u64 {
        fields.iter().fold(0, |sum, n| sum.saturating_add(self.fields[*n]))
    }

    /// By the tick: whoever ran when it came is given all of it.
    fn threads(&self) -> u64 {
        self.sum(&[0, 1, 2])
    }

    fn interrupts(&self) -> u64 {
        self.sum(&[5, 6])
    }

    /// Waiting for a device or not.
    fn idle(&self) -> u64 {
        self.sum(&[3, 4])
    }

    fn steal(&self) -> u64 {
        self.fields[7]
    }

    fn busy(&self) -> u64 {
        self.threads().saturating_add(self.interrupts())
    }
}

impl SystemCounters {
    /// Reads the counters; all 0 and without CPUs where they can't be read.
    #[must_use]
    pub fn read(tree: &Tree) -> SystemCounters {
        let mut counters = SystemCounters::default();
        counters.read_again(tree);
        counters
    }

    /// Reads the counters into the same memory.
    pub fn read_again(&mut self, tree: &Tree) {
        self.text.clear();
        self.cpus.clear();
        (self.context_switches, self.interrupts) = (0, 0);
        let read = tree.open("proc/stat").and_then(|mut file| file.read_to_string(&mut self.text));
        if read.is_err() {
            self.text.clear();
        }
        for line in self.text.lines() {
            let Some((name, rest)) = line.split_once(' ') else { continue };
            // The line of interrupts goes on with one number each: only the first is the sum.
            let first = || rest.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
            match name {
                "ctxt" => self.context_switches = first(),
                "intr" => self.interrupts = first(),
                _ => self.cpus.extend(ticks(name, rest)),
            }
        }
    }

    /// What passed since an earlier reading that was `span_ns` ago. A CPU that was not there then is
    /// left out.
    #[must_use]
    pub fn span_since(&self, earlier: &SystemCounters, span_ns: u64) -> SystemSpan {
        let tick_ns = 1_000_000_000 / ticks_per_second();
        let since = |now: &Ticks| {
            let then = earlier.cpus.iter().find(|then| then.cpu == now.cpu)?;
            let class_ns = |n: usize| now.fields[n].saturating_sub(then.fields[n]) * tick_ns;
            Some(CpuSpan {
                cpu: now.cpu,
                busy_ns: now.busy().saturating_sub(then.busy()) * tick_ns,
                steal_ns: now.steal().saturating_sub(then.steal()) * tick_ns,
                times_ns: Some([0, 1, 2, 4, 5, 6, 3].map(class_ns)),
            })
        };
        SystemSpan {
            span_ns,
            context_switches: self.context_switches.saturating_sub(earlier.context_switches),
            interrupts: self.interrupts.saturating_sub(earlier.interrupts),
            throttled: None,
            own_ns: None,
            energy_uj: None,
            cpus: self.cpus.iter().filter_map(since).collect(),
            lines: Vec::new(),
        }
    }

    /// How long each CPU ran threads since an earlier reading that was `span_ns` ago.
    ///
    /// A thread that wakes in step with the tick may be given every tick or none, so the time is at
    /// most what the CPU was not idle: that is measured, not sampled, by kernels that stop the tick.
    #[must_use]
    pub fn threads_since(&self, earlier: &SystemCounters, span_ns: u64) -> Vec<BusyCpu> {
        let tick_ns = 1_000_000_000 / ticks_per_second();
        let since = |now: &Ticks| {
            let then = earlier.cpus.iter().find(|then| then.cpu == now.cpu)?;
            let grown = |of: fn(&Ticks) -> u64| of(now).saturating_sub(of(then)) * tick_ns;
            let elsewhere_ns = grown(Ticks::idle) + grown(Ticks::interrupts) + grown(Ticks::steal);
            let threads_ns = grown(Ticks::threads).min(span_ns.saturating_sub(elsewhere_ns));
            Some(BusyCpu { cpu: now.cpu, threads_ns })
        };
        self.cpus.iter().filter_map(since).collect()
    }
}

/// `cpu0 user nice system idle iowait irq softirq steal guest guest_nice` (`proc_stat(5)`). Guest time
/// is in user time already; the line without a number is the sum of all.
fn ticks(name: &str, rest: &str) -> Option<Ticks> {
    let cpu = name.strip_prefix("cpu")?.parse().ok()?;
    let mut fields = [0u64; 8];
    for (field, word) in fields.iter_mut().zip(rest.split_whitespace()) {
        *field = word.parse().ok()?;
    }
    Some(Ticks { cpu, fields })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn a_span_is_the_difference_of_two_readings() {
        let fake = FakeTree::new();
        fake.file(
            "proc/stat",
            "cpu  30 1 10 900 2 1 1 5 0 0\ncpu0 10 0 5 400 1 0 0 2 0 0\ncpu2 20 1 5 500 1 1 1 3 0 0\n\
             intr 1000 5 6 7 0 0\nctxt 5000\nbtime 1700000000\nsoftirq 4 1 1 1 1\n",
        );
        let before = SystemCounters::read(&fake.tree);
        fake.file(
            "proc/stat",
            "cpu  0\ncpu0 11 2 8 470 9 4 5 9 1 0\ncpu2 20 1 5 600 1 1 1 3 0 0\ncpu3 7 0 0 0 0 0 0 0 0 0\n\
             intr 1400 5 6 7 0 0\nctxt 5600\n",
        );
        let mut after = before.clone();
        after.read_again(&fake.tree);
        let span = after.span_since(&before, 1_000_000_000);
        let tick_ns = 1_000_000_000 / ticks_per_second();
        assert_eq!(span.span_ns, 1_000_000_000);
        assert_eq!((span.context_switches, span.interrupts, span.throttled), (600, 400, None));
        assert_eq!(
            span.cpus,
            [
                CpuSpan {
                    cpu: 0,
                    busy_ns: 15 * tick_ns,
                    steal_ns: 7 * tick_ns,
                    // User, nice, system, waiting, interrupts, soft interrupts, idle.
                    times_ns: Some([1, 2, 3, 8, 4, 5, 70].map(|ticks| ticks * tick_ns)),
                },
                CpuSpan {
                    cpu: 2,
                    times_ns: Some([0, 0, 0, 0, 0, 0, 100 * tick_ns]),
                    ..CpuSpan::default()
                },
            ]
        );
    }

    #[test]
    fn a_thread_in_step_with_the_tick_is_not_taken_for_a_busy_cpu() {
        let tick_ns = 1_000_000_000 / ticks_per_second();
        let fake = FakeTree::new();
        fake.file("proc/stat", "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n");
        let before = SystemCounters::read(&fake.tree);
        // 100 ticks: CPU 0 was idle in 97 of them, CPU 1 in none.
        fake.file("proc/stat", "cpu0 0 0 60 95 2 0 1 0\ncpu1 50 30 11 0 0 2 3 4\n");
        let busy = SystemCounters::read(&fake.tree).threads_since(&before, 100 * tick_ns);
        let ticks: Vec<u64> = busy.iter().map(|cpu| cpu.threads_ns / tick_ns).collect();
        assert_eq!(ticks, [2, 91]);
    }

    #[test]
    fn counters_that_go_back_or_vanish_are_nothing() {
        let fake = FakeTree::new();
        fake.file("proc/stat", "cpu0 9 9 9 9 9 9 9 9\nintr 5\nctxt 5\n");
        let before = SystemCounters::read(&fake.tree);
        fake.file("proc/stat", "cpu0 1 1 1 1\nintr x\n");
        let span = SystemCounters::read(&fake.tree).span_since(&before, 1);
        assert_eq!((span.context_switches, span.interrupts), (0, 0));
        assert_eq!(span.cpus, [CpuSpan { times_ns: Some([0; 7]), ..CpuSpan::default() }]);
        let nothing = SystemCounters::read(&FakeTree::new().tree);
        assert_eq!(nothing.span_since(&before, 1).cpus, []);
    }

    #[test]
    fn this_machine_counts() {
        let tree = Tree::default();
        let before = SystemCounters::read(&tree);
        std::thread::sleep(std::time::Duration::from_millis(5));
        let span = SystemCounters::read(&tree).span_since(&before, 5_000_000);
        assert!(span.context_switches > 0);
        assert!(!span.cpus.is_empty());
    }
}
