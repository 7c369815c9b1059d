//! A plan: what to measure, under which loads, and what must hold.
//!
//! The text form is TOML. A plan has either `[[phase]]` tables, run one after the other, or one
//! `[matrix]` whose axes are multiplied into phases. Each phase becomes one cell of the record.
//! Adjacent phases with the same sampler share one set of sampling threads: a *session*.

mod matrix;
pub(crate) mod mistakes;
mod network;
mod sampler;
mod text;
pub mod trial;

use serde::{Deserialize, Serialize};

pub use self::{
    network::{
        CYCLE_MAX, CYCLE_MIN, FRAME_SIZE_MAX, FRAME_SIZE_MIN, FramePath, FrameRoute,
        FrameTransport, NetworkSampler, PeerFaults,
    },
    sampler::{
        ClockName, CpuChoice, Overrun, Pinning, Resolution, Sampler, SamplerPatch, Sleep, Spelling,
        Spread, ThreadStart, too_many_intervals,
    },
    text::{Checks, parse, parse_checked, parse_kept, parse_sampler},
};
use crate::{
    load::LoadLine,
    printable::{printable, printable_lines},
    published::Published,
    time::Nanos,
    verdict::Requirement,
};

/// The longest that a plan may take, about a hundred years: the clock's 64 bits hold no more than three
/// times as much.
pub const LONGEST: Nanos = Nanos::from_secs(36_500 * 86_400);

/// A plan with every default filled in and every matrix multiplied out.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Short name, as `quick`.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it is for, a few sentences.
    pub about: String,
    /// What every cell must satisfy.
    pub require: Vec<Requirement>,
    /// System settings to change for the run and restore after it, as `throttling = off`.
    pub settings: std::collections::BTreeMap<String, String>,
    /// Whether a policy or a priority was asked by name. Where it was not, a user without real-time
    /// permission is measured as an ordinary thread; where it was, the run is refused.
    pub policy_asked: bool,
    /// Whether a phase ends as soon as every claim (`max < 200us once in 1h`) that it must satisfy is
    /// backed or refuted.
    pub until_decided: bool,
    /// The cells in the order of the run.
    pub phases: Vec<Phase>,
    /// Figures that others have published, to be set beside a run's own.
    pub published: Vec<Published>,
}

/// One cell: loads, an end, a sampler.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Name, unique in the plan.
    pub name: String,
    /// When it ends: at the first of these.
    pub end: PhaseEnd,
    /// How long the loads run before the cell counts samples.
    pub settle: Nanos,
    /// Loads that run side by side; none is rest.
    pub loads: Vec<LoadLine>,
    /// What this cell must satisfy, beside what the plan requires of all.
    pub require: Vec<Requirement>,
    /// System settings of this phase alone, beside those of the plan.
    pub settings: std::collections::BTreeMap<String, String>,
    /// The sampler, as it applies to this phase.
    pub sampler: Sampler,
}

/// When a phase ends: at the first of what is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseEnd {
    /// After this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Nanos>,
    /// When a thread has recorded this many activations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u64>,
    /// When a load with an end of its own (as `message loops=100`) has done its work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub load_ends: bool,
}

impl Phase {
    /// The loads as one text, joined by ` + `; `none` at rest.
    #[must_use]
    pub fn load_text(&self) -> String {
        let lines: Vec<String> = self.loads.iter().map(ToString::to_string).collect();
        if lines.is_empty() { "none".to_owned() } else { lines.join(" + ") }
    }

    /// How long the phase takes: exact for a duration, from the interval for cycles. A phase that
    /// ends with its load takes at most this long.
    #[must_use]
    pub fn expected(&self) -> Nanos {
        let by_cycles =
            self.end.cycles.map(|n| Nanos(self.sampler.interval_of(0).0.saturating_mul(n)));
        let end = match (self.end.duration, by_cycles) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => Nanos::ZERO,
        };
        Nanos(end.0.saturating_add(self.settle.0))
    }
}

impl Plan {
    /// A plan of its own for each phase, with the phase's name.
    #[must_use]
    pub fn one_by_one(&self) -> Vec<Plan> {
        let single = |phase: &Phase| Plan {
            name: phase.name.clone(),
            phases: vec![phase.clone()],
            ..self.clone()
        };
        self.phases.iter().map(single).collect()
    }

    /// A plan may come from anywhere, and its names go to the terminal.
    fn with_printable_names(mut self) -> Plan {
        self.about = printable_lines(&self.about).into_owned();
        let phases = self.phases.iter_mut().map(|phase| &mut phase.name);
        for name in [&mut self.name, &mut self.title].into_iter().chain(phases) {
            *name = printable(name).into_owned();
        }
        self.published.iter_mut().for_each(Published::make_printable);
        self
    }

    /// Cells grouped into sessions: ranges of `phases` whose samplers and settings are equal.
    #[must_use]
    pub fn sessions(&self) -> Vec<std::ops::Range<usize>> {
        let mut sessions: Vec<std::ops::Range<usize>> = Vec::new();
        for (i, phase) in self.phases.iter().enumerate() {
            let is_alike = |first: &Phase| {
                first.sampler.in_effect() == phase.sampler.in_effect()
                    && first.settings == phase.settings
            };
            match sessions.last_mut() {
                Some(last) if is_alike(&self.phases[last.start]) => last.end = i + 1,
                _ => sessions.push(i..i + 1),
            }
        }
        sessions
    }

    /// The system settings of a phase: the plan's and its own, which go before.
    #[must_use]
    pub fn settings_of(&self, phase: &Phase) -> std::collections::BTreeMap<String, String> {
        let mut settings = self.settings.clone();
        settings.extend(phase.settings.clone());
        settings
    }

    /// How long the whole plan takes, warm-ups included; an upper bound where a load ends a phase.
    #[must_use]
    pub fn expected(&self) -> Nanos {
        let phases = self.phases.iter().map(|p| p.expected().0);
        let sessions = self.sessions();
        let warmups = sessions.iter().map(|s| self.phases[s.start].sampler.warmup.0);
        Nanos(phases.chain(warmups).fold(0, u64::saturating_add))
    }

    /// A sentence when the plan takes longer than [`LONGEST`].
    #[must_use]
    pub fn too_long(&self) -> Option<String> {
        let long = self.expected() > LONGEST;
        long.then(|| {
            format!("the plan would take longer than {LONGEST}: shorten its phases or remove some")
        })
    }

    /// All durations and cycle counts times a factor, so that a long plan can be tried in seconds.
    /// A duration stays at least 100 ms and a count at least 10 cycles.
    pub fn scale(&mut self, factor: f64) {
        for phase in &mut self.phases {
            if let Some(duration) = &mut phase.end.duration {
                *duration = duration.scaled(factor).max(Nanos::from_ms(100).min(*duration));
            }
            if let Some(cycles) = &mut phase.end.cycles {
                *cycles = ((*cycles as f64 * factor).round() as u64).max(10.min(*cycles));
            }
            phase.settle = phase.settle.scaled(factor);
        }
    }

    /// Scales the plan so that its phases take about this long together.
    pub fn scale_to(&mut self, duration: Nanos) {
        let now = self.phases.iter().map(|p| p.expected().0).fold(0, u64::saturating_add);
        if now > 0 {
            self.scale(duration.0 as f64 / now as f64);
        }
    }

    /// What the command line asks of the sampler and can't be, with the plan's phases: what doesn't
    /// fit together, and what no phase's policy takes. To be asked when the patch is laid over it.
    #[must_use]
    pub fn refusals(&self, patch: &SamplerPatch) -> Vec<String> {
        let policies: Vec<_> = self.phases.iter().map(|phase| phase.sampler.policy).collect();
        let useless = patch.without_meaning(&policies, Spelling::CommandLine).into_iter();
        let phases = self.phases.iter();
        let contradictions = phases.flat_map(|p| p.sampler.contradictions(Spelling::CommandLine));
        useless.map(|(_, sentence)| sentence).chain(contradictions).collect()
    }

    /// Ends every phase when a thread has recorded so many activations, in place of its own time and
    /// count.
    pub fn end_by_cycles(&mut self, cycles: u64) {
        for phase in &mut self.phases {
            phase.end = PhaseEnd { duration: None, cycles: Some(cycles), ..phase.end };
        }
    }

    /// Lays a patch over every phase's sampler: what the command line asks.
    pub fn patch_sampler(&mut self, patch: &SamplerPatch) {
        self.policy_asked |= patch.asks_policy();
        for phase in &mut self.phases {
            phase.sampler = patch.applied_to(&phase.sampler);
        }
    }

    /// The plan as TOML that [`parse`] reads back to an equal plan.
    #[must_use]
    pub fn to_toml(&self) -> String {
        text::write(self)
    }
}
