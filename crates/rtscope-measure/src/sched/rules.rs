//! What of the machine decides who runs, and the settings that an experiment changes.

use std::{collections::BTreeMap, path::Path};

use rtscope_model::{
    event::Event,
    sched::{Experiment, FairServer, SchedulingRules},
};
use rtscope_sys::{sched, tree::Tree};

use super::{SchedError, SchedOptions};
use crate::{
    environment::throttling,
    tune::{self, Applied},
};

/// Where the fair servers are, a folder for each CPU.
const SERVERS: &str = "sys/kernel/debug/sched/fair_server";

/// What the fair server has by default.
const SERVER: FairServer = FairServer { runtime_ns: 50_000_000, period_ns: 1_000_000_000 };

/// The rules as found, after settings were changed.
pub(super) fn rules(options: &SchedOptions) -> Result<SchedulingRules, SchedError> {
    let allowed = sched::affinity(sched::SELF)?;
    let first = allowed.iter().next().unwrap_or_default();
    let one = options.one.unwrap_or(if allowed.contains(1) { 1 } else { first });
    if !allowed.contains(one) {
        return Err(SchedError::NoSuchCpu { asked: one, allowed });
    }
    let us = |us: Option<i64>| us.and_then(|us| u64::try_from(us).ok()).map(|us| us * 1_000);
    let limit = throttling(&options.tree);
    let quantum = options.tree.read("proc/sys/kernel/sched_rr_timeslice_ms").ok();
    let quantum_ms: u64 =
        quantum.and_then(|text| text.parse().ok()).filter(|ms| *ms > 0).unwrap_or(100);
    Ok(SchedulingRules {
        cpus: allowed,
        one,
        rr_quantum_ns: quantum_ms * 1_000_000,
        rt_runtime_ns: us(limit.runtime_us),
        rt_period_ns: us(limit.period_us).unwrap_or(1_000_000_000),
        fair_server: fair_server(&options.tree, one),
    })
}

/// The fair server of a CPU: as its files say, else (debugfs is not mounted) by its default, since
/// Linux 6.12.
fn fair_server(tree: &Tree, cpu: u32) -> Option<FairServer> {
    let number =
        |file: &str| tree.read(format!("{SERVERS}/cpu{cpu}/{file}")).ok()?.parse::<u64>().ok();
    if let (Some(runtime_ns), Some(period_ns)) = (number("runtime"), number("period")) {
        return Some(FairServer { runtime_ns, period_ns });
    }
    let release = tree.read("proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|word| word.parse::<u32>().ok());
    let version = (numbers.next()?, numbers.next()?);
    (version >= (6, 12)).then_some(SERVER)
}

/// Settings of an experiment, as far as the machine has them. Dropping it puts them back.
#[derive(Debug, Default)]
pub(super) struct Changed {
    applied: Option<Applied>,
    pub(super) made: Vec<String>,
    /// What could not be.
    pub(super) missing: Vec<String>,
}

impl Changed {
    /// Changes what can be changed: an experiment shows something without it too, and its rules are
    /// read afterwards.
    pub(super) fn by(experiment: &Experiment, tree: &Tree, journal: &Path) -> Changed {
        let mut changed = Changed::default();
        let mut wanted = experiment.settings.clone();
        if !changed.apply(&wanted, tree, journal) {
            // All or none: those that can't be are left out.
            wanted.retain(|name, value| {
                let only = [(name.clone(), value.clone())].into();
                let tried = tune::apply(tree, journal, &only, &mut |_| {});
                match tried {
                    Ok(applied) => applied.restore(&mut |_| {}),
                    Err(error) => {
                        changed.missing.push(format!("{name} = {value}: {error}"));
                        return false;
                    }
                }
                true
            });
            if !changed.apply(&wanted, tree, journal) {
                changed.missing.push("the rest, which can't be changed together".to_owned());
            }
        }
        changed
    }

    /// Whether all could be changed.
    fn apply(&mut self, wanted: &BTreeMap<String, String>, tree: &Tree, journal: &Path) -> bool {
        if wanted.is_empty() {
            return true;
        }
        let mut made = Vec::new();
        let applied = tune::apply(tree, journal, wanted, &mut |event| {
            if let Event::SettingChanged { setting, path, from, to } = event {
                made.push(format!("{setting}: {path}: {from} -> {to}"));
            }
        });
        let Ok(applied) = applied else { return false };
        self.applied = Some(applied);
        self.made = made;
        true
    }

    /// Puts everything back; what could not be is a line of `missing`.
    pub(super) fn restore(&mut self) {
        if let Some(applied) = self.applied.take() {
            applied.restore(&mut |event| {
                if let Event::Found(finding) = event {
                    self.missing.push(finding.line());
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn the_fair_server_is_read_or_known_by_the_kernels_version() {
        let fake = FakeTree::new();
        for (release, is_there) in [
            ("6.11.4", false),
            ("6.12-rc1", true),
            ("6.18.44-x", true),
            ("5.19.1", false),
            ("7.0.1", true),
        ] {
            fake.file("proc/sys/kernel/osrelease", release);
            assert_eq!(fair_server(&fake.tree, 1), is_there.then_some(SERVER), "{release}");
        }
        fake.file(&format!("{SERVERS}/cpu1/runtime"), "0\n");
        fake.file(&format!("{SERVERS}/cpu1/period"), "1000000000\n");
        let off = FairServer { runtime_ns: 0, period_ns: 1_000_000_000 };
        assert_eq!(fair_server(&fake.tree, 1), Some(off));
    }

    #[test]
    fn settings_are_changed_as_far_as_they_are_there_and_put_back() {
        let fake = FakeTree::new();
        let file = "proc/sys/kernel/sched_rt_runtime_us";
        fake.file(file, "950000\n");
        let text = "name = 'x'\ntitle = 't'\nsettings = { throttling = 'off', fair-server = 'off' }\n\
                    [[application]]\nname = 'a'\npolicy = 'other'\n";
        let experiment = Experiment::parse("x", text).expect("sound");
        let journal = tempfile::tempdir().expect("a folder");
        let mut changed = Changed::by(&experiment, &fake.tree, journal.path());
        assert_eq!(fake.read(file), "-1");
        assert!(changed.made[0].contains("950000 -> -1"), "{:?}", changed.made);
        assert!(changed.missing[0].contains("fair-server"), "{:?}", changed.missing);
        changed.restore();
        assert_eq!(fake.read(file), "950000");
        drop(Changed::by(&experiment, &fake.tree, journal.path()));
        assert_eq!(fake.read(file), "950000");
    }

    #[test]
    fn throttling_goes_before_the_fair_server() {
        let fake = FakeTree::new();
        let server = format!("{SERVERS}/cpu0/runtime");
        fake.file("proc/sys/kernel/sched_rt_runtime_us", "950000\n");
        fake.file(&server, "50000000\n");
        let text = "name = 'x'\ntitle = 't'\nsettings = { fair-server = 'off', throttling = 'off' }\n\
                    [[application]]\nname = 'a'\npolicy = 'other'\n";
        let experiment = Experiment::parse("x", text).expect("sound");
        let journal = tempfile::tempdir().expect("a folder");
        let changed = Changed::by(&experiment, &fake.tree, journal.path());
        let made = &changed.made;
        assert!(
            made[0].starts_with("throttling") && made[1].starts_with("fair-server"),
            "{made:?}"
        );
        assert_eq!(fake.read(&server), "0");
        drop(changed);
        assert_eq!(fake.read(&server), "50000000");
    }
}
