//! Why the worst wake-up of each kernel under each load was late, in one phrase: from its instructions.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Entry, LabComparison, entries_of, kernels, loads};
use crate::{
    number::us,
    report::explain_lab::{self, Explanation},
    statistics::explain::instructions::Paths,
};

/// Why the worst wake-up of a kernel under a load, of all seeds, was late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorstCause {
    pub kernel: String,
    /// The cell's name.
    pub load: String,
    pub seed: u64,
    pub latency_ns: u64,
    /// The longest of its causes, as `709 us of it: ...`.
    pub cause: String,
    /// The instructions of its parts: a change of the kernel shows exactly.
    pub instructions: Paths,
    /// The page with its time line, beside the page of the comparison.
    pub page: String,
}

/// A record with worst wake-ups that are to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorstRecord {
    /// Its folder, beside the page of the comparison.
    pub folder: PathBuf,
    /// Its kernel, as a place in [`LabComparison::kernels`].
    pub kernel: usize,
    pub seed: u64,
    /// The loads under which no other seed was later.
    pub loads: Vec<String>,
}

/// The records that have the worst wake-up of a kernel under a load, each once.
#[must_use]
pub fn records(all: &LabComparison) -> Vec<WorstRecord> {
    let mut found: Vec<WorstRecord> = Vec::new();
    for kernel in kernels(all) {
        for load in loads(all) {
            // The first of equal ones.
            let entries = entries_of(all, kernel, Some(load)).into_iter().rev();
            let Some(Entry { page, seed, .. }) = entries.max_by_key(|entry| entry.max_ns) else {
                continue;
            };
            let folder = Path::new(page).parent().unwrap_or(Path::new("")).to_owned();
            match found.iter_mut().find(|one| one.folder == folder) {
                Some(one) => one.loads.push(load.to_owned()),
                None => {
                    let loads = vec![load.to_owned()];
                    found.push(WorstRecord { folder, kernel, seed: *seed, loads });
                }
            }
        }
    }
    found
}

impl LabComparison {
    /// Takes in why the worst wake-ups of a record were late.
    pub fn add_causes(&mut self, record: &WorstRecord, explained: &Explanation) {
        let page = record.folder.join(explain_lab::PAGE).display().to_string();
        for load in &record.loads {
            let of_load = (1..).zip(&explained.spikes).filter(|(_, one)| one.phase == *load);
            let worst = of_load.max_by_key(|(_, one)| one.explained.latency_ns);
            let Some((number, worst)) = worst else { continue };
            self.causes.push(WorstCause {
                kernel: self.kernels[record.kernel].clone(),
                load: load.clone(),
                seed: record.seed,
                latency_ns: worst.explained.latency_ns,
                cause: explain_lab::cause(worst),
                instructions: worst.instructions,
                page: format!("{page}#late-{number}"),
            });
        }
    }

    pub(super) fn cause_of(&self, kernel: usize, load: &str) -> Option<&WorstCause> {
        self.causes.iter().find(|one| one.kernel == self.kernels[kernel] && one.load == load)
    }
}

/// The causes for a terminal: two lines each; nothing without any.
pub(super) fn text(causes: &[WorstCause]) -> String {
    let line = |one: &WorstCause| {
        let WorstCause { kernel, load, seed, cause, .. } = one;
        format!("  {load}, {kernel}, seed {seed}: {} us\n    {cause}\n", us(one.latency_ns))
    };
    match causes {
        [] => String::new(),
        some => {
            let lines: String = some.iter().map(line).collect();
            format!("\nWhy the worst wake-up was late, by the instructions of its replay\n{lines}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        report::lab::{page, tests::comparison_of},
        statistics::explain::{Certainty, Explained, Piece, PieceKind, instructions::LateWakeup},
    };

    fn late(phase: &str, latency_ns: u64, held_ns: u64) -> LateWakeup {
        let piece = |kind, name: &str, at_ns, ns| Piece {
            kind,
            name: name.to_owned(),
            at_ns,
            ns,
            certainty: Certainty::Measured,
            why: "",
            place: None,
        };
        let explained = Explained {
            tid: 1,
            name: "sampler".to_owned(),
            latency_ns,
            cpu: 0,
            at_ns: 0,
            woken_by: None,
            wakers: Vec::new(),
            pieces: vec![
                piece(PieceKind::Blocking, "release_pages", 0, held_ns),
                piece(PieceKind::Switching, "scheduler", held_ns, latency_ns - held_ns),
            ],
            is_lossy: false,
        };
        let instructions = Paths { wakeup_to_switch: Some(217), ..Paths::default() };
        let (functions, stacks) = (Vec::new(), Vec::new());
        LateWakeup { phase: phase.to_owned(), explained, instructions, functions, stacks }
    }

    #[test]
    fn each_record_is_explained_once_for_the_loads_under_which_no_seed_was_later() {
        let all = comparison_of(&[("rest", &[&[9, 9], &[8, 9]]), ("disk", &[&[60, 70], &[11, 9]])]);
        let found: Vec<_> =
            records(&all).into_iter().map(|one| (one.kernel, one.seed, one.loads)).collect();
        let loads = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let expected: [(usize, u64, Vec<String>); 4] = [
            // The first of two equal seeds.
            (0, 1, loads(&["rest"])),
            (0, 2, loads(&["disk"])),
            (1, 2, loads(&["rest"])),
            (1, 1, loads(&["disk"])),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_cause_stands_in_its_place_of_the_page_on_the_terminal_and_in_the_document() {
        let mut all = comparison_of(&[("rest", &[&[9]]), ("disk", &[&[60]])]);
        let explained = Explanation {
            format: explain_lab::FORMAT,
            version: "0.1.0".to_owned(),
            record: "0-1".to_owned(),
            kernel: "6.1".to_owned(),
            is_preempt_rt: Some(false),
            emulator: "QEMU 7.2".to_owned(),
            shift: 2,
            equal_files: 11,
            is_whole: true,
            events: None,
            spikes: vec![late("disk", 90_000, 50_000), late("disk", 120_000, 104_000)],
        };
        let record = records(&all).remove(0);
        all.add_causes(&record, &explained);
        let [one] = all.causes.as_slice() else { panic!("disk alone: {:?}", all.causes) };
        assert_eq!((one.load.as_str(), one.latency_ns), ("disk", 120_000));
        let said = text(&all.causes);
        let expected = "disk, a, seed 1: 120.0 us\n    104.0 us of it: blocking, release_pages";
        assert!(said.contains(expected), "{said}");
        let page = page(&all);
        let link =
            "<a href=\"0-1/explain.html#late-2\">104.0 us of it: blocking, release_pages</a>";
        assert_eq!(page.matches(link).count(), 1, "not at rest, and not in the row of the worst");
        let document = serde_json::to_value(one).expect("plain fields");
        assert_eq!(document["instructions"]["wakeup_to_switch"], 217);
        assert_eq!(text(&[]), "");
    }
}
