//! Where a guest does something under the loads of a phase.

use rtscope_model::{
    cpu::CpuSet,
    plan::{CpuChoice, Phase},
    schedule::{Placement, Policy},
    time::Nanos,
};
use rtscope_sys::sched;

use crate::{
    load::{Launcher, RunningLoad},
    machine::real_time_load_priority,
};

/// How much longer than its phase a load may run.
const LOAD_GRACE_NS: u64 = 60_000_000_000;

/// Where something is done under the loads of a phase.
pub(super) struct Stage<'a> {
    phase: &'a Phase,
    launcher: Launcher,
    /// The CPUs that the phase measures.
    pub(super) measured: CpuSet,
}

impl Stage<'_> {
    /// Starts the phase's loads; they end when they are dropped.
    pub(super) fn start_loads(&self) -> Result<Vec<RunningLoad>, String> {
        let longest = self.phase.expected().0.saturating_mul(4).saturating_add(LOAD_GRACE_NS);
        let start = |line| self.launcher.start(line, Nanos(longest));
        let loads = self.phase.loads.iter();
        loads.map(|line| start(line).map_err(|e| format!("load {}: {e}", line.name))).collect()
    }
}

/// Does something with the loads of a phase at hand, from where they can be ended.
pub(super) fn on_stage(
    phase: &Phase,
    act: impl FnOnce(&Stage<'_>) -> Result<String, String>,
) -> Result<String, String> {
    let all = sched::affinity(sched::SELF).map_err(|e| e.to_string())?;
    let measured = match &phase.sampler.cpus {
        CpuChoice::All => all.clone(),
        CpuChoice::Last => all.last().into_iter().collect(),
        CpuChoice::These(set) => set.clone(),
    };
    let before = sched::placement(sched::SELF).map_err(|e| e.to_string())?;
    // Above loads of real-time priority, so that it can end them.
    if let Some(priority) = real_time_load_priority(std::slice::from_ref(phase)) {
        let priority = (priority + 1).min(99);
        let above = Placement { policy: Policy::Fifo, priority, nice: 0, ..before.clone() };
        sched::set_policy(sched::SELF, &above).map_err(|e| e.to_string())?;
    }
    let launcher = Launcher::new(measured.clone(), all);
    let said = act(&Stage { phase, launcher, measured });
    let _ = sched::set_policy(sched::SELF, &before);
    said
}
