//! The guests of a job: its kernel in the lab, in virtual time.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use flate2::read::GzDecoder;
use rtscope_analyse::export::{BuildId, Exported, Format, PublishedFiles, Submission};
use rtscope_fleet::pull_lab::outcome::{PullStatus, TestOutcome};
use rtscope_lab::{
    boot::Ending,
    brought::Brought,
    error::LabError,
    kernel_ref::KernelRef,
    lab::{Host, Lab},
    options::GuestOptions,
    program::GuestProgram,
    queue::QueuedRun,
};
use rtscope_measure::guest_init::SHOWN;
use rtscope_model::{plan::Plan, verdict::Verdict};
use serde_json::Value;

use super::PullLab;
use crate::{
    cli::{export::with_files, lab::cache_at, this_program},
    failure::{Refused, error_text},
    record::{self, Additions, JudgedRecord},
};

/// The largest kernel, unpacked.
pub(super) const KERNEL_MAX: u64 = 512 << 20;

/// A job's files on this machine.
pub(super) struct JobFiles<'a> {
    /// The job's folder.
    pub(super) folder: &'a Path,
    pub(super) kernel: PathBuf,
    pub(super) modules: Option<PathBuf>,
    /// The kernel's name of the architecture, as the job says it.
    pub(super) arch: &'a str,
    pub(super) build: Option<&'a BuildId>,
}

/// What came of a guest.
pub(super) enum FromKernel {
    /// A record, judged.
    Record(Box<TestOutcome>),
    /// The kernel ran, or was to run, and brought no record: the sentence says why.
    NoRecord(String),
    /// This machine, or the job's files, didn't let it run.
    Failed(String),
    /// The user ended everything.
    Stopped,
}

/// Runs a plan in a job's kernel, in a folder of its own.
pub(super) fn run(
    of: &PullLab<'_>,
    files: &JobFiles<'_>,
    plan: &Plan,
    (name, limit): (&str, Duration),
) -> FromKernel {
    let out = files.folder.join(name);
    // What a killed rtscope left of it.
    let _ = fs::remove_dir_all(&out);
    let until = Instant::now() + limit;
    let stop = || (of.stop)() || Instant::now() > until;
    match in_lab(of, files, plan, &out, &stop) {
        _ if (of.stop)() => FromKernel::Stopped,
        Ok(Some(found)) => found,
        Ok(None) => FromKernel::Failed(format!(
            "the guest did not finish within {} s by this machine's clock",
            limit.as_secs()
        )),
        Err(error) => FromKernel::Failed(error_text(&error)),
    }
}

/// Runs the guest; none when it was ended for its time.
fn in_lab(
    of: &PullLab<'_>,
    files: &JobFiles<'_>,
    plan: &Plan,
    out: &Path,
    stop: &(dyn Fn() -> bool + Sync),
) -> anyhow::Result<Option<FromKernel>> {
    let options = GuestOptions {
        jobs: Some(1),
        modules: of.args.module.clone(),
        modules_from: files.modules.clone(),
        ..GuestOptions::default()
    };
    let cache = cache_at(of.args.cache.as_ref());
    let mut lab = Lab::open(options, program(of, files.arch)?, cache)?;
    let host = Host { guard: of.guard, stop, note: &|_| {}, news: &|_| {} };
    let asked = KernelRef::parse(&format!("job=path={}", files.kernel.display()))?;
    let kernel = lab.kernels(&[asked], &mut host.report())?.remove(0);
    let run = lab.plan_run(&kernel, plan, 1, &mut host.report())?;
    let queued = QueuedRun { run, folder: out.join("record") };
    let outcome = lab.run_into(out, std::slice::from_ref(&queued), &host)?.remove(0);
    let ended = outcome.as_ref().is_ok_and(|outcome| outcome.ending == Ending::Interrupted);
    if ended || matches!(outcome, Err(LabError::NotReached | LabError::Interrupted)) {
        return Ok(None);
    }
    let is_kernels = outcome
        .as_ref()
        .is_ok_and(|outcome| !matches!(outcome.ending, Ending::DiskFull(_) | Ending::Emulator(_)));
    Ok(Some(match queued.brought(outcome, SHOWN) {
        Brought::Record(_) => {
            let folder = &queued.folder;
            record::keep_required(folder, plan)?;
            let judged = record::open(folder, &Additions::default())?;
            judged.publish(folder)?;
            FromKernel::Record(Box::new(judged_test(of, files, &judged, folder)?))
        }
        Brought::Nothing { why, .. } if is_kernels => FromKernel::NoRecord(why),
        Brought::Nothing { why, .. } | Brought::NotReached(why) => FromKernel::Failed(why),
    }))
}

/// The program for guests of an architecture: one that was named for it, else this very one.
fn program(of: &PullLab<'_>, arch: &str) -> anyhow::Result<GuestProgram> {
    let machine = match arch {
        "arm64" => "aarch64",
        "arm" => "armv7l",
        "riscv" => "riscv64",
        other => other,
    };
    for path in &of.args.program {
        let program = GuestProgram::read(path, true)?;
        if program.machine() == Some(machine) {
            return Ok(program);
        }
    }
    Ok(GuestProgram::read(&fs::canonicalize(this_program())?, false)?)
}

/// What a judged record says of a test.
fn judged_test(
    of: &PullLab<'_>,
    files: &JobFiles<'_>,
    judged: &JudgedRecord,
    folder: &Path,
) -> anyhow::Result<TestOutcome> {
    let judgement = &judged.judgement;
    let verdict = judgement.verdict;
    let status = match verdict {
        Verdict::Pass | Verdict::Measured => PullStatus::Pass,
        Verdict::Fail => PullStatus::Fail,
        Verdict::Inconclusive => PullStatus::Error,
    };
    let failing = judgement.outcomes.iter().filter(|of| of.verdict == verdict);
    let failing =
        failing.map(|of| format!("{}, {}: {}", of.name, of.requirement, of.explanation()));
    let reasons = match verdict {
        Verdict::Fail => failing.collect::<Vec<_>>(),
        // Its figures are tests of their own.
        Verdict::Pass => Vec::new(),
        _ => judgement.reasons.clone(),
    };
    let why = format!("{verdict}: {}", reasons.join("; "));
    let mut test = TestOutcome::plain("", "", status, why.trim_end_matches([':', ' ']).to_owned());
    test.is_inconclusive = verdict == Verdict::Inconclusive;
    test.is_measured = verdict == Verdict::Measured;
    test.code = test.is_inconclusive.then(|| "Test".to_owned());
    if let Some(kcidb) = &of.kcidb {
        let mut subject = Exported::new(&judged.record, judgement, None).map_err(Refused)?;
        let base_url = of.args.base_url.clone().unwrap_or_default();
        let published = PublishedFiles { base_url, names: Vec::new() };
        let submission = Submission {
            origin: kcidb.origin.clone(),
            build: files.build.cloned(),
            files: published,
        };
        let below = folder.strip_prefix(of.state).unwrap_or(folder).to_string_lossy();
        subject.submission = with_files(&submission, &below, folder);
        let format = Format::named("kcidb").map_err(Refused)?;
        let document = format.write(&subject).map_err(Refused)?;
        let document: Value = serde_json::from_slice(&document)?;
        test.rows = document["tests"].as_array().cloned().unwrap_or_default();
    }
    Ok(test)
}

/// Unpacks a kernel that came in gzip's form, as arm64's `Image.gz`. The emulator starts images only.
pub(super) fn unpack_kernel(file: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("can't unpack the kernel: {e}");
    let mut packed = File::open(file).map_err(failed)?;
    let mut magic = [0; 2];
    if packed.read(&mut magic).map_err(failed)? < 2 || magic != [0x1f, 0x8b] {
        return Ok(());
    }
    let part = file.with_extension("unpacked");
    let mut to = File::create(&part).map_err(failed)?;
    let packed = File::open(file).map_err(failed)?;
    let copied = std::io::copy(&mut GzDecoder::new(packed).take(KERNEL_MAX + 1), &mut to);
    let copied = copied.and_then(|count| to.flush().map(|()| count));
    match copied.map_err(failed) {
        Ok(count) if count <= KERNEL_MAX => fs::rename(&part, file).map_err(failed),
        other => {
            let _ = fs::remove_file(&part);
            Err(other.err().unwrap_or_else(|| {
                format!("the kernel is larger than {} MiB when it is unpacked", KERNEL_MAX >> 20)
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn a_packed_kernel_is_unpacked_and_any_other_stays() {
        let room = tempfile::tempdir().expect("a folder");
        let file = room.path().join("kernel");
        fs::write(&file, "an image").expect("written");
        unpack_kernel(&file).expect("as it is");
        assert_eq!(fs::read(&file).expect("there"), b"an image");
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(b"another image").expect("packed");
        let packed = packer.finish().expect("packed");
        fs::write(&file, &packed).expect("written");
        unpack_kernel(&file).expect("unpacked");
        assert_eq!(fs::read(&file).expect("there"), b"another image");
        fs::write(&file, &packed[..packed.len() - 9]).expect("written");
        assert!(unpack_kernel(&file).expect_err("cut").contains("can't unpack"));
        assert_eq!(fs::read_dir(room.path()).expect("listed").count(), 1);
    }
}
