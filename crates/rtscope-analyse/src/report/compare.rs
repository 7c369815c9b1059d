//! Two sides on one page, and as text for a terminal: what changed, with intervals, and what else
//! differs.

use askama::Template;
use rtscope_model::{
    time::{Nanos, Rounding},
    verdict::Statistic,
};

use crate::{
    compare::{
        Basis, CellComparison, Chance, Comparison, SettingDifference, ShareRatio, Shift,
        SideFigures, SideFrames, counted, times,
    },
    number::{grouped, us, us_rounded},
    plot::{self, PlotOptions, overlay, table::Table},
    report::terminal::Style,
};

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
    /// What became of the frames of each side; without a row where none was sent.
    frames: Table,
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
        headline: answer(all),
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

/// The first line, as a sentence.
fn answer(all: &Comparison) -> String {
    let (initial, rest) = all.answer.split_at(1);
    format!("{}{rest}.", initial.to_uppercase())
}

fn change_view(number: usize, change: &CellComparison) -> ChangeView<'_> {
    let options =
        PlotOptions { width: plot::INLINE_WIDTH, standalone: false, ..PlotOptions::default() };
    let sentences: Vec<String> =
        change.sentences.iter().map(|sentence| super::html::sentence(sentence)).collect();
    let interval = match change.basis {
        _ if change.shifts.is_empty() => "No quantile is known of both sides.",
        Basis::Runs => "Intervals: Student's t on the values of the runs.",
        Basis::Slices => {
            "The intervals use the equivalent number of independent wake-ups of each run."
        }
        Basis::Independent => {
            "The intervals assume independent wake-ups, because a run is too short or its latencies have no \
                order. The true intervals are wider."
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
        frames: frames(change),
        limits: limits(change),
        shifts: Table { note: interval.to_owned(), ..shifts(&change.shifts) },
    }
}

fn sides(change: &CellComparison) -> Table {
    let mut table = Table::new([
        "side", "max, us", "missed", "p50, us", "mean, us", "recorded", "observed", "runs",
    ]);
    for (name, figures) in [("A", &change.a), ("B", &change.b)] {
        let SideFigures { runs, recorded, missed, exposure_ns, mean_ns, p50_ns, max_ns, .. } =
            *figures;
        let max = match figures.max_is_at_least {
            true => format!("≥{}", us_rounded(max_ns, Rounding::Down)),
            false => us(max_ns),
        };
        let known = |ns: Option<u64>| ns.map_or_else(|| "not known".to_owned(), us);
        table.row([
            name.to_owned(),
            max,
            missed.map_or_else(|| "not known".to_owned(), grouped),
            known(p50_ns),
            known(mean_ns),
            grouped(recorded),
            Nanos(exposure_ns).to_string(),
            runs.to_string(),
        ]);
    }
    table.note = "A maximum is one latency: which side's is larger says nothing.".to_owned();
    table
}

fn frames(change: &CellComparison) -> Table {
    let mut table = Table::new([
        "side",
        "sent",
        "not sent",
        "late",
        "lost",
        "refused by the kernel",
        "out of order",
        "duplicates",
        "strays",
    ]);
    for (name, figures) in [("A", &change.a), ("B", &change.b)] {
        let Some(SideFrames {
            sent,
            not_sent,
            late,
            lost,
            refused,
            out_of_order,
            duplicates,
            strays,
        }) = figures.frames
        else {
            continue;
        };
        let counts = [sent, not_sent, late, lost, refused, out_of_order, duplicates, strays];
        table.row(std::iter::once(name.to_owned()).chain(counts.map(grouped)));
    }
    table.note = "Missed activations are the sum of not sent, late and lost.".to_owned();
    table
}

fn limits(change: &CellComparison) -> Table {
    let mut table =
        Table::new(["at or above", "A", "B", "B's share, times A's", "95 %", "adjusted p-value"]);
    for seen in &change.exceedances {
        let counts =
            [counted(seen.a, seen.a_surely, seen.a_of), counted(seen.b, seen.b_surely, seen.b_of)];
        let none = match (seen.a, seen.b, seen.refused) {
            (_, _, Some(refusal)) => refusal.to_string(),
            (Some(_), Some(_), _) => "nothing to compare".to_owned(),
            _ => "not known".to_owned(),
        };
        table.row(ratio_row(Nanos(seen.limit_ns).unrounded(), counts, seen.ratio.as_ref(), none));
    }
    if let Some(missed) = &change.missed {
        let of = |count, of| counted(Some(count), count, of);
        let counts = [of(missed.a, missed.a_of), of(missed.b, missed.b_of)];
        let none = missed.refused.map_or("nothing to compare".to_owned(), |why| why.to_string());
        table.row(ratio_row("missed".to_owned(), counts, missed.ratio.as_ref(), none));
    }
    table
}

fn ratio_row(
    name: String,
    [a, b]: [String; 2],
    ratio: Option<&ShareRatio>,
    none: String,
) -> [String; 6] {
    let bound = |end: Option<f64>, rounding| {
        end.map_or_else(|| "no bound".to_owned(), |end| times(end, rounding))
    };
    let Some(ratio) = ratio else {
        return [name, a, b, none, String::new(), String::new()];
    };
    let low = times(ratio.low, Rounding::Down);
    let ends = format!("{low} to {}", bound(ratio.high, Rounding::Up));
    [name, a, b, bound(ratio.ratio, Rounding::Nearest), ends, chance(Some(ratio.chance))]
}

/// The chance of such a difference between equal systems, for all figures together.
fn chance(chance: Option<Chance>) -> String {
    match chance {
        None => String::new(),
        Some(chance) if chance.p_adjusted < 0.001 => "below 0.1 %".to_owned(),
        Some(chance) => format!("{:.1} %", 100.0 * chance.p_adjusted),
    }
}

fn shifts(shifts: &[Shift]) -> Table {
    let mut table =
        Table::new(["quantile", "A, us", "B, us", "shift, us", "95 %", "adjusted p-value"]);
    for shift in shifts {
        table.row([
            Statistic::Quantile(shift.parts).to_string(),
            format!("{:.2}", shift.a_ns / 1e3),
            format!("{:.2}", shift.b_ns / 1e3),
            crate::compare::signed_us(shift.shift_ns, Rounding::Nearest),
            match shift.refused {
                // The sentences above the table say why.
                Some(_) => "no interval".to_owned(),
                None => shift.ends().join(" to "),
            },
            chance(shift.chance),
        ]);
    }
    table
}

fn differences(differences: &[SettingDifference]) -> Table {
    let mut table = Table::new(["topic", "what", "A", "B"]);
    for one in differences {
        table.row([&one.topic, &one.name, &one.a, &one.b].map(String::clone));
    }
    table
}

/// The comparison as text for a terminal.
#[must_use]
pub fn text(all: &Comparison, style: Style) -> String {
    let mut text = style.paragraph("", 2, &answer(all));
    text += &format!("\nA  {}\nB  {}\n", all.a.join(", "), all.b.join(", "));
    for change in &all.changes {
        text += &format!("\n{}\n", change.name);
        for sentence in &change.sentences {
            text += &style.paragraph("  ", 4, sentence);
        }
    }
    if !all.notes.is_empty() {
        text += "\nNotes\n";
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
