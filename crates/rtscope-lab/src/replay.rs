//! The run of a record made again, from its log or from its inputs alone, and its files compared byte by byte.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    boot::{CONSOLE, Ending},
    cache::{Cache, IMAGES},
    digest,
    error::LabError,
    guest_run::{self, GuestOutcome, GuestRun, Surroundings},
    images::ImageInUse,
    inputs::{self, INPUTS, Inputs},
    kept,
    kernel_ref::KernelRef,
    kernel_under_test::KernelUnderTest,
    machine::Machine,
    qemu::Plugin,
    recheck::{self, Blame, Disagreement, FileChange, FilesNotSent},
    replay_log::LOG,
};

/// How long a guest may be silent: its plan is not looked at, so generously.
const SILENCE: Duration = Duration::from_secs(1800);

/// How the run is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From its log.
    Log,
    /// From its inputs alone.
    Fresh,
}

/// A record whose run can be made again.
#[derive(Debug)]
pub struct Replay {
    record: PathBuf,
    before: Inputs,
    run: GuestRun,
    emulator: String,
    /// How it is made again.
    pub way: Way,
    /// What the user should know of that.
    pub why: Option<String>,
}

/// What making the run again has shown.
#[derive(Debug)]
pub enum Replayed {
    /// Every byte of so many files is the same.
    Equal(usize),
    /// Which files differ, as text; and where what differed is kept.
    Different(String, PathBuf),
}

impl Replay {
    /// Looks at a record, and checks every input of its run. `fresh` says that its log is left aside.
    ///
    /// # Errors
    ///
    /// It is no record of the lab, can't be run again, or was altered.
    pub fn open(record: &Path, fresh: bool, cache: &Cache) -> Result<Replay, LabError> {
        if !record.join(INPUTS).exists() {
            return Err(no_record(record));
        }
        let before = inputs::read_inputs(record)?;
        before.check(record)?;
        // What can't be compared is refused before the guest runs again.
        recheck::touched(record, &before)?;
        if !before.spec.timing.is_virtual() {
            let text = "this record was made with the host's clock: no second run can equal it. If it was made with \
                        `lab run --wall --events`, `lab explain --events` explains it";
            return Err(LabError::Refused(text.to_owned()));
        }
        let run = run_of(&before, cache)?;
        let emulator = guest_run::emulator_version(&run.machine)?;
        let (way, why) = choose_way(record, fresh, &before, &run.inputs(&emulator))?;
        Ok(Replay { record: record.to_owned(), before, run, emulator, way, why })
    }

    /// Makes the run again and compares its files with the record's.
    ///
    /// # Errors
    ///
    /// The guest brought no record, or files.
    pub fn run(
        &self,
        cache: &Cache,
        guard: &[String],
        stop: &(dyn Fn() -> bool + Sync),
        on_line: &mut dyn FnMut(&str),
    ) -> Result<Replayed, LabError> {
        self.run_watched(None, cache, guard, stop, on_line)
    }

    /// What made the record.
    #[must_use]
    pub fn guest(&self) -> &GuestRun {
        &self.run
    }

    /// The emulator's version.
    #[must_use]
    pub fn emulator(&self) -> &str {
        &self.emulator
    }

    /// As [`Replay::run`], while a plugin watches the replay of the log.
    ///
    /// # Errors
    ///
    /// As [`Replay::run`].
    pub fn run_watched(
        &self,
        plugin: Option<&Plugin>,
        cache: &Cache,
        guard: &[String],
        stop: &(dyn Fn() -> bool + Sync),
        on_line: &mut dyn FnMut(&str),
    ) -> Result<Replayed, LabError> {
        let folder = Temporary(cache.root().join(format!("replay-{}", std::process::id())));
        // A process of this number may have been killed in it.
        let _ = fs::remove_dir_all(&folder.0);
        // That a fresh run differs from another one is said of the record itself.
        let around = Surroundings { cache, guard, reuse: false, stop, say: &|_| {} };
        let (run, emulator) = (&self.run, &self.emulator);
        let outcome = match self.way {
            Way::Log => run.replay(emulator, &self.record, &folder.0, plugin, &around, on_line)?,
            Way::Fresh => run.run(emulator, &folder.0, &around, on_line)?,
        };
        let GuestOutcome { ending, inputs, .. } = outcome;
        if ending != Ending::Sent {
            let why = run.explain(&ending);
            let (log, way) = (self.record.join(LOG), self.way);
            return Err(LabError::NoRecord(match way {
                Way::Log if ending != Ending::Interrupted => format!(
                    "the replay of {} failed: {why}. The log may be damaged: --fresh compares the record with \
                     a fresh run",
                    log.display()
                ),
                _ => format!("the guest sent no record: {why}"),
            }));
        }
        let found = recheck::compare(&self.record, &self.before, &folder.0, &inputs)?;
        if found.is_empty() {
            return Ok(Replayed::Equal(self.before.files.len()));
        }
        let kept = keep(&self.record, self.way, &folder.0, &found)?;
        let same_inputs = inputs.key == self.before.key;
        Ok(Replayed::Different(described(self.way, same_inputs, &found), kept))
    }
}

impl Replay {
    /// What of the record was not compared, a line for each reason.
    ///
    /// # Errors
    ///
    /// A folder can't be listed.
    pub fn not_compared(&self) -> Result<Vec<String>, LabError> {
        let FilesNotSent { made_here, foreign, .. } = FilesNotSent::of(&self.record, &self.before)?;
        // The hashes, and the log that was checked against one of them.
        let is_own = |name: &String| [INPUTS, LOG, CONSOLE].contains(&name.as_str());
        let made_here: Vec<String> = made_here.into_iter().filter(|name| !is_own(name)).collect();
        let line = |names: Vec<String>, why| {
            (!names.is_empty()).then(|| format!("not compared: {}, {why}", names.join(", ")))
        };
        let lines = [
            line(made_here, "which rtscope wrote here"),
            line(foreign, "which neither the guest nor rtscope wrote"),
        ];
        Ok(lines.into_iter().flatten().collect())
    }
}

/// A folder that goes when this is dropped.
pub(crate) struct Temporary(pub(crate) PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How the run can be made again, and what the user should know of that.
fn choose_way(
    record: &Path,
    fresh: bool,
    before: &Inputs,
    now: &Inputs,
) -> Result<(Way, Option<String>), LabError> {
    let emulator = &now.emulator;
    let another = || {
        format!(
            "the emulator is now {emulator}, but {} made the record, which may cause differences",
            before.emulator
        )
    };
    let other = *emulator != before.emulator;
    if fresh {
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
        let why = format!("only the emulator that wrote a log can replay it: {compared}");
        return Ok((Way::Fresh, Some(format!("{}; {why}", another()))));
    }
    if now.arguments != before.arguments {
        let why = "this rtscope starts the guest with other arguments than the one that made the record (lab.json \
                   has them)";
        return Ok((Way::Fresh, Some(format!("{why}: {compared}"))));
    }
    let log = record.join(LOG);
    let intact = inputs::read_file(&log)?.is_some_and(|bytes| digest::sha256(&bytes) == *hash);
    if !intact {
        let log = log.display();
        let text = format!(
            "{log} is not the log that {INPUTS} names: it was altered or deleted, so the run can't be replayed; \
             --fresh compares the record with a fresh run"
        );
        return Err(LabError::Refused(text));
    }
    Ok((Way::Log, None))
}

/// Says for each file which of record, hash and run is the odd one, and where the two differ first.
fn described(way: Way, same_inputs: bool, found: &[Disagreement]) -> String {
    let run = match way {
        Way::Log => "the replay",
        Way::Fresh => "the fresh run",
    };
    let line = |one: &Disagreement| {
        let change = |change: FileChange| match change {
            FileChange::Altered => "altered on disk",
            FileChange::Deleted => "deleted from the record",
            FileChange::Added => "added to the record",
        };
        let what = match one.blame {
            Blame::Disk(FileChange::Added) => {
                format!("added to the record; {run} has no such file")
            }
            Blame::Disk(how) => {
                format!("{}; {run} gives the file that the guest sent", change(how))
            }
            Blame::Run => format!("{run} differs from the record"),
            Blame::Both(how) => {
                format!("{}; {run} differs from what the guest sent, too", change(how))
            }
            Blame::Hash => {
                format!("{run} gives this file; its hash in {INPUTS} was altered")
            }
        };
        let first = one.first.as_ref().map_or(String::new(), |first| {
            format!(
                "\n  first difference in line {}, byte {}: {:?} in the record, {:?} in {run}",
                first.line, first.byte, first.before, first.after
            )
        });
        format!("{}: {what}{first}\n", one.name)
    };
    let lines: String = found.iter().map(line).collect();
    let all_of_run = found.iter().all(|one| one.blame == Blame::Run);
    let both_true = match way {
        Way::Fresh if !same_inputs => "The two runs have different inputs, so they may differ.\n",
        Way::Fresh if all_of_run => "Both are valid runs of the same inputs. Neither is wrong.\n",
        _ => "",
    };
    format!("different: {} of the files\n{lines}{both_true}", found.len())
}

/// Keeps what differed beside the record: the files that the replay gave, or the whole fresh run.
fn keep(
    record: &Path,
    way: Way,
    again: &Path,
    found: &[Disagreement],
) -> Result<PathBuf, LabError> {
    let record = fs::canonicalize(record).map_err(LabError::file("find", record))?;
    let name = record.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let suffix = match way {
        Way::Log => "replayed",
        Way::Fresh => "fresh",
    };
    // What has the first name already may be worth as much.
    let more = (2..).map(|n| format!("{name}.{suffix}-{n}"));
    let names = std::iter::once(format!("{name}.{suffix}")).chain(more);
    let mut places = names.map(|name| record.with_file_name(name));
    let kept = places.find(|place| place.symlink_metadata().is_err()).unwrap_or(record);
    let failed = |e| LabError::file("keep the differing files in", &kept)(e);
    match way {
        Way::Fresh => kept::copy(again, &kept)?,
        Way::Log => {
            for one in found {
                let (from, to) = (again.join(&one.name), kept.join(&one.name));
                fs::create_dir_all(to.parent().unwrap_or(&kept)).map_err(failed)?;
                if from.is_file() {
                    fs::copy(&from, &to).map_err(failed)?;
                }
            }
        }
    }
    Ok(kept)
}

/// What to name in place of a folder that is no record.
fn no_record(folder: &Path) -> LabError {
    let shown = folder.display();
    let inside = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut records: Vec<PathBuf> =
        inside.map(|entry| entry.path()).filter(|path| inputs::is_whole(path)).collect();
    records.sort();
    match records.first() {
        Some(first) => LabError::Refused(format!(
            "{shown} isn't a record, but a folder of records: name one of them, for example {}",
            first.display()
        )),
        None => {
            LabError::NoRecord(format!("{shown} is not a record of the lab: it has no {INPUTS}"))
        }
    }
}

/// The run that the record was made by, with every input checked.
fn run_of(inputs: &Inputs, cache: &Cache) -> Result<GuestRun, LabError> {
    let asked = KernelRef::parse(&inputs.kernel)?;
    let mut kernel = KernelUnderTest::find(&asked, cache, &mut |_| {})?;
    if kernel.sha256 != inputs.kernel_sha256 {
        let text = format!("{} is no longer the kernel of the record", inputs.kernel);
        return Err(LabError::Refused(text));
    }
    Machine::check_noted(&inputs.machine, cache)?;
    let machine: Machine = kernel.machine(Some(&inputs.machine))?;
    let image = cache.root().join(IMAGES).join(format!("{}.cpio", inputs.image_sha256));
    let held = ImageInUse::image(&image).ok_or_else(|| {
        let text = "the image of the record is no longer in the cache: the run can't be repeated";
        LabError::Refused(text.to_owned())
    })?;
    if digest::sha256_of_file(&image).ok().as_ref() != Some(&inputs.image_sha256) {
        let text = format!(
            "{} was altered: it is not the image of the record. Repeat the lab command that made the record, with \
             the same rtscope: it writes the image again",
            image.display()
        );
        return Err(LabError::Refused(text));
    }
    Ok(GuestRun {
        kernel,
        machine,
        spec: inputs.spec,
        image,
        held,
        image_sha256: inputs.image_sha256.clone(),
        plan: String::new(),
        planned: Duration::ZERO,
        silence: SILENCE,
        plugin: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_run_that_differs_is_as_true_as_the_record_and_an_altered_record_is_not() {
        let one = |blame| Disagreement { name: "slices/t0.jsonl".to_owned(), blame, first: None };
        let said = described(Way::Fresh, true, &[one(Blame::Run)]);
        assert!(
            said.contains("the fresh run differs") && said.contains("Both are valid"),
            "{said}"
        );
        let other = described(Way::Fresh, false, &[one(Blame::Run)]);
        assert!(other.contains("different inputs") && !other.contains("valid"), "{other}");
        let said =
            described(Way::Fresh, true, &[one(Blame::Run), one(Blame::Both(FileChange::Altered))]);
        assert!(said.contains("altered on disk") && !said.contains("Both are valid"), "{said}");
        let said = described(Way::Log, true, &[one(Blame::Disk(FileChange::Deleted))]);
        assert!(
            said.contains("slices/t0.jsonl: deleted from the record; the replay gives"),
            "{said}"
        );
        assert!(!said.contains("Both are valid"), "{said}");
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
            blame: Blame::Disk(FileChange::Altered),
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
        fs::write(folder.path().join(LOG), "log").expect("written");
        let text = format!(
            r#"{{"format":1,"key":"","kernel":"","kernel_file":"","kernel_sha256":"","image_sha256":"",
            "machine":"","time":"virtual","shift":1,"seed":1,"cpus":1,"memory_mib":null,"emulator":"7.2",
            "arguments":["-smp"],"files":{{}},"whole":true,"log_sha256":"{}"}}"#,
            digest::sha256(b"log")
        );
        let before: Inputs = serde_json::from_str(&text).expect("inputs");
        let (way, why) =
            choose_way(folder.path(), false, &before, &before).expect("the same words");
        assert!(way == Way::Log && why.is_none());
        let now = Inputs { arguments: vec!["-nodefaults".to_owned()], ..before.clone() };
        let (way, why) = choose_way(folder.path(), false, &before, &now).expect("other words");
        assert!(way == Way::Fresh && why.is_some_and(|why| why.contains("other arguments")));
    }

    #[test]
    fn a_lab_json_with_an_altered_seed_or_kernel_is_refused() {
        let arguments = ["-seed", "1", "-smp", "1"].map(str::to_owned).to_vec();
        let text = format!(
            r#"{{"format":1,"key":"{}","kernel":"","kernel_file":"","kernel_sha256":"k","image_sha256":"i",
            "machine":"","time":"virtual","shift":1,"seed":1,"cpus":1,"memory_mib":null,"emulator":"7.2",
            "arguments":["-seed","1","-smp","1"],"files":{{}},"whole":true}}"#,
            inputs::key_of_run("k", "i", "7.2", &arguments)
        );
        let record = Path::new("rt-seed1");
        let inputs: Inputs = serde_json::from_str(&text).expect("inputs");
        inputs.check(record).expect("as they were written");
        let said = |inputs: Inputs| inputs.check(record).expect_err("altered").to_string();
        let mut other = inputs.clone();
        other.spec.seed = 2;
        let other = said(other);
        assert!(
            other.contains("rt-seed1/lab.json was altered") && other.contains("seed other than 2")
        );
        assert!(
            said(Inputs { kernel_sha256: "x".to_owned(), ..inputs })
                .contains("its key does not match")
        );
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
            fs::create_dir(out.path().join(name)).expect("made");
            fs::write(out.path().join(name).join(INPUTS), inputs).expect("written");
        }
        let said = no_record(out.path()).to_string();
        assert!(said.contains("a folder of records") && said.ends_with("a-seed1"), "{said}");
    }
}
