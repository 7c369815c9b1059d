//! What the CPUs spent their time on, by class, and how often each interrupt line came.

use serde::{Deserialize, Serialize};

/// A class of CPU time, as `mpstat` splits it. Time in guests is in user time, as the kernel counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuClass {
    /// Programs.
    User,
    /// Programs with a positive nice value.
    Nice,
    /// The kernel, for programs and for itself.
    System,
    /// Idle, while a device had work for a program.
    Iowait,
    /// Handlers of interrupts.
    Irq,
    /// What handlers put off, for example the network's.
    Softirq,
    /// Taken by the hypervisor while the CPU wanted to run.
    Steal,
    /// Idle otherwise.
    Idle,
}

impl CpuClass {
    /// All classes, in the order in which they are shown.
    pub const ALL: [CpuClass; 8] = [
        CpuClass::User,
        CpuClass::Nice,
        CpuClass::System,
        CpuClass::Iowait,
        CpuClass::Irq,
        CpuClass::Softirq,
        CpuClass::Steal,
        CpuClass::Idle,
    ];

    /// Its name in JSON and in published figures.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CpuClass::User => "user",
            CpuClass::Nice => "nice",
            CpuClass::System => "system",
            CpuClass::Iowait => "iowait",
            CpuClass::Irq => "irq",
            CpuClass::Softirq => "softirq",
            CpuClass::Steal => "steal",
            CpuClass::Idle => "idle",
        }
    }
}

/// How many interrupt lines a span names; the others are added up.
const LINES_MAX: usize = 16;

/// The lines that are not named, together.
const OTHER: &str = "other";

/// How often an interrupt line came on each CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptLine {
    /// Its number, the kernel's letters (`LOC`), or `other`: all lines that are not named.
    pub line: String,
    /// Its devices, or what the kernel says of it.
    pub name: String,
    /// CPUs with their counts, ascending; those without an interrupt are left out.
    pub counts: Vec<(u32, u64)>,
}

impl InterruptLine {
    /// On all CPUs.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Whether it stands for all lines that are not named.
    #[must_use]
    pub fn is_other(&self) -> bool {
        self.line == OTHER
    }

    fn absorb(&mut self, counts: &[(u32, u64)]) {
        for &(cpu, count) in counts {
            match self.counts.binary_search_by_key(&cpu, |(known, _)| *known) {
                Ok(at) => self.counts[at].1 = self.counts[at].1.saturating_add(count),
                Err(at) => self.counts.insert(at, (cpu, count)),
            }
        }
    }
}

/// Adds lines to others: counts of the same line are added up.
pub fn absorb_lines(lines: &mut Vec<InterruptLine>, next: &[InterruptLine]) {
    for one in next {
        match lines.iter_mut().find(|known| known.line == one.line) {
            Some(known) => known.absorb(&one.counts),
            None => lines.push(one.clone()),
        }
    }
    keep_busiest(lines);
}

/// Sorts the busiest lines to the front and adds up those beyond [`LINES_MAX`], so that a machine with
/// hundreds of lines needs little memory and no count is lost.
pub fn keep_busiest(lines: &mut Vec<InterruptLine>) {
    lines.retain(|line| line.total() > 0);
    lines.sort_by_cached_key(|line| {
        (line.is_other(), std::cmp::Reverse(line.total()), line.line.clone())
    });
    let mut other =
        InterruptLine { line: OTHER.to_owned(), name: String::new(), counts: Vec::new() };
    let named = lines.iter().take_while(|line| !line.is_other()).count().min(LINES_MAX);
    for line in lines.drain(named..) {
        other.absorb(&line.counts);
    }
    if !other.counts.is_empty() {
        lines.push(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u32, counts: &[(u32, u64)]) -> InterruptLine {
        let name = format!("device {number}");
        InterruptLine { line: number.to_string(), name, counts: counts.to_vec() }
    }

    #[test]
    fn lines_without_a_place_are_added_up_by_cpu() {
        let mut lines: Vec<InterruptLine> =
            (0..20).map(|n| line(n, &[(0, u64::from(n)), (1, 1)])).collect();
        keep_busiest(&mut lines);
        assert_eq!(lines.len(), LINES_MAX + 1);
        assert_eq!((lines[0].line.as_str(), lines[15].line.as_str()), ("19", "4"));
        // 0 + 1 + 2 + 3 on CPU 0, four times 1 on CPU 1.
        assert!(lines[16].is_other());
        assert_eq!(lines[16].counts, [(0, 6), (1, 4)]);
    }

    #[test]
    fn joined_spans_keep_every_interrupt() {
        let mut lines = Vec::new();
        for n in 0..100u32 {
            absorb_lines(&mut lines, &[line(n % 30, &[(n % 4, 5)]), line(7, &[(2, 1)])]);
            assert!(lines.len() <= LINES_MAX + 1);
        }
        let total: u64 = lines.iter().map(InterruptLine::total).sum();
        assert_eq!(total, 100 * 6);
    }
}
