//! Late activations explained: culprits and time lines, for a terminal, as a page and as JSON. The same record gives
//! the same bytes.

use std::collections::BTreeMap;

use askama::Template;
use rtscope_model::{
    explain::{ExplainRecord, Spike},
    record::Record,
    time::{Nanos, Rounding},
};
use serde_json::{Value, json};

use crate::{
    number::{counted, grouped, us},
    plot::{self, spike},
    statistics::explain::{
        Certainty, Culprit, Explained, Piece, WakerLink, cost, culprits, explain,
    },
};

/// Late activations that the terminal shows in pieces, and causes of each that the page names beside its bar.
const SHOWN: usize = 3;

/// Causes of each that it shows, the longest ones.
const PIECES: usize = 5;

/// A record with its judgement.
struct Judged {
    spikes: Vec<Explained>,
    culprits: Vec<Culprit>,
}

fn judged(record: &ExplainRecord) -> Judged {
    let spikes = explain(record);
    let culprits = culprits(&spikes, record.is_preempt_rt, record.is_guest);
    Judged { spikes, culprits }
}

/// The record and its judgement as one document. Events are left to the record.
#[must_use]
pub fn document(record: &ExplainRecord) -> Value {
    let all = judged(record);
    json!({
        "format": record.format,
        "version": record.version,
        "wall_clock": record.wall_clock,
        "wall_ahead_ns": record.wall_ahead_ns,
        "kernel": record.kernel,
        "is_preempt_rt": record.is_preempt_rt,
        "program": record.program,
        "duration_ns": record.duration.0,
        "above_ns": record.above.map(|above| above.0),
        "threads": record.threads,
        "culprits": all.culprits,
        "spikes": all.spikes,
        "events": record.events,
        "missing": record.missing,
        "lost": record.lost,
        "lost_by_cpu": record.lost_by_cpu,
        "limits": limits(record),
    })
}

/// What was seen, in one sentence.
fn headline(record: &ExplainRecord, all: &Judged) -> String {
    let activations: u64 = record.threads.iter().map(|thread| thread.activations).sum();
    let unseen = unseen(record);
    // Of a few it goes without saying: a limit below the table has their number.
    let among = match unseen * UNSEEN_FEW > activations {
        true => format!(
            ", in the {} of {} that the kernel shows",
            grouped(activations),
            counted(activations + unseen, "activation")
        ),
        false => String::new(),
    };
    let Some(worst) = all.spikes.first() else {
        return match (activations, record.above) {
            (0, _) => format!("No thread of {} was woken", record.program),
            (_, Some(above)) => {
                let of = counted(activations, "activation");
                format!("None of {of} was late by {above} or more{among}")
            }
            (_, None) => format!("Nothing was late{among}"),
        };
    };
    let cause = worst.causes().into_iter().next().map_or_else(String::new, |piece| {
        format!(". Of this, {} us were {}, {}", us(piece.ns), piece.kind.text(), piece.name)
    });
    format!("{} was {} us late at worst{among}{cause}", worst.name, us(worst.latency_ns))
}

/// The headline names the activations that nothing is known about from one in so many on.
const UNSEEN_FEW: u64 = 10;

/// Activations that no event shows.
fn unseen(record: &ExplainRecord) -> u64 {
    record.threads.iter().map(|thread| thread.unseen).sum()
}

/// Which activations the culprits are summed over.
fn of_which(record: &ExplainRecord, all: &Judged) -> String {
    let (kept, late) = (all.spikes.len() as u64, record.threads.iter().map(|one| one.late).sum());
    match kept < late {
        true => format!("in the {kept} worst of {}", counted(late, "late activation")),
        false => format!("in {}", counted(kept, "late activation")),
    }
}

/// With what a latency ends.
fn ends(record: &ExplainRecord) -> &'static str {
    match record.spikes.iter().filter(|spike| spike.returned_ns.is_none()).count() {
        0 => "A latency ends when the thread is back in its program.",
        count if count == record.spikes.len() => {
            "A latency ends with the switch to the thread: what the thread itself does then, for example a page fault, \
             is not in it."
        }
        _ => {
            "A latency ends when the thread is back in its program, or with the switch to it where no event shows the \
             return."
        }
    }
}

/// What the figures don't show, a sentence each.
fn limits(record: &ExplainRecord) -> Vec<String> {
    let mut all = vec![
        ends(record).to_owned(),
        "The kernel records 5 to 9 events for each activation. They delay it by a few us, by more on a busy machine, and \
         count as part of what they interrupt."
            .to_owned(),
    ];
    if record.is_guest {
        all.push(
            "This is a guest. If its host stopped it during an interrupt of less than 1 ms, that time counts as part of \
             the interrupt. Longer interrupts are marked as unknown."
                .to_owned(),
        );
    }
    if !record.missing.is_empty() {
        all.push(format!(
            "This kernel doesn't have {}: some pieces stay unknown.",
            record.missing.join(", ")
        ));
    }
    let unseen = unseen(record);
    if unseen > 0 {
        all.push(format!(
            "The kernel recorded no switch for {}: nothing is known about them.",
            counted(unseen, "activation")
        ));
    }
    if record.lost > 0 {
        all.push(format!(
            "{}{} didn't fit in the kernel's buffer: late activations around them are marked.",
            counted(record.lost, "event"),
            by_cpu(&record.lost_by_cpu)
        ));
    }
    all
}

/// In parentheses, on which CPUs; nothing where that isn't known.
fn by_cpu(lost: &BTreeMap<u32, u64>) -> String {
    let of = |(cpu, lost): (&u32, &u64)| format!("CPU {cpu}: {}", grouped(*lost));
    match lost.is_empty() {
        true => String::new(),
        false => format!(" ({})", lost.iter().map(of).collect::<Vec<_>>().join(", ")),
    }
}

/// A thread of the table.
fn thread_rows(record: &ExplainRecord) -> Vec<[String; 6]> {
    let one = |thread: &rtscope_model::explain::WatchedThread| {
        let if_known = |time_ns| if thread.activations > 0 { us(time_ns) } else { "-".to_owned() };
        [
            format!("{}-{}", thread.name, thread.tid),
            grouped(thread.activations),
            grouped(thread.by_timer),
            grouped(thread.late),
            if_known(thread.latency_ns_sum / thread.activations.max(1)),
            if_known(thread.latency_ns_max),
        ]
    };
    let mut threads: Vec<_> = record.threads.iter().collect();
    threads.sort_by_key(|thread| std::cmp::Reverse(thread.latency_ns_max));
    threads.into_iter().map(one).collect()
}

/// The culprits and the worst activations for a terminal.
#[must_use]
pub fn table(record: &ExplainRecord) -> String {
    let all = judged(record);
    let mut text = format!("{}.\n", headline(record, &all));
    if !record.threads.is_empty() {
        text += "\nthread                activations  by timer    late     mean us  maximum us\n";
    }
    for [name, activations, by_timer, late, mean, maximum] in thread_rows(record) {
        text +=
            &format!("{name:22}{activations:>11}{by_timer:>10}{late:>8}{mean:>12}{maximum:>12}\n");
    }
    if !all.culprits.is_empty() {
        text += &format!("\nWhat was in the way {}:\n", of_which(record, &all));
    }
    for one in all.culprits.iter().take(PIECES) {
        text += &format!("  {}, {}{}\n", one.kind.text(), one.name, place(one.place.as_deref()));
        text += &format!(
            "    {} us in {}, {} us at worst\n    -> {}\n",
            us(one.sum_ns),
            counted(one.count, "late activation"),
            us(one.worst_ns),
            one.remedy
        );
    }
    for (n, one) in all.spikes.iter().take(SHOWN).enumerate() {
        text += &format!("\n{}. {}\n", n + 1, title(record, one));
        for line in wakers(one) {
            text += &format!("      {line}\n");
        }
        let causes = one.causes();
        let (shown, rest) = causes.split_at(causes.len().min(PIECES));
        for piece in shown {
            text += &format!("  {:>9} us  {}\n", us(piece.ns), piece_text(piece));
        }
        if !rest.is_empty() {
            let rest_ns = rest.iter().map(|piece| piece.ns).sum();
            text += &format!("  {:>9} us  {} more\n", us(rest_ns), rest.len());
        }
    }
    text.push('\n');
    for limit in limits(record) {
        text += &format!("{limit}\n");
    }
    text
}

/// When a thread should have run, by the wall clock: `17:35:02.134 UTC`.
fn clock_time(record: &ExplainRecord, at_ns: u64) -> Option<String> {
    let since_1970_ns = i128::from(record.wall_ahead_ns?) + i128::from(at_ns);
    let time = jiff::Timestamp::from_nanosecond(since_1970_ns).ok()?;
    Some(time.strftime("%H:%M:%S%.3f UTC").to_string())
}

/// A late activation in a line.
fn title(record: &ExplainRecord, one: &Explained) -> String {
    let woken = match &one.woken_by {
        None => "after its timer's expiry".to_owned(),
        Some(by) => format!("after {by} woke it"),
    };
    let lossy = if one.is_lossy { "; events around it are lost" } else { "" };
    let when = clock_time(record, one.at_ns).map_or_else(String::new, |time| format!("{time}: "));
    format!(
        "{when}{}-{} on CPU {} ran {} us {woken}{lossy}",
        one.name,
        one.tid,
        one.cpu,
        us(one.latency_ns)
    )
}

/// How who woke it had been woken, a line each.
fn wakers(one: &Explained) -> Vec<String> {
    let since_ns = one.wakers.iter().map(|it| it.ns).sum::<u64>() + one.latency_ns;
    let line = |(n, link): (usize, &WakerLink)| {
        let another = if n == 0 { "" } else { "another " };
        let in_all = match n + 1 == one.wakers.len() {
            true => format!(": {} us in all", us(since_ns)),
            false => String::new(),
        };
        let WakerLink { thread, woken_by, ns } = link;
        format!("{woken_by} woke {thread} {another}{} us before that{in_all}", us(*ns))
    };
    one.wakers.iter().enumerate().map(line).collect()
}

pub(super) fn piece_text(piece: &Piece) -> String {
    let certainty = match piece.certainty {
        Certainty::Measured | Certainty::LowerBound => "",
        Certainty::Unknown => ", not certain",
    };
    format!("{}: {}{certainty}{}", piece.kind.text(), piece.name, place(piece.place.as_deref()))
}

fn place(place: Option<&str>) -> String {
    place.map_or_else(String::new, |place| format!(" [{place}]"))
}

/// A culprit on the page.
struct CulpritRow {
    title: String,
    place: Option<String>,
    sum: String,
    worst: String,
    count: u64,
    remedy: &'static str,
}

impl CulpritRow {
    fn new(one: &Culprit) -> CulpritRow {
        CulpritRow {
            title: format!("{}: {}", one.kind.text(), one.name),
            place: one.place.clone(),
            sum: us(one.sum_ns),
            worst: us(one.worst_ns),
            count: one.count,
            remedy: one.remedy,
        }
    }
}

/// What the page of a run says of its late wake-ups.
#[derive(Template)]
#[template(path = "why.html")]
struct Why {
    headline: String,
    culprits: Vec<CulpritRow>,
    /// The worst ones.
    spikes: Vec<Shown>,
    /// A sentence each.
    of_run: Vec<String>,
}

/// What can only be said with the record of the run: whether its worst wake-up is explained, and what watching cost.
#[must_use]
pub fn of_run(run: &Record, record: &ExplainRecord) -> Vec<String> {
    let worst_ns = run.slices.iter().map(|slice| slice.max_ns).max().unwrap_or(0);
    unexplained(record, worst_ns).into_iter().chain([cost_text(run, record)]).collect()
}

/// The run's worst latency, where what is explained is far from it.
fn unexplained(record: &ExplainRecord, worst_ns: u64) -> Option<String> {
    let explained_ns = record.spikes.iter().map(Spike::latency_ns).max().unwrap_or(0);
    (worst_ns / 2 > explained_ns).then(|| {
        format!(
            "The worst wake-up of this run was {} us late, and it is not explained: this kernel showed no switch to the \
             thread, or the thread was stopped after the switch, or nothing was recorded then.",
            us(worst_ns)
        )
    })
}

/// What watching cost, in a sentence.
fn cost_text(run: &Record, record: &ExplainRecord) -> String {
    let signed =
        |ns: f64, rounding: Rounding| format!("{:+.1}", rounding.decimals(ns / 1_000.0, 1));
    match cost(run, &record.pauses) {
        Some(found) => format!(
            "Watching changed the mean latency by {} us (95 % interval {} to {} us), by {} in which nothing was recorded.",
            signed(found.mean_ns, Rounding::Nearest),
            signed(found.low_ns, Rounding::Down),
            signed(found.high_ns, Rounding::Up),
            counted(found.pauses as u64, "pause")
        ),
        None => "What watching costs is not known: that needs a run of 35 s or more, with slices of a second at most."
            .to_owned(),
    }
}

/// The section of the page of a run.
pub(super) fn section(run: &Record, record: &ExplainRecord) -> String {
    let all = judged(record);
    let why = Why {
        headline: headline(record, &all),
        of_run: of_run(run, record),
        culprits: all.culprits.iter().take(PIECES).map(CulpritRow::new).collect(),
        spikes: all
            .spikes
            .iter()
            .take(SHOWN)
            .enumerate()
            .map(|(n, one)| shown(record, n, one))
            .collect(),
    };
    why.render().expect("a string takes every text")
}

/// A late activation on the page.
struct Shown {
    title: String,
    wakers: Vec<String>,
    plot: String,
    /// The longest ones.
    causes: Vec<PieceRow>,
    pieces: Vec<PieceRow>,
}

/// A piece on the page.
pub(super) struct PieceRow {
    pub(super) swatch: String,
    pub(super) at: String,
    pub(super) ns: String,
    pub(super) share: String,
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) certainty: String,
}

/// A piece of a late activation as a row.
pub(super) fn piece_row(one: &Explained, piece: &Piece) -> PieceRow {
    PieceRow {
        swatch: spike::swatch(piece),
        at: us(piece.at_ns.saturating_sub(one.at_ns)),
        ns: us(piece.ns),
        share: format!("{:.1} %", piece.ns as f64 * 100.0 / one.latency_ns.max(1) as f64),
        kind: piece.kind.text(),
        name: format!("{}{}", piece.name, place(piece.place.as_deref())),
        certainty: format!("{}: {}", piece.certainty.text(), piece.why),
    }
}

#[derive(Template)]
#[template(path = "explain.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    record: &'a ExplainRecord,
    headline: String,
    above: Option<Nanos>,
    threads: Vec<[String; 6]>,
    culprits: Vec<CulpritRow>,
    spikes: Vec<Shown>,
    limits: Vec<String>,
    json: String,
}

fn shown(record: &ExplainRecord, n: usize, one: &Explained) -> Shown {
    Shown {
        title: title(record, one),
        wakers: wakers(one),
        plot: spike::draw(one, n + 1),
        causes: one.causes().iter().take(SHOWN).map(|row| piece_row(one, row)).collect(),
        pieces: one.pieces.iter().map(|row| piece_row(one, row)).collect(),
    }
}

/// The page.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(record: &ExplainRecord) -> String {
    let all = judged(record);
    let page = Page {
        style: include_str!("template/style.css"),
        plot_rules: plot::dark_rules(),
        headline: headline(record, &all),
        above: record.above,
        threads: thread_rows(record),
        culprits: all.culprits.iter().map(CulpritRow::new).collect(),
        spikes: all.spikes.iter().enumerate().map(|(n, one)| shown(record, n, one)).collect(),
        limits: limits(record),
        json: super::harmless_json(&document(record)),
        record,
    };
    page.render().expect("a string takes every text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_told_of_each_cpu_where_that_is_known() {
        assert_eq!(by_cpu(&BTreeMap::new()), "");
        let lost = BTreeMap::from([(0, 1_200), (3, 5)]);
        assert_eq!(by_cpu(&lost), " (CPU 0: 1,200, CPU 3: 5)");
    }

    fn record() -> ExplainRecord {
        let record = json!({
            "format": 1, "version": "0.1.0", "wall_clock": "", "kernel": "6.12.0", "is_preempt_rt": false,
            "is_guest": false, "program": "rtscope run", "duration": "1s", "above": null,
            "kept_max": 20, "events": [], "missing": [], "threads": [], "spikes": [], "symbols": [], "lost": 0,
        });
        serde_json::from_value(record).expect("a record")
    }

    #[test]
    fn an_instant_has_a_time_of_day_where_the_clocks_are_known() {
        // 2026-11-28 17:35:00 UTC, and a second and a half.
        let with_clock =
            ExplainRecord { wall_ahead_ns: Some(1_795_887_300_000_000_000), ..record() };
        assert_eq!(clock_time(&with_clock, 1_500_000_000).as_deref(), Some("17:35:01.500 UTC"));
        assert_eq!(clock_time(&record(), 1_500_000_000), None);
    }

    #[test]
    fn the_headline_says_how_many_activations_the_kernel_hides() {
        let said = |activations: u64, unseen: u64| {
            let thread = json!({
                "tid": 7, "name": "x", "priority": 19, "activations": activations, "by_timer": 0,
                "unseen": unseen, "late": 0, "latency_ns_max": 0, "latency_ns_sum": 0,
            });
            let threads = vec![serde_json::from_value(thread).expect("a thread")];
            let record = ExplainRecord { threads, ..record() };
            headline(&record, &judged(&record))
        };
        assert_eq!(said(1_000, 100), "Nothing was late");
        assert_eq!(
            said(32, 771),
            "Nothing was late, in the 32 of 803 activations that the kernel shows"
        );
    }

    #[test]
    fn a_worst_wake_up_that_nothing_explains_is_told_of() {
        let record = record();
        let said = unexplained(&record, 7_590_000).expect("a sentence");
        assert!(said.contains("was 7,590 us late, and it is not explained"), "{said}");
        assert_eq!(unexplained(&record, 0), None);
    }
}
