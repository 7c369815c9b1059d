//! A matrix: axes of settings, multiplied into phases.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    CpuChoice, Phase, PhaseEnd, Sampler, SamplerPatch,
    sampler::{interval_axis, priority_axis},
};
use crate::{load::LoadLine, schedule::Policy, time::Nanos};

/// The `[matrix]` table. Repeats vary slowest, then settings and the sampler's axes, so that cells with
/// one sampler share a session: A B A B, never A A B B, as a machine changes while it is measured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Matrix {
    /// How often the whole is run, in turn.
    #[serde(default)]
    repeat: Repeat,
    /// System settings, as `throttling=off`.
    #[serde(default)]
    setting: Vec<Setting>,
    #[serde(default)]
    policy: Vec<Policy>,
    #[serde(default, deserialize_with = "priority_axis")]
    priority: Vec<u8>,
    #[serde(default, deserialize_with = "interval_axis")]
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

/// A number of repeats.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u32")]
struct Repeat(u32);

impl Default for Repeat {
    fn default() -> Repeat {
        Repeat(1)
    }
}

impl TryFrom<u32> for Repeat {
    type Error = String;

    fn try_from(count: u32) -> Result<Repeat, String> {
        match count {
            0 => Err("a matrix runs at least once".to_owned()),
            1..=1000 => Ok(Repeat(count)),
            _ => Err("a matrix repeats at most 1000 times".to_owned()),
        }
    }
}

/// A system setting and its value.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Setting {
    name: String,
    value: String,
}

impl TryFrom<String> for Setting {
    type Error = String;

    fn try_from(text: String) -> Result<Setting, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("the setting {text:?} does not have the form NAME=VALUE"))?;
        Ok(Setting { name: name.trim().to_owned(), value: value.trim().to_owned() })
    }
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

    /// The axes that have a meaning for some policies only.
    pub(super) fn axes(&self) -> SamplerPatch {
        SamplerPatch { priority: self.priority.first().copied(), ..SamplerPatch::default() }
    }

    pub(super) fn size(&self) -> usize {
        let axes = [
            self.cpus.len(),
            self.policy.len(),
            self.priority.len(),
            self.interval.len(),
            self.load.len(),
            self.setting.len(),
        ];
        axes.into_iter()
            .map(|values| values.max(1))
            .fold(self.repeat.0 as usize, usize::saturating_mul)
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
        let once = || {
            samplers.iter().flat_map(|(labels, sampler)| {
                loads.iter().map(move |load| self.cell(labels, sampler, load))
            })
        };
        let settings: Vec<Option<&Setting>> = match self.setting.as_slice() {
            [] => vec![None],
            all => all.iter().map(Some).collect(),
        };
        let under = |setting: Option<&Setting>| {
            let mut phases: Vec<Phase> = once().collect();
            if let Some(Setting { name, value }) = setting {
                for phase in &mut phases {
                    phase.name = format!("{name}={value} / {}", phase.name);
                    phase.settings.insert(name.clone(), value.clone());
                }
            }
            phases
        };
        let turns = (0..self.repeat.0).flat_map(|_| &settings);
        let mut phases: Vec<Phase> = turns.flat_map(|setting| under(*setting)).collect();
        make_unique(&mut phases);
        phases
    }

    fn cell(&self, labels: &[String], sampler: &Sampler, load: &LoadCombination) -> Phase {
        let name = labels.iter().cloned().chain([load.label()]).collect::<Vec<_>>().join(" / ");
        Phase {
            name,
            end: PhaseEnd { duration: self.duration, cycles: self.cycles, load_ends: false },
            settle: self.settle,
            loads: load.0.clone(),
            require: Vec::new(),
            settings: BTreeMap::new(),
            sampler: sampler.clone(),
        }
    }
}

/// Numbers the cells whose labels are the same.
fn make_unique(phases: &mut [Phase]) {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for phase in phases {
        let times = seen.entry(phase.name.clone()).and_modify(|times| *times += 1).or_insert(1);
        if *times > 1 {
            phase.name = format!("{} #{times}", phase.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::parse;

    #[test]
    fn a_matrix_is_multiplied_out() {
        let text = r#"
name = "policies"
[matrix]
duration = "1s"
policy = ["fifo", "other"]
load = ["none", "message", "message policy=fifo priority=49", "cpu + io"]
"#;
        let plan = parse("m", text).expect("a plan");
        let names: Vec<&str> = plan.phases.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(
            names[..4],
            ["fifo / rest", "fifo / message", "fifo / message fifo 49", "fifo / cpu + io"]
        );
        assert_eq!(plan.sessions(), [0..4, 4..8]);
        assert_eq!(parse("again", &plan.to_toml()), Ok(plan));
    }

    #[test]
    fn repeats_are_interleaved_and_settings_are_an_axis() {
        let text = r#"
name = "throttled"
[matrix]
duration = "1s"
repeat = 2
setting = ["throttling=on", "throttling=off"]
load = ["none", "message"]
"#;
        let plan = parse("m", text).expect("a plan");
        let names: Vec<&str> = plan.phases.iter().map(|p| p.name.as_str()).collect();
        let [on, off] = ["throttling=on", "throttling=off"];
        let once = [format!("{on} / rest"), format!("{on} / message")];
        let once = once.into_iter().chain([format!("{off} / rest"), format!("{off} / message")]);
        let once: Vec<String> = once.collect();
        let twice = once.iter().cloned().chain(once.iter().map(|name| format!("{name} #2")));
        assert_eq!(names, twice.collect::<Vec<_>>());
        assert_eq!(plan.sessions(), [0..2, 2..4, 4..6, 6..8]);
        assert_eq!(plan.phases[2].settings["throttling"], "off");
        assert_eq!(plan.settings_of(&plan.phases[4])["throttling"], "on");
        assert_eq!(parse("again", &plan.to_toml()), Ok(plan));
        let said = |from: &str, to: &str| {
            parse("m", &text.replace(from, to)).expect_err("refused").to_string()
        };
        assert!(said("repeat = 2", "repeat = 0").contains("at least once"));
        assert!(said("throttling=off", "throttling").contains("NAME=VALUE"));
    }

    /// The fuzzer found that a matrix accepted values that a `[sampler]` table refuses.
    #[test]
    fn axes_are_held_to_the_ranges_of_a_sampler() {
        let said = |axis: &str| {
            let text =
                format!("name = 'm'\n[matrix]\nduration = '1s'\npolicy = ['fifo']\n{axis}\n");
            parse("m", &text).expect_err(axis).to_string()
        };
        for interval in ["0ms", "9us", "25h"] {
            let said = said(&format!("interval = ['1ms', '{interval}']"));
            assert!(said.contains("interval is out of range"), "{said}");
        }
        for priority in ["0", "100", "255", "-1", "300"] {
            let said = said(&format!("priority = [50, {priority}]"));
            assert!(said.contains("priority is out of range"), "{said}");
        }
    }

    #[test]
    fn a_plan_of_too_many_phases_is_refused_before_they_are_made() {
        let numbers =
            |n: u64| (0..n).map(|i| format!("\"{}us\"", 100 + i)).collect::<Vec<_>>().join(",");
        let matrix = format!(
            "name = 'm'\n[matrix]\nduration = '1s'\nrepeat = 1000\ninterval = [{}]\nload = [{}]\n",
            numbers(1_000),
            vec!["'none'"; 1_000].join(",")
        );
        let said = parse("m", &matrix).expect_err("refused").to_string();
        assert!(
            said.contains("the matrix has 1000000000 phases, but the maximum is 10000"),
            "{said}"
        );
        let phases: String = (0..10_001)
            .map(|i| format!("[[phase]]\nname = 'p{i}'\nduration = '100ms'\n"))
            .collect();
        let said = parse("p", &format!("name = 'p'\n{phases}")).expect_err("refused").to_string();
        assert!(said.contains("the plan has 10001 phases"), "{said}");
    }
}
