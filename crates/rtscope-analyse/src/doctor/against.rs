//! Two machines side by side: what differs in what was read of them, and in what the rules found.

use std::collections::{BTreeMap, BTreeSet};

use rtscope_model::doctor::{DoctorDocument, FileReading, MachineFacts};
use serde::Serialize;
use serde_json::Value;

/// A value that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferentFact {
    /// Path of a file, or of a field of the environment, for example `kernel.preemption`.
    pub what: String,
    /// Here; none where it isn't there.
    pub here: Option<String>,
    /// On the other machine.
    pub there: Option<String>,
}

/// What differs between two machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MachinesApart {
    /// Codes of what was found only here.
    pub only_here: Vec<String>,
    /// Codes of what was found only there.
    pub only_there: Vec<String>,
    pub facts: Vec<DifferentFact>,
}

/// Fields and files that differ between any two machines, or between two looks at one.
const ALWAYS: [&str; 11] = [
    "available_kib",
    "cpu_ticks",
    "host",
    "irqs",
    "load_average_percent",
    "proc/1/cgroup",
    "proc/modules",
    "proc/self/cgroup",
    "proc/stat",
    "proc/uptime",
    "real_time_threads",
];

/// Compares two documents that were judged for the same purpose.
#[must_use]
pub fn apart(here: &DoctorDocument, there: &DoctorDocument) -> MachinesApart {
    let codes = |document: &DoctorDocument| -> BTreeSet<String> {
        document.findings.iter().map(|finding| finding.code.clone()).collect()
    };
    let (ours, theirs) = (codes(here), codes(there));
    let (a, b) = (flat(&here.facts), flat(&there.facts));
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let facts = keys.into_iter().filter(|key| a.get(*key) != b.get(*key)).map(|key| {
        DifferentFact { what: key.clone(), here: a.get(key).cloned(), there: b.get(key).cloned() }
    });
    MachinesApart {
        only_here: ours.difference(&theirs).cloned().collect(),
        only_there: theirs.difference(&ours).cloned().collect(),
        facts: facts.collect(),
    }
}

fn flat(facts: &MachineFacts) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    if let Ok(value) = serde_json::to_value(&facts.environment) {
        flatten("", &value, &mut all);
    }
    for (path, reading) in &facts.files {
        let text = match reading {
            FileReading::Text(text) => text.clone(),
            FileReading::Refused => "refused".to_owned(),
        };
        all.insert(format!("/{path}"), text);
    }
    all.insert("services".to_owned(), facts.services.join(", "));
    all.retain(|key, _| {
        !ALWAYS
            .iter()
            .any(|part| key.trim_start_matches('/').starts_with(part) || key.ends_with(part))
    });
    all
}

/// A JSON value as paths and texts; a list is one text.
fn flatten(path: &str, value: &Value, flat: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                if !ALWAYS.contains(&key.as_str()) {
                    flatten(&below, value, flat);
                }
            }
        }
        Value::Null => {}
        Value::String(text) => {
            flat.insert(path.to_owned(), text.clone());
        }
        other => {
            flat.insert(path.to_owned(), other.to_string());
        }
    }
}
