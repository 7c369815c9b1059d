//! What a process of ours left when it was killed: settings and tracing instances. They are put back and removed when it
//! panics, or before anything is measured.

use rtscope_measure::{
    trace,
    tune::{self, Restored},
};
use rtscope_sys::tree::Tree;

use crate::output::{print, shown};

/// From here on a panic of any thread restores what this process has changed: a release ends at once.
pub(crate) fn restore_on_panic() {
    let say_where = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say_where(panic);
        said(&tune::restore_own(&Tree::default(), &tune::journal_dir()));
    }));
}

/// Restores what killed processes left, and says so on standard error. How many settings and tracing instances it found,
/// and whether all settings are as they were.
pub(crate) fn restore() -> (usize, bool) {
    let instances = trace::remove_left(&Tree::default());
    for name in &instances {
        note!(
            "rtscope: removed {name}, a tracing instance of a killed rtscope that was still recording"
        );
    }
    let (found, sound) = said(&tune::restore_leftovers(&Tree::default(), &tune::journal_dir()));
    (found + instances.len(), sound)
}

/// Says which journals can't tell what to restore, for as long as they are there. Whether there is none.
pub(crate) fn no_damaged_journal() -> anyhow::Result<bool> {
    let damaged = tune::damaged(&tune::journal_dir());
    for path in &damaged {
        print(&format!(
            "{} is a damaged journal: check the settings that it names, and remove it\n",
            shown(path)
        ))?;
    }
    Ok(damaged.is_empty())
}

/// Says what became of settings. How many there were, and whether all are as they were.
pub(crate) fn said(restored: &[Restored]) -> (usize, bool) {
    for line in lines(restored) {
        note!("rtscope: {line}");
    }
    (restored.len(), restored.iter().all(|one| one.error.is_none()))
}

/// What became of each setting. A setting may be a file for each CPU or interrupt: those of one that are restored share
/// a line.
fn lines(restored: &[Restored]) -> Vec<String> {
    let is_alike = |one: &Restored, other: &Restored| {
        one.error.is_none() && other.error.is_none() && one.setting == other.setting
    };
    let line = |alike: &[Restored]| match alike {
        [one] => one.to_string(),
        [first, ..] => format!("{first}, and {} more were restored, too", alike.len() - 1),
        [] => String::new(),
    };
    restored.chunk_by(is_alike).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_many_files_is_restored_in_one_line() {
        let one = |setting: &str, path: &str, error: Option<&str>| Restored {
            setting: setting.to_owned(),
            path: path.to_owned(),
            to: "0-3".to_owned(),
            error: error.map(str::to_owned),
        };
        let restored = [
            one("irq-affinity", "/proc/irq/1", None),
            one("irq-affinity", "/proc/irq/2", None),
            one("irq-affinity", "/proc/irq/3", None),
            one("irq-affinity", "/proc/irq/4", Some("refused")),
            one("thp", "/sys/thp", None),
        ];
        assert_eq!(
            lines(&restored),
            [
                "irq-affinity is restored: /proc/irq/1 is 0-3 again, and 2 more were restored, too",
                "irq-affinity is not restored: /proc/irq/4: refused",
                "thp is restored: /sys/thp is 0-3 again",
            ]
        );
    }
}
