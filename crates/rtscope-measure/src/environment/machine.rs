//! The machine around the CPUs: its model and its memory.

use procfs_core::{FromRead, Meminfo};
use rtscope_model::environment::Memory;
use rtscope_sys::tree::Tree;

use super::text::bracketed;

/// What makers write into DMI when they write nothing.
const BLANK: [&str; 5] =
    ["", "Default string", "System manufacturer", "System Product Name", "To Be Filled By O.E.M."];

/// The name of the machine: of a board from its device tree, of a PC from DMI.
pub(super) fn model(tree: &Tree) -> Option<String> {
    let board = tree.read("proc/device-tree/model").ok();
    let board = board.map(|text| text.trim_end_matches('\0').to_owned());
    board.filter(|name| !name.is_empty()).or_else(|| {
        let names = ["sys_vendor", "product_name"].map(|name| dmi(tree, name));
        let known: Vec<String> =
            names.into_iter().flatten().filter(|name| !BLANK.contains(&name.as_str())).collect();
        (!known.is_empty()).then(|| known.join(" "))
    })
}

/// What a board's device tree says that it is compatible with; nothing on a PC.
pub(super) fn compatible(tree: &Tree) -> Vec<String> {
    let names = tree.read("proc/device-tree/compatible").unwrap_or_default();
    names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// A name in DMI, which firmware of PCs and servers fills.
pub(super) fn dmi(tree: &Tree, name: &str) -> Option<String> {
    tree.read(format!("sys/class/dmi/id/{name}")).ok()
}

pub(super) fn memory(tree: &Tree) -> Memory {
    let text = tree.read("proc/meminfo").unwrap_or_default();
    let memory = Meminfo::from_read(text.as_bytes()).ok();
    let huge = tree.read("sys/kernel/mm/transparent_hugepage/enabled").ok();
    Memory {
        total_kib: memory.as_ref().map(|memory| memory.mem_total / 1024),
        available_kib: memory.as_ref().and_then(|memory| memory.mem_available).map(|n| n / 1024),
        swap_kib: memory.as_ref().map(|memory| memory.swap_total / 1024),
        transparent_hugepage: huge.and_then(|text| bracketed(&text).map(str::to_owned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn boards_and_pcs_have_names() {
        let fake = FakeTree::new();
        assert_eq!(model(&fake.tree), None);
        fake.file("sys/class/dmi/id/sys_vendor", "Default string\n");
        assert_eq!(model(&fake.tree), None);
        fake.file("sys/class/dmi/id/sys_vendor", "Dell Inc.\n");
        fake.file("sys/class/dmi/id/product_name", "OptiPlex 3060\n");
        assert_eq!(model(&fake.tree).as_deref(), Some("Dell Inc. OptiPlex 3060"));
        fake.file("proc/device-tree/model", "Raspberry Pi 4 Model B Rev 1.4\0");
        assert_eq!(model(&fake.tree).as_deref(), Some("Raspberry Pi 4 Model B Rev 1.4"));
        assert_eq!(compatible(&fake.tree), [""; 0]);
        fake.file("proc/device-tree/compatible", "raspberrypi,4-model-b\0brcm,bcm2711\0");
        assert_eq!(compatible(&fake.tree), ["raspberrypi,4-model-b", "brcm,bcm2711"]);
    }

    #[test]
    fn memory_is_in_kib() {
        let fake = FakeTree::new();
        fake.file("proc/meminfo", include_str!("fixtures/meminfo-raspberry-pi-4"));
        fake.file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        let found = memory(&fake.tree);
        assert_eq!(found.total_kib, Some(3_884_364));
        assert_eq!(found.available_kib, Some(3_402_120));
        assert_eq!(found.swap_kib, Some(102_396));
        assert_eq!(found.transparent_hugepage.as_deref(), Some("madvise"));
    }
}
