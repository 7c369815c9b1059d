//! cyclictest's JSON document: its keys in its order, and more keys behind them.
//!
//! Two of its keys end in a colon (`cmdline:`, `rt_test_version:`): that is how its readers know
//! them. Two things differ, so that a JSON reader always gets a document: texts are escaped, and a
//! thread without a cycle has an average of 0.

use std::fmt::Write as _;

use super::{CyclictestRun, CyclictestThread, CyclictestUnit};
use crate::statistics::quantile;

/// Where a run comes from.
#[derive(Clone, Debug, Default)]
pub struct CyclictestOrigin {
    /// The command line, joined by blanks.
    pub command: String,
    /// The version of rt-tests that the form is that of.
    pub rt_tests_version: &'static str,
    pub version: String,
    /// RFC 2822.
    pub start_time: String,
    /// RFC 2822.
    pub end_time: String,
    pub return_code: i32,
    /// Name and text of each field of `uname`, in its order.
    pub uname: Vec<(&'static str, String)>,
    /// Whether the kernel says that it is a real-time one (`/sys/kernel/realtime`).
    pub realtime: bool,
}

/// The document, with a line break at its end.
#[must_use]
pub fn json(run: &CyclictestRun, origin: &CyclictestOrigin) -> String {
    let mut text = String::from("{\n  \"file_version\": 1,\n");
    let mut field = |key: &str, value: &str| {
        let _ = writeln!(text, "  \"{key}\": {value},");
    };
    field("cmdline:", &quoted(&origin.command));
    field("rt_test_version:", &quoted(origin.rt_tests_version));
    field("start_time", &quoted(&origin.start_time));
    field("end_time", &quoted(&origin.end_time));
    field("return_code", &origin.return_code.to_string());
    let _ = writeln!(text, "  \"sysinfo\": {{");
    for (name, value) in &origin.uname {
        let _ = writeln!(text, "    \"{name}\": {},", quoted(value));
    }
    let _ = writeln!(text, "    \"realtime\": {}\n  }},", u8::from(origin.realtime));
    let _ = writeln!(text, "  \"num_threads\": {},", run.threads.len());
    let _ = writeln!(text, "  \"resolution_in_ns\": {},", u8::from(run.unit == CyclictestUnit::Ns));
    text += "  \"thread\": {\n";
    let last = run.threads.len().saturating_sub(1);
    for (i, thread) in run.threads.iter().enumerate() {
        let _ = write!(text, "    \"{i}\": {{\n{}    }}", of_thread(thread, run));
        text += if i < last { ",\n" } else { "\n" };
    }
    text += "  },\n";
    text += &more(run, origin);
    text += "}\n";
    text
}

/// The keys that cyclictest doesn't have.
fn more(run: &CyclictestRun, origin: &CyclictestOrigin) -> String {
    let broke = run.broke.map_or("null".to_owned(), |broke| {
        let value = run.unit.whole(broke.latency_ns);
        format!("{{ \"tid\": {}, \"value\": {value} }}", broke.tid)
    });
    let wait = |(label, waited_ns): &(String, u64)| {
        format!("{}: {}", quoted(label), run.unit.whole(*waited_ns))
    };
    let waits: Vec<String> = run.waits.iter().map(wait).collect();
    let waits = match waits.is_empty() {
        true => String::new(),
        false => format!("  \"waited_at_least\": {{ {} }},\n", waits.join(", ")),
    };
    format!(
        "{waits}  \"cmdline\": {},\n  \"rt_test_version\": {},\n  \"rtscope_version\": {},\n  \
         \"unit\": \"{}\",\n  \"histogram_buckets\": {},\n  \"break\": {broke}\n",
        quoted(&origin.command),
        quoted(origin.rt_tests_version),
        quoted(&origin.version),
        run.unit.name(),
        run.buckets,
    )
}

fn of_thread(thread: &CyclictestThread, run: &CyclictestRun) -> String {
    let unit = run.unit;
    let (counts, overflow) = thread.counts(unit, run.buckets);
    let filled = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let bins: Vec<String> =
        filled.map(|(value, count)| format!("\n        \"{value}\": {count}")).collect();
    let mut text = format!("      \"histogram\": {{{}", bins.join(","));
    text += if bins.is_empty() { "},\n" } else { "\n      },\n" };
    let cycles = thread.figures.map_or(0, |figures| figures.cycles);
    let _ = write!(
        text,
        "      \"cycles\": {cycles},\n      \"min\": {},\n      \"max\": {},\n      \
         \"avg\": {:.2},\n      \"cpu\": {},\n      \"node\": {},\n",
        thread.min(unit),
        thread.max(unit),
        thread.mean(unit),
        thread.cpu,
        thread.node,
    );
    if run.buckets > 0 {
        let _ = writeln!(text, "      \"overflow\": {overflow},");
    }
    if let Some(smi) = thread.smi {
        let _ = writeln!(text, "      \"smi\": {smi},");
    }
    // Nobody saw the thread of an import: how it was scheduled and what it missed isn't known, and never 0.
    if thread.tid > 0 {
        let _ = write!(
            text,
            "      \"missed\": {},\n      \"tid\": {},\n      \"policy\": \"{}\",\n      \
             \"priority\": {},\n",
            thread.missed, thread.tid, thread.policy, thread.priority,
        );
    }
    if thread.tid > 0 || thread.interval_us > 0 {
        let _ = writeln!(text, "      \"interval_us\": {},", thread.interval_us);
    }
    let _ = writeln!(text, "      \"percentiles\": {{{}}}", percentiles(thread, unit));
    text
}

/// `"50": 4, "99": 9`, in units, never understated.
fn percentiles(thread: &CyclictestThread, unit: CyclictestUnit) -> String {
    let histogram = &thread.histogram;
    let at = |parts: &u32| {
        let value_ns = histogram.at_rank_ns(quantile::rank(histogram.count(), *parts))?;
        let name = rtscope_model::verdict::Statistic::Quantile(*parts).to_string();
        Some(format!("\"{}\": {}", name.trim_start_matches('p'), unit.whole(value_ns)))
    };
    quantile::LADDER.iter().filter_map(at).collect::<Vec<_>>().join(", ")
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
