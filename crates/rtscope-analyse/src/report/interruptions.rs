//! What interrupted a CPU, for a terminal, as a page and as JSON. The same record gives the same bytes.

use askama::Template;
use rtscope_model::{
    interruptions::{Interruption, Interruptions},
    time::Nanos,
};
use serde_json::{Value, json};

use crate::{
    number::{counted, grouped, us},
    plot,
    statistics::interruptions::remedy,
};

/// Interruptions that the terminal shows, the longest sums.
const SHOWN: usize = 20;

/// Remedies that it gives.
const REMEDIES: usize = 5;

/// Interruptions that are named beside their remedy.
const NAMED: usize = 4;

/// Senders that are named for each.
const SENDERS: usize = 3;

/// An hour, in nanoseconds.
const HOUR_NS: u64 = 3_600_000_000_000;

/// The record with what helps, as one document.
#[must_use]
pub fn document(record: &Interruptions) -> Value {
    let row = |row: &Interruption| {
        json!({
            "kind": row.kind,
            "name": row.name,
            "count": row.count,
            "per_hour": per_hour(record, row.count),
            "by_hour": row.by_hour,
            "sum_ns": row.sum.0,
            "worst_ns": row.worst.0,
            "senders": row.senders,
            "remedy": remedy(row, record.cpu),
        })
    };
    json!({
        "format": record.format,
        "version": record.version,
        "wall_clock": record.wall_clock,
        "kernel": record.kernel,
        "cpu": record.cpu,
        "owner": record.owner.map(|owner| json!({
            "tid": owner.tid, "name": owner.name, "ran_ns": owner.ran.0,
        })),
        "duration_ns": record.duration.0,
        "idle_ns": record.idle.0,
        "interruptions": record.rows.iter().map(row).collect::<Vec<_>>(),
        "missing": record.missing,
        "accounts": record.accounts.map(|accounts| json!({
            "charged_ns": accounts.charged.0, "apart_ns": accounts.apart.0,
        })),
        "is_reliable": is_reliable(record),
        "lost": record.lost,
        "limits": limits(record),
    })
}

/// Whether the figures can be believed, as far as that can be checked.
#[must_use]
pub fn is_reliable(record: &Interruptions) -> bool {
    record.accounts.is_none_or(|accounts| accounts.agree())
}

/// Why they can't.
fn doubt(record: &Interruptions) -> Option<String> {
    let accounts = record.accounts.filter(|accounts| !accounts.agree())?;
    Some(format!(
        "These figures are not reliable: this kernel doesn't record all that happens on CPU {}. By its own account, \
         threads that can run only there ran for {} us, but the events differ from that by {} us.",
        record.cpu,
        us(accounts.charged.0),
        us(accounts.apart.0),
    ))
}

/// So many in a look are so many in an hour.
fn per_hour(record: &Interruptions, count: u64) -> u64 {
    let hours = record.duration.0.max(1) as f64 / HOUR_NS as f64;
    (count as f64 / hours).round() as u64
}

/// What was seen, in one sentence.
fn headline(record: &Interruptions) -> String {
    let longest = record.rows.iter().max_by_key(|row| row.worst);
    let Some(longest) = longest else {
        return format!("Nothing interrupted CPU {} in {}", record.cpu, shown(record.duration));
    };
    let count = record.rows.iter().map(|row| row.count).sum();
    let sum = record.rows.iter().map(|row| row.sum.0).sum::<u64>();
    format!(
        "CPU {} in {}: {} took {} us. The longest took {} us: {}",
        record.cpu,
        shown(record.duration),
        counted(count, "interruption"),
        us(sum),
        us(longest.worst.0),
        title(longest),
    )
}

/// A look's length, without the odd nanoseconds.
fn shown(duration: Nanos) -> Nanos {
    let step = if duration.0 < 10_000_000_000 { 1_000_000 } else { 100_000_000 };
    Nanos(duration.0 / step * step)
}

fn title(row: &Interruption) -> String {
    match row.kind.text() {
        kind if kind == row.name => row.name.clone(),
        kind => format!("{kind} {}", row.name),
    }
}

/// Who sent an interrupt, the most frequent first; empty where that isn't known.
fn senders(row: &Interruption) -> String {
    let one = |sender: &rtscope_model::interruptions::Sender| {
        format!("{} in {} ({})", sender.thread, sender.function, grouped(sender.count))
    };
    row.senders.iter().take(SENDERS).map(one).collect::<Vec<_>>().join(", ")
}

/// What the figures don't show, a sentence each.
fn limits(record: &Interruptions) -> Vec<String> {
    let mut all = vec![
        "No time counts twice: the time of a nested interrupt is subtracted from what it interrupted. The kernel's entry and exit \
         code of an interrupt counts as time of what was interrupted."
            .to_owned(),
        "Figures per hour are extrapolated from the observation: a short one doesn't show what happens rarely.".to_owned(),
    ];
    all.push(match &record.accounts {
        Some(accounts) => format!(
            "By the kernel's own account, threads that can run only on this CPU ran for {} us. The events differ from that by {} us.",
            us(accounts.charged.0),
            us(accounts.apart.0),
        ),
        None => "In a virtual machine the kernel may not record every switch from and to an idle CPU. The times of a CPU \
                 that is mostly idle are then too short or too long. Threads that can run only on this CPU would show \
                 that, but they ran too little."
            .to_owned(),
    });
    if record.owner.is_none() {
        all.push(
            "Every thread counts as an interruption: use --tid to name the one that the CPU is reserved for."
                .to_owned(),
        );
    }
    if record.includes_rtscope {
        all.push(
            "rtscope could not stay off this CPU: its own thread is among the rows.".to_owned(),
        );
    }
    if !record.missing.is_empty() {
        all.push(format!(
            "This kernel doesn't have {}: what it would show is missing or has no name.",
            record.missing.join(", ")
        ));
    }
    if record.lost > 0 {
        all.push(format!(
            "{} didn't fit in the kernel's buffer: counts and times are too low.",
            counted(record.lost, "event")
        ));
    }
    all
}

/// The table for a terminal.
#[must_use]
pub fn table(record: &Interruptions) -> String {
    let mut text = format!("{}.\n", headline(record));
    if let Some(doubt) = doubt(record) {
        text += &format!("{doubt}\n");
    }
    if let Some(owner) = record.owner {
        text += &format!("{}-{} ran for {} us of it.\n", owner.name, owner.tid, us(owner.ran.0));
    }
    text += &format!("The CPU was idle for {} us of it.\n", us(record.idle.0));
    let (shown, rest) = record.rows.split_at(record.rows.len().min(SHOWN));
    let width = shown.iter().map(|row| title(row).chars().count()).max().unwrap_or(0).max(14);
    if !shown.is_empty() {
        text += &format!(
            "\n{:width$}{:>9}{:>11}{:>12}{:>12}\n",
            "what", "count", "per hour", "sum us", "longest us"
        );
    }
    for row in shown {
        text += &format!(
            "{:width$}{:>9}{:>11}{:>12}{:>12}\n",
            title(row),
            grouped(row.count),
            grouped(per_hour(record, row.count)),
            us(row.sum.0),
            us(row.worst.0)
        );
    }
    if !rest.is_empty() {
        let sum = rest.iter().map(|row| row.sum.0).sum();
        text +=
            &format!("and {} more, which took {} us in total: see the page\n", rest.len(), us(sum));
    }
    text += &remedies(record);
    text.push('\n');
    for limit in limits(record) {
        text += &format!("{limit}\n");
    }
    text
}

/// What helps against the longest sums, each with what it helps against.
fn remedies(record: &Interruptions) -> String {
    let mut groups: Vec<(String, Vec<&Interruption>)> = Vec::new();
    for row in &record.rows {
        let text = remedy(row, record.cpu);
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((text, vec![row])),
        }
    }
    let mut text = String::new();
    for (helps, rows) in groups.iter().take(REMEDIES) {
        let names = rows.iter().take(NAMED).map(|row| title(row)).collect::<Vec<_>>().join(", ");
        let more = match rows.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text += &format!("\nWhat helps against {names}{more}:\n  {helps}\n");
        for row in rows.iter().take(NAMED).filter(|row| !row.senders.is_empty()) {
            text += &format!("  {} was sent by {}\n", title(row), senders(row));
        }
    }
    text
}

/// An interruption on the page.
struct Row {
    title: String,
    count: String,
    per_hour: String,
    sum: String,
    worst: String,
    senders: String,
    remedy: String,
    by_hour: Vec<String>,
}

#[derive(Template)]
#[template(path = "interruptions.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    record: &'a Interruptions,
    headline: String,
    doubt: Option<String>,
    duration: Nanos,
    idle: String,
    owner: Option<[String; 2]>,
    rows: Vec<Row>,
    /// Hours of the look, where there is more than one.
    hours: Vec<usize>,
    limits: Vec<String>,
    json: String,
}

/// The page.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(record: &Interruptions) -> String {
    let row = |row: &Interruption| Row {
        title: title(row),
        count: grouped(row.count),
        per_hour: grouped(per_hour(record, row.count)),
        sum: us(row.sum.0),
        worst: us(row.worst.0),
        senders: senders(row),
        remedy: remedy(row, record.cpu),
        by_hour: row.by_hour.iter().map(|count| grouped(*count)).collect(),
    };
    let hours = record.rows.iter().map(|row| row.by_hour.len()).max().unwrap_or(0);
    let page = Page {
        style: include_str!("template/style.css"),
        plot_rules: plot::dark_rules(),
        headline: headline(record),
        doubt: doubt(record),
        duration: shown(record.duration),
        idle: us(record.idle.0),
        owner: record.owner.map(|owner| [format!("{}-{}", owner.name, owner.tid), us(owner.ran.0)]),
        rows: record.rows.iter().map(row).collect(),
        hours: if hours > 1 { (1..=hours).collect() } else { Vec::new() },
        limits: limits(record),
        json: super::harmless_json(&document(record)),
        record,
    };
    page.render().expect("a string takes every text")
}

#[cfg(test)]
mod tests {
    use rtscope_model::interruptions::{FORMAT, InterruptionKind, Sender};

    use super::*;

    fn record() -> Interruptions {
        let row = |kind, name: &str, count, sum_us, worst_us| Interruption {
            kind,
            name: name.to_owned(),
            count,
            sum: Nanos::from_us(sum_us),
            worst: Nanos::from_us(worst_us),
            by_hour: vec![count],
            senders: Vec::new(),
        };
        let mut call =
            row(InterruptionKind::FunctionCall, InterruptionKind::FunctionCall.text(), 3, 12, 5);
        call.senders.push(Sender {
            thread: "cc1".to_owned(),
            function: "flush_tlb_mm_range".to_owned(),
            count: 3,
        });
        Interruptions {
            format: FORMAT,
            version: "0.1.0".to_owned(),
            wall_clock: "2020-01-01T00:00:00Z".to_owned(),
            kernel: "6.12.0".to_owned(),
            cpu: 3,
            owner: None,
            duration: Nanos(9_000_123_456),
            idle: Nanos::from_us(8_000_000),
            rows: vec![
                row(
                    InterruptionKind::LocalTimer,
                    InterruptionKind::LocalTimer.text(),
                    2_250,
                    4_500,
                    9,
                ),
                call,
            ],
            missing: Vec::new(),
            includes_rtscope: false,
            accounts: None,
            lost: 0,
        }
    }

    #[test]
    fn the_table_says_how_often_how_long_by_whom_and_what_helps() {
        let text = table(&record());
        assert!(
            text.starts_with(
                "CPU 3 in 9 s: 2,253 interruptions took 4,512 us. The longest took 9.0 us: timer interrupt."
            ),
            "{text}"
        );
        // 2,250 in 9 s are 900,000 in an hour.
        assert!(text.contains("2,250    899,988"), "{text}");
        assert!(text.contains("was sent by cc1 in flush_tlb_mm_range (3)"), "{text}");
        assert!(text.contains("\n  threads that share memory"), "{text}");
        assert_eq!(document(&record())["interruptions"][1]["senders"][0]["count"], 3);
    }

    #[test]
    fn a_look_of_several_hours_has_a_column_for_each() {
        let mut long = record();
        assert!(!page(&long).contains("hour 2"));
        long.rows[0].by_hour = vec![5, 7];
        assert!(page(&long).contains("hour 2"));
    }

    #[test]
    fn nothing_at_all_is_said_too() {
        let mut none = record();
        none.rows.clear();
        assert!(table(&none).starts_with("Nothing interrupted CPU 3 in 9 s"));
    }
}
