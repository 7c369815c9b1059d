//! One job: claimed, its files fetched, its tests run, its outcome posted.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::Context;
use rtscope_analyse::export::BuildId;
use rtscope_fleet::pull_lab::{
    api::is_node_id,
    definition::{JobDefinition, JobTest},
    http::HttpFailure,
    journal::{PullJournal, PullStep, PulledJob, store},
    outcome::{JobOutcome, PullStatus, TestOutcome},
    token::{API_TOKEN, KCIDB_TOKEN},
};
use serde_json::Value;

use super::{
    PullLab,
    asked::{self, AskedTest},
    explained,
    guests::{self, FromKernel, JobFiles, KERNEL_MAX},
};

/// KernelCI's words for failures that aren't the kernel's (`ErrorCodes` in kernelci-core).
const INFRASTRUCTURE: &str = "Infrastructure";
const WRONG_JOB: &str = "invalid_job_params";

/// A job that was cut so often is given up: it may be what kills this machine.
const TRIES_MAX: u32 = 3;

/// A download is tried so often, with pauses between.
const DOWNLOADS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

const DEFINITION_MAX: u64 = 1 << 20;
const MODULES_MAX: u64 = 2 << 30;
const DOWNLOAD_IN: Duration = Duration::from_secs(3600);

/// How long a test may take that says nothing of it: what the template of KernelCI writes.
const TIMEOUT_S: u64 = 600;

const OUTCOME: &str = "outcome.json";
const DOCUMENT: &str = "kcidb.json";

/// Whether a job may be run here.
enum Claimed {
    /// It is ours; its node.
    Ours(Box<Value>),
    /// Another has it, or it is over.
    Left(String),
    /// The API doesn't say: another try, later.
    Later(HttpFailure),
}

/// The user ended everything.
struct Stopped;

/// Claims a job, runs it, and keeps its outcome. False where that is for later, or the job isn't ours.
pub(super) fn judge(of: &PullLab<'_>, journal: &mut PullJournal, id: &str) -> anyhow::Result<bool> {
    let Some(job) = journal.job(id).cloned() else { return Ok(false) };
    let node = match claim(of, journal, &job)? {
        Claimed::Ours(node) => *node,
        Claimed::Left(why) => {
            note!("{id}: not run: {why}");
            journal.step(id, PullStep::Left { why })?;
            return Ok(false);
        }
        Claimed::Later(failure) => {
            note!("{id}: not claimed yet: {}", explained(&failure, API_TOKEN));
            return Ok(false);
        }
    };
    let folder = journal.job_folder(id);
    fs::create_dir_all(&folder).with_context(|| format!("can't make {}", folder.display()))?;
    journal.step(id, PullStep::Begun)?;
    let tries = journal.job(id).map_or(0, |job| job.tries);
    let outcome = if tries > TRIES_MAX {
        let text = format!("rtscope was interrupted {TRIES_MAX} times while it ran this job");
        JobOutcome::failed(INFRASTRUCTURE, text)
    } else {
        note!("{id}: running");
        match outcome(of, &job, &node, &folder) {
            Ok(outcome) => outcome,
            Err(Stopped) => {
                journal.step(id, PullStep::Stopped)?;
                return Ok(false);
            }
        }
    };
    for test in &outcome.tests {
        note!("{id}: {}: {}: {}", test.id, word(test.status), test.why);
    }
    // Large, and in the cache as far as they are of use.
    for name in [KERNEL, MODULES] {
        let _ = fs::remove_file(folder.join(name));
    }
    store(&folder.join(OUTCOME), &serde_json::to_vec_pretty(&outcome)?)?;
    journal.step(id, PullStep::Judged)?;
    Ok(true)
}

fn word(status: PullStatus) -> &'static str {
    match status {
        PullStatus::Pass => "pass",
        PullStatus::Fail => "fail",
        PullStatus::Skip => "skip",
        PullStatus::Error => "error",
    }
}

/// Makes a job ours: its node has the name that the journal has, or gets it now.
fn claim(of: &PullLab<'_>, journal: &mut PullJournal, job: &PulledJob) -> anyhow::Result<Claimed> {
    let id = &job.node;
    let node = match of.api.node(id) {
        Ok(node) => node,
        Err(HttpFailure::Status { code: 404, .. }) => {
            return Ok(Claimed::Left("KernelCI no longer has this job".to_owned()));
        }
        Err(failure) => return Ok(Claimed::Later(failure)),
    };
    let (state, holder) = (text(&node["state"]), text(&node["data"]["job_id"]));
    if state != "available" {
        return Ok(Claimed::Left(format!("its state is {state}")));
    }
    let own = job.claim.clone();
    if !holder.is_empty() && own.as_deref() != Some(holder) {
        return Ok(Claimed::Left(format!("it is taken by {holder}")));
    }
    let is_new = holder.is_empty();
    let name = match own {
        Some(name) => name,
        None => format!("{}:{}", of.args.runtime, random_name()?),
    };
    if job.claim.is_none() {
        // Written before it is sent: whoever goes on after a kill knows its own name.
        journal.step(id, PullStep::Named { claim: name.clone() })?;
    }
    if !is_new {
        return Ok(Claimed::Ours(Box::new(node)));
    }
    match of.api.claim(id, node, &name).and_then(|()| of.api.node(id)) {
        // The API compares nothing before it writes: another lab may have written after us.
        Ok(node) if text(&node["data"]["job_id"]) == name => Ok(Claimed::Ours(Box::new(node))),
        Ok(node) => Ok(Claimed::Left(format!("it is taken by {}", text(&node["data"]["job_id"])))),
        Err(HttpFailure::Status { code: 400 | 404 | 422, said }) => {
            Ok(Claimed::Left(format!("KernelCI refused to give this job to the lab: {said}")))
        }
        Err(failure) => Ok(Claimed::Later(failure)),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A name that no other lab has.
fn random_name() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 16];
    let mut file = fs::File::open("/dev/urandom").context("can't open /dev/urandom")?;
    std::io::Read::read_exact(&mut file, &mut bytes).context("can't read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Does something that may fail for the moment, up to three times.
fn patiently<T>(
    of: &PullLab<'_>,
    mut work: impl FnMut() -> Result<T, HttpFailure>,
) -> Result<T, HttpFailure> {
    for _ in 1..DOWNLOADS {
        match work() {
            Err(failure) if failure.is_passing() && !(of.stop)() => thread::sleep(PAUSE),
            other => return other,
        }
    }
    work()
}

/// Fetches what a job names, and runs its tests.
fn outcome(
    of: &PullLab<'_>,
    job: &PulledJob,
    node: &Value,
    folder: &Path,
) -> Result<JobOutcome, Stopped> {
    let definition = patiently(of, || of.curl.get(&job.definition, None, DEFINITION_MAX));
    let definition = match definition {
        Ok(document) => document,
        Err(HttpFailure::Stopped) => return Err(Stopped),
        Err(failure) => {
            let code = if matches!(failure, HttpFailure::Unusable(_)) {
                WRONG_JOB
            } else {
                INFRASTRUCTURE
            };
            let why = format!("the job's definition can't be read: {failure}");
            return Ok(JobOutcome::failed(code, why));
        }
    };
    let definition = match JobDefinition::parse(definition) {
        Ok(definition) => definition,
        Err(why) => return Ok(JobOutcome::failed(WRONG_JOB, why)),
    };
    let build = patiently(of, || of.api.build(node)).unwrap_or_else(|failure| {
        note!("{}: can't look up its build: {failure}", job.node);
        None
    });
    let build = build.and_then(|build| {
        let id = text(&build["id"]);
        is_node_id(id).then(|| format!("{}:{id}", of.args.build_origin))
    });
    let build_id: Option<BuildId> = build.as_deref().and_then(|build| build.parse().ok());
    let of_test = |test: &JobTest| asked::find(test, &of.args.test, &of.args.require);
    let asked: Vec<AskedTest> = definition.tests.iter().map(of_test).collect();
    let needs_kernel = asked.iter().any(|asked| !matches!(asked, AskedTest::Skip(_)));
    let files = match needs_kernel {
        true => fetch(of, &definition, folder)?,
        false => Err((INFRASTRUCTURE, String::new())),
    };
    let files = files.as_ref().map(|(kernel, modules)| JobFiles {
        folder,
        kernel: kernel.clone(),
        modules: modules.clone(),
        arch: &definition.arch,
        build: build_id.as_ref(),
    });
    let tests = run_all(
        of,
        &definition.tests,
        &asked,
        files.as_ref().map_err(|(code, why)| (*code, why.as_str())),
    )?;
    Ok(JobOutcome { tests, build })
}

/// Runs the tests in their order, and adds whether the kernel boots where no test says it.
fn run_all(
    of: &PullLab<'_>,
    tests: &[JobTest],
    asked: &[AskedTest],
    files: Result<&JobFiles<'_>, (&str, &str)>,
) -> Result<Vec<TestOutcome>, Stopped> {
    let mut done: Vec<TestOutcome> = Vec::new();
    let mut booted: Option<Result<(), String>> = None;
    for (at, (test, asked)) in tests.iter().zip(asked).enumerate() {
        let has_passed = |id: &&String| {
            done.iter().any(|other| &other.id == *id && other.status == PullStatus::Pass)
        };
        let missing = test.depends.iter().find(|id| !has_passed(id));
        let plain = |status, why| TestOutcome::plain(&test.id, &test.kind, status, why);
        let (plan, is_boot) = match (asked, missing) {
            (AskedTest::Skip(why), _) => {
                done.push(plain(PullStatus::Skip, why.clone()));
                continue;
            }
            (_, Some(id)) => {
                let why = format!("it depends on the test {id}, which did not pass before it");
                done.push(plain(PullStatus::Skip, why));
                continue;
            }
            (AskedTest::Boot(plan), None) => (plan, true),
            (AskedTest::Plan(plan), None) => (plan, false),
        };
        let files = match files {
            Ok(files) => files,
            Err((code, why)) => {
                let code = Some(code.to_owned());
                done.push(TestOutcome { code, ..plain(PullStatus::Error, why.to_owned()) });
                continue;
            }
        };
        let allowed = Duration::from_secs(test.timeout_s.unwrap_or(TIMEOUT_S).max(1));
        let limit = allowed.min(Duration::from_nanos(of.args.at_most.0));
        let found = guests::run(of, files, plan, (&format!("test-{at}"), limit));
        match &found {
            FromKernel::Record(_) => booted = Some(Ok(())),
            FromKernel::NoRecord(why) if booted.is_none() => booted = Some(Err(why.clone())),
            _ => {}
        }
        done.push(of_guest(test, found, is_boot)?);
    }
    let says_boot = asked.iter().any(|asked| matches!(asked, AskedTest::Boot(_)));
    if let (Some(booted), false) = (booted, says_boot) {
        done.push(match booted {
            Ok(()) => TestOutcome::plain("boot", "boot", PullStatus::Pass, BOOTED.to_owned()),
            Err(why) => TestOutcome::plain("boot", "boot", PullStatus::Fail, why),
        });
    }
    Ok(done)
}

const BOOTED: &str = "the kernel boots in a guest and runs a program there";

/// What a guest says of a test.
fn of_guest(test: &JobTest, found: FromKernel, is_boot: bool) -> Result<TestOutcome, Stopped> {
    let path = if is_boot { "boot" } else { &test.kind };
    let plain = |status, why| TestOutcome::plain(&test.id, path, status, why);
    let failed = |code: &str, why| TestOutcome {
        code: Some(code.to_owned()),
        ..plain(PullStatus::Error, why)
    };
    Ok(match found {
        FromKernel::Stopped => return Err(Stopped),
        FromKernel::Record(_) if is_boot => plain(PullStatus::Pass, BOOTED.to_owned()),
        FromKernel::Record(judged) => {
            TestOutcome { id: test.id.clone(), path: test.kind.clone(), ..*judged }
        }
        FromKernel::NoRecord(why) if is_boot => plain(PullStatus::Fail, why),
        FromKernel::NoRecord(why) => failed("Test", why),
        FromKernel::Failed(why) => failed(INFRASTRUCTURE, why),
    })
}

/// Names of the files in a job's folder.
const KERNEL: &str = "kernel";
const MODULES: &str = "modules";

type Fetched = Result<(PathBuf, Option<PathBuf>), (&'static str, String)>;

/// Fetches the kernel, and the modules where some are to be loaded.
fn fetch(of: &PullLab<'_>, definition: &JobDefinition, folder: &Path) -> Result<Fetched, Stopped> {
    let kernel = match fetch_one(of, definition, (KERNEL, KERNEL_MAX), folder)? {
        Ok(kernel) => kernel,
        Err(why) => return Ok(Err(why)),
    };
    if let Err(why) = guests::unpack_kernel(&kernel) {
        return Ok(Err((WRONG_JOB, why)));
    }
    if of.args.module.is_empty() {
        return Ok(Ok((kernel, None)));
    }
    let modules = fetch_one(of, definition, (MODULES, MODULES_MAX), folder)?;
    Ok(modules.map(|modules| (kernel, Some(modules))))
}

fn fetch_one(
    of: &PullLab<'_>,
    definition: &JobDefinition,
    (name, bytes_max): (&str, u64),
    folder: &Path,
) -> Result<Result<PathBuf, (&'static str, String)>, Stopped> {
    let Some(address) = definition.artifacts.get(name) else {
        return Ok(Err((WRONG_JOB, format!("the job has no artifact {name}"))));
    };
    let file = folder.join(name);
    let sum = match patiently(of, || of.curl.download(address, &file, bytes_max, DOWNLOAD_IN)) {
        Ok(sum) => sum,
        Err(HttpFailure::Stopped) => return Err(Stopped),
        Err(failure) => {
            return Ok(Err((
                INFRASTRUCTURE,
                format!("can't fetch the {name} from {address}: {failure}"),
            )));
        }
    };
    Ok(match definition.sha256.get(name) {
        Some(asked) if *asked != sum => Err((
            INFRASTRUCTURE,
            format!("the {name} from {address} has the SHA-256 {sum}, and the job says {asked}"),
        )),
        _ => Ok(file),
    })
}

/// Posts the outcome of a job wherever it isn't yet; whether it is everywhere now.
pub(super) fn post(of: &PullLab<'_>, journal: &mut PullJournal, id: &str) -> anyhow::Result<bool> {
    let Some(job) = journal.job(id).cloned() else { return Ok(true) };
    let folder = journal.job_folder(id);
    let path = folder.join(OUTCOME);
    let read = || -> anyhow::Result<JobOutcome> { Ok(serde_json::from_slice(&fs::read(&path)?)?) };
    let outcome = read().unwrap_or_else(|e| {
        JobOutcome::failed(INFRASTRUCTURE, format!("the lab can't read its outcome: {e:#}"))
    });
    let is_submitted = job.is_submitted || submit(of, journal, id, &outcome)?;
    let is_posted = job.is_posted || finish(of, journal, &job, &outcome)?;
    Ok(is_submitted && is_posted)
}

/// Sends the tests to KCIDB. After a kill the same document is sent again, and KCIDB keeps a test once by its name.
fn submit(
    of: &PullLab<'_>,
    journal: &mut PullJournal,
    id: &str,
    outcome: &JobOutcome,
) -> anyhow::Result<bool> {
    let Some(kcidb) = &of.kcidb else { return Ok(true) };
    let document = outcome.document(&kcidb.origin.to_string(), id);
    let body = serde_json::to_vec_pretty(&document)?;
    store(&journal.job_folder(id).join(DOCUMENT), &body)?;
    match of.curl.send("POST", kcidb.address, Some(kcidb.token), &body) {
        Ok(answer) => {
            let submission = text(&answer["id"]).chars().take(64).collect();
            journal.step(id, PullStep::Submitted { id: submission })?;
            Ok(true)
        }
        Err(HttpFailure::Status { code: 400 | 413 | 422, said }) => {
            note!("{id}: KCIDB refuses its tests: {said}");
            journal.step(id, PullStep::NotSubmitted { why: said })?;
            Ok(true)
        }
        Err(failure) => {
            note!("{id}: not submitted to KCIDB yet: {}", explained(&failure, KCIDB_TOKEN));
            Ok(false)
        }
    }
}

/// Ends the job's node, unless it is over already: by us before a kill, or by KernelCI's own time limit.
fn finish(
    of: &PullLab<'_>,
    journal: &mut PullJournal,
    job: &PulledJob,
    outcome: &JobOutcome,
) -> anyhow::Result<bool> {
    let id = &job.node;
    let sent = of.api.node(id).and_then(|node| {
        if text(&node["state"]) == "done" {
            return Ok(text(&node["result"]).chars().take(64).collect());
        }
        let (code, why) = outcome.error();
        of.api.finish(id, node, outcome.result(), (code, &why))?;
        Ok(outcome.result().to_owned())
    });
    match sent {
        Ok(result) => {
            note!("{id}: posted: {result}");
            journal.step(id, PullStep::Posted { result })?;
            Ok(true)
        }
        Err(HttpFailure::Status { code: code @ (400 | 404 | 422), said }) => {
            note!("{id}: KernelCI refuses the result ({code}): {said}");
            journal.step(id, PullStep::Left { why: format!("the result was refused: {said}") })?;
            Ok(true)
        }
        Err(failure) => {
            note!("{id}: not posted yet: {}", explained(&failure, API_TOKEN));
            Ok(false)
        }
    }
}
