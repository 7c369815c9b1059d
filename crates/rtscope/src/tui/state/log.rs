//! The last events in words, findings among them.

use std::collections::VecDeque;

use rtscope_model::{
    event::{EndReason, Event, Stamped},
    finding::Weight,
    other_work::OtherWork,
    time::Nanos,
};

use super::Lane;

/// How loud an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tone {
    Plain,
    Note,
    Warning,
    Bad,
}

/// One event in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) at_ns: u64,
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

/// How many entries are kept.
const KEPT: usize = 64;

/// The last events, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) entries: VecDeque<Entry>,
    /// Findings so far that are more than a note.
    pub(crate) warnings: u32,
    /// The last finding that is more than a note.
    pub(crate) last_warning: Option<String>,
}

impl Log {
    /// Notes an event that a reader wants to know of; most are not.
    pub(super) fn note(&mut self, stamped: &Stamped, lanes: &[Lane], first_thread: u32) {
        let label = |thread: u32| {
            let lane = lanes.get(thread.wrapping_sub(first_thread) as usize);
            lane.map_or_else(|| format!("thread {thread}"), |lane| lane.label.clone())
        };
        let (tone, text) = match &stamped.event {
            Event::SettingChanged { setting, from, to, .. } => {
                (Tone::Note, format!("{setting} set to {to} (was {from})"))
            }
            Event::SettingRestored { setting, to, .. } => {
                (Tone::Note, format!("{setting} put back to {to}"))
            }
            Event::PhaseStarted { name, .. } => (Tone::Plain, format!("{name} began")),
            Event::PhaseEnded { why: EndReason::Failed, .. } => {
                (Tone::Bad, "the phase failed".to_owned())
            }
            Event::PhaseEnded {
                why: why @ (EndReason::Break | EndReason::Interrupted), ..
            } => (Tone::Plain, format!("the phase ended: {}", reason(*why))),
            Event::LoadStarted { line, .. } => (Tone::Plain, format!("load {line} started")),
            Event::LoadEnded { ok: false, how, .. } => (Tone::Bad, format!("a load ended: {how}")),
            Event::BreakHit { thread, latency_ns, .. } => {
                let latency = Nanos(*latency_ns);
                (Tone::Bad, format!("{}: {latency}, above the break threshold", label(*thread)))
            }
            Event::Found(finding) => {
                let tone = match finding.weight {
                    Weight::Note => Tone::Note,
                    Weight::Warning => Tone::Warning,
                    Weight::PreventsPass | Weight::Invalidates => Tone::Bad,
                };
                if tone > Tone::Note {
                    self.warnings += 1;
                    self.last_warning = Some(finding.text.clone());
                }
                (tone, finding.text.clone())
            }
            Event::OtherWork(work) => match busy_others(work) {
                Some(text) => (Tone::Warning, text),
                None => return,
            },
            Event::RunEnded { why, .. } => {
                (Tone::Plain, format!("the run ended: {}", reason(*why)))
            }
            _ => return,
        };
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry { at_ns: stamped.at_ns, tone, text });
    }
}

/// Part of all CPUs' time from which the work of others in a phase is told while the run goes on. The
/// judgement looks closer: at the measured CPUs, and at what the phase was for.
const TOLD_SHARE: f64 = 0.10;

/// That others used the CPUs in the phase that is over, if they did.
pub(crate) fn busy_others(work: &OtherWork) -> Option<String> {
    let share = work.others_share();
    let busiest = work.processes.iter().find(|process| !process.kernel);
    let who = busiest.map(|process| format!(", most of it {} ({})", process.name, process.pid));
    (share > TOLD_SHARE).then(|| {
        let percent = share * 100.0;
        format!("others used {percent:.0} % of the CPUs{}", who.unwrap_or_default())
    })
}

/// Why something ended, in words.
pub(crate) fn reason(why: EndReason) -> &'static str {
    match why {
        EndReason::Duration => "its time is over",
        EndReason::Cycles => "all cycles are recorded",
        EndReason::LoadEnded => "its load is done",
        EndReason::Decided => "its claim is decided",
        EndReason::Break => "a latency was above the break threshold",
        EndReason::Interrupted => "interrupted",
        EndReason::Failed => "it failed",
        EndReason::Finished => "all phases are done",
    }
}
