//! What came of the rounds: counted by fault, printed, and written.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use serde::Serialize;

use super::{
    fault::{Fault, Struck},
    flat::Growth,
    round::Outcome,
};

/// Rounds of one fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct FaultCounts {
    rounds: u64,
    hit: u64,
    too_late: u64,
    not_done: u64,
    doubtful: u64,
    failed: u64,
}

/// A round that failed, or the witness.
#[derive(Debug, Serialize)]
struct Failure {
    /// None for the witness, which runs beside all rounds.
    round: Option<u64>,
    fault: &'static str,
    line: String,
    problems: Vec<String>,
}

/// All rounds so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    counts: BTreeMap<Fault, FaultCounts>,
    failures: Vec<Failure>,
    /// How often others disturbed a round, and an example.
    doubt: BTreeMap<String, u64>,
    not_done: BTreeMap<String, u64>,
}

impl Tally {
    pub(super) fn add(&mut self, round: u64, fault: Fault, outcome: Outcome) {
        let counts = self.counts.entry(fault).or_default();
        counts.rounds += 1;
        match outcome.struck {
            Struck::Hit => counts.hit += 1,
            Struck::TooLate => counts.too_late += 1,
            Struck::NotDone(why) => {
                counts.not_done += 1;
                *self.not_done.entry(format!("{}: {why}", fault.name())).or_default() += 1;
            }
        }
        if let Some(first) = outcome.doubtful.into_iter().next() {
            counts.doubtful += 1;
            *self.doubt.entry(first).or_default() += 1;
        }
        if !outcome.problems.is_empty() {
            counts.failed += 1;
            self.fail(Some(round), fault.name(), outcome.line, outcome.problems);
        }
    }

    /// Counts a failure: of a round, or of the witness.
    pub(super) fn fail(
        &mut self,
        round: Option<u64>,
        fault: &'static str,
        line: String,
        problems: Vec<String>,
    ) {
        self.failures.push(Failure { round, fault, line, problems });
    }

    pub(super) fn is_ok(&self) -> bool {
        self.failures.is_empty()
    }

    pub(super) fn failures(&self) -> usize {
        self.failures.len()
    }

    pub(super) fn rounds(&self) -> u64 {
        self.counts.values().map(|counts| counts.rounds).sum()
    }

    /// Processes that a SIGKILL ended.
    pub(super) fn kills(&self) -> u64 {
        self.counts.get(&Fault::Kill).map_or(0, |counts| counts.hit)
    }
}

/// What the report has besides the counts.
#[derive(Debug)]
pub(super) struct Head {
    /// With the seed, also where nobody gave it.
    pub(super) command: String,
    pub(super) seed: u64,
    pub(super) took: Duration,
    pub(super) system: String,
    /// Values that each snapshot has.
    pub(super) values: usize,
    pub(super) skipped: Vec<(String, String)>,
    pub(super) changed_by_kernel: Vec<String>,
    pub(super) growth: Option<Growth>,
}

/// The report as Markdown, which is also what is printed at the end.
pub(super) fn markdown(tally: &Tally, head: &Head) -> String {
    let mut text = String::from("# Soak\n\n");
    let mut line = |one: String| {
        text.push_str(&one);
        text.push('\n');
    };
    line(format!("    {}", head.command));
    line(String::new());
    line(format!("* system: {}", head.system));
    line(format!(
        "* {} s, seed {}, {} rounds, {} processes killed, {} failures",
        head.took.as_secs(),
        head.seed,
        tally.rounds(),
        tally.kills(),
        tally.failures()
    ));
    line(format!("* {} values compared before and after each round", head.values));
    match &head.growth {
        Some(growth) => line(format!(
            "* witness: {} looks in {:.0} s, {:.0} KiB resident at the end; memory grew by {:.1} KiB ({:.1} KiB allowed), \
             open files by {:.2}",
            growth.samples,
            growth.span_s,
            growth.rss_kib,
            growth.grown_kib,
            growth.allowed_kib(),
            growth.grown_files
        )),
        None => line("* witness: too few looks to judge its memory".to_owned()),
    }
    line(String::new());
    line("| fault | | rounds | hit | too late | not done | doubtful | failed |".to_owned());
    line("|---|---|---|---|---|---|---|---|".to_owned());
    for (fault, counts) in &tally.counts {
        let FaultCounts { rounds, hit, too_late, not_done, doubtful, failed } = counts;
        line(format!(
            "| `{}` | {} | {rounds} | {hit} | {too_late} | {not_done} | {doubtful} | {failed} |",
            fault.name(),
            fault.about()
        ));
    }
    let lists = [
        ("Skipped", head.skipped.iter().map(|(what, why)| format!("{what}: {why}")).collect()),
        ("Changed by the kernel alone when a CPU went offline", head.changed_by_kernel.clone()),
        ("Not done", counted(&tally.not_done)),
        ("Doubtful, because another program changed settings", counted(&tally.doubt)),
        ("Failures", tally.failures.iter().map(|one| shown(one, head)).collect()),
    ];
    for (title, list) in lists {
        let list: Vec<String> = list;
        if !list.is_empty() {
            let _ = write!(text, "\n{title}:\n\n");
            list.iter().for_each(|one| text.push_str(&format!("* {one}\n")));
        }
    }
    text
}

fn counted(all: &BTreeMap<String, u64>) -> Vec<String> {
    all.iter().map(|(what, count)| format!("{count} times: {what}")).collect()
}

/// With the command that repeats it.
fn shown(failure: &Failure, head: &Head) -> String {
    let Failure { round, fault, line, problems } = failure;
    let (command, problems) = (&head.command, problems.join("; "));
    match round {
        Some(round) => format!(
            "round {round}, {fault}, `rtscope {line}`: {problems}. Repeat: `{command} --round {round}`"
        ),
        None => format!("{fault}, `rtscope {line}`: {problems}. Repeat: `{command}`"),
    }
}

/// The report for programs.
pub(super) fn json(tally: &Tally, head: &Head) -> serde_json::Value {
    let counts = tally.counts.iter().map(|(fault, counts)| (fault.name(), counts));
    let counts: BTreeMap<&str, &FaultCounts> = counts.collect();
    serde_json::json!({
        "format": 1,
        "command": head.command,
        "seed": head.seed,
        "took_s": head.took.as_secs(),
        "system": head.system,
        "rounds": tally.rounds(),
        "kills": tally.kills(),
        "faults": counts,
        "failures": tally.failures,
        "skipped": head.skipped,
        "grown_kib": head.growth.map(|growth| growth.grown_kib),
        "grown_files": head.growth.map(|growth| growth.grown_files),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(struck: Struck, problem: &str) -> Outcome {
        let problems = if problem.is_empty() { Vec::new() } else { vec![problem.to_owned()] };
        Outcome { struck, line: "run".to_owned(), problems, doubtful: Vec::new() }
    }

    #[test]
    fn rounds_are_counted_by_fault() {
        let mut tally = Tally::default();
        tally.add(0, Fault::Kill, outcome(Struck::Hit, ""));
        tally.add(1, Fault::Kill, outcome(Struck::TooLate, ""));
        tally.add(2, Fault::CpuOff, outcome(Struck::NotDone("busy".to_owned()), ""));
        assert!(tally.is_ok());
        tally.add(3, Fault::Kill, outcome(Struck::Hit, "swappiness is 11"));
        assert!(!tally.is_ok());
        tally.fail(None, "witness", "run witness.toml".to_owned(), vec!["it grew".to_owned()]);
        assert_eq!((tally.rounds(), tally.kills(), tally.failures()), (4, 2, 2));
        let head = Head {
            command: "cargo xtask soak --only kill,cpu --seed 5".to_owned(),
            seed: 5,
            took: Duration::from_secs(60),
            system: "Linux".to_owned(),
            values: 300,
            skipped: vec![("disk".to_owned(), "needs root".to_owned())],
            changed_by_kernel: Vec::new(),
            growth: None,
        };
        let text = markdown(&tally, &head);
        for part in [
            "| `kill` | SIGKILL | 3 | 2 | 1 | 0 | 0 | 1 |",
            "* 60 s, seed 5, 4 rounds, 2 processes killed, 2 failures",
            "* disk: needs root",
            "* 1 times: cpu: busy",
            "swappiness is 11. Repeat: `cargo xtask soak --only kill,cpu --seed 5 --round 3`",
            "witness, `rtscope run witness.toml`: it grew. Repeat: `cargo xtask soak --only kill,cpu --seed 5`",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let document = json(&tally, &head);
        assert_eq!(document["faults"]["kill"]["hit"], 2);
        assert_eq!(document["failures"][0]["round"], 3);
        assert!(document["failures"][1]["round"].is_null());
    }
}
