//! The worst wake-up that a search in a guest found, beside what periodic sampling found in the same time: for a
//! terminal, as a page and as JSON.

use askama::Template;
use rtscope_model::time::Nanos;
use serde::Serialize;

use super::explain_lab::{Explanation, cause};
use crate::{
    number::{counted, grouped, us},
    plot::{self, flame, spike},
    statistics::explain::instructions::LateWakeup,
};

/// The document's file.
pub const DOCUMENT: &str = "worst.json";

/// [`WorstSearch::format`].
pub const FORMAT: u32 = 1;

/// A search, and periodic sampling beside it.
#[derive(Clone, Debug, Serialize)]
pub struct WorstSearch {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of rtscope.
    pub version: String,
    /// The kernel as it was asked for.
    pub kernel: String,
    /// The plan.
    pub plan: String,
    /// Time that the search was given.
    pub budget_ns: u64,
    /// An instruction takes `2^shift` ns.
    pub shift: u8,
    /// What the search found.
    pub search: SearchSide,
    /// What periodic sampling found.
    pub periodic: SearchSide,
    /// The aimed runs in order.
    pub aims: Vec<AimedRun>,
    /// What was in the way of the worst wake-up that the search found, in one phrase.
    pub cause: Option<String>,
    /// Why it isn't explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_explained: Option<String>,
}

/// One way of looking for late wake-ups.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SearchSide {
    /// Guests that were run.
    pub guests: u64,
    /// Guests that brought no record.
    pub failed: u64,
    /// Wake-ups that were measured in phases.
    pub wakeups: u64,
    /// Time that it took on this machine.
    pub took_ns: u64,
    /// The worst wake-up.
    pub worst: Option<FoundWakeup>,
}

/// A measured wake-up, and what repeats it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundWakeup {
    /// Its latency.
    pub latency_ns: u64,
    /// The phase.
    pub phase: String,
    /// Seed of the run.
    pub seed: u64,
    /// The instant that an expiry of the run was aimed at, on the guest's `CLOCK_MONOTONIC`; none without an aim.
    pub aim_ns: Option<u64>,
    /// Its expiry since the start of the run.
    pub at_ns: u64,
    /// Folder of the record.
    pub record: String,
}

/// A run with an aim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AimedRun {
    /// Seed of the run.
    pub seed: u64,
    /// The instant, on the guest's `CLOCK_MONOTONIC`.
    pub aim_ns: u64,
    /// How long the stretch was; none where an expiry was moved to an earlier instant.
    pub promised_ns: Option<u64>,
    /// The latency of the aimed wake-up; none where it is smaller than another of the same second.
    pub latency_ns: Option<u64>,
}

impl SearchSide {
    /// Takes a record's wake-ups, and its worst one if it is worse than the others.
    pub fn add(&mut self, wakeups: u64, worst: Option<FoundWakeup>) {
        self.wakeups += wakeups;
        let known_ns = self.worst.as_ref().map_or(0, |known| known.latency_ns);
        if let Some(worst) = worst.filter(|worst| worst.latency_ns > known_ns) {
            self.worst = Some(worst);
        }
    }
}

fn latency_text(side: &SearchSide) -> String {
    side.worst
        .as_ref()
        .map_or_else(|| "none".to_owned(), |worst| format!("{} us", us(worst.latency_ns)))
}

/// The worst in one sentence.
#[must_use]
pub fn headline(all: &WorstSearch) -> String {
    let Some(worst) = &all.search.worst else {
        return format!("The search found no wake-up in {}", all.kernel);
    };
    format!(
        "{}: the search found a wake-up {} us late under {}; periodic sampling found {} in the same time",
        all.kernel,
        us(worst.latency_ns),
        worst.phase,
        latency_text(&all.periodic)
    )
}

fn sides(all: &WorstSearch) -> [(&'static str, &SearchSide); 2] {
    [("search", &all.search), ("periodic sampling", &all.periodic)]
}

/// Cells of a side's row.
fn cells(side: &SearchSide) -> [String; 6] {
    let worst = side.worst.as_ref();
    [
        latency_text(side),
        worst.map_or_else(String::new, |worst| worst.phase.clone()),
        worst.map_or_else(String::new, |worst| worst.seed.to_string()),
        grouped(side.guests),
        grouped(side.wakeups),
        Nanos(side.took_ns / 1_000_000_000 * 1_000_000_000).to_string(),
    ]
}

const HEADS: [&str; 6] = ["worst", "phase", "seed", "guests", "wake-ups", "time"];

/// How the worst wake-up is repeated.
fn replay(all: &WorstSearch) -> Option<String> {
    all.search.worst.as_ref().map(|worst| format!("rtscope lab replay {}", worst.record))
}

/// What the aims found.
fn aims_line(all: &WorstSearch) -> String {
    let met = all.aims.iter().filter(|aim| aim.latency_ns.is_some()).count();
    format!(
        "{} aimed at a stretch; in {} of them, the aimed wake-up was the worst of its second.",
        counted(all.aims.len() as u64, "run"),
        met
    )
}

/// The search for a terminal.
#[must_use]
pub fn table(all: &WorstSearch) -> String {
    let mut text = format!("{}.\n\n", headline(all));
    let row = |name: &str, cells: &[String]| {
        let [worst, phase, seed, guests, wakeups, took] = cells else { return String::new() };
        format!("{name:<19}{worst:>12}  {phase:<12}{seed:>5}{guests:>8}{wakeups:>12}{took:>13}\n")
    };
    text += &row("", &HEADS.map(str::to_owned));
    for (name, side) in sides(all) {
        text += &row(name, &cells(side));
    }
    text += &format!("\n{}\n", aims_line(all));
    if let Some(cause) = &all.cause {
        text += &format!("The worst: {cause}\n");
    }
    if let Some(why) = &all.not_explained {
        text += &format!("The worst is not explained: {why}\n");
    }
    if let Some(command) = replay(all) {
        text += &format!("Repeat it: {command}\n");
    }
    text
}

/// A row of the table of aims on the page.
fn aim_row(aim: &AimedRun) -> [String; 4] {
    let time = |ns: Option<u64>, otherwise: &str| ns.map_or_else(|| otherwise.to_owned(), us);
    [
        aim.seed.to_string(),
        grouped(aim.aim_ns),
        time(aim.promised_ns, "moved"),
        time(aim.latency_ns, "smaller than another"),
    ]
}

#[derive(Template)]
#[template(path = "worst_lab.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    all: &'a WorstSearch,
    headline: String,
    heads: [&'static str; 6],
    rows: Vec<(&'static str, [String; 6])>,
    aims_line: String,
    aims: Vec<[String; 4]>,
    plots: Option<(String, String)>,
    replay: Option<String>,
    json: String,
}

/// The worst of the wake-ups that were explained.
fn worst_of(explained: &Explanation) -> Option<&LateWakeup> {
    explained.spikes.iter().max_by_key(|one| one.explained.latency_ns)
}

/// The cause of the worst of the wake-ups that were explained.
#[must_use]
pub fn cause_of(explained: &Explanation) -> Option<String> {
    worst_of(explained).map(cause)
}

/// The page; `explained` is the worst wake-up that the search found.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &WorstSearch, explained: Option<&Explanation>) -> String {
    let plots = explained.and_then(worst_of);
    let page = Page {
        style: include_str!("template/style.css"),
        plot_rules: plot::dark_rules(),
        headline: headline(all),
        heads: HEADS,
        rows: sides(all).map(|(name, side)| (name, cells(side))).into(),
        aims_line: aims_line(all),
        aims: all.aims.iter().map(aim_row).collect(),
        plots: plots.map(|one| (spike::draw(&one.explained, 1), flame::draw(&one.stacks, 1))),
        replay: replay(all),
        json: super::harmless_json(all),
        all,
    };
    page.render().expect("a string takes every text")
}
