//! Interrupts by number, by the name in `/proc/interrupts`, or by their device.

use std::collections::BTreeSet;

use rtscope_model::text::Problem;
use rtscope_sys::tree::Tree;

use super::kernel_thread::fits;
use crate::environment::{irqs, numbered};

/// The numbers of the interrupts that a pattern names; all of them when there is none.
///
/// # Errors
///
/// No interrupt has such a number, name or device.
pub(super) fn named(tree: &Tree, pattern: Option<&str>) -> Result<BTreeSet<u32>, Problem> {
    let all = numbered(tree.list("proc/irq"), "").into_iter().map(|(irq, _)| irq);
    let Some(pattern) = pattern else { return Ok(all.collect()) };
    let all: Vec<u32> = all.collect();
    if let Ok(number) = pattern.parse::<u32>() {
        return match all.contains(&number) {
            true => Ok([number].into()),
            false => Err(Problem::new(format!(
                "irq-affinity: there is no interrupt {number}: see /proc/interrupts"
            ))),
        };
    }
    let listed = irqs(tree);
    let mut found = of_device(tree, pattern);
    let named = listed.iter().filter(|irq| names(&irq.name).any(|name| fits(pattern, name)));
    found.extend(named.map(|irq| irq.irq));
    found.retain(|irq| all.contains(irq));
    if !found.is_empty() {
        return Ok(found);
    }
    let known: Vec<&str> = listed.iter().flat_map(|irq| names(&irq.name)).collect();
    let text = format!(
        "irq-affinity: no interrupt or device is called {pattern:?}: see the last column of /proc/interrupts"
    );
    Err(Problem::new(text).suggest(pattern, known))
}

/// The devices that share an interrupt.
fn names(listed: &str) -> impl Iterator<Item = &str> {
    listed.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty())
}

/// The interrupts of a network card, disk or PCI device by its name in `/sys`. A virtio device has none of its own
/// there: `/proc/interrupts` names them after it.
fn of_device(tree: &Tree, name: &str) -> BTreeSet<u32> {
    if name.contains(['/', '*']) || name.starts_with('.') {
        return BTreeSet::new();
    }
    let folders = [
        format!("sys/class/net/{name}/device"),
        format!("sys/block/{name}/device"),
        format!("sys/block/{name}/device/device"),
        format!("sys/bus/pci/devices/{name}"),
    ];
    let mut found = BTreeSet::new();
    for folder in folders.iter().filter(|folder| tree.path(folder).exists()) {
        let several = numbered(tree.list(format!("{folder}/msi_irqs")), "");
        found.extend(several.into_iter().map(|(irq, _)| irq));
        let single = tree.read(format!("{folder}/irq")).ok().and_then(|text| text.parse().ok());
        found.extend(single.filter(|irq: &u32| *irq > 0));
        let Ok(device) = tree.path(folder).canonicalize() else { continue };
        let device = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let of_virtio = irqs(tree).into_iter().filter(|irq| {
            device.starts_with("virtio")
                && names(&irq.name).any(|name| fits(&format!("{device}-*"), name))
        });
        found.extend(of_virtio.map(|irq| irq.irq));
    }
    found
}
