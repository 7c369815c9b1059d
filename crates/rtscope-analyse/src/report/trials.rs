//! What trials of settings have shown: for a terminal, as a page and as JSON.

use std::fmt::Write as _;

use askama::Template;
use rtscope_model::{
    finding::{Finding, Weight},
    time::{Nanos, Rounding},
};
use serde::Serialize;

use crate::{
    compare::{
        Chance,
        trial::{POWER, Trial, TrialCost, TrialEffect, TrialFigure, TrialRatio},
    },
    number::{counted, grouped, us},
    plot,
};

/// The document's file.
pub const DOCUMENT: &str = "trials.json";

/// [`TuneTrials::format`].
pub const FORMAT: u32 = 1;

/// Trials of settings.
#[derive(Clone, Debug, Serialize)]
pub struct TuneTrials {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of rtscope.
    pub version: String,
    /// The plan whose phases were measured.
    pub plan: String,
    /// Where: the kernel's release, or the kernel of the guests.
    pub kernel: String,
    /// What a block is: `round` or `seed`.
    pub block: &'static str,
    /// Whether the figures are those of guests in virtual time.
    pub is_virtual: bool,
    /// What was allowed, in nanoseconds; none for guests, whose number is known before.
    pub budget_ns: Option<u64>,
    /// Each setting alone.
    pub alone: TrialSeries,
    /// Settings that were not tried.
    pub not_tried: Vec<NotTried>,
    /// What helped, all of it at once, measured anew.
    pub together: Option<TrialSeries>,
    /// The command that applies what helped.
    pub apply: Option<String>,
}

/// Settings that were measured in turn.
#[derive(Clone, Debug, Serialize)]
pub struct TrialSeries {
    /// Folder of the record, or of the guests' records.
    pub record: String,
    /// Number of blocks that were measured.
    pub blocks: u64,
    /// How long each cell counted, in nanoseconds.
    pub cell_ns: u64,
    /// Number of cells that were measured and left out: a load failed in them, or nothing was recorded.
    pub cells_left_out: u64,
    /// What the reader must know of the records: warnings, and what weighs more.
    pub findings: Vec<Finding>,
    /// What each setting does.
    pub trials: Vec<Trial>,
}

/// A setting that was not tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotTried {
    /// The setting.
    pub name: String,
    /// The reason.
    pub why: String,
}

impl TrialSeries {
    /// Adds what a judgement found, if it weighs enough and isn't there yet.
    pub fn add_findings(&mut self, findings: &[Finding]) {
        for finding in findings.iter().filter(|one| one.weight >= Weight::Warning) {
            if !self.findings.contains(finding) {
                self.findings.push(finding.clone());
            }
        }
    }

    /// What its reader must know, a sentence each.
    fn remarks(&self) -> Vec<String> {
        let left_out = (self.cells_left_out > 0).then(|| {
            format!(
                "{} left out, because a load failed or nothing was recorded",
                counted(self.cells_left_out, "cell")
            )
        });
        let findings = self.findings.iter().map(|one| format!("{}: {}", one.code, one.text));
        left_out.into_iter().chain(findings).collect()
    }
}

impl TuneTrials {
    /// Whether settings were shown to help, in figures that were measured for that alone.
    #[must_use]
    pub fn helps(&self) -> bool {
        self.together.iter().flat_map(|it| &it.trials).any(|it| it.effect == TrialEffect::Better)
    }

    fn records(&self) -> Vec<&str> {
        let together = self.together.iter().map(|series| series.record.as_str());
        std::iter::once(self.alone.record.as_str()).chain(together).collect()
    }
}

/// The answer in one sentence.
#[must_use]
pub fn headline(all: &TuneTrials) -> String {
    let of = |effect: TrialEffect| {
        let names = all.alone.trials.iter().filter(|trial| trial.effect == effect);
        names.map(|trial| trial.name.clone()).collect::<Vec<_>>().join(", ")
    };
    let together = all.together.iter().flat_map(|series| &series.trials).next();
    let worse = match of(TrialEffect::Worse) {
        names if names.is_empty() => String::new(),
        names => format!("; worse: {names}"),
    };
    match together {
        Some(trial) if trial.effect == TrialEffect::Better => {
            format!("{} helps: {}{worse}", trial.name, strongest(trial))
        }
        Some(trial) if trial.figures.iter().all(|figure| figure.change.is_none()) => {
            format!("{} looked better, but was not measured again to the end{worse}", trial.name)
        }
        Some(trial) => format!(
            "{} looked better, but not when it was measured again: {}{worse}",
            trial.name,
            trial.effect.text()
        ),
        None if all.alone.trials.is_empty() => "No setting was tried".to_owned(),
        None if !of(TrialEffect::Better).is_empty() => {
            format!("{} looked better, but was not measured again{worse}", of(TrialEffect::Better))
        }
        None => format!("No setting is shown to help{worse}"),
    }
}

/// The largest of the changes that a trial is better by.
fn strongest(trial: &Trial) -> String {
    let differing = trial.figures.iter().filter(|figure| figure.differs);
    let best = differing.min_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    best.map_or_else(String::new, |figure| {
        let change = figure.change.map_or_else(String::new, change_text);
        let (found, tried) = values(figure);
        format!("{} under {} from {found} to {tried} ({change})", figure.statistic, figure.load)
    })
}

fn ratio(figure: &TrialFigure) -> f64 {
    figure.change.map_or(f64::INFINITY, |change| change.ratio)
}

/// A figure as found and as tried, with its unit.
fn values(figure: &TrialFigure) -> (String, String) {
    let text = |value: f64| match figure.is_share {
        true => format!("{:.3} %", 100.0 * value),
        false => format!("{} us", us(value.round() as u64)),
    };
    (text(figure.found), text(figure.tried))
}

fn percent(ratio: f64, rounding: Rounding) -> String {
    match rounding.decimals(100.0 * (ratio - 1.0), 0) {
        change if ratio >= 10.0 && change.is_finite() => {
            format!("{} times", grouped(rounding.whole(ratio) as u64))
        }
        change => format!("{change:+.0} %"),
    }
}

/// A change with its interval.
fn change_text(change: TrialRatio) -> String {
    format!(
        "{}, 95 % interval {} to {}",
        percent(change.ratio, Rounding::Nearest),
        percent(change.low, Rounding::Down),
        percent(change.high, Rounding::Up)
    )
}

/// A row of a table: what, load, as found, with it, change, effect.
fn figure_row(trial: &Trial, figure: &TrialFigure) -> [String; 6] {
    let (found, tried) = values(figure);
    let change = match figure.change {
        Some(change) => change_text(change),
        None => "too few blocks".to_owned(),
    };
    let effect = match (figure.differs, ratio(figure) < 1.0) {
        (true, true) => "better",
        (true, false) => "worse",
        (false, _) if figure.chance.is_some_and(Chance::is_different) => "too small to count",
        (false, _) => "no difference shown",
    };
    let what = format!("{}, {}", figure.statistic, figure.load);
    [trial.name.clone(), what, found, tried, change, effect.to_owned()]
}

/// A cost in words.
fn cost_text(cost: &TrialCost) -> String {
    let what = match cost.what.as_str() {
        POWER => format!("power under {}", cost.load),
        what => what.to_owned(),
    };
    format!("{what}: {}", change_text(cost.change))
}

/// The smallest change of a cost that is told: 1 %.
const COST_LEAST: f64 = 0.01;

/// The costs that differ from none by their own intervals; the others in one clause.
fn costs_text(trial: &Trial) -> Option<String> {
    if trial.costs.is_empty() {
        return None;
    }
    // In virtual time an interval may be so narrow that it excludes none by less than anybody sees.
    let is_shown = |cost: &&TrialCost| {
        let change = cost.change;
        (change.low > 1.0 || change.high < 1.0) && change.ratio.ln().abs() >= COST_LEAST
    };
    let shown: Vec<String> = trial.costs.iter().filter(is_shown).map(cost_text).collect();
    if !shown.is_empty() {
        return Some(shown.join("; "));
    }
    // Power is no work of a load.
    let work = trial.costs.iter().filter(|cost| cost.what != POWER).map(|cost| cost.change.low);
    Some(match work.reduce(f64::min) {
        Some(least) => {
            let least = Rounding::Down.decimals(100.0 * least, 0);
            format!("none shown: no load did less than {least:.0} % of its work")
        }
        None => "none shown".to_owned(),
    })
}

fn series_text(series: &TrialSeries) -> String {
    let mut text = String::new();
    for trial in &series.trials {
        let _ = writeln!(text, "\n  {}: {}", trial.name, trial.effect.text());
        for figure in &trial.figures {
            let [_, what, found, tried, change, effect] = figure_row(trial, figure);
            let _ = writeln!(text, "    {what}: {found} -> {tried}; {change}; {effect}");
        }
        if let Some(costs) = costs_text(trial) {
            let _ = writeln!(text, "    costs: {costs}");
        }
    }
    for remark in series.remarks() {
        let _ = writeln!(text, "  Note: {remark}");
    }
    text
}

/// How the figures were measured.
fn basis(all: &TuneTrials, series: &TrialSeries) -> String {
    let blocks = counted(series.blocks, all.block);
    let cell = Nanos(series.cell_ns);
    match all.is_virtual {
        true => format!(
            "{blocks} of each in virtual time, {} and the kernel as it is",
            counted(series.trials.len() as u64, "change")
        ),
        false => format!(
            "{blocks}, each with the system as found and {} in turn, {cell} under each load",
            counted(series.trials.len() as u64, "setting")
        ),
    }
}

/// The answer for a terminal.
#[must_use]
pub fn text(all: &TuneTrials) -> String {
    let mut text = format!("{}.\n", headline(all));
    if !all.alone.trials.is_empty() {
        let _ = writeln!(text, "\nEach alone: {}.", basis(all, &all.alone));
        text += &series_text(&all.alone);
    }
    if let Some(together) = &all.together {
        let _ = writeln!(text, "\nWhat helped, measured again: {}.", basis(all, together));
        text += &series_text(together);
    }
    if !all.not_tried.is_empty() {
        text += "\nNot tried:\n";
    }
    for one in &all.not_tried {
        let _ = writeln!(text, "  {}: {}", one.name, one.why);
    }
    if let Some(command) = &all.apply {
        let _ = write!(text, "\nTo apply it: {command}\n\n");
    } else {
        text.push('\n');
    }
    text
}

#[derive(Template)]
#[template(path = "trials.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    all: &'a TuneTrials,
    headline: String,
    series: Vec<Shown<'a>>,
    json: String,
}

/// A series on the page.
struct Shown<'a> {
    id: &'static str,
    heading: &'static str,
    basis: String,
    plot: Option<String>,
    rows: Vec<[String; 6]>,
    costs: Vec<(&'a str, String)>,
    remarks: Vec<String>,
}

fn shown<'a>(
    all: &TuneTrials,
    series: &'a TrialSeries,
    (id, heading): (&'static str, &'static str),
) -> Shown<'a> {
    let rows = series
        .trials
        .iter()
        .flat_map(|trial| trial.figures.iter().map(move |figure| figure_row(trial, figure)));
    let cost = |trial: &'a Trial| Some((trial.name.as_str(), costs_text(trial)?));
    Shown {
        id,
        heading,
        basis: basis(all, series),
        plot: plot::trials::draw(&series.trials, &format!("trials-{id}")),
        rows: rows.collect(),
        costs: series.trials.iter().filter_map(cost).collect(),
        remarks: series.remarks(),
    }
}

/// The page.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &TuneTrials) -> String {
    let alone = (!all.alone.trials.is_empty())
        .then(|| shown(all, &all.alone, ("alone", "Each setting alone")));
    let together =
        all.together.as_ref().map(|it| shown(all, it, ("together", "What helped, measured again")));
    let page = Page {
        style: include_str!("template/style.css"),
        plot_rules: plot::dark_rules(),
        headline: headline(all),
        series: together.into_iter().chain(alone).collect(),
        json: super::harmless_json(all),
        all,
    };
    page.render().expect("a string takes every text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(what: &str, ratio: f64, low: f64) -> TrialCost {
        let change = TrialRatio { ratio, low, high: 2.0 - low };
        TrialCost { load: "busy".to_owned(), what: what.to_owned(), found: 1.0, tried: 1.0, change }
    }

    fn trial(effect: TrialEffect, costs: Vec<TrialCost>) -> Trial {
        Trial { name: "thp=never".to_owned(), effect, blocks: 4, figures: Vec::new(), costs }
    }

    fn series(trials: Vec<Trial>) -> TrialSeries {
        TrialSeries {
            record: "alone".to_owned(),
            blocks: 4,
            cell_ns: 1,
            cells_left_out: 0,
            findings: Vec::new(),
            trials,
        }
    }

    /// It said "no load did less than -7 % of its work", and took the power for the work of a load.
    #[test]
    fn the_least_work_is_a_share_of_all_and_power_is_none() {
        let of = |costs| costs_text(&trial(TrialEffect::NotShown, costs));
        let work = cost("work of message", 1.0, 0.93);
        assert_eq!(
            of(vec![work, cost(POWER, 1.0, 0.4)]).as_deref(),
            Some("none shown: no load did less than 93 % of its work")
        );
        assert_eq!(of(vec![cost(POWER, 1.0, 0.4)]).as_deref(), Some("none shown"));
        assert_eq!(of(Vec::new()), None);
    }

    #[test]
    fn what_looked_better_and_was_not_measured_again_is_named() {
        let all = TuneTrials {
            format: FORMAT,
            version: "0".to_owned(),
            plan: "quick".to_owned(),
            kernel: "6.12".to_owned(),
            block: "round",
            is_virtual: false,
            budget_ns: None,
            alone: series(vec![trial(TrialEffect::Better, Vec::new())]),
            not_tried: Vec::new(),
            together: None,
            apply: None,
        };
        assert_eq!(headline(&all), "thp=never looked better, but was not measured again");
    }

    #[test]
    fn notes_are_not_among_the_findings_and_each_is_there_once() {
        let mut series = series(Vec::new());
        let finding = |code: &str, weight| Finding::new(code, weight, "a text");
        let elsewhere = finding("setting-changed-elsewhere", Weight::Warning);
        series.add_findings(&[finding("governor", Weight::Note), elsewhere.clone()]);
        series.add_findings(std::slice::from_ref(&elsewhere));
        assert_eq!(series.findings, [elsewhere]);
        assert_eq!(series.remarks(), ["setting-changed-elsewhere: a text"]);
    }
}
