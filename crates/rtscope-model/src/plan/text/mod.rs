//! Plans as TOML: reading with line and suggestion, writing back.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{
    Phase, PhaseEnd, Plan, Sampler, SamplerPatch, Spelling,
    matrix::Matrix,
    mistakes::{self, Typed, values},
};
use crate::{
    load::LoadLine,
    published::Published,
    text::{Problem, TextError, line_of, lines_of, problem_of},
    time::Nanos,
    verdict::Requirement,
};

/// A plan as it is typed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanText {
    name: Option<String>,
    #[serde(default)]
    title: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    require: Vec<Typed<Requirement>>,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    #[serde(default)]
    until_decided: bool,
    sampler: Option<Spanned<SamplerPatch>>,
    #[serde(default)]
    phase: Vec<Spanned<PhaseText>>,
    matrix: Option<Spanned<Matrix>>,
    #[serde(default)]
    published: Vec<Spanned<Published>>,
}

/// A phase as it is typed.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseText {
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration: Option<Typed<Nanos>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cycles: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    load_ends: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settle: Option<Typed<Nanos>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    load: Vec<Typed<LoadLine>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    require: Vec<Typed<Requirement>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    settings: BTreeMap<String, String>,
    #[serde(default)]
    sampler: SamplerPatch,
}

/// Reads a plan. `name` is how errors call the text: a file's path or a built-in plan's name.
///
/// # Errors
///
/// What is wrong, with line and, for a misspelt key, what was perhaps meant.
pub fn parse(name: &str, text: &str) -> Result<Plan, TextError> {
    read(name, text, true, &Checks { load: &|_| Ok(()), setting: &|_, _| Ok(()) })
}

/// Checks of a plan by whoever knows the loads and the settings that there are.
pub struct Checks<'a> {
    /// What is wrong with a load.
    pub load: &'a dyn Fn(&LoadLine) -> Result<(), Problem>,
    /// What is wrong with a setting or its value.
    pub setting: &'a dyn Fn(&str, &str) -> Result<(), Problem>,
}

impl std::fmt::Debug for Checks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checks").finish_non_exhaustive()
    }
}

/// Reads a plan, and checks its loads and settings: all that is wrong is told at once.
pub fn parse_checked(name: &str, text: &str, checks: &Checks<'_>) -> Result<Plan, TextError> {
    read(name, text, true, checks)
}

/// Reads a plan that rtscope has kept or imported, as in a record: what has no meaning beside its
/// policy is no mistake there, for an earlier rtscope took it.
pub fn parse_kept(name: &str, text: &str) -> Result<Plan, TextError> {
    read(name, text, false, &Checks { load: &|_| Ok(()), setting: &|_, _| Ok(()) })
}

/// The most phases of a plan, or cells of its matrix: more would only fill the memory before anything runs.
const PHASES_MAX: usize = 10_000;

fn read(name: &str, text: &str, typed_now: bool, checks: &Checks<'_>) -> Result<Plan, TextError> {
    let fail = |mut problems: Vec<Problem>| {
        problems.sort_by_key(|problem| problem.line);
        TextError { name: name.to_owned(), problems }
    };
    let (typed, mut problems) = mistakes::read::<PlanText>(text);
    let Some(typed) = typed else { return Err(fail(problems)) };
    problems.extend(unnamed(text, &typed, &problems));
    problems.extend(unreadable(text, &typed));
    let size = typed.matrix.as_ref().map_or(typed.phase.len(), |matrix| matrix.as_ref().size());
    if size > PHASES_MAX {
        let what = if typed.matrix.is_some() { "the matrix has" } else { "the plan has" };
        let message = format!(
            "{what} {size} phases, but the maximum is {PHASES_MAX}: split it into several plans"
        );
        return Err(fail(vec![Problem::new(message)]));
    }
    let sampler = typed.sampler.as_ref().map(|sampler| sampler.as_ref().clone());
    let base = sampler.clone().unwrap_or_default().applied_to(&Sampler::default());
    let phases: Vec<Phase> = match &typed.matrix {
        Some(matrix) => matrix.as_ref().phases(&base),
        None => typed.phase.iter().map(|phase| phase.as_ref().resolved(&base)).collect(),
    };
    let mut found = check(text, &typed, &phases);
    if typed_now {
        found.extend(without_effect(text, &typed, &phases));
    }
    found.extend(unknown(text, &typed, &phases, checks));
    problems.extend(own(text, &typed, &problems, found));
    if !problems.is_empty() {
        return Err(fail(problems));
    }
    let policy_asked = sampler.is_some_and(|sampler| sampler.asks_policy())
        || typed.phase.iter().any(|phase| phase.as_ref().sampler.asks_policy())
        || typed.matrix.as_ref().is_some_and(|matrix| matrix.as_ref().asks_policy());
    let plan = Plan {
        policy_asked,
        name: typed.name.unwrap_or_default(),
        title: typed.title,
        about: typed.about,
        require: values(&typed.require),
        settings: typed.settings,
        until_decided: typed.until_decided,
        phases,
        published: typed.published.into_iter().map(Spanned::into_inner).collect(),
    };
    match plan.too_long() {
        Some(why) if typed_now => Err(fail(vec![Problem::new(why)])),
        _ => Ok(plan.with_printable_names()),
    }
}

/// Reads sampler fields that were given as texts on a command line, by the same rules as a plan's
/// `[sampler]` table. `intervals` is separated by commas.
///
/// # Errors
///
/// What is wrong, as for a plan.
pub fn parse_sampler<'a>(
    given: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<SamplerPatch, TextError> {
    let given: Vec<(&str, &str)> = given.into_iter().collect();
    for (key, advice) in NOT_NOTHING {
        if let Some((_, text)) =
            given.iter().find(|(k, v)| k == key && v.parse() == Ok(Nanos::ZERO))
        {
            let name = format!("--{} {text}", key.replace('_', "-"));
            return Err(TextError { name, problems: vec![Problem::new(*advice)] });
        }
    }
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let line = |(key, text): (&str, &str)| {
        let value = match text {
            text if key == "intervals" => {
                let times: Vec<String> = text.split(',').map(|t| quoted(t.trim())).collect();
                format!("[{}]", times.join(", "))
            }
            "true" | "false" => text.to_owned(),
            number if number.parse::<i64>().is_ok() && !takes_text(key) => number.to_owned(),
            text => quoted(text),
        };
        format!("{key} = {value}\n")
    };
    let text: String = given.into_iter().map(line).collect();
    toml::from_str(&text).map_err(|e: toml::de::Error| {
        let at = e.span().map_or(0, |span| span.start);
        let key = text[..at].lines().count().max(1);
        let line = text.lines().nth(key - 1).unwrap_or_default();
        let problem = Problem { line: None, ..problem_of(&text, &e) };
        let (key, value) = line.split_once(" = ").unwrap_or((line, ""));
        let name = format!("--{} {value}", key.replace('_', "-"));
        TextError { name, problems: vec![problem] }
    })
}

/// Options whose 0 would be the default in a plan: on a command line it is a mistake.
const NOT_NOTHING: &[(&str, &str)] = &[
    ("threads", "at least one thread measures: leave it out for one on each measured CPU"),
    (
        "runtime",
        "a deadline thread needs a runtime above 0: leave it out for a tenth of the interval",
    ),
    (
        "break_above",
        "every latency is above 0: write a limit such as 200us, or leave it out so that no latency stops the run",
    ),
];

/// Whether a sampler field that is written as a number is a text all the same: a time or CPUs.
fn takes_text(key: &str) -> bool {
    !matches!(key, "threads" | "priority" | "nice" | "buckets" | "spread_seed")
}

impl PhaseText {
    fn resolved(&self, base: &Sampler) -> Phase {
        Phase {
            name: self.name.clone().unwrap_or_default(),
            end: PhaseEnd {
                duration: self.duration.as_ref().and_then(Typed::value).copied(),
                cycles: self.cycles,
                load_ends: self.load_ends,
            },
            settle: self.settle.as_ref().and_then(Typed::value).copied().unwrap_or_default(),
            loads: values(&self.load),
            require: values(&self.require),
            settings: self.settings.clone(),
            sampler: self.sampler.applied_to(base),
        }
    }
}

/// What lacks its name, and not because its name can't be read. It isn't left to serde, which reads nothing further
/// without it.
fn unnamed(text: &str, typed: &PlanText, known: &[Problem]) -> Vec<Problem> {
    let starts = lines_of(text, typed.phase.iter().map(|phase| phase.span().start));
    let is_name = |line: usize| {
        text.lines().nth(line - 1).is_some_and(|line| line.trim_start().starts_with("name"))
    };
    let unreadable: Vec<usize> =
        known.iter().filter_map(|problem| problem.line).filter(|line| is_name(*line)).collect();
    let mut problems = Vec::new();
    let mut add = |start: usize, end: usize| {
        if !unreadable.iter().any(|line| (start..end).contains(line)) {
            problems.push(Problem { line: Some(start), ..Problem::new("missing key `name`") });
        }
    };
    if typed.name.is_none() {
        add(1, starts.first().copied().unwrap_or(usize::MAX));
    }
    for (n, _) in typed.phase.iter().enumerate().filter(|(_, phase)| phase.as_ref().name.is_none())
    {
        add(starts[n], starts.get(n + 1).copied().unwrap_or(usize::MAX));
    }
    problems
}

/// Values that can't be read.
fn unreadable(text: &str, typed: &PlanText) -> Vec<Problem> {
    let of_phase = |phase: &PhaseText| -> Vec<Problem> {
        let times =
            phase.duration.iter().chain(&phase.settle).filter_map(|time| time.problem(text));
        let loads = phase.load.iter().filter_map(|load| load.problem(text));
        let limits = phase.require.iter().filter_map(|limit| limit.problem(text));
        times.chain(loads).chain(limits).collect()
    };
    let limits = typed.require.iter().filter_map(|limit| limit.problem(text));
    limits.chain(typed.phase.iter().flat_map(|phase| of_phase(phase.as_ref()))).collect()
}

/// What was found, without what may follow from mistakes in the same phase or published entry: a phase whose duration
/// can't be read isn't one without an end.
fn own(text: &str, typed: &PlanText, known: &[Problem], found: Vec<Problem>) -> Vec<Problem> {
    let phases = typed.phase.iter().map(|phase| phase.span().start);
    let entries = typed.published.iter().map(|entry| entry.span().start);
    let starts = lines_of(text, phases.chain(entries));
    let phase_of = |problem: &Problem| {
        problem.line.map(|line| starts.iter().filter(|start| **start <= line).count())
    };
    let is_own = |problem: &Problem| {
        let is_of_whole = STRUCTURE.iter().any(|words| problem.message.contains(words));
        known.is_empty()
            || problem.line.is_some()
                && !known.iter().any(|known| known.line == problem.line)
                && !(is_of_whole && known.iter().any(|known| phase_of(known) == phase_of(problem)))
    };
    found.into_iter().filter(is_own).collect()
}

/// What is only said of a phase, or of a published entry, in which everything else could be read.
const STRUCTURE: [&str; 6] = [
    "has no end",
    "ends with its load",
    "has no meaning",
    "a published entry needs",
    "a published figure names",
    "no phase of the plan has",
];

/// Loads and settings that whoever runs the plan doesn't know.
fn unknown(text: &str, typed: &PlanText, phases: &[Phase], checks: &Checks<'_>) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    let mut add = |at: usize, checked: Result<(), Problem>| {
        let Err(problem) = checked else { return };
        let problem = Problem { line: Some(line_of(text, at)), ..problem };
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    };
    for (setting, value) in &typed.settings {
        add(offset_of(text, 0, setting), (checks.setting)(setting, value));
    }
    for phase in &typed.phase {
        let (start, phase) = (phase.span().start, phase.as_ref());
        for (load, line) in phase.load.iter().filter_map(|load| Some((load, load.value()?))) {
            add(load.at, (checks.load)(line));
        }
        for (setting, value) in &phase.settings {
            add(offset_of(text, start, setting), (checks.setting)(setting, value));
        }
    }
    if let Some(matrix) = &typed.matrix {
        let start = matrix.span().start;
        for load in phases.iter().flat_map(|phase| &phase.loads) {
            let typed = text[start..].find(&load.to_string());
            let at = typed.or_else(|| text[start..].find(load.name.as_str())).unwrap_or(0);
            add(start + at, (checks.load)(load));
        }
        for (setting, value) in phases.iter().flat_map(|phase| &phase.settings) {
            add(offset_of(text, start, setting), (checks.setting)(setting, value));
        }
    }
    problems
}

/// What can only be seen when the whole is read.
fn check(text: &str, typed: &PlanText, phases: &[Phase]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut report = |offset: Option<usize>, message: String| {
        let line = offset.map(|offset| line_of(text, offset));
        problems.push(Problem { line, message, suggestion: None });
    };
    if typed.matrix.is_some() && !typed.phase.is_empty() {
        report(None, "a plan has phases or a matrix, not both".to_owned());
    }
    if phases.is_empty() {
        report(None, "the plan has no phase: add a [[phase]] or a [matrix]".to_owned());
    }
    let is_claim = |requirement: &Requirement| requirement.once_in.is_some();
    if typed.until_decided && !typed.require.iter().filter_map(Typed::value).any(is_claim) {
        report(
            None,
            "until_decided needs a claim in require, for example 'max < 200us once in 1h'"
                .to_owned(),
        );
    }
    let matrix_at = typed.matrix.as_ref().map(|m| m.span().start);
    let (mut refused, mut names) = (Vec::<String>::new(), BTreeSet::new());
    for (i, phase) in phases.iter().enumerate() {
        let at = matrix_at.or_else(|| typed.phase.get(i).map(|p| p.span().start));
        if phase.end.duration.is_none() && phase.end.cycles.is_none() {
            report(at, format!("phase {:?} has no end: give it a duration or cycles", phase.name));
        }
        if phase.end.duration == Some(Nanos::ZERO) || phase.end.cycles == Some(0) {
            report(at, format!("phase {:?} ends before it starts", phase.name));
        }
        if phase.end.load_ends && phase.loads.is_empty() {
            report(at, format!("phase {:?} ends with its load, but has none", phase.name));
        }
        if !names.insert(&phase.name) {
            report(at, format!("two phases are named {:?}", phase.name));
        }
        for contradiction in phase.sampler.contradictions(Spelling::Plan) {
            if !refused.contains(&contradiction) {
                report(at, contradiction.clone());
                refused.push(contradiction);
            }
        }
    }
    problems.extend(published_problems(text, &typed.published, phases));
    problems
}

/// Published entries that say nothing, or that no phase can be set beside.
fn published_problems(text: &str, all: &[Spanned<Published>], phases: &[Phase]) -> Vec<Problem> {
    let problem = |entry: &Spanned<Published>| {
        let published = entry.as_ref();
        let names = phases.iter().map(|phase| phase.name.as_str());
        let problem = published.problem("phase", names).or_else(|| {
            let fits = |phase: &Phase| {
                published.subject.as_ref().is_none_or(|name| *name == phase.name)
                    && published.policy.is_none_or(|policy| policy == phase.sampler.policy)
                    && published.fits_load(&phase.load_text())
            };
            let is_of_none = published.condition.is_none() && !phases.iter().any(fits);
            is_of_none.then(|| {
                Problem::new(
                    "no phase of the plan has this policy and load: see `rtscope plan show`",
                )
            })
        })?;
        Some(Problem { line: Some(line_of(text, entry.span().start)), ..problem })
    };
    all.iter().filter_map(problem).collect()
}

/// What is typed and has no effect: no phase that it is for has a policy that it has a meaning for.
fn without_effect(text: &str, typed: &PlanText, phases: &[Phase]) -> Vec<Problem> {
    let all: Vec<_> = phases.iter().map(|phase| phase.sampler.policy).collect();
    let of_plan = typed.sampler.iter().map(|s| (s.span().start, s.as_ref().clone(), &all[..]));
    let axes = typed.matrix.iter().map(|m| (m.span().start, m.as_ref().axes(), &all[..]));
    let each = typed.phase.iter().enumerate();
    let each = each.filter_map(|(i, phase)| {
        Some((phase.span().start, phase.as_ref().sampler.clone(), all.get(i..=i)?))
    });
    let mut problems = Vec::new();
    for (start, patch, policies) in of_plan.chain(axes).chain(each) {
        for (key, message) in patch.without_meaning(policies, Spelling::Plan) {
            let line = Some(line_of(text, offset_of(text, start, key)));
            problems.push(Problem { line, message, suggestion: None });
        }
    }
    problems
}

/// Where a key of the table at `start` is set; where that can't be seen, the table.
fn offset_of(text: &str, start: usize, key: &str) -> usize {
    let is_set = |at: &usize| {
        let before = text[..*at].trim_end_matches([' ', '\t']).chars().next_back();
        before.is_none_or(|c| "\n.{,".contains(c))
            && text[at + key.len()..].trim_start().starts_with('=')
    };
    let mut named = text[start..].match_indices(key).map(|(at, _)| start + at);
    named.find(is_set).unwrap_or(start)
}

/// The plan as TOML: one `[sampler]` table, and in each phase only what differs from it.
pub(super) fn write(plan: &Plan) -> String {
    #[derive(Serialize)]
    struct Written<'a> {
        name: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        title: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        about: &'a str,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        require: &'a [Requirement],
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        settings: &'a BTreeMap<String, String>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        until_decided: bool,
        sampler: SamplerPatch,
        phase: Vec<PhaseText>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        published: &'a [Published],
    }
    let default = Sampler::default();
    // What has no meaning for a phase's policy is left out: as typed it would be refused.
    let base = plan.phases.first().map_or_else(|| default.clone(), |p| p.sampler.in_effect());
    let phase = plan.phases.iter().map(|phase| PhaseText {
        name: Some(phase.name.clone()),
        duration: phase.end.duration.map(Typed::from),
        cycles: phase.end.cycles,
        load_ends: phase.end.load_ends,
        settle: (phase.settle != Nanos::ZERO).then_some(phase.settle.into()),
        load: phase.loads.iter().cloned().map(Typed::from).collect(),
        require: phase.require.iter().copied().map(Typed::from).collect(),
        settings: phase.settings.clone(),
        sampler: SamplerPatch::between(&base, &phase.sampler).only_for(phase.sampler.policy),
    });
    let mut sampler = SamplerPatch::between(&default, &base);
    if plan.policy_asked {
        sampler.policy = Some(base.policy);
    }
    let written = Written {
        name: &plan.name,
        title: &plan.title,
        about: &plan.about,
        require: &plan.require,
        settings: &plan.settings,
        until_decided: plan.until_decided,
        sampler,
        phase: phase.collect(),
        published: &plan.published,
    };
    toml::to_string(&written).expect("a plan is made of tables, arrays, texts and numbers")
}

#[cfg(test)]
mod tests;
