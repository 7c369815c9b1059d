//! From the judged records of many guests to one comparison.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use rtscope_model::{
    environment::Preemption,
    guest::{self, Cost, GuestStart, Timing, Tracer},
    plan::{Phase, Plan},
    published::Published,
    record::Record,
    verdict::{Statistic, Verdict},
};
use serde_json::{Value, json};

use super::{
    Entry, KernelRequirement, LabComparison,
    beside::{Buckets, PhaseByBoth},
    preemption,
};
use crate::{
    Judgement,
    judgement::CellSummary,
    number::us,
    report::published::{Ours, beside, of_cells},
    statistics::quantile,
    verdict_document,
};

/// The 99.9th percentile, in parts of a billion.
const P99_9: u32 = 999_000_000;

#[derive(Clone, Copy, Debug)]
pub struct ComparedGuest<'a> {
    /// What its kernel is called: no two kernels are called the same.
    pub kernel: &'a str,
    pub seed: u64,
    /// What its plan is called: the plan of all, or a phase of it.
    pub plan: &'a str,
    /// Words of the kernel command line that were asked for.
    pub words: &'a [String],
}

impl ComparedGuest<'_> {
    fn name(&self) -> String {
        format!("{} seed {} {}", self.kernel, self.seed, self.plan)
    }
}

/// What a guest brought.
#[derive(Debug)]
pub struct GuestRecord<'a> {
    pub record: &'a Record,
    /// What that says.
    pub judgement: &'a Judgement,
    /// The record's folder below the page's.
    pub folder: String,
    /// What the guest found before it measured, where it tells.
    pub start: Option<GuestStart>,
    /// What it could not do beside its plan; none when it could do all.
    pub failures: Option<Vec<String>>,
    /// What cyclictest and the kernel's tracers wrote, by the names of [`guest::phase_file`].
    pub phase_files: BTreeMap<String, String>,
    /// What the run was made of.
    pub inputs: Value,
    /// How the kernel that ran was recognised: for the document, and in words.
    pub verification: Option<(Value, String)>,
}

/// What came of all guests.
#[derive(Clone, Debug)]
pub struct Collected {
    /// What the page shows.
    pub page: LabComparison,
    pub(super) documents: Vec<Value>,
    /// What the plan publishes, and what stands beside it.
    published: Vec<Published>,
    ours: Vec<Ours>,
    /// Requirements that are not met: in which kernel and cell, and what was seen.
    pub(super) broken: Vec<String>,
    /// The verdict of each guest that brought a record.
    verdicts: Vec<Verdict>,
    /// Words of the kernel command line that a kernel doesn't know: its name and the word.
    unknown_words: BTreeSet<(String, String)>,
    /// Why the last inconclusive run was so.
    undecided: String,
    not_begun: u32,
    failed: bool,
}

impl Collected {
    /// A comparison of these guests, of which nothing is known yet. `facts` are what is told of their kernels, and
    /// of what all guests share.
    #[must_use]
    pub fn new(
        plan: &Plan,
        timing: Timing,
        guests: &[ComparedGuest<'_>],
        facts: Vec<(String, String)>,
    ) -> Collected {
        let mut all = Collected {
            page: LabComparison {
                plan: plan.name.clone(),
                title: plan.title.clone(),
                time: timing,
                preemption: Vec::new(),
                kernels: Vec::new(),
                loads: plan.phases.iter().map(|phase| phase.name.clone()).collect(),
                load_lines: plan.phases.iter().map(load_line).collect(),
                seeds: guests.iter().map(|guest| guest.seed).collect::<BTreeSet<_>>().len(),
                unreached: Vec::new(),
                facts,
                warnings: Vec::new(),
                entries: Vec::new(),
                required: Vec::new(),
                failures: Vec::new(),
                published: Vec::new(),
                beside: Vec::new(),
                traces: Vec::new(),
                causes: Vec::new(),
            },
            documents: Vec::new(),
            published: plan.published.clone(),
            ours: Vec::new(),
            broken: Vec::new(),
            verdicts: Vec::new(),
            unknown_words: BTreeSet::new(),
            undecided: String::new(),
            not_begun: 0,
            failed: false,
        };
        for guest in guests {
            all.kernel(guest.kernel);
        }
        all
    }

    /// Index of a kernel by what it is called; one that wasn't named before comes after the others.
    fn kernel(&mut self, label: &str) -> usize {
        let known = self.page.kernels.iter().position(|known| known == label);
        known.unwrap_or_else(|| {
            self.page.kernels.push(label.to_owned());
            self.page.preemption.push(None);
            self.page.kernels.len() - 1
        })
    }

    /// Takes in a guest that brought nothing, or not what was asked for, and why.
    pub fn add_failure(&mut self, guest: &ComparedGuest<'_>, why: &str) {
        self.document_without(guest, why);
        self.page.failures.push((guest.name(), why.to_owned()));
    }

    /// Takes in a guest that was not begun, and why.
    pub fn add_not_begun(&mut self, guest: &ComparedGuest<'_>, why: &str) {
        self.add_unreached(guest);
        self.not_begun += 1;
        self.document_without(guest, why);
    }

    /// Takes note that an interruption left a guest no time.
    pub fn add_unreached(&mut self, guest: &ComparedGuest<'_>) {
        let kernel = self.kernel(guest.kernel);
        let is_all = guest.plan == self.page.plan;
        let loads = self.page.loads.iter().filter(|load| is_all || **load == guest.plan);
        let loads: Vec<_> = loads.map(|load| (kernel, load.clone())).collect();
        self.page.unreached.extend(loads);
    }

    /// Notes in the document that a guest brought no record.
    fn document_without(&mut self, guest: &ComparedGuest<'_>, why: &str) {
        self.documents.push(json!({
            "kernel": guest.kernel,
            "seed": guest.seed,
            "cells": [],
            "failed": why,
        }));
        self.failed = true;
    }

    /// Takes in what a guest brought.
    pub fn add(&mut self, guest: &ComparedGuest<'_>, from: &GuestRecord<'_>) {
        let (label, judgement) = (guest.kernel, from.judgement);
        self.verdicts.push(judgement.verdict);
        if judgement.verdict == Verdict::Inconclusive {
            self.undecided = judgement.reasons.join("; ");
        }
        let kernel = self.kernel(label);
        let found = from.record.before.as_ref().map(|found| found.kernel.preemption);
        let start = from.start.as_ref();
        let warning = found.and_then(|found| preemption::warning(guest.words, found, start));
        if let Some(warning) = warning {
            self.warn(label, &warning);
        }
        if let Some(start) = start {
            self.add_start(guest, start);
        }
        required(judgement, label).for_each(|required| self.require(required));
        let broken = judgement.outcomes.iter();
        let broken = broken.filter(|one| one.figures_verdict == Verdict::Fail);
        self.broken.extend(broken.map(|one| {
            let (load, asked) = (&one.name, &one.requirement);
            format!("{label} seed {}, {load}: {asked} is not met: {}", guest.seed, one.sentence)
        }));
        self.page.preemption[kernel] = found;
        self.ours.extend(of_cells(from.record, judgement, label, &self.published));
        let page = format!("{}/report.html", from.folder);
        let cells = judgement.cells.iter();
        let entries = cells.filter_map(|summary| entry(summary, kernel, guest.seed, &page));
        self.page.entries.extend(entries);
        self.add_document(guest, from, found);
        let seen = format!("{label}, running");
        if let Some((_, text)) = &from.verification
            && !self.page.facts.iter().any(|(name, _)| *name == seen)
        {
            self.page.facts.push((seen, text.clone()));
        }
    }

    fn add_document(
        &mut self,
        guest: &ComparedGuest<'_>,
        from: &GuestRecord<'_>,
        found: Option<Preemption>,
    ) {
        let (pairs, traces) = self.add_beside(guest, from);
        let document = verdict_document::document(from.judgement, from.record);
        let part = |key: &str| document.get(key).cloned();
        self.documents.push(json!({
            "kernel": guest.kernel,
            "seed": guest.seed,
            "preemption": found,
            "start": from.start,
            "verdict": part("verdict"),
            "reasons": part("reasons"),
            "cells": part("cells"),
            "record": from.folder,
            "inputs": from.inputs,
            "cyclictest": pairs,
            "traces": traces,
            "verification": from.verification.as_ref().map(|(document, _)| document),
        }));
    }

    /// Tells what the guest found before it measured.
    fn add_start(&mut self, guest: &ComparedGuest<'_>, start: &GuestStart) {
        for word in guest.words.iter().filter(|word| start.unknown_words.contains(word)) {
            self.unknown_words.insert((guest.kernel.to_owned(), word.clone()));
            if preemption::asks_model(word) {
                continue;
            }
            self.warn(
                guest.kernel,
                &format!("the kernel ignores {word}: it doesn't know the parameter or its value"),
            );
        }
        if let Some(said) = start.sentence() {
            if start.at_rest {
                let fact = (format!("{}, start", guest.kernel), format!("each guest {said}"));
                let is_known = self.page.facts.iter().any(|(name, _)| *name == fact.0);
                self.page.facts.extend((!is_known).then_some(fact));
            } else {
                self.warn(guest.kernel, &format!("a guest {said}"));
            }
        }
    }

    fn warn(&mut self, label: &str, warning: &str) {
        let warning = format!("{label}: {warning}");
        if !self.page.warnings.contains(&warning) {
            self.page.warnings.push(warning);
        }
    }

    /// Takes in what became of a requirement with another seed: the weightiest verdict stays, and the worst figure
    /// of several seeds with that verdict.
    fn require(&mut self, new: KernelRequirement) {
        let is_same = |one: &&mut KernelRequirement| {
            (&one.kernel, &one.load, &one.requirement) == (&new.kernel, &new.load, &new.requirement)
        };
        match self.page.required.iter_mut().find(is_same) {
            Some(known) if known.verdict == new.verdict => {
                if new.figure > known.figure {
                    *known = new;
                }
            }
            Some(known) if Verdict::worst([known.verdict, new.verdict]) == Some(new.verdict) => {
                *known = new;
            }
            Some(_) => {}
            None => self.page.required.push(new),
        }
    }

    /// What the guest did beside the plan: cyclictest's histograms beside ours, and traces.
    fn add_beside(
        &mut self,
        guest: &ComparedGuest<'_>,
        from: &GuestRecord<'_>,
    ) -> (Vec<Value>, Vec<Value>) {
        let (mut pairs, mut traces) = (Vec::new(), Vec::new());
        for (index, summary) in from.judgement.cells.iter().enumerate() {
            let file = |kind| guest::phase_file(kind, index);
            let read = |name: &str| from.phase_files.get(name);
            let what = format!("{}, {}, seed {}", guest.kernel, summary.name, guest.seed);
            match read(&file(guest::THEIRS)).map(|text| pair(guest, summary, text)) {
                Some(Ok(pair)) => {
                    pairs.push(pair.document());
                    self.page.beside.push(pair);
                }
                Some(Err(why)) => self.page.failures.push((what.clone(), why)),
                None => {}
            }
            for tracer in [Tracer::Osnoise, Tracer::Timerlat] {
                let name = file(tracer.name());
                let Some(text) = read(&name) else { continue };
                let worst = worst_timer_latencies(text);
                let mut said = tracer.to_string();
                for (context, ns) in &worst {
                    let _ = write!(said, ", worst {context} latency {} us", us(*ns));
                }
                traces.push(json!({
                    "cell": summary.name, "tracer": tracer, "file": name, "worst_ns": worst,
                }));
                self.page.traces.push((what.clone(), said, format!("{}/{name}", from.folder)));
            }
        }
        if let Some(failures) = &from.failures {
            let whose = format!("{} seed {}", guest.kernel, guest.seed);
            let failures = failures.iter().map(|line| (whose.clone(), line.clone()));
            self.page.failures.extend(failures);
            self.failed = true;
        }
        (pairs, traces)
    }

    /// The comparison, when all guests are taken in: how many were not begun, and the plan's published figures
    /// beside ours.
    #[must_use]
    pub fn finish(mut self) -> Collected {
        if self.not_begun > 0 {
            self.page.failures.push((
                format!("guests that were not started: {}", self.not_begun),
                "not reached: the lab was interrupted before. The same command with the same --out continues"
                    .to_owned(),
            ));
        }
        self.page.published = beside(&self.published, &self.ours);
        self
    }

    /// Whether a guest brought no whole record of the kernel that was asked for.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Whether the kernel meets what is required with every seed, or with none.
    ///
    /// # Errors
    ///
    /// Why neither can be said.
    pub fn is_met(&self) -> Result<bool, String> {
        if let Some((kernel, word)) = self.unknown_words.first() {
            return Err(format!(
                "{kernel} doesn't know the kernel parameter {word} (leave it out)"
            ));
        }
        if let (true, Some((_, why))) = (self.failed, self.page.failures.first()) {
            return Err(why.clone());
        }
        let count = |verdict| self.verdicts.iter().filter(|one| **one == verdict).count();
        match (count(Verdict::Pass), count(Verdict::Fail), self.verdicts.len()) {
            (passed, 0, all) if passed == all && all > 0 => Ok(true),
            (0, failed, all) if failed == all && all > 0 => Ok(false),
            (passed, failed, all) if passed + failed == all => {
                Err(format!("the seeds disagree: {failed} of {all} fail"))
            }
            _ => Err(format!("the run was inconclusive: {}", self.undecided)),
        }
    }

    /// The weightiest verdict of all guests.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict::worst(self.verdicts.iter().copied()).unwrap_or(Verdict::Measured)
    }
}

/// cyclictest's histogram of a cell beside ours.
fn pair(
    guest: &ComparedGuest<'_>,
    summary: &CellSummary,
    text: &str,
) -> Result<PhaseByBoth, String> {
    Ok(PhaseByBoth {
        kernel: guest.kernel.to_owned(),
        load: summary.name.clone(),
        seed: guest.seed,
        ours: Buckets::of_histogram(&summary.all.histogram),
        theirs: Buckets::of_cyclictest(text)?,
        our_cost: Cost::find(text, guest::OURS),
        their_cost: Cost::find(text, guest::THEIRS),
    })
}

/// What was required of a kernel in one record.
fn required(judgement: &Judgement, kernel: &str) -> impl Iterator<Item = KernelRequirement> {
    judgement.outcomes.iter().map(move |one| KernelRequirement {
        kernel: kernel.to_owned(),
        load: one.name.clone(),
        requirement: one.requirement.to_string(),
        verdict: one.verdict,
        seen: one.explanation(),
        figure: judgement.cells.iter().find(|cell| cell.cell == one.cell).and_then(
            |cell| match one.requirement.statistic {
                Statistic::Missed => Some(cell.all.missed),
                statistic => quantile::statistic_ns(&cell.all.corrected, statistic),
            },
        ),
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

/// What a kernel showed in a cell; none without a wake-up. As in a requirement, missed activations are latencies, too:
/// without them a kernel whose wake-ups are so late that they swallow others would look better than it is.
fn entry(summary: &CellSummary, kernel: usize, seed: u64, page: &str) -> Option<Entry> {
    let histogram = &summary.all.corrected;
    let p99_9_ns = histogram.at_rank_ns(quantile::rank(histogram.count(), P99_9))?;
    let max_ns = histogram.max_ns()?;
    Some(Entry {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{judge, test_support::Run};

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
    fn the_worst_figure_of_all_seeds_stands_beside_the_verdict() {
        let text =
            "name = 'p'\n[[phase]]\nname = 'rest'\nduration = '1s'\nrequire = ['max < 50us']";
        let plan = rtscope_model::plan::parse("p", text).expect("a plan");
        let seen = |maxima_us: &[u64]| {
            let guest = |seed| ComparedGuest { kernel: "rt", seed, plan: "p", words: &[] };
            let mut all = Collected::new(&plan, Timing::Wall, &[], Vec::new());
            for (seed, max_us) in (1..).zip(maxima_us) {
                let record = Run::new(text, 1).cell(0, &[&[9_000, max_us * 1_000]]).end().record();
                let from = GuestRecord {
                    record: &record,
                    judgement: &judge(&record, &[]),
                    folder: String::new(),
                    start: None,
                    failures: None,
                    phase_files: BTreeMap::new(),
                    inputs: Value::Null,
                    verification: None,
                };
                all.add(&guest(seed), &from);
            }
            assert_eq!(all.page.required.len(), 1);
            all.document()["requirements"][0]["seen"].as_str().expect("a text").to_owned()
        };
        for (maxima_us, worst) in [([60, 90, 70], 90), ([30, 60, 40], 60), ([20, 30, 40], 40)] {
            let said = seen(&maxima_us);
            assert!(said.starts_with(&format!("the maximum is {worst}.000 us")), "{said}");
        }
    }

    #[test]
    fn the_table_counts_missed_activations_as_a_requirement_does() {
        let text =
            "name = 'p'\n[[phase]]\nname = 'rest'\nduration = '2s'\nrequire = ['p99.9 < 4ms']";
        // One of 2,000 wake-ups is five intervals late: of the 1,995 that ran, it alone is above the percentile.
        let mut latencies = vec![9_000; 1_995];
        latencies[500] = 5_010_000;
        let record = Run::new(text, 1).cell(0, &[&latencies]).end().record();
        let judgement = judge(&record, &[]);
        let summary = &judgement.cells[0];
        assert_eq!((summary.all.recorded, summary.all.missed), (1_995, 5));
        let entry = entry(summary, 0, 1, "").expect("wake-ups");
        let required = required(&judgement, "rt").next().expect("a requirement");
        assert_eq!(Some(entry.p99_9_ns), required.figure);
        assert!((3_000_000..3_100_000).contains(&entry.p99_9_ns), "{}", entry.p99_9_ns);
    }

    #[test]
    fn the_weightiest_verdict_counts() {
        use Verdict::*;
        assert_eq!(Verdict::worst([Measured, Pass]), Some(Pass));
        assert_eq!(Verdict::worst([Fail, Inconclusive]), Some(Fail));
        assert_eq!(Verdict::worst([Pass, Inconclusive]), Some(Inconclusive));
    }
}
