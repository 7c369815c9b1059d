//! A program's periodic behaviour, as a table for a terminal and as JSON.

use rtscope_model::time::Nanos;
use serde_json::{Value, json};

use crate::{
    number::us,
    statistics::{
        check::{Rhythm, SleepForm},
        slope::Slope,
    },
    verdict::check::{Checked, ObservedProgram},
};

/// Least, median, largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    min_ns: u64,
    median_ns: u64,
    max_ns: u64,
}

impl Range {
    fn from_values(mut values: Vec<u64>) -> Option<Range> {
        values.sort_unstable();
        let (min, max) = (values.first()?, values.last()?);
        Some(Range { min_ns: *min, median_ns: values[values.len() / 2], max_ns: *max })
    }

    fn json(self) -> Value {
        json!({ "min": self.min_ns, "median": self.median_ns, "max": self.max_ns })
    }

    fn shown(self) -> String {
        format!("{} / {} / {}", us(self.min_ns), us(self.median_ns), us(self.max_ns))
    }
}

/// How far the starts of two periods are from a period apart.
fn jitter(rhythm: &Rhythm) -> Vec<u64> {
    rhythm.distances_ns().into_iter().map(|ns| ns.abs_diff(rhythm.period_ns)).collect()
}

#[must_use]
pub fn document(checked: &Checked<'_>) -> Value {
    let seen = checked.observation;
    json!({
        "program": seen.program,
        "look_ns": seen.look_ns,
        "sources": seen.sources,
        "lost": seen.lost,
        "memory": seen.memory,
        "threads": checked.threads.iter().map(of_thread).collect::<Vec<_>>(),
        "findings": checked.findings,
        "not_told": checked.untold,
    })
}

fn of_thread(seen: &ObservedProgram<'_>) -> Value {
    let thread = seen.thread;
    let rhythm = seen.rhythm.as_ref().map(|own| {
        json!({
            "activations": own.activations.len(),
            "activations_without_switches": own.without_switches(),
            "period_ns": own.period_ns,
            "mean_period_ns": own.mean_period_ns,
            "sleep": match own.sleep { SleepForm::Until => "until", SleepForm::For => "for" },
            "clock": if own.is_wall_clock { "wall" } else { "monotonic" },
            "drift_ns_per_period": own.drift_ns,
            "drift_ns_per_hour": own.drift.as_ref().map(of_slope),
            "latency_ns": Range::from_values(own.latencies_ns()).map(Range::json),
            "jitter_ns": Range::from_values(jitter(own)).map(Range::json),
            "run_ns": Range::from_values(own.runs_ns()).map(Range::json),
            "missed": own.missed,
            "overrun": own.overrun,
            "page_faults": own.faults,
            "mutex_waits": own.waits.iter().filter(|wait| wait.is_mutex).count(),
            "other_waits": own.waits.iter().filter(|wait| !wait.is_mutex).count(),
        })
    });
    json!({
        "pid": thread.pid,
        "tid": thread.tid,
        "name": thread.name,
        "policy": thread.placement.policy,
        "priority": thread.placement.priority,
        "cpus": thread.placement.cpus,
        "judged": seen.judged,
        "rhythm": rhythm,
    })
}

/// A drift with its interval, or why it has none.
fn of_slope(slope: &Slope) -> Value {
    let an_hour = |share: f64| share * 3.6e12;
    let end = |sign: f64| slope.half.ok().map(|half| an_hour(slope.value + sign * half));
    json!({
        "value": an_hour(slope.value),
        "low": end(-1.0),
        "high": end(1.0),
        "no_interval": slope.half.err(),
    })
}

#[must_use]
pub fn table(checked: &Checked<'_>) -> String {
    let seen = checked.observation;
    let mut text = format!("{}, {} of it\n\n", seen.program, Nanos(seen.look_ns));
    text += "thread           policy      CPUs    period     sleeps  missed\n";
    for one in &checked.threads {
        let place = &one.thread.placement;
        let policy = match place.policy.has_priority() {
            true => format!("{} {}", place.policy, place.priority),
            false => place.policy.to_string(),
        };
        let (period, sleeps, missed) = match &one.rhythm {
            None => ("-".to_owned(), "-", "-".to_owned()),
            Some(own) => (
                Nanos(own.period_ns).to_string(),
                match own.sleep {
                    SleepForm::Until => "until",
                    SleepForm::For => "for",
                },
                own.missed.to_string(),
            ),
        };
        let name: String = one.thread.name.chars().take(16).collect();
        text += &format!(
            "{name:16} {policy:11} {:7} {period:10} {sleeps:6} {missed:>7}\n",
            place.cpus.to_string()
        );
    }
    for one in checked.threads.iter().filter(|one| one.judged) {
        let Some(own) = &one.rhythm else { continue };
        let all = own.activations.len();
        text += &format!("\n{}, {all} activations, us\n", one.thread.name);
        for (what, values, of) in [
            ("latency  min / median / max", own.latencies_ns(), all),
            // A distance lies between two of them.
            ("jitter   min / median / max", jitter(own), all - 1),
            ("CPU time min / median / max", own.runs_ns(), all),
        ] {
            let unseen = match values.len() {
                seen if seen == 0 || seen >= of => String::new(),
                seen => format!("  (from {seen} of them; the worst may be among the others)"),
            };
            let shown = Range::from_values(values).map_or("not known".to_owned(), Range::shown);
            text += &format!("  {what}  {shown}{unseen}\n");
        }
    }
    text += "\n";
    for finding in &checked.findings {
        text += &format!("! {}: {}\n", finding.code, finding.text);
        text += &format!("  -> {}\n", finding.advice);
    }
    for untold in &checked.untold {
        text += &format!("? not known: {untold}\n");
    }
    if checked.findings.is_empty() {
        text += match checked.untold.is_empty() {
            true => "No mistake was found.\n",
            false => "No mistake was found in what could be seen.\n",
        };
    }
    text
}
