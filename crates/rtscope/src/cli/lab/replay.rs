//! `rtscope lab replay`: the run of a record made again from its log, and its files compared byte by byte.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use rtscope_lab::{
    boot::Ending,
    cell::{self, Cell, Inputs, Outcome, Surroundings},
    digest,
    images::Held,
    kept,
    machine::Machine,
    recheck::{self, Blame, Change, Disagreement},
    replay_log::LOG,
    subject::Subject,
};
use rtscope_measure::interrupt::Interrupt;

use super::order;
use crate::{
    cli::{Refused, print},
    exit,
    output::shown,
};

/// How long a guest may be silent: its plan is not looked at, so generously.
const SILENCE: Duration = Duration::from_secs(1800);

/// Repeat the run of a record, and compare every byte
///
/// The emulator replays the run from the log in the record's folder. This reproduces the record's files bit for
/// bit, however busy this machine is. rtscope distinguishes a file that was altered on disk from a replay that
/// differs. The cache must still contain the kernel and the image, and the emulator must have the same version.
/// If a record has no log (older rtscope, or several CPUs), rtscope compares it with a fresh run.
///
/// Exit code: 0 when all bytes are equal, 2 when not. rtscope then keeps the files that differ beside the record.
///
/// Examples:
///   rtscope lab replay rtscope-runs/lab-quick-20260101T000000/debian-rt-seed1
///   rtscope lab replay lab/debian-rt-seed1 --fresh
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// The record's folder
    record: PathBuf,
    /// Run the same inputs again instead of replaying the log. If this run differs, it is as valid as the
    /// record
    #[arg(long)]
    fresh: bool,
    /// Folder of kernels and images [default: that of `lab cache list`]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

/// How the run is made again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From its log.
    Log,
    /// From its inputs alone.
    Fresh,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let cache = order::cache_of(args.cache.as_ref());
    let before = match cell::read_inputs(&args.record) {
        Err(_) if !args.record.join(cell::INPUTS).exists() => {
            return Err(no_record(&args.record));
        }
        read => read?,
    };
    if !before.timing.is_virtual() {
        let text = "this record was made by the host's clock: no second run can equal it";
        return Err(Refused(text.to_owned()).into());
    }
    let cell = cell_of(&before, &cache)?;
    let emulator = cell::emulator_version(&cell.machine)?;
    let now = cell.inputs(&emulator);
    let (way, why) = way_of(args, &before, &now)?;
    why.iter().try_for_each(|why| print(&format!("{why}\n")))?;
    let again = Again::new(&cache)?;
    let outcome = again.run(&cell, way, &emulator, args)?;
    let found = recheck::compare(&args.record, &before, &again.folder, &outcome.inputs)?;
    if found.is_empty() {
        let how = match way {
            Way::Log => "the replay of its log",
            Way::Fresh => "a fresh run",
        };
        print(&format!("equal: {} files, every byte, in {how}\n", before.files.len()))?;
        return Ok(ExitCode::from(exit::PASS));
    }
    print(&described(way, &found))?;
    let kept = keep(&args.record, way, &again.folder, &found)?;
    print(&match way {
        Way::Log => format!("What the replay gave is kept in {}\n", shown(&kept)),
        Way::Fresh => format!(
            "The fresh run is kept as a record of its own, which has its own log: {}\n",
            shown(&kept)
        ),
    })?;
    Ok(ExitCode::from(exit::FAIL))
}

/// How the run can be made again, and what the user should know of that.
fn way_of(args: &Args, before: &Inputs, now: &Inputs) -> anyhow::Result<(Way, Option<String>)> {
    let emulator = &now.emulator;
    let another = || {
        format!(
            "the emulator is now {emulator}, the record was made by {}: differences may come from that",
            before.emulator
        )
    };
    let other = *emulator != before.emulator;
    if args.fresh {
        return Ok((Way::Fresh, other.then(another)));
    }
    let compared = "the record is compared with a fresh run";
    let Some(hash) = &before.log_sha256 else {
        let why = format!(
            "this record has no log of its run (older rtscope, or several CPUs): {compared}"
        );
        return Ok((Way::Fresh, Some(if other { format!("{why}; {}", another()) } else { why })));
    };
    if other {
        let why = format!("a log is replayed by the emulator that wrote it only: {compared}");
        return Ok((Way::Fresh, Some(format!("{}; {why}", another()))));
    }
    if now.arguments != before.arguments {
        let why = "this rtscope starts guests with other words, or its kernel in another way, than the one \
                   that made the record (lab.json has them)";
        return Ok((Way::Fresh, Some(format!("{why}: {compared}"))));
    }
    let log = args.record.join(LOG);
    let intact = fs::read(&log).is_ok_and(|bytes| digest::sha256(&bytes) == *hash);
    if !intact {
        let log = log.display();
        let text = format!(
            "{log} is not the log that {} names: it was altered or deleted, so the run can't be replayed; \
             --fresh compares the record with a fresh run",
            cell::INPUTS
        );
        return Err(Refused(text).into());
    }
    Ok((Way::Log, None))
}

/// A folder of the cache for the run that is made again; it goes when this is dropped.
struct Again<'a> {
    cache: &'a rtscope_lab::cache::Cache,
    folder: PathBuf,
    interrupt: Interrupt,
}

impl Again<'_> {
    fn new(cache: &rtscope_lab::cache::Cache) -> anyhow::Result<Again<'_>> {
        let folder = cache.root().join(format!("replay-{}", std::process::id()));
        Ok(Again { cache, folder, interrupt: Interrupt::install()? })
    }

    fn run(&self, cell: &Cell, way: Way, emulator: &str, args: &Args) -> anyhow::Result<Outcome> {
        let stop = || self.interrupt.is_stopped();
        let pid = std::process::id().to_string();
        let guard = ["/proc/self/exe", "guard", "--parent", &pid, "--"].map(str::to_owned);
        let around = Surroundings {
            cache: self.cache,
            guard: &guard,
            reuse: false,
            stop: &stop,
            // That a fresh run differs from another one is said below, of the record itself.
            say: &|_| {},
        };
        let mut on_line = |line: &str| note!("{line}");
        let outcome = match way {
            Way::Log => cell.replay(emulator, &args.record, &self.folder, &around, &mut on_line)?,
            Way::Fresh => cell.run(emulator, &self.folder, &around, &mut on_line)?,
        };
        match &outcome.ending {
            Ending::Sent => Ok(outcome),
            ending => anyhow::bail!("the guest brought no record: {}", cell.explain(ending)),
        }
    }
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Says for each file which of record, hash and run is the odd one, and where the two differ first.
fn described(way: Way, found: &[Disagreement]) -> String {
    let run = match way {
        Way::Log => "the replay",
        Way::Fresh => "the fresh run",
    };
    let line = |one: &Disagreement| {
        let change = |change: Change| match change {
            Change::Altered => "altered on disk",
            Change::Deleted => "deleted from the record",
            Change::Added => "added to the record",
        };
        let what = match one.blame {
            Blame::Disk(Change::Added) => format!("added to the record; {run} brings no such file"),
            Blame::Disk(how) => {
                format!("{}; {run} gives the file that the guest brought", change(how))
            }
            Blame::Run => format!("{run} differs from the record"),
            Blame::Both(how) => {
                format!("{}; {run} differs from what the guest brought, too", change(how))
            }
            Blame::Hash => {
                format!("{run} gives this file; its hash in {} was altered", cell::INPUTS)
            }
        };
        let first = one.first.as_ref().map_or(String::new(), |first| {
            format!(
                "\n  first in line {}, byte {}: {:?} in the record, {:?} in {run}",
                first.line, first.byte, first.before, first.after
            )
        });
        format!("{}: {what}{first}\n", one.name)
    };
    let lines: String = found.iter().map(line).collect();
    let all_of_run = found.iter().all(|one| one.blame == Blame::Run);
    let both_true = match way {
        Way::Fresh if all_of_run => {
            "Both are true runs of the same inputs: none of them is wrong.\n"
        }
        _ => "",
    };
    format!("different: {} of the files\n{lines}{both_true}", found.len())
}

/// Keeps what differed beside the record: the files that the replay gave, or the whole fresh run.
fn keep(record: &Path, way: Way, again: &Path, found: &[Disagreement]) -> anyhow::Result<PathBuf> {
    let record =
        fs::canonicalize(record).with_context(|| format!("can't find {}", record.display()))?;
    let name = record.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let suffix = match way {
        Way::Log => "replayed",
        Way::Fresh => "fresh",
    };
    let kept = record.with_file_name(format!("{name}.{suffix}"));
    let failed = || format!("can't keep what differed in {}", kept.display());
    if kept.exists() {
        fs::remove_dir_all(&kept).with_context(failed)?;
    }
    match way {
        Way::Fresh => kept::copy(again, &kept)?,
        Way::Log => {
            for one in found {
                let (from, to) = (again.join(&one.name), kept.join(&one.name));
                fs::create_dir_all(to.parent().unwrap_or(&kept)).with_context(failed)?;
                if from.is_file() {
                    fs::copy(&from, &to).with_context(failed)?;
                }
            }
        }
    }
    Ok(kept)
}

/// What to name in place of a folder that is no record.
fn no_record(folder: &Path) -> anyhow::Error {
    let shown = folder.display();
    let inside = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut records: Vec<PathBuf> =
        inside.map(|entry| entry.path()).filter(|path| cell::is_whole(path)).collect();
    records.sort();
    match records.first() {
        Some(first) => Refused(format!(
            "{shown} holds {} records and isn't one itself: name one of its folders, for example {}",
            records.len(),
            first.display()
        ))
        .into(),
        None => anyhow::anyhow!("{shown} is not a record of the lab: it has no {}", cell::INPUTS),
    }
}

/// The cell that the record was made by, with every input checked.
fn cell_of(inputs: &Inputs, cache: &rtscope_lab::cache::Cache) -> anyhow::Result<Cell> {
    let mut subject = Subject::find(&inputs.kernel, cache, &mut |_| {})?;
    if subject.kernel_sha256 != inputs.kernel_sha256 {
        let text = format!("{} is another kernel now than the one of the record", inputs.kernel);
        return Err(Refused(text).into());
    }
    let machine: Machine = subject.machine(Some(&inputs.machine))?;
    let image = cache.root().join("images").join(format!("{}.cpio", inputs.image_sha256));
    let held = Held::image(&image).ok_or_else(|| {
        let text = "the image of the record is no longer in the cache: it can't be run again";
        Refused(text.to_owned())
    })?;
    Ok(Cell {
        subject,
        machine,
        timing: inputs.timing,
        seed: inputs.seed,
        cpus: inputs.cpus,
        memory_mib: inputs.memory_mib,
        image,
        held,
        image_sha256: inputs.image_sha256.clone(),
        plan: String::new(),
        planned: Duration::ZERO,
        silence: SILENCE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_run_that_differs_is_as_true_as_the_record_and_an_altered_record_is_not() {
        let one = |blame| Disagreement { name: "slices/t0.jsonl".to_owned(), blame, first: None };
        let said = described(Way::Fresh, &[one(Blame::Run)]);
        assert!(said.contains("the fresh run differs") && said.contains("Both are true"), "{said}");
        let said = described(Way::Fresh, &[one(Blame::Run), one(Blame::Both(Change::Altered))]);
        assert!(said.contains("altered on disk") && !said.contains("Both are true"), "{said}");
        let said = described(Way::Log, &[one(Blame::Disk(Change::Deleted))]);
        assert!(
            said.contains("slices/t0.jsonl: deleted from the record; the replay gives"),
            "{said}"
        );
        assert!(!said.contains("Both are true"), "{said}");
    }

    #[test]
    fn what_differed_is_kept_beside_the_record_and_replaces_what_was_kept_before() {
        let room = tempfile::tempdir().expect("a folder");
        let (record, again) = (room.path().join("rt-seed1"), room.path().join("again"));
        for (folder, text) in [(&record, "old"), (&again, "new")] {
            fs::create_dir_all(folder.join("slices")).expect("made");
            fs::write(folder.join("slices/t0.jsonl"), text).expect("written");
            fs::write(folder.join("plan.toml"), "p").expect("written");
        }
        let one = |name: &str| Disagreement {
            name: name.to_owned(),
            blame: Blame::Disk(Change::Altered),
            first: None,
        };
        let kept = keep(&record, Way::Log, &again, &[one("plan.toml")]).expect("kept");
        assert_eq!(kept.file_name().expect("a name"), "rt-seed1.replayed");
        let kept =
            keep(&record, Way::Log, &again, &[one("slices/t0.jsonl"), one("gone")]).expect("kept");
        assert_eq!(fs::read_to_string(kept.join("slices/t0.jsonl")).expect("there"), "new");
        assert!(!kept.join("plan.toml").exists() && !kept.join("gone").exists());
        let kept = keep(&record, Way::Fresh, &again, &[one("slices/t0.jsonl")]).expect("kept");
        assert_eq!(kept.file_name().expect("a name"), "rt-seed1.fresh");
        assert!(kept.join("plan.toml").is_file(), "the whole fresh run is a record");
    }

    #[test]
    fn a_log_of_a_guest_that_was_started_with_other_words_is_not_replayed() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(LOG), "log").expect("written");
        let text = format!(
            r#"{{"format":1,"key":"","kernel":"","kernel_file":"","kernel_sha256":"","image_sha256":"",
            "machine":"","time":"virtual","shift":1,"seed":1,"cpus":1,"memory_mib":null,"emulator":"7.2",
            "arguments":["-smp"],"files":{{}},"whole":true,"log_sha256":"{}"}}"#,
            digest::sha256(b"log")
        );
        let before: Inputs = serde_json::from_str(&text).expect("inputs");
        let args = Args { record: folder.path().to_owned(), fresh: false, cache: None };
        let (way, why) = way_of(&args, &before, &before).expect("the same words");
        assert!(way == Way::Log && why.is_none());
        let now = Inputs { arguments: vec!["-nodefaults".to_owned()], ..before.clone() };
        let (way, why) = way_of(&args, &before, &now).expect("other words");
        assert!(way == Way::Fresh && why.is_some_and(|why| why.contains("other words")));
    }

    #[test]
    fn the_folder_of_many_records_is_told_from_a_record() {
        let out = tempfile::tempdir().expect("a folder");
        let said = no_record(out.path()).to_string();
        assert!(said.ends_with("is not a record of the lab: it has no lab.json"), "{said}");
        let inputs = r#"{"format":1,"key":"","kernel":"","kernel_file":"","kernel_sha256":"",
            "image_sha256":"","machine":"","time":"wall","seed":1,"cpus":1,"memory_mib":null,
            "emulator":"","arguments":[],"files":{},"whole":true}"#;
        for name in ["b-seed1", "a-seed1"] {
            std::fs::create_dir(out.path().join(name)).expect("made");
            std::fs::write(out.path().join(name).join(cell::INPUTS), inputs).expect("written");
        }
        let said = no_record(out.path()).to_string();
        assert!(said.contains("holds 2 records") && said.ends_with("a-seed1"), "{said}");
    }
}
