//! `cpu`: computes, without system calls.
//!
//! Exercises the cores, their branch predictors, and the scheduler, which has a runnable thread on
//! every CPU. It can't show anything of interrupts, locks of the kernel, or memory: the numbers fit
//! into a cache.
//!
//! `kind=branch` sums those of 32,768 random integers from 0 to 255 that are at least 128:
//! unsorted, half of the branches are mispredicted; sorted, almost none. `kind=spin` counts as many
//! steps. A unit of work is one pass over all numbers.
//!
//! With `percent` below 100 each worker computes in periods of 10 ms until its thread has used that
//! part of the period in CPU time, then sleeps to the period's end. What one period uses too much,
//! the next has less.

use std::hint::black_box;

use rtscope_sys::{
    clock::{Clock, SystemClock},
    thread,
};

use super::{
    LoadDescriptor, LoadError, any_options,
    board::Counter,
    leaves_nothing, needs_nothing,
    options::{LoadOption, ValueKind},
    worker::{Job, Processes},
};

const OPTIONS: &[LoadOption] = &[
    LoadOption {
        name: "workers",
        kind: ValueKind::Workers,
        default: "cpus",
        about: "processes, each on one of the load's CPUs in turn",
    },
    LoadOption {
        name: "percent",
        kind: ValueKind::Number { min: 1, max: 100 },
        default: "100",
        about: "part of a CPU that each worker uses",
    },
    LoadOption {
        name: "kind",
        kind: ValueKind::Word(&["branch", "spin"]),
        default: "branch",
        about: "branch: sum random integers that are at least 128; spin: count",
    },
    LoadOption {
        name: "sorted",
        kind: ValueKind::Flag,
        default: "false",
        about: "sort the integers first, so that branches are predicted well",
    },
];

pub(super) const DESCRIPTOR: LoadDescriptor = LoadDescriptor {
    name: "cpu",
    about: "computes: a branch-heavy loop over random integers, or plain counting",
    unit: |_| "loops",
    options: OPTIONS,
    check: any_options,
    is_here: needs_nothing,
    run,
    clean: leaves_nothing,
};

/// Random integers.
const NUMBERS: usize = 32_768;

/// Steps between two looks at the CPU time that was used: some microseconds.
const CHUNK: usize = 2_048;

const PERIOD_NS: u64 = 10_000_000;

fn run(job: &Job) -> Result<(), LoadError> {
    let options = &job.options;
    let workers = options.workers(&job.placement.cpus);
    let percent = options.number("percent");
    let spin = options.word("kind") == "spin";
    let numbers = numbers(options.flag("sorted"));
    let mut crew = Processes::new(job)?;
    for worker in 0..workers {
        crew.add(&job.pinned(worker), |counter| match (percent, spin) {
            (100, true) => without_end(&numbers, spun, counter),
            (100, false) => without_end(&numbers, summed, counter),
            (_, true) => by_percent(percent, &numbers, spun, counter),
            (_, false) => by_percent(percent, &numbers, summed, counter),
        })?;
    }
    crew.work()
}

/// Random integers from 0 to 255: the same in every run, by a linear congruential generator with
/// Knuth's constants (MMIX), whose high bits are good enough for branches.
pub(crate) fn numbers(sorted: bool) -> Vec<u32> {
    let mut state: u64 = 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u32
    };
    let mut numbers: Vec<u32> = std::iter::repeat_with(&mut next).take(NUMBERS).collect();
    if sorted {
        numbers.sort_unstable();
    }
    numbers
}

/// The sum of the numbers that are at least 128.
#[inline(never)]
pub(crate) fn summed(numbers: &[u32]) -> u64 {
    // Two branches a number, also without optimisation: is there one, and is it large.
    let (mut sum, mut left) = (0_u64, numbers);
    while let [number, rest @ ..] = left {
        left = rest;
        if *number >= 128 {
            // Keeps the branch a branch: what is opaque to the compiler can't be made
            // unconditional.
            sum = black_box(sum.wrapping_add(u64::from(*number)));
        }
    }
    sum
}

/// As many steps as there are numbers.
#[inline(never)]
fn spun(numbers: &[u32]) -> u64 {
    (0..numbers.len() as u64).fold(0, |step, _| black_box(step + 1))
}

fn without_end(
    numbers: &[u32],
    compute: impl Fn(&[u32]) -> u64,
    counter: Counter<'_>,
) -> Result<(), LoadError> {
    loop {
        black_box(compute(numbers));
        counter.add(1);
    }
}

fn by_percent(
    percent: u64,
    numbers: &[u32],
    compute: impl Fn(&[u32]) -> u64,
    counter: Counter<'_>,
) -> Result<(), LoadError> {
    let clock = SystemClock::MONOTONIC;
    let mut duty = Duty::new(percent, clock.now_ns(), thread::usage().cpu_ns);
    loop {
        for chunk in numbers.chunks(CHUNK) {
            black_box(compute(chunk));
            if let Some(until_ns) = duty.rest_until(clock.now_ns(), thread::usage().cpu_ns) {
                clock.sleep_until_ns(until_ns);
                duty.begin(clock.now_ns(), thread::usage().cpu_ns);
            }
        }
        counter.add(1);
    }
}

/// When to rest, so that a part of the CPU is used.
struct Duty {
    /// CPU time to use in a period.
    share_ns: u64,
    period_end_ns: u64,
    /// CPU time at which the period's share is used up.
    cpu_until_ns: u64,
    /// CPU time by which the last share was exceeded.
    too_much_ns: u64,
}

impl Duty {
    fn new(percent: u64, now_ns: u64, cpu_ns: u64) -> Duty {
        let share_ns = PERIOD_NS * percent / 100;
        let mut duty = Duty { share_ns, period_end_ns: 0, cpu_until_ns: 0, too_much_ns: 0 };
        duty.begin(now_ns, cpu_ns);
        duty
    }

    /// The instant until which to rest, once the share of the period is used up: the period's end,
    /// or later when whole shares of later periods are used up, too. A period that ends before
    /// that, because others had the CPU, is followed by the next at once.
    fn rest_until(&mut self, now_ns: u64, cpu_ns: u64) -> Option<u64> {
        if cpu_ns >= self.cpu_until_ns {
            let too_much_ns = cpu_ns - self.cpu_until_ns;
            self.too_much_ns = too_much_ns % self.share_ns;
            return Some(self.period_end_ns + too_much_ns / self.share_ns * PERIOD_NS);
        }
        if now_ns >= self.period_end_ns {
            self.begin(now_ns, cpu_ns);
        }
        None
    }

    /// The next period begins.
    fn begin(&mut self, now_ns: u64, cpu_ns: u64) {
        self.period_end_ns = now_ns + PERIOD_NS;
        self.cpu_until_ns = cpu_ns + self.share_ns - self.too_much_ns;
        self.too_much_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_numbers_are_large_and_in_no_order() {
        let numbers = numbers(false);
        let large = numbers.iter().filter(|n| **n >= 128).count();
        let changes = numbers.windows(2).filter(|w| (w[0] >= 128) != (w[1] >= 128)).count();
        assert!(numbers.iter().all(|n| *n < 256));
        // Binomial: 16,384 with a standard deviation of 90.5.
        assert!((16_384 - 600..16_384 + 600).contains(&large), "{large}");
        assert!((16_384 - 600..16_384 + 600).contains(&changes), "{changes}");
    }

    #[test]
    fn sorting_changes_the_order_only() {
        let sorted = numbers(true);
        assert!(sorted.is_sorted());
        assert_eq!(summed(&sorted), summed(&numbers(false)));
        assert_eq!(summed(&[127, 128, 255]), 383);
        assert_eq!(spun(&sorted), NUMBERS as u64);
    }

    /// Steps of 0.3 ms on simulated clocks, with the CPU only some of the time.
    fn used_in_a_second(percent: u64, available: u64) -> u64 {
        const STEP_NS: u64 = 300_000;
        let (mut now_ns, mut cpu_ns) = (5, 7);
        let mut duty = Duty::new(percent, now_ns, cpu_ns);
        while now_ns < 1_000_000_000 {
            now_ns += STEP_NS;
            cpu_ns += STEP_NS * available / 100;
            if let Some(until_ns) = duty.rest_until(now_ns, cpu_ns) {
                now_ns = now_ns.max(until_ns);
                duty.begin(now_ns, cpu_ns);
            }
        }
        cpu_ns
    }

    #[test]
    fn the_asked_part_of_the_cpu_is_used() {
        for percent in [1, 5, 20, 50, 90] {
            let used = used_in_a_second(percent, 100);
            let asked = percent * 10_000_000;
            assert!(used.abs_diff(asked) < 20_000_000, "{percent} %: {used} ns");
        }
        // Where only 30 % are to be had, 50 % are not made up for later.
        assert!(used_in_a_second(50, 30).abs_diff(300_000_000) < 10_000_000);
    }
}
