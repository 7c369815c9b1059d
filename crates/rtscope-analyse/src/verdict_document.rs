//! The judgement as one JSON document: what `rtscope run --json` prints and `verdict.json` holds.
//!
//! Every key is described in `docs/format/verdict.md`, its schema is `docs/format/verdict.schema.json`.
//! A number that is not known is null, never 0. Latencies are integers in nanoseconds.

use rtscope_model::{
    event::Event,
    histogram::Histogram,
    machine_use::CpuClass,
    record::{Record, ThreadRecord},
    verdict::{Statistic, Verdict},
};
use serde_json::{Map, Value, json};

use crate::{
    judgement::{CellSummary, FigureRow, Judgement, RequirementOutcome},
    next_step::next_step,
    report::{explain, published},
    statistics::{
        claim,
        dependence::{Dependence, IntervalRefusal},
        exceedance::{Exceedance, IntervalKind},
        explain::cost,
        frames,
        machine_use::{self, MachineUse},
        quantile::{self, Quantile},
    },
};

/// Version of the document's format. It grows when an old reader would misread a new document.
pub const FORMAT: u32 = 1;

#[must_use]
pub fn document(judgement: &Judgement, record: &Record) -> Value {
    let started = record.events.iter().find_map(|stamped| match &stamped.event {
        Event::RunStarted { version, command, wall_clock, .. } => {
            Some((version, command, wall_clock))
        }
        _ => None,
    });
    let mut document = json!({
        "format": FORMAT,
        "tool": { "name": "rtscope", "version": started.map(|s| s.0) },
        "command": started.map(|s| s.1),
        "started": started.map(|s| s.2),
        "plan": record.plan.name,
        "verdict": judgement.verdict,
        "reasons": judgement.reasons,
        "findings": judgement.findings,
        "accepted": judgement.accepted,
        "requirements": judgement
            .outcomes
            .iter()
            .map(|outcome| of_outcome(outcome, judgement, record))
            .collect::<Vec<_>>(),
        "cells": judgement.cells.iter().map(|cell| of_cell(cell, record)).collect::<Vec<_>>(),
        "next_step": next_step(judgement, record),
        "published": published::document(&published::of_run(record, judgement)),
    });
    if let Some(explained) = &record.explained {
        let mut of_late = explain::document(explained);
        for key in ["culprits", "spikes"] {
            document[key] = of_late[key].take();
        }
        document["watch_cost"] = json!(cost(record, &explained.pauses));
    }
    document
}

/// A requirement in a cell; of a claim also the figures that decide it.
fn of_outcome(outcome: &RequirementOutcome, judgement: &Judgement, record: &Record) -> Value {
    let cell = judgement.cells.iter().find(|cell| cell.cell == outcome.cell);
    let claimed = outcome.requirement.claim().zip(cell);
    let claim = claimed.and_then(|((limit, once_in), cell)| {
        let claim = claim::of_cell(record, cell, limit, once_in)?;
        Some(json!({
            "state": match outcome.verdict {
                Verdict::Pass => "backed",
                Verdict::Fail => "refuted",
                Verdict::Inconclusive | Verdict::Measured => "open",
            },
            "limit_ns": claim.limit_ns,
            "once_in_ns": claim.once_in_ns,
            "confidence": claim::CONFIDENCE,
            "exposure": "wall-time",
            "exposure_ns": claim.wall_ns,
            "needed_ns": claim.needed_ns,
            "events": claim.events,
            "events_surely": claim.events_surely,
            "latencies": claim.latencies,
            "window_ns": claim.window_ns,
            "per_second_low": claim.per_second_low,
            "per_second_high": claim.per_second_high,
        }))
    });
    let mut keys = json!(outcome);
    keys["claim"] = json!(claim);
    keys
}

fn of_cell(cell: &CellSummary, record: &Record) -> Value {
    json!({
        "cell": cell.cell,
        "name": cell.name,
        "origin": record.origin_of(cell.cell),
        "ended": cell.ended,
        "duration_ns": cell.duration_ns,
        "loads": cell.loads,
        "all": of_row(&cell.all),
        "dependence": of_dependence(cell.dependence()),
        "cpus": cell.threads.iter().map(|row| of_thread(row, record)).collect::<Vec<_>>(),
        "modes": cell.modes,
        "tail": cell.tail,
        "cpu_time": of_cpu_time(&machine_use::of_cell(record, cell.cell)),
        "interrupts": of_interrupts(&machine_use::of_cell(record, cell.cell)),
        "power_w": machine_use::of_cell(record, cell.cell).power_w,
    })
}

/// Shares of each class, all CPUs first.
fn of_cpu_time(found: &MachineUse) -> Value {
    let each = found.cpus.iter().map(|one| {
        let shares = CpuClass::ALL.iter().zip(one.shares);
        let mut keys: Map<String, Value> =
            shares.map(|(class, share)| (class.name().to_owned(), json!(share))).collect();
        keys.insert("cpu".to_owned(), json!(one.cpu));
        Value::Object(keys)
    });
    each.collect()
}

fn of_interrupts(found: &MachineUse) -> Value {
    let of_line = |line: &machine_use::LineUse| {
        let cpus = line.cpus.iter();
        json!({
            "line": line.line,
            "name": line.name,
            "per_second": line.per_second,
            "cpus": cpus.map(|(cpu, per_second)| json!({ "cpu": cpu, "per_second": per_second })).collect::<Value>(),
        })
    };
    found.lines.iter().map(of_line).collect()
}

fn of_dependence(found: Result<Dependence, IntervalRefusal>) -> Value {
    let known = found.ok();
    json!({
        "design_effect": known.map(|found| found.design_effect),
        "effective": known.map(|found| found.effective),
        "block_ns": known.map(|found| found.block_ns),
        "refused": found.err(),
    })
}

/// A thread's figures and where it ran, as found.
fn of_thread(row: &FigureRow, record: &Record) -> Value {
    let known = |thread: &&ThreadRecord| Some(thread.thread) == row.thread;
    let thread = record.threads.iter().find(known);
    let mut keys = of_row(row);
    keys.insert("label".to_owned(), json!(row.label));
    keys.insert("thread".to_owned(), json!(row.thread));
    keys.insert("cpu".to_owned(), json!(row.cpu));
    let placed = thread.filter(|t| t.imported.is_none());
    let interval_ns = thread.map(|t| t.interval_ns).filter(|ns| *ns > 0);
    keys.insert("policy".to_owned(), json!(placed.map(|t| t.found.policy)));
    keys.insert("priority".to_owned(), json!(placed.map(|t| t.found.priority)));
    keys.insert("interval_ns".to_owned(), json!(interval_ns));
    Value::Object(keys)
}

fn of_row(row: &FigureRow) -> Map<String, Value> {
    let known = |count: u64| row.missed_is_known.then_some(count);
    let effective = row.effective().ok().filter(|&effective| effective > 0);
    let figures = json!({
        "planned": known(row.planned),
        "recorded": row.recorded,
        "missed": known(row.missed),
        "overflow": row.histogram.overflow(),
        "early": row.early,
        "exposure_ns": row.exposure_ns,
        "beyond_max": effective.map(quantile::beyond_max),
        "latency_ns": latencies(&row.histogram),
        "corrected_latency_ns": latencies(&row.corrected),
        "frames": of_frames(row),
        "intervals": intervals(row),
        "exceedances": row.exceedances.iter().map(of_exceedance).collect::<Vec<_>>(),
    });
    match figures {
        Value::Object(keys) => keys,
        _ => Map::new(),
    }
}

/// What became of frames, and the parts of their way; null of any other sampler.
fn of_frames(row: &FigureRow) -> Value {
    let (Some(counts), Some(frames)) = (row.frame_counts(), &row.frames) else {
        return Value::Null;
    };
    let mut keys: Map<String, Value> =
        counts.iter().map(|one| (one.key.to_owned(), json!(one.count))).collect();
    let parts = frames::parts(frames).map(|(part, histogram)| {
        let mut latency = latencies(&histogram);
        latency["part"] = json!(part.key());
        latency["count"] = json!(histogram.count());
        latency
    });
    keys.insert("parts".to_owned(), parts.collect());
    Value::Object(keys)
}

/// The key of a quantile: p99.99 is `p99_99`, so that it can be written after a dot.
fn key(parts: u32) -> String {
    Statistic::Quantile(parts).to_string().replace('.', "_")
}

fn latencies(histogram: &Histogram) -> Value {
    let mut keys = Map::new();
    let mean_ns = histogram.mean_ns().map(|mean_ns| mean_ns.round() as u64);
    keys.insert("min".to_owned(), json!(histogram.min_ns()));
    keys.insert("mean".to_owned(), json!(mean_ns));
    for parts in quantile::LADDER {
        let rank = quantile::rank(histogram.count(), parts);
        keys.insert(key(parts), json!(histogram.at_rank_ns(rank)));
    }
    keys.insert("max".to_owned(), json!(histogram.max_ns()));
    Value::Object(keys)
}

/// The kind of an interval, and how much the wake-ups it is of depend on each other.
fn with_kind(
    mut keys: Value,
    kind: IntervalKind,
    found: Result<Dependence, IntervalRefusal>,
) -> Value {
    keys["kind"] = json!(kind);
    keys["design_effect"] = json!(found.ok().map(|found| found.design_effect));
    keys["refused"] = json!(found.err().filter(|_| kind == IntervalKind::Refused));
    keys
}

fn of_exceedance(seen: &Exceedance) -> Value {
    let keys = json!({
        "limit_ns": seen.limit_ns,
        "surely": seen.surely,
        "at_most": seen.at_most,
        "of": seen.of,
        "per_second": seen.per_second,
        "per_second_low": seen.interval.map(|ends| ends.per_second_low),
        "per_second_high": seen.interval.map(|ends| ends.per_second_high),
        "if_independent": seen.if_independent,
    });
    with_kind(keys, seen.kind, seen.dependence)
}

fn intervals(row: &FigureRow) -> Value {
    let ends = |found: Option<Quantile>| {
        json!({
            "low_ns": found.and_then(|quantile| quantile.low_ns),
            "high_ns": found.and_then(|quantile| quantile.high_ns),
        })
    };
    let interval = |parts: u32| {
        let found = row.quantiles.iter().find(|quantile| quantile.parts == parts);
        let dependence =
            found.and_then(|found| found.dependence).unwrap_or(Err(IntervalRefusal::Nothing));
        let kind = if dependence.is_ok() { IntervalKind::Dependent } else { IntervalKind::Refused };
        let mut keys = ends(found.copied());
        keys["if_independent"] = ends(quantile::estimate(&row.histogram, parts));
        with_kind(keys, kind, dependence)
    };
    quantile::LADDER
        .iter()
        .map(|&parts| (key(parts), interval(parts)))
        .collect::<Map<_, _>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{judge, test_support::Run};

    const SCHEMA: &str = include_str!("../../../docs/format/verdict.schema.json");
    const PLAN: &str = r#"
name = "two"
require = ["max < 200us", "missed = 0"]
[[phase]]
name = "rest"
duration = "2s"
[[phase]]
name = "busy"
duration = "2s"
load = ["message groups=1"]
"#;

    fn document_of(run: &Run) -> Value {
        let record = run.record();
        document(&judge(&record, &[]), &record)
    }

    #[test]
    fn a_claim_has_its_figures() {
        let plan = PLAN.replace("\"missed = 0\"", "\"max < 200us once in 100ms\"");
        let run = Run::new(&plan, 1)
            .cell(0, &[&[3_000; 2_000]])
            .cell(1, &[&[300_000; 2_000]])
            .load(1, "message groups=1", &[1_000, 2_000])
            .end();
        let document = document_of(&run);
        let of = |cell: u64| -> Value {
            let requirements = document["requirements"].as_array().expect("requirements").iter();
            let mut claims =
                requirements.filter(|one| one["cell"] == cell && !one["claim"].is_null());
            claims.next().expect("a claim")["claim"].clone()
        };
        assert_eq!(
            (of(0)["state"].clone(), of(1)["state"].clone()),
            (json!("backed"), json!("refuted"))
        );
        assert_eq!(of(0)["exposure_ns"], 2_000_000_000u64);
        assert_eq!(
            (of(0)["once_in_ns"].clone(), of(0)["confidence"].clone()),
            (json!(100_000_000), json!(0.95))
        );
        assert_eq!(of(1)["latencies"], 2_000);
        assert_eq!(document["requirements"][0]["claim"], Value::Null, "max < 200us is no claim");
        let schema: Value = serde_json::from_str(SCHEMA).expect("json");
        assert_eq!(broken(&schema, &schema, &document, "document"), [""; 0]);
    }

    fn full() -> Run {
        let mut stalled = vec![7_000u64; 2_000];
        stalled[3] = 12_003_000;
        Run::new(PLAN, 2)
            .cell(0, &[&[3_000; 2_000], &[4_000; 2_000]])
            .cell(1, &[&[5_000; 2_000], &stalled])
            .load(1, "message groups=1", &[1_000, 2_000])
            .end()
            .machine(|machine| machine.virtualisation = Some("kvm".to_owned()))
    }

    /// What a value breaks of the part of JSON Schema that our schema uses.
    fn broken(schema: &Value, root: &Value, value: &Value, at: &str) -> Vec<String> {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.strip_prefix("#/$defs/").expect("a local reference");
            return broken(&root["$defs"][name], root, value, at);
        }
        let mut problems = Vec::new();
        let is = |word: &str| match word {
            "null" => value.is_null(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_u64() || value.is_i64(),
            "number" => value.is_number(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("type {other} at {at}"),
        };
        let allowed = match &schema["type"] {
            Value::String(word) => is(word),
            Value::Array(words) => words.iter().any(|word| is(word.as_str().expect("a type"))),
            other => panic!("no type at {at}: {other}"),
        };
        if !allowed {
            problems.push(format!("{at} is {value}"));
        }
        if let Some(allowed) = schema["enum"].as_array()
            && !allowed.contains(value)
        {
            problems.push(format!("{at} is {value}"));
        }
        for (i, item) in value.as_array().into_iter().flatten().enumerate() {
            problems.extend(broken(&schema["items"], root, item, &format!("{at}[{i}]")));
        }
        let Some(keys) = value.as_object() else { return problems };
        let properties = schema["properties"].as_object().expect("an object has properties");
        for (key, part) in keys {
            match properties.get(key) {
                Some(known) => problems.extend(broken(known, root, part, &format!("{at}.{key}"))),
                None => problems.push(format!("{at}.{key} is not in the schema")),
            }
        }
        assert_eq!(schema["additionalProperties"], false, "{at}");
        let required = schema["required"].as_array().expect("an object has required keys");
        let missing = required.iter().filter(|key| !keys.contains_key(key.as_str().expect("key")));
        problems.extend(missing.map(|key| format!("{at}.{key} is missing")));
        problems
    }

    #[test]
    fn the_document_is_as_its_schema_says() {
        let schema: Value = serde_json::from_str(SCHEMA).expect("json");
        let unfinished = Run::new(PLAN, 1).cell(0, &[&[3_000]]);
        for run in [full(), unfinished] {
            let document = document_of(&run);
            let problems = broken(&schema, &schema, &document, "document");
            assert!(problems.is_empty(), "{problems:#?}");
        }
        let mut wrong = document_of(&full());
        wrong["cells"][0]["all"]["latency_ns"]["max"] = json!("4 us");
        wrong["cells"][0]["cpus"][1]["extra"] = json!(1);
        wrong.as_object_mut().expect("an object").remove("verdict");
        assert_eq!(broken(&schema, &schema, &wrong, "document").len(), 3, "the check can fail");
    }

    #[test]
    fn figures_are_integers_as_recorded() {
        let document = document_of(&full());
        let cpu = &document["cells"][1]["cpus"][1];
        let counts = ["planned", "recorded", "missed", "overflow", "early"].map(|key| &cpu[key]);
        assert_eq!(counts.map(Value::as_u64), [2_012, 2_000, 12, 1, 0].map(Some));
        let latencies = json!({
            "min": 7_000, "mean": 12_998, "p50": 7_999, "p90": 7_999, "p95": 7_999, "p99": 7_999,
            "p99_9": 7_999, "p99_99": 12_003_000, "p99_999": 12_003_000, "p99_9999": 12_003_000,
            "max": 12_003_000
        });
        assert_eq!(cpu["latency_ns"], latencies);
        // The sum grows by 3 us + i ms, i = 0 to 11; the third largest lies beyond the exact buckets.
        assert_eq!(cpu["corrected_latency_ns"]["mean"], 45_742);
        assert_eq!(cpu["corrected_latency_ns"]["p99_9"], 10_239_999);
        // Two slices know little of how wake-ups depend on each other.
        let p99 = &cpu["intervals"]["p99"];
        assert_eq!((&p99["low_ns"], &p99["high_ns"]), (&json!(7_000), &json!(null)));
        assert_eq!(p99["if_independent"], json!({ "low_ns": 7_000, "high_ns": 7_999 }));
        assert_eq!((&p99["kind"], &p99["refused"]), (&json!("dependent"), &json!(null)));
        let dependence = &document["cells"][1]["dependence"];
        assert_eq!(dependence["block_ns"], 1_000_000_000);
        let worth = dependence["effective"].as_f64().expect("known")
            * dependence["design_effect"].as_f64().expect("known");
        assert!((worth - 4_000.0).abs() < 1e-6, "{dependence}");
        let load = &document["cells"][1]["loads"][0];
        assert_eq!(
            *load,
            json!({
                "line": "message groups=1", "work": 3_000, "unit": "messages",
                "per_second": 1_500.0, "spans": 2, "idle_spans": 0, "unloaded_ns": 0, "ended": "stopped", "ok": true
            })
        );
        let failed = &document["requirements"][2];
        let keys = ["requirement", "cell", "name", "verdict"].map(|key| failed[key].clone());
        assert_eq!(keys, [json!("max < 200us"), json!(1), json!("busy"), json!("fail")]);
        assert_eq!(document["verdict"], "fail");
    }

    #[test]
    fn what_is_not_known_is_null() {
        let mut run = Run::new(PLAN, 1).cell(0, &[&[3_000]]);
        run.before = None;
        let document = document_of(&run);
        let never = &document["cells"][1];
        assert_eq!(never["ended"], Value::Null);
        for key in ["min", "mean", "p50", "p99_9999", "max"] {
            assert_eq!(never["all"]["latency_ns"][key], Value::Null);
        }
        let none = json!({ "low_ns": null, "high_ns": null });
        let p50 = &never["all"]["intervals"]["p50"];
        assert_eq!((&p50["low_ns"], &p50["if_independent"]), (&json!(null), &none));
        assert_eq!(
            (&p50["kind"], &p50["refused"]),
            (&json!("refused"), &json!("nothing was measured"))
        );
        let only = &document["cells"][0];
        assert_eq!(only["dependence"]["design_effect"], Value::Null);
        assert!(
            only["dependence"]["refused"]
                .as_str()
                .expect("a reason")
                .contains("a phase of at least")
        );
        assert_eq!(document["verdict"], "inconclusive");
    }
}
