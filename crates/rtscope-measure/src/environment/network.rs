//! Network cards, and how they pace their interrupts.

use rtscope_model::environment::NetworkCard;
use rtscope_sys::{ethtool, tree::Tree};

/// The network devices that are hardware. The pacing is asked of the running kernel, so that a tree of files
/// has none.
pub(crate) fn collect(tree: &Tree, live: bool) -> Vec<NetworkCard> {
    const DEVICES: &str = "sys/class/net";
    let mut names = tree.list(DEVICES);
    names.sort_unstable();
    let cards = names.into_iter().filter(|name| tree.exists(format!("{DEVICES}/{name}/device")));
    let card = |name: String| {
        let driver = tree
            .place_of_name(format!("{DEVICES}/{name}/device/driver"))
            .and_then(std::fs::read_link);
        NetworkCard {
            driver: driver.ok().and_then(|to| Some(to.file_name()?.to_str()?.to_owned())),
            pacing: live.then(|| ethtool::coalescing(&name)).flatten(),
            name,
        }
    };
    cards.map(card).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn only_hardware_is_a_card() {
        let fake = FakeTree::new();
        fake.file("sys/class/net/eth0/device/vendor", "0x1af4\n");
        fake.file("sys/class/net/lo/mtu", "65536\n");
        let card = NetworkCard { name: "eth0".to_owned(), ..NetworkCard::default() };
        assert_eq!(collect(&fake.tree, false), [card]);
    }
}
