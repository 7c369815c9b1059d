//! `rtscope fleet pull-lab`: a lab of KernelCI that asks for its jobs.

mod asked;
mod guests;
mod job;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use rtscope_analyse::export::SubmissionOrigin;
use rtscope_fleet::{
    error::FleetError,
    pull_lab::{
        api::{self, BEGINNING, KernelCiApi},
        http::{self, Curl, HttpFailure, NO_CURL},
        journal::{PullJournal, PullStep, PulledJob},
        token::{API_TOKEN, KCIDB_TOKEN, ServerToken},
    },
};
use rtscope_lab::tool;
use rtscope_measure::signals::Interrupt;
use rtscope_model::{time::Nanos, verdict::Requirement};

use crate::{cli::ending, exit, failure::Refused};

/// Run KernelCI's jobs in the lab, and post the results
///
/// rtscope asks KernelCI's API for the jobs of its runtime (the protocol PULL_LABS) and boots the kernel of each job
/// in a guest in virtual time. It posts the result to the job's node, and with --kcidb each figure to KCIDB. Commands
/// of a job never run on this machine. If rtscope is killed, it continues when you start it again: no job is lost,
/// and none is posted twice.
///
/// The type of a job's test says what runs: boot, cyclictest, or rtscope with a plan. rtscope posts any other test as
/// skipped, with the reason, unless --test assigns a plan to its type. It reads the API's token from the environment
/// variable KERNELCI_API_TOKEN and KCIDB's token from KCIDB_JWT, or each from a file.
///
/// With --once, the exit code is 0 if rtscope has posted each waiting job, else 1.
///
/// Examples:
///   rtscope fleet pull-lab --api https://api.example/v1 --runtime my-lab --once
///   rtscope fleet pull-lab --api https://a.example/v1 --runtime x -r 'max < 1ms'
///   rtscope fleet pull-lab --api https://a.test/v1 --runtime x --test rt=lab-quick
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// Address of KernelCI's API, with its version
    #[arg(long, value_name = "URL")]
    api: String,
    /// Name of this lab's runtime in KernelCI
    #[arg(long, value_name = "NAME")]
    runtime: String,
    /// Take only jobs for this platform; repeatable [default: all platforms of the runtime]
    #[arg(long, value_name = "NAME")]
    platform: Vec<String>,
    /// Folder of the journal and the records [default: rtscope-runs/pull-lab-NAME]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Run the waiting jobs, then exit
    #[arg(long)]
    once: bool,
    /// Time between two requests for events
    #[arg(long, value_name = "TIME", default_value = "30s")]
    every: Nanos,
    /// File with the token of the API [default: the environment variable KERNELCI_API_TOKEN]
    #[arg(long, value_name = "FILE")]
    api_token: Option<PathBuf>,
    /// Submit the tests to this address of KCIDB, which ends in /submit
    #[arg(long, value_name = "URL", requires = "origin")]
    kcidb: Option<String>,
    /// File with the token of KCIDB [default: the environment variable KCIDB_JWT]
    #[arg(long, value_name = "FILE", requires = "kcidb")]
    kcidb_token: Option<PathBuf>,
    /// Origin in KCIDB: the name that KernelCI gave to your lab
    #[arg(long, value_name = "NAME")]
    origin: Option<SubmissionOrigin>,
    /// Name of the CI system that submits the builds to KCIDB
    #[arg(long, value_name = "NAME", default_value = "maestro")]
    build_origin: SubmissionOrigin,
    /// Address at which others can read the folder of the records, for links in KCIDB
    #[arg(long, value_name = "URL", requires = "kcidb")]
    base_url: Option<String>,
    /// Run a plan for tests of this type or id: a shipped plan's name, or a file; repeatable
    #[arg(long, value_name = "TYPE=PLAN", value_parser = asked::parse_assignment)]
    test: Vec<(String, String)>,
    /// Requirement for each phase of a test without a requirement of its own, for example 'max < 200us'; repeatable
    #[arg(short, long, value_name = "REQUIREMENT")]
    require: Vec<Requirement>,
    /// Kill a guest after this time on this machine's clock, even if its job allows more
    #[arg(long, value_name = "TIME", default_value = "1h")]
    at_most: Nanos,
    /// Run this static rtscope in guests of its architecture; repeatable
    #[arg(long, value_name = "FILE")]
    program: Vec<PathBuf>,
    /// Load this module of the job in each guest, with the modules that it depends on; repeatable
    #[arg(long, value_name = "NAME")]
    module: Vec<String>,
    /// Folder of kernels, images and records [default: that of `lab cache list`]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

/// Events so long before the cursor are read again: the API may show an event after a later one.
const OVERLAP_S: i64 = 60;

/// What is the same for all jobs.
struct PullLab<'a> {
    args: &'a Args,
    api: KernelCiApi<'a>,
    kcidb: Option<Kcidb<'a>>,
    curl: Curl<'a>,
    stop: &'a (dyn Fn() -> bool + Sync),
    guard: &'a [String],
    /// Folder of the journal and the records.
    state: &'a Path,
}

/// Where the tests go.
struct Kcidb<'a> {
    address: &'a str,
    origin: &'a SubmissionOrigin,
    token: &'a ServerToken,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    check(args)?;
    let api_token = token(args.api_token.as_deref(), "--api-token", API_TOKEN, &args.api)?;
    let kcidb_token = match &args.kcidb {
        Some(address) => {
            Some(token(args.kcidb_token.as_deref(), "--kcidb-token", KCIDB_TOKEN, address)?)
        }
        None => None,
    };
    let interrupt = Interrupt::install()?;
    ending::of_programs(&interrupt);
    let stop = || interrupt.is_stopped();
    let guard = crate::cli::lab::guard();
    let state = args
        .state
        .clone()
        .unwrap_or_else(|| Path::new("rtscope-runs").join(format!("pull-lab-{}", args.runtime)));
    let mut journal = PullJournal::open(&state, &args.api, &args.runtime)?;
    let curl = Curl { guard: &guard, stop: &stop, folder: &state };
    let kcidb = match (&args.kcidb, &args.origin, &kcidb_token) {
        (Some(address), Some(origin), Some(token)) => Some(Kcidb { address, origin, token }),
        _ => None,
    };
    let api = KernelCiApi { address: &args.api, token: &api_token, curl };
    let lab = PullLab { args, api, kcidb, curl, stop: &stop, guard: &guard, state: &state };
    note!("{}: asking {} for jobs of {}", state.display(), args.api, args.runtime);
    loop {
        let is_clean = lab.turn(&mut journal)?;
        if stop() {
            return Ok(ExitCode::from(exit::INTERRUPTED));
        }
        if args.once {
            return Ok(ExitCode::from(if is_clean { exit::PASS } else { exit::ERROR }));
        }
        lab.wait(Duration::from_nanos(args.every.0));
    }
}

fn check(args: &Args) -> anyhow::Result<()> {
    for address in
        [Some(&args.api), args.kcidb.as_ref(), args.base_url.as_ref()].into_iter().flatten()
    {
        http::check_address(address).map_err(Refused)?;
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if args.runtime.is_empty()
        || args.runtime.starts_with('.')
        || !args.runtime.chars().all(is_name)
    {
        let text = "--runtime: the name of a runtime consists of letters, digits, '.', '_' and '-'";
        return Err(Refused(text.to_owned()).into());
    }
    if args.every < Nanos::from_ms(100) {
        return Err(Refused("--every: at least 100ms between two requests".to_owned()).into());
    }
    if tool::find("curl").is_none() {
        anyhow::bail!(NO_CURL);
    }
    asked::check(&args.test)
}

/// A token of a file, else of the environment. It isn't sent where others can read it.
fn token(
    file: Option<&Path>,
    option: &str,
    variable: &str,
    address: &str,
) -> anyhow::Result<ServerToken> {
    if !http::is_private(address) {
        return Err(Refused(format!("{address}: others could read the token; use https")).into());
    }
    if let Some(file) = file {
        return Ok(ServerToken::read(file)?);
    }
    match std::env::var(variable) {
        Ok(text) => Ok(ServerToken::new(&text, variable)?),
        Err(_) => Err(Refused(format!(
            "there is no token for {address}: set the environment variable {variable}, or name a file with {option}"
        ))
        .into()),
    }
}

impl PullLab<'_> {
    /// Reads the new events and does what is to be done for each job. Whether nothing is left to do.
    fn turn(&self, journal: &mut PullJournal) -> anyhow::Result<bool> {
        let mut is_clean = true;
        if let Err(failure) = self.notice(journal)? {
            note!("no events: {}", explained(&failure, API_TOKEN));
            is_clean = false;
        }
        for job in journal.open_jobs(self.kcidb.is_some()) {
            if (self.stop)() {
                return Ok(false);
            }
            is_clean &= self.advance(journal, &job)?;
        }
        Ok(is_clean)
    }

    /// Takes the jobs of new events into the journal.
    fn notice(&self, journal: &mut PullJournal) -> Result<Result<(), HttpFailure>, FleetError> {
        let mut after = match journal.cursor() {
            BEGINNING => BEGINNING.to_owned(),
            cursor => api::earlier(cursor, OVERLAP_S),
        };
        loop {
            let page = match self.api.events(&after, &self.args.runtime, &self.args.platform) {
                Ok(page) => page,
                Err(failure) => return Ok(Err(failure)),
            };
            for event in page.jobs {
                if journal.job(&event.node).is_none() {
                    let step = PullStep::Noticed { definition: event.definition };
                    journal.step(&event.node, step)?;
                }
            }
            let Some(last) = page.last else { return Ok(Ok(())) };
            journal.move_cursor(&last)?;
            if !page.is_full || !api::is_later(&last, &after) {
                return Ok(Ok(()));
            }
            after = last;
        }
    }

    /// Does for a job what is to be done next, up to its end; whether that is reached.
    fn advance(&self, journal: &mut PullJournal, job: &PulledJob) -> anyhow::Result<bool> {
        if !job.is_judged && !job::judge(self, journal, &job.node)? {
            return Ok(journal.job(&job.node).is_some_and(|job| job.left.is_some()));
        }
        job::post(self, journal, &job.node)
    }

    fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        while !(self.stop)() && Instant::now() < until {
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A failure of a server, with what to do where that is known.
fn explained(failure: &HttpFailure, variable: &str) -> String {
    match failure.is_forbidden() {
        true => {
            format!("{failure}; check the token ({variable}) and its permissions in KernelCI")
        }
        false => failure.to_string(),
    }
}
