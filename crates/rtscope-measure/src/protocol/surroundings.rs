//! What else happens on the machine while a phase is measured: the work of others, real-time threads
//! that come up, and whether time goes on as it should.

use rtscope_model::{
    event::Event,
    finding::{Finding, Weight},
    plan::Phase,
    schedule::{Placement, Policy},
};
use rtscope_sys::sched;

use super::{Conductor, Load};
use crate::{
    environment::SystemCounters,
    load::RunningLoad,
    other_work::{OtherWorkWatch, new_real_time_threads},
    timekeeping::{Reading, STALL_MIN, queued_ns, stall},
};

/// Lets the control thread run ahead of ordinary processes, where that is permitted: beside hundreds of
/// a load it would get a few milliseconds a second, and one look at all of them would take longer than
/// their phase. For the time outside of what counts only. Returns the place to go back to.
pub(super) fn ahead_of_loads() -> Option<Placement> {
    let before = sched::placement(sched::SELF).ok().filter(|own| !own.policy.is_real_time())?;
    let ahead = Placement { policy: Policy::Fifo, priority: 1, nice: 0, ..before.clone() };
    sched::set_policy(sched::SELF, &ahead).ok().map(|()| before)
}

/// Goes back to the place before [`ahead_of_loads`].
pub(super) fn as_before(before: Option<Placement>) {
    if let Some(before) = before {
        let _ = sched::set_policy(sched::SELF, &before);
    }
}

impl Conductor<'_, '_> {
    /// Says what happened to the clocks since the last look.
    pub(super) fn look_at_clocks(&mut self, phase: &Phase) {
        let (now, age_ns) = (Reading::now(), self.stream.elapsed_ns());
        let found = self.clocks.look(now, phase.sampler.clock, &phase.name, age_ns);
        found.into_iter().for_each(|finding| self.stream.found(finding));
    }

    /// Says why the control thread slept too long, if it did so by much.
    pub(super) fn judge_sleep(&mut self, overslept_ns: u64) {
        let was_stopped = self.interrupt.take_continued();
        if overslept_ns < STALL_MIN.0 {
            return;
        }
        let meanwhile = SystemCounters::read(self.tree).span_since(&self.counters, overslept_ns);
        let control = sched::affinity(sched::SELF).unwrap_or_default();
        let queued = queued_ns(self.tree)
            .zip(self.queued_ns)
            .map(|(now, before)| now.saturating_sub(before));
        self.stream.found(stall(overslept_ns, was_stopped, queued, &control, &meanwhile));
    }

    /// Takes note of what other processes have done so far: the phase is about to count.
    pub(super) fn watch_others(&mut self) {
        // What a load does between the reading of the CPUs and that of its own processes would be
        // nobody's.
        let before = ahead_of_loads();
        let now_ns = self.stream.elapsed_ns();
        self.others = Some(OtherWorkWatch::start(self.tree, std::process::id(), now_ns));
        as_before(before);
    }

    /// Looks at other processes inside a phase, where that takes no time of a measured CPU.
    pub(super) fn look_at_others(&mut self) {
        let now_ns = self.stream.elapsed_ns();
        let own_cpus = sched::affinity(sched::SELF).unwrap_or_default();
        if let Some(watch) = &mut self.others
            && own_cpus.common(&self.launcher.measured).is_empty()
        {
            watch.look_if_due(self.tree, std::process::id(), now_ns);
        }
    }

    /// Says who used the CPUs in a phase that is over. Its loads still run, so that their time is ours.
    pub(super) fn read_other_work(&mut self, cell: u32) {
        let now_ns = self.stream.elapsed_ns();
        let Some(watch) = self.others.take() else { return };
        let work = watch.finish(self.tree, std::process::id(), now_ns, cell);
        work.into_iter().for_each(|work| self.stream.emit(Event::OtherWork(work)));
    }

    /// Says which real-time threads came up since the run began: those of loads, and others.
    pub(super) fn read_real_time_threads(&mut self, cell: u32, loads: &[Load]) {
        let pids: Vec<Option<u32>> =
            loads.iter().map(|load| load.running.as_ref().map(RunningLoad::pid)).collect();
        let (own_pid, before) = (std::process::id(), self.real_time_before);
        for new in new_real_time_threads(self.tree, own_pid, cell, &pids, before) {
            self.stream.emit(Event::NewRealTimeThreads(new));
        }
    }

    /// Says what the kernel warned of.
    pub(super) fn tell_warnings(&mut self) {
        let (warnings, more) = self.kernel_log.take_warnings();
        if let Some(first) = warnings.first() {
            let count = warnings.len() as u64 + more;
            let plural = if count == 1 { "" } else { "s" };
            let text =
                format!("the kernel logged {count} warning{plural} while it was measured: {first}");
            let finding = Finding::new("kernel-warnings", Weight::Warning, text);
            let all = "`sudo dmesg` shows the kernel's log".to_owned();
            let advice = match &warnings[1..] {
                [] => all,
                next => format!("{all}; the next messages were: {}", next.join(" | ")),
            };
            self.stream.found(finding.advise(advice));
        }
    }
}
