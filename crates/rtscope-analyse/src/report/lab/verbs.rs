//! A verb of rtscope in several kernels: its figures side by side, as a page, a table and JSON. The same records
//! give the same bytes.

use std::fmt::Write as _;

use askama::Template;
use rtscope_model::guest::Timing;
use serde_json::{Value, json};

use super::figures::{FigureUnit, GuestFigure};
use crate::{
    number::{grouped, hertz},
    plot::{phase::signed, throughput::bits_beside},
    report::{
        drift::per_hour,
        published::{self, PublishedBesideOurs},
    },
    statistics::change_point::median,
};

/// What a guest brought.
#[derive(Clone, Debug)]
pub struct VerbInGuest {
    pub kernel: usize,
    /// What it is called.
    pub name: String,
    /// Its own page; none where its verb has none.
    pub page: Option<String>,
    pub figures: Vec<GuestFigure>,
}

/// A verb in several kernels.
#[derive(Clone, Debug)]
pub struct SideBySide {
    /// The verb, as `wave sweep`.
    pub verb: &'static str,
    /// Its words in the guests.
    pub words: String,
    /// What virtual time can't say of its figures, a sentence each.
    pub limits: &'static [&'static str],
    pub time: Timing,
    /// The kernels as they were asked for.
    pub kernels: Vec<String>,
    /// What is known of each kernel: name and value.
    pub facts: Vec<(String, String)>,
    pub guests: Vec<VerbInGuest>,
    /// What brought no record: which, and why.
    pub failures: Vec<(String, String)>,
    /// Published figures beside those of the guests.
    pub published: Vec<PublishedBesideOurs>,
}

/// A figure in one kernel, of all its seeds.
#[derive(Clone, Debug, Default)]
struct Cell {
    values: Vec<f64>,
    /// Why seeds have none.
    reasons: Vec<String>,
}

impl Cell {
    /// The middle of the seeds.
    fn median(&self) -> Option<f64> {
        (!self.values.is_empty()).then(|| median(&self.values))
    }

    fn text(&self, unit: FigureUnit) -> String {
        let Some(median) = self.median() else {
            return self.reasons.first().map_or("no record", |why| shortened(why)).to_owned();
        };
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (median, least, most) = (unit.text(median), unit.text(least), unit.text(most));
        // Seeds that differ by less than is shown have no range.
        if least == most { median } else { format!("{median} ({least} to {most})") }
    }
}

/// A reason up to its first colon: the notes have the rest.
fn shortened(why: &str) -> &str {
    why.split(':').next().unwrap_or(why)
}

impl FigureUnit {
    fn text(self, value: f64) -> String {
        match self {
            FigureUnit::Ns => signed(value),
            FigureUnit::NsPerHour => per_hour(value),
            FigureUnit::Hz => hertz(value),
            FigureUnit::BitsPerSecond => bits_beside(value, value),
            FigureUnit::Count => grouped(value.max(0.0).round() as u64),
            FigureUnit::Share => format!("{:.2} %", value * 100.0),
            FigureUnit::Ratio => format!("{value:.2}"),
        }
    }
}

/// A figure in every kernel.
#[derive(Clone, Debug)]
struct Row {
    name: String,
    unit: FigureUnit,
    cells: Vec<Cell>,
}

impl Row {
    fn texts(&self) -> Vec<String> {
        self.cells.iter().map(|cell| cell.text(self.unit)).collect()
    }

    /// The second kernel's over the first one's, where there are two and a ratio says something.
    fn ratio(&self) -> Option<f64> {
        let [first, second] = self.cells.as_slice() else { return None };
        let (first, second) = (first.median()?, second.median()?);
        (first > 0.0 && second > 0.0).then(|| second / first)
    }

    fn ratio_text(&self) -> String {
        self.ratio().map_or_else(String::new, |ratio| format!("{ratio:.3}"))
    }
}

/// What has figures in every kernel: a loop, a program, a transfer, a subject.
#[derive(Clone, Debug)]
struct Group {
    name: String,
    rows: Vec<Row>,
}

/// The figures in the order of the first guest that has each.
fn groups(all: &SideBySide) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for guest in &all.guests {
        for figure in &guest.figures {
            let at = groups.iter().position(|group| group.name == figure.of).unwrap_or_else(|| {
                groups.push(Group { name: figure.of.clone(), rows: Vec::new() });
                groups.len() - 1
            });
            let rows = &mut groups[at].rows;
            let at = rows.iter().position(|row| row.name == figure.name).unwrap_or_else(|| {
                let cells = vec![Cell::default(); all.kernels.len()];
                rows.push(Row { name: figure.name.clone(), unit: figure.unit, cells });
                rows.len() - 1
            });
            let cell = &mut rows[at].cells[guest.kernel];
            match &figure.value {
                Ok(value) => cell.values.push(*value),
                Err(why) => cell.reasons.push(why.clone()),
            }
        }
    }
    groups
}

/// The first figure in every kernel, as a sentence.
fn headline(all: &SideBySide, groups: &[Group]) -> String {
    let Some((group, row)) = groups.first().and_then(|group| Some((group, group.rows.first()?)))
    else {
        return "No guest sent a record".to_owned();
    };
    let texts = all.kernels.iter().zip(row.texts());
    let beside: Vec<String> = texts.map(|(kernel, text)| format!("{text} in {kernel}")).collect();
    format!("{}, {}: {}", group.name, row.name, beside.join(", "))
}

/// Why figures are absent, in full: each reason once, with the figures that it is of.
fn notes(groups: &[Group]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in groups.iter().flat_map(|group| &group.rows) {
        for why in row.cells.iter().flat_map(|cell| &cell.reasons) {
            let at = reasons.iter().position(|(known, _)| known == why).unwrap_or_else(|| {
                reasons.push((why, Vec::new()));
                reasons.len() - 1
            });
            if !reasons[at].1.contains(&row.name.as_str()) {
                reasons[at].1.push(&row.name);
            }
        }
    }
    let in_full = reasons.iter().filter(|(why, _)| shortened(why) != *why);
    in_full.map(|(why, names)| format!("{}: {why}.", names.join(", "))).collect()
}

#[derive(Template)]
#[template(path = "lab_verb.html")]
struct Page<'a> {
    style: &'static str,
    all: &'a SideBySide,
    headline: String,
    groups: Vec<Group>,
    notes: Vec<String>,
    has_ratio: bool,
    is_virtual: bool,
}

/// The page.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &SideBySide) -> String {
    let groups = groups(all);
    let page = Page {
        style: include_str!("../template/style.css"),
        all,
        headline: headline(all, &groups),
        notes: notes(&groups),
        has_ratio: all.kernels.len() == 2,
        groups,
        is_virtual: all.time.is_virtual(),
    };
    page.render().expect("a string takes every text")
}

/// The document. `guests` are what each of them brought.
#[must_use]
pub fn document(all: &SideBySide, guests: &[Value]) -> Value {
    let groups = groups(all);
    let row = |group: &Group, row: &Row| {
        let kernel = |(name, cell): (&String, &Cell)| {
            json!({
                "kernel": name, "values": cell.values, "median": cell.median(),
                "reasons": cell.reasons,
            })
        };
        let kernels: Vec<Value> = all.kernels.iter().zip(&row.cells).map(kernel).collect();
        json!({
            "of": group.name, "name": row.name, "unit": row.unit, "kernels": kernels,
            "second_over_first": row.ratio(),
        })
    };
    let figures = groups.iter().flat_map(|group| group.rows.iter().map(|one| row(group, one)));
    let failures = all.failures.iter();
    let failures: Vec<Value> =
        failures.map(|(kernel, why)| json!({"kernel": kernel, "why": why})).collect();
    json!({
        "format": 1,
        "verb": all.verb,
        "words": all.words,
        "headline": headline(all, &groups),
        "timing": all.time,
        "figures": figures.collect::<Vec<Value>>(),
        "published": published::document(&all.published),
        "not_shown": if all.time.is_virtual() { all.limits } else { &[] },
        "guests": guests,
        "failures": failures,
    })
}

#[must_use]
pub fn table(all: &SideBySide) -> String {
    let groups = groups(all);
    let mut text = format!("{}\n", headline(all, &groups));
    let rows = || groups.iter().flat_map(|group| &group.rows);
    let names = rows().map(|row| row.name.chars().count() + 2);
    let first = names.chain(groups.iter().map(|group| group.name.chars().count())).max();
    let first = first.unwrap_or(0);
    let widths: Vec<usize> = (0..all.kernels.len())
        .map(|n| {
            let cells = rows().map(|row| row.cells[n].text(row.unit).chars().count());
            cells.chain([all.kernels[n].chars().count()]).max().unwrap_or(0)
        })
        .collect();
    for (n, group) in groups.iter().enumerate() {
        let _ = write!(text, "\n{:first$}", group.name);
        // The kernels stand above the first group only.
        for (kernel, width) in all.kernels.iter().zip(&widths).filter(|_| n == 0) {
            let _ = write!(text, "  {kernel:>width$}");
        }
        if n == 0 && all.kernels.len() == 2 {
            text.push_str("  second over first");
        }
        text.push('\n');
        for row in &group.rows {
            let _ = write!(text, "  {:1$}", row.name, first - 2);
            for (cell, width) in row.texts().iter().zip(&widths) {
                let _ = write!(text, "  {cell:>width$}");
            }
            let ratio = row.ratio_text();
            if !ratio.is_empty() {
                let _ = write!(text, "  {ratio}");
            }
            text.push('\n');
        }
    }
    text.push('\n');
    for note in notes(&groups) {
        let _ = writeln!(text, "{note}");
    }
    if all.time.is_virtual() {
        for limit in all.limits {
            let _ = writeln!(text, "{limit}");
        }
    }
    for (name, why) in &all.failures {
        let _ = writeln!(text, "{name}: {why}");
    }
    match published::text(&all.published) {
        none if none.is_empty() => text,
        published => text + "\n" + &published,
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::published::{KernelKind, PublishedStatistic, PublishedTable};

    use super::*;
    use crate::report::published::{Ours, Whose};

    fn guest(kernel: usize, seed: u64, limit: Result<f64, String>) -> VerbInGuest {
        let of = "c at <rest>".to_owned();
        let name = "highest good frequency".to_owned();
        VerbInGuest {
            kernel,
            name: format!("{kernel}-seed{seed}"),
            page: Some(format!("{kernel}-seed{seed}/report.html")),
            figures: vec![GuestFigure { of, name, unit: FigureUnit::Hz, value: limit }],
        }
    }

    fn side_by_side(guests: Vec<VerbInGuest>) -> SideBySide {
        SideBySide {
            verb: "wave sweep",
            words: "wave sweep --quick".to_owned(),
            limits: &["No caches."],
            time: Timing::Virtual { shift: 1 },
            kernels: vec!["stock".to_owned(), "rt".to_owned()],
            facts: Vec::new(),
            guests,
            failures: vec![("old".to_owned(), "the kernel gave up".to_owned())],
            published: Vec::new(),
        }
    }

    #[test]
    fn seeds_become_a_median_with_its_range_and_kernels_stand_side_by_side() {
        let stock = [4e3, 1e3, 2e3].map(Ok).into_iter();
        let stock = (1..).zip(stock).map(|(seed, hz)| guest(0, seed, hz));
        let rt = [1e3, 2e3].map(Ok).into_iter();
        let rt = (1..).zip(rt).map(|(seed, hz)| guest(1, seed, hz));
        let all = side_by_side(stock.chain(rt).collect());
        let shown = table(&all);
        // By hand: the middle of 1, 2, 4 is 2; that of 1 and 2 is 1.5.
        for part in ["2.00 kHz (1.00 kHz to 4.00 kHz)", "1.50 kHz (1", "  0.750\n", "No caches."] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
        let page = page(&all);
        for part in ["0-seed3/report.html", "c at &#60;rest&#62;", "the kernel gave up", "0.750"] {
            assert!(page.contains(part), "{part} is missing");
        }
        let document = document(&all, &[]);
        assert_eq!(document["figures"][0]["second_over_first"], 0.75);
        let alike = table(&side_by_side(vec![guest(0, 1, Ok(2e3)), guest(0, 2, Ok(2_000.4))]));
        assert!(alike.contains("2.00 kHz") && !alike.contains("2.00 kHz ("), "{alike}");
        assert_eq!(document["not_shown"][0], "No caches.");
    }

    #[test]
    fn published_figures_stand_beside_each_kernel_on_page_table_and_document() {
        let text = "name = 'x'\ntitle = 'x'\n[[published]]\nsubject = 'c'\nkernel = 'stock'\nsource = 'a lab'\n\
                    figures = { max_frequency = '50kHz' }\nwhy = 'a <pin>'\n";
        let table_of = PublishedTable::parse("x", text).expect("a table");
        let ours = |label: &str, kernel, hz| Ours {
            figures: vec![(PublishedStatistic::MaxFrequency, Ok(hz))],
            ..Whose { label, kernel: Some(kernel) }.ours("c")
        };
        let ours = [ours("deb", KernelKind::Stock, 5e3), ours("rt", KernelKind::RealTime, 1e3)];
        let all = SideBySide {
            published: published::of_table(&table_of.published, &ours),
            ..side_by_side(vec![guest(0, 1, Ok(5e3)), guest(1, 1, Ok(1e3))])
        };
        let document = document(&all, &[]);
        assert_eq!(
            document["published"][0]["ours"],
            json!([{"label": "deb", "low": 5e3, "high": 5e3}])
        );
        let (shown, page) = (table(&all), page(&all));
        assert!(shown.contains("50kHz  5kHz in deb (0.10)"), "{shown}");
        for part in ["href=\"#published\"", "5kHz in deb", "a &#60;pin&#62;"] {
            assert!(page.contains(part), "{part} is missing");
        }
        assert!(!table(&side_by_side(Vec::new())).contains("Published"));
    }

    #[test]
    fn what_has_no_figure_says_why() {
        let why = "not supported: this kernel lacks it";
        let all = side_by_side(vec![guest(0, 1, Ok(0.5)), guest(1, 1, Err(why.to_owned()))]);
        let shown = table(&all);
        assert!(shown.contains("  not supported\n"), "{shown}");
        let note = format!("\nhighest good frequency: {why}.\n");
        assert!(shown.contains(&note), "{shown}");
        assert_eq!(document(&all, &[])["figures"][0]["second_over_first"], Value::Null);
        let all = SideBySide { time: Timing::Wall, ..side_by_side(Vec::new()) };
        let shown = table(&all);
        assert!(shown.starts_with("No guest sent a record"), "{shown}");
        assert!(!shown.contains("No caches."), "that is said of virtual time: {shown}");
    }
}
