//! OpenMetrics text for a collector of files (node_exporter's `textfile`): figures of the latest run.
//!
//! Every family is a gauge but the histogram, and there are no time stamps and no types that are
//! OpenMetrics' alone: readers of Prometheus' older text take the same file.
//!
//! A bucket's count is of the latencies that surely are at or below its bound (`le`): a latency whose
//! own bucket reaches beyond the bound is counted by the next. So a quantile that a server computes
//! from it is never too small.

use std::fmt::Write as _;

use rtscope_model::{histogram::Histogram, verdict::Verdict};

use super::{Exported, FleetExported, Format, PlaceExported};
use crate::{
    judgement::{CellSummary, FigureRow, RequirementOutcome},
    statistics::quantile,
};

pub(super) const FORMAT: Format = Format {
    name: "openmetrics",
    what: "OpenMetrics text, as node_exporter's textfile collector takes it",
    ending: "prom",
    write: |subject| Ok((families(&[subject]) + END).into_bytes()),
};

const END: &str = "# EOF\n";

/// Families have the samples of all places: a reader takes each family once.
pub(super) fn of_fleet(fleet: &FleetExported<'_>) -> String {
    let sample = |place: &PlaceExported<'_>| {
        let (name, is_there) = match place {
            PlaceExported::Run(subject) => (subject.place.as_deref().unwrap_or_default(), "1"),
            PlaceExported::Without(without) => (without.place.as_str(), "0"),
        };
        (pairs(&[("place", name), ("plan", fleet.plan)]), is_there.to_owned())
    };
    let samples = fleet.places.iter().map(sample).collect();
    let help = "1 where a place of a fleet brought a record, 0 where it did not.";
    families(&fleet.runs()) + &gauge("rtscope_place_has_record", "", help, &samples) + END
}

/// Bounds of the buckets in ns: 1, 2 and 5 of each power of ten, 1 us to 1 s.
const BOUNDS_NS: [u64; 19] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
];

/// Labels and values of a family.
type Samples = Vec<(String, String)>;

fn families(subjects: &[&Exported<'_>]) -> String {
    let mut text = histogram(subjects);
    let of_rows = |value: &dyn Fn(&FigureRow) -> Option<String>| -> Samples {
        let each = |(subject, cell): (&Exported<'_>, &CellSummary)| -> Samples {
            let sample = |row: &FigureRow| Some((labels(subject, cell, row), value(row)?));
            cell.threads.iter().filter_map(sample).collect()
        };
        cells(subjects).flat_map(each).collect()
    };
    let of_runs = |samples: fn(&Exported<'_>) -> Samples| -> Samples {
        subjects.iter().flat_map(|subject| samples(subject)).collect()
    };
    let family = "rtscope_wakeup_latency";
    for (name, unit, help, samples) in [
        (
            format!("{family}_max_seconds"),
            "seconds",
            "Largest wake-up latency of the run.",
            of_rows(&|row| row.max_ns().map(seconds)),
        ),
        (
            format!("{family}_max_is_at_least"),
            "",
            "1 where the largest latency is a lower bound: how long a missed activation had waited so far.",
            of_rows(&|row| row.max_is_at_least().then(|| "1".to_owned())),
        ),
        (
            format!("{family}_quantile_seconds"),
            "seconds",
            "Quantiles of the wake-up latency.",
            quantiles(subjects),
        ),
        (
            "rtscope_activations".to_owned(),
            "",
            "Measured activations.",
            of_rows(&|row| Some(row.recorded.to_string())),
        ),
        (
            "rtscope_missed_activations".to_owned(),
            "",
            "Activations that a late wake-up swallowed.",
            of_rows(&|row| row.missed_is_known.then(|| row.missed.to_string())),
        ),
        (
            "rtscope_missed_activations_at_least".to_owned(),
            "",
            "Activations that are known to be missed, where the total is not known.",
            of_rows(&|row| {
                (!row.missed_is_known && row.missed > 0).then(|| row.missed.to_string())
            }),
        ),
        (
            "rtscope_requirement_met".to_owned(),
            "",
            "1 where a requirement is met in a valid run, 0 where it is not, absent where the run can't tell.",
            of_runs(requirements),
        ),
        ("rtscope_run_verdict".to_owned(), "", "1 at the verdict of the run.", of_runs(verdicts)),
        (
            "rtscope_run_start_timestamp_seconds".to_owned(),
            "seconds",
            "When the run began, since the epoch.",
            of_runs(began),
        ),
    ] {
        text += &gauge(&name, unit, help, &samples);
    }
    text + &frames(subjects)
}

/// Each cell of each run.
fn cells<'a>(
    subjects: &'a [&'a Exported<'a>],
) -> impl Iterator<Item = (&'a Exported<'a>, &'a CellSummary)> {
    let of = |subject: &&'a Exported<'a>| {
        let subject = *subject;
        subject.judgement.cells.iter().map(move |cell| (subject, cell))
    };
    subjects.iter().flat_map(of)
}

fn gauge(name: &str, unit: &str, help: &str, samples: &Samples) -> String {
    if samples.is_empty() {
        return String::new();
    }
    let mut text = format!("# TYPE {name} gauge\n");
    if !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name} {help}");
    for (labels, value) in samples {
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    }
    text
}

fn histogram(subjects: &[&Exported<'_>]) -> String {
    let name = "rtscope_wakeup_latency_seconds";
    let mut text = format!(
        "# TYPE {name} histogram\n# UNIT {name} seconds\n\
         # HELP {name} Wake-up latency: from the programmed expiry to the first clock reading after it.\n"
    );
    for (subject, cell) in cells(subjects) {
        for row in cell.threads.iter().filter(|row| row.recorded > 0) {
            let (labels, histogram) = (labels(subject, cell, row), &row.histogram);
            for bound_ns in BOUNDS_NS {
                let (le, count) = (bound(bound_ns), at_most(histogram, bound_ns));
                let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{le}\"}} {count}");
            }
            let (count, sum) = (row.recorded, histogram.sum_ns() as f64 / 1e9);
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
            let _ =
                writeln!(text, "{name}_count{{{labels}}} {count}\n{name}_sum{{{labels}}} {sum}");
        }
    }
    text
}

/// Latencies that surely are at or below a bound.
fn at_most(histogram: &Histogram, bound_ns: u64) -> u64 {
    let (_, above) = histogram.at_or_above(bound_ns.saturating_add(1));
    histogram.count() - above
}

fn quantiles(subjects: &[&Exported<'_>]) -> Samples {
    let mut samples = Samples::new();
    for (subject, cell) in cells(subjects) {
        for row in &cell.threads {
            for parts in quantile::LADDER {
                let rank = quantile::rank(row.histogram.count(), parts);
                let Some(ns) = row.histogram.at_rank_ns(rank) else { continue };
                let share = f64::from(parts) / f64::from(quantile::WHOLE);
                let labels = labels(subject, cell, row);
                samples.push((format!("{labels},quantile=\"{share}\""), seconds(ns)));
            }
        }
    }
    samples
}

/// What became of frames; absent where none was sent.
fn frames(subjects: &[&Exported<'_>]) -> String {
    let mut samples = Samples::new();
    for (subject, cell) in cells(subjects) {
        for row in &cell.threads {
            for one in row.frame_counts().into_iter().flatten() {
                let labels =
                    format!("{},{}", labels(subject, cell, row), pairs(&[("became", one.key)]));
                samples.push((labels, one.count.to_string()));
            }
        }
    }
    let help = "Cycles and frames of a network sampler, by what became of them.";
    gauge("rtscope_frames", "", help, &samples)
}

fn requirements(subject: &Exported<'_>) -> Samples {
    let sample = |outcome: &RequirementOutcome| {
        let met = match outcome.verdict {
            Verdict::Pass => "1",
            Verdict::Fail => "0",
            Verdict::Inconclusive | Verdict::Measured => return None,
        };
        let requirement = outcome.requirement.to_string();
        let labels = [("cell", outcome.name.as_str()), ("requirement", requirement.as_str())];
        Some((format!("{},{}", plan(subject), pairs(&labels)), met.to_owned()))
    };
    subject.judgement.outcomes.iter().filter_map(sample).collect()
}

fn verdicts(subject: &Exported<'_>) -> Samples {
    let all = [Verdict::Measured, Verdict::Pass, Verdict::Fail, Verdict::Inconclusive];
    let sample = |verdict: Verdict| {
        let word = verdict.to_string().to_lowercase();
        let is_it = u8::from(subject.judgement.verdict == verdict);
        let labels = format!("{},{}", plan(subject), pairs(&[("verdict", word.as_str())]));
        (labels, is_it.to_string())
    };
    all.into_iter().map(sample).collect()
}

fn began(subject: &Exported<'_>) -> Samples {
    let (_, began) = subject.started();
    let began = began.parse::<jiff::Timestamp>().ok().filter(|_| !subject.record.is_imported());
    began.map(|began| (plan(subject), began.as_second().to_string())).into_iter().collect()
}

/// The plan, and the place where there are several.
fn plan(subject: &Exported<'_>) -> String {
    let place = subject.place.as_deref().map(|place| ("place", place));
    let plan = ("plan", subject.record.plan.name.as_str());
    pairs(&place.into_iter().chain([plan]).collect::<Vec<_>>())
}

fn labels(subject: &Exported<'_>, cell: &CellSummary, row: &FigureRow) -> String {
    let cpu = row.cpu.map(|cpu| cpu.to_string()).unwrap_or_default();
    let more =
        [("cell", cell.name.as_str()), ("thread", row.label.as_str()), ("cpu", cpu.as_str())];
    format!("{},{}", plan(subject), pairs(&more))
}

fn pairs(pairs: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    };
    pairs.iter().map(pair).collect::<Vec<_>>().join(",")
}

/// Nanoseconds as seconds, all nine decimals.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// A bound as the canonical number: `0.00002`, `1.0`.
fn bound(ns: u64) -> String {
    let text = seconds(ns);
    let short = text.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
}
