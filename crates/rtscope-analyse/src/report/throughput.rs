//! Throughput against determinism as a table, a page, and JSON. The same record gives the same bytes.

use askama::Template;
use rtscope_model::{
    published::PublishedStatistic,
    throughput::{SampledLatencies, ThroughputRecord, Transfer, TransportProtocol},
    time::Rounding,
};
use serde_json::{Value, json};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::{
    number::{counted, grouped, us},
    plot::{
        self,
        throughput::{self, Curve, Unit, bits_beside},
    },
    report::published::{self, Ours, PublishedBesideOurs, Whose},
};

/// What a sampler saw, judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Latency {
    samples: u64,
    mean_ns: f64,
    pub(super) p99_ns: u64,
    pub(super) max_ns: u64,
    missed: u64,
}

/// None without a sample.
pub(super) fn latency(sampled: &SampledLatencies) -> Option<Latency> {
    let mut all = sampled.latencies_ns.clone();
    all.sort_unstable();
    let max_ns = *all.last()?;
    let count = all.len() as u64;
    // The value at rank ceil(0.99 n).
    let rank = (count * 99).div_ceil(100).max(1);
    Some(Latency {
        samples: count,
        mean_ns: all.iter().map(|ns| *ns as f64).sum::<f64>() / count as f64,
        p99_ns: all[rank as usize - 1],
        max_ns,
        missed: sampled.missed,
    })
}

fn latency_json(sampled: Option<&SampledLatencies>) -> Value {
    match (sampled, sampled.and_then(latency)) {
        (Some(sampled), Some(found)) => json!({
            "placement": sampled.placement,
            "interval_ns": sampled.interval_ns,
            "samples": found.samples,
            "missed": found.missed,
            "latency_ns_mean": found.mean_ns,
            "latency_ns_p99": found.p99_ns,
            "latency_ns_max": found.max_ns,
        }),
        _ => Value::Null,
    }
}

/// The record and its judgement as one document.
#[must_use]
pub fn document(record: &ThroughputRecord, published: &[PublishedBesideOurs]) -> Value {
    let one = |transfer: &Transfer| {
        let received = &transfer.received;
        json!({
            "protocol": transfer.protocol,
            "window_bytes": transfer.window_bytes,
            "send_buffer_bytes": transfer.buffer_bytes,
            "receive_buffer_bytes": received.buffer_bytes,
            "bits_per_second": transfer.bits_per_second(),
            "sent_bytes": transfer.sent_bytes,
            "received_bytes": received.bytes,
            "sent_datagrams": transfer.sent_datagrams,
            "received_datagrams": received.datagrams,
            "lost_datagrams": transfer.lost_datagrams(),
            "duplicates": received.duplicates,
            "reordered": received.reordered,
            "send_span_ns": transfer.span_ns,
            "receive_span_ns": received.span_ns,
            "cpu_load": transfer.cpu_load,
            "receiver_cpu_load": received.cpu_load,
            "sampler": latency_json(transfer.sampled.as_ref()),
        })
    };
    json!({
        "format": record.format,
        "version": record.version,
        "wall_clock": record.wall_clock,
        "kernel": record.kernel,
        "over": record.over,
        "cpus": record.cpus,
        "duration_ns": record.duration.0,
        "interrupted": record.interrupted,
        "rest": latency_json(record.rest.as_ref()),
        "transfers": record.transfers.iter().map(one).collect::<Vec<_>>(),
        "findings": findings(record),
        "published": published::document(published),
    })
}

/// What each transfer shows, for published figures to be set beside: of TCP by the window, as `TCP 16 KiB`.
#[must_use]
pub fn ours(record: &ThroughputRecord, whose: Whose<'_>) -> Vec<Ours> {
    let one = |transfer: &Transfer| {
        let subject = format!("{} {} KiB", transfer.protocol.name(), transfer.window_bytes >> 10);
        let figures = vec![
            (PublishedStatistic::Bandwidth, Ok(transfer.bits_per_second())),
            (PublishedStatistic::CpuLoad, Ok(transfer.cpu_load)),
        ];
        Ours { figures, ..whose.ours(&subject) }
    };
    // A sampler beside the transfer is a condition that no document has.
    record.transfers.iter().filter(|transfer| transfer.sampled.is_none()).map(one).collect()
}

/// A row: a protocol and window, without and with the sampler.
#[derive(Debug, Default)]
struct Row {
    protocol: &'static str,
    window: String,
    alone: String,
    load_alone: String,
    beside: String,
    load_beside: String,
    lost: String,
    mean: String,
    p99: String,
    max: String,
}

fn rows(record: &ThroughputRecord) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let largest = record.transfers.iter().map(Transfer::bits_per_second).fold(0.0, f64::max);
    for one in &record.transfers {
        let window = format!("{}", one.window_bytes >> 10);
        let protocol = one.protocol.name();
        let is_new = |row: &Row| row.protocol != protocol || row.window != window;
        if rows.last().is_none_or(is_new) {
            rows.push(Row { protocol, window, ..Row::default() });
        }
        let Some(row) = rows.last_mut() else { continue };
        let (rate, load) =
            (bits_beside(one.bits_per_second(), largest), format!("{:.0} %", one.cpu_load * 100.0));
        match &one.sampled {
            None => (row.alone, row.load_alone) = (rate, load),
            Some(sampled) => {
                (row.beside, row.load_beside) = (rate, load);
                if let Some(found) = latency(sampled) {
                    row.mean = us(found.mean_ns.round() as u64);
                    row.p99 = us(found.p99_ns);
                    row.max = us(found.max_ns);
                }
            }
        }
        if one.protocol == TransportProtocol::Udp {
            let share = one.lost_datagrams() as f64 / one.sent_datagrams.max(1) as f64 * 100.0;
            let text = format!("{} ({share:.1} %)", grouped(one.lost_datagrams()));
            row.lost = if row.lost.is_empty() { text } else { format!("{}, {text}", row.lost) };
        }
    }
    rows
}

/// What the sampler changed in the bandwidth: the geometric mean of the ratios of all windows, so that none
/// weighs more than another, with Student's interval over them.
fn changed(protocol: TransportProtocol, alone: &[f64], beside: &[f64]) -> String {
    let logs: Vec<f64> = alone.iter().zip(beside).map(|(a, b)| (b / a).ln()).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let percent = |log: f64| (log.exp() - 1.0) * 100.0;
    let what = format!("{}: the sampler changed the bandwidth by", protocol.name());
    if logs.len() < 3 {
        return format!(
            "{what} {:+.1} %; fewer than three windows can't show whether this is chance.",
            percent(mean)
        );
    }
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let quantile = StudentsT::new(0.0, 1.0, n - 1.0).map_or(1.96, |t| t.inverse_cdf(0.975));
    let half = quantile * (variance / n).sqrt();
    let (low, high) = (percent(mean - half), percent(mean + half));
    let verdict = if low <= 0.0 && high >= 0.0 { ": not distinguishable from chance" } else { "" };
    format!(
        "{what} {:+.1} % (95 % interval {:+.1} to {:+.1} %, over {}){verdict}.",
        percent(mean),
        Rounding::Down.decimals(low, 1),
        Rounding::Up.decimals(high, 1),
        counted(logs.len() as u64, "window")
    )
}

/// What it says, a sentence each.
fn findings(record: &ThroughputRecord) -> Vec<String> {
    let mut found = Vec::new();
    for protocol in [TransportProtocol::Tcp, TransportProtocol::Udp] {
        let of = |with: bool| -> Vec<f64> {
            let is_meant =
                |one: &&Transfer| one.protocol == protocol && one.sampled.is_some() == with;
            record.transfers.iter().filter(is_meant).map(Transfer::bits_per_second).collect()
        };
        let (alone, beside) = (of(false), of(true));
        if alone.is_empty() || alone.len() != beside.len() {
            continue;
        }
        found.push(changed(protocol, &alone, &beside));
    }
    let busy = record.transfers.iter().filter_map(|one| one.sampled.as_ref().and_then(latency));
    let worst = busy.map(|found| found.max_ns).max();
    if let (Some(rest), Some(worst)) = (record.rest.as_ref().and_then(latency), worst) {
        found.push(format!(
            "The largest wake-up latency was {} us at rest and {} us during transfers.",
            us(rest.max_ns),
            us(worst)
        ));
    }
    let differing = record.transfers.iter().filter(|one| {
        one.protocol == TransportProtocol::Tcp && one.sent_bytes != one.received.bytes
    });
    let differing = differing.count() as u64;
    if differing > 0 {
        found.push(format!(
            "In {} the two sides counted different numbers of bytes: don't trust these figures.",
            counted(differing, "transfer")
        ));
    }
    // The kernel makes a buffer twice what is asked.
    let small = |one: &&Transfer| {
        one.received.buffer_bytes.unwrap_or(u64::MAX).min(one.buffer_bytes) < 2 * one.window_bytes
    };
    if let Some(one) = record.transfers.iter().find(small) {
        found.push(format!(
            "The window of {} KiB was not granted on both sides: raise net.core.rmem_max and net.core.wmem_max, or run as root.",
            one.window_bytes >> 10
        ));
    }
    if record.interrupted {
        found.push("The measurement was ended early.".to_owned());
    }
    found
}

#[must_use]
pub fn table(record: &ThroughputRecord, published: &[PublishedBesideOurs]) -> String {
    let mut text = format!("Over {}, {} each\n\n", record.over, record.duration);
    text += "             without a sampler   with a sampler        latency in us\n";
    text += "     window    bandwidth   CPU    bandwidth   CPU    mean     p99     max\n";
    for row in rows(record) {
        let line = format!(
            "{} {:>4} KiB {:>12} {:>5} {:>12} {:>5} {:>7} {:>7} {:>7}",
            row.protocol,
            row.window,
            row.alone,
            row.load_alone,
            row.beside,
            row.load_beside,
            row.mean,
            row.p99,
            row.max
        );
        text += &format!("{}\n", line.trim_end());
        if !row.lost.is_empty() {
            text += &format!("             datagrams lost: {}\n", row.lost);
        }
    }
    text += "\n";
    for finding in findings(record) {
        text += &format!("{finding}\n");
    }
    text + &published::text(published)
}

fn curves(record: &ThroughputRecord) -> Vec<(&'static str, Unit, Vec<Curve>)> {
    let (mut rate, mut load, mut worst) = (Vec::new(), Vec::new(), Vec::new());
    for (n, protocol) in [TransportProtocol::Tcp, TransportProtocol::Udp].into_iter().enumerate() {
        for with in [false, true] {
            let all: Vec<&Transfer> = record
                .transfers
                .iter()
                .filter(|one| one.protocol == protocol && one.sampled.is_some() == with)
                .collect();
            if all.is_empty() {
                continue;
            }
            let beside = if with { "with a sampler" } else { "alone" };
            let curve = |value: &dyn Fn(&Transfer) -> Option<f64>| Curve {
                name: format!("{} {beside}", protocol.name()),
                place: 2 * n + usize::from(with),
                points: all
                    .iter()
                    .filter_map(|one| Some((one.window_bytes as f64, value(one)?)))
                    .collect(),
            };
            rate.push(curve(&|one| Some(one.bits_per_second())));
            load.push(curve(&|one| Some(one.cpu_load * 100.0)));
            if with {
                worst.push(curve(&|one| {
                    one.sampled.as_ref().and_then(latency).map(|found| found.max_ns as f64)
                }));
            }
        }
    }
    if let Some(rest) = record.rest.as_ref().and_then(latency) {
        let windows = || record.transfers.iter().map(|one| one.window_bytes as f64);
        let ends = [windows().fold(f64::MAX, f64::min), windows().fold(0.0, f64::max)];
        worst.push(Curve {
            name: "at rest".to_owned(),
            place: 6,
            points: ends.map(|window| (window, rest.max_ns as f64)).to_vec(),
        });
    }
    // Each on a scale of its own: UDP pays for every datagram.
    let (udp, tcp): (Vec<Curve>, Vec<Curve>) = rate.into_iter().partition(|one| one.place >= 2);
    let mut panels = Vec::new();
    for (name, curves) in [("Bandwidth, TCP", tcp), ("Bandwidth, UDP", udp)] {
        if !curves.is_empty() {
            panels.push((name, Unit::Bits, curves));
        }
    }
    panels.push(("CPU load", Unit::Percent, load));
    if !worst.is_empty() {
        panels.push(("Largest wake-up latency", Unit::Latency, worst));
    }
    panels
}

#[derive(Template)]
#[template(path = "throughput.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    record: &'a ThroughputRecord,
    findings: Vec<String>,
    rows: Vec<Row>,
    place: String,
    plot: String,
    published: &'a [PublishedBesideOurs],
    json: String,
}

/// The page.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(record: &ThroughputRecord, published: &[PublishedBesideOurs]) -> String {
    let findings = findings(record);
    let page = Page {
        style: include_str!("template/style.css"),
        plot_rules: plot::dark_rules(),
        plot: throughput::draw(&curves(record), &findings.join(" ")),
        published,
        place: record.rest.as_ref().map_or(String::new(), |one| one.placement.to_string()),
        rows: rows(record),
        json: super::harmless_json(&document(record, published)),
        findings,
        record,
    };
    page.render().expect("a string takes every text")
}

#[cfg(test)]
mod tests {
    use rtscope_model::{
        published::PublishedTable,
        schedule::{Placement, Policy},
        throughput::{FORMAT, Received},
        time::Nanos,
    };

    use super::*;

    fn sampled(latencies_ns: Vec<u64>) -> SampledLatencies {
        let placement = Placement {
            policy: Policy::Fifo,
            priority: 80,
            nice: 0,
            budget: None,
            cpus: [1].into_iter().collect(),
        };
        SampledLatencies { placement, interval_ns: 1_000_000, latencies_ns, missed: 0 }
    }

    fn transfer(
        protocol: TransportProtocol,
        bytes: u64,
        sampled: Option<SampledLatencies>,
    ) -> Transfer {
        let datagrams = if protocol == TransportProtocol::Udp { bytes / 1_000 } else { 0 };
        Transfer {
            protocol,
            window_bytes: 65_536,
            buffer_bytes: 131_072,
            sent_bytes: bytes,
            sent_datagrams: datagrams * 2,
            span_ns: 1_000_000_000,
            cpu_load: 0.5,
            received: Received {
                buffer_bytes: Some(131_072),
                bytes,
                datagrams,
                span_ns: 1_000_000_000,
                ..Received::default()
            },
            sampled,
        }
    }

    fn record() -> ThroughputRecord {
        ThroughputRecord {
            format: FORMAT,
            version: "0".to_owned(),
            wall_clock: "2020-01-01T00:00:00Z".to_owned(),
            kernel: "6.1".to_owned(),
            over: "<board>".to_owned(),
            cpus: 2,
            duration: Nanos::from_secs(1),
            rest: Some(sampled(vec![1_000; 50])),
            transfers: vec![
                transfer(TransportProtocol::Tcp, 100_000_000, None),
                transfer(
                    TransportProtocol::Tcp,
                    90_000_000,
                    Some(sampled((1..=200).map(|n| n * 1_000).collect())),
                ),
                transfer(TransportProtocol::Udp, 1_000_000, None),
            ],
            interrupted: false,
        }
    }

    #[test]
    fn the_rates_of_a_table_have_one_unit_and_it_fits_80_columns() {
        let mut record = record();
        record.transfers[0].received.bytes = 300_000_000;
        let table = table(&record, &[]);
        assert!(table.contains(" 2.40 Gbit/s") && table.contains(" 0.720 Gbit/s"), "{table}");
        assert!(!table.contains("Mbit/s"), "{table}");
        let (figures, _) = table.split_once("\n\ntcp").map_or((table.as_str(), ""), |parts| parts);
        assert!(figures.lines().take(6).all(|line| line.chars().count() <= 80), "{table}");
    }

    #[test]
    fn bandwidth_load_loss_and_latency_are_told() {
        let record = record();
        let document = document(&record, &[]);
        let first = &document["transfers"][0];
        assert_eq!(first["bits_per_second"], 8e8);
        assert!(first["sampler"].is_null());
        let sampler = &document["transfers"][1]["sampler"];
        // Rank ceil(0.99 * 200) = 198.
        assert_eq!([&sampler["latency_ns_p99"], &sampler["latency_ns_max"]], [198_000, 200_000]);
        assert_eq!(sampler["latency_ns_mean"], 100_500.0);
        assert_eq!(document["transfers"][2]["lost_datagrams"], 1_000);
        let table = table(&record, &[]);
        for part in [
            "800 Mbit/s",
            "720 Mbit/s",
            "1,000 (50.0 %)",
            "by -10.0 %; fewer than three",
            "1.0 us at rest and 200.0 us",
        ] {
            assert!(table.contains(part), "{part}: {table}");
        }
        let page = page(&record, &[]);
        for part in ["&#60;board&#62;", "Largest wake-up latency", "fifo 80 on CPU 1"] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn published_transfers_stand_beside_those_without_a_sampler() {
        let text = "name = 'x'\ntitle = 'x'\n[[published]]\nsubject = 'TCP 64 KiB'\nsource = 'a training'\n\
                    figures = { bandwidth = '1600Mbit/s', cpu_load = '25%' }\n[[published]]\n\
                    subject = 'TCP 64 KiB'\ncondition = 'interrupts are paced'\nsource = 'a training'\n\
                    figures = { bandwidth = '781Mbit/s' }\n";
        let published = PublishedTable::parse("x", text).expect("a table").published;
        let record = record();
        let all = published::beside(&published, &ours(&record, Whose::default()));
        let shown: Vec<(String, String)> =
            all.iter().map(|one| (one.ours(), one.ratio())).collect();
        let row = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(shown[..2], [row("800Mbit/s", "0.50"), row("50%", "2.00")]);
        assert!(shown[2].0.contains("interrupts are paced"), "{shown:?}");
        assert!(page(&record, &all).contains("1600Mbit/s"));
        assert!(super::table(&record, &all).contains("(0.50)"));
    }

    #[test]
    fn a_change_has_students_interval_over_the_windows() {
        // Logarithms of the ratios: -0.1, -0.2, -0.3; deviation 0.1, 4.3027 * 0.1 / sqrt(3) = 0.2484.
        let beside = [0.1f64, 0.2, 0.3].map(|log| (-log).exp());
        let text = changed(TransportProtocol::Tcp, &[1.0; 3], &beside);
        // exp(-0.4484) - 1 is -36.14 %, exp(-0.2) - 1 is -18.13 %, and exp(0.0484) - 1 is 4.96 %.
        assert!(text.contains("by -18.1 %"), "{text}");
        let interval = "-36.2 to +5.0 %";
        assert!(text.contains(interval) && text.contains("chance"), "{text}");
        assert!(!changed(TransportProtocol::Tcp, &[1.0; 3], &[0.5; 3]).contains("chance"));
    }

    #[test]
    fn sides_that_disagree_are_not_trusted() {
        let mut record = record();
        record.transfers[0].received.bytes -= 1;
        assert!(table(&record, &[]).contains("different numbers of bytes"));
        assert!(!table(&record, &[]).contains("was not granted"));
        record.transfers[1].received.buffer_bytes = Some(100_000);
        assert!(table(&record, &[]).contains("64 KiB was not granted"));
    }
}
