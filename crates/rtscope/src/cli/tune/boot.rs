//! Parameters of the kernel command line, in a boot entry of their own.

use std::{fmt::Write as _, path::Path};

use rtscope_lab::install::{self, BootLayout, Steps};
use rtscope_measure::environment;
use rtscope_model::{cmdline, cpu::CpuSet, text::slip};
use rtscope_sys::tree::Tree;

use crate::{
    failure::{Refused, lab_failure},
    output::shown,
};

/// Parameters that matter for latency, to find a mistyped one. Others are taken as they are.
const KNOWN: [&str; 30] = [
    "amd_pstate",
    "audit",
    "clocksource",
    "cpuidle.off",
    "idle",
    "intel_idle.max_cstate",
    "intel_pstate",
    "irqaffinity",
    "isolcpus",
    "kthread_cpus",
    "mce",
    "mitigations",
    "nmi_watchdog",
    "nohz",
    "nohz_full",
    "nosmt",
    "nosoftlockup",
    "nowatchdog",
    "preempt",
    "processor.max_cstate",
    "rcu_nocb_poll",
    "rcu_nocbs",
    "rcupdate.rcu_normal_after_boot",
    "rcutree.kthread_prio",
    "rt_group_sched",
    "skew_tick",
    "threadirqs",
    "transparent_hugepage",
    "tsc",
    "workqueue.power_efficient",
];

/// Parameters of the kernel that are one letter away from a known one.
const NEARLY_KNOWN: [&str; 3] = ["nosmp", "tsa", "tsx"];

/// Parameters that name CPUs.
const OF_CPUS: [&str; 5] = ["irqaffinity", "isolcpus", "kthread_cpus", "nohz_full", "rcu_nocbs"];

/// The parameter that a name is one slip away from. Others are none of ours to judge: a kernel has many hundred.
fn mistyped(name: &str) -> Option<&'static str> {
    (!KNOWN.contains(&name) && !NEARLY_KNOWN.contains(&name)).then(|| slip(name, KNOWN)).flatten()
}

/// The words in one line, each checked.
///
/// # Errors
///
/// A word that looks like a parameter mistyped, CPUs that aren't there, or all CPUs isolated.
pub(super) fn words(each: &[String], root: &Path, force: bool) -> anyhow::Result<String> {
    let line = each.join(" ");
    let online = environment::online(&Tree::default());
    let refused = |text: String| Err(Refused(format!("--boot {text}")).into());
    if each.iter().any(|word| word.trim().is_empty()) {
        return refused("'': write a parameter, for example isolcpus=2-3".to_owned());
    }
    for word in line.split_whitespace() {
        let name = word.split('=').next().unwrap_or_default().replace('-', "_");
        if !force && let Some(meant) = mistyped(&name) {
            return refused(format!(
                "{word}: did you mean {meant}? With --force, rtscope sets it as you typed it"
            ));
        }
        // How many CPUs another system has isn't known: any number will do for `N`, the last one.
        let names = |name: &str| {
            cmdline::cpus(word, name, online.last()).is_some_and(|cpus| !cpus.is_empty())
        };
        // Some parameters need no value.
        if word.contains('=') && OF_CPUS.contains(&name.as_str()) && !names(&name) {
            return refused(format!("{word}: {name} takes a set of CPUs, for example {name}=2-3"));
        }
    }
    // Whether CPUs are there is known only of this machine.
    if root == Path::new("/") {
        for name in OF_CPUS {
            let named = cmdline::cpus(&line, name, online.last()).unwrap_or_default();
            let absent = named.without(&online);
            if !absent.is_empty() {
                return refused(format!("{name}={named}: this machine has CPUs {online}"));
            }
        }
        let isolated: CpuSet = cmdline::cpus(&line, "isolcpus", online.last()).unwrap_or_default();
        if !isolated.is_empty() && online.without(&isolated).is_empty() {
            return refused(format!(
                "isolcpus={isolated}: these are all the CPUs of this machine; leave at least one for everything else"
            ));
        }
    }
    Ok(line)
}

/// The layout that was named, or the one whose files are there.
pub(super) fn layout(root: &Path, named: Option<BootLayout>) -> anyhow::Result<BootLayout> {
    named.or_else(|| install::layout_of(root)).ok_or_else(|| {
        let text = format!(
            "{}: no boot loader that rtscope knows is set up there (Raspberry Pi, Armbian, extlinux, U-Boot with \
             uEnv.txt, GRUB, systemd-boot); is the boot partition mounted? Otherwise add the parameters to the kernel command line in your boot loader's configuration",
            shown(root)
        );
        Refused(text).into()
    })
}

/// What would change.
pub(super) fn preview(root: &Path, layout: BootLayout, words: &str) -> anyhow::Result<String> {
    let lines = install::lines_with(root, layout, words);
    let (old, new) = lines.map_err(|error| lab_failure(error.into()))?;
    Ok(format!("boot entry ({layout})\n  command line: {old}\n            ->: {new}\n"))
}

/// Sets them.
pub(super) fn set(root: &Path, layout: BootLayout, words: &str) -> anyhow::Result<String> {
    let mut report = |progress| {
        if let rtscope_lab::progress::StepProgress::Warning(text) = progress {
            note!("warning: {text}");
        }
    };
    let set = install::set_parameters(root, layout, words, &mut Steps::default(), &mut report);
    let set = set.map_err(|error| lab_failure(error.into()))?;
    let mut text = format!("The next boot has {}\n", set.words);
    for path in &set.changed {
        let _ = writeln!(text, "  {}", shown(root.join(path)));
    }
    let _ = writeln!(text, "  command line: {}", set.chosen.cmdline);
    let _ = writeln!(
        text,
        "The old boot entry is still there. `rtscope tune restore --boot{}` makes it the default again.",
        install::of_root(root)
    );
    Ok(text)
}

/// Takes them back; a sentence that says so.
pub(super) fn remove(root: &Path) -> anyhow::Result<String> {
    let mut report = |progress| {
        if let rtscope_lab::progress::StepProgress::Warning(text) = progress {
            note!("warning: {text}");
        }
    };
    let removed = install::remove_parameters(root, &mut Steps::default(), &mut report);
    Ok(match removed.map_err(|error| lab_failure(error.into()))? {
        Some(words) => format!("the next boot is without {words}\n"),
        None => format!("no boot parameters were set by rtscope below {}\n", shown(root)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Real parameters were refused because they look like known ones from afar.
    #[test]
    fn only_a_slip_of_one_letter_is_mistyped() {
        for real in [
            "rcupdate.rcu_expedited",
            "rcutree.use_softirq",
            "cpuidle.governor",
            "intel_iommu",
            "nosmp",
            "tsa",
            "tsx",
            "isolcpus",
            "quiet",
        ] {
            assert_eq!(mistyped(real), None, "{real}");
        }
        for (typed, meant) in [
            ("isolcpu", "isolcpus"),
            ("isolcpsu", "isolcpus"),
            ("nohz_ful", "nohz_full"),
            ("threadirq", "threadirqs"),
            ("premept", "preempt"),
            ("mitigatoins", "mitigations"),
        ] {
            assert_eq!(mistyped(typed), Some(meant));
        }
    }

    #[test]
    fn force_takes_a_mistyped_parameter_and_no_absent_cpus() {
        let words_of = |word: &str, force| words(&[word.to_owned()], Path::new("/"), force);
        assert!(words_of("isolcpu=0", false).is_err());
        assert_eq!(words_of("isolcpu=0", true).expect("forced"), "isolcpu=0");
        for word in ["nohz_full=4000", "irqaffinity=x"] {
            let error = words_of(word, true).expect_err("no such CPUs").to_string();
            assert!(error.starts_with("--boot "), "{error}");
        }
    }
}
