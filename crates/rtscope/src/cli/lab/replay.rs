//! `rtscope lab replay`: a record made again, and compared byte by byte.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use rtscope_lab::{
    boot::Ending,
    cell::{self, Cell, Inputs, Surroundings},
    images::Held,
    machine::Machine,
    subject::Subject,
};
use rtscope_measure::interrupt::Interrupt;

use super::order;
use crate::{
    cli::{Refused, print},
    exit,
};

/// How long a guest may be silent: its plan is not looked at, so generously.
const SILENCE: Duration = Duration::from_secs(1800);

/// Run a record of the lab again and compare every byte
///
/// The record names every input by its hash. The kernel and the image must still be there; an emulator
/// of another version is said. The exit code is 0 when all bytes are equal, 2 when not.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// The record's folder
    record: PathBuf,
    /// Where kernels and images are kept
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let cache = order::cache_of(args.cache.as_ref());
    let before = match cell::read_inputs(&args.record) {
        Err(_) if !args.record.join(cell::INPUTS).exists() => {
            return Err(no_record(&args.record).into());
        }
        read => read?,
    };
    if !before.timing.is_virtual() {
        let text = "this record was made by the host's clock: no second run can equal it";
        return Err(Refused(text.to_owned()).into());
    }
    let cell = cell_of(&before, &cache)?;
    let emulator = cell::emulator_version(&cell.machine)?;
    if emulator != before.emulator {
        let found =
            format!("the emulator is now {emulator}, the record was made by {}", before.emulator);
        print(&format!("{found}: differences may come from that\n"))?;
    }
    let interrupt = Interrupt::install()?;
    let stop = || interrupt.is_stopped();
    let pid = std::process::id().to_string();
    let guard = ["/proc/self/exe", "guard", "--parent", &pid, "--"].map(str::to_owned);
    let around = Surroundings { cache: &cache, guard: &guard, reuse: false, stop: &stop };
    let folder = cache.root().join(format!("replay-{pid}"));
    let outcome = cell.run(&emulator, &folder, &around, &mut |line| note!("{line}"));
    let _ = std::fs::remove_dir_all(&folder);
    let outcome = outcome?;
    if outcome.ending != Ending::Sent {
        anyhow::bail!("the guest brought no record: {}", cell.explain(&outcome.ending));
    }
    let differing = differing(&before, &outcome.inputs);
    if differing.is_empty() {
        print(&format!("equal: {} files, every byte\n", before.files.len()))?;
        return Ok(ExitCode::from(exit::PASS));
    }
    print(&format!("different: {}\n", differing.join(", ")))?;
    Ok(ExitCode::from(exit::FAIL))
}

/// What to name in place of a folder that is no record.
fn no_record(folder: &Path) -> Refused {
    let shown = folder.display();
    let inside = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut records: Vec<PathBuf> =
        inside.map(|entry| entry.path()).filter(|path| cell::is_whole(path)).collect();
    records.sort();
    Refused(match records.first() {
        Some(first) => format!(
            "{shown} holds {} records and is none itself: name one of its folders, as {}",
            records.len(),
            first.display()
        ),
        None => format!("{shown} is no record of the lab: it has no {}", cell::INPUTS),
    })
}

/// Files whose bytes differ, or that only one of the two records has.
fn differing(before: &Inputs, after: &Inputs) -> Vec<String> {
    let mut names: Vec<&String> = before.files.keys().chain(after.files.keys()).collect();
    names.sort();
    names.dedup();
    let differs = |name: &&String| before.files.get(*name) != after.files.get(*name);
    names.into_iter().filter(differs).cloned().collect()
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
        silence: SILENCE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_many_records_is_told_from_a_record() {
        let out = tempfile::tempdir().expect("a folder");
        let said = no_record(out.path()).to_string();
        assert!(said.ends_with("is no record of the lab: it has no lab.json"), "{said}");
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
