//! System management interrupts: how often the firmware took a CPU away from the kernel.
//!
//! Read from the model-specific register 0x34 (`MSR_SMI_COUNT`, Intel Software Developer's Manual,
//! volume 4) through `/dev/cpu/N/msr`, which needs root and the `msr` module. Only Intel CPUs count.
//! A virtual machine shows no such register, or one that stays 0, and is not asked. The count says that
//! the CPU was taken, not for how long.

use std::{io::Read, os::unix::fs::FileExt};

use rtscope_sys::tree::Tree;

use super::text::value;

/// Number of the register, which is the offset in the file.
const SMI_COUNT: u64 = 0x34;

/// Enough of `/proc/cpuinfo` for one CPU; the kernel makes the rest only for who reads it.
const CPUINFO_BYTES: u64 = 8 * 1024;

/// Interrupts of a CPU since its reset; none where it does not show them. The kernel reads the
/// register on the CPU itself: not for use while that CPU is being measured.
#[must_use]
pub fn count(tree: &Tree, cpu: u32) -> Option<u64> {
    let register = tree.open(format!("dev/cpu/{cpu}/msr")).ok()?;
    if !shows_count(tree) {
        return None;
    }
    let mut bytes = [0; 8];
    register.read_exact_at(&mut bytes, SMI_COUNT).ok()?;
    // The count is the lower half.
    Some(u64::from_ne_bytes(bytes) & 0xffff_ffff)
}

/// Interrupts of some CPUs since a first count.
#[derive(Debug)]
pub struct SmiCounter {
    before: Vec<u64>,
}

impl SmiCounter {
    /// Begins to count. A CPU may stand for several threads.
    #[must_use]
    pub fn start(tree: &Tree, cpus: impl Iterator<Item = u32>) -> SmiCounter {
        SmiCounter { before: cpus.map(|cpu| count(tree, cpu).unwrap_or(0)).collect() }
    }

    /// How many came since the first count, on CPUs in the same order.
    #[must_use]
    pub fn since(&self, tree: &Tree, cpus: impl Iterator<Item = u32>) -> Vec<u64> {
        let now = SmiCounter::start(tree, cpus).before;
        let both = now.iter().zip(&self.before);
        both.map(|(now, before)| now.wrapping_sub(*before) & 0xffff_ffff).collect()
    }
}

fn shows_count(tree: &Tree) -> bool {
    let mut bytes = Vec::new();
    let read =
        tree.open("proc/cpuinfo").and_then(|file| file.take(CPUINFO_BYTES).read_to_end(&mut bytes));
    let cpuinfo = String::from_utf8_lossy(&bytes);
    let guest = value(&cpuinfo, "flags")
        .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    read.is_ok() && !guest && value(&cpuinfo, "vendor_id") == Some("GenuineIntel")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    fn machine(vendor: &str, flags: &str) -> FakeTree {
        let fake = FakeTree::new();
        fake.file(
            "proc/cpuinfo",
            &format!("processor : 0\nvendor_id : {vendor}\nflags : {flags}\n"),
        );
        let mut register = vec![0xee; 0x34];
        register.extend((0x5_0000_0007_u64).to_ne_bytes());
        fake.bytes("dev/cpu/1/msr", &register);
        fake.bytes("dev/cpu/2/msr", &[0; 8]);
        fake
    }

    #[test]
    fn the_count_is_the_lower_half_of_the_register() {
        let fake = machine("GenuineIntel", "fpu tsc");
        assert_eq!([0, 1, 2].map(|cpu| count(&fake.tree, cpu)), [None, Some(7), None]);
    }

    #[test]
    fn a_counter_that_has_wrapped_counts_on() {
        let (fake, cpus) = (machine("GenuineIntel", "fpu tsc"), || [1, 2].into_iter());
        let counter = SmiCounter { before: vec![0xffff_fffe, 0] };
        assert_eq!(counter.since(&fake.tree, cpus()), [9, 0]);
        assert_eq!(SmiCounter::start(&fake.tree, cpus()).since(&fake.tree, cpus()), [0, 0]);
    }

    #[test]
    fn other_makers_and_guests_are_not_asked() {
        for (vendor, flags) in [("AuthenticAMD", "fpu"), ("GenuineIntel", "fpu hypervisor")] {
            let fake = machine(vendor, flags);
            assert_eq!(count(&fake.tree, 1), None);
        }
    }
}
