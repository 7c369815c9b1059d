//! The kernel's command line.

use crate::cpu::CpuSet;

/// The last value of a parameter, which is the one that counts. Dash and underscore are the same in
/// a parameter's name.
#[must_use]
pub fn value<'a>(cmdline: &'a str, parameter: &str) -> Option<&'a str> {
    let same = |name: &str| name.replace('-', "_") == parameter.replace('-', "_");
    let words = cmdline.split_whitespace().take_while(|word| *word != "--");
    words.filter_map(|word| word.split_once('=')).filter(|(name, _)| same(name)).last().map(|w| w.1)
}

/// The CPUs that a parameter names, without the flags before them: `isolcpus=domain,managed_irq,2-3`.
#[must_use]
pub fn cpus(cmdline: &str, parameter: &str) -> Option<CpuSet> {
    let list = value(cmdline, parameter)?;
    let flag = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic());
    let numbers: Vec<&str> = list.split(',').skip_while(flag).collect();
    numbers.join(",").parse().ok()
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
        assert_eq!(cpus(line, "isolcpus").map(|set| set.to_string()), Some("2-3,5".to_owned()));
        assert_eq!(cpus(line, "nohz_full").map(|set| set.to_string()), Some("1".to_owned()));
        assert_eq!(cpus("isolcpus=nonsense!", "isolcpus").map(|set| set.len()), Some(0));
        assert_eq!(cpus(line, "rcu_nocbs"), None);
    }
}
