//! Where the numbers come from, that they add up, and the numbers themselves.

use rtscope_model::{event::Event, record::Record, slice::Scope, text::shell_word, time::Nanos};
use serde_json::{Value, json};

use super::Fact;
use crate::{
    judgement::{FigureRow, Judgement},
    number::{counted, grouped},
    plot::table::Table,
    report::harmless_json,
    verdict_document::document,
};

/// Threads of all phases up to which their figures go into the page's JSON block.
const THREADS_IN_JSON: usize = 200;

/// Bins of all histograms up to which those of threads go into the page's JSON block.
const BINS_IN_JSON: usize = 40_000;

/// The last two sections.
#[derive(Debug)]
pub(super) struct ProvenanceView {
    pub(super) headline: String,
    pub(super) facts: Vec<Fact>,
    pub(super) plan: String,
    pub(super) accounting: Table,
    pub(super) json: String,
    pub(super) json_note: String,
    pub(super) bins: Vec<(String, Table)>,
}

impl ProvenanceView {
    pub(super) fn new(record: &Record, judgement: &Judgement) -> ProvenanceView {
        let (accounting, adds_up) = accounting(judgement);
        let (json, json_note) = raw_json(record, judgement);
        ProvenanceView {
            headline: match adds_up {
                true if record.is_imported() => {
                    "What was read from the files is accounted for; what was planned is not known"
                        .to_owned()
                }
                true => "Every planned activation is accounted for".to_owned(),
                false => "The accounting does not add up: do not trust these figures".to_owned(),
            },
            facts: facts(record),
            plan: record.plan.to_toml(),
            accounting,
            json,
            json_note,
            bins: bins(judgement),
        }
    }
}

fn facts(record: &Record) -> Vec<Fact> {
    let mut facts = Vec::new();
    for stamped in &record.events {
        match &stamped.event {
            Event::RunStarted { format, version, command, wall_clock, monotonic_ns } => {
                let name = if record.is_imported() { "Imported by" } else { "Measured by" };
                facts.push(Fact::new(name, format!("rtscope {version}")));
                facts.push(Fact::code("Command line", command_line(command)));
                if record.is_imported() {
                    facts.push(Fact::new("Wall clock at the import", wall_clock.clone()));
                } else {
                    facts.push(Fact::new("Wall clock at the start", wall_clock.clone()));
                    let monotonic = format!("{} ns", grouped(*monotonic_ns));
                    facts.push(Fact::new("CLOCK_MONOTONIC at the start", monotonic));
                }
                facts.push(Fact::new("Format of the record", format.to_string()));
            }
            Event::SettingChanged { setting, path, from, to } => {
                let text = format!("{path}: {from} to {to}");
                facts.push(Fact::code(&format!("Changed: {setting}"), text));
            }
            Event::SettingRestored { setting, path, to } => {
                facts.push(Fact::code(&format!("Restored: {setting}"), format!("{path}: {to}")));
            }
            Event::SessionStarted { locked_kib, control, session, .. } => {
                let text =
                    format!("control thread: {control}; {} KiB locked", grouped(*locked_kib));
                facts.push(Fact::new(&format!("Session {session}"), text));
            }
            _ => {}
        }
    }
    let discarded = record.slices.iter().filter(|slice| slice.scope == Scope::Discarded);
    let discarded: u64 = discarded.map(|slice| slice.recorded + slice.missed).sum();
    facts.push(Fact::new("Discarded as warm-up", counted(discarded, "activation")));
    facts.push(Fact::new("In the record", in_the_record(record)));
    facts
}

fn in_the_record(record: &Record) -> String {
    let mut files = vec![
        "plan.toml".to_owned(),
        format!("events.jsonl ({})", counted(record.content.events, "event")),
        slices(record),
    ];
    files.extend(record.before.as_ref().map(|_| "environment.before.json".to_owned()));
    files.extend(record.after.as_ref().map(|_| "environment.after.json".to_owned()));
    files.join(", ")
}

/// How many slices the files hold, and how many of them this page is made of.
fn slices(record: &Record) -> String {
    let in_files = record.content.slices.values().sum();
    let read = counted(in_files, "slice");
    match record.content.joined_ns {
        None => format!("slices/ ({read})"),
        Some(joined_ns) => {
            let length = Nanos(joined_ns);
            match record.slices.len() as u64 {
                kept if kept < in_files => {
                    let kept = grouped(kept);
                    format!("slices/ ({read}; joined to {kept} of up to {length} for this page)")
                }
                _ => format!("slices/ ({read} of up to {length})"),
            }
        }
    }
}

/// A command line that a shell would read back.
fn command_line(words: &[String]) -> String {
    let quoted = words.iter().map(|word| shell_word(word));
    quoted.collect::<Vec<_>>().join(" ")
}

/// `planned = recorded + missed` and `recorded = inside + overflow` for each thread of each phase,
/// and whether both hold everywhere.
fn accounting(judgement: &Judgement) -> (Table, bool) {
    let mut table = Table::new([
        "phase", "thread", "planned", "recorded", "missed", "inside", "overflow", "holds",
    ]);
    let mut holds = true;
    for cell in &judgement.cells {
        for row in cell.threads.iter().chain([&cell.all]) {
            let overflow = row.histogram.overflow();
            let inside = row.histogram.count() - overflow;
            let ok = row.planned == row.recorded + row.missed && row.recorded == inside + overflow;
            holds &= ok;
            table.row([
                cell.name.clone(),
                row.label.clone(),
                if row.missed_is_known { grouped(row.planned) } else { "not known".to_owned() },
                grouped(row.recorded),
                if row.missed_is_known { grouped(row.missed) } else { "not known".to_owned() },
                grouped(inside),
                grouped(overflow),
                if ok { "yes".to_owned() } else { "no".to_owned() },
            ]);
        }
    }
    (table, holds)
}

/// The bins of each phase over all threads.
fn bins(judgement: &Judgement) -> Vec<(String, Table)> {
    let table = |row: &FigureRow| {
        let mut table = Table::new(["from ns", "to ns", "measured", "corrected"]);
        let layout = row.histogram.layout();
        let measured: std::collections::BTreeMap<u32, u64> =
            row.histogram.bins().into_iter().collect();
        for (index, corrected) in row.corrected.bins() {
            let upper_ns = match layout.upper_ns(index) {
                u64::MAX => "open".to_owned(),
                upper_ns => grouped(upper_ns),
            };
            let measured = measured.get(&index).copied().unwrap_or(0);
            let lower = grouped(layout.lower_ns(index));
            table.row([lower, upper_ns, grouped(measured), grouped(corrected)]);
        }
        if table.rows.len() > 400 {
            let dropped = table.rows.len() - 400;
            table.rows.drain(..dropped);
            table.note = format!(
                "The {dropped} lowest bins are left out here; the JSON block holds all of them."
            );
        }
        table
    };
    let measured = judgement.cells.iter().filter(|cell| cell.all.planned > 0).take(12);
    measured.map(|cell| (cell.name.clone(), table(&cell.all))).collect()
}

/// The judgement and the bins as JSON that may stand inside a script element, and what was left out.
fn raw_json(record: &Record, judgement: &Judgement) -> (String, String) {
    let mut verdict = document(judgement, record);
    let threads: usize = judgement.cells.iter().map(|cell| cell.threads.len()).sum();
    let mut left_out = Vec::new();
    if threads > THREADS_IN_JSON {
        left_out.push("the figures of single threads");
        if let Some(cells) = verdict["cells"].as_array_mut() {
            cells.iter_mut().filter_map(Value::as_object_mut).for_each(|cell| {
                cell.remove("cpus");
            });
        }
    }
    let rows = || judgement.cells.iter().flat_map(|cell| &cell.threads);
    let bins: usize = rows().map(|row| row.histogram.bins().len()).sum();
    let with_threads = bins <= BINS_IN_JSON;
    if !with_threads {
        left_out.push("the bins of single threads");
    }
    let histogram = |row: &FigureRow| {
        json!({
            "label": row.label,
            "thread": row.thread,
            "layout": row.histogram.layout(),
            "bins": row.histogram.bins(),
            "corrected_bins":
                if row.corrected == row.histogram { Value::Null } else { json!(row.corrected.bins()) },
        })
    };
    let histograms: Vec<Value> = judgement
        .cells
        .iter()
        .map(|cell| {
            let threads = cell.threads.iter().filter(|_| with_threads);
            json!({
                "cell": cell.cell,
                "name": cell.name,
                "rows": threads.chain([&cell.all]).map(histogram).collect::<Vec<_>>(),
            })
        })
        .collect();
    let note = match left_out.is_empty() {
        true => String::new(),
        false => format!(
            "To keep the page small, {} are left out here; the record's files hold them.",
            left_out.join(" and ")
        ),
    };
    (harmless_json(&json!({ "verdict": verdict, "histograms": histograms })), note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_quoted_where_a_shell_needs_it() {
        let words = ["rtscope", "run", "--require", "max < 200us", "it's"].map(str::to_owned);
        assert_eq!(command_line(&words), "rtscope run --require 'max < 200us' 'it'\\''s'");
    }

    #[test]
    fn json_can_not_end_its_script_element() {
        let text = harmless_json(&json!(["</script><!--", "a & b"]));
        assert!(!text.contains(['<', '>', '&']), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).expect("json")[0], "</script><!--");
    }
}
