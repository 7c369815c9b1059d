//! Late wake-ups of a guest explained by their instructions, for a terminal, as a page and as JSON. The same replay
//! gives the same bytes.

use askama::Template;
use rtscope_model::{plan::Phase, record::Record};
use serde::Serialize;
use serde_json::Value;

use super::explain::{PieceRow, piece_row, piece_text};
use crate::{
    number::{counted, grouped, us},
    plot::{self, flame, spike},
    statistics::explain::{
        Culprit, Piece, PieceKind,
        agreement::{Agreement, ComparedWakeup},
        culprits,
        instructions::{LateWakeup, Paths},
    },
};

/// Pieces of each wake-up that the terminal shows, the longest ones, and causes that the page names beside its bar.
const PIECES: usize = 4;

/// Names of the parts of the timer's interrupt that each wake-up has.
const OWN: [&str; 2] = ["hrtimer_wakeup", "the interrupt itself"];

/// Functions that the page lists.
const FUNCTIONS: usize = 20;

/// Late wake-ups of a record, and what they were explained from.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Version of this document.
    pub format: u32,
    /// Version of rtscope.
    pub version: String,
    /// The record's folder.
    pub record: String,
    /// The kernel.
    pub kernel: String,
    /// Whether it is a PREEMPT_RT kernel; none when that isn't known.
    pub is_preempt_rt: Option<bool>,
    /// The emulator's version.
    pub emulator: String,
    /// An instruction takes `2^shift` ns.
    pub shift: u8,
    /// Files of the record that the replay gave again, to the byte.
    pub equal_files: usize,
    /// Whether the plugin lost nothing.
    pub is_whole: bool,
    /// The worst of each phase.
    pub spikes: Vec<LateWakeup>,
    /// What the kernel's events say of them, where the guest recorded them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Agreement>,
}

/// [`Explanation::format`].
pub const FORMAT: u32 = 1;

/// The page's file in a record's folder.
pub const PAGE: &str = "explain.html";

/// The longest of a wake-up's causes, in one phrase.
#[must_use]
pub fn cause(one: &LateWakeup) -> String {
    let longest = one.explained.causes().into_iter().next();
    longest.map_or_else(
        || "none of it is explained".to_owned(),
        |piece| format!("{} us of it: {}, {}", us(piece.ns), piece.kind.text(), piece.name),
    )
}

impl Explanation {
    fn culprits(&self) -> Vec<Culprit> {
        let mut all: Vec<_> = self.spikes.iter().map(|one| one.explained.clone()).collect();
        // The way of every wake-up is nothing to be helped.
        let is_own = |piece: &Piece| {
            piece.kind == PieceKind::ExpiryWork && OWN.contains(&piece.name.as_str())
        };
        all.iter_mut().for_each(|one| one.pieces.retain(|piece| !is_own(piece)));
        culprits(&all, self.is_preempt_rt, false)
    }

    fn headline(&self) -> String {
        let worst = self.spikes.iter().max_by_key(|one| one.explained.latency_ns);
        let Some(worst) = worst else { return "No wake-up was marked".to_owned() };
        let latency = us(worst.explained.latency_ns);
        format!("Under {}, a wake-up was {latency} us late. {}", worst.phase, cause(worst))
    }

    fn limits(&self) -> Vec<String> {
        let mut all = vec![
            format!(
                "Time is virtual: each instruction takes {} ns. The pieces say what ran, not what a board's caches \
                 would add.",
                1_u64 << self.shift
            ),
            "The instructions name functions, not threads: what ran in place of the sampling thread has the name of a \
             function."
                .to_owned(),
            "The outermost functions of a stack are missing where they were called long before the wake-up was due."
                .to_owned(),
        ];
        if !self.is_whole {
            all.push(
                "The plugin had no room for all instructions: some wake-ups may be missing."
                    .to_owned(),
            );
        }
        all
    }
}

/// What the kernel's events say of the same wake-ups.
fn agreement_text(events: &Agreement) -> String {
    let without = match events.without_events {
        0 => String::new(),
        n => format!(" The guest kept no events of {}.", counted(n as u64, "other wake-up")),
    };
    format!(
        "The kernel's events, which the guest recorded, agree on {} of {}: the same kinds and names, and times \
         within 5 % or 2 us.{without}",
        events.agreeing(),
        counted(events.compared.len() as u64, "wake-up"),
    )
}

/// The wake-ups of which the events say something else, and what.
fn disagreements(events: &Agreement) -> Vec<String> {
    let line = |one: &ComparedWakeup| {
        let latency = us(one.until_end_ns);
        format!("{}, {latency} us by the events: {}", one.phase, one.differences().join("; "))
    };
    events.compared.iter().filter(|one| !one.agrees).map(line).collect()
}

/// What the recording of a kernel's events added to the mean latency of each phase: two runs of a guest, without it
/// and with it, in virtual time, so that nothing else differs.
#[must_use]
pub fn events_cost(without: &Record, with: &Record) -> String {
    let mean_ns = |record: &Record, cell| {
        let slices = || record.slices_of(cell);
        let count: u64 = slices().map(|slice| slice.recorded).sum();
        (count > 0).then(|| slices().map(|slice| slice.sum_ns).sum::<u64>() / count)
    };
    let cost = |(cell, phase): (u32, &Phase)| {
        let (before, after) = (mean_ns(without, cell)?, mean_ns(with, cell)?);
        let sign = if after < before { "-" } else { "" };
        Some(format!("{sign}{} us under {}", us(after.abs_diff(before)), phase.name))
    };
    let costs: Vec<String> = (0..).zip(&without.plan.phases).filter_map(cost).collect();
    format!(
        "The guest ran once more and recorded its kernel's events, so these wake-ups belong to another run than the \
         record. What recording added to the mean latency: {}.",
        costs.join(", ")
    )
}

/// Everything as one document.
///
/// # Panics
///
/// Never: every field has a form in JSON.
#[must_use]
pub fn document(all: &Explanation) -> Value {
    let mut value = serde_json::to_value(all).expect("plain fields");
    if let Value::Object(fields) = &mut value {
        let culprits = serde_json::to_value(all.culprits()).expect("plain fields");
        fields.insert("culprits".to_owned(), culprits);
        fields.insert("limits".to_owned(), all.limits().into());
    }
    value
}

fn title(one: &LateWakeup) -> String {
    let latency = us(one.explained.latency_ns);
    format!("{}, {}: {latency} us after its timer's expiry", one.phase, one.explained.name)
}

/// Names of the parts of a wake-up.
pub(super) const PART_NAMES: [&str; 5] = [
    "expiry to interrupt",
    "interrupt to wake-up",
    "wake-up to switch",
    "switch to user space",
    "user space to clock",
];

/// Names and instructions of the parts of a wake-up.
fn paths(paths: &Paths) -> impl Iterator<Item = (&'static str, Option<u64>)> {
    PART_NAMES.into_iter().zip(paths.parts())
}

fn path_text(part: Option<u64>) -> String {
    part.map_or_else(|| "unknown".to_owned(), grouped)
}

/// The worst wake-ups for a terminal.
#[must_use]
pub fn table(all: &Explanation) -> String {
    let mut text = format!("{}.\n", all.headline());
    text += &format!(
        "The replay reproduced every byte of {}, so these are the wake-ups of the record.\n",
        counted(all.equal_files as u64, "file")
    );
    for (n, one) in all.spikes.iter().enumerate() {
        text += &format!("\n{}. {}\n", n + 1, title(one));
        let causes = one.explained.causes();
        let (shown, rest) = causes.split_at(causes.len().min(PIECES));
        for piece in shown {
            text += &format!("  {:>9} us  {}\n", us(piece.ns), piece_text(piece));
        }
        if !rest.is_empty() {
            let rest_ns = rest.iter().map(|piece| piece.ns).sum();
            text += &format!("  {:>9} us  {} more\n", us(rest_ns), rest.len());
        }
        let parts = paths(&one.instructions);
        let parts: Vec<String> =
            parts.map(|(name, count)| format!("{name} {}", path_text(count))).collect();
        text += &format!("  instructions: {}\n", parts.join(", "));
    }
    if let Some(events) = &all.events {
        text += &format!("\n{}\n", agreement_text(events));
        for line in disagreements(events) {
            text += &format!("  {line}\n");
        }
    }
    for one in all.culprits().iter().take(PIECES) {
        text += &format!("\n{}, {}\n  -> {}\n", one.kind.text(), one.name, one.remedy);
    }
    text
}

/// The document without what the flame graphs show.
fn without_stacks(mut document: Value) -> Value {
    for spike in document["spikes"].as_array_mut().into_iter().flatten() {
        if let Value::Object(fields) = spike {
            fields.remove("stacks");
        }
    }
    document
}

/// A late wake-up on the page.
struct Shown {
    title: String,
    plot: String,
    flame: String,
    causes: Vec<PieceRow>,
    pieces: Vec<PieceRow>,
    paths: Vec<(&'static str, String)>,
    functions: Vec<[String; 3]>,
}

#[derive(Template)]
#[template(path = "explain_lab.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    all: &'a Explanation,
    headline: String,
    spikes: Vec<Shown>,
    culprits: Vec<Culprit>,
    limits: Vec<String>,
    /// What the kernel's events say, and where they say something else.
    events: Option<(String, Vec<String>)>,
    json: String,
}

impl Page<'_> {
    fn us(&self, ns: &u64) -> String {
        us(*ns)
    }
}

/// The page.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &Explanation) -> String {
    let share = |ns: u64, of: u64| format!("{:.1} %", ns as f64 * 100.0 / of.max(1) as f64);
    let shown = |(n, one): (usize, &LateWakeup)| {
        let latency_ns = one.explained.latency_ns;
        let causes = one.explained.causes();
        Shown {
            title: title(one),
            plot: spike::draw(&one.explained, n + 1),
            flame: flame::draw(&one.stacks, n + 1),
            causes: causes.iter().take(PIECES).map(|row| piece_row(&one.explained, row)).collect(),
            pieces: one.explained.pieces.iter().map(|row| piece_row(&one.explained, row)).collect(),
            paths: paths(&one.instructions).map(|(name, count)| (name, path_text(count))).collect(),
            functions: one
                .functions
                .iter()
                .take(FUNCTIONS)
                .map(|it| [it.name.clone(), us(it.ns), share(it.ns, latency_ns)])
                .collect(),
        }
    };
    let page = Page {
        style: include_str!("template/style.css"),
        plot_rules: plot::dark_rules(),
        headline: all.headline(),
        spikes: all.spikes.iter().enumerate().map(shown).collect(),
        culprits: all.culprits(),
        limits: all.limits(),
        events: all.events.as_ref().map(|it| (agreement_text(it), disagreements(it))),
        json: super::harmless_json(&without_stacks(document(all))),
        all,
    };
    page.render().expect("a string takes every text")
}
