//! A page of every kind that the product writes, with every part that such a page can have.

use std::sync::LazyLock;

use rtscope_analyse::{
    compare::{self, compare},
    doctor,
    import::{self, Import, ImportOptions, Stream},
    report::{
        self, lab,
        published::{self, Ours, PublishedBesideOurs, Whose},
        wave as wave_page,
    },
    statistics::{
        explain::instructions::Paths,
        wave::{
            self,
            sweep::{FrequencyLimit, Try, TryOutcome},
        },
    },
};
use rtscope_model::{
    doctor::{DoctorDocument, MachineFacts},
    drift::{DriftRecord, LoopActivation, Periodic, WatchedProgram},
    environment::{Cpus, Environment, Kernel, Preemption},
    guest::Timing,
    histogram::{Histogram, Layout},
    published::{KernelKind, PublishedTable},
    record::Record,
    sched::{
        CpuInterval, Experiment, ExperimentRecord, JobRun, ObservedApplication, RunSource,
        SchedulingRules,
    },
    schedule::{Placement, Policy},
    stat::{Count, CountedBy, CountedProgram, CountedRun, CounterRecord},
    throughput::{Received, SampledLatencies, ThroughputRecord, Transfer, TransportProtocol},
    time::Nanos,
    verdict::Verdict,
    wave::{Capture, Edge, Gap},
};

use crate::{explain, fixture, judge, late};

pub(crate) const MS: u64 = 1_000_000;

/// Each kind with its page.
pub(crate) static PAGES: LazyLock<Vec<(&str, String)>> = LazyLock::new(pages);

/// Each kind with its page. The name begins with that of its template.
pub(crate) fn pages() -> Vec<(&'static str, String)> {
    vec![
        ("page-run", page_of(&fixture::typical())),
        ("page-wide", page_of(&fixture::wide(6, 6))),
        ("page-explained", explained_run()),
        ("page-network", page_of(&fixture::network().record())),
        ("page-empty", page_of(&fixture::empty())),
        ("page-import", import()),
        ("compare", compared()),
        ("compare-network", compared_networks()),
        ("lab", lab::page(&comparison())),
        ("sched", report::sched::page(&experiment("rr-quantum"))),
        ("sched_guests", report::sched::guests::page(&guests())),
        ("lab_verb", lab::verbs::page(&side_by_side())),
        ("doctor", report::doctor::page(&examined())),
        ("drift", report::drift::page(&drift())),
        ("explain", report::explain::page(&explain::explained())),
        ("explain_lab", report::explain_lab::page(&late::explained_in_the_lab())),
        ("compare_lab", late::compared_in_the_lab()),
        ("trials", crate::trials::tried()),
        ("fleet", crate::fleet::places()),
        ("fleet_compare", crate::fleet::compared()),
        ("worst_lab", late::searched_in_the_lab()),
        ("interruptions", report::interruptions::page(&explain::interruptions())),
        ("stat", report::stat::page(&counters(), &published())),
        ("throughput", report::throughput::page(&throughput(), &published())),
        ("wave_sweep", wave_page::sweep::page(&sweep(), &published())),
        ("wave_capture", captured()),
        ("wave_capture-two", two_captures()),
    ]
}

/// A run whose late wake-ups were watched.
fn explained_run() -> String {
    let mut record = fixture::typical();
    record.explained = Some(Box::new(explain::explained()));
    page_of(&record)
}

/// A guest that names a real-time kernel, with long values and all severities.
fn examined() -> DoctorDocument {
    let kernel = Kernel {
        release: "6.12.9-rt7".to_owned(),
        version: "#1 SMP PREEMPT_DYNAMIC".to_owned(),
        preemption: Preemption::None,
        cmdline: "quiet nohz_full=1 isolcpus=1,9 irqaffinity=0-1".to_owned(),
        ..Kernel::default()
    };
    let set = |text: &str| text.parse().expect("a set");
    let cpus =
        Cpus { online: set("0-1"), isolated: set("1"), nohz_full: set("1"), ..Cpus::default() };
    let environment = Environment {
        kernel,
        cpus,
        virtualisation: Some("kvm".to_owned()),
        ..Environment::default()
    };
    let facts = MachineFacts { environment, ..MachineFacts::default() };
    doctor::diagnose(&facts, &doctor::PURPOSES[0], 1_000_000, "0.1.0")
}

fn page_of(record: &Record) -> String {
    report::html::page(record, &judge(record, &[]))
}

/// What cyclictest printed with a histogram whose largest latencies lie beyond it.
fn import() -> String {
    let text = include_bytes!("../../../../fuzz/corpus/cyclictest/histogram.txt");
    let mut stream =
        Stream::open(None, ImportOptions { name: "field".to_owned(), ..ImportOptions::default() })
            .expect("a known format");
    stream.feed(text);
    let readings = vec![("field.txt".to_owned(), stream.finish())];
    let files = import::files(&Import::default(), readings).expect("latencies");
    page_of(&Record::read(&files).expect("a record"))
}

fn compared() -> String {
    compared_with(&fixture::typical(), &fixture::run(600).record())
}

/// The same frames, of which some of the second side were not late.
fn compared_networks() -> String {
    let mut faster = fixture::network();
    for slice in &mut faster.slices {
        let frames = slice.frames.as_mut().expect("frames");
        (frames.lost, frames.late) = (frames.lost + frames.late, 0);
    }
    compared_with(&fixture::network().record(), &faster.record())
}

fn compared_with(a: &Record, b: &Record) -> String {
    let (judged_a, judged_b) = (judge(a, &[]), judge(b, &[]));
    let run =
        |name, record, judgement| compare::ComparedRun { name, record, judgement, cell: None };
    let (a, b) = (run("before", a, &judged_a), run("after", b, &judged_b));
    report::compare::page(&compare(&[a], &[b], &[50_000]))
}

/// Three kernels under three loads, one of them without a record under the last.
pub(crate) fn comparison() -> lab::LabComparison {
    let entry = |kernel: usize, load: &str, seed: u64, us: u64| lab::Entry {
        kernel,
        load: load.to_owned(),
        seed,
        p99_9_ns: us * 1_000 + seed * 37,
        max_ns: us * 1_700 + seed * 1_000,
        recorded: 2_000,
        missed: u64::from(us > 400),
        histogram: latencies(us, seed),
        page: format!("cells/{kernel}-{load}-{seed}/report.html"),
    };
    let loads = ["rest", "fork", "disk"];
    let figures = [[9, 61, 480], [8, 30, 95], [8, 9, 11]];
    let mut entries = Vec::new();
    for (kernel, of_kernel) in figures.iter().enumerate() {
        for (load, us) in loads.iter().zip(of_kernel) {
            let seeds = if kernel == 1 && *load == loads[2] { 0 } else { 5 };
            entries.extend((1..=seeds).map(|seed| entry(kernel, load, seed, *us)));
        }
    }
    let text = |text: &str| text.to_owned();
    lab::LabComparison {
        plan: text("lab-quick"),
        title: text("Which kernel wakes a thread in time?"),
        time: Timing::Virtual { shift: 1 },
        kernels: ["debian-stock", "debian-stock:preempt=full", "debian-rt"].map(text).into(),
        preemption: [Preemption::Voluntary, Preemption::Full, Preemption::RealTime]
            .map(Some)
            .into(),
        loads: loads.map(text).into(),
        load_lines: loads
            .map(text)
            .into_iter()
            .zip(["", "fork size=4MiB", "disk size=8MiB"].map(text))
            .collect(),
        seeds: 5,
        unreached: vec![(1, text(loads[2]))],
        facts: vec![
            (text("emulator"), text("QEMU emulator version 7.2.15")),
            (text("debian-rt"), text("6.12.9-rt #1 SMP PREEMPT_RT, sha256 0123456789abcdef")),
        ],
        warnings: vec![text("debian-stock: preempt=full had no effect")],
        entries,
        required: vec![lab::KernelRequirement {
            kernel: text("debian-stock"),
            load: text(loads[2]),
            requirement: text("max < 50us"),
            verdict: Verdict::Fail,
            seen: text("the maximum is 821 us, in seed 5"),
            figure: None,
        }],
        failures: vec![(text("debian-rt seed 4"), text("the guest printed nothing for 60 s"))],
        published: published(),
        beside: vec![beside()],
        traces: vec![(
            text("debian-stock, rest, seed 1"),
            text("irqsoff: 61 us in tick_do_update_jiffies64"),
            text("cells/0-rest-1/trace.txt"),
        )],
        causes: vec![cause()],
    }
}

/// Why one of the wake-ups was late.
fn cause() -> lab::worst::WorstCause {
    lab::worst::WorstCause {
        kernel: "debian-stock".to_owned(),
        load: "disk".to_owned(),
        seed: 5,
        latency_ns: 821_000,
        cause: "709.1 us of it: blocking, release_pages".to_owned(),
        instructions: Paths::default(),
        page: "cells/0-disk-5/explain.html".to_owned(),
    }
}

/// Published figures: one beside ours, one without.
fn published() -> Vec<PublishedBesideOurs> {
    let text = "name = 'x'\ntitle = 'x'\n[[published]]\nsubject = 'disk load'\nkernel = 'stock'\n\
                figures = { max = '1250us' }\nsource = \"A vendor's training material\"\n\
                why = 'That board has a spinning disk and caches that the emulator lacks.'\n\
                [[published]]\npolicy = 'other'\nmissing = 'the study leaves it out'\nsource = 'A study'\n";
    let table = PublishedTable::parse("x", text).expect("a table");
    let whose = Whose { label: "debian-stock", kernel: Some(KernelKind::Stock) };
    let figures = table.published[0].figures.0.iter().map(|(statistic, _)| (*statistic, Ok(821e3)));
    let ours = Ours { figures: figures.collect(), ..whose.ours("disk load") };
    published::beside(&table.published, &[ours])
}

/// Latencies with a tail up to about twice a level.
fn latencies(us: u64, seed: u64) -> Histogram {
    let mut histogram = Histogram::new(Layout::default());
    let mut dice = fixture::Dice(us * 31 + seed);
    (0..2_000).for_each(|_| {
        let tail = dice.roll().powi(24);
        histogram.record(
            (us as f64 * (300.0 + 700.0 * tail + 300.0 * dice.roll() * tail)) as u64 + 3_000,
        );
    });
    histogram
}

fn beside() -> lab::beside::PhaseByBoth {
    let counts = |shift: u64| (3..14).map(|us| (us, (us * 97 + shift) % 50 + 1)).collect();
    let buckets =
        |shift| lab::beside::Buckets { counts: counts(shift), overflow: 0, max_us: 40 + shift };
    lab::beside::PhaseByBoth {
        kernel: "debian-rt".to_owned(),
        load: "rest".to_owned(),
        seed: 1,
        ours: buckets(1),
        theirs: buckets(2),
        our_cost: None,
        their_cost: None,
    }
}

fn placement(policy: Policy, cpu: u32) -> Placement {
    let priority = u8::from(policy.has_priority()) * 80;
    Placement { policy, priority, nice: 0, budget: None, cpus: [cpu].into_iter().collect() }
}

/// Two applications that take turns, one of them with jobs; the second is late.
fn experiment(name: &str) -> ExperimentRecord {
    let text = format!(
        "name = '{name}'\ntitle = 'Turns of two threads'\nabout = 'Who of them ends first?'\n\
         [[application]]\nname = 'first'\npolicy = 'rr'\npriority = 80\n\
         [[application]]\nname = 'second'\npolicy = 'rr'\npriority = 80\n"
    );
    let observed = |name: &str, turns: &[(u64, u64)]| {
        let run = |&(start, end): &(u64, u64)| CpuInterval {
            cpu: 1,
            start_ns: start * MS,
            end_ns: end * MS,
        };
        let runs: Vec<CpuInterval> = turns.iter().map(run).collect();
        let job = |run: &CpuInterval| JobRun {
            release_ns: run.start_ns - MS,
            start_ns: run.start_ns,
            finish_ns: run.end_ns,
            cpu_ns: Some(90 * MS),
            preemptions: Some(1),
        };
        ObservedApplication {
            name: name.to_owned(),
            asked: placement(Policy::Rr, 1),
            found: placement(Policy::Rr, 1),
            work_ns: 200 * MS,
            release_ns: 0,
            start_ns: runs[0].start_ns,
            finish_ns: runs[runs.len() - 1].end_ns,
            cpu_ns: 200 * MS,
            preemptions: 1,
            jobs: runs.iter().map(job).collect(),
            throttled: Some(vec![CpuInterval { cpu: 1, start_ns: 100 * MS, end_ns: 110 * MS }]),
            runs,
            is_refused: false,
            slice_ns: None,
        }
    };
    ExperimentRecord {
        format: rtscope_model::sched::FORMAT,
        version: "0.1.0".to_owned(),
        wall_clock: "2026-01-02T15:27:01Z".to_owned(),
        kernel: "6.12.9-rt".to_owned(),
        experiment: Experiment::parse(name, &text).expect("sound"),
        rules: SchedulingRules {
            cpus: [0, 1].into_iter().collect(),
            one: 1,
            rr_quantum_ns: 100 * MS,
            rt_runtime_ns: Some(950 * MS),
            rt_period_ns: 1_000 * MS,
            fair_server: None,
        },
        applications: vec![
            observed("first", &[(1, 101), (210, 310)]),
            observed("second", &[(110, 210), (500, 600)]),
        ],
        source: RunSource::SchedSwitch,
        lost: 2,
        changed: vec!["kernel.sched_rr_timeslice_ms: 100".to_owned()],
        not_changed: vec!["kernel.sched_rt_runtime_us: permission denied".to_owned()],
    }
}

fn guests() -> report::sched::guests::Guests {
    let of = |kernel, name: &str| report::sched::guests::ExperimentInGuest {
        kernel,
        record: experiment(name),
        page: format!("{kernel}/{name}/report.html"),
    };
    report::sched::guests::Guests {
        time: Timing::Virtual { shift: 1 },
        kernels: vec!["debian-stock".to_owned(), "debian-rt".to_owned()],
        facts: vec![("emulator".to_owned(), "QEMU emulator version 7.2.15".to_owned())],
        records: vec![of(0, "rr-quantum"), of(1, "rr-quantum"), of(0, "nice-levels")],
        failures: vec![("nice-levels in debian-rt".to_owned(), "the kernel gave up".to_owned())],
    }
}

/// Counters in one kernel, of two seeds, and another verb's figures in a second one, so that cells are empty.
fn side_by_side() -> lab::verbs::SideBySide {
    let guest = |kernel: usize, seed: u64| lab::verbs::VerbInGuest {
        kernel,
        name: format!("{kernel}-seed{seed}"),
        page: (seed == 1).then(|| format!("{kernel}-seed{seed}/throughput/report.html")),
        figures: match kernel {
            0 => lab::figures::of_stat(&counters()),
            _ => lab::figures::of_drift(&drift()),
        },
    };
    lab::verbs::SideBySide {
        verb: "stat",
        words: "stat --compare --out /run/record/stat".to_owned(),
        limits: &["Every instruction takes the same time.", "No branch is mispredicted."],
        time: Timing::Virtual { shift: 2 },
        kernels: vec!["debian-stock".to_owned(), "debian-rt:preempt=full".to_owned()],
        facts: vec![("emulator".to_owned(), "QEMU emulator version 7.2.15".to_owned())],
        guests: vec![guest(0, 1), guest(0, 2), guest(1, 1)],
        failures: vec![("debian-rt-seed2".to_owned(), "the kernel gave up".to_owned())],
        published: published(),
    }
}

fn drift() -> DriftRecord {
    let activations = |period: u64| {
        (0..200).map(move |n: u64| {
            let expiry_ns = n * period + 7;
            let woke_ns = expiry_ns + 4_000 + n * 977 % 9_000;
            LoopActivation { armed_ns: (n.max(1) - 1) * period, expiry_ns, woke_ns }
        })
    };
    let periodic = |name: &str, period: u64, program| Periodic {
        name: name.to_owned(),
        sleep: None,
        period_ns: Some(MS),
        work_ns: Some(20_000),
        placement: Some(placement(Policy::Fifo, 1)),
        program,
        missed: 0,
        activations: activations(period).collect(),
    };
    let program = WatchedProgram {
        command: vec!["./blink".to_owned(), "--fast".to_owned()],
        tid: 77,
        threads: 3,
        relative_sleeps: 199,
        absolute_sleeps: 1,
        other_wakeups: 4,
        lost: 2,
        ended: Some("exit code 3".to_owned()),
    };
    DriftRecord {
        format: rtscope_model::drift::FORMAT,
        version: "0.1.0".to_owned(),
        wall_clock: "2026-01-02T15:27:01Z".to_owned(),
        kernel: "6.12.9-rt".to_owned(),
        duration: Nanos::from_secs(1),
        together: false,
        threads: vec![
            periodic("delay", MS + 24_000, None),
            periodic("delay until", MS, None),
            periodic("blink", MS + 90, Some(program)),
        ],
    }
}

fn counters() -> CounterRecord {
    let program = |name: &str, factor: u64| {
        let value = |counted| Count::Value {
            counted: counted * factor,
            enabled_ns: 100,
            running_ns: 80,
            user_only: true,
        };
        let absent = || Count::Absent("not supported by this processor".to_owned());
        let counts = vec![
            value(1_600_000),
            value(3),
            value(2_000_000),
            value(5_000_000),
            absent(),
            value(8_000),
            value(1_000),
            value(31),
        ];
        let run = |n| CountedRun { elapsed_ns: 4 * MS + n, failed: None, counts: counts.clone() };
        let command = vec![format!("./{name}"), "--size".to_owned(), "4096".to_owned()];
        CountedProgram { name: name.to_owned(), command, runs: (0..5).map(run).collect() }
    };
    CounterRecord {
        format: rtscope_model::stat::FORMAT,
        version: "0.1.0".to_owned(),
        wall_clock: "2026-01-02T15:27:01Z".to_owned(),
        kernel: "6.12.9-rt".to_owned(),
        by: CountedBy::Kernel,
        programs: vec![program("by-rows", 1), program("by-columns", 3)],
    }
}

fn throughput() -> ThroughputRecord {
    let sampled = |ns: u64| SampledLatencies {
        placement: placement(Policy::Fifo, 1),
        interval_ns: MS,
        latencies_ns: (1..=200).map(|n| n * ns).collect(),
        missed: 0,
    };
    let transfer = |protocol: TransportProtocol, kib: u64, sampled: Option<SampledLatencies>| {
        let bytes = 80_000_000 + kib * 90_000;
        let datagrams = if protocol == TransportProtocol::Udp { bytes / 1_000 } else { 0 };
        Transfer {
            protocol,
            window_bytes: kib * 1_024,
            buffer_bytes: kib * 2_048,
            sent_bytes: bytes,
            sent_datagrams: datagrams * 2,
            span_ns: 1_000 * MS,
            cpu_load: 0.5,
            received: Received {
                buffer_bytes: Some(kib * 2_048),
                bytes,
                datagrams,
                span_ns: 1_000 * MS,
                cpu_load: Some(0.4),
                ..Received::default()
            },
            sampled,
        }
    };
    let windows = [16, 64, 256, 1_024];
    let both = |protocol: TransportProtocol| {
        windows.into_iter().flat_map(move |kib| {
            [transfer(protocol, kib, None), transfer(protocol, kib, Some(sampled(90 + kib)))]
        })
    };
    ThroughputRecord {
        format: rtscope_model::throughput::FORMAT,
        version: "0.1.0".to_owned(),
        wall_clock: "2026-01-02T15:27:01Z".to_owned(),
        kernel: "6.12.9-rt".to_owned(),
        over: "loopback".to_owned(),
        cpus: 2,
        duration: Nanos::from_secs(1),
        rest: Some(sampled(50)),
        transfers: both(TransportProtocol::Tcp).chain(both(TransportProtocol::Udp)).collect(),
        interrupted: false,
    }
}

fn sweep() -> wave::sweep::Sweep {
    let point = |wanted_hz: f64, good: bool| Try {
        wanted_hz,
        measured_hz: good.then_some(wanted_hz * 0.98),
        uncertainty_ppm: good.then_some(12.0),
        within: good,
        outcome: if good { TryOutcome::Within } else { TryOutcome::TooFast },
        edges: 1_234,
        lost: Some(3),
        blind_ns: 1_500_000,
        jitter_ns_rms: Some(300.0),
        refused: (!good).then(|| "the pulses are too short for the scope".to_owned()),
    };
    let curve = |name: &str, load: &str, hz: f64| wave::sweep::Curve {
        name: name.to_owned(),
        load: load.to_owned(),
        policy: "fifo".to_owned(),
        found: FrequencyLimit {
            max_frequency_hz: Some(hz),
            first_bad_hz: Some(hz * 2.0),
            no_limit: None,
            undecided_hz: vec![hz * 1.5],
            points: vec![point(hz / 2.0, true), point(hz, true), point(hz * 2.0, false)],
        },
    };
    wave::sweep::Sweep {
        from_hz: 50.0,
        to_hz: 1e6,
        tolerance: 0.1,
        curves: vec![curve("python", "none", 900.0), curve("c", "cpu percent=90", 40_000.0)],
        facts: vec![("scope".to_owned(), "fifo 49 on CPU 1".to_owned())],
    }
}

fn capture(line: &str, later_ns: u64) -> Capture {
    let late = |n: u64| 200 * (n % 8).min(8 - n % 8) + later_ns;
    let pulse = |n: u64| {
        let at_ns = n * 10_000 + late(n);
        [Edge::new(at_ns, true), Edge::new(at_ns + 3_000, false)]
    };
    let mut edges: Vec<Edge> = (1..=512).flat_map(pulse).collect();
    edges.retain(|edge| !(52_000..=94_000).contains(&edge.at_ns()));
    Capture {
        line: line.to_owned(),
        start_ns: 0,
        end_ns: 5_140_000,
        resolution_ns: 240,
        starts_high: None,
        edges,
        gaps: vec![Gap { start_ns: 52_000, end_ns: 94_000, moved: true }],
        made: None,
        made_in_gaps: None,
        is_full: false,
    }
}

fn captured() -> String {
    let capture = capture("memory:blink", 0);
    let wave = wave::judge(&capture, Some(100_000.0));
    let shown = wave_page::capture::CapturePage {
        capture: &capture,
        wave: &wave,
        wanted_hz: Some(100_000.0),
        scope: "fifo 49 on CPU 1",
        finding: None,
        written: None,
    };
    wave_page::capture::page(&shown)
}

fn two_captures() -> String {
    let (first, second) = (capture("memory:blink", 0), capture("D0", 700));
    let compared = wave::compare::compare(&first, &second, None).expect("they fit");
    let facts = vec![("second".to_owned(), "analyser.vcd".to_owned())];
    let shown = wave_page::compare::WaveComparisonPage {
        first: &first,
        second: &second,
        compared: &compared,
        facts,
    };
    wave_page::compare::page(&shown)
}
