//! `rtscope lab sched`: scheduling experiments in guests, all of them in one boot of each kernel.

use std::{fs, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use rtscope_analyse::report::{
    lab::Time,
    sched::{
        self as report,
        guests::{self, FromGuest, Guests},
    },
};
use rtscope_lab::{
    boot::{CONSOLE, Ending},
    cell::Outcome,
    error::LabError,
    qemu::Timing,
    queue::Item,
    verify,
};
use rtscope_measure::{agent::SHOWN, recorder::write_whole};
use rtscope_model::{guest, time::Nanos};
use serde_json::{Value, json};

use super::{
    compare,
    order::{self, Lab},
    output,
};
use crate::{
    cli::{Refused, print, sched, shape},
    exit,
    output::shown,
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
    options: order::Options,
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
        let name = output::safe(&experiment.name);
        if name.is_empty() || texts.iter().any(|(known, _)| *known == name) {
            return Err(Refused(format!("experiment {:?}: named twice", experiment.name)).into());
        }
        longest = longest.max(Duration::from_nanos(experiment.total_work().0));
        texts.push((name, experiment.to_toml()));
    }
    let mut lab = Lab::open(&args.options)?;
    lab.check_without_plan()?;
    let out = output::place(args.out.as_ref(), "sched")?;
    let mut items: Vec<Item> = Vec::new();
    let subjects = lab.subjects(&args.kernel)?;
    let names = output::names(subjects.iter().map(|subject| subject.label.as_str()))?;
    for (subject, name) in subjects.iter().zip(names) {
        let cell = lab.experiments_cell(subject, &texts, longest)?;
        items.push(Item { cell, folder: out.join(name) });
    }
    let outcomes = lab.run_into(&out, &items)?;
    let mut all = Collected::new(lab.timing(), &items);
    for (kernel, (item, outcome)) in items.iter().zip(outcomes).enumerate() {
        all.add(kernel, item, outcome, &texts)?;
    }
    all.publish(&out, args.json)
}

/// What has come from the guests.
struct Collected {
    timing: Timing,
    page: Guests,
    documents: Vec<Value>,
    is_as_asked: bool,
}

impl Collected {
    fn new(timing: Timing, items: &[Item]) -> Collected {
        let label = |item: &Item| item.cell.subject.label.clone();
        let page = Guests {
            time: match timing {
                Timing::Virtual { shift } => Time::Virtual { shift },
                Timing::Wall | Timing::Kvm => Time::Wall,
            },
            kernels: items.iter().map(label).collect(),
            facts: compare::facts(items),
            records: Vec::new(),
            failures: Vec::new(),
        };
        Collected { timing, page, documents: Vec::new(), is_as_asked: true }
    }

    /// Takes what a guest brought: each record gets its page.
    fn add(
        &mut self,
        kernel: usize,
        item: &Item,
        outcome: Result<Outcome, LabError>,
        texts: &[(String, String)],
    ) -> anyhow::Result<()> {
        let subject = &item.cell.subject;
        let label = &subject.label;
        let folder = item.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut document = json!({"kernel": label, "record": folder, "experiments": []});
        let failed = match &outcome {
            Ok(outcome) if outcome.ending == Ending::Sent => None,
            Ok(outcome) => {
                let console = outcome.folder.join(CONSOLE);
                let sentence = item.cell.explain(&outcome.ending);
                Some(format!("{sentence} (its console: {})", console.display()))
            }
            Err(error) => Some(error.to_string()),
        };
        let asked = |identity| verify::verify_against(&item.folder.join(SHOWN), Some(identity));
        // A guest without /proc shows nothing of its kernel.
        let verified = subject.identity.clone().and_then(|identity| asked(identity).ok());
        let another = verified.as_ref().filter(|verified| verified.failed());
        let another =
            another.map(|wrong| format!("another kernel ran than was asked for: {wrong}"));
        if let Some(why) = failed.or(another) {
            document["failed"] = why.clone().into();
            self.documents.push(document);
            self.page.failures.push((label.clone(), why));
            return Ok(());
        }
        let failures = fs::read_to_string(item.folder.join(guest::FAILURES)).unwrap_or_default();
        let failures = failures.lines().map(|line| (label.clone(), line.to_owned()));
        self.page.failures.extend(failures);
        let mut judged: Vec<Value> = Vec::new();
        for (name, _) in texts {
            let own = item.folder.join(name);
            if !own.join(guest::EXPERIMENT).is_file() {
                continue;
            }
            let record = sched::read(&own)?;
            self.is_as_asked &= sched::is_as_asked(&record);
            let path = own.join("report.html");
            write_whole(&path, report::page(&record).as_bytes())
                .with_context(|| format!("can't write {}", path.display()))?;
            judged.push(report::document(&record));
            let page = format!("{folder}/{name}/report.html");
            self.page.records.push(FromGuest { kernel, record, page });
        }
        document["experiments"] = judged.into();
        document["verification"] = json!(verified);
        document["inputs"] = json!(outcome.ok().map(|outcome| outcome.inputs));
        self.documents.push(document);
        Ok(())
    }

    /// Writes the page and the document, and tells the figures.
    fn publish(&self, out: &std::path::Path, as_json: bool) -> anyhow::Result<ExitCode> {
        let failures = self.page.failures.iter();
        let failures: Vec<Value> =
            failures.map(|(kernel, why)| json!({"kernel": kernel, "why": why})).collect();
        let document = json!({
            "format": 1,
            "timing": self.timing,
            "guests": self.documents,
            "failures": failures,
        });
        let text = serde_json::to_string_pretty(&document)? + "\n";
        let page = out.join("index.html");
        let document = out.join("experiments.json");
        for (path, text) in [(&page, &guests::page(&self.page)), (&document, &text)] {
            write_whole(path, text.as_bytes())
                .with_context(|| format!("can't write {}", path.display()))?;
        }
        if as_json {
            print(&text)?;
            note!("Report: {}", page.display());
        } else {
            print(&format!("{}Report: {}\n", guests::table(&self.page), shown(&page)))?;
        }
        Ok(ExitCode::from(match (self.page.failures.is_empty(), self.is_as_asked) {
            (false, _) => exit::ERROR,
            (true, false) => exit::INCONCLUSIVE,
            (true, true) => exit::PASS,
        }))
    }
}
