//! `rtscope lab sched`: scheduling experiments in guests, all of them in one boot of each kernel.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use rtscope_analyse::report::sched::{
    self as report,
    guests::{self, Guests},
};
use rtscope_lab::{
    brought, error::LabError, guest_run::GuestOutcome, lab::GuestVerbs, queue::QueuedRun,
    record_folders,
};
use rtscope_model::{
    guest::{self, Timing},
    time::Nanos,
};
use serde_json::Value;

use super::{
    guest_options::{self, Lab},
    output::{self, FromGuest},
};
use crate::{
    cli::{Refused, sched, shape},
    exit, record,
};

/// Run scheduling experiments in kernels, undisturbed
///
/// Each kernel boots once in an emulator and runs all experiments, one after the other. In virtual
/// time (the default) no other program, no hypervisor and no cache disturbs them, and `rtscope lab
/// replay` reproduces each record bit for bit. With two CPUs (--smp 2) the result shows only the order of events:
/// it has no ratios and no log to replay.
///
/// If you name no experiment, rtscope runs the five of the project report, from one-fifo-pinned to two-fifo-free.
/// --set is the only option of `rtscope run` that an experiment takes. rtscope refuses the others and says why.
///
/// Examples:
///   rtscope lab sched --kernel debian-rt
///   rtscope lab sched fifo-starvation --kernel debian-rt --set throttling=off
///   rtscope lab sched inversion-plain -k debian-stock -k debian-rt
///   rtscope lab sched two-fifo-free --kernel tiny-6.12-rt --smp 2 --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// Shipped experiments' names, or files; `rtscope sched list` shows them
    #[arg(value_name = "EXPERIMENT", default_values = sched::REPORT)]
    experiments: Vec<String>,
    /// Kernel to run, as for `lab run`; repeatable
    #[arg(short, long, value_name = "KERNEL", required = true)]
    kernel: Vec<String>,
    /// CPU time of each application that doesn't define its own work, 1ms to 5s
    #[arg(long, value_name = "TIME")]
    work: Option<Nanos>,
    /// Folder for the records and the pages [default: rtscope-runs/lab-sched-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: guest_options::Options,
    #[command(flatten)]
    shape: shape::Shape,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = args.shape.experiment_settings()?;
    let mut texts: Vec<(String, String)> = Vec::new();
    let mut longest = Duration::ZERO;
    for name in &args.experiments {
        let mut experiment = sched::load(name, args.work)?;
        experiment.settings.extend(settings.clone());
        let name = record_folders::safe(&experiment.name);
        if name.is_empty() || texts.iter().any(|(known, _)| *known == name) {
            return Err(Refused(format!("experiment {:?}: named twice", experiment.name)).into());
        }
        longest = longest.max(Duration::from_nanos(experiment.total_work().0));
        texts.push((name, experiment.to_toml()));
    }
    let verbs = GuestVerbs {
        name: "experiments".to_owned(),
        commands: texts.iter().map(|(name, _)| command(name)).collect(),
        files: texts
            .iter()
            .map(|(name, text)| (guest::experiment_file(name), text.clone().into_bytes(), false))
            .collect(),
        longest,
        ..GuestVerbs::default()
    };
    let mut lab = Lab::open(&args.options)?;
    lab.lab.check_without_plan()?;
    let out = output::place(args.out.as_ref(), "sched")?;
    let kernels = lab.kernels(&args.kernel)?;
    let (runs, outcomes) = lab.verbs_into(&out, &kernels, None, &verbs)?;
    let mut all = Collected::new(lab.timing(), &runs);
    for (kernel, (queued, outcome)) in runs.iter().zip(outcomes).enumerate() {
        all.add(kernel, queued, outcome, &texts)?;
    }
    all.publish(&out, args.json)
}

/// The command that runs an experiment in a guest.
fn command(name: &str) -> guest::Command {
    let (file, out) = (guest::experiment_file(name), guest::Command::folder(name));
    let words = ["sched", "run", &format!("/{file}"), "--out", &out].map(str::to_owned);
    guest::Command { name: name.to_owned(), words: words.to_vec() }
}

/// What has come from the guests.
struct Collected {
    page: Guests,
    documents: Vec<Value>,
    is_as_asked: bool,
}

impl Collected {
    fn new(timing: Timing, runs: &[QueuedRun]) -> Collected {
        let page = Guests {
            time: timing,
            kernels: runs.iter().map(|queued| queued.run.kernel.label.clone()).collect(),
            facts: brought::facts(runs),
            records: Vec::new(),
            failures: Vec::new(),
        };
        Collected { page, documents: Vec::new(), is_as_asked: true }
    }

    /// Takes what a guest brought: each record gets its page.
    fn add(
        &mut self,
        kernel: usize,
        queued: &QueuedRun,
        outcome: Result<GuestOutcome, LabError>,
        texts: &[(String, String)],
    ) -> anyhow::Result<()> {
        let label = &queued.run.kernel.label;
        let folder = queued.folder_name();
        let FromGuest { mut document, has_record, failures } = output::look_at(queued, outcome);
        self.page.failures.extend(failures.into_iter().map(|line| (label.clone(), line)));
        let mut judged: Vec<Value> = Vec::new();
        for (name, _) in texts.iter().filter(|_| has_record) {
            let own = queued.folder.join(name);
            if !own.join(guest::EXPERIMENT).is_file() {
                continue;
            }
            let found = sched::read(&own)?;
            self.is_as_asked &= found.is_as_asked();
            record::write_in(&own, "report.html", report::page(&found))?;
            judged.push(report::document(&found));
            let page = format!("{folder}/{name}/report.html");
            self.page.records.push(guests::ExperimentInGuest { kernel, record: found, page });
        }
        document["experiments"] = judged.into();
        self.documents.push(document);
        Ok(())
    }

    /// Writes the page and the document, and tells the figures.
    fn publish(&self, out: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
        let document = guests::document(&self.page, &self.documents);
        let (page, table) = (guests::page(&self.page), guests::table(&self.page));
        output::publish(out, "experiments.json", &page, &document, (&table, as_json))?;
        Ok(ExitCode::from(match (self.page.failures.is_empty(), self.is_as_asked) {
            (false, _) => exit::ERROR,
            (true, false) => exit::INCONCLUSIVE,
            (true, true) => exit::PASS,
        }))
    }
}
