//! OSADL's "RT Dataset": JSON with the latency histogram of each core and how it came about.
//!
//! `latency.cores` is a list of lists: the latency classes, then the number of latencies in each class for
//! every core. `latency.maxima` has the largest latency of each core, which may lie beyond the classes. How
//! many latencies lie there is nowhere: all cycles that are in no class are taken for such then.

use rtscope_model::{cpu::CpuSet, finding::Weight, origin::Origin};
use serde_json::Value;

use super::{
    ImportOptions, ImportReading, Importer,
    cell::{ImportedCell, ImportedThread, Rows, Said},
    contradiction::Contradictions,
    json::{self, number, text},
};

pub(super) const IMPORTER: Importer = Importer {
    name: "rt-dataset",
    reads: "OSADL's RT Dataset (JSON)",
    is: |beginning| beginning.any(|line| line.contains("\"RT Dataset\"")),
    open: |options| json::reader(cell, options),
};

/// Cores that are told apart.
const CORES_MAX: usize = 512;

fn cell(value: &Value, options: &ImportOptions, reading: &mut ImportReading) -> ImportedCell {
    let latency = &value["latency"];
    let named_ns = granularity_ns(&latency["granularity"], options, reading);
    let unit_ns = options.unit_ns.unwrap_or(named_ns);
    let condition = &value["condition"];
    let command = text(&condition["cyclictest"]);
    let (rows, damage) = rows(&latency["cores"]);
    if damage > 0 {
        let text = format!(
            "{damage} counts or classes of the cores are not numbers, are repeated or missing"
        );
        reading.note("import-damaged", Weight::PreventsPass, text);
    }
    let interval_ns = options
        .interval_ns
        .or_else(|| number(&condition["interval"])?.checked_mul(1_000).filter(|ns| *ns > 0));
    let cycles = number(&condition["cycles"]);
    let cpus = command.as_deref().and_then(cpus);
    let maxima = latency["maxima"].as_array().map_or(&[][..], Vec::as_slice);
    let mut found = Contradictions::default();
    let (mut threads, mut beyond) = (Vec::new(), 0u64);
    for core in 0..rows.width() {
        let label = format!("core {core}");
        let said = said_of_core(&rows, core, maxima, cycles);
        let placed = rows.placed(core);
        if cycles.is_some_and(|cycles| placed > cycles) {
            found.add(format!(
                "{label} has {placed} latencies in its classes, and the run had fewer cycles"
            ));
        }
        // Without any maximum the classes give it; a list that lacks one is damaged.
        if !maxima.is_empty() {
            found.of_rows(&label, &rows, core, &said);
        }
        beyond = beyond.saturating_add(rows.beyond(core, &said));
        threads.push(ImportedThread {
            label,
            cpu: match &cpus {
                Some(cpus) => cpus.iter().nth(core),
                None => Some(core as u32),
            },
            interval_ns,
            parts: rows.part(core, unit_ns, &said).known(&said),
            ..ImportedThread::default()
        });
    }
    if maxima.len() > threads.len() {
        found.add(format!(
            "it has the maxima of {} cores, and the classes of {}",
            maxima.len(),
            threads.len()
        ));
    }
    found.add_findings(reading);
    add_findings(reading, maxima.is_empty(), beyond);
    let ran_ns = cycles.zip(interval_ns).map(|(cycles, ns)| cycles.saturating_mul(ns));
    let layout = rows.layout(unit_ns);
    let origin = origin(value, command);
    ImportedCell { layout, threads, origin, is_one_run: true, ran_ns, ..ImportedCell::default() }
}

/// What is said of a core. The cycles are those of the core that ended the run: they count only where
/// latencies are known to be missing.
fn said_of_core(rows: &Rows, core: usize, maxima: &[Value], cycles: Option<u64>) -> Said {
    let max = maxima.get(core).and_then(number);
    let limit = rows.last + 1;
    let placed = rows.placed(core);
    let is_beyond = max.is_some_and(|max| max >= limit);
    let overflow =
        is_beyond.then(|| cycles.map_or(1, |cycles| cycles.saturating_sub(placed).max(1)));
    Said { max, overflow, limit: Some(limit), ..Said::default() }
}

/// Classes and counts, and how many of them can't be read.
fn rows(cores: &Value) -> (Rows, u64) {
    let lists: Vec<&Vec<Value>> =
        cores.as_array().into_iter().flatten().filter_map(Value::as_array).collect();
    let Some((classes, cores)) = lists.split_first() else { return (Rows::default(), 0) };
    let cores = &cores[..cores.len().min(CORES_MAX)];
    let (mut rows, mut damage) = (Rows::default(), 0u64);
    for (at, class) in classes.iter().enumerate() {
        let Some(class) = number(class) else {
            damage += 1;
            continue;
        };
        let count = |core: &&Vec<Value>| core.get(at).and_then(number);
        let counts: Vec<Option<u64>> = cores.iter().map(count).collect();
        damage += counts.iter().filter(|count| count.is_none()).count() as u64;
        let counts: Vec<u64> = counts.into_iter().map(Option::unwrap_or_default).collect();
        if !counts.is_empty() {
            rows.add(class, &counts);
        }
    }
    let longer = cores.iter().filter(|core| core.len() > classes.len()).count() as u64;
    let damage = damage + longer + rows.disordered + rows.repeated + rows.absurd;
    (rows, damage)
}

/// The unit of the classes, in ns.
fn granularity_ns(value: &Value, options: &ImportOptions, reading: &mut ImportReading) -> u64 {
    match value.as_str().unwrap_or_default().trim() {
        "microseconds" | "microsecond" | "us" => 1_000,
        "nanoseconds" | "nanosecond" | "ns" => 1,
        "milliseconds" | "millisecond" | "ms" => 1_000_000,
        _ if options.unit_ns.is_some() => 1_000,
        _ => {
            let text = "the file names no unit for its latencies, or one that rtscope doesn't know";
            reading.note("import-unit", Weight::PreventsPass, text).advice =
                "name the unit with --unit us or --unit ns".to_owned();
            1_000
        }
    }
}

/// The CPUs that a command line of cyclictest names with `-a`.
fn cpus(command: &str) -> Option<CpuSet> {
    let mut words = command.split_ascii_whitespace().skip_while(|word| !word.starts_with("-a"));
    let glued = words.next()?.strip_prefix("-a")?;
    let list = if glued.is_empty() { words.next()? } else { glued };
    list.parse().ok().filter(|cpus: &CpuSet| !cpus.is_empty())
}

fn add_findings(reading: &mut ImportReading, is_without_maxima: bool, beyond: u64) {
    if is_without_maxima {
        let text = "the file has no maxima, and doesn't say whether latencies lay beyond its classes: the \
                    maximum is that of its classes";
        reading.note("import-overflow-unknown", Weight::PreventsPass, text);
    }
    if beyond > 0 {
        let text = format!(
            "the maximum of a core lies beyond the classes. The file does not say how many latencies lie there: rtscope \
             counts the {beyond} cycles that are in no class"
        );
        reading.note("import-overflow", Weight::Warning, text).advice =
            "run cyclictest with a histogram that is wide enough".to_owned();
    }
}

fn origin(value: &Value, command: Option<String>) -> Origin {
    let facts = [
        ("host", text(&value["system"]["hostname"])),
        ("kernel", text(&value["kernel"]["version"])),
        ("kernel command line", text(&value["kernel"]["cmdline"])),
        ("processor", text(&value["processor"]["type"])),
        ("load", text(&value["condition"]["load"])),
        ("measured", text(&value["timestamps"]["origin"])),
    ];
    let facts = facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Origin {
        tool: "cyclictest".to_owned(),
        form: "OSADL RT Dataset".to_owned(),
        command,
        facts: facts.collect(),
        ..Origin::default()
    }
}
