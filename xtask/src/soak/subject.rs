//! What runs while a fault comes: commands of rtscope that change settings, start loads, record or trace.

use std::path::Path;

use super::fault::Fault;

/// A command of rtscope.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) name: &'static str,
    /// Its arguments, separated by blanks. `{plan}`, `{out}` and `{program}` stand for paths; `{load}` for a load;
    /// `{set}` for settings, and `{--set}` for settings as options.
    line: &'static str,
    pub(super) weight: u32,
    /// Where it writes, it writes a record that `rtscope report` reads.
    pub(super) records: bool,
    /// It traces the kernel, so that tracefs can be taken away from it.
    traces: bool,
    /// Its command goes on when rtscope is killed (`docs/guide/tune.md`).
    pub(super) command_survives: bool,
    /// Its settings are to stay when it ends.
    pub(super) keeps: bool,
}

pub(super) const RUN: Subject = Subject {
    name: "run",
    line: "run {plan} --out {out} --quiet {--set}",
    weight: 8,
    records: true,
    traces: false,
    command_survives: false,
    keeps: false,
};

/// A verb without a record that `rtscope report` reads.
const OTHER: Subject = Subject { name: "", line: "", weight: 2, records: false, ..RUN };

pub(super) const SUBJECTS: &[Subject] = &[
    RUN,
    Subject {
        name: "run --explain",
        line: "run {plan} --out {out} --quiet --explain --above 20us {--set}",
        weight: 4,
        traces: true,
        ..RUN
    },
    Subject {
        name: "tune apply",
        line: "tune apply {set} -- sleep 0.5",
        weight: 6,
        command_survives: true,
        ..OTHER
    },
    Subject {
        name: "tune apply --keep",
        line: "tune apply --keep {set}",
        weight: 3,
        keeps: true,
        ..OTHER
    },
    Subject { name: "load", line: "load {load} --duration 500ms", ..OTHER },
    Subject {
        name: "explain",
        line: "explain --settle 200ms --duration 500ms --out {out} -- {program} cyclictest -q -m -p 80 -D 5",
        traces: true,
        weight: 3,
        ..OTHER
    },
    Subject {
        name: "check",
        line: "check --settle 200ms --duration 500ms --json -- {program} cyclictest -q -m -p 80 -D 5",
        traces: true,
        ..OTHER
    },
    Subject {
        name: "sched",
        line: "sched run two-rr-pinned --work 50ms --cpus 0 --out {out}",
        traces: true,
        ..OTHER
    },
    Subject {
        name: "drift",
        line: "drift --period 5ms --work 100us --duration 400ms --out {out}",
        ..OTHER
    },
    Subject { name: "stat", line: "stat --workload sorted --passes 500 --out {out}", ..OTHER },
    Subject {
        name: "throughput",
        line: "throughput --over veth --duration 300ms --windows 64 --out {out}",
        ..OTHER
    },
    Subject { name: "cyclictest", line: "cyclictest -q -m -p 90 -D 1", ..OTHER },
];

/// It lasts only while a program holds a file open, so nothing can keep it.
pub(super) const LASTS_WHILE_HELD: &str = "dma-latency=0";

/// Values of settings that differ from what a machine usually has, and that the first CPU bears.
const SETTINGS: &[&str] = &[
    LASTS_WHILE_HELD,
    "energy-preference=performance",
    "fair-server=off",
    "governor=performance",
    "idle-state=0",
    "irq-affinity=0",
    "ksm=on",
    "nmi-watchdog=off",
    "numa-balancing=off",
    "shield=last",
    "stat-interval=77",
    "swappiness=11",
    "thp=never",
    "thread-affinity=0@kauditd;0@kswapd*",
    "thread-priority=fifo:7@ksoftirqd/*",
    "throttling=off",
    "timer-migration=off",
    "workqueue-cpus=0",
];

/// Loads of a plan: each of another kind of process.
pub(super) const LOADS: &[&str] = &[
    "cpu percent=30",
    "disk dir=. size=1MiB",
    "external -- sleep 1000",
    "fork",
    "io",
    "memory",
    "message groups=1",
    "network",
    "timer",
];

pub(super) fn settings() -> &'static [&'static str] {
    SETTINGS
}

/// What stands for the names in a line.
pub(super) struct Places<'a> {
    pub(super) program: &'a Path,
    pub(super) plan: &'a Path,
    pub(super) out: &'a Path,
    pub(super) load: &'a str,
    pub(super) settings: &'a [&'static str],
}

impl Subject {
    pub(super) fn changes_settings(&self) -> bool {
        self.line.contains("set}")
    }

    /// Whether a fault has something to hit.
    pub(super) fn fits(&self, fault: Fault) -> bool {
        match fault {
            Fault::DiskFull => self.line.contains("{out}"),
            Fault::TracefsGone => self.traces,
            _ => true,
        }
    }

    /// The arguments.
    pub(super) fn words(&self, places: &Places) -> Vec<String> {
        let path = |path: &Path| vec![path.display().to_string()];
        let words = self.line.split(' ').flat_map(|word| match word {
            "{program}" => path(places.program),
            "{plan}" => path(places.plan),
            "{out}" => path(places.out),
            "{load}" => places.load.split(' ').map(str::to_owned).collect(),
            "{set}" => places.settings.iter().map(|&one| one.to_owned()).collect(),
            "{--set}" => places
                .settings
                .iter()
                .flat_map(|&one| ["--set".to_owned(), one.to_owned()])
                .collect(),
            word => vec![word.to_owned()],
        });
        words.collect()
    }
}

/// The plan of a round: a rest, a load, and slices so short that many lines are written.
pub(super) fn plan(load: &str) -> String {
    format!(
        "name = 'soak'\n[sampler]\nslice = '100ms'\n[[phase]]\nname = 'rest'\nduration = '300ms'\n\
         [[phase]]\nname = 'load'\nduration = '600ms'\nload = ['{load}']\n"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_in_a_line_become_words() {
        let places = Places {
            program: Path::new("/p"),
            plan: Path::new("/a plan"),
            out: Path::new("/o"),
            load: "cpu percent=30",
            settings: &["thp=never", "ksm=on"],
        };
        let words = RUN.words(&places);
        let expected =
            ["run", "/a plan", "--out", "/o", "--quiet", "--set", "thp=never", "--set", "ksm=on"];
        assert_eq!(words, expected);
        for subject in SUBJECTS {
            let words = subject.words(&places);
            assert!(words.iter().all(|word| !word.contains('{')), "{words:?}");
        }
    }

    #[test]
    fn every_fault_has_a_subject_and_every_subject_a_name_of_its_own() {
        for fault in Fault::all() {
            assert!(SUBJECTS.iter().any(|subject| subject.fits(fault)), "{fault:?}");
        }
        let names: BTreeSet<&str> = SUBJECTS.iter().map(|subject| subject.name).collect();
        assert_eq!(names.len(), SUBJECTS.len());
    }
}
