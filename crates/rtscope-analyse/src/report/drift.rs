//! Drift judged: a table, curves in characters, a page, and JSON. The same record gives the same bytes.

use askama::Template;
use rtscope_model::{
    drift::{DriftRecord, Periodic},
    time::Nanos,
};
use serde_json::{Value, json};

use crate::{
    number::{counted, grouped},
    plot::{
        self,
        phase::{self, signed},
    },
    statistics::drift::{Behaviour, Drift, Meant, judge},
};

/// Columns and rows of a curve in characters.
const COLUMNS: usize = 56;
const ROWS: usize = 7;

/// Each thread with its judgement; those of too few activations are left out.
fn judged(record: &DriftRecord) -> Vec<(&Periodic, Drift)> {
    record.subjects.iter().filter_map(|one| Some((one, judge(one)?))).collect()
}

/// The record and its judgement as one document. Phases are left to the record.
#[must_use]
pub fn document(record: &DriftRecord) -> Value {
    let one = |(subject, drift): &(&Periodic, Drift)| {
        let mut value = serde_json::to_value(drift).unwrap_or_default();
        value["name"] = json!(subject.name);
        value["sleep"] = json!(subject.sleep);
        value["work_ns"] = json!(subject.work_ns);
        value["placement"] = json!(subject.placement);
        value["program"] = json!(subject.program);
        value["words"] = json!(findings_text(subject, drift));
        value
    };
    json!({
        "format": record.format,
        "version": record.version,
        "wall_clock": record.wall_clock,
        "kernel": record.kernel,
        "duration_ns": record.duration.0,
        "subjects": judged(record).iter().map(one).collect::<Vec<_>>(),
    })
}

/// What was found of a thread, in sentences.
fn findings_text(subject: &Periodic, drift: &Drift) -> String {
    let mut text = match drift.behaviour {
        Behaviour::Relative => {
            "Every late activation makes all later ones late, because the thread uses relative sleeps. ".to_owned()
        }
        Behaviour::Absolute => {
            "A late activation doesn't move the next: it keeps to a grid, as a sleep until an instant does. "
                .to_owned()
        }
        Behaviour::Unknown => {
            "The recording is too short to show whether errors stay. Use a longer --duration. ".to_owned()
        }
    };
    // Its instants are sums of periods: they can't drift.
    if drift.behaviour == Behaviour::Absolute
        && (subject.sleep.is_some() || drift.meant == Meant::Grid)
    {
        text += "Its instants don't drift: the drift shown is the change of its latency over this time. ";
    }
    text += match drift.meant {
        Meant::Given => "",
        Meant::Slept => {
            "rtscope takes the time that it sleeps as the intended period. Give --period if it is another. "
        }
        Meant::Grid => {
            "The period is that of the instants that it sleeps until. Give --period to compare with another. "
        }
        Meant::Plain => {
            "The period is the round number closest to its mean. Give --period if it is another. "
        }
        Meant::Mean => "The period is its own mean, which can't show a drift. Give --period. ",
    };
    if let Some(program) = &subject.program {
        let calls = match (program.relative_sleeps, program.absolute_sleeps) {
            (relative, 0) => format!("{}, each for a time from now", counted(relative, "sleep")),
            (0, absolute) => format!("{}, each until an instant", counted(absolute, "sleep")),
            (relative, absolute) => format!(
                "{} sleeps for a time from now and {} until an instant",
                grouped(relative),
                grouped(absolute)
            ),
        };
        text += &format!("The kernel saw {calls}");
        if program.absolute_sleeps > program.relative_sleeps
            && drift.behaviour == Behaviour::Relative
        {
            text += "; the instant is made from the clock anew each time, so that it drifts all the same";
        }
        text += ". ";
        if program.lost > 0 {
            text += &format!("Lost: {}. ", counted(program.lost, "event"));
        }
        if let Some(how) = &program.ended {
            text += &format!("It ended before its time: {how}. ");
        }
    }
    if let Some(why) = drift.no_interval {
        text += &format!("There is no 95 % interval: {}. Use a longer --duration. ", why.reason());
    }
    if drift.missed > 0 {
        text += &format!("It left out {}. ", counted(drift.missed, "period"));
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

fn row(subject: &Periodic, drift: &Drift) -> Row {
    Row {
        name: subject.name.clone(),
        place: match (&subject.placement, &subject.program) {
            (Some(place), _) => place.to_string(),
            (_, Some(program)) => {
                format!("thread {} of {}", program.tid, program.command.join(" "))
            }
            _ => String::new(),
        },
        activations: grouped(drift.activations),
        period: period(drift.period_ns),
        mean: period(drift.period_ns_mean),
        drift: format!("{}/h", signed(drift.drift_ns_per_hour)),
        interval: match drift.drift_ns_per_hour_low.zip(drift.drift_ns_per_hour_high) {
            Some((low, high)) => format!("{} to {}", signed(low), signed(high)),
            None => "no interval".to_owned(),
        },
        behaviour: match drift.behaviour {
            Behaviour::Relative => "relative",
            Behaviour::Absolute => "absolute",
            Behaviour::Unknown => "unknown",
        },
        words: findings_text(subject, drift),
    }
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
    let rows: Vec<Row> = all.iter().map(|(subject, drift)| row(subject, drift)).collect();
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
    for (subject, drift) in &all {
        text += &format!("\n{}: {}\n", subject.name, findings_text(subject, drift));
        text += &curve(&drift.phase);
    }
    text
}

/// Phase against time in characters.
fn curve(phase: &[(f64, f64)]) -> String {
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
    text + &format!("  {:>9} +{} {end}\n", "phase", "-".repeat(COLUMNS))
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
        work: record.subjects.iter().find_map(|one| one.work_ns).map(|ns| Nanos(ns).to_string()),
        // Inside a script element only "</" would end it.
        json: document(record).to_string().replace("</", "<\\/"),
        rows,
        record,
    };
    page.render().expect("a string takes every text")
}

#[cfg(test)]
mod tests {
    use rtscope_model::{
        drift::{Activation, FORMAT, Program},
        plan::Sleep,
    };

    use super::*;

    fn record(name: &str, program: Option<Program>) -> DriftRecord {
        let all = (0..40).map(|n| {
            let armed_ns = n * 12_000_000;
            let woke_ns = armed_ns + 10_000_000 + (n * 7 % 11) * 1_000;
            Activation { armed_ns, expiry_ns: armed_ns + 10_000_000, woke_ns }
        });
        let subject = Periodic {
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
            subjects: vec![subject],
        }
    }

    #[test]
    fn table_page_and_document_say_the_same() {
        let record = record("delay <x>", None);
        // 2 ms of 12 ms: 600 s in an hour.
        let table = table(&record);
        assert!(table.contains("600 s/h") && table.contains("relative"), "{table}");
        assert!(table.contains("\nintended period   10.000000 ms\n"), "{table}");
        assert_eq!(table.lines().filter(|line| line.contains('*')).count(), ROWS, "{table}");
        let page = page(&record);
        assert!(
            page.contains("600 s/h") && page.contains("delay &#60;x&#62;") && page.contains("<svg")
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
    fn what_is_known_of_a_program_is_said() {
        let program = Program {
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
        record.subjects[0].activations.iter_mut().enumerate().for_each(|(n, one)| {
            // A walk that never comes back.
            let walked = (n * n) as u64 * 900;
            one.armed_ns += walked;
            one.expiry_ns += walked;
            one.woke_ns += walked;
        });
        let text = table(&record);
        for part in ["each until an instant", "drifts all the same", "3 events", "exit code 0"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
