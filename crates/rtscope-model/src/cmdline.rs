//! The kernel's command line.

use crate::cpu::{CpuSet, ends_of};

/// The last value of a parameter, which is the one that counts. Dash and underscore are the same in
/// a parameter's name.
#[must_use]
pub fn value<'a>(cmdline: &'a str, parameter: &str) -> Option<&'a str> {
    let same = |name: &str| name.replace('-', "_") == parameter.replace('-', "_");
    let words = cmdline.split_whitespace().take_while(|word| *word != "--");
    words.filter_map(|word| word.split_once('=')).filter(|(name, _)| same(name)).last().map(|w| w.1)
}

/// The CPUs that a parameter names, without the flags before them: `isolcpus=domain,managed_irq,2-3`. `last` is the
/// highest CPU of the machine, which may be written as `N`; without it, a list with `N` or `all` names none.
#[must_use]
pub fn cpus(cmdline: &str, parameter: &str, last: Option<u32>) -> Option<CpuSet> {
    let list = value(cmdline, parameter)?;
    let is_flag = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic()) && !["all", "N"].contains(word)
    };
    // Whether it is named, for each CPU: a list may name all of them again and again.
    let mut found: Vec<bool> = Vec::new();
    for part in list.split(',').skip_while(is_flag).filter(|part| !part.is_empty()) {
        let Groups { first, last, used, group } = groups(part, last)?;
        found.resize(found.len().max(last + 1), false);
        for begin in (first..=last).step_by(group) {
            found[begin..begin.saturating_add(used).min(last + 1)].fill(true);
        }
    }
    Some((0..).zip(found).filter(|(_, is_named)| *is_named).map(|(cpu, _)| cpu).collect())
}

/// CPUs from the first to the last one: so many of each group that follows another.
struct Groups {
    first: usize,
    last: usize,
    used: usize,
    group: usize,
}

/// A part of a list of CPUs as the kernel reads it: `3`, `2-N`, `all`, or `0-15:2/4` for the first two of each four.
fn groups(part: &str, last: Option<u32>) -> Option<Groups> {
    let (ends, pattern) = match part.split_once(':') {
        Some((ends, pattern)) => (ends, Some(pattern)),
        None => (part, None),
    };
    let ends = match ends {
        "all" => format!("0-{}", last?),
        _ if ends.contains('N') => ends.replace('N', &last?.to_string()),
        _ => ends.to_owned(),
    };
    let (first, last) = ends_of(&ends)?;
    let (first, last) = (first as usize, last as usize);
    let (used, group) = match pattern {
        Some(pattern) => {
            let (used, group) = pattern.split_once('/')?;
            let number = |text: &str| text.parse::<u32>().ok().map(|number| number as usize);
            (number(used)?, number(group).filter(|group| *group > 0)?)
        }
        None => (last - first + 1, last - first + 1),
    };
    Some(Groups { first, last, used, group })
}

/// Whether a parameter without a value is given, for example `threadirqs`.
#[must_use]
pub fn has_flag(cmdline: &str, parameter: &str) -> bool {
    cmdline.split_whitespace().take_while(|word| *word != "--").any(|word| word == parameter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_counts_and_arguments_of_init_do_not() {
        let line = "preempt=none quiet preempt=full -- preempt=lazy";
        assert_eq!(value(line, "preempt"), Some("full"));
        assert_eq!(value(line, "quiet"), None);
        assert_eq!(value("rcu-nocbs=1", "rcu_nocbs"), Some("1"));
    }

    #[test]
    fn flags_before_the_cpus_are_skipped() {
        let line = "isolcpus=domain,managed_irq,2-3,5 nohz_full=1";
        let named = |line, name| cpus(line, name, None).map(|set| set.to_string());
        assert_eq!(named(line, "isolcpus").as_deref(), Some("2-3,5"));
        assert_eq!(named(line, "nohz_full").as_deref(), Some("1"));
        assert_eq!(named("isolcpus=nonsense!", "isolcpus").as_deref(), Some(""));
        assert_eq!(named(line, "rcu_nocbs"), None);
    }

    #[test]
    fn a_list_that_names_all_cpus_again_and_again_is_read_at_once() {
        let line = format!("isolcpus={}", ["all"; 10_000].join(","));
        let found = cpus(&line, "isolcpus", Some(16_383)).expect("a list");
        assert_eq!((found.len(), found.last()), (16_384, Some(16_383)));
    }

    #[test]
    fn lists_are_read_as_the_kernel_reads_them() {
        let named = |list: &str, last| {
            cpus(&format!("isolcpus={list}"), "isolcpus", last).map(|set| set.to_string())
        };
        for (list, expected) in [
            ("managed_irq,4-N", "4-7"),
            ("N", "7"),
            ("all", "0-7"),
            ("domain,all", "0-7"),
            ("0-7:2/4", "0-1,4-5"),
            ("1-6:1/2", "1,3,5"),
            ("0-6:3/4", "0-2,4-6"),
            ("0-7:0/4", ""),
            ("1-6:4294967295/4", "1-6"),
            ("2,N", "2,7"),
        ] {
            assert_eq!(named(list, Some(7)).as_deref(), Some(expected), "{list}");
        }
        for wrong in ["4-", "5-2", "0-7:2/0", "0-7:x/4", "9x"] {
            assert_eq!(named(wrong, Some(7)), None, "{wrong}");
        }
        assert_eq!(named("4-N", None), None);
    }
}
