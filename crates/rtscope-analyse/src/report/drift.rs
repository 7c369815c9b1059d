//! Drift judged: a table, curves in characters, a page, and JSON. The same record gives the same bytes.

use askama::Template;
use rtscope_model::{
    drift::{DriftRecord, Periodic},
    time::{Nanos, Rounding},
};
use serde_json::{Value, json};

use crate::{
    number::{counted, grouped, per_second_rounded},
    plot::{
        self,
        phase::{self, signed},
    },
    statistics::drift::{
        Behaviour, Drift, Meant, judge,
        step::{ThreadsInStep, step},
    },
};

/// Columns and rows of a curve in characters.
const COLUMNS: usize = 56;
const ROWS: usize = 7;

/// Each thread with its judgement; those of too few activations are left out.
fn judged(record: &DriftRecord) -> Vec<(&Periodic, Drift)> {
    record.threads.iter().filter_map(|one| Some((one, judge(one)?))).collect()
}

/// The record and its judgement as one document. Phases are left to the record.
#[must_use]
pub fn document(record: &DriftRecord) -> Value {
    let one = |(thread, drift): &(&Periodic, Drift)| {
        let mut value = serde_json::to_value(drift).unwrap_or_default();
        value["name"] = json!(thread.name);
        value["sleep"] = json!(thread.sleep);
        value["work_ns"] = json!(thread.work_ns);
        value["placement"] = json!(thread.placement);
        value["program"] = json!(thread.program);
        value["words"] = json!(findings_text(thread, drift));
        value
    };
    json!({
        "format": record.format,
        "version": record.version,
        "wall_clock": record.wall_clock,
        "kernel": record.kernel,
        "duration_ns": record.duration.0,
        "subjects": judged(record).iter().map(one).collect::<Vec<_>>(),
        "step": step_document(record),
    })
}

/// Whether two threads that were looked at together keep in step; none of other recordings.
fn in_step(record: &DriftRecord) -> Option<Result<ThreadsInStep, String>> {
    match record.threads.as_slice() {
        [a, b] if record.together => Some(step(a, b)),
        _ => None,
    }
}

fn step_document(record: &DriftRecord) -> Value {
    match in_step(record) {
        None => Value::Null,
        Some(Err(why)) => json!({ "refused": why }),
        Some(Ok(found)) => {
            let mut value = json!(found);
            value["words"] = json!(step_text(&found));
            value
        }
    }
}

/// When and how far two threads fell out of step, in sentences.
fn step_text(found: &ThreadsInStep) -> String {
    let [a, b] = &found.threads;
    let gap = |ns: f64| match ns {
        ns if ns < 0.0 => format!("{} before", signed(-ns)),
        _ => format!("{} after", signed(ns)),
    };
    let ends = format!(
        "The first activation of {a} comes {} that of {b}, the last common one {}. ",
        gap(found.gap_ns_first),
        gap(found.gap_ns_last)
    );
    let when = |one: &super::super::statistics::drift::step::OutOfStep| {
        let share = match one.share {
            1.0 => "a whole period".to_owned(),
            0.5 => "half a period".to_owned(),
            share => format!("{:.0} % of a period", share * 100.0),
        };
        let at = Nanos(one.at_ns as u64);
        format!("{share} after {at} (activation {})", grouped(one.activation))
    };
    let out: Vec<String> = found.out_of_step.iter().map(when).collect();
    match out.is_empty() {
        true => ends + "They keep in step: the gap stays below 10 % of a period.",
        false => ends + &format!("They fall out of step by {}.", out.join(", by ")),
    }
}

/// What was found of a thread, in sentences.
fn findings_text(thread: &Periodic, drift: &Drift) -> String {
    let mut text = match drift.behaviour {
        Behaviour::Relative => {
            "Every late activation makes all later ones late, because the thread uses relative sleeps. ".to_owned()
        }
        Behaviour::Absolute => {
            "A late activation doesn't delay the next one, because the thread keeps to a grid of instants. "
                .to_owned()
        }
        Behaviour::Unknown => {
            "The recording is too short to show whether errors stay. Use a longer --duration. ".to_owned()
        }
    };
    // Its instants are sums of periods: they can't drift.
    if drift.behaviour == Behaviour::Absolute
        && (thread.sleep.is_some() || drift.meant == Meant::Grid)
    {
        text += "The instants of its sleeps don't drift. The drift shown is the change of its latency. ";
    }
    text += match drift.meant {
        Meant::Given => "",
        Meant::Slept => {
            "rtscope uses the length of its sleeps as the intended period. Give --period if it is another. "
        }
        Meant::Grid => {
            "The period is the distance between the instants of its sleeps. Give --period to compare with another. "
        }
        Meant::Plain => {
            "The period is the round number closest to its mean. Give --period if it is another. "
        }
        Meant::Mean => "The period is its own mean, which can't show a drift. Give --period. ",
    };
    if let Some(program) = &thread.program {
        let calls = match (program.relative_sleeps, program.absolute_sleeps) {
            (relative, 0) => format!("{}, all relative", counted(relative, "sleep")),
            (0, absolute) => format!("{}, all absolute", counted(absolute, "sleep")),
            (relative, absolute) => format!(
                "{} relative sleeps and {} absolute ones",
                grouped(relative),
                grouped(absolute)
            ),
        };
        text += &format!("The kernel saw {calls}");
        if program.absolute_sleeps > program.relative_sleeps
            && drift.behaviour == Behaviour::Relative
        {
            text += "; it computes each instant from the current time, so it drifts all the same";
        }
        text += ". ";
        if program.lost > 0 {
            text += &format!("Lost: {}. ", counted(program.lost, "event"));
        }
        if let Some(how) = &program.ended {
            text += &format!("It ended too early: {how}. ");
        }
    }
    if let Some(why) = drift.no_interval {
        text += &format!("There is no 95 % interval: {}. Use a longer --duration. ", why.reason());
    }
    if drift.missed > 0 {
        text += &format!("It missed {}. ", counted(drift.missed, "period"));
    }
    text.trim_end().to_owned()
}

/// A row of the table.
#[derive(Debug)]
struct Row {
    name: String,
    place: String,
    activations: String,
    period: String,
    mean: String,
    drift: String,
    interval: String,
    behaviour: &'static str,
    words: String,
}

fn row(thread: &Periodic, drift: &Drift) -> Row {
    Row {
        name: thread.name.clone(),
        place: match (&thread.placement, &thread.program) {
            (Some(place), _) => place.to_string(),
            (_, Some(program)) => {
                format!("thread {} of {}", program.tid, program.command.join(" "))
            }
            _ => String::new(),
        },
        activations: grouped(drift.activations),
        period: period(drift.period_ns),
        mean: period(drift.period_ns_mean),
        drift: per_hour(drift.drift_ns_per_hour),
        interval: match drift.drift_ns_per_hour_low.zip(drift.drift_ns_per_hour_high) {
            Some((low, high)) => {
                format!("{} to {} ms/h", ms(low, Rounding::Down), ms(high, Rounding::Up))
            }
            None => "no interval".to_owned(),
        },
        behaviour: match drift.behaviour {
            Behaviour::Relative => "relative",
            Behaviour::Absolute => "absolute",
            Behaviour::Unknown => "unknown",
        },
        words: findings_text(thread, drift),
    }
}

/// A drift in nanoseconds per hour, for people.
pub(super) fn per_hour(ns: f64) -> String {
    format!("{} ms/h", ms(ns, Rounding::Nearest))
}

/// Nanoseconds as milliseconds in three digits. All drifts have one unit, so that they can be compared at a glance.
fn ms(ns: f64, rounding: Rounding) -> String {
    let rounding = if ns < 0.0 { rounding.reversed() } else { rounding };
    let text = per_second_rounded(ns.abs() / 1e6, rounding);
    let is_zero = text.chars().all(|c| matches!(c, '0' | '.'));
    if ns < 0.0 && !is_zero { format!("-{text}") } else { text }
}

/// A period to a microsecond's thousandth.
fn period(ns: f64) -> String {
    match ns {
        1e9.. => format!("{:.6} s", ns / 1e9),
        _ => format!("{:.6} ms", ns / 1e6),
    }
}

/// What a line of the table shows of a thread.
type Field = fn(&Row) -> &str;

/// The table and the curves for a terminal.
#[must_use]
pub fn table(record: &DriftRecord) -> String {
    let all = judged(record);
    let rows: Vec<Row> = all.iter().map(|(thread, drift)| row(thread, drift)).collect();
    // A column for each thread: there are two at most.
    let lines: [(&str, Field); 7] = [
        ("thread", |row| &row.name),
        ("activations", |row| &row.activations),
        ("intended period", |row| &row.period),
        ("mean period", |row| &row.mean),
        ("drift", |row| &row.drift),
        ("95 % interval", |row| &row.interval),
        ("errors", |row| row.behaviour),
    ];
    let mut text = String::new();
    for (name, value) in lines {
        let mut line = format!("{name:16}");
        rows.iter().for_each(|row| line += &format!("  {:28}", value(row)));
        text += &format!("{}\n", line.trim_end());
    }
    for (thread, drift) in &all {
        text += &format!("\n{}: {}\n", thread.name, findings_text(thread, drift));
        text += &curve(&drift.phase, "phase");
    }
    match in_step(record) {
        None => {}
        Some(Err(why)) => text += &format!("\nin step: can't be judged: {why}\n"),
        Some(Ok(found)) => {
            text += &format!("\nin step: {}\n", step_text(&found));
            text += &curve(&found.gaps, "gap");
        }
    }
    text
}

/// Phase against time in characters.
fn curve(phase: &[(f64, f64)], name: &str) -> String {
    let low = phase.iter().map(|p| p.1).fold(0.0, f64::min);
    let high = phase.iter().map(|p| p.1).fold(0.0, f64::max).max(low + 1.0);
    let to = phase.last().map_or(1.0, |p| p.0).max(1.0);
    let mut rows = vec![vec![' '; COLUMNS]; ROWS];
    for (at, value) in phase {
        let column = ((at / to * COLUMNS as f64) as usize).min(COLUMNS - 1);
        let height = (value - low) / (high - low) * (ROWS - 1) as f64;
        rows[ROWS - 1 - (height.round() as usize).min(ROWS - 1)][column] = '*';
    }
    let mut text = String::new();
    for (n, row) in rows.iter().enumerate() {
        let label = match n {
            0 => signed(high),
            n if n == ROWS - 1 => signed(low),
            _ => String::new(),
        };
        let row: String = row.iter().collect();
        text += &format!("  {label:>9} |{}\n", row.trim_end());
    }
    let end = Nanos(to as u64).to_string();
    text + &format!("  {name:>9} +{} {end}\n", "-".repeat(COLUMNS))
}

/// Two threads against each other on the page.
struct StepView {
    words: String,
    /// Empty when there is nothing to draw.
    plot: String,
}

impl StepView {
    fn new(found: Result<ThreadsInStep, String>) -> StepView {
        match found {
            Err(why) => {
                let words = format!("Whether they keep in step can't be judged: {why}.");
                StepView { words, plot: String::new() }
            }
            Ok(found) => {
                let name = format!("{} minus {}", found.threads[0], found.threads[1]);
                let words = step_text(&found);
                let curves = [(name.as_str(), &found.gaps[..])];
                let plot = phase::draw_titled("gap", "Gap against time", &curves, &words);
                StepView { words, plot }
            }
        }
    }
}

#[derive(Template)]
#[template(path = "drift.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    record: &'a DriftRecord,
    headline: String,
    rows: Vec<Row>,
    work: Option<String>,
    plot: String,
    step: Option<StepView>,
    json: String,
}

/// The page.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(record: &DriftRecord) -> String {
    let all = judged(record);
    let curves: Vec<phase::Curve<'_>> =
        all.iter().map(|(one, drift)| (one.name.as_str(), &drift.phase[..])).collect();
    let rows: Vec<Row> = all.iter().map(|(one, drift)| row(one, drift)).collect();
    let each = rows.iter().map(|row| format!("{}: {} ({})", row.name, row.drift, row.interval));
    let headline = each.collect::<Vec<_>>().join("; ");
    let page = Page {
        style: include_str!("template/style.css"),
        plot_rules: plot::dark_rules(),
        plot: phase::draw(&curves, &headline),
        headline,
        work: record.threads.iter().find_map(|one| one.work_ns).map(|ns| Nanos(ns).to_string()),
        json: super::harmless_json(&document(record)),
        rows,
        step: in_step(record).map(StepView::new),
        record,
    };
    page.render().expect("a string takes every text")
}

#[cfg(test)]
mod tests {
    use rtscope_model::{
        drift::{FORMAT, LoopActivation, WatchedProgram},
        plan::Sleep,
    };

    use super::*;

    fn record(name: &str, program: Option<WatchedProgram>) -> DriftRecord {
        let all = (0..40).map(|n| {
            let armed_ns = n * 12_000_000;
            let woke_ns = armed_ns + 10_000_000 + (n * 7 % 11) * 1_000;
            LoopActivation { armed_ns, expiry_ns: armed_ns + 10_000_000, woke_ns }
        });
        let thread = Periodic {
            name: name.to_owned(),
            sleep: program.is_none().then_some(Sleep::Relative),
            period_ns: Some(10_000_000),
            work_ns: program.is_none().then_some(2_000_000),
            placement: None,
            program,
            missed: 0,
            activations: all.collect(),
        };
        DriftRecord {
            format: FORMAT,
            version: "0".to_owned(),
            wall_clock: "2020-01-01T00:00:00Z".to_owned(),
            kernel: "6.1".to_owned(),
            duration: Nanos::from_secs(1),
            together: false,
            threads: vec![thread],
        }
    }

    #[test]
    fn table_page_and_document_say_the_same() {
        let record = record("delay <x>", None);
        // 2 ms of 12 ms: 600 s in an hour.
        let table = table(&record);
        assert!(table.contains("  600,0") && table.contains("relative"), "{table}");
        assert!(table.contains("\nintended period   10.000000 ms\n"), "{table}");
        assert_eq!(table.lines().filter(|line| line.contains('*')).count(), ROWS, "{table}");
        let page = page(&record);
        assert!(
            page.contains(": 600,0") && page.contains("delay &#60;x&#62;") && page.contains("<svg")
        );
        let document = document(&record);
        let drift = document["subjects"][0]["drift_ns_per_hour"].as_f64().expect("a number");
        assert!((drift / 600e9 - 1.0).abs() < 1e-4, "{document}");
        // 40 activations say nothing of rare delays.
        assert!(table.contains("no interval") && table.contains("fewer than 500 activations"));
        assert_eq!(document["subjects"][0]["no_interval"], "few");
        assert!(document["subjects"][0]["drift_ns_per_hour_low"].is_null(), "{document}");
    }

    #[test]
    fn when_two_threads_fall_out_of_step_is_shown_everywhere() {
        let mut both = record("a <x>", None);
        let mut second = both.threads[0].clone();
        second.name = "b".to_owned();
        second.sleep = Some(Sleep::Absolute);
        for (one, n) in second.activations.iter_mut().zip(1..) {
            let at_ns = n * 10_000_000;
            *one = LoopActivation { armed_ns: at_ns - 8_000_000, expiry_ns: at_ns, woke_ns: at_ns };
        }
        both.threads.push(second);
        assert!(document(&both)["step"].is_null(), "they ran one after the other");
        both.together = true;
        // 2 ms each: half a period after the third activation, a whole one after the fifth.
        let text = table(&both);
        assert!(
            text.contains("half a period after 36 ms (activation 3), by a whole period"),
            "{text}"
        );
        let page = page(&both);
        assert!(
            page.contains("id=\"gap-title\"") && page.contains("a &#60;x&#62; comes"),
            "{page}"
        );
        let document = document(&both);
        assert_eq!(document["step"]["out_of_step"][2]["activation"], 5, "{document}");
    }

    #[test]
    fn drifts_have_one_unit() {
        let drifts = |rounding| [367.2e9, 114.4e6, -45.6e3, -12.0, 0.0].map(|ns| ms(ns, rounding));
        let nearest = ["367,200", "114", "-0.046", "0.000", "0.000"];
        assert_eq!(drifts(Rounding::Nearest), nearest);
        let ends = [Rounding::Down, Rounding::Up].map(drifts);
        assert_eq!(ends[0], ["367,200", "114", "-0.046", "-0.001", "0.000"]);
        assert_eq!(ends[1], ["367,200", "115", "-0.045", "0.000", "0.000"]);
    }

    #[test]
    fn what_is_known_of_a_program_is_said() {
        let program = WatchedProgram {
            command: vec!["./p".to_owned()],
            tid: 7,
            threads: 1,
            relative_sleeps: 0,
            absolute_sleeps: 40,
            other_wakeups: 0,
            lost: 3,
            ended: Some("exit code 0".to_owned()),
        };
        let mut record = record("p", Some(program));
        record.threads[0].activations.iter_mut().enumerate().for_each(|(n, one)| {
            // A walk that never comes back.
            let walked = (n * n) as u64 * 900;
            one.armed_ns += walked;
            one.expiry_ns += walked;
            one.woke_ns += walked;
        });
        let text = table(&record);
        for part in ["all absolute", "drifts all the same", "3 events", "exit code 0"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
