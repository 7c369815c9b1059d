//! The running kernel and how far it lets itself be preempted.

use std::collections::BTreeMap;

use rtscope_model::{
    cmdline,
    environment::{Kernel, Preemption},
};
use rtscope_sys::{system, tree::Tree};

use super::{config, text::between};

pub(super) fn collect(tree: &Tree, live: bool) -> Kernel {
    with_config(tree, live, |release| config::collect(tree, release))
}

/// Like [`collect`], but takes the configuration from `before`: it can't change, and reading it is most of the work.
pub(super) fn collect_again(tree: &Tree, live: bool, before: &Kernel) -> Kernel {
    with_config(tree, live, |_| (before.config.clone(), before.config_source.clone()))
}

/// `config` gives the configuration of a release, and its source.
fn with_config(
    tree: &Tree,
    live: bool,
    config: impl FnOnce(&str) -> (BTreeMap<String, String>, Option<String>),
) -> Kernel {
    let release = tree.read("proc/sys/kernel/osrelease").unwrap_or_default();
    let version = tree.read("proc/sys/kernel/version").unwrap_or_default();
    let line = tree.read("proc/cmdline").unwrap_or_default();
    // The file is there since 6.1.
    let machine = tree.read("proc/sys/kernel/arch").ok();
    let machine = machine.or_else(|| live.then(system::machine)).unwrap_or_default();
    let (config, config_source) = config(&release);
    let preemption = Signs {
        version: &version,
        cmdline: &line,
        config: &config,
        marked: tree.read("sys/kernel/realtime").is_ok_and(|text| text == "1"),
        mode: tree.read("sys/kernel/debug/sched/preempt").ok(),
    }
    .preemption();
    Kernel { release, version, machine, preemption, cmdline: line, config, config_source }
}

/// Where a kernel shows its preemption model. The release is not among them: `-rt` in it is only a
/// name that somebody gave.
struct Signs<'a> {
    /// `uname -v`.
    version: &'a str,
    /// `/proc/cmdline`.
    cmdline: &'a str,
    /// Options without `CONFIG_`.
    config: &'a BTreeMap<String, String>,
    /// `/sys/kernel/realtime` is 1: out-of-tree PREEMPT_RT kernels only, mainline has no such file.
    marked: bool,
    /// The scheduler's debug file: `none voluntary (full) lazy`. Root only.
    mode: Option<String>,
}

impl Signs<'_> {
    fn preemption(&self) -> Preemption {
        let yes = |option: &str| self.config.get(option).is_some_and(|value| value == "y");
        let words: Vec<&str> = self.version.split_whitespace().collect();
        // Patches before 5.x wrote two words.
        let real_time =
            words.contains(&"PREEMPT_RT") || words.windows(2).any(|w| w == ["PREEMPT", "RT"]);
        if real_time || self.marked || yes("PREEMPT_RT") || yes("PREEMPT_RT_FULL") {
            return Preemption::RealTime;
        }
        let built = [
            ("PREEMPT_LAZY", Preemption::Lazy),
            ("PREEMPT", Preemption::Full),
            ("PREEMPT_VOLUNTARY", Preemption::Voluntary),
            ("PREEMPT_NONE", Preemption::None),
        ];
        let built = built.into_iter().find(|(option, _)| yes(option)).map(|(_, model)| model);
        if words.contains(&"PREEMPT_DYNAMIC") || yes("PREEMPT_DYNAMIC") {
            let now = self.mode.as_deref().and_then(|text| between(text, '(', ')')).and_then(named);
            let asked = || cmdline::value(self.cmdline, "preempt").and_then(named);
            return now.or_else(asked).or(built).unwrap_or(Preemption::Dynamic);
        }
        // Without the configuration, NONE and VOLUNTARY can't be told apart: neither is in the version.
        let shown = words.contains(&"PREEMPT").then_some(Preemption::Full);
        built.or(shown).unwrap_or(Preemption::Unknown)
    }
}

fn named(mode: &str) -> Option<Preemption> {
    Some(match mode {
        "none" => Preemption::None,
        "voluntary" => Preemption::Voluntary,
        "full" => Preemption::Full,
        "lazy" => Preemption::Lazy,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    fn told(version: &str, cmdline: &str, options: &[&str], mode: Option<&str>) -> Preemption {
        let config = options.iter().map(|name| ((*name).to_owned(), "y".to_owned())).collect();
        let mode = mode.map(str::to_owned);
        Signs { version, cmdline, config: &config, marked: false, mode }.preemption()
    }

    #[test]
    fn real_time_kernels_are_recognised() {
        for version in [
            "#1 SMP PREEMPT_RT Debian 6.1.140-1 (2025-05-22)",
            "#1 SMP PREEMPT RT Wed Mar 4 10:00:00 CET 2020",
            "#10-Ubuntu SMP PREEMPT_RT Fri Jan 10 12:00:00 UTC 2025",
        ] {
            assert_eq!(told(version, "", &[], None), Preemption::RealTime, "{version}");
        }
        assert_eq!(told("#1 SMP", "", &["PREEMPT_RT"], None), Preemption::RealTime);
        assert_eq!(told("#1 SMP PREEMPT", "", &["PREEMPT_RT_FULL"], None), Preemption::RealTime);
        let fake = FakeTree::new();
        fake.file("sys/kernel/realtime", "1\n");
        assert_eq!(collect(&fake.tree, false).preemption, Preemption::RealTime);
    }

    #[test]
    fn a_name_does_not_make_a_kernel_real_time() {
        let fake = FakeTree::new();
        fake.file("proc/sys/kernel/osrelease", "6.6.31-rt31-v8\n");
        fake.file("proc/sys/kernel/version", "#1 SMP PREEMPT Thu May 30 00:00:00 BST 2024\n");
        let kernel = collect(&fake.tree, false);
        assert_eq!(kernel.preemption, Preemption::Full);
        assert_eq!(kernel.release, "6.6.31-rt31-v8");
    }

    #[test]
    fn the_dynamic_mode_is_read_where_it_is_shown() {
        let version = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1 (2025-05-22)";
        let built = ["PREEMPT_DYNAMIC", "PREEMPT_VOLUNTARY"];
        let mode = Some("none voluntary (full)");
        assert_eq!(told(version, "preempt=none", &built, mode), Preemption::Full);
        assert_eq!(told(version, "preempt=none", &built, None), Preemption::None);
        assert_eq!(told(version, "preempt=typo", &built, None), Preemption::Voluntary);
        assert_eq!(told(version, "", &[], Some("none (lazy)")), Preemption::Lazy);
        assert_eq!(told(version, "", &[], None), Preemption::Dynamic);
    }

    #[test]
    fn fixed_models_come_from_the_configuration() {
        assert_eq!(told("#1 SMP", "", &["PREEMPT_NONE"], None), Preemption::None);
        assert_eq!(
            told("#1 SMP", "preempt=full", &["PREEMPT_VOLUNTARY"], None),
            Preemption::Voluntary
        );
        assert_eq!(told("#1 SMP PREEMPT", "", &["PREEMPT_LAZY"], None), Preemption::Lazy);
        assert_eq!(told("#1 SMP PREEMPT", "", &[], None), Preemption::Full);
        assert_eq!(told("#1 SMP Tue", "", &[], None), Preemption::Unknown);
    }
}
