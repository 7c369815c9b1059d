//! Scheduling experiments in a guest, one after the other, each with a folder of its own in the record.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rtscope_model::{guest, sched::Experiment};
use rtscope_sys::tree::Tree;

use super::{RECORD, beside, say};
use crate::sched;

/// Between two experiments: some periods of the throttling, so that each begins with all its bandwidth.
/// In virtual time, waiting costs nothing.
const REST: Duration = Duration::from_secs(5);

/// Runs each. One that fails doesn't end the others: a file of the record says why.
pub(super) fn run(names: &[String], version: &str, wall_clock: &str) -> Result<(), String> {
    let mut failures = String::new();
    for (n, name) in names.iter().enumerate() {
        say(&format!("experiment {}/{} {name}", n + 1, names.len()));
        thread::sleep(REST);
        match one(name, version, wall_clock) {
            Ok(record) => {
                beside::write(&format!("{name}/{}", guest::EXPERIMENT), &record, &mut failures);
            }
            Err(why) => failures.push_str(&format!("{name}: {why}\n")),
        }
    }
    beside::note(Path::new(RECORD), &failures);
    Ok(())
}

/// The record of an experiment, as text.
fn one(name: &str, version: &str, wall_clock: &str) -> Result<String, String> {
    let path = Path::new("/").join(guest::experiment_file(name));
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let options = sched::Options {
        experiment: Experiment::parse(name, &text).map_err(|e| e.to_string())?,
        one: None,
        tree: Tree::default(),
        journal: PathBuf::from("/run/rtscope"),
        version: version.to_owned(),
        wall_clock: wall_clock.to_owned(),
    };
    let record = sched::run(&options).map_err(|e| e.to_string())?;
    serde_json::to_string_pretty(&record).map(|text| text + "\n").map_err(|e| e.to_string())
}
