//! Counters as a table, a page, and JSON. The same record gives the same bytes.

use askama::Template;
use rtscope_model::{
    published::PublishedStatistic,
    stat::{Counted, CountedBy, CountedProgram, CounterRecord},
    time::{Nanos, Rounding},
};
use serde_json::{Map, Value, json};

use crate::{
    number::{counted, grouped},
    plot,
    report::published::{self, Ours, PublishedBesideOurs, Whose},
    statistics::stat::{JudgedRuns, Mean, MeanRatio, StatFigure, compare, judge},
};

fn is_simulated(record: &CounterRecord) -> bool {
    matches!(record.by, CountedBy::Simulator(_))
}

/// The record and its judgement as one document. What is not known is null, with its reason beside it.
#[must_use]
pub fn document(record: &CounterRecord, published: &[PublishedBesideOurs]) -> Value {
    let simulated = is_simulated(record);
    let figure = |one: &JudgedRuns| match &one.mean {
        Ok(mean) => json!({
            "mean": mean.mean,
            "low": mean.low,
            "high": mean.high,
            "deviation": mean.deviation,
            "share_counted": one.share,
            "user_only": one.user_only,
        }),
        Err(why) => json!({ "mean": null, "reason": why }),
    };
    let program = |one: &CountedProgram| {
        let figures: Map<String, Value> = judge(one, simulated)
            .iter()
            .map(|judged| (judged.figure.key().to_owned(), figure(judged)))
            .collect();
        let failed: Vec<&String> = one.runs.iter().filter_map(|run| run.failed.as_ref()).collect();
        json!({
            "name": one.name,
            "command": one.command,
            "runs": one.runs.len(),
            "failed": failed,
            "figures": figures,
        })
    };
    let ratios = compare(record, simulated).map(|all| {
        let one = |(figure, ratio): (StatFigure, Option<MeanRatio>)| {
            (figure.key().to_owned(), json!(ratio))
        };
        all.into_iter().map(one).collect::<Map<String, Value>>()
    });
    json!({
        "format": record.format,
        "version": record.version,
        "wall_clock": record.wall_clock,
        "kernel": record.kernel,
        "simulated": simulated,
        "by": match &record.by {
            CountedBy::Kernel => "kernel",
            CountedBy::Simulator(version) => version,
        },
        "programs": record.programs.iter().map(program).collect::<Vec<_>>(),
        "ratios": ratios,
        "published": published::document(published),
    })
}

/// What each program shows, for published figures to be set beside.
#[must_use]
pub fn ours(record: &CounterRecord, whose: Whose<'_>) -> Vec<Ours> {
    let simulated = is_simulated(record);
    let program = |one: &CountedProgram| {
        let figure = |judged: &JudgedRuns| {
            let mean = judged.mean.as_ref().map(|mean| mean.mean);
            (statistic(judged.figure), mean.map_err(Clone::clone))
        };
        let figures = judge(one, simulated).iter().map(figure).collect();
        Ours { figures, ..whose.ours(&one.name) }
    };
    record.programs.iter().map(program).collect()
}

/// A figure as published ones name it.
const fn statistic(figure: StatFigure) -> PublishedStatistic {
    match figure {
        StatFigure::ElapsedNs => PublishedStatistic::Elapsed,
        StatFigure::Counter(counted) => PublishedStatistic::Counter(counted),
        StatFigure::CpusUsed => PublishedStatistic::CpusUsed,
        StatFigure::InstructionsPerCycle => PublishedStatistic::InstructionsPerCycle,
        StatFigure::CyclesPerSecond => PublishedStatistic::Clock,
        StatFigure::BranchMissRate => PublishedStatistic::BranchMissRate,
    }
}

/// A row: a figure, its value for each program, and the ratio.
#[derive(Debug)]
struct Row {
    name: String,
    values: Vec<String>,
    ratio: String,
}

/// A figure in words for people.
pub(super) fn named(figure: StatFigure) -> &'static str {
    match figure {
        StatFigure::ElapsedNs => "elapsed",
        StatFigure::Counter(Counted::TaskClockNs) => "task clock",
        StatFigure::Counter(Counted::ContextSwitches) => "context switches",
        StatFigure::Counter(Counted::Migrations) => "migrations",
        StatFigure::Counter(Counted::PageFaults) => "page faults",
        StatFigure::Counter(Counted::Cycles) => "cycles",
        StatFigure::Counter(Counted::Instructions) => "instructions",
        StatFigure::Counter(Counted::Branches) => "branches",
        StatFigure::Counter(Counted::BranchMisses) => "branch misses",
        StatFigure::CpusUsed => "CPUs used",
        StatFigure::InstructionsPerCycle => "instructions per cycle",
        StatFigure::CyclesPerSecond => "clock",
        StatFigure::BranchMissRate => "share of branches missed",
    }
}

fn value(figure: StatFigure, value: f64) -> String {
    match figure {
        StatFigure::ElapsedNs | StatFigure::Counter(Counted::TaskClockNs) => {
            Nanos(value.max(0.0).round() as u64).to_string()
        }
        // Beside a mean of few, a percentage of a rounded one would say something else.
        StatFigure::Counter(_) if value < 100.0 && value.fract() != 0.0 => format!("{value:.1}"),
        StatFigure::Counter(_) => grouped(value.max(0.0).round() as u64),
        StatFigure::CpusUsed | StatFigure::InstructionsPerCycle => format!("{value:.2}"),
        StatFigure::CyclesPerSecond => format!("{:.2} GHz", value / 1e9),
        StatFigure::BranchMissRate => format!("{:.2} %", value * 100.0),
    }
}

fn cell(one: &JudgedRuns) -> String {
    match &one.mean {
        Err(why) => why.split(':').next().unwrap_or(why).to_owned(),
        Ok(mean) => value(one.figure, mean.mean) + &spread(mean),
    }
}

/// Whether a counter leaves out what the kernel does for the program.
fn is_user_only(one: &JudgedRuns) -> bool {
    one.user_only && one.mean.is_ok() && matches!(one.figure, StatFigure::Counter(_))
}

/// A column's heading; a command line that leaves no room for figures has a letter, which a note explains.
fn heading(program: &CountedProgram, n: usize) -> String {
    match program.name.chars().count() {
        0..=HEADING_MAX => program.name.clone(),
        _ => char::from(b'A' + n as u8).to_string(),
    }
}

/// The longest heading of a column.
const HEADING_MAX: usize = 22;

/// Half of the interval as a share of the mean.
fn spread(mean: &Mean) -> String {
    match mean.high {
        Some(high) if mean.mean != 0.0 && high > mean.mean => {
            let share = (high - mean.mean) / mean.mean * 100.0;
            format!(" +- {:.1} %", Rounding::Up.decimals(share, 1))
        }
        _ => String::new(),
    }
}

fn rows(record: &CounterRecord) -> Vec<Row> {
    let simulated = is_simulated(record);
    let judged: Vec<Vec<JudgedRuns>> =
        record.programs.iter().map(|program| judge(program, simulated)).collect();
    let ratios = compare(record, simulated);
    let row = |(n, figure): (usize, StatFigure)| Row {
        name: match judged.iter().any(|all| is_user_only(&all[n])) {
            true => format!("{}, user", named(figure)),
            false => named(figure).to_owned(),
        },
        values: judged.iter().map(|all| cell(&all[n])).collect(),
        ratio: match ratios.as_ref().and_then(|all| all[n].1) {
            None => String::new(),
            Some(MeanRatio { ratio, low: Some(low), high: Some(high) }) if high > low => {
                let (low, high) = (Rounding::Down.decimals(low, 3), Rounding::Up.decimals(high, 3));
                format!("{ratio:.3} ({low:.3} to {high:.3})")
            }
            Some(found) => format!("{:.3}", found.ratio),
        },
    };
    StatFigure::all().into_iter().enumerate().map(row).collect()
}

/// What the reader must know, a sentence each.
fn notes(record: &CounterRecord) -> Vec<String> {
    let mut notes = Vec::new();
    if let CountedBy::Simulator(version) = &record.by {
        notes.push(format!(
            "Simulated by {version}, which counts as a simple processor would, not as this machine's does. The counts don't \
             depend on the machine, and don't include what the kernel does for the program."
        ));
    }
    let simulated = is_simulated(record);
    let mut reasons: Vec<(String, Vec<&'static str>)> = Vec::new();
    for one in record.programs.iter().take(1).flat_map(|program| judge(program, simulated)) {
        if let (StatFigure::Counter(_) | StatFigure::ElapsedNs, Err(why)) = (one.figure, &one.mean)
        {
            match reasons.iter_mut().find(|(known, _)| known == why) {
                Some((_, names)) => names.push(named(one.figure)),
                None => reasons.push((why.clone(), vec![named(one.figure)])),
            }
        }
    }
    notes.extend(reasons.iter().map(|(why, names)| format!("{}: {why}.", names.join(", "))));
    if reasons.iter().any(|(why, _)| why.starts_with("not supported")) {
        notes.push(
            "rtscope stat --simulate counts instructions, branches and their misses without the processor's help.".to_owned(),
        );
    }
    for program in &record.programs {
        let shared: Vec<String> = judge(program, simulated)
            .iter()
            .filter_map(|one| Some((one.figure, one.share.filter(|share| *share < 0.9995)?)))
            .map(|(figure, share)| format!("{} {:.0} %", named(figure), share * 100.0))
            .collect();
        if !shared.is_empty() {
            notes.push(format!(
                "{}: the processor can't count all figures at the same time. Counted part of the time, and then \
                 scaled: {}.",
                program.name,
                shared.join(", ")
            ));
        }
        let failed = program.runs.iter().filter(|run| run.failed.is_some()).count();
        if let Some(how) = program.runs.iter().find_map(|run| run.failed.as_ref()) {
            notes.push(format!(
                "{}: {failed} of {} failed ({how}).",
                program.name,
                counted(program.runs.len() as u64, "run")
            ));
        }
    }
    notes
}

#[must_use]
pub fn table(record: &CounterRecord, published: &[PublishedBesideOurs]) -> String {
    let rows = rows(record);
    let headings: Vec<String> =
        record.programs.iter().enumerate().map(|(n, program)| heading(program, n)).collect();
    let simulated = if is_simulated(record) { "SIMULATED" } else { "" };
    let figures = |row: &Row| row.values.clone();
    let mut text = columns(simulated, &headings, &rows, figures);
    if record.programs.len() == 2 {
        let second = ["second over first".to_owned()];
        text += &format!("\n{}", columns("", &second, &rows, |row| vec![row.ratio.clone()]));
    }
    text += "\n";
    for (program, heading) in record.programs.iter().zip(&headings) {
        if *heading != program.name {
            text += &format!("{heading}: {}\n", program.name);
        }
    }
    let runs = record.programs.first().map_or(0, |program| program.runs.len() as u64);
    match runs {
        1 => text += "One run: no interval; give --repeat.\n",
        _ => {
            text +=
                &format!("Means of {}, with half of their 95 % interval.\n", counted(runs, "run"))
        }
    }
    for note in notes(record) {
        text += &format!("{note}\n");
    }
    text + &published::text(published)
}

/// A line for each figure, below a line of headings. A figure that no column has is left out.
fn columns(
    corner: &str,
    headings: &[String],
    rows: &[Row],
    values: impl Fn(&Row) -> Vec<String>,
) -> String {
    let head = (corner.to_owned(), headings.to_vec());
    let named = rows.iter().map(|row| (row.name.clone(), values(row)));
    let filled = named.filter(|(_, values)| values.iter().any(|value| !value.is_empty()));
    let lines: Vec<(String, Vec<String>)> = std::iter::once(head).chain(filled).collect();
    let width = |n: usize| lines.iter().map(|(_, values)| values[n].chars().count()).max();
    let widths: Vec<usize> = (0..headings.len()).map(|n| width(n).unwrap_or(0)).collect();
    let line = |(name, values): &(String, Vec<String>)| {
        let mut line = format!("{name:22}");
        for (value, width) in values.iter().zip(&widths) {
            line += &format!("  {value:>width$}");
        }
        format!("{}\n", line.trim_end())
    };
    lines.iter().map(line).collect()
}

#[derive(Template)]
#[template(path = "stat.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    record: &'a CounterRecord,
    simulated: bool,
    runs: String,
    rows: Vec<Row>,
    notes: Vec<String>,
    published: &'a [PublishedBesideOurs],
    json: String,
}

/// The page.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(record: &CounterRecord, published: &[PublishedBesideOurs]) -> String {
    let runs = record.programs.first().map_or(0, |program| program.runs.len() as u64);
    let page = Page {
        style: include_str!("template/style.css"),
        plot_rules: plot::dark_rules(),
        simulated: is_simulated(record),
        runs: counted(runs, "run"),
        rows: rows(record),
        notes: notes(record),
        json: super::harmless_json(&document(record, published)),
        published,
        record,
    };
    page.render().expect("a string takes every text")
}

#[cfg(test)]
mod tests {
    use rtscope_model::{
        published::PublishedTable,
        stat::{Count, CountedRun, FORMAT},
    };

    use super::*;

    fn record(by: CountedBy) -> CounterRecord {
        let program = |name: &str, misses: u64| {
            let value = |counted| Count::Value {
                counted,
                enabled_ns: 100,
                running_ns: 80,
                user_only: false,
            };
            let absent = || Count::Absent("not supported: no".to_owned());
            let run = CountedRun {
                elapsed_ns: 4_000_000,
                failed: (misses == 0).then(|| "exit code 3".to_owned()),
                counts: vec![
                    value(1_600_000),
                    value(3),
                    value(0),
                    value(100),
                    absent(),
                    value(8_000),
                    value(1_000),
                    value(misses),
                ],
            };
            CountedProgram {
                name: name.to_owned(),
                command: vec![name.to_owned()],
                runs: vec![run.clone(), run],
            }
        };
        CounterRecord {
            format: FORMAT,
            version: "0".to_owned(),
            wall_clock: "2020-01-01T00:00:00Z".to_owned(),
            kernel: "6.1".to_owned(),
            by,
            programs: vec![program("un<sorted", 250), program("sorted", 0)],
        }
    }

    #[test]
    fn what_is_lacking_is_null_with_a_reason_and_never_0() {
        let record = record(CountedBy::Kernel);
        let document = document(&record, &[]);
        let figures = &document["programs"][0]["figures"];
        assert!(figures["cycles"]["mean"].is_null());
        assert_eq!(figures["cycles"]["reason"], "not supported: no");
        assert!(figures["instructions_per_cycle"]["mean"].is_null());
        assert_eq!(figures["instructions"]["mean"], 10_000.0, "scaled by 100 / 80");
        assert_eq!(figures["branch_miss_rate"]["mean"], 0.25);
        assert_eq!(document["ratios"]["instructions"]["ratio"], 1.0);
        assert!(document["ratios"]["cycles"].is_null());
        assert_eq!(document["programs"][1]["failed"], json!(["exit code 3", "exit code 3"]));
        let table = table(&record, &[]);
        for part in [
            "25.00 %",
            "Counted part of the time, and then scaled: ",
            "instructions 80 %",
            "not supported",
            "cycles: not supported: no.",
            "2 of 2 runs failed (exit code 3)",
            "--simulate",
        ] {
            assert!(table.contains(part), "{part}: {table}");
        }
        let page = page(&record, &[]);
        assert!(page.contains("un&#60;sorted") && page.contains("25.00 %"));
    }

    #[test]
    fn published_counters_stand_beside_ours_or_the_reason() {
        let table = "name = 'x'\ntitle = 'x'\n[[published]]\nsubject = 'sorted'\nsource = 'figure 13'\n\
                     figures = { cycles = 6054144579, instructions = 20_000, branch_miss_rate = '0.02%' }\n";
        let published = PublishedTable::parse("x", table).expect("a table").published;
        let record = record(CountedBy::Kernel);
        let all = published::beside(&published, &ours(&record, Whose::default()));
        let shown: Vec<(String, String)> =
            all.iter().map(|one| (one.ours(), one.ratio())).collect();
        let row = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        // 8,000 counted in 80 of 100 ns.
        assert_eq!(shown[0], row("none: not supported: no", ""));
        assert_eq!(shown[1..], [row("10000", "0.50"), row("0%", "0.000")]);
        assert!(page(&record, &all).contains("figure 13"));
        assert!(super::table(&record, &all).contains("(0.50)"));
        assert_eq!(document(&record, &all)["published"][1]["ours"][0]["low"], 10_000.0);
    }

    #[test]
    fn a_comparison_of_large_figures_fits_80_columns() {
        let mut record = record(CountedBy::Kernel);
        for (n, program) in record.programs.iter_mut().enumerate() {
            program.name = format!("./a-program-with-a-long-name --and --many --options {n}");
            for (i, run) in program.runs.iter_mut().enumerate() {
                for count in &mut run.counts {
                    if let Count::Value { counted, user_only, .. } = count {
                        *counted = 1_234_567_890_123 + (i as u64 + 1) * 300_000_000;
                        *user_only = true;
                    }
                }
            }
        }
        let table = table(&record, &[]);
        let (figures, notes) =
            table.split_once("A: ./a-program").expect("the letters are explained");
        assert!(notes.contains("\nB: ./a-program"), "{table}");
        let too_wide: Vec<&str> =
            figures.lines().filter(|line| line.chars().count() > 80).collect();
        assert_eq!(too_wide, [""; 0], "{table}");
        assert!(figures.contains("\ninstructions, user ") && figures.contains(" +- "), "{table}");
    }

    #[test]
    fn a_simulated_figure_is_labelled() {
        let record = record(CountedBy::Simulator("valgrind-9".to_owned()));
        assert!(table(&record, &[]).starts_with("SIMULATED"));
        assert!(table(&record, &[]).contains("Simulated by valgrind-9"));
        assert!(page(&record, &[]).contains("Simulated by valgrind-9"));
        assert_eq!(document(&record, &[])["simulated"], true);
        assert!(document(&record, &[])["programs"][0]["figures"]["elapsed_ns"]["mean"].is_null());
    }
}
