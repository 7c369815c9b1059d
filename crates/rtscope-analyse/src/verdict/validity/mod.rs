//! Rules that question a run: each looks at one thing that makes figures answer another question
//! than the one that was asked, or hides worse ones, and says so in words.
//!
//! A rule is one function in [`RULES`]. What a record doesn't show can't be held against it by a
//! rule about that thing; that nothing was recorded about the machine or a thread is a finding of
//! its own.

mod interference;
mod load;
mod machine;
mod network;
mod other_work;
mod run;
mod thread;

use std::{cell::OnceCell, collections::BTreeSet};

use rtscope_model::{
    cpu::CpuSet,
    doctor::MachineFacts,
    environment::Environment,
    event::{Event, Tally},
    finding::Finding,
    record::{Record, ThreadRecord},
};

use crate::{doctor, judgement::CellSummary, number::listed};

/// What the rules look at.
struct Scene<'a> {
    record: &'a Record,
    cells: &'a [CellSummary],
    /// The machine as `rtscope doctor` looks at it, once a rule asks.
    machine: OnceCell<MachineFacts>,
}

/// One rule: at most one finding, which names every place it holds for.
type Rule = fn(&Scene) -> Option<Finding>;

/// Every rule with the code of its finding.
const RULES: [(&str, Rule); 41] = [
    ("no-samples", run::no_samples),
    ("phases-not-run", run::not_reached),
    ("accounting", run::accounting),
    ("slices-unknown", run::unknown_slices),
    ("run-interrupted", run::interrupted),
    ("run-failed", run::failed),
    ("break-hit", run::break_hit),
    ("placement", thread::placement),
    ("memory-not-locked", thread::memory_not_locked),
    ("page-faults", thread::page_faults),
    ("migrations", thread::migrations),
    ("involuntary-switches", thread::involuntary_switches),
    ("raw-samples-lost", thread::raw_samples_lost),
    ("early-wakeups", thread::early_wakeups),
    ("corrected-incomplete", thread::corrected_incomplete),
    ("smi", thread::smi),
    ("tally-missing", thread::tally_missing),
    ("control-thread", thread::control_thread),
    ("load-did-not-run", load::did_not_run),
    ("load-idle", load::idle),
    ("load-ended-early", load::ended_early),
    ("frames-not-back", network::not_back),
    ("frames-not-sent", network::not_sent),
    ("frames-odd", network::odd),
    ("environment-missing", machine::unknown),
    ("steal-time", interference::steal_time),
    ("competing-threads", interference::competing_threads),
    ("not-at-rest", other_work::not_at_rest),
    ("foreign-work", other_work::foreign_work),
    ("other-work-missing", other_work::missing),
    ("virtual-machine", interference::virtual_machine),
    ("virtual-time", interference::virtual_time),
    ("container", interference::container),
    ("throttled", interference::throttled),
    ("throttling-on", machine::throttling_on),
    ("low-resolution-timers", machine::low_resolution_timers),
    ("environment-changed", machine::changed),
    ("settings-left", machine::settings_left),
    ("kernel-not-rt", machine::kernel_not_rt),
    ("governor", machine::governor),
    ("deep-idle", machine::deep_idle),
];

/// What every rule found, in the order of the rules.
#[must_use]
pub fn findings(record: &Record, cells: &[CellSummary]) -> Vec<Finding> {
    let scene = Scene::new(record, cells);
    RULES.iter().filter_map(|(_, rule)| rule(&scene)).collect()
}

/// What to do about activations that nothing answered, where the record shows who may have held the CPU.
#[must_use]
pub fn against_holders(record: &Record, cells: &[CellSummary]) -> Option<String> {
    let names = interference::competitors(&Scene::new(record, cells))?;
    let advice = interference::AGAINST_COMPETITORS;
    Some(format!("these threads may have held the CPU: {names}; {advice}"))
}

/// The codes of everything that rules may find.
pub fn codes() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|(code, _)| *code)
}

impl<'a> Scene<'a> {
    fn new(record: &'a Record, cells: &'a [CellSummary]) -> Scene<'a> {
        Scene { record, cells, machine: OnceCell::new() }
    }

    /// The machine as it was measured.
    fn before(&self) -> Option<&'a Environment> {
        self.record.before.as_ref()
    }

    /// What the rule of `rtscope doctor` with this code finds on the measured CPUs, in words.
    fn symptom(&self, code: &str) -> Option<String> {
        self.symptom_within(code, u64::MAX)
    }

    /// The same, where idle states are held to an exit latency in us.
    fn symptom_within(&self, code: &str, idle_limit_us: u64) -> Option<String> {
        let environment = self.before()?;
        let machine = self.machine.get_or_init(|| MachineFacts {
            environment: environment.clone(),
            ..MachineFacts::default()
        });
        let found = doctor::symptom(code, machine, self.measured_cpus(), idle_limit_us);
        found.map(|symptom| symptom.text)
    }

    /// All CPUs that a sampling thread was found on.
    fn measured_cpus(&self) -> CpuSet {
        let cpus: BTreeSet<u32> =
            self.record.threads.iter().flat_map(|thread| thread.found.cpus.iter()).collect();
        cpus.into_iter().collect()
    }

    /// The sampling threads of a cell.
    fn threads_of(&self, cell: u32) -> impl Iterator<Item = &'a ThreadRecord> + Clone {
        let record = self.record;
        let session = record.events.iter().find_map(|stamped| match stamped.event {
            Event::SessionStarted { session, first_cell, cells, .. } => {
                (first_cell..first_cell + cells).contains(&cell).then_some(session)
            }
            _ => None,
        });
        record.threads.iter().filter(move |thread| Some(thread.session) == session)
    }

    /// A cell's name in the plan.
    fn cell_name(&self, cell: u32) -> &'a str {
        self.record.plan.phases.get(cell as usize).map_or("", |phase| phase.name.as_str())
    }

    /// A load of a cell as its line in the plan.
    fn load_line(&self, cell: u32, load: u32) -> String {
        let phase = self.record.plan.phases.get(cell as usize);
        let line = phase.and_then(|phase| phase.loads.get(load as usize));
        line.map_or_else(|| format!("load {load}"), ToString::to_string)
    }

    /// What a reader calls a thread.
    fn label(&self, thread: u32) -> String {
        let known = self.record.threads.iter().find(|known| known.thread == thread);
        known.map_or_else(|| format!("thread {thread}"), |known| self.record.label(known))
    }

    /// Whether the run itself changed a setting.
    fn was_set(&self, name: &str) -> bool {
        self.record.events.iter().any(|stamped| {
            matches!(&stamped.event, Event::SettingChanged { setting, .. } if setting == name)
        })
    }

    /// The threads of which a count in their tally is above 0: `CPU 1: 3`.
    fn counts(&self, count: impl Fn(&ThreadRecord, &Tally) -> u64) -> Option<String> {
        listed(self.record.threads.iter().filter_map(|thread| {
            let n = count(thread, thread.tally.as_ref()?);
            (n > 0).then(|| format!("{}: {n}", self.record.label(thread)))
        }))
    }
}

/// Support for the tests of the rules: the finding of a code after a run was spoilt.
#[cfg(test)]
mod tests {
    use rtscope_model::finding::Weight;

    use super::*;
    use crate::{statistics::summary, test_support::Run};

    pub(super) const PLAN: &str = r#"
name = "two"
[[phase]]
name = "rest"
duration = "2s"
[[phase]]
name = "busy"
duration = "2s"
load = ["message groups=1"]
"#;

    /// Two threads, two cells, a load in the second, nothing wrong.
    pub(super) fn good() -> Run {
        let quiet: &[&[u64]] = &[&[10_000; 2_000], &[10_000; 2_000]];
        Run::new(PLAN, 2)
            .cell(0, quiet)
            .cell(1, quiet)
            .load(1, "message groups=1", &[100, 100])
            .end()
    }

    pub(super) fn all(run: &Run) -> Vec<Finding> {
        let record = run.record();
        findings(&record, &summary::cells(&record))
    }

    /// Expects exactly this finding and returns its text.
    pub(super) fn only(run: &Run, code: &str, weight: Weight) -> String {
        let mut found = all(run);
        assert_eq!(found.len(), 1, "{found:?}");
        let finding = found.remove(0);
        assert!(codes().any(|known| known == code), "{code} is not in the table");
        assert_eq!((finding.code.as_str(), finding.weight), (code, weight));
        finding.text
    }

    #[test]
    fn nothing_is_found_in_a_good_run() {
        assert_eq!(all(&good()), []);
    }

    #[test]
    fn every_code_is_explained() {
        let page = include_str!("../../../../../docs/method/verdict.md");
        for code in codes() {
            assert!(page.contains(&format!("| `{code}` |")), "{code} is not in docs/method");
        }
    }

    #[test]
    fn many_places_are_counted() {
        let places = |n: u32| listed((0..n).map(|i| format!("CPU {i}")));
        assert_eq!(places(0), None);
        assert_eq!(places(2).as_deref(), Some("CPU 0, CPU 1"));
        assert_eq!(places(9).as_deref(), Some("CPU 0, CPU 1, CPU 2, CPU 3 and 5 more"));
    }
}
