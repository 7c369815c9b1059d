//! Cells to the files of a record: a plan that describes them, events, one file of slices a thread.

use std::collections::BTreeMap;

use rtscope_model::{
    chain::{Chain, checksum},
    event::{EndReason, Event, FORMAT, Stamped},
    finding::{Finding, Weight},
    histogram::{EXACT_MIN, Layout},
    plan::{Phase, PhaseEnd, Plan, Resolution, Sampler},
    record::{CellSum, Files, Histograms},
    slice::{Extent, Scope, Slice, expanded},
    time::Nanos,
    verdict::Requirement,
};

use super::{
    ImportReading,
    cell::{COUNT_MAX, ImportedCell, ImportedThread, LONGEST_NS, Part},
};

/// What a record says of its import.
#[derive(Clone, Debug, Default)]
pub struct Import {
    pub version: String,
    /// The command line of the import.
    pub command: Vec<String>,
    /// When it was imported, RFC 3339.
    pub wall_clock: String,
    /// What must hold in every cell.
    pub require: Vec<Requirement>,
}

/// The record of what was read from one file or several, `(stem of the file's name, reading)`.
///
/// # Errors
///
/// When no file holds a latency: what was found in them, in words.
pub fn files(import: &Import, readings: Vec<(String, ImportReading)>) -> Result<Files, String> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut cells: Vec<ImportedCell> = Vec::new();
    let many = readings.len() > 1;
    for (stem, reading) in readings {
        findings.extend(reading.findings);
        for mut cell in reading.cells {
            cell.name = match (many, cell.name.is_empty()) {
                (false, false) => cell.name,
                (_, true) => stem.clone(),
                (true, false) => format!("{stem}, {}", cell.name),
            };
            let base = cell.name.clone();
            let mut n = 1;
            while cells.iter().any(|other| other.name == cell.name) {
                n += 1;
                cell.name = format!("{base} ({n})");
            }
            cells.push(cell);
        }
    }
    if cells.is_empty() {
        let told: Vec<String> = findings.into_iter().map(|finding| finding.text).collect();
        return Err(told.join("; "));
    }
    findings.extend(general(&cells));
    Ok(write(import, &cells, findings))
}

/// What holds for every import, and what follows from several cells.
fn general(cells: &[ImportedCell]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let text = "rtscope did not measure this: the file does not say how the machine was set up, where the threads \
                really ran, what load ran and which activations were missed";
    findings.push(Finding::new("imported", Weight::PreventsPass, text).advise(
        "measure with 'rtscope run' to get a verdict, or add --accept imported if you know that \
         these conditions were right",
    ));
    let untimed = cells.iter().flat_map(|cell| &cell.threads).any(|thread| {
        !thread.parts.is_empty() && thread.interval_ns.is_none() && thread.duration_ns.is_none()
    });
    if untimed {
        let text = "the file does not give the interval: the measured time is not known, and no \
                    rate can be given";
        findings.push(
            Finding::new("import-interval", Weight::Warning, text)
                .advise("give it, for example with --interval 1ms"),
        );
    }
    let mut units: Vec<u64> = cells.iter().map(|cell| cell.layout.unit_ns).collect();
    units.sort_unstable();
    units.dedup();
    if units.len() > 1 {
        let words: Vec<String> = units.iter().map(|&ns| Nanos(ns).exact()).collect();
        let text = format!(
            "the cells have units of {}: all figures are in ns, and those in coarser units were truncated",
            words.join(", ")
        );
        findings.push(Finding::new("import-units", Weight::Note, text));
    } else if units.first().is_some_and(|unit| *unit > 1) {
        let text = format!(
            "latencies were truncated to whole units of {}: a real one may be up to a unit longer",
            Nanos(units[0]).exact()
        );
        findings.push(Finding::new("import-cut-off", Weight::Note, text));
    }
    findings
}

fn write(import: &Import, cells: &[ImportedCell], findings: Vec<Finding>) -> Files {
    let mut events = vec![Stamped {
        at_ns: 0,
        event: Event::RunStarted {
            format: FORMAT,
            version: import.version.clone(),
            command: import.command.clone(),
            wall_clock: import.wall_clock.clone(),
            monotonic_ns: 0,
        },
    }];
    events.extend(findings.into_iter().map(|f| Stamped { at_ns: 0, event: Event::Found(f) }));
    let mut slices: Vec<(String, String)> = Vec::new();
    let mut histograms = Histograms { format: FORMAT, histograms: Vec::new() };
    let mut ends = BTreeMap::new();
    let (mut start_ns, mut thread_index) = (0u64, 0u32);
    for (cell_index, cell) in (0u32..).zip(cells) {
        let layout = sound(cell.layout);
        let origin = cell.origin.clone();
        let mut push = |event| events.push(Stamped { at_ns: start_ns, event });
        push(Event::CellImported { cell: cell_index, layout, session: cell_index, origin });
        push(Event::PhaseStarted { cell: cell_index, name: cell.name.clone() });
        let mut end_ns = start_ns;
        let is_known =
            |thread: &&ImportedThread| !thread.parts.is_empty() || thread.waited_ns.is_some();
        for thread in cell.threads.iter().filter(is_known) {
            push(Event::ThreadImported {
                thread: thread_index,
                session: cell_index,
                label: thread.label.clone(),
                cpu: thread.cpu,
                interval_ns: thread.interval_ns,
            });
            let (mut text, mut chain) = (Vec::new(), Chain::default());
            let mut sum = CellSum::new(layout);
            let place = (thread_index, cell_index);
            let told = thread.parts.iter().map(|part| slice(thread, part, place, start_ns));
            let open = unanswered(thread, layout, place, start_ns);
            for slice in told.chain(open) {
                end_ns = end_ns.max(slice.end_ns);
                sum.add(&slice);
                chain.write(&mut text, &slice).expect("a slice is plain values");
            }
            histograms.histograms.push(sum.histogram(cell_index, thread_index));
            let name = format!("slices/t{thread_index}.jsonl");
            ends.insert(name.clone(), chain);
            slices.push((name, json_text(text)));
            thread_index += 1;
        }
        start_ns = end_ns;
    }
    let mut files = Files {
        plan: plan(import, cells).to_toml(),
        slices,
        histograms: serde_json::to_string(&histograms).expect("histograms are plain values"),
        ..Files::default()
    };
    let whole = files.whole().into_iter().filter(|(_, text)| !text.is_empty());
    let whole = whole.map(|(name, text)| (name.to_owned(), checksum(text.as_bytes()))).collect();
    let event = Event::RunEnded { why: EndReason::Finished, files: ends, whole };
    events.push(Stamped { at_ns: start_ns, event });
    files.events = lines(&events);
    files
}

fn lines(events: &[Stamped]) -> String {
    let (mut text, mut chain) = (Vec::new(), Chain::default());
    for event in events {
        chain.write(&mut text, event).expect("an event is plain values");
    }
    json_text(text)
}

fn json_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// A layout that a record may have.
fn sound(layout: Layout) -> Layout {
    Layout { unit_ns: layout.unit_ns.max(1), exact: layout.exact.max(EXACT_MIN) }
}

fn slice(thread: &ImportedThread, part: &Part, (index, cell): (u32, u32), origin_ns: u64) -> Slice {
    let interval_ns = thread.interval_ns.unwrap_or(0);
    let at = |cycle: u64| cycle.saturating_mul(interval_ns).min(LONGEST_NS);
    let first = thread.parts.first().map_or(0, |part| part.first);
    let since = |cycle: u64| at(cycle.saturating_sub(first)).saturating_add(origin_ns);
    let end_ns = match thread.duration_ns.filter(|_| thread.parts.len() == 1) {
        Some(duration_ns) => origin_ns.saturating_add(duration_ns.min(LONGEST_NS)),
        None => since(part.first).saturating_add(at(part.count)),
    };
    Slice {
        thread: index,
        scope: Scope::Cell(cell),
        start_ns: since(part.first),
        end_ns,
        planned: part.count,
        recorded: part.count,
        missed: 0,
        early: part.early,
        migrations: 0,
        min_ns: part.min_ns,
        max_ns: part.max_ns,
        max_at_ns: since(part.max_at.max(part.first)),
        max_cpu: thread.cpu.unwrap_or(0),
        sum_ns: part.sum_ns,
        bins: part.bins.clone(),
        unplaced: part.unplaced,
        omitted: Vec::new(),
        omitted_extent: Extent::default(),
        frames: None,
    }
}

/// The activations that were due after the last one that a thread answered.
fn unanswered(
    thread: &ImportedThread,
    layout: Layout,
    (index, cell): (u32, u32),
    origin_ns: u64,
) -> Option<Slice> {
    let interval_ns = thread.interval_ns.filter(|&interval_ns| interval_ns > 0)?;
    let waited_ns = thread.waited_ns?;
    let last = thread.parts.last().map(|part| slice(thread, part, (index, cell), origin_ns));
    let start_ns = last.map_or(origin_ns, |last| last.end_ns);
    let count = waited_ns.div_ceil(interval_ns).min(COUNT_MAX);
    let end_ns = start_ns.saturating_add(count.saturating_mul(interval_ns));
    let waits = (0..expanded(count)).map(|n| waited_ns.saturating_sub(n * interval_ns));
    let place = (index, Scope::Cell(cell));
    Some(Slice::unanswered(place, layout, (start_ns, end_ns), count, waits))
}

/// A plan that describes what was imported: nobody ran it.
fn plan(import: &Import, cells: &[ImportedCell]) -> Plan {
    let mut tools: Vec<&str> = cells.iter().map(|cell| cell.origin.tool.as_str()).collect();
    tools.dedup();
    let mut names: Vec<&str> =
        cells.iter().flat_map(|cell| &cell.origin.files).map(String::as_str).collect();
    names.dedup();
    let phase = |cell: &ImportedCell| {
        let layout = sound(cell.layout);
        let mut sampler = Sampler { buckets: layout.exact, ..Sampler::default() };
        if layout.unit_ns == 1 {
            sampler.resolution = Resolution::Nanosecond;
        }
        let counts = cell.threads.iter().map(|thread| {
            thread.parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.count))
        });
        let cycles = counts.max().unwrap_or(0).clamp(1, 1 << 32);
        Phase {
            name: cell.name.clone(),
            end: PhaseEnd { cycles: Some(cycles), ..PhaseEnd::default() },
            settle: Nanos::ZERO,
            loads: Vec::new(),
            require: Vec::new(),
            settings: BTreeMap::new(),
            sampler,
        }
    };
    Plan {
        name: "import".to_owned(),
        title: format!("{}: {}", tools.join(", "), shortened(&names)),
        about: "Imported from another tool's results. This plan only names the cells: nobody ran \
                it, and its sampler is not the one that measured."
            .to_owned(),
        require: import.require.clone(),
        settings: std::collections::BTreeMap::new(),
        policy_asked: false,
        until_decided: false,
        phases: cells.iter().map(phase).collect(),
        published: Vec::new(),
    }
}

/// Names of files, the first few of many.
fn shortened(names: &[&str]) -> String {
    match names.len() {
        0..=3 => names.join(", "),
        n => format!("{} and {} more", names[..3].join(", "), n - 3),
    }
}
