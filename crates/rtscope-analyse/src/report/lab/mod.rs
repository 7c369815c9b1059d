//! Many kernels on one page: for each load and kernel the 99.9th percentile and the worst latency, with
//! the spread over the seeds, what was required and what became of it, and which loads tell which
//! kernels apart ([`apart`]).
//!
//! The figures are those of each record's own judgement; this page adds none. The spread over seeds is
//! that of replicas which differ in phase and layout: it is no confidence interval for other hardware.

pub mod apart;
pub mod beside;
pub mod bisect;
pub mod collect;
mod document;
pub mod figures;
mod preemption;
#[cfg(test)]
mod tests;
pub mod verbs;
pub mod worst;

use std::collections::BTreeMap;

use askama::Template;
use rtscope_model::{
    environment::Preemption, guest::Timing, histogram::Histogram, verdict::Verdict,
};
use serde::Serialize;

use self::{apart::KernelPair, worst::WorstCause};
use crate::{
    number::us,
    plot::{self, kernels::Curve},
    report::published::PublishedBesideOurs,
    statistics::quantile,
};

/// The 99.9th percentile, in parts of a billion.
const P99_9: u32 = 999_000_000;

/// A 99.9th percentile of so many times the best one has the full colour at the least.
const HOT: f64 = 2.0;

/// What one kernel showed under one load with one seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub kernel: usize,
    /// The cell's name.
    pub load: String,
    pub seed: u64,
    /// 99.9th percentile.
    pub p99_9_ns: u64,
    pub max_ns: u64,
    /// Measured activations.
    pub recorded: u64,
    /// Swallowed activations.
    pub missed: u64,
    pub histogram: Histogram,
    pub page: String,
}

/// A requirement of a kernel under a load, and what its worst seed says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelRequirement {
    pub kernel: String,
    pub load: String,
    /// The requirement, as `max < 50us`.
    pub requirement: String,
    /// The weightiest verdict of all seeds.
    pub verdict: Verdict,
    /// What was seen with that seed: the one with the worst figure, of those with this verdict.
    pub seen: String,
    /// The required statistic with that seed, in nanoseconds or as a count; none where it isn't known.
    #[serde(skip)]
    pub figure: Option<u64>,
}

/// Everything that the page shows.
#[derive(Clone, Debug)]
pub struct LabComparison {
    pub plan: String,
    /// What the plan is for, one line.
    pub title: String,
    pub time: Timing,
    /// The kernels as they were asked for.
    pub kernels: Vec<String>,
    /// The preemption model that each kernel's guests found; none without a record.
    pub preemption: Vec<Option<Preemption>>,
    /// The loads that were asked for, in their order.
    pub loads: Vec<String>,
    /// What runs beside the sampler, as a plan writes it, by the load's name; empty at rest.
    pub load_lines: BTreeMap<String, String>,
    /// How many seeds were asked for.
    pub seeds: usize,
    /// Guests that an interruption left no time for: kernel and load.
    pub unreached: Vec<(usize, String)>,
    /// What is known of each kernel: name and value.
    pub facts: Vec<(String, String)>,
    /// What was asked for and is not so.
    pub warnings: Vec<String>,
    pub entries: Vec<Entry>,
    /// What was required of each kernel under each load.
    pub required: Vec<KernelRequirement>,
    /// Guests that brought no record: which, and why.
    pub failures: Vec<(String, String)>,
    /// The plan's published figures beside ours.
    pub published: Vec<PublishedBesideOurs>,
    /// Phases that cyclictest measured too.
    pub beside: Vec<beside::PhaseByBoth>,
    /// What the kernels' own tracers said: kernel and phase, in words, and the file.
    pub traces: Vec<(String, String, String)>,
    /// Why the worst wake-up of each kernel under each load was late, where that was asked.
    pub causes: Vec<WorstCause>,
}

impl KernelRequirement {
    fn class(&self) -> &'static str {
        super::html::verdict::class(self.verdict)
    }
}

/// Figures over the seeds of one kernel under one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spread {
    low_ns: u64,
    median_ns: u64,
    high_ns: u64,
}

impl Spread {
    fn from_values(mut values: Vec<u64>) -> Option<Spread> {
        values.sort_unstable();
        let (low_ns, high_ns) = (*values.first()?, *values.last()?);
        let (below, above) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Spread { low_ns, median_ns: below.midpoint(above), high_ns })
    }

    fn text(self) -> String {
        us(self.median_ns)
    }

    /// The extremes, where they are not one.
    fn extremes(self) -> String {
        let (low, high) = (us(self.low_ns), us(self.high_ns));
        if low == high { String::new() } else { format!("{low} to {high}") }
    }
}

/// A place of the table.
struct Place {
    /// Percent of the hot colour.
    heat: u32,
    p99_9: String,
    p99_9_spread: String,
    /// Of all seeds: what a seed has seen the kernel can do.
    max: String,
    missed: String,
    /// How many of the seeds, where some brought no record.
    partial: String,
    /// The first seed's page.
    page: String,
    /// The other seeds' pages.
    others: Vec<(u64, String)>,
    /// Why the worst wake-up was late, where that was asked.
    cause: Option<WorstCause>,
}

/// A row of the table: a load in every kernel.
struct Row {
    load: String,
    /// What runs beside the sampler; empty when the name says it.
    line: String,
    /// Or why there is none.
    places: Vec<Result<Place, &'static str>>,
}

#[derive(Template)]
#[template(path = "lab.html")]
struct Page<'a> {
    style: &'static str,
    all: &'a LabComparison,
    headline: String,
    models: Vec<String>,
    seeds: usize,
    recorded: String,
    rows: Vec<Row>,
    worst: Vec<Result<Place, &'static str>>,
    pairs: Vec<KernelPair>,
    unbounded: Option<String>,
    needed: String,
    plot_rules: String,
    script: &'static str,
    plots: Vec<(String, String)>,
    writes_files: bool,
}

impl Page<'_> {
    fn virtual_shift(&self) -> Option<u8> {
        match self.all.time {
            Timing::Virtual { shift } => Some(shift),
            Timing::Wall | Timing::Kvm => None,
        }
    }

    /// Million instructions a second that a shift stands for.
    fn speed(&self) -> String {
        let mips = 1000.0 / f64::from(1_u32 << self.virtual_shift().unwrap_or(0).min(30));
        format!("{mips:.0}")
    }
}

fn writes_files(all: &LabComparison) -> bool {
    all.load_lines.values().any(|line| line.starts_with("disk"))
}

/// What a reader of the figures alone could take for this machine's: the time, and the disk.
#[must_use]
pub fn conditions(all: &LabComparison) -> Vec<&'static str> {
    let time = matches!(all.time, Timing::Virtual { .. }).then_some(
        "Time is virtual: it advances with the guest's instructions. Use these figures to compare kernels, \
         not to check deadlines.",
    );
    let disk = writes_files(all)
        .then_some("The guest has no disk: the disk load writes to its memory (tmpfs).");
    time.into_iter().chain(disk).collect()
}

/// The page. The same comparison gives the same bytes.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &LabComparison) -> String {
    let loads = loads(all);
    let (coldest, hottest) = extremes(all);
    let heat = |ns: u64| heat(ns, coldest, hottest);
    let rows = loads.iter().map(|load| Row {
        load: (*load).to_owned(),
        line: all.load_lines.get(*load).filter(|line| line != load).cloned().unwrap_or_default(),
        places: kernels(all).map(|kernel| place(all, kernel, Some(load), heat)).collect(),
    });
    let recorded = all.entries.iter().map(|e| e.recorded).min().unwrap_or(0);
    let page = Page {
        style: include_str!("../template/style.css"),
        all,
        headline: headline(all),
        models: models(all),
        seeds: all.seeds,
        recorded: crate::number::grouped(recorded),
        rows: rows.collect(),
        worst: kernels(all).map(|kernel| place(all, kernel, None, heat)).collect(),
        pairs: apart::pairs(all),
        unbounded: unbounded(all),
        needed: crate::number::grouped(wake_ups_needed()),
        plot_rules: plot::dark_rules(),
        script: include_str!("../template/script.js"),
        plots: plots(all),
        writes_files: writes_files(all),
    };
    page.render().expect("a string takes every text")
}

/// The kernels over one another: each load with its plot.
fn plots(all: &LabComparison) -> Vec<(String, String)> {
    let curve = |(kernel, load): (usize, &str)| {
        let seeds = entries_of(all, kernel, Some(load));
        let seeds: Vec<&Histogram> = seeds.into_iter().map(|entry| &entry.histogram).collect();
        (!seeds.is_empty()).then(|| Curve { name: &all.kernels[kernel], place: kernel, seeds })
    };
    let plot = |(number, load): (usize, &str)| {
        let curves: Vec<Curve<'_>> = kernels(all).filter_map(|n| curve((n, load))).collect();
        let drawn = plot::kernels::draw(("kernel", load), number, &curves, plot::INLINE_WIDTH)?;
        Some((load.to_owned(), drawn))
    };
    loads(all).into_iter().enumerate().filter_map(plot).collect()
}

/// What the whole says in a sentence: of two kernels or more only what is told apart.
#[must_use]
pub fn headline(all: &LabComparison) -> String {
    let worst = |kernel: usize| {
        let entries = entries_of(all, kernel, None);
        entries.iter().map(|e| e.p99_9_ns).max().map(|ns| (ns, kernel))
    };
    let measured: Vec<(u64, usize)> = kernels(all).filter_map(worst).collect();
    match measured.as_slice() {
        [] => "No guest sent a record".to_owned(),
        [(ns, kernel)] => {
            let under = match extent(all, *kernel) {
                None => "every load".to_owned(),
                Some(extent) => format!("all measured loads (only {extent})"),
            };
            format!(
                "{}: 99.9 % of wake-ups within {} us under {under}",
                all.kernels[*kernel],
                us(*ns)
            )
        }
        several => {
            let pairs = apart::pairs(all);
            let said = match pairs.iter().find(|pair| pair.apart) {
                Some(largest) => largest.sentence(),
                None => match pairs.first() {
                    Some(largest) => format!("{}; {}", largest.sentence(), apart::why_none(all)),
                    None => apart::why_none(all),
                },
            };
            let lacks = several.iter().filter_map(|&(_, kernel)| {
                extent(all, kernel).map(|extent| format!("{}: {extent}", all.kernels[kernel]))
            });
            let lacks: Vec<String> = lacks.collect();
            let lacks = match lacks.as_slice() {
                [] => String::new(),
                lacks => format!(" ({})", lacks.join("; ")),
            };
            let mut said = said + &lacks;
            said[..1].make_ascii_uppercase();
            said
        }
    }
}

/// Wake-ups over all seeds that it takes to bound a 99.9th percentile.
fn wake_ups_needed() -> u64 {
    quantile::samples_for_interval(P99_9)
}

/// What is to be said where the fewest wake-ups of a place don't bound their 99.9th percentile.
#[must_use]
pub fn unbounded(all: &LabComparison) -> Option<String> {
    let of_place = |load: &str, kernel: usize| {
        let entries = entries_of(all, kernel, Some(load));
        (!entries.is_empty()).then(|| entries.iter().map(|entry| entry.recorded).sum::<u64>())
    };
    let loads = loads(all);
    let places = loads.iter().flat_map(|load| kernels(all).filter_map(|k| of_place(load, k)));
    let fewest = places.min()?;
    let needed = wake_ups_needed();
    (fewest < needed).then(|| {
        let [fewest, needed] = [fewest, needed].map(crate::number::grouped);
        format!(
            "{fewest} wake-ups are too few for a 95 % upper bound of the 99.9th percentile. It needs at least \
             {needed} over all seeds, and more if wake-ups depend on each other."
        )
    })
}

/// How much of what was asked for a kernel's figures speak of; none when it is all.
fn extent(all: &LabComparison, kernel: usize) -> Option<String> {
    let loads = loads(all);
    let entries: Vec<usize> = loads
        .iter()
        .map(|load| entries_of(all, kernel, Some(load)).len())
        .filter(|n| *n > 0)
        .collect();
    if entries.len() < loads.len() {
        return Some(format!("{} of {} loads", entries.len(), loads.len()));
    }
    let fewest = entries.into_iter().min().unwrap_or(0);
    (fewest < all.seeds).then(|| format!("{fewest} of {} seeds under some loads", all.seeds))
}

/// Why a kernel has no figure under a load.
#[must_use]
pub fn absence(all: &LabComparison, kernel: usize, load: &str) -> &'static str {
    let unreached = all.unreached.iter().any(|(of, under)| *of == kernel && under == load);
    if unreached { "not reached" } else { "no record" }
}

/// A preemption model as `preempt=` on the kernel command line names it.
#[must_use]
pub fn model_word(model: Preemption) -> &'static str {
    match model {
        Preemption::None => "none",
        Preemption::Voluntary => "voluntary",
        Preemption::Full => "full",
        Preemption::Lazy => "lazy",
        Preemption::Unknown | Preemption::Dynamic | Preemption::RealTime => model.word(),
    }
}

/// The preemption model of each kernel in a word; a dash without a record.
#[must_use]
pub fn models(all: &LabComparison) -> Vec<String> {
    all.preemption.iter().map(|model| model.map_or("-", model_word).to_owned()).collect()
}

fn kernels(all: &LabComparison) -> std::ops::Range<usize> {
    0..all.kernels.len()
}

/// The loads that were asked for, in their order.
#[must_use]
pub fn loads(all: &LabComparison) -> Vec<&str> {
    let mut loads: Vec<&str> = all.loads.iter().map(String::as_str).collect();
    for entry in &all.entries {
        if !loads.contains(&entry.load.as_str()) {
            loads.push(&entry.load);
        }
    }
    loads
}

/// A kernel's entries under one load, or under all, by seed.
fn entries_of<'a>(all: &'a LabComparison, kernel: usize, load: Option<&str>) -> Vec<&'a Entry> {
    let wanted =
        |entry: &&Entry| entry.kernel == kernel && load.is_none_or(|load| entry.load == load);
    let mut found: Vec<&Entry> = all.entries.iter().filter(wanted).collect();
    found.sort_by_key(|entry| entry.seed);
    found
}

fn spread(entries: &[&Entry], figure: impl Fn(&Entry) -> u64) -> Option<Spread> {
    Spread::from_values(entries.iter().map(|entry| figure(entry)).collect())
}

/// A kernel's 99.9th percentile under a load, the median of its seeds, and its maximum, the largest of them, in
/// ns; none without a record.
#[must_use]
pub fn p99_9_and_max(all: &LabComparison, kernel: usize, load: &str) -> Option<(u64, u64)> {
    let entries = entries_of(all, kernel, Some(load));
    let p99_9 = spread(&entries, |entry| entry.p99_9_ns)?.median_ns;
    Some((p99_9, spread(&entries, |entry| entry.max_ns)?.high_ns))
}

/// Activations of all seeds that were missed, by load and kernel, where there are any.
fn missed(all: &LabComparison) -> Vec<(&str, &str, u64)> {
    let of_place = |load, kernel: usize| {
        let missed = entries_of(all, kernel, Some(load)).iter().map(|entry| entry.missed).sum();
        (load, all.kernels[kernel].as_str(), missed)
    };
    let places =
        loads(all).into_iter().flat_map(|load| kernels(all).map(move |k| of_place(load, k)));
    places.filter(|(.., missed)| *missed > 0).collect()
}

/// The least and the largest 99.9th percentile of all.
fn extremes(all: &LabComparison) -> (u64, u64) {
    let values = || all.entries.iter().map(|entry| entry.p99_9_ns.max(1));
    (values().min().unwrap_or(1), values().max().unwrap_or(1))
}

/// Percent of the hot colour, logarithmic from the coldest to the hottest, or to [`HOT`] times the coldest
/// when that is more: what hardly differs looks so.
fn heat(ns: u64, coldest: u64, hottest: u64) -> u32 {
    let span = (hottest as f64 / coldest as f64).max(HOT).ln();
    let share = (ns.max(1) as f64 / coldest as f64).ln() / span;
    (share * 62.0).round() as u32
}

/// A place of the table from the entries of all its seeds; for the row of the worst, of all its loads. Or
/// why there is none.
fn place(
    all: &LabComparison,
    kernel: usize,
    load: Option<&str>,
    heat: impl Fn(u64) -> u32,
) -> Result<Place, &'static str> {
    let entries = entries_of(all, kernel, load);
    let missing = load.map_or("no record", |load| absence(all, kernel, load));
    let place = figures(&entries, load.is_some(), all.seeds, heat).ok_or(missing)?;
    let cause = load.and_then(|load| all.cause_of(kernel, load)).cloned();
    Ok(Place { cause, ..place })
}

fn figures(
    entries: &[&Entry],
    one_load: bool,
    seeds: usize,
    heat: impl Fn(u64) -> u32,
) -> Option<Place> {
    let p99_9 = spread(entries, |entry| entry.p99_9_ns)?;
    let max = spread(entries, |entry| entry.max_ns)?;
    let missed: u64 = entries.iter().map(|entry| entry.missed).sum();
    let missed = match missed {
        0 => String::new(),
        missed => format!("{} missed", crate::number::grouped(missed)),
    };
    let first = if one_load {
        entries.first()?
    } else {
        entries.iter().max_by_key(|entry| entry.p99_9_ns)?
    };
    Some(Place {
        heat: heat(if one_load { p99_9.median_ns } else { p99_9.high_ns }),
        p99_9: if one_load { p99_9.text() } else { us(p99_9.high_ns) },
        p99_9_spread: if one_load { p99_9.extremes() } else { first.load.clone() },
        max: us(max.high_ns),
        missed,
        partial: match entries.len() {
            found if one_load && found < seeds => format!("{found} of {seeds} seeds"),
            _ => String::new(),
        },
        page: first.page.clone(),
        others: match one_load {
            true => entries.iter().skip(1).map(|e| (e.seed, e.page.clone())).collect(),
            false => Vec::new(),
        },
        cause: None,
    })
}
