//! From the records of many guests to one page, one document, one table.

mod preemption;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
    process::ExitCode,
};

use anyhow::Context;
use rtscope_analyse::{
    Judgement, export,
    number::us,
    report::lab::{
        self as page,
        beside::{Buckets, Pair, QUANTILES},
    },
    statistics::quantile,
};
use rtscope_lab::{
    bisect::Answer,
    boot::{CONSOLE, Ending},
    cell::Outcome,
    error::LabError,
    qemu::Timing,
    queue::Item,
    verify::{self, Verification},
};
use rtscope_measure::agent::SHOWN;
use rtscope_model::{
    environment::Preemption,
    guest::{self, Cost, Tracer},
    plan::{Plan, Published},
    verdict::Verdict,
};
use serde_json::{Value, json};

use crate::{
    cli::print,
    exit,
    output::shown,
    record::{self, Judged, Terms},
};

/// The 99.9th percentile, in parts of a billion.
const P99_9: u32 = 999_000_000;

/// What came of all guests.
pub(super) struct Comparison {
    timing: Timing,
    page: page::Comparison,
    /// Whether each kernel is a real-time kernel, by what its guest found.
    real_time: Vec<Option<bool>>,
    documents: Vec<Value>,
    /// Requirements that are not met: in which kernel and cell, and what was seen.
    broken: Vec<String>,
    /// What was asked for and is not so.
    warnings: Vec<String>,
    worst: Verdict,
    /// Why the last inconclusive run was so.
    undecided: String,
    failed: bool,
}

impl Comparison {
    /// Judges every record, and writes its own page.
    pub(super) fn of(
        plan: &Plan,
        timing: Timing,
        items: &[Item],
        outcomes: Vec<Result<Outcome, LabError>>,
    ) -> anyhow::Result<Comparison> {
        let mut labels: Vec<String> = Vec::new();
        for item in items {
            if !labels.contains(&item.cell.subject.label) {
                labels.push(item.cell.subject.label.clone());
            }
        }
        let (labels, names) = (labels.len(), labels);
        let mut all = Comparison {
            timing,
            page: page::Comparison {
                plan: plan.name.clone(),
                title: plan.title.clone(),
                time: match timing {
                    Timing::Virtual { shift } => page::Time::Virtual { shift },
                    Timing::Wall | Timing::Kvm => page::Time::Wall,
                },
                kernels: names,
                loads: plan.phases.iter().map(|phase| phase.name.clone()).collect(),
                seeds: items.iter().map(|item| item.cell.seed).collect::<BTreeSet<_>>().len(),
                unreached: Vec::new(),
                facts: facts(items),
                entries: Vec::new(),
                required: Vec::new(),
                failures: Vec::new(),
                published: Vec::new(),
                beside: Vec::new(),
                traces: Vec::new(),
            },
            real_time: vec![None; labels],
            documents: Vec::new(),
            broken: Vec::new(),
            warnings: Vec::new(),
            worst: Verdict::Measured,
            undecided: String::new(),
            failed: false,
        };
        let mut unreached = 0_u32;
        for (item, outcome) in items.iter().zip(outcomes) {
            let never = matches!(outcome, Err(LabError::NotReached));
            let cut = matches!(&outcome, Ok(cut) if cut.ending == Ending::Interrupted);
            if never || cut {
                let kernel = all.kernel(item);
                let loads = all.page.loads.iter();
                let loads =
                    loads.filter(|load| item.cell.plan == plan.name || **load == item.cell.plan);
                let loads: Vec<_> = loads.map(|load| (kernel, load.clone())).collect();
                all.page.unreached.extend(loads);
            }
            if never {
                unreached += 1;
                all.document_without(item, &LabError::NotReached.to_string());
            } else {
                all.add(item, outcome)?;
            }
        }
        if unreached > 0 {
            all.page.failures.push((
                format!("guests that were not begun: {unreached}"),
                "not reached: it was interrupted before. The same command with the same --out goes on"
                    .to_owned(),
            ));
        }
        all.page.published = plan.published.iter().map(|one| all.set_beside(one)).collect();
        Ok(all)
    }

    /// Sets the plan's published figures beside ours, each beside the kernels of its kind.
    fn set_beside(&self, published: &Published) -> page::Published {
        let of_kind = |kernel: &usize| self.real_time[*kernel] == Some(published.real_time);
        let ours = (0..self.page.kernels.len()).filter(of_kind).filter_map(|kernel| {
            let ns = self.max_ns(kernel, &published.phase)?;
            Some(format!("{} us in {}", us(ns), self.page.kernels[kernel]))
        });
        let ours: Vec<String> = ours.collect();
        let kind = if published.real_time { "real-time kernel" } else { "stock kernel" };
        page::Published {
            what: format!("{}, {kind}, worst case", published.phase),
            theirs: format!("{} us", us(published.max.0)),
            ours: if ours.is_empty() { "no such kernel ran".to_owned() } else { ours.join("; ") },
            source: published.source.clone(),
            why: published.why.clone(),
        }
    }

    /// What a search is told of these guests.
    pub(super) fn answer(&self) -> Answer {
        match (self.failed, self.page.failures.first(), self.worst) {
            (_, _, Verdict::Fail) => Answer::Bad,
            (true, Some((_, why)), _) => Answer::Unknown(why.clone()),
            (false, _, Verdict::Pass) => Answer::Good,
            _ => Answer::Unknown(format!("the run was inconclusive: {}", self.undecided)),
        }
    }

    /// The worst latency of a kernel under a load, over the seeds.
    fn max_ns(&self, kernel: usize, load: &str) -> Option<u64> {
        let wanted = |entry: &&page::Entry| entry.kernel == kernel && entry.load == load;
        self.page.entries.iter().filter(wanted).map(|entry| entry.max_ns).max()
    }

    fn add(&mut self, item: &Item, outcome: Result<Outcome, LabError>) -> anyhow::Result<()> {
        let cell = &item.cell;
        let name = format!("{} seed {} {}", cell.subject.label, cell.seed, cell.plan);
        let outcome = match outcome {
            Ok(outcome) if outcome.ending == Ending::Sent => outcome,
            Ok(outcome) if self.timing == Timing::Kvm && outcome.ending == Ending::Mute => {
                let why = "KVM is there and does not run the guest: use --wall, or leave --kvm out";
                self.fail(item, name, why.to_owned());
                return Ok(());
            }
            Ok(outcome) => {
                let console = outcome.folder.join(CONSOLE);
                let why = format!(
                    "{} (its console: {})",
                    cell.explain(&outcome.ending),
                    console.display()
                );
                self.fail(item, name, why);
                return Ok(());
            }
            Err(e) => {
                self.fail(item, name, e.to_string());
                return Ok(());
            }
        };
        let identity = cell.subject.identity.clone();
        let verify = |asked| verify::verify_against(&outcome.folder.join(SHOWN), Some(asked));
        // A guest without /proc shows nothing of its kernel.
        let verified = identity.and_then(|identity| verify(identity).ok());
        if let Some(wrong) = verified.as_ref().filter(|verified| verified.failed()) {
            self.fail(item, name, format!("another kernel ran than was asked for: {wrong}"));
            return Ok(());
        }
        let judged = record::open(&outcome.folder, &Terms::default())?;
        judged.publish(&outcome.folder)?;
        self.worst = worst(self.worst, judged.judgement.verdict);
        if judged.judgement.verdict == Verdict::Inconclusive {
            self.undecided = judged.judgement.reasons.join("; ");
        }
        self.take(item, &judged, &outcome, verified.as_ref());
        Ok(())
    }

    fn take(
        &mut self,
        item: &Item,
        judged: &Judged,
        outcome: &Outcome,
        verified: Option<&Verification>,
    ) {
        let cell = &item.cell;
        let kernel = self.kernel(item);
        let found = judged.record.before.as_ref().map(|found| found.kernel.preemption);
        let label = &cell.subject.label;
        if let Some(warning) =
            found.and_then(|found| preemption::warning(&cell.subject.append, found))
        {
            let warning = format!("{label}: {warning}");
            if !self.warnings.contains(&warning) {
                self.page.facts.push((format!("{label}, warning"), warning.clone()));
                self.warnings.push(warning);
            }
        }
        let outcomes = judged.judgement.outcomes.iter();
        let broken = outcomes.filter(|one| one.figures_verdict == Verdict::Fail);
        let required = outcomes_of(&judged.judgement, kernel);
        required.for_each(|required| self.require(required));
        self.broken.extend(broken.map(|one| {
            let (load, asked) = (&one.name, &one.requirement);
            format!("{label} seed {}, {load}: {asked} is not met: {}", cell.seed, one.sentence)
        }));
        self.real_time[kernel] = found
            .filter(|found| *found != Preemption::Unknown)
            .map(|found| found == Preemption::RealTime);
        let folder = outcome.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for summary in &judged.judgement.cells {
            let histogram = &summary.all.histogram;
            let at = |parts| histogram.at_rank_ns(quantile::rank(histogram.count(), parts));
            let (Some(p99_9_ns), Some(max_ns)) = (at(P99_9), histogram.max_ns()) else { continue };
            self.page.entries.push(page::Entry {
                kernel,
                load: summary.name.clone(),
                seed: cell.seed,
                p99_9_ns: p99_9_ns.min(max_ns),
                max_ns,
                recorded: summary.all.recorded,
                missed: summary.all.missed,
                page: format!("{folder}/report.html"),
            });
        }
        let (pairs, traces) = self.beside(item, judged, outcome, &folder);
        let document = export::json::document(&judged.judgement, &judged.record);
        let part = |key: &str| document.get(key).cloned();
        self.documents.push(json!({
            "kernel": cell.subject.label,
            "seed": cell.seed,
            "verdict": part("verdict"),
            "reasons": part("reasons"),
            "cells": part("cells"),
            "record": folder,
            "inputs": outcome.inputs,
            "cyclictest": pairs,
            "traces": traces,
            "verification": verified,
        }));
        let seen = format!("{}, running", cell.subject.label);
        if let Some(verified) = verified
            && !self.page.facts.iter().any(|(name, _)| *name == seen)
        {
            self.page.facts.push((seen, verified.to_string()));
        }
    }

    /// Takes in what became of a requirement with another seed: the weightiest verdict stays.
    fn require(&mut self, new: page::Required) {
        let key = |one: &page::Required| (one.kernel, one.load.clone(), one.requirement.clone());
        match self.page.required.iter_mut().find(|known| key(known) == key(&new)) {
            Some(known) if worst(known.verdict, new.verdict) != known.verdict => *known = new,
            Some(_) => {}
            None => self.page.required.push(new),
        }
    }

    /// What the guest did beside the plan: cyclictest's histograms beside ours, and traces.
    fn beside(
        &mut self,
        item: &Item,
        judged: &Judged,
        outcome: &Outcome,
        folder: &str,
    ) -> (Vec<Value>, Vec<Value>) {
        let (cell, mut pairs, mut traces) = (&item.cell, Vec::new(), Vec::new());
        let kernel = &cell.subject.label;
        for (index, summary) in judged.judgement.cells.iter().enumerate() {
            let file = |kind| guest::phase_file(kind, index);
            let read = |name: &str| fs::read_to_string(outcome.folder.join(name)).ok();
            let what = format!("{kernel}, {}, seed {}", summary.name, cell.seed);
            if let Some(text) = read(&file("cyclictest")) {
                match Buckets::of_cyclictest(&text) {
                    Ok(theirs) => {
                        let pair = Pair {
                            kernel: kernel.clone(),
                            load: summary.name.clone(),
                            seed: cell.seed,
                            ours: Buckets::of_histogram(&summary.all.histogram),
                            theirs,
                            our_cost: Cost::find(&text, guest::OURS),
                            their_cost: Cost::find(&text, guest::THEIRS),
                        };
                        pairs.push(pair_document(&pair));
                        self.page.beside.push(pair);
                    }
                    Err(why) => self.page.failures.push((what.clone(), why)),
                }
            }
            for tracer in [Tracer::Osnoise, Tracer::Timerlat] {
                let name = file(tracer.name());
                let Some(text) = read(&name) else { continue };
                let worst = worst_timer_latencies(&text);
                let mut said = tracer.to_string();
                for (context, ns) in &worst {
                    let _ = write!(said, ", worst {context} latency {} us", us(*ns));
                }
                traces.push(json!({
                    "cell": summary.name, "tracer": tracer, "file": name, "worst_ns": worst,
                }));
                self.page.traces.push((what.clone(), said, format!("{folder}/{name}")));
            }
        }
        if let Ok(failures) = fs::read_to_string(outcome.folder.join(guest::FAILURES)) {
            for line in failures.lines() {
                self.page.failures.push((format!("{kernel} seed {}", cell.seed), line.to_owned()));
            }
            self.failed = true;
        }
        (pairs, traces)
    }

    fn fail(&mut self, item: &Item, name: String, why: String) {
        self.document_without(item, &why);
        self.page.failures.push((name, why));
    }

    /// Notes in the document that a guest brought no record.
    fn document_without(&mut self, item: &Item, why: &str) {
        self.documents.push(json!({
            "kernel": item.cell.subject.label,
            "seed": item.cell.seed,
            "cells": [],
            "failed": why,
        }));
        self.failed = true;
    }

    /// Index of a guest's kernel.
    fn kernel(&self, item: &Item) -> usize {
        let kernel = self.page.kernels.iter().position(|label| *label == item.cell.subject.label);
        kernel.unwrap_or_default()
    }

    /// The document that `--json` prints.
    fn document(&self) -> Value {
        let requirement = |one: &page::Required| {
            json!({
                "kernel": self.page.kernels[one.kernel],
                "load": one.load,
                "requirement": one.requirement,
                "verdict": one.verdict,
                "seen": one.seen,
            })
        };
        let requirements: Vec<Value> = self.page.required.iter().map(requirement).collect();
        json!({
            "format": 1,
            "plan": self.page.plan,
            "timing": self.timing,
            "headline": page::headline(&self.page),
            "verdict": self.worst,
            "requirements": requirements,
            "pairs": page::apart::pairs(&self.page),
            "broken": self.broken,
            "warnings": self.warnings,
            "kernels": self.documents,
        })
    }

    /// Writes the page and the document, tells the figures, and says where the page is.
    pub(super) fn publish(&self, out: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
        let text = serde_json::to_string_pretty(&self.document())? + "\n";
        let (page, document) = (out.join("index.html"), out.join("comparison.json"));
        for (path, text) in [(&page, &page::page(&self.page)), (&document, &text)] {
            let written = rtscope_measure::recorder::write_whole(path, text.as_bytes())
                .with_context(|| format!("can't write {}", path.display()));
            // What the guests have shown, or why they have not, is not lost with the page.
            written.inspect_err(|_| {
                let _ = print(&self.table());
            })?;
        }
        if as_json {
            print(&text)?;
            note!("Report: {}", page.display());
        } else {
            print(&self.table())?;
            print(&format!("Report: {}\n", shown(&page)))?;
        }
        Ok(if self.failed { ExitCode::from(exit::ERROR) } else { exit::of_verdict(self.worst) })
    }

    /// The figures for a terminal: a line a load, a column a kernel.
    fn table(&self) -> String {
        let mut text = format!("{}\n\n", page::headline(&self.page));
        let loads = page::loads(&self.page);
        let first = loads.iter().map(|load| load.len()).max().unwrap_or(0).max(4);
        let widths: Vec<usize> =
            self.page.kernels.iter().map(|label| label.len().max(15)).collect();
        let _ = write!(text, "{:first$}", "load");
        for (label, width) in self.page.kernels.iter().zip(&widths) {
            let _ = write!(text, "  {label:>width$}");
        }
        text.push('\n');
        for load in loads {
            let _ = write!(text, "{load:first$}");
            for (kernel, width) in widths.iter().enumerate() {
                let wanted = |entry: &&page::Entry| entry.kernel == kernel && entry.load == load;
                let here = || self.page.entries.iter().filter(wanted);
                let figure =
                    match (here().map(|e| e.p99_9_ns).max(), here().map(|e| e.max_ns).max()) {
                        (Some(p99_9), Some(max)) => format!("{} / {}", us(p99_9), us(max)),
                        _ => page::absence(&self.page, kernel, load).to_owned(),
                    };
                let _ = write!(text, "  {figure:>width$}");
            }
            text.push('\n');
        }
        text.push_str("\np99.9 / max in us, the worst of all seeds\n");
        text.extend(page::unbounded(&self.page).map(|said| said + "\n"));
        for pair in &self.page.beside {
            let of = |side: &Buckets| {
                QUANTILES
                    .map(|(_, parts)| side.at(parts).map_or("-".to_owned(), |us| us.to_string()))
            };
            let _ = writeln!(
                text,
                "cyclictest beside ours, {} {} seed {}: p50/p99/p99.9 {} and {} us: {}",
                pair.kernel,
                pair.load,
                pair.seed,
                of(&pair.theirs).join("/"),
                of(&pair.ours).join("/"),
                pair.verdict()
            );
            if let Some((ours, theirs)) = pair.costs_ns() {
                let _ = writeln!(
                    text,
                    "  CPU time a wake-up: {:.2} and {:.2} us, ours is {:.3} times cyclictest's",
                    theirs / 1e3,
                    ours / 1e3,
                    ours / theirs
                );
            }
        }
        for (what, said, _) in &self.page.traces {
            let _ = writeln!(text, "{what}: {said}");
        }
        if !self.page.failures.is_empty() {
            text.push('\n');
        }
        for (name, why) in &self.page.failures {
            let _ = writeln!(text, "{name}: {why}");
        }
        text.extend(self.warnings.iter().map(|line| format!("warning: {line}\n")));
        text.extend(self.broken.iter().map(|line| format!("{line}\n")));
        if self.worst != Verdict::Measured {
            let _ = writeln!(text, "{}", self.worst);
        }
        text.push('\n');
        text
    }
}

/// What was required of a kernel in one record.
fn outcomes_of(judgement: &Judgement, kernel: usize) -> impl Iterator<Item = page::Required> {
    judgement.outcomes.iter().map(move |one| page::Required {
        kernel,
        load: one.name.clone(),
        requirement: one.requirement.to_string(),
        verdict: one.verdict,
        seen: one.explanation(),
    })
}

/// A pair of histograms as JSON.
fn pair_document(pair: &Pair) -> Value {
    let side = |of: &Buckets| {
        let quantiles = QUANTILES.map(|(name, parts)| (name, of.at(parts)));
        json!({
            "count": of.count(),
            "max_us": of.max_us,
            "overflow": of.overflow,
            "quantiles_us": BTreeMap::from(quantiles),
            "histogram_us": of.counts,
        })
    };
    let costs = pair.costs_ns().map(|(ours, theirs)| json!({"ours": ours, "cyclictest": theirs}));
    let apart = QUANTILES.map(|(name, parts)| (name, pair.apart_us(parts)));
    json!({
        "cell": pair.load,
        "ours": side(&pair.ours),
        "cyclictest": side(&pair.theirs),
        "apart_us": BTreeMap::from(apart),
        "meets": pair.meets(),
        "cpu_ns_per_wakeup": costs,
    })
}

/// The worst latency of each context in a timerlat trace, as of `irq` and `thread`; its lines end in
/// `context irq timer_latency 932 ns`. Empty for other traces.
fn worst_timer_latencies(text: &str) -> BTreeMap<&str, u64> {
    let mut worst = BTreeMap::new();
    for line in text.lines() {
        let Some((_, rest)) = line.split_once(" context ") else { continue };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [context, "timer_latency", ns, ..] = words.as_slice() else { continue };
        let Ok(ns) = ns.parse::<u64>() else { continue };
        let entry = worst.entry(*context).or_insert(0);
        *entry = ns.max(*entry);
    }
    worst
}

/// The weightier of two verdicts.
fn worst(a: Verdict, b: Verdict) -> Verdict {
    let weight = |verdict: Verdict| match verdict {
        Verdict::Measured => 0,
        Verdict::Pass => 1,
        Verdict::Inconclusive => 2,
        Verdict::Fail => 3,
    };
    if weight(a) >= weight(b) { a } else { b }
}

/// What the page says of the kernels, and of what all guests share.
pub(super) fn facts(items: &[Item]) -> Vec<(String, String)> {
    let mut facts: Vec<(String, String)> = Vec::new();
    for item in items {
        let subject = &item.cell.subject;
        let release = subject.release.as_deref().unwrap_or("unknown release");
        let fact = (subject.label.clone(), format!("{release}, sha256 {}", subject.kernel_sha256));
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    if let Some(item) = items.first() {
        facts.push(("machine".to_owned(), item.cell.machine.name.clone()));
        facts.push(("guest's files".to_owned(), format!("sha256 {}", item.cell.image_sha256)));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_each_context_of_a_timerlat_trace_is_found() {
        let text = "\
# TASK-PID         [CPU]#|||||  TIMESTAMP   ID     CONTEXT                 LATENCY
          <idle>-0     [000] d.h1.    54.029328: #1     context    irq timer_latency        932 ns
           <...>-867   [000] .....    54.029339: #1     context thread timer_latency      11700 ns
          <idle>-0     [000] d.h1.    54.029346: #2     context    irq timer_latency       1833 ns
";
        assert_eq!(worst_timer_latencies(text), [("irq", 1833), ("thread", 11700)].into());
        assert!(worst_timer_latencies("osnoise/0-81 [000] 99 90 1 2 3 4").is_empty());
    }

    #[test]
    fn the_weightiest_verdict_counts() {
        use Verdict::*;
        assert_eq!(worst(Measured, Pass), Pass);
        assert_eq!(worst(Fail, Inconclusive), Fail);
        assert_eq!(worst(Pass, Inconclusive), Inconclusive);
    }
}
