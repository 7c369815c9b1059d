//! Many kernels on one page: for each load and kernel the 99.9th percentile and the worst latency, with
//! the spread over the seeds, what was required and what became of it, and which loads tell which
//! kernels apart ([`apart`]).
//!
//! The figures are those of each record's own judgement; this page adds none. The spread over seeds is
//! that of replicas which differ in phase and layout: it is no confidence interval for other hardware.

pub mod apart;
pub mod beside;

use askama::Template;
use rtscope_model::{environment::Preemption, verdict::Verdict};
use serde::Serialize;

use self::apart::Pair;
use crate::number::us;

/// A 99.9th percentile of so many times the best one has the full colour at the least.
const HOT: f64 = 2.0;

/// How time passed in the guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// By instructions, 2^shift ns each.
    Virtual {
        /// The shift.
        shift: u8,
    },
    /// By the host's clock.
    Wall,
}

/// What one kernel showed under one load with one seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index of the kernel.
    pub kernel: usize,
    /// The cell's name.
    pub load: String,
    /// Seed.
    pub seed: u64,
    /// 99.9th percentile.
    pub p99_9_ns: u64,
    /// Worst latency.
    pub max_ns: u64,
    /// Measured activations.
    pub recorded: u64,
    /// Swallowed activations.
    pub missed: u64,
    /// The record's page.
    pub page: String,
}

/// A requirement of a kernel under a load, and what its worst seed says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Required {
    /// The kernel.
    pub kernel: String,
    /// The load.
    pub load: String,
    /// The requirement, as `max < 50us`.
    pub requirement: String,
    /// The weightiest verdict of all seeds.
    pub verdict: Verdict,
    /// What was seen with that seed.
    pub seen: String,
}

/// A figure that somebody has published, to be set beside ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// What was measured.
    pub what: String,
    /// The published figure, with its unit.
    pub theirs: String,
    /// Ours, each with its unit and its kernel.
    pub ours: String,
    /// Who published it.
    pub source: String,
    /// Why they differ.
    pub why: String,
}

/// Everything that the page shows.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The plan's name.
    pub plan: String,
    /// What the plan is for, one line.
    pub title: String,
    /// How time passed.
    pub time: Time,
    /// The kernels as they were asked for.
    pub kernels: Vec<String>,
    /// The preemption model that each kernel's guests found; none without a record.
    pub preemption: Vec<Option<Preemption>>,
    /// The loads that were asked for, in their order.
    pub loads: Vec<String>,
    /// How many seeds were asked for.
    pub seeds: usize,
    /// Guests that an interruption left no time for: kernel and load.
    pub unreached: Vec<(usize, String)>,
    /// What is known of each kernel: name and value.
    pub facts: Vec<(String, String)>,
    /// What was asked for and is not so.
    pub warnings: Vec<String>,
    /// The figures.
    pub entries: Vec<Entry>,
    /// What was required of each kernel under each load.
    pub required: Vec<Required>,
    /// Guests that brought no record: which, and why.
    pub failures: Vec<(String, String)>,
    /// Published figures.
    pub published: Vec<Published>,
    /// Phases that cyclictest measured too.
    pub beside: Vec<beside::Pair>,
    /// What the kernels' own tracers said: kernel and phase, in words, and the file.
    pub traces: Vec<(String, String, String)>,
}

impl Required {
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
    fn of(mut values: Vec<u64>) -> Option<Spread> {
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
}

/// A row of the table: a load in every kernel.
struct Row {
    load: String,
    /// Or why there is none.
    places: Vec<Result<Place, &'static str>>,
}

#[derive(Template)]
#[template(path = "lab.html")]
struct Page<'a> {
    style: &'static str,
    all: &'a Comparison,
    headline: String,
    models: Vec<String>,
    seeds: usize,
    recorded: String,
    rows: Vec<Row>,
    worst: Vec<Result<Place, &'static str>>,
    pairs: Vec<Pair>,
    unbounded: Option<String>,
}

impl Page<'_> {
    fn virtual_shift(&self) -> Option<u8> {
        match self.all.time {
            Time::Virtual { shift } => Some(shift),
            Time::Wall => None,
        }
    }

    /// Million instructions a second that a shift stands for.
    fn speed(&self) -> String {
        let mips = 1000.0 / f64::from(1_u32 << self.virtual_shift().unwrap_or(0).min(30));
        format!("{mips:.0}")
    }
}

/// The page. The same comparison gives the same bytes.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &Comparison) -> String {
    let loads = loads(all);
    let (coldest, hottest) = extremes(all);
    let heat = |ns: u64| heat(ns, coldest, hottest);
    let rows = loads.iter().map(|load| Row {
        load: (*load).to_owned(),
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
    };
    page.render().expect("a string takes every text")
}

/// What the whole says in a sentence: of two kernels or more only what is told apart.
#[must_use]
pub fn headline(all: &Comparison) -> String {
    let worst = |kernel: usize| {
        let entries = of(all, kernel, None);
        entries.iter().map(|e| e.p99_9_ns).max().map(|ns| (ns, kernel))
    };
    let measured: Vec<(u64, usize)> = kernels(all).filter_map(worst).collect();
    match measured.as_slice() {
        [] => "No guest brought a record".to_owned(),
        [(ns, kernel)] => {
            let under = match extent(all, *kernel) {
                None => "every load".to_owned(),
                Some(extent) => format!("{extent}, no more were measured"),
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

/// Fewest wake-ups whose 99.9th percentile has an upper bound at 95 %: with fewer, the largest may be below
/// it in more than 2.5 % of cases.
fn needed_wakeups() -> u64 {
    (0.025_f64.ln() / 0.999_f64.ln()).ceil() as u64
}

/// What is to be said where the fewest wake-ups of a place don't bound their 99.9th percentile.
#[must_use]
pub fn unbounded(all: &Comparison) -> Option<String> {
    let of_place = |load: &str, kernel: usize| {
        let entries = of(all, kernel, Some(load));
        (!entries.is_empty()).then(|| entries.iter().map(|entry| entry.recorded).sum::<u64>())
    };
    let loads = loads(all);
    let places = loads.iter().flat_map(|load| kernels(all).filter_map(|k| of_place(load, k)));
    let fewest = places.min()?;
    (fewest < needed_wakeups()).then(|| {
        let [fewest, needed] = [fewest, needed_wakeups()].map(crate::number::grouped);
        format!(
            "The 99.9th percentile of {fewest} wake-ups has no upper bound at 95 %; {needed} wake-ups over all \
             seeds would have one."
        )
    })
}

/// How much of what was asked for a kernel's figures speak of; none when it is all.
fn extent(all: &Comparison, kernel: usize) -> Option<String> {
    let loads = loads(all);
    let entries: Vec<usize> =
        loads.iter().map(|load| of(all, kernel, Some(load)).len()).filter(|n| *n > 0).collect();
    if entries.len() < loads.len() {
        return Some(format!("{} of {} loads", entries.len(), loads.len()));
    }
    let fewest = entries.into_iter().min().unwrap_or(0);
    (fewest < all.seeds).then(|| format!("{fewest} of {} seeds under some loads", all.seeds))
}

/// Why a kernel has no figure under a load.
#[must_use]
pub fn absence(all: &Comparison, kernel: usize, load: &str) -> &'static str {
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
pub fn models(all: &Comparison) -> Vec<String> {
    all.preemption.iter().map(|model| model.map_or("-", model_word).to_owned()).collect()
}

fn kernels(all: &Comparison) -> std::ops::Range<usize> {
    0..all.kernels.len()
}

/// The loads that were asked for, in their order.
#[must_use]
pub fn loads(all: &Comparison) -> Vec<&str> {
    let mut loads: Vec<&str> = all.loads.iter().map(String::as_str).collect();
    for entry in &all.entries {
        if !loads.contains(&entry.load.as_str()) {
            loads.push(&entry.load);
        }
    }
    loads
}

/// A kernel's entries under one load, or under all, by seed.
fn of<'a>(all: &'a Comparison, kernel: usize, load: Option<&str>) -> Vec<&'a Entry> {
    let wanted =
        |entry: &&Entry| entry.kernel == kernel && load.is_none_or(|load| entry.load == load);
    let mut found: Vec<&Entry> = all.entries.iter().filter(wanted).collect();
    found.sort_by_key(|entry| entry.seed);
    found
}

fn spread(entries: &[&Entry], figure: impl Fn(&Entry) -> u64) -> Option<Spread> {
    Spread::of(entries.iter().map(|entry| figure(entry)).collect())
}

/// A kernel's 99.9th percentile under a load, the median of its seeds, and its maximum, the largest of them, in
/// ns; none without a record.
#[must_use]
pub fn p99_9_and_max(all: &Comparison, kernel: usize, load: &str) -> Option<(u64, u64)> {
    let entries = of(all, kernel, Some(load));
    let p99_9 = spread(&entries, |entry| entry.p99_9_ns)?.median_ns;
    Some((p99_9, spread(&entries, |entry| entry.max_ns)?.high_ns))
}

/// The least and the largest 99.9th percentile of all.
fn extremes(all: &Comparison) -> (u64, u64) {
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
    all: &Comparison,
    kernel: usize,
    load: Option<&str>,
    heat: impl Fn(u64) -> u32,
) -> Result<Place, &'static str> {
    let entries = of(all, kernel, load);
    let missing = load.map_or("no record", |load| absence(all, kernel, load));
    figures(&entries, load.is_some(), all.seeds, heat).ok_or(missing)
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kernel: usize, load: &str, seed: u64, p99_9_us: u64) -> Entry {
        Entry {
            kernel,
            load: load.to_owned(),
            seed,
            p99_9_ns: p99_9_us * 1000,
            max_ns: p99_9_us * 2000,
            recorded: 2000,
            missed: 0,
            page: format!("{kernel}-{seed}/report.html"),
        }
    }

    fn comparison() -> Comparison {
        Comparison {
            plan: "x".to_owned(),
            title: "a <title>".to_owned(),
            time: Time::Virtual { shift: 1 },
            kernels: vec!["stock".to_owned(), "rt".to_owned()],
            preemption: vec![Some(Preemption::Voluntary), Some(Preemption::RealTime)],
            loads: ["rest", "disk"].map(str::to_owned).to_vec(),
            seeds: 2,
            unreached: Vec::new(),
            facts: vec![("stock".to_owned(), "6.1".to_owned())],
            warnings: vec!["rt: preempt=full had no effect".to_owned()],
            entries: vec![
                entry(0, "rest", 1, 9),
                entry(0, "rest", 2, 9),
                entry(0, "disk", 1, 60),
                entry(0, "disk", 2, 70),
                entry(1, "rest", 1, 8),
                entry(1, "rest", 2, 8),
                entry(1, "disk", 1, 9),
                entry(1, "disk", 2, 11),
            ],
            required: vec![Required {
                kernel: "stock".to_owned(),
                load: "disk".to_owned(),
                requirement: "max < 50us".to_owned(),
                verdict: Verdict::Fail,
                seen: "the maximum is 140 us".to_owned(),
            }],
            failures: vec![("old seed 1".to_owned(), "the kernel gave up".to_owned())],
            published: Vec::new(),
            beside: Vec::new(),
            traces: Vec::new(),
        }
    }

    /// Kernels a, b and so on, with the 99.9th percentiles in us of their seeds under each load.
    pub(super) fn comparison_of(loads: &[(&str, &[&[u64]])]) -> Comparison {
        let mut all = comparison();
        let count = loads.iter().map(|(_, sides)| sides.len()).max().unwrap_or(0);
        let name = |at: usize| char::from(b'a' + at as u8).to_string();
        all.kernels = (0..count).map(name).collect();
        all.preemption = vec![None; count];
        all.loads = loads.iter().map(|(load, _)| (*load).to_owned()).collect();
        all.seeds = loads.iter().flat_map(|(_, s)| s.iter().map(|s| s.len())).max().unwrap_or(0);
        all.entries = Vec::new();
        for (load, sides) in loads {
            for (kernel, seeds) in sides.iter().enumerate() {
                let seeds = (1..).zip(seeds.iter());
                all.entries.extend(seeds.map(|(seed, &us)| entry(kernel, load, seed, us)));
            }
        }
        all
    }

    #[test]
    fn the_headline_names_only_what_is_told_apart() {
        let (low, high): (&[u64], &[u64]) = (&[20, 21, 20, 22, 20], &[460, 470, 450, 455, 465]);
        let near: &[u64] = &[450, 480, 455, 460, 470];
        let all = comparison_of(&[("rest", &[low, low, low]), ("disk", &[low, high, near])]);
        assert_eq!(
            headline(&all),
            "Under disk, 99.9 % of wake-ups within 20.0 us in a and within 460.0 us in b: 23 times"
        );
        let told = |pair: &Pair| (pair.better.clone() + &pair.worse, pair.apart);
        let disk: Vec<_> =
            apart::pairs(&all).iter().filter(|p| p.load == "disk").map(told).collect();
        let expected = [("ab", true), ("ac", true), ("bc", false)];
        assert_eq!(disk, expected.map(|(pair, apart)| (pair.to_owned(), apart)));
        let once = comparison_of(&[("disk", &[&[20], &[460]])]);
        assert!(
            headline(&once)
                .ends_with("23 times; one run of each can't tell the kernels apart: try --seeds 5")
        );
    }

    #[test]
    fn a_place_has_the_median_percentile_of_its_seeds_and_their_largest_maximum() {
        let all = comparison();
        assert_eq!(p99_9_and_max(&all, 0, "disk"), Some((65_000, 140_000)));
        assert_eq!(p99_9_and_max(&all, 0, "cpu"), None);
        assert!(
            page(&all).contains("<b>65.0</b><small>60.0 to 70.0</small><small>max <strong>140.0")
        );
    }

    #[test]
    fn a_percentile_of_too_few_wake_ups_is_said_to_be_unbounded() {
        assert_eq!(needed_wakeups(), 3_688);
        let mut all = comparison_of(&[("rest", &[&[9], &[9]])]);
        assert!(unbounded(&all).expect("too few").contains("of 2,000 wake-ups"));
        all.entries.iter_mut().for_each(|entry| entry.recorded = 3_688);
        assert_eq!(unbounded(&all), None);
    }

    #[test]
    fn the_page_has_every_figure_and_escapes_what_it_is_given() {
        let page = page(&comparison());
        for part in [
            "a &#60;title&#62;",
            "0-1/report.html",
            "1-2/report.html",
            "the kernel gave up",
            "max &#60; 50us",
            "the maximum is 140 us",
            "preemption: voluntary",
            "preemption: PREEMPT_RT",
            "rt: preempt=full had no effect",
        ] {
            assert!(page.contains(part), "{part} is missing");
        }
        assert!(!page.contains("a <title>"));
        assert!(
            page.contains("caches") && page.contains("500 million"),
            "what virtual time can't show"
        );
        assert!(
            headline(&comparison()).contains("within 10.0 us in rt and within 65.0 us in stock")
        );
    }

    #[test]
    fn what_was_not_measured_is_not_spoken_of() {
        let mut all = comparison();
        all.loads.push("fork".to_owned());
        all.unreached.push((1, "fork".to_owned()));
        all.entries.retain(|entry| entry.kernel == 0 || entry.seed == 1);
        assert!(headline(&all).ends_with("(stock: 2 of 3 loads; rt: 2 of 3 loads)"));
        let shown = page(&all);
        for part in ["<th scope=\"row\">fork</th>", "not reached", "no record", "1 of 2 seeds"] {
            assert!(shown.contains(part), "{part} is missing");
        }
        all.kernels.truncate(1);
        all.entries.retain(|entry| entry.kernel == 0);
        let said = headline(&all);
        assert!(said.ends_with("70.0 us under 2 of 3 loads, no more were measured"), "{said}");
        all.loads.pop();
        assert!(headline(&all).ends_with("under every load"));
        all.entries.retain(|entry| entry.seed == 1 || entry.load == "disk");
        assert!(headline(&all).contains("1 of 2 seeds under some loads"));
    }

    #[test]
    fn heat_is_logarithmic_from_the_coldest_to_the_hottest() {
        assert_eq!((heat(10, 10, 1000), heat(100, 10, 1000), heat(1000, 10, 1000)), (0, 31, 62));
        assert_eq!(heat(10, 10, 10), 0);
        // 9.7 and 10.0 us are no two colours.
        assert!((1..5).contains(&heat(10_000, 9_700, 10_000)));
        assert_eq!(heat(20, 10, 20), 62);
    }
}
