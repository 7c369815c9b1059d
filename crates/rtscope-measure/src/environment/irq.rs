//! Interrupts: what they are, how often they came, which CPUs they may disturb.

use rtscope_model::{
    cpu::CpuSet,
    environment::Irq,
    machine_use::{InterruptLine, keep_busiest},
    printable::printable,
};
use rtscope_sys::tree::Tree;

/// The interrupts that have a number and a list of CPUs. Those of the architecture (timer, resched)
/// have letters instead and can't be steered.
pub(crate) fn collect(tree: &Tree) -> Vec<Irq> {
    let text = tree.read("proc/interrupts").unwrap_or_default();
    let mut lines = text.lines();
    // The heading names one column for each online CPU.
    let columns = lines.next().unwrap_or_default().split_whitespace().count();
    lines.filter_map(|line| one(tree, line, columns)).collect()
}

fn one(tree: &Tree, line: &str, columns: usize) -> Option<Irq> {
    let (number, rest) = line.split_once(':')?;
    let irq: u32 = number.trim().parse().ok()?;
    let cpus = tree.read(format!("proc/irq/{irq}/smp_affinity_list")).ok()?;
    let cpus: CpuSet = cpus.parse().ok()?;
    let counts = rest.split_whitespace().take(columns);
    let count = counts.filter_map(|word| word.parse::<u64>().ok()).sum();
    Some(Irq { irq, name: devices(rest), cpus, count })
}

/// One reading of `/proc/interrupts`: every line that counts by CPU, those with letters too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterruptCounters {
    cpus: Vec<u32>,
    lines: Vec<Counted>,
}

/// A line since boot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    line: String,
    name: String,
    /// In the order of the CPUs.
    counts: Vec<u64>,
}

impl InterruptCounters {
    /// Reads the counters; none where they can't be read.
    pub(crate) fn read(tree: &Tree) -> InterruptCounters {
        let text = tree.read("proc/interrupts").unwrap_or_default();
        let mut lines = text.lines();
        let heading = lines.next().unwrap_or_default().split_whitespace();
        let cpus: Vec<u32> =
            heading.filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect();
        let lines = lines.filter_map(|line| Counted::parse(line, cpus.len())).collect();
        InterruptCounters { cpus, lines }
    }

    /// How often each line came since an earlier reading, the busiest first. A CPU that was not there then
    /// is left out.
    pub(crate) fn since(&self, earlier: &InterruptCounters) -> Vec<InterruptLine> {
        let columns: Vec<(usize, usize, u32)> = (0usize..)
            .zip(&self.cpus)
            .filter_map(|(now, cpu)| {
                let then = earlier.cpus.iter().position(|known| known == cpu)?;
                Some((now, then, *cpu))
            })
            .collect();
        let mut lines: Vec<InterruptLine> = self
            .lines
            .iter()
            .map(|line| {
                // The kernel shows a line from its first interrupt on: a new one had none before.
                let before = earlier.lines.iter().find(|known| known.line == line.line);
                let grown = |(now, then, cpu): &(usize, usize, u32)| {
                    let old = before.map_or(0, |before| before.counts[*then]);
                    let count = line.counts[*now].saturating_sub(old);
                    (count > 0).then_some((*cpu, count))
                };
                let counts = columns.iter().filter_map(grown).collect();
                InterruptLine { line: line.line.clone(), name: line.name.clone(), counts }
            })
            .collect();
        keep_busiest(&mut lines);
        lines
    }
}

impl Counted {
    /// A line with a count for each CPU. `ERR` and `MIS` have one for all.
    fn parse(text: &str, columns: usize) -> Option<Counted> {
        let (line, rest) = text.split_once(':')?;
        let line = line.trim();
        let counts = rest.split_whitespace().take(columns).map(|word| word.parse().ok());
        let counts: Vec<u64> = counts.collect::<Option<_>>()?;
        let is_whole = counts.len() == columns && !matches!(line, "ERR" | "MIS");
        is_whole.then(|| Counted {
            line: printable(line).into_owned(),
            name: printable(&devices(rest)).into_owned(),
            counts,
        })
    }
}

/// The devices stand last, after the two blanks that the kernel puts before them; between several
/// of them is a comma and one blank.
fn devices(rest: &str) -> String {
    rest.trim_end().rsplit("  ").next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn interrupts_are_counted_by_line_and_cpu() {
        let reading = |text: &str| {
            let fake = FakeTree::new();
            fake.file("proc/interrupts", text);
            InterruptCounters::read(&fake.tree)
        };
        let before = reading(
            "      CPU0  CPU2\n  24:  10  20  PCI-MSI 0-edge      eth0\n LOC:  5  6   Local timer interrupts\n \
             RES:  7  7   Rescheduling interrupts\n ERR:  3\n",
        );
        let after = reading(
            "      CPU0  CPU1  CPU2\n   9:  0  0  2  IO-APIC    9-fasteoi   acpi\n  24:  10  9  23  PCI-MSI 0-edge      \
             eth0\n LOC:  105  8  206   Local timer interrupts\n RES:  7  1  7   Rescheduling interrupts\n ERR:  9\n",
        );
        let line = |line: &str, name: &str, counts: &[(u32, u64)]| InterruptLine {
            line: line.to_owned(),
            name: name.to_owned(),
            counts: counts.to_vec(),
        };
        let expected = [
            line("LOC", "Local timer interrupts", &[(0, 100), (2, 200)]),
            line("24", "eth0", &[(2, 3)]),
            line("9", "acpi", &[(2, 2)]),
        ];
        assert_eq!(after.since(&before), expected);
        assert_eq!(reading("").since(&before), []);
    }

    #[test]
    fn a_pc_and_a_board_are_read() {
        for (fixture, expected) in [
            (
                include_str!("fixtures/interrupts-x86"),
                vec![
                    (9, "acpi", 5),
                    (16, "i801_smbus, uhci_hcd:usb3", 1007),
                    (128, "eth0-TxRx-0", 90_346),
                ],
            ),
            (
                include_str!("fixtures/interrupts-arm64"),
                vec![(11, "arch_timer", 400_010), (30, "fe00b880.mailbox", 3), (40, "eth0", 77)],
            ),
        ] {
            let fake = FakeTree::new();
            fake.file("proc/interrupts", fixture);
            for (irq, ..) in &expected {
                fake.file(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3\n");
            }
            let found = collect(&fake.tree);
            let found: Vec<(u32, &str, u64)> =
                found.iter().map(|irq| (irq.irq, irq.name.as_str(), irq.count)).collect();
            assert_eq!(found, expected);
        }
    }
}
