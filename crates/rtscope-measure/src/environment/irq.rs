//! Interrupts: what they are, how often they came, which CPUs they may disturb.

use rtscope_model::{cpu::CpuSet, environment::Irq};
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
