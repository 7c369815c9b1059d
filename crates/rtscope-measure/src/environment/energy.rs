//! Energy that the CPUs' packages used, by the counters of the power capping framework
//! (`Documentation/power/powercap/powercap.rst` of the kernel). Only root can read them since Linux 5.10.
//!
//! The counters of Intel's and AMD's processors (RAPL) advance about once a millisecond. What the rest of a machine
//! uses is not in them.

use rtscope_sys::tree::Tree;

const ZONES: &str = "sys/class/powercap";

/// One reading of the packages' counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnergyCounters(Vec<Package>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Package {
    zone: String,
    used_uj: u64,
    /// The counter goes on at 0 after this.
    last_uj: u64,
}

impl EnergyCounters {
    /// Reads the counters; none on a machine without them.
    #[must_use]
    pub fn read(tree: &Tree) -> EnergyCounters {
        EnergyCounters(
            tree.list(ZONES).into_iter().filter_map(|zone| package(tree, zone)).collect(),
        )
    }

    /// Energy in microjoules since an earlier reading; none where there is no counter. A counter that went round
    /// twice counts once.
    #[must_use]
    pub fn since_uj(&self, earlier: &EnergyCounters) -> Option<u64> {
        let since = |now: &Package| {
            let then = earlier.0.iter().find(|then| then.zone == now.zone)?;
            let round = now.last_uj.saturating_add(1);
            Some(match now.used_uj.checked_sub(then.used_uj) {
                Some(used_uj) => used_uj,
                None => now.used_uj.saturating_add(round.saturating_sub(then.used_uj)),
            })
        };
        let used: Vec<u64> = self.0.iter().filter_map(since).collect();
        (!used.is_empty()).then(|| used.iter().fold(0u64, |sum, uj| sum.saturating_add(*uj)))
    }
}

/// A zone that is a whole package. `intel-rapl-mmio` shows the same packages a second time, and the zones
/// `intel-rapl:0:0` are parts of one.
fn package(tree: &Tree, zone: String) -> Option<Package> {
    let number = zone.strip_prefix("intel-rapl:")?;
    if number.contains(':') {
        return None;
    }
    let file = |name: &str| tree.read(format!("{ZONES}/{zone}/{name}")).ok();
    let is_package = file("name")?.starts_with("package");
    let count = |name: &str| file(name)?.parse::<u64>().ok();
    let (used_uj, last_uj) = (count("energy_uj")?, count("max_energy_range_uj")?);
    is_package.then_some(Package { zone, used_uj, last_uj })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn packages_are_added_up_and_their_parts_and_copies_are_not() {
        let fake = FakeTree::new();
        let zone = |zone: &str, name: &str, used_uj: &str| {
            fake.file(&format!("{ZONES}/{zone}/name"), name);
            fake.file(&format!("{ZONES}/{zone}/energy_uj"), used_uj);
            fake.file(&format!("{ZONES}/{zone}/max_energy_range_uj"), "999\n");
        };
        assert_eq!(EnergyCounters::read(&fake.tree).since_uj(&EnergyCounters::default()), None);
        for (name, what) in [
            ("intel-rapl:0", "package-0\n"),
            ("intel-rapl:1", "package-1\n"),
            ("intel-rapl:0:0", "core\n"),
            ("intel-rapl:2", "psys\n"),
            ("intel-rapl-mmio:0", "package-0\n"),
        ] {
            zone(name, what, "900\n");
        }
        let before = EnergyCounters::read(&fake.tree);
        assert_eq!(before.since_uj(&before), Some(0));
        zone("intel-rapl:0", "package-0\n", "950\n");
        // Round once: 100 up to 999 and 0, then 30 more.
        zone("intel-rapl:1", "package-1\n", "30\n");
        zone("intel-rapl:2", "psys\n", "999\n");
        assert_eq!(EnergyCounters::read(&fake.tree).since_uj(&before), Some(50 + 100 + 30));
    }
}
