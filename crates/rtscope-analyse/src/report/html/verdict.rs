//! The first section: the answer, why, and the worst latency of each phase.

use rtscope_model::{
    event::{EndReason, Event},
    record::Record,
    verdict::{Statistic, Verdict},
};

use super::{Fact, sentence};
use crate::{
    judgement::{Judgement, RequirementOutcome},
    number::{counted, grouped},
    plot::{
        PlottedCell, Scene,
        words::{at_least, time},
    },
};

/// The most reasons that are listed.
const REASONS: usize = 6;

/// The most requirements that are named above their table.
const REQUIREMENTS_NAMED: usize = 3;

/// What the verdict section says.
#[derive(Debug)]
pub(super) struct VerdictView {
    pub(super) word: String,
    pub(super) class: &'static str,
    /// The path of a sign that says the same.
    pub(super) mark: &'static str,
    pub(super) plan: String,
    pub(super) title: String,
    pub(super) headline: String,
    pub(super) reasons: Vec<String>,
    pub(super) tiles: Vec<Tile>,
    pub(super) tiles_note: String,
    pub(super) outcomes: Vec<OutcomeView>,
    pub(super) facts: Vec<Fact>,
}

/// A phase at a glance.
#[derive(Debug)]
pub(super) struct Tile {
    pub(super) name: String,
    /// Class of its colour.
    pub(super) ink: usize,
    pub(super) worst: String,
    pub(super) unit: String,
    pub(super) lines: Vec<String>,
    /// Share of the strictest limit on the maximum, in percent, and whether it is reached.
    pub(super) gauge: Option<Gauge>,
}

/// How far the worst latency of a phase goes towards the limit.
#[derive(Debug)]
pub(super) struct Gauge {
    pub(super) percent: u64,
    pub(super) over: bool,
    pub(super) text: String,
}

/// A requirement in a phase.
#[derive(Debug)]
pub(super) struct OutcomeView {
    pub(super) class: &'static str,
    pub(super) word: String,
    pub(super) requirement: String,
    pub(super) phase: String,
    pub(super) sentence: String,
}

/// The class of a verdict's colour.
pub(in crate::report) fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Measured => "measured",
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::Inconclusive => "inconclusive",
    }
}

/// A tick, a cross, a question mark, or bars of different height, in a square of 24.
fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "M6.5 12.5L10.5 16.5L17.5 8.5",
        Verdict::Fail => "M8 8L16 16M16 8L8 16",
        Verdict::Inconclusive => {
            "M8.8 9.4A3.3 3.3 0 1 1 12.6 12.4C12.1 12.6 12 13 12 13.8M12 17.2V17.3"
        }
        Verdict::Measured => "M7.5 16V12.5M12 16V7.5M16.5 16V10.5",
    }
}

impl VerdictView {
    pub(super) fn new(record: &Record, judgement: &Judgement, scene: &Scene<'_>) -> VerdictView {
        VerdictView {
            word: judgement.verdict.to_string(),
            class: class(judgement.verdict),
            mark: mark(judgement.verdict),
            plan: record.plan.name.clone(),
            title: record.plan.title.clone(),
            headline: headline(scene),
            reasons: reasons(judgement),
            tiles: tiles(record, scene),
            tiles_note: scene.left_out().unwrap_or_default(),
            outcomes: outcomes(judgement),
            facts: facts(record, judgement),
        }
    }
}

/// Which requirements decide, and the weightiest other reasons: what was seen of a requirement is told once, in
/// the table of requirements.
fn reasons(judgement: &Judgement) -> Vec<String> {
    let in_table = |reason: &&String| {
        let of = |o: &RequirementOutcome| {
            **reason == format!("{}, {}: {}", o.name, o.requirement, o.sentence)
        };
        judgement.outcomes.iter().any(of)
    };
    let all: Vec<&String> = judgement.reasons.iter().filter(|reason| !in_table(reason)).collect();
    let shown = if all.len() > REASONS { REASONS - 1 } else { all.len() };
    let mut reasons: Vec<String> = deciding(judgement).into_iter().collect();
    reasons.extend(all[..shown].iter().map(|reason| sentence(reason)));
    if all.len() > shown {
        let text = "And {} more, among the findings below.";
        reasons.push(text.replace("{}", &grouped((all.len() - shown) as u64)));
    }
    reasons
}

/// How many requirements are not met, or not decided, and the first of them.
fn deciding(judgement: &Judgement) -> Option<String> {
    let all = judgement.outcomes.len();
    let decide = judgement.outcomes.iter().filter(|outcome| outcome.verdict == judgement.verdict);
    let named: Vec<String> =
        decide.map(|outcome| format!("{} in {}", outcome.requirement, outcome.name)).collect();
    let what = match (judgement.verdict, named.len()) {
        (_, 0) => return None,
        (Verdict::Fail, 1) => "is not met",
        (Verdict::Fail, _) => "are not met",
        (Verdict::Inconclusive, 1) => "is undecided",
        (Verdict::Inconclusive, _) => "are undecided",
        (Verdict::Pass | Verdict::Measured, _) => return None,
    };
    let shown = named.len().min(REQUIREMENTS_NAMED);
    let more = match named.len() - shown {
        0 => String::new(),
        more => format!(" and {}", counted(more as u64, "other")),
    };
    let count = format!("{} of {}", named.len(), counted(all as u64, "requirement"));
    Some(format!("{count} {what}: {}{more}.", named[..shown].join("; ")))
}

/// The requirements, those that are not met first.
fn outcomes(judgement: &Judgement) -> Vec<OutcomeView> {
    let mut outcomes: Vec<_> = judgement.outcomes.iter().collect();
    outcomes.sort_by_key(|outcome| match outcome.verdict {
        Verdict::Fail => 0,
        Verdict::Inconclusive => 1,
        Verdict::Pass | Verdict::Measured => 2,
    });
    let view = |outcome: &RequirementOutcome| OutcomeView {
        class: class(outcome.verdict),
        word: outcome.verdict.to_string(),
        requirement: outcome.requirement.to_string(),
        phase: outcome.name.clone(),
        sentence: sentence(&outcome.explanation()),
    };
    outcomes.into_iter().map(view).collect()
}

/// The worst latency of each phase in one sentence; of many phases only the range.
fn headline(scene: &Scene<'_>) -> String {
    let max_ns = |cell: &PlottedCell<'_>| cell.summary.all.max_ns();
    let late = |cell: &PlottedCell<'_>| {
        let worst_ns = max_ns(cell).unwrap_or(0);
        match cell.summary.all.max_is_at_least() {
            true => format!("at least {}", at_least(worst_ns)),
            false => time(worst_ns),
        }
    };
    let Some(worst) = scene.worst() else {
        return "No wake-up was measured.".to_owned();
    };
    let worst_text = late(worst);
    let by = if has_frames(scene) { "" } else { "by " };
    let measured = scene.cells.iter().filter_map(|cell| Some((cell, max_ns(cell)?)));
    let measured: Vec<_> = measured.collect();
    if measured.len() > 4 {
        let best = measured.iter().min_by_key(|(_, max_ns)| *max_ns);
        let best = best.map(|(cell, _)| late(cell)).unwrap_or_default();
        return format!(
            "{} {} in the best of {} phases and {by}{worst_text} in {}.",
            worst_of(scene),
            best,
            measured.len(),
            worst.summary.name
        );
    }
    let phases: Vec<String> = measured
        .iter()
        .map(|(cell, _)| format!("{} in {}", late(cell), cell.summary.name))
        .collect();
    let list = match phases.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    };
    format!("{} {list}.", worst_of(scene))
}

/// Whether each phase measured frames.
fn has_frames(scene: &Scene) -> bool {
    !scene.cells.is_empty() && scene.cells.iter().all(|cell| cell.summary.all.frames.is_some())
}

/// How a sentence about the worst latencies begins.
fn worst_of(scene: &Scene) -> &'static str {
    match has_frames(scene) {
        true => "From the start of its cycle, the slowest frame took",
        false => "The worst wake-up was late by",
    }
}

fn tiles(record: &Record, scene: &Scene<'_>) -> Vec<Tile> {
    let tile = |cell: &&PlottedCell<'_>| {
        let row = &cell.summary.all;
        let worst = match row.max_ns() {
            Some(max_ns) if row.max_is_at_least() => format!("≥{}", at_least(max_ns)),
            Some(max_ns) => time(max_ns),
            None => "nothing".to_owned(),
        };
        let (worst, unit) = worst.split_once(' ').unwrap_or((worst.as_str(), ""));
        let deepest = row.quantiles.iter().rev().find(|quantile| quantile.high_ns.is_some());
        let mut lines: Vec<String> = deepest
            .map(|q| format!("{} {}", Statistic::Quantile(q.parts), time(q.value_ns)))
            .into_iter()
            .collect();
        let noun = if row.frames.is_some() { "frame" } else { "wake-up" };
        lines.push(counted(row.recorded, noun));
        if row.missed > 0 {
            lines.push(format!("{} missed", grouped(row.missed)));
        }
        Tile {
            name: cell.summary.name.clone(),
            ink: cell.ink,
            worst: worst.to_owned(),
            unit: unit.to_owned(),
            lines,
            gauge: gauge(record, cell),
        }
    };
    scene.shown().iter().map(tile).collect()
}

/// The strictest limit on the maximum of a phase.
fn gauge(record: &Record, cell: &PlottedCell<'_>) -> Option<Gauge> {
    let max_ns = cell.summary.all.max_ns()?;
    let own = record.plan.phases.get(cell.summary.cell as usize).map(|phase| &phase.require);
    let limits = record.plan.require.iter().chain(own.into_iter().flatten());
    let limits = limits.filter(|requirement| requirement.statistic == Statistic::Max);
    let limit_ns = limits.filter_map(|requirement| requirement.limit_ns()).min()?;
    let percent = (max_ns as f64 / limit_ns as f64 * 100.0).round() as u64;
    Some(Gauge {
        percent: percent.min(100),
        over: max_ns >= limit_ns,
        text: format!("{} % of {}", grouped(percent), time(limit_ns)),
    })
}

fn facts(record: &Record, judgement: &Judgement) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let Some(wall_clock) = record.events.iter().find_map(|stamped| match &stamped.event {
        Event::RunStarted { wall_clock, .. } => Some(wall_clock),
        _ => None,
    }) {
        let name = if record.is_imported() { "Imported" } else { "Started" };
        // It may only be wrapped between day and time.
        facts.push(Fact::new(name, wall_clock.replace('T', " ").replace('Z', " UTC")));
    }
    if record.is_imported() {
        facts.extend(imported(record));
        return facts;
    }
    facts.push(Fact::new("Took", took(record)));
    if let Some(environment) = record.before.as_ref().or(record.after.as_ref()) {
        let kernel = &environment.kernel;
        let machine = environment.machine_model.as_deref().unwrap_or(&environment.cpus.model);
        facts.push(Fact::new("Host", environment.host.clone()));
        if !machine.is_empty() {
            facts.push(Fact::new("Machine", machine));
        }
        let release = format!("{} ({})", kernel.release, kernel.preemption.word());
        facts.push(Fact::new("Kernel", release));
    }
    let placed = judgement.cells.iter().map(|cell| cell.threads.len()).max().unwrap_or(0);
    if let Some(thread) = record.threads.first() {
        let placement = &thread.found;
        let mut policy = placement.policy.to_string();
        if placement.policy.has_priority() {
            policy = format!("{policy} {}", placement.priority);
        }
        let text = format!(
            "{}, {policy}, every {}",
            counted(placed as u64, "thread"),
            time(thread.interval_ns)
        );
        facts.push(Fact::new("Sampler", text));
    }
    facts
}

/// Where an import comes from, and what its source says besides figures.
fn imported(record: &Record) -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    let mut add = |fact: Fact| {
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    };
    for (_, origin) in record.origins() {
        add(Fact::code("From", origin.files.join(", ")));
        add(Fact::new("Measured by", origin.text()));
        if let Some(command) = &origin.command {
            add(Fact::code("Command line", command.clone()));
        }
        for (name, value) in &origin.facts {
            add(Fact::new(&super::capitalised(name), value.clone()));
        }
    }
    facts.truncate(FACTS_OF_IMPORT);
    facts
}

/// Facts of an import that are listed; each of many files has its own.
const FACTS_OF_IMPORT: usize = 24;

/// How long the run took and how it ended.
fn took(record: &Record) -> String {
    let last_event = record.events.last().map_or(0, |last| last.at_ns);
    let last_slice = record.slices.iter().map(|slice| slice.end_ns).max().unwrap_or(0);
    let ended = record.events.iter().find_map(|stamped| match stamped.event {
        Event::RunEnded { why, .. } => Some(why),
        _ => None,
    });
    let how = match ended {
        Some(EndReason::Finished) => "to the end of the plan",
        Some(EndReason::Interrupted) => "then it was interrupted",
        Some(EndReason::Break) => "then a latency was above the break threshold",
        Some(EndReason::Failed) => "then it failed",
        Some(_) => "then it ended",
        None => "then the record breaks off",
    };
    format!("{}, {how}", time(last_event.max(last_slice)))
}
