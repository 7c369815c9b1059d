//! What a CPU does to save power: frequency and idle states. Both delay a wake-up.

use rtscope_model::environment::IdleState;
use rtscope_sys::tree::Tree;

use super::text::numbered;

pub(super) fn governor(tree: &Tree, cpu: &str) -> Option<String> {
    tree.read(format!("{cpu}/cpufreq/scaling_governor")).ok()
}

/// Lowest and highest frequency that the governor may choose, else that the hardware has.
pub(super) fn frequency_khz(tree: &Tree, cpu: &str) -> Option<(u64, u64)> {
    let number = |name: &str| tree.read(format!("{cpu}/cpufreq/{name}")).ok()?.parse().ok();
    let limits = |set: &str, range: &str| number(set).or_else(|| number(range));
    Some((
        limits("scaling_min_freq", "cpuinfo_min_freq")?,
        limits("scaling_max_freq", "cpuinfo_max_freq")?,
    ))
}

/// The states that the CPU may enter, shallowest first. `/dev/cpu_dma_latency` may forbid more.
pub(super) fn idle_states(tree: &Tree, cpu: &str) -> Vec<IdleState> {
    let folder = format!("{cpu}/cpuidle");
    let state = |name: String| {
        let read = |file: &str| tree.read(format!("{folder}/{name}/{file}")).ok();
        // Any value but 0 is a reason why the state is not used.
        if read("disable").is_some_and(|disabled| disabled != "0") {
            return None;
        }
        Some(IdleState { name: read("name")?, latency_us: read("latency")?.parse().ok()? })
    };
    numbered(tree.list(&folder), "state").into_iter().filter_map(|(_, name)| state(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn idle_states_that_are_disabled_are_left_out() {
        let fake = FakeTree::new();
        let states = [
            ("0", "POLL", "0", "0"),
            ("1", "C1", "2", "0"),
            ("2", "C6", "133", "1"),
            ("10", "C10", "890", "0"),
        ];
        for (number, name, latency, disable) in states {
            let folder = format!("cpu/cpuidle/state{number}");
            fake.file(&format!("{folder}/name"), name);
            fake.file(&format!("{folder}/latency"), latency);
            fake.file(&format!("{folder}/disable"), disable);
        }
        let found = idle_states(&fake.tree, "cpu");
        let found: Vec<(&str, u64)> =
            found.iter().map(|s| (s.name.as_str(), s.latency_us)).collect();
        assert_eq!(found, [("POLL", 0), ("C1", 2), ("C10", 890)]);
    }

    #[test]
    fn the_limits_that_are_set_come_before_those_of_the_hardware() {
        let fake = FakeTree::new();
        fake.file("cpu/cpufreq/scaling_governor", "schedutil\n");
        fake.file("cpu/cpufreq/cpuinfo_min_freq", "600000\n");
        fake.file("cpu/cpufreq/cpuinfo_max_freq", "1800000\n");
        fake.file("cpu/cpufreq/scaling_max_freq", "1500000\n");
        assert_eq!(frequency_khz(&fake.tree, "cpu"), Some((600_000, 1_500_000)));
        assert_eq!(governor(&fake.tree, "cpu").as_deref(), Some("schedutil"));
        assert_eq!(frequency_khz(&fake.tree, "cpu1"), None);
    }
}
