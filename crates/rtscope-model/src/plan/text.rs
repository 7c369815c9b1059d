//! Plans as TOML: reading with line and suggestion, writing back.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{End, Phase, Plan, Published, Sampler, SamplerPatch, Spelling, matrix::Matrix};
use crate::{
    load::LoadLine,
    text::{Problem, TextError, line_of, problem_of, suggest},
    time::Nanos,
    verdict::Requirement,
};

/// A plan as it is typed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanText {
    name: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    require: Vec<Requirement>,
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
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration: Option<Nanos>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cycles: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    load_ends: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settle: Option<Nanos>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    load: Vec<LoadLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    require: Vec<Requirement>,
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
    read(name, text, true)
}

/// Reads a plan that rtscope has kept or imported, as in a record: what has no meaning beside its
/// policy is no mistake there, for an earlier rtscope took it.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_kept(name: &str, text: &str) -> Result<Plan, TextError> {
    read(name, text, false)
}

/// The most phases of a plan, or cells of its matrix: more would only fill the memory before anything runs.
const PHASES_MAX: usize = 10_000;

fn read(name: &str, text: &str, typed_now: bool) -> Result<Plan, TextError> {
    let fail = |problems: Vec<Problem>| TextError { name: name.to_owned(), problems };
    let typed: PlanText = toml::from_str(text).map_err(|e| fail(vec![problem_of(text, &e)]))?;
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
    let mut problems = check(text, &typed, &phases);
    if typed_now {
        problems.extend(without_effect(text, &typed, &phases));
    }
    if !problems.is_empty() {
        return Err(fail(problems));
    }
    let policy_asked = sampler.is_some_and(|sampler| sampler.asks_policy())
        || typed.phase.iter().any(|phase| phase.as_ref().sampler.asks_policy())
        || typed.matrix.as_ref().is_some_and(|matrix| matrix.as_ref().asks_policy());
    let plan = Plan {
        policy_asked,
        name: typed.name,
        title: typed.title,
        about: typed.about,
        require: typed.require,
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
    ("runtime", "a deadline thread needs some: leave it out for a tenth of the interval"),
    (
        "break_above",
        "every latency is above 0: write a limit, as 200us, or leave it out and the run never breaks",
    ),
];

/// Whether a sampler field that is written as a number is a text all the same: a time or CPUs.
fn takes_text(key: &str) -> bool {
    !matches!(key, "threads" | "priority" | "nice" | "buckets")
}

impl PhaseText {
    fn resolved(&self, base: &Sampler) -> Phase {
        Phase {
            name: self.name.clone(),
            end: End { duration: self.duration, cycles: self.cycles, load_ends: self.load_ends },
            settle: self.settle.unwrap_or_default(),
            loads: self.load.clone(),
            require: self.require.clone(),
            settings: self.settings.clone(),
            sampler: self.sampler.applied_to(base),
        }
    }
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
    if typed.until_decided && typed.require.iter().all(|requirement| requirement.once_in.is_none())
    {
        report(None, "until_decided needs a claim in require: 'max < 200us once in 1h'".to_owned());
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
    for published in &typed.published {
        let (at, name) = (published.span().start, &published.as_ref().phase);
        if !phases.iter().any(|phase| phase.name == *name) {
            let known = phases.iter().map(|phase| phase.name.as_str());
            problems.push(Problem {
                line: Some(line_of(text, at)),
                message: format!("a published figure is of phase {name:?}, which is not there"),
                suggestion: suggest(name, known),
            });
        }
    }
    problems
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
        name: phase.name.clone(),
        duration: phase.end.duration,
        cycles: phase.end.cycles,
        load_ends: phase.end.load_ends,
        settle: (phase.settle != Nanos::ZERO).then_some(phase.settle),
        load: phase.loads.clone(),
        require: phase.require.clone(),
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
mod tests {
    use super::*;
    use crate::{plan::Pinning, schedule::Policy};

    const PHASES: &str = r#"
name = "two"
require = ["max < 200us"]
settings = { throttling = "off" }

[sampler]
priority = 80
interval = "500us"

[[phase]]
name = "rest"
duration = "5s"

[[phase]]
name = "load"
cycles = 1000
load = ["message groups=1", "external -- make all"]
sampler.policy = "rr"
"#;

    #[test]
    fn a_plan_is_read_and_written_back() {
        let plan = parse("two.toml", PHASES).expect("a plan");
        assert_eq!(plan.phases.len(), 2);
        assert_eq!(plan.phases[0].sampler.priority, 80);
        assert_eq!(plan.phases[1].sampler.policy, Policy::Rr);
        assert_eq!(plan.sessions(), [0..1, 1..2]);
        assert_eq!(plan.phases[1].expected(), Nanos::from_ms(500));
        assert_eq!(parse("again", &plan.to_toml()), Ok(plan));
    }

    #[test]
    fn a_published_figure_belongs_to_a_phase() {
        let with = |phase: &str| {
            let figure = "real_time = false\nmax = \"878us\"\nsource = \"a lab\"\n";
            format!("{PHASES}\n[[published]]\nphase = \"{phase}\"\n{figure}")
        };
        let plan = parse("two.toml", &with("rest")).expect("a plan");
        assert_eq!(plan.published[0].max, Nanos::from_us(878));
        assert_eq!(parse("again", &plan.to_toml()), Ok(plan));
        let said = parse("two.toml", &with("rset")).expect_err("refused").to_string();
        assert!(said.contains("two.toml:20:") && said.contains("\"rest\""), "{said}");
    }

    #[test]
    fn mistakes_are_named_with_line_and_suggestion() {
        let wrong = |from: &str, to: &str| {
            parse("p.toml", &PHASES.replace(from, to)).expect_err("refused").to_string()
        };
        assert!(
            wrong("priority = 80", "prioritty = 80").contains("p.toml:7: unknown key `prioritty`")
        );
        assert!(wrong("priority = 80", "prioritty = 80").contains("did you mean \"priority\"?"));
        assert!(
            wrong("priority = 80", "priority = 100").contains("p.toml:7: priority is out of range")
        );
        assert!(wrong("\"500us\"", "\"0\"").contains("p.toml:8: interval is out of range"));
        assert!(wrong("\"500us\"", "\"fast\"").contains("is not a duration"));
        assert!(wrong("cycles = 1000\n", "").contains("phase \"load\" has no end"));
        assert!(wrong("\"load\"", "\"rest\"").contains("p.toml:14: two phases are named"));
        let pinned = "\"deadline\"\nsampler.placement = \"pinned\"";
        assert!(wrong("\"rr\"", pinned).contains("refuses to pin"));
        assert!(wrong("\"rr\"", "\"fito\"").contains("did you mean \"fifo\"?"));
        assert!(wrong("groups=1", "groups").contains("key=value"));
        assert!(wrong("max < 200us", "max").contains("p.toml:3:"));
        assert!(parse("p", "name = \"x\"").expect_err("refused").to_string().contains("no phase"));
    }

    #[test]
    fn what_has_no_meaning_for_a_policy_is_refused_where_it_is_typed() {
        let said = |from: &str, to: &str| match parse("p.toml", &PHASES.replace(from, to)) {
            Ok(_) => String::new(),
            Err(refused) => refused.to_string(),
        };
        let other = "policy = \"other\"\npriority = 80";
        // Phase "load" is RR: the plan's priority is for it.
        assert_eq!(said("priority = 80", other), "");
        assert_eq!(said("\"rr\"", "\"other\""), "", "phase \"rest\" is still FIFO");
        let dotted = "sampler.policy = \"other\"\nload = [\"cpu policy=fifo priority=3\"]\nsampler.priority = 5";
        let both = "p.toml:19: priority has no meaning for policy other: leave it out, or write \
                    policy = \"fifo\" or policy = \"rr\"";
        let loads =
            "load = [\"message groups=1\", \"external -- make all\"]\nsampler.policy = \"rr\"";
        assert_eq!(said(loads, dotted), both);
        let inline = "sampler = { policy = \"fifo\", nice = 5 }";
        assert!(said("sampler.policy = \"rr\"", inline).starts_with("p.toml:18: nice has no"));
        assert!(
            said("priority = 80", "runtime = \"1ms\"")
                .starts_with("p.toml:7: runtime has no meaning for policy fifo and rr")
        );
        let too_many = said("priority = 80", "threads = 1\nintervals = [\"1ms\", \"2ms\"]");
        assert!(too_many.contains("2 values for 1 thread:"), "{too_many}");
        let at_root = "name = \"x\"\nsampler.policy = \"idle\"\nsampler.nice = 5\n[[phase]]\nname = \"p\"\ncycles = 10";
        let refused = parse("p.toml", at_root).expect_err("refused").to_string();
        assert!(refused.starts_with("p.toml:3: nice has no meaning for policy idle"), "{refused}");
        parse_kept("plan.toml", at_root).expect("an earlier rtscope took it");
    }

    #[test]
    fn an_axis_of_priorities_needs_one_policy_that_takes_them() {
        let matrix = |policies: &str| {
            let text = format!(
                "name = 'm'\n[matrix]\ncycles = 10\npolicy = [{policies}]\npriority = [10, 50]\n"
            );
            parse("m.toml", &text).map_err(|e| e.to_string())
        };
        let refused = matrix("'other', 'batch'").expect_err("refused");
        assert!(
            refused.starts_with("m.toml:5: priority has no meaning for policy batch and other")
        );
        let plan = matrix("'fifo', 'other'").expect("FIFO takes them");
        assert_eq!(plan.phases.len(), 4);
        // What is kept of it can be run again, with the same sessions.
        let again = parse("plan.toml", &plan.to_toml()).expect("sound");
        assert_eq!(again.sessions(), plan.sessions());
    }

    #[test]
    fn a_command_line_is_refused_what_no_phase_takes() {
        let refused = |pairs: &[(&'static str, &'static str)]| {
            let patch = parse_sampler(pairs.iter().copied()).expect("each is sound");
            let mut plan = parse("two.toml", PHASES).expect("a plan");
            plan.patch_sampler(&patch);
            // What the plan's own priority was is kept out of the record: it can be run again.
            parse("plan.toml", &plan.to_toml()).expect("sound");
            plan.refusals(&patch).into_iter().next().unwrap_or_default()
        };
        assert_eq!(refused(&[("policy", "other")]), "");
        assert_eq!(refused(&[("priority", "5")]), "");
        assert_eq!(
            refused(&[("policy", "other"), ("priority", "5")]),
            "--priority has no meaning for policy other: leave it out, or write --policy fifo or \
             --policy rr"
        );
        assert!(refused(&[("nice", "5")]).starts_with("--nice has no meaning for policy fifo and"));
        assert!(refused(&[("runtime", "5ms")]).ends_with("or write --policy deadline"));
    }

    #[test]
    fn deadline_threads_are_free_and_pinning_them_is_refused() {
        let of = |words: &[(&str, &str)]| {
            let patch = parse_sampler(words.iter().copied()).expect("sound");
            let mut plan = parse("two.toml", PHASES).expect("a plan");
            plan.patch_sampler(&patch);
            let refused = plan.refusals(&patch).into_iter().next();
            (plan.phases[0].sampler.placement, refused.unwrap_or_default())
        };
        assert_eq!(of(&[("policy", "deadline")]), (Pinning::Free, String::new()));
        let (_, refused) = of(&[("policy", "deadline"), ("placement", "pinned")]);
        assert!(refused.ends_with("set --placement free"), "{refused}");
        let in_file = PHASES.replace("\"rr\"", "\"deadline\"\nsampler.placement = \"pinned\"");
        let refused = parse("p", &in_file).expect_err("refused").to_string();
        assert!(refused.ends_with("set placement = \"free\""), "{refused}");
    }

    #[test]
    fn a_zero_on_the_command_line_is_no_wish_for_the_default() {
        for (key, said) in [
            ("threads", "--threads 0: at least one thread"),
            ("break_above", "--break-above 0: every latency is above 0"),
            ("runtime", "--runtime 0: a deadline thread"),
        ] {
            let refused = parse_sampler([(key, "0")]).expect_err(key).to_string();
            assert!(refused.starts_with(said), "{refused}");
        }
        for (key, value, said) in [
            ("priority", "-1", "--priority -1: priority is out of range"),
            ("threads", "-1", "--threads -1: threads is out of range"),
            ("interval", "-5us", "is not a duration"),
        ] {
            let refused = parse_sampler([(key, value)]).expect_err(key).to_string();
            assert!(refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn sampler_options_follow_the_same_rules() {
        let read = |pairs: &[(&'static str, &'static str)]| parse_sampler(pairs.iter().copied());
        let patch =
            read(&[("priority", "80"), ("cpus", "1"), ("interval", "200us"), ("raw", "true")]);
        let sampler = patch.expect("sound").applied_to(&Sampler::default());
        assert_eq!(
            (sampler.priority, sampler.interval, sampler.raw),
            (80, Nanos::from_us(200), true)
        );
        let intervals = read(&[("intervals", "1ms, 2ms")]).expect("sound").intervals;
        assert_eq!(intervals, Some(vec![Nanos::from_ms(1), Nanos::from_ms(2)]));
        let spread = read(&[("spread", "true")]).expect("sound").applied_to(&sampler);
        assert_eq!(
            (sampler.interval_of(0), spread.interval_of(0)),
            (Nanos(200_000), Nanos(201_236))
        );
        let wrong = |pairs| read(pairs).expect_err("refused").to_string();
        assert!(
            wrong(&[("cpus", "0"), ("priority", "100")])
                .starts_with("--priority 100: priority is out of range")
        );
        assert!(wrong(&[("interval", "0")]).contains("out of range"));
        // The interval of the last thread was a product that overflowed.
        assert!(wrong(&[("distance", "9999d")]).contains("at most 1h"));
        assert!(wrong(&[("stagger", "9999d")]).contains("at most 1h"));
        assert!(wrong(&[("policy", "fito")]).contains("did you mean \"fifo\""));
    }

    #[test]
    fn a_plan_that_no_clock_would_see_end_is_refused() {
        let mut plan = parse("two.toml", PHASES).expect("a plan");
        assert_eq!(plan.too_long(), None);
        plan.scale(1e30);
        assert!(plan.too_long().is_some_and(|why| why.contains("longer than 36500 d")));
        let refused = |from, to| parse("p", &PHASES.replace(from, to)).expect_err(to).to_string();
        assert!(refused("\"5s\"", "\"200000d\"").contains("longer than"));
        assert!(refused("cycles = 1000", "cycles = 9223372036854775807").contains("longer than"));
    }

    #[test]
    fn every_phase_may_end_by_a_count_instead() {
        let mut plan = parse("two.toml", PHASES).expect("a plan");
        plan.end_by_cycles(20);
        let ends: Vec<_> = plan.phases.iter().map(|p| (p.end.duration, p.end.cycles)).collect();
        assert_eq!(ends, [(None, Some(20)), (None, Some(20))]);
        assert_eq!(plan.phases[0].expected(), Nanos::from_ms(10));
    }

    #[test]
    fn scaling_keeps_a_plan_runnable() {
        let mut plan = parse("two.toml", PHASES).expect("a plan");
        plan.scale(0.001);
        assert_eq!(plan.phases[0].end.duration, Some(Nanos::from_ms(100)));
        assert_eq!(plan.phases[1].end.cycles, Some(10));
        plan.scale_to(Nanos::from_secs(2));
        assert!(
            (plan.phases.iter().map(|p| p.expected().as_secs_f64()).sum::<f64>() - 2.0).abs() < 0.1
        );
    }
}
