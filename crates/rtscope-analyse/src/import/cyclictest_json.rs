//! cyclictest's JSON (`--json`), and a superset of it as other tools write.
//!
//! The histogram leaves out what lies beyond it; the number follows from `cycles`. Interval and
//! priority are in the command line only.

use rtscope_model::{finding::Weight, origin::Origin};
use serde_json::Value;

use super::{
    ImportOptions, ImportReading, Importer,
    cell::{ImportedCell, ImportedThread, Said},
    contradiction::Contradictions,
    json::{self, Threads, number, text},
    number::whole,
};

pub(super) const IMPORTER: Importer = Importer {
    name: "cyclictest-json",
    reads: "cyclictest's JSON",
    is: |beginning| {
        (beginning.has_key("rt_test_version:") || beginning.has_key("num_threads"))
            && !beginning.has_key("version")
            || beginning.has_key("resolution_in_ns") && beginning.has_key("thread")
    },
    open: |options| json::reader(cell, options),
};

/// The most buckets that cyclictest has.
const BUCKETS_MAX: u64 = 1_000_000;

fn cell(value: &Value, options: &ImportOptions, reading: &mut ImportReading) -> ImportedCell {
    let unit_ns = unit_ns(value, reading);
    let unit_ns = options.unit_ns.unwrap_or(unit_ns);
    let command = text(&value["cmdline:"]).or_else(|| text(&value["cmdline"]));
    let mut asked = command.as_deref().map(CommandOptions::parse).unwrap_or_default();
    // Keys that rtscope adds.
    asked.buckets = number(&value["histogram_buckets"]).or(asked.buckets);
    let mut all = Threads::new(&value["thread"]);
    if number(&value["num_threads"]).is_some_and(|n| n != all.entries.len() as u64) {
        let text = format!(
            "{} threads measured and {} are in the file",
            number(&value["num_threads"]).unwrap_or(0),
            all.entries.len()
        );
        reading.note("import-truncated", Weight::PreventsPass, text);
    }
    let entries = std::mem::take(&mut all.entries);
    let widest = entries.iter().map(|(_, _, rows)| rows).max_by_key(|rows| rows.last);
    let widest = widest.cloned().unwrap_or_default();
    let has_histogram = entries.iter().any(|(_, _, rows)| rows.rows > 0);
    let mut found = Contradictions::default();
    let mut beyond = 0u64;
    let mut threads = Vec::new();
    for (index, thread, mut rows) in entries {
        rows.last = widest.last;
        let label = format!("thread {index}");
        let said = Said {
            overflow: number(&thread["overflow"]),
            limit: asked.buckets.map(|buckets| buckets.min(BUCKETS_MAX).max(rows.last + 1)),
            // It is written when the threads shall end, and before they have ended.
            in_flight: 1,
            ..all.of_thread(thread, "cycles")
        };
        let part = match has_histogram {
            true => {
                found.of_rows(&label, &rows, 0, &said);
                rows.part(0, unit_ns, &said)
            }
            false => {
                found.of_figures(&label, &said);
                said.part(unit_ns)
            }
        };
        beyond = beyond.saturating_add(if has_histogram { rows.beyond(0, &said) } else { 0 });
        let distance = asked.distance_us.saturating_mul(index);
        let interval_us = number(&thread["interval_us"])
            .or(asked.interval_us.map(|us| us.saturating_add(distance)))
            .filter(|us| *us > 0);
        threads.push(ImportedThread {
            label,
            cpu: number(&thread["cpu"]).and_then(|cpu| u32::try_from(cpu).ok()),
            interval_ns: options.interval_ns.or(interval_us.map(|us| us.saturating_mul(1_000))),
            parts: part.known(&said),
            ..ImportedThread::default()
        });
    }
    all.add_findings(reading);
    found.add_findings(reading);
    add_findings(reading, value, has_histogram && !threads.is_empty(), beyond);
    let mut layout = widest.layout(unit_ns);
    layout.unit_ns = unit_ns;
    // rtscope's export of a single phase has the times of the whole run, and no cyclictest's command.
    let ran_ns = asked.interval_us.and_then(|_| ran_ns(value));
    let origin = origin(value, command, &asked);
    ImportedCell { layout, threads, origin, is_one_run: true, ran_ns, ..ImportedCell::default() }
}

/// The unit of the latencies, in ns.
fn unit_ns(value: &Value, reading: &mut ImportReading) -> u64 {
    let resolution = &value["resolution_in_ns"];
    match number(resolution) {
        Some(1) => 1,
        Some(0) => 1_000,
        None if resolution.is_null() => 1_000,
        _ => {
            let text =
                format!("the resolution is {resolution:.40}, which is neither 0 (us) nor 1 (ns)");
            reading.note("import-damaged", Weight::PreventsPass, text);
            1_000
        }
    }
}

/// From the start to the end, which are wall-clock times in whole seconds.
fn ran_ns(value: &Value) -> Option<u64> {
    let time = |key: &str| jiff::fmt::rfc2822::parse(value[key].as_str()?).ok();
    let (start, end) = (time("start_time")?, time("end_time")?);
    u64::try_from(end.timestamp().duration_since(start.timestamp()).as_nanos()).ok()
}

fn add_findings(reading: &mut ImportReading, value: &Value, has_histogram: bool, beyond: u64) {
    if !has_histogram {
        let text = "the file holds minimum, mean and maximum, and no histogram: no quantile and no \
                    exceedance can be told";
        reading.note("import-no-histogram", Weight::PreventsPass, text).advice =
            "run cyclictest with a histogram, for example -h 1000".to_owned();
    }
    if beyond > 0 {
        let text = format!(
            "{beyond} latencies are counted as cycles and are not in the histogram: they lie beyond \
             it, and of each no more is known"
        );
        reading.note("import-overflow", Weight::Warning, text).advice =
            "run cyclictest with a histogram that is wide enough".to_owned();
    }
    let code = &value["return_code"];
    if !code.is_null() && number(code) != Some(0) {
        let text = format!("cyclictest ended with code {code:.40}");
        reading.note("import-tool-failed", Weight::PreventsPass, text);
    }
}

fn origin(value: &Value, command: Option<String>, asked: &CommandOptions) -> Origin {
    let system = &value["sysinfo"];
    let facts = [
        ("host", text(&system["nodename"])),
        ("kernel", text(&system["release"])),
        ("kernel version", text(&system["version"])),
        ("machine", text(&system["machine"])),
        ("started", text(&value["start_time"])),
        ("ended", text(&value["end_time"])),
        ("priority asked", asked.priority.map(|priority| priority.to_string())),
    ];
    Origin {
        tool: "cyclictest".to_owned(),
        tool_version: text(&value["rt_test_version:"]).or_else(|| text(&value["rt_test_version"])),
        form: "JSON".to_owned(),
        command,
        facts: facts
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect(),
        ..Origin::default()
    }
}

/// What a command line of cyclictest asks, as far as an import needs it.
#[derive(Debug, Default, PartialEq, Eq)]
struct CommandOptions {
    interval_us: Option<u64>,
    distance_us: u64,
    priority: Option<u64>,
    buckets: Option<u64>,
}

/// Letters of cyclictest's options that take a value.
const WITH_VALUE: &str = "bcdDFhHilop";

impl CommandOptions {
    fn parse(command: &str) -> CommandOptions {
        let words: Vec<&str> = command.split_ascii_whitespace().skip(1).collect();
        // `rtscope run`, whose options are others.
        if command.split(' ').next().is_some_and(|name| name.ends_with("rtscope"))
            && words.first() != Some(&"cyclictest")
        {
            return CommandOptions::default();
        }
        let mut asked = CommandOptions { interval_us: Some(1_000), ..CommandOptions::default() };
        let mut distance_us = None;
        for (i, word) in words.iter().enumerate() {
            let next = words.get(i + 1).copied();
            let Some((option, value)) = option_of(word, next) else { continue };
            let value = value.and_then(leading_number);
            match option {
                "i" | "interval" => asked.interval_us = value,
                "d" | "distance" => distance_us = value,
                "p" | "priority" | "prio" => asked.priority = value,
                "h" | "H" | "histogram" | "histofall" => asked.buckets = value,
                _ => {}
            }
        }
        // With a histogram all threads have one interval.
        let usual = if asked.buckets.is_some() { 0 } else { 500 };
        asked.distance_us = if asked.buckets.is_some() { 0 } else { distance_us.unwrap_or(usual) };
        asked
    }
}

/// The first option of a word that takes a value, and the value: `-p80`, `-mSp 99`, `--interval=200`.
fn option_of<'a>(word: &'a str, next: Option<&'a str>) -> Option<(&'a str, Option<&'a str>)> {
    if let Some(long) = word.strip_prefix("--") {
        return match long.split_once('=') {
            Some((name, value)) => Some((name, Some(value))),
            None => Some((long, next)),
        };
    }
    let letters = word.strip_prefix('-')?;
    let at = letters.find(|c| WITH_VALUE.contains(c))?;
    let (option, glued) = (&letters[at..=at], &letters[at + 1..]);
    Some((option, if glued.is_empty() { next } else { Some(glued) }))
}

fn leading_number(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    whole(&text.as_bytes()[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_says_interval_and_priority() {
        let asked = CommandOptions::parse("cyclictest -q -mSp99 -i200 -h 400 -d 5");
        let expected = CommandOptions {
            interval_us: Some(200),
            distance_us: 0,
            priority: Some(99),
            buckets: Some(400),
        };
        assert_eq!(asked, expected);
        let asked = CommandOptions::parse("cyclictest -t2 --priority=80 --interval 250 -q");
        assert_eq!(
            (asked.interval_us, asked.distance_us, asked.priority),
            (Some(250), 500, Some(80))
        );
        assert_eq!(CommandOptions::parse("cyclictest").interval_us, Some(1_000));
    }
}
