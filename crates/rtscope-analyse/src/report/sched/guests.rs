//! Experiments in several kernels on one page: for each the ratios that were predicted and measured.

use std::fmt::Write as _;

use askama::Template;
use rtscope_model::{guest::Timing, published::Published, sched::ExperimentRecord};

use serde_json::{Value, json};

use super::{ours, rows::rows};
use crate::report::published::{self, Ours, PublishedBesideOurs, Whose};

/// An experiment's record from a guest.
#[derive(Clone, Debug)]
pub struct ExperimentInGuest {
    pub kernel: usize,
    pub record: ExperimentRecord,
    pub page: String,
}

/// Everything that the page shows.
#[derive(Clone, Debug)]
pub struct Guests {
    pub time: Timing,
    /// The kernels as they were asked for.
    pub kernels: Vec<String>,
    /// What is known of each kernel: name and value.
    pub facts: Vec<(String, String)>,
    pub records: Vec<ExperimentInGuest>,
    /// What brought no record: which, and why.
    pub failures: Vec<(String, String)>,
}

/// An application in one kernel.
struct Place {
    page: String,
    response: String,
    ratio: String,
    predicted: String,
    predicted_ratio: String,
    off: String,
    deviates: bool,
}

/// An application in every kernel.
struct Row {
    name: String,
    policy: String,
    cpus: String,
    places: Vec<Option<Place>>,
}

/// An experiment in every kernel.
struct Table {
    name: String,
    title: String,
    rows: Vec<Row>,
}

#[derive(Template)]
#[template(path = "sched_guests.html")]
struct Page<'a> {
    style: &'static str,
    all: &'a Guests,
    headline: String,
    tables: Vec<Table>,
    published: Vec<PublishedBesideOurs>,
    is_virtual: bool,
}

/// What the whole says in a sentence.
fn headline(tables: &[Table]) -> String {
    let places =
        || tables.iter().flat_map(|table| &table.rows).flat_map(|row| row.places.iter().flatten());
    let off = places().filter(|place| place.deviates).count();
    match (places().count(), off) {
        (0, _) => "No guest sent a record".to_owned(),
        (count, 0) => format!("All {count} responses are within a tenth of their predictions"),
        (count, off) => {
            format!("{off} of {count} responses are more than a tenth off their predictions")
        }
    }
}

/// The page. The same records give the same bytes.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &Guests) -> String {
    let tables = tables(all);
    let page = Page {
        style: include_str!("../template/style.css"),
        all,
        headline: headline(&tables),
        tables,
        published: beside(all),
        is_virtual: all.time.is_virtual(),
    };
    page.render().expect("a string takes every text")
}

/// The document. `guests` are what each of them brought.
#[must_use]
pub fn document(all: &Guests, guests: &[Value]) -> Value {
    let failures = all.failures.iter();
    let failures: Vec<Value> =
        failures.map(|(kernel, why)| json!({"kernel": kernel, "why": why})).collect();
    json!({
        "format": 1,
        "timing": all.time,
        "guests": guests,
        "failures": failures,
        "published": published::document(&beside(all)),
    })
}

/// The published figures of all experiments beside those of every kernel. An application is named with its experiment.
fn beside(all: &Guests) -> Vec<PublishedBesideOurs> {
    let named = |experiment: &str, subject: &str| format!("{experiment}, {subject}");
    let mut theirs: Vec<Published> = Vec::new();
    let mut seen: Vec<Ours> = Vec::new();
    for one in &all.records {
        let experiment = &one.record.experiment;
        let entries = experiment.published.iter().map(|entry| Published {
            subject: entry.subject.as_deref().map(|subject| named(&experiment.name, subject)),
            ..entry.clone()
        });
        for entry in entries {
            if !theirs.contains(&entry) {
                theirs.push(entry);
            }
        }
        let label = all.kernels.get(one.kernel).map_or("", String::as_str);
        let whose = Whose { label, kernel: None };
        let figures = ours(&one.record, whose).into_iter();
        seen.extend(
            figures.map(|one| Ours { subject: named(&experiment.name, &one.subject), ..one }),
        );
    }
    published::beside(&theirs, &seen)
}

#[must_use]
pub fn table(all: &Guests) -> String {
    let tables = tables(all);
    let mut text = format!("{}\n", headline(&tables));
    let width = all.kernels.iter().map(String::len).max().unwrap_or(0).max(30);
    for table in &tables {
        let _ = write!(text, "\n{:22} {:13} {:5}", table.name, "policy", "CPUs");
        for kernel in &all.kernels {
            let _ = write!(text, "  {kernel:>width$}");
        }
        text.push('\n');
        for row in &table.rows {
            let _ = write!(text, "  {:20} {:13} {:5}", row.name, row.policy, row.cpus);
            for place in &row.places {
                let said = place.as_ref().map_or("no record".to_owned(), |place| {
                    let mark = if place.deviates { "!" } else { "" };
                    format!("{mark}{} : {}, {}", place.ratio, place.predicted_ratio, place.response)
                });
                let _ = write!(text, "  {said:>width$}");
            }
            text.push('\n');
        }
    }
    if !all.records.is_empty() {
        text += "\nratio of the response to the first one's : as predicted, response\n";
    }
    text.push_str(&published::text(&beside(all)));
    for (name, why) in &all.failures {
        let _ = writeln!(text, "{name}: {why}");
    }
    text
}

/// A table for each experiment, in the order of the first record of each.
fn tables(all: &Guests) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for one in &all.records {
        let experiment = &one.record.experiment;
        let at = tables.iter().position(|table| table.name == experiment.name);
        let at = at.unwrap_or_else(|| {
            let (name, title) = (experiment.name.clone(), experiment.title.clone());
            tables.push(Table { name, title, rows: Vec::new() });
            tables.len() - 1
        });
        for (n, row) in rows(&one.record).into_iter().enumerate() {
            let rows = &mut tables[at].rows;
            if rows.len() <= n {
                let places = all.kernels.iter().map(|_| None).collect();
                rows.push(Row { name: row.name, policy: row.policy, cpus: row.cpus, places });
            }
            rows[n].places[one.kernel] = Some(Place {
                page: one.page.clone(),
                response: row.response,
                ratio: row.ratio,
                predicted: row.predicted,
                predicted_ratio: row.predicted_ratio,
                off: row.off,
                deviates: !row.remark.is_empty(),
            });
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sched::tests::{app, record};
    use rtscope_model::schedule::Policy;

    #[test]
    fn kernels_stand_beside_each_other_and_a_missing_one_is_said() {
        let of = |kernel, ends: [u64; 2]| {
            let first = app("rt", Policy::Fifo, &[(0, ends[0])]);
            let second = app("x<y", Policy::Other, &[(ends[0], ends[1])]);
            let record = record(vec![first, second]);
            ExperimentInGuest { kernel, record, page: format!("{kernel}/x/report.html") }
        };
        let mut all = Guests {
            time: Timing::Virtual { shift: 1 },
            kernels: vec!["stock".to_owned(), "rt".to_owned()],
            facts: Vec::new(),
            records: vec![of(0, [100, 200]), of(1, [100, 300])],
            failures: vec![("x in old".to_owned(), "the kernel gave up".to_owned())],
        };
        let said = headline(&tables(&all));
        assert!(said.starts_with("1 of 4"), "{said}");
        let (shown, page) = (table(&all), page(&all));
        assert!(shown.contains("2.00 : 2.00") && shown.contains("!3.00 : 2.00"), "{shown}");
        // The first application ends alike in both kernels, the second one doesn't.
        assert!(shown.contains("x<y, rt, response"), "{shown}");
        assert!(shown.contains("0.2s in stock; 0.3s in rt (0.050; 0.075)"), "{shown}");
        for part in ["0/x/report.html", "x&#60;y", "the kernel gave up", "counts instructions"] {
            assert!(page.contains(part), "{part} is missing");
        }
        all.records.pop();
        assert!(headline(&tables(&all)).starts_with("All 2") && table(&all).contains("no record"));
    }
}
