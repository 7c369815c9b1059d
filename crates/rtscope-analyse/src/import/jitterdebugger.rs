//! jitterdebugger's `results.json`, versions 1 to 3.
//!
//! It counts every activation, late ones of a swallowed period too, so its latencies correspond to
//! our corrected ones. Its histogram ends at 1 ms; what lies beyond is only in `count`.

use rtscope_model::{finding::Weight, origin::Origin};
use serde_json::Value;

use super::{
    ImportOptions, ImportReading, Importer,
    cell::{ImportedCell, ImportedThread, Rows, Said},
    contradiction::Contradictions,
    json::{self, Threads, number, text},
};

pub(super) const IMPORTER: Importer = Importer {
    name: "jitterdebugger",
    reads: "jitterdebugger's results.json",
    is: |beginning| beginning.has_key("cpu") && beginning.has_key("histogram"),
    open: |options| json::reader(cell, options),
};

/// Where its histogram ends.
const LIMIT_NS: u64 = 1_000_000;

/// What holds for all that jitterdebugger writes.
pub(super) fn tell_replayed(reading: &mut ImportReading) {
    let text = "jitterdebugger replays swallowed activations, each with its latency: compare its latencies with \
                corrected ones";
    reading.note("import-replayed", Weight::Note, text);
}

fn cell(value: &Value, options: &ImportOptions, reading: &mut ImportReading) -> ImportedCell {
    tell_replayed(reading);
    let system = &value["sysinfo"];
    let told_ns = number(&system["resolution_in_ns"]).filter(|ns| matches!(ns, 1 | 1_000));
    let unit_ns = options.unit_ns.or(told_ns).unwrap_or(1_000);
    let mut all = Threads::new(&value["cpu"]);
    let last = all.last();
    let widest = Rows::up_to(last);
    let (mut beyond, mut threads) = (0u64, Vec::new());
    let mut found = Contradictions::default();
    for (index, thread, mut rows) in std::mem::take(&mut all.entries) {
        rows.last = last;
        let said = Said {
            limit: Some((LIMIT_NS / unit_ns).max(last + 1)),
            ..all.of_thread(thread, "count")
        };
        let label = format!("thread {index}");
        found.of_rows(&label, &rows, 0, &said);
        let part = rows.part(0, unit_ns, &said);
        beyond = beyond.saturating_add(rows.beyond(0, &said));
        threads.push(ImportedThread {
            label,
            interval_ns: options.interval_ns,
            parts: part.known(&said),
            ..ImportedThread::default()
        });
    }
    all.add_findings(reading);
    found.add_findings(reading);
    if beyond > 0 {
        let text = format!(
            "{beyond} latencies are counted but not in the histogram, which ends at 1 ms: each \
             is known to be at least that, and only the maximum of each thread is known exactly"
        );
        reading.note("import-overflow", Weight::Warning, text);
    }
    let facts = [
        ("host", text(&system["nodename"])),
        ("kernel", text(&system["release"])),
        ("kernel version", text(&system["version"])),
        ("machine", text(&system["machine"])),
        ("CPUs online", number(&system["cpus_online"]).map(|n| n.to_string())),
    ];
    let facts = facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let origin = Origin {
        tool: "jitterdebugger".to_owned(),
        form: format!("results, version {}", number(&value["version"]).unwrap_or(1)),
        facts: facts.collect(),
        ..Origin::default()
    };
    let layout = widest.layout(unit_ns);
    ImportedCell { layout, threads, origin, is_one_run: true, ..ImportedCell::default() }
}
