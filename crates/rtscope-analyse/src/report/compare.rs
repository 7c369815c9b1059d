//! Two sides on one page, and as text for a terminal: what changed, with intervals, and what else
//! differs.

use askama::Template;
use rtscope_model::{time::Nanos, verdict::Statistic};

use crate::{
    compare::{Change, Comparison, Difference, Exceedances, Figures, Ratio, Shift, counted},
    number::{grouped, us},
    plot::{self, Options, overlay, table::Table},
    report::terminal::Style,
};

/// Width that inline plots are drawn for; the page scales them.
const PLOT_WIDTH: u32 = 880;

/// Differences that the terminal lists; the page has all.
const DIFFERENCES_SHOWN: usize = 12;

#[derive(Debug, Template)]
#[template(path = "compare.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    headline: String,
    all: &'a Comparison,
    changes: Vec<ChangeView<'a>>,
    differences: Table,
    differences_headline: &'static str,
    notes: Vec<String>,
}

/// A pair of cells.
#[derive(Debug)]
struct ChangeView<'a> {
    number: usize,
    name: &'a str,
    headline: String,
    sentences: Vec<String>,
    svg: String,
    sides: Table,
    limits: Table,
    shifts: Table,
}

/// The page. The same comparison gives the same bytes.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &Comparison) -> String {
    let changes =
        all.changes.iter().enumerate().map(|(number, change)| change_view(number, change));
    let page = Page {
        style: include_str!("template/style.css"),
        plot_rules: plot::cell_rules() + &plot::dark_rules(),
        headline: super::html::sentence(&headline(all)),
        all,
        changes: changes.collect(),
        differences: differences(&all.differences),
        differences_headline: match (all.differences.is_empty(), all.imported) {
            (false, _) => "What a difference may also come from",
            (true, [false, false]) => "Nothing else that was recorded differs",
            (true, _) => "What else differs is not in the files",
        },
        notes: all.notes.iter().map(|note| super::html::sentence(note)).collect(),
    };
    page.render().expect("a string takes every text")
}

/// What the whole says: the first sentence of the pair in which most changed, or that nothing is comparable.
#[must_use]
pub fn headline(all: &Comparison) -> String {
    let parted = |change: &&Change| change.effects.iter().any(|effect| effect.a != effect.b);
    let apart = |change: &Change| change.distance.wasserstein_ns.unwrap_or(0.0);
    let told = all
        .changes
        .iter()
        .find(parted)
        .or_else(|| all.changes.iter().max_by(|a, b| apart(a).total_cmp(&apart(b))));
    match told.and_then(|change| Some((change, change.sentences.first()?))) {
        Some((change, sentence)) => format!("{}: {sentence}", change.name),
        None => "the sides share no cell that recorded anything".to_owned(),
    }
}

fn change_view(number: usize, change: &Change) -> ChangeView<'_> {
    let options = Options { width: PLOT_WIDTH, standalone: false, ..Options::default() };
    let sentences: Vec<String> =
        change.sentences.iter().map(|sentence| super::html::sentence(sentence)).collect();
    let interval = match (change.blocks_resampled, change.runs_resampled) {
        (_, true) => "Intervals: runs and blocks of time drawn again.",
        (true, _) => "Intervals: blocks of time drawn again.",
        _ if change.shifts.is_empty() => "No quantile is known of both sides.",
        _ => {
            "Intervals: from order statistics, as if latencies were independent: there are too few slices for more."
        }
    };
    ChangeView {
        number,
        name: &change.name,
        headline: sentences.first().cloned().unwrap_or_default(),
        sentences: sentences.into_iter().skip(1).collect(),
        svg: match change.histograms.iter().all(|histogram| histogram.bins().is_empty()) {
            true => String::new(),
            false => overlay::draw(change, number, &options),
        },
        sides: sides(change),
        limits: limits(&change.exceedances),
        shifts: Table { note: interval.to_owned(), ..shifts(&change.shifts) },
    }
}

fn sides(change: &Change) -> Table {
    let mut table = Table::new([
        "side", "runs", "recorded", "missed", "observed", "mean, us", "p50, us", "max, us",
    ]);
    for (name, figures) in [("A", &change.a), ("B", &change.b)] {
        let Figures { runs, recorded, missed, exposure_ns, mean_ns, p50_ns, max_ns } = *figures;
        let known = |ns: Option<u64>| ns.map_or_else(|| "not known".to_owned(), us);
        table.row([
            name.to_owned(),
            runs.to_string(),
            grouped(recorded),
            missed.map_or_else(|| "not known".to_owned(), grouped),
            Nanos(exposure_ns).to_string(),
            known(mean_ns),
            known(p50_ns),
            us(max_ns),
        ]);
    }
    table.note = "A maximum is one latency: which side's is larger says nothing.".to_owned();
    table
}

fn limits(exceedances: &[Exceedances]) -> Table {
    let mut table = Table::new(["at or above", "A", "B", "B's share, times A's", "95 %"]);
    for seen in exceedances {
        let times =
            |ratio: f64| if ratio >= 0.01 { format!("{ratio:.2}") } else { format!("{ratio:.1e}") };
        let ratio = |ratio: &Ratio| ratio.ratio.map_or_else(|| "no bound".to_owned(), times);
        let ends = |ratio: &Ratio| {
            let high = ratio.high.map_or_else(|| "no bound".to_owned(), times);
            format!("{} to {high}", times(ratio.low))
        };
        let none = || match (seen.a, seen.b) {
            (Some(_), Some(_)) => "nothing to compare".to_owned(),
            _ => "not known".to_owned(),
        };
        table.row([
            Nanos(seen.limit_ns).to_string(),
            counted(seen.a, seen.a_surely, seen.a_of),
            counted(seen.b, seen.b_surely, seen.b_of),
            seen.ratio.as_ref().map_or_else(none, ratio),
            seen.ratio.as_ref().map_or_else(String::new, ends),
        ]);
    }
    table
}

fn shifts(shifts: &[Shift]) -> Table {
    let mut table = Table::new(["quantile", "A, us", "B, us", "shift, us", "95 %"]);
    let end =
        |end: Option<f64>| end.map_or_else(|| "no bound".to_owned(), crate::compare::signed_us);
    for shift in shifts {
        table.row([
            Statistic::Quantile(shift.parts).to_string(),
            format!("{:.2}", shift.a_ns / 1e3),
            format!("{:.2}", shift.b_ns / 1e3),
            crate::compare::signed_us(shift.shift_ns),
            format!("{} to {}", end(shift.low_ns), end(shift.high_ns)),
        ]);
    }
    table
}

fn differences(differences: &[Difference]) -> Table {
    let mut table = Table::new(["topic", "what", "A", "B"]);
    for one in differences {
        table.row([&one.topic, &one.name, &one.a, &one.b].map(String::clone));
    }
    table
}

/// The comparison as text for a terminal.
#[must_use]
pub fn text(all: &Comparison, style: Style) -> String {
    let mut text = format!("A  {}\nB  {}\n", all.a.join(", "), all.b.join(", "));
    for change in &all.changes {
        text += &format!("\n{}\n", change.name);
        for sentence in &change.sentences {
            text += &style.paragraph("  ", 4, sentence);
        }
    }
    if all.changes.is_empty() {
        text += &format!("\n{}\n", headline(all));
    }
    if !all.notes.is_empty() {
        text += "\nKnow\n";
        all.notes.iter().for_each(|note| text += &style.paragraph("  - ", 4, note));
    }
    if !all.differences.is_empty() {
        text += "\nWhat else differs\n";
        for one in all.differences.iter().take(DIFFERENCES_SHOWN) {
            let line = format!("{}, {}: {} -> {}", one.topic, one.name, one.a, one.b);
            text += &style.paragraph("  ", 4, &line);
        }
        let more = all.differences.len().saturating_sub(DIFFERENCES_SHOWN);
        if more > 0 {
            text += &format!("  and {more} more, in the report\n");
        }
    }
    text
}
