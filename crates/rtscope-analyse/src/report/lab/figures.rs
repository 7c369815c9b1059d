//! The figures of a verb's record that are compared between kernels.

use rtscope_model::{
    drift::{DriftRecord, Periodic},
    stat::{Counted, CountedBy, CounterRecord},
    throughput::{SampledLatencies, ThroughputRecord, Transfer, TransportProtocol},
};
use serde_json::Value;

use crate::{
    report::{stat::named, throughput::latency},
    statistics::{
        drift, stat,
        wave::sweep::{Curve, Sweep},
    },
};

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureUnit {
    /// A time in nanoseconds, below 0 at times.
    Ns,
    /// A time in nanoseconds that is gained in an hour.
    NsPerHour,
    /// A frequency.
    Hz,
    BitsPerSecond,
    Count,
    /// A share of 1.
    Share,
    /// A number without a unit.
    Ratio,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GuestFigure {
    /// What it is of: a loop, a program, a transfer, a subject.
    pub of: String,
    pub name: String,
    /// What it is counted in.
    pub unit: FigureUnit,
    /// The figure, or why there is none.
    pub value: Result<f64, String>,
}

/// Makes figures of one thing.
fn figures_of(of: String) -> impl Fn(&str, FigureUnit, Option<f64>) -> GuestFigure {
    move |name, unit, value| GuestFigure {
        of: of.clone(),
        name: name.to_owned(),
        unit,
        value: value.ok_or_else(|| "none".to_owned()),
    }
}

/// Of `drift`: how far each loop falls behind, and how late it wakes.
#[must_use]
pub fn of_drift(record: &DriftRecord) -> Vec<GuestFigure> {
    let one = |subject: &Periodic| {
        let (figure, judged) = (figures_of(subject.name.clone()), drift::judge(subject));
        let latencies = || {
            let all = subject.activations.iter();
            all.map(|one| one.woke_ns.saturating_sub(one.expiry_ns) as f64)
        };
        let count = subject.activations.len().max(1) as f64;
        vec![
            figure(
                "drift",
                FigureUnit::NsPerHour,
                judged.as_ref().map(|one| one.drift_ns_per_hour),
            ),
            figure("mean period", FigureUnit::Ns, judged.as_ref().map(|one| one.period_ns_mean)),
            figure(
                "missed periods",
                FigureUnit::Count,
                judged.as_ref().map(|one| one.missed as f64),
            ),
            figure("mean latency", FigureUnit::Ns, Some(latencies().sum::<f64>() / count)),
            figure("largest latency", FigureUnit::Ns, latencies().reduce(f64::max)),
        ]
    };
    record.threads.iter().flat_map(one).collect()
}

/// Of `stat`: each counter of each program.
#[must_use]
pub fn of_stat(record: &CounterRecord) -> Vec<GuestFigure> {
    let simulated = matches!(record.by, CountedBy::Simulator(_));
    let programs = record.programs.iter().flat_map(|program| {
        let judged = stat::judge(program, simulated);
        judged.into_iter().map(|one| (program.name.clone(), one)).collect::<Vec<_>>()
    });
    let figure = |(of, one): (String, stat::JudgedRuns)| GuestFigure {
        of,
        name: named(one.figure).to_owned(),
        unit: match one.figure {
            stat::StatFigure::ElapsedNs | stat::StatFigure::Counter(Counted::TaskClockNs) => {
                FigureUnit::Ns
            }
            stat::StatFigure::Counter(_) => FigureUnit::Count,
            stat::StatFigure::CpusUsed | stat::StatFigure::InstructionsPerCycle => {
                FigureUnit::Ratio
            }
            stat::StatFigure::CyclesPerSecond => FigureUnit::Hz,
            stat::StatFigure::BranchMissRate => FigureUnit::Share,
        },
        value: one.mean.map(|mean| mean.mean),
    };
    programs.map(figure).collect()
}

/// Of `throughput`: what each transfer reached, and how late the sampler beside it woke.
#[must_use]
pub fn of_throughput(record: &ThroughputRecord) -> Vec<GuestFigure> {
    let sampled = |name: &str, sampled: &SampledLatencies| {
        let (figure, found) = (figures_of(name.to_owned()), latency(sampled));
        vec![
            figure(
                "99th percentile of the latency",
                FigureUnit::Ns,
                found.map(|one| one.p99_ns as f64),
            ),
            figure("largest latency", FigureUnit::Ns, found.map(|one| one.max_ns as f64)),
        ]
    };
    let transfer = |one: &Transfer| {
        let beside = if one.sampled.is_some() { " beside the sampler" } else { "" };
        let name = format!("{} {} KiB{beside}", one.protocol.name(), one.window_bytes >> 10);
        let figure = figures_of(name.clone());
        let mut figures = vec![
            figure("bandwidth", FigureUnit::BitsPerSecond, Some(one.bits_per_second())),
            figure("CPU load", FigureUnit::Share, Some(one.cpu_load)),
        ];
        if one.protocol == TransportProtocol::Udp {
            let lost = one.lost_datagrams() as f64 / one.sent_datagrams.max(1) as f64;
            figures.push(figure("lost datagrams", FigureUnit::Share, Some(lost)));
        }
        figures.extend(one.sampled.iter().flat_map(|found| sampled(&name, found)));
        figures
    };
    let transfers = record.transfers.iter().flat_map(transfer);
    transfers.chain(record.rest.iter().flat_map(|rest| sampled("rest", rest))).collect()
}

/// Of `wave sweep`: the limit of each subject.
#[must_use]
pub fn of_sweep(sweep: &Sweep) -> Vec<GuestFigure> {
    let limit = |curve: &Curve| {
        let (name, found) = (curve.label(), &curve.found);
        let figure = |what: &str, hz: Option<f64>, why: &str| GuestFigure {
            of: name.clone(),
            name: what.to_owned(),
            unit: FigureUnit::Hz,
            value: hz.ok_or_else(|| why.to_owned()),
        };
        let why = found.no_limit.as_deref().unwrap_or("none");
        vec![
            figure("highest good frequency", found.max_frequency_hz, why),
            figure("first bad frequency", found.first_bad_hz, "above the last frequency"),
        ]
    };
    sweep.curves.iter().flat_map(limit).collect()
}

/// Of the document of `wave generate`: how far the wave was off.
#[must_use]
pub fn of_wave(document: &Value) -> Vec<GuestFigure> {
    let text = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
    let figure = figures_of(format!("{}, {}", text("line"), text("method")));
    let number = |key: &str| document[key].as_f64();
    let error = number("frequency_hz").zip(number("wanted_hz")).map(|(made, wanted)| {
        // In parts of what was wanted, so that kernels can be compared whatever the frequency is.
        made / wanted - 1.0
    });
    let mut figures = vec![
        figure("frequency", FigureUnit::Hz, number("frequency_hz")),
        figure("frequency error", FigureUnit::Share, error),
        figure("edges", FigureUnit::Count, number("edges")),
        figure("missed edges", FigureUnit::Count, number("missed_edges")),
        figure("mean edge error", FigureUnit::Ns, number("latency_ns_mean")),
        figure("largest edge error", FigureUnit::Ns, number("latency_ns_max")),
    ];
    if document["limit_ns"].is_number() {
        figures.push(figure("edges later than the limit", FigureUnit::Count, number("violations")));
    }
    figures
}
