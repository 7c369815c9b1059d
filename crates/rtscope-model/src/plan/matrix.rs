//! A matrix: axes of settings, multiplied into phases.

use serde::Deserialize;

use super::{CpuChoice, End, Phase, Sampler, SamplerPatch};
use crate::{load::LoadLine, schedule::Policy, time::Nanos};

/// The `[matrix]` table. Sampler axes vary slowest, so that cells with one sampler share a session.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Matrix {
    /// Policies of the sampler.
    #[serde(default)]
    policy: Vec<Policy>,
    /// Priorities of the sampler.
    #[serde(default)]
    priority: Vec<u8>,
    /// Intervals of the sampler.
    #[serde(default)]
    interval: Vec<Nanos>,
    /// CPU sets of the sampler.
    #[serde(default)]
    cpus: Vec<CpuChoice>,
    /// Loads: `none`, one line, or several joined by ` + `.
    #[serde(default)]
    load: Vec<LoadCombination>,
    /// How long each cell takes.
    #[serde(default)]
    duration: Option<Nanos>,
    /// How many cycles each cell takes.
    #[serde(default)]
    cycles: Option<u64>,
    /// How long each cell's loads run before samples count.
    #[serde(default)]
    settle: Nanos,
}

/// Loads side by side; none is rest.
#[derive(Clone, Debug, Default)]
struct LoadCombination(Vec<LoadLine>);

impl<'de> Deserialize<'de> for LoadCombination {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<LoadCombination, D::Error> {
        let text = String::deserialize(d)?;
        if matches!(text.trim(), "none" | "rest") {
            return Ok(LoadCombination::default());
        }
        let lines: Result<_, _> = text.split(" + ").map(str::parse).collect();
        lines.map(LoadCombination).map_err(serde::de::Error::custom)
    }
}

impl LoadCombination {
    /// A short name that still says what matters: the loads, their kind, policy and CPUs.
    fn label(&self) -> String {
        if self.0.is_empty() {
            return "rest".to_owned();
        }
        let words = self.0.iter().map(|line| {
            let schedule = ["kind", "policy", "priority", "cpus"].iter().filter_map(|key| {
                let value = line.options.get(*key)?;
                Some(if *key == "cpus" { format!("on {value}") } else { value.clone() })
            });
            std::iter::once(line.name.clone()).chain(schedule).collect::<Vec<_>>().join(" ")
        });
        words.collect::<Vec<_>>().join(" + ")
    }
}

/// An axis of the sampler: its values as patches with a label; an absent axis is one empty patch.
fn axis<T: Clone>(
    values: &[T],
    label: impl Fn(&T) -> String,
    set: impl Fn(&mut SamplerPatch, T),
) -> Vec<(Option<String>, SamplerPatch)> {
    if values.is_empty() {
        return vec![(None, SamplerPatch::default())];
    }
    let patch = |value: &T| {
        let mut patch = SamplerPatch::default();
        set(&mut patch, value.clone());
        (Some(label(value)), patch)
    };
    values.iter().map(patch).collect()
}

impl Matrix {
    /// Whether an axis asks a policy or a priority by name.
    pub(super) fn asks_policy(&self) -> bool {
        !self.policy.is_empty() || !self.priority.is_empty()
    }

    /// The cells, each with a unique name.
    pub(super) fn phases(&self, base: &Sampler) -> Vec<Phase> {
        let axes = [
            axis(&self.cpus, |c| format!("CPUs {c}"), |p, v| p.cpus = Some(v)),
            axis(&self.policy, Policy::to_string, |p, v| p.policy = Some(v)),
            axis(&self.priority, |p| format!("priority {p}"), |p, v| p.priority = Some(v)),
            axis(&self.interval, |i| i.exact(), |p, v| p.interval = Some(v)),
        ];
        let mut samplers = vec![(Vec::new(), base.clone())];
        for axis in &axes {
            samplers = samplers
                .iter()
                .flat_map(|(labels, sampler): &(Vec<String>, Sampler)| {
                    axis.iter().map(|(label, patch)| {
                        let labels = labels.iter().chain(label).cloned().collect();
                        (labels, patch.applied_to(sampler))
                    })
                })
                .collect();
        }
        let rest = [LoadCombination::default()];
        let loads = if self.load.is_empty() { &rest[..] } else { &self.load[..] };
        let mut phases: Vec<Phase> = samplers
            .iter()
            .flat_map(|(labels, sampler)| {
                loads.iter().map(move |load| self.cell(labels, sampler, load))
            })
            .collect();
        make_unique(&mut phases);
        phases
    }

    fn cell(&self, labels: &[String], sampler: &Sampler, load: &LoadCombination) -> Phase {
        let name = labels.iter().cloned().chain([load.label()]).collect::<Vec<_>>().join(" / ");
        Phase {
            name,
            end: End { duration: self.duration, cycles: self.cycles, load_ends: false },
            settle: self.settle,
            loads: load.0.clone(),
            require: Vec::new(),
            sampler: sampler.clone(),
        }
    }
}

/// Numbers the cells whose labels are the same.
fn make_unique(phases: &mut [Phase]) {
    let labels: Vec<String> = phases.iter().map(|phase| phase.name.clone()).collect();
    for (i, phase) in phases.iter_mut().enumerate() {
        let twins = labels[..i].iter().filter(|label| **label == labels[i]).count();
        if twins > 0 {
            phase.name = format!("{} #{}", labels[i], twins + 1);
        }
    }
}
