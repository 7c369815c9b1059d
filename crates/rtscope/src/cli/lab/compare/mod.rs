//! From the records of many guests to one page, one document, one table.

mod preemption;
mod publish;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

use rtscope_analyse::{
    Judgement, export,
    judgement::CellSummary,
    number::us,
    report::lab::{
        self as page,
        beside::{Buckets, Pair},
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
    subject::Subject,
    verify::{self, Verification},
};
use rtscope_measure::agent::SHOWN;
use rtscope_model::{
    environment::Preemption,
    guest::{self, Cost, Start, Tracer},
    plan::{Phase, Plan, Published},
    verdict::Verdict,
};
use serde_json::{Value, json};

use crate::record::{self, Judged, Terms};

/// The 99.9th percentile, in parts of a billion.
const P99_9: u32 = 999_000_000;

/// What came of all guests.
pub(super) struct Comparison {
    timing: Timing,
    page: page::Comparison,
    documents: Vec<Value>,
    /// Requirements that are not met: in which kernel and cell, and what was seen.
    broken: Vec<String>,
    /// The verdict of each guest that brought a record.
    verdicts: Vec<Verdict>,
    /// Words of the kernel command line that a kernel doesn't know: its name and the word.
    unknown_words: BTreeSet<(String, String)>,
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
        let labels = labels(items);
        let mut all = Comparison {
            timing,
            page: page::Comparison {
                plan: plan.name.clone(),
                title: plan.title.clone(),
                time: match timing {
                    Timing::Virtual { shift } => page::Time::Virtual { shift },
                    Timing::Wall | Timing::Kvm => page::Time::Wall,
                },
                preemption: vec![None; labels.len()],
                kernels: labels,
                loads: plan.phases.iter().map(|phase| phase.name.clone()).collect(),
                load_lines: plan.phases.iter().map(load_line).collect(),
                seeds: items.iter().map(|item| item.cell.seed).collect::<BTreeSet<_>>().len(),
                unreached: Vec::new(),
                facts: facts(items),
                warnings: Vec::new(),
                entries: Vec::new(),
                required: Vec::new(),
                failures: Vec::new(),
                published: Vec::new(),
                beside: Vec::new(),
                traces: Vec::new(),
            },
            documents: Vec::new(),
            broken: Vec::new(),
            verdicts: Vec::new(),
            unknown_words: BTreeSet::new(),
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
                all.add(plan, item, outcome)?;
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
        let of_kind = |kernel: &usize| match self.page.preemption[*kernel] {
            None | Some(Preemption::Unknown) => false,
            Some(model) => (model == Preemption::RealTime) == published.real_time,
        };
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
        if let Some((kernel, word)) = self.unknown_words.first() {
            return Answer::Unknown(format!("{kernel} doesn't know the word {word}"));
        }
        if let (true, Some((_, why))) = (self.failed, self.page.failures.first()) {
            return Answer::Unknown(why.clone());
        }
        let count = |verdict| self.verdicts.iter().filter(|one| **one == verdict).count();
        match (count(Verdict::Pass), count(Verdict::Fail), self.verdicts.len()) {
            (passed, 0, all) if passed == all && all > 0 => Answer::Good,
            (0, failed, all) if failed == all && all > 0 => Answer::Bad,
            (passed, failed, all) if passed + failed == all => {
                Answer::Unknown(format!("the seeds disagree: {failed} of {all} fail"))
            }
            _ => Answer::Unknown(format!("the run was inconclusive: {}", self.undecided)),
        }
    }

    /// The weightiest verdict of all guests.
    fn verdict(&self) -> Verdict {
        self.verdicts.iter().copied().fold(Verdict::Measured, worst)
    }

    /// The worst latency of a kernel under a load, over the seeds.
    fn max_ns(&self, kernel: usize, load: &str) -> Option<u64> {
        let wanted = |entry: &&page::Entry| entry.kernel == kernel && entry.load == load;
        self.page.entries.iter().filter(wanted).map(|entry| entry.max_ns).max()
    }

    fn add(
        &mut self,
        plan: &Plan,
        item: &Item,
        outcome: Result<Outcome, LabError>,
    ) -> anyhow::Result<()> {
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
        record::keep_required(&outcome.folder, plan)?;
        let judged = record::open(&outcome.folder, &Terms::default())?;
        judged.publish(&outcome.folder)?;
        self.verdicts.push(judged.judgement.verdict);
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
        // Records of guests before there was such a file say nothing.
        let start = fs::read_to_string(outcome.folder.join(guest::START)).unwrap_or_default();
        let start: Option<Start> = serde_json::from_str(&start).ok();
        let warning = found
            .and_then(|found| preemption::warning(&cell.subject.append, found, start.as_ref()));
        if let Some(warning) = warning {
            self.warn(label, &warning);
        }
        if let Some(start) = start {
            self.tell_start(&cell.subject, &start);
        }
        let outcomes = judged.judgement.outcomes.iter();
        let broken = outcomes.filter(|one| one.figures_verdict == Verdict::Fail);
        let required = outcomes_of(&judged.judgement, label);
        required.for_each(|required| self.require(required));
        self.broken.extend(broken.map(|one| {
            let (load, asked) = (&one.name, &one.requirement);
            format!("{label} seed {}, {load}: {asked} is not met: {}", cell.seed, one.sentence)
        }));
        self.page.preemption[kernel] = found;
        let folder = outcome.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let cells = judged.judgement.cells.iter();
        let page = format!("{folder}/report.html");
        let entries = cells.filter_map(|summary| entry(summary, kernel, cell.seed, &page));
        self.page.entries.extend(entries);
        let (pairs, traces) = self.beside(item, judged, outcome, &folder);
        let document = export::json::document(&judged.judgement, &judged.record);
        let part = |key: &str| document.get(key).cloned();
        self.documents.push(json!({
            "kernel": cell.subject.label,
            "seed": cell.seed,
            "preemption": found,
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

    /// Tells what the guest found before it measured.
    fn tell_start(&mut self, subject: &Subject, start: &Start) {
        for word in subject.append.iter().filter(|word| start.unknown_words.contains(word)) {
            self.unknown_words.insert((subject.label.clone(), word.clone()));
            if preemption::asks_model(word) {
                continue;
            }
            self.warn(
                &subject.label,
                &format!("the kernel ignores {word}: it doesn't know the parameter or its value"),
            );
        }
        if let Some(said) = start.sentence() {
            if start.at_rest {
                let fact = (format!("{}, start", subject.label), format!("each guest {said}"));
                let is_known = self.page.facts.iter().any(|(name, _)| *name == fact.0);
                self.page.facts.extend((!is_known).then_some(fact));
            } else {
                self.warn(&subject.label, &format!("a guest {said}"));
            }
        }
    }

    fn warn(&mut self, label: &str, warning: &str) {
        let warning = format!("{label}: {warning}");
        if !self.page.warnings.contains(&warning) {
            self.page.warnings.push(warning);
        }
    }

    /// Takes in what became of a requirement with another seed: the weightiest verdict stays.
    fn require(&mut self, new: page::Required) {
        let is_same = |one: &&mut page::Required| {
            (&one.kernel, &one.load, &one.requirement) == (&new.kernel, &new.load, &new.requirement)
        };
        match self.page.required.iter_mut().find(is_same) {
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
                        pairs.push(publish::pair_document(&pair));
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
}

/// The kernels as they were asked for, each once.
fn labels(items: &[Item]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for item in items {
        if !labels.contains(&item.cell.subject.label) {
            labels.push(item.cell.subject.label.clone());
        }
    }
    labels
}

/// What was required of a kernel in one record.
fn outcomes_of(judgement: &Judgement, kernel: &str) -> impl Iterator<Item = page::Required> {
    judgement.outcomes.iter().map(move |one| page::Required {
        kernel: kernel.to_owned(),
        load: one.name.clone(),
        requirement: one.requirement.to_string(),
        verdict: one.verdict,
        seen: one.explanation(),
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

/// What a kernel showed in a cell; none without a wake-up.
fn entry(summary: &CellSummary, kernel: usize, seed: u64, page: &str) -> Option<page::Entry> {
    let histogram = &summary.all.histogram;
    let p99_9_ns = histogram.at_rank_ns(quantile::rank(histogram.count(), P99_9))?;
    let max_ns = histogram.max_ns()?;
    Some(page::Entry {
        kernel,
        load: summary.name.clone(),
        seed,
        p99_9_ns: p99_9_ns.min(max_ns),
        max_ns,
        recorded: summary.all.recorded,
        missed: summary.all.missed,
        histogram: histogram.clone(),
        page: page.to_owned(),
    })
}

/// A phase's name, and what runs beside the sampler in it.
fn load_line(phase: &Phase) -> (String, String) {
    let lines: Vec<String> = phase.loads.iter().map(ToString::to_string).collect();
    (phase.name.clone(), lines.join(" + "))
}

/// What the page says of the kernels, and of what all guests share.
pub(super) fn facts(items: &[Item]) -> Vec<(String, String)> {
    let mut facts: Vec<(String, String)> = Vec::new();
    for item in items {
        let subject = &item.cell.subject;
        let release = subject.release.as_deref().unwrap_or("unknown release");
        let asked = match subject.label == subject.asked {
            true => String::new(),
            false => format!("{}, ", subject.asked),
        };
        let value = format!("{asked}{release}, sha256 {}", subject.kernel_sha256);
        let fact = (subject.label.clone(), value);
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
