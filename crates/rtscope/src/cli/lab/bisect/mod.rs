//! `rtscope lab bisect`: which change broke a latency.

mod axis;

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};

use anyhow::Context;
use rtscope_lab::{
    bisect::{self, Answer, Found},
    build::{self, Choice},
    digest::key_of,
    error::LabError,
    queue::Item,
    source,
    spec::{self, Source, Spec},
    subject::{Asked, Expected, check_labels},
};
use rtscope_model::plan::Plan;
use serde_json::{Value, json};

use super::{
    compare::Comparison,
    order::{self, Lab, say},
    output,
};
use crate::{
    cli::{Refused, print, shape},
    exit, plans,
};

/// Find the change that broke a latency
///
/// Name a kernel that meets the requirement and one that doesn't. They may differ in words of the kernel command
/// line, in options of the configuration, in a series of kernels, or in commits of a git tree. The search runs the
/// plan in as few kernels as it can. It builds kernels if it has to, and keeps them. Without a plan it runs
/// `lab-quick`. It takes the options of `rtscope run` that shape the plan.
///
/// Examples:
///   rtscope lab bisect --good debian-stock:preempt=full \
///     --bad debian-stock:preempt=none:nohz=off --require 'max < 300us'
///   rtscope lab bisect --good tiny-6.12-rt --bad tiny-6.12-dynamic -r 'max < 50us'
///   rtscope lab bisect lab-matrix --cycles 500 --good debian-rt \
///     --through debian-cloud --bad debian-stock --require 'max < 50us'
///   rtscope lab bisect --good A --through B --through C --bad D -r 'p99.9 < 50us'
///   rtscope lab bisect --tree linux --spec my-kernel.toml \
///     --good v6.12 --bad v6.13 --require 'max < 50us'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// A shipped plan's name, or a file [default: lab-quick]
    plan: Option<String>,
    /// Kernel that meets the requirement, as for `lab run`; with --tree a commit
    #[arg(long, value_name = "KERNEL")]
    good: String,
    /// Kernel that doesn't meet the requirement; with --tree a commit
    #[arg(long, value_name = "KERNEL")]
    bad: String,
    /// Kernel between the two, in their order; repeatable
    #[arg(long, value_name = "KERNEL", conflicts_with = "tree")]
    through: Vec<String>,
    /// Git tree of the kernel's source; rtscope doesn't change it
    #[arg(long, value_name = "DIR", requires = "spec")]
    tree: Option<PathBuf>,
    /// Configure and build the commits in this way: a kernel's name, or the file of a spec
    #[arg(long, value_name = "KERNEL", requires = "tree")]
    spec: Option<String>,
    #[command(flatten)]
    judging: order::Judging,
    #[command(flatten)]
    options: order::Options,
    #[command(flatten)]
    shape: shape::Shape,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.shape.guest_plan(args.plan.as_deref(), plans::DEFAULT_LAB)?;
    if plan.require.is_empty() {
        let text = "what is a bad kernel? Name a requirement, as --require 'p99 < 80us'";
        return Err(Refused(text.to_owned()).into());
    }
    let lab = Lab::open(&args.options)?;
    let out = output::empty(args.judging.out.as_ref(), "bisect")?;
    let mut search = Search {
        lab,
        plan,
        seeds: args.judging.seeds.unwrap_or(SEEDS),
        out,
        known: BTreeMap::new(),
        steps: Vec::new(),
    };
    let (what, found) = search.find(args)?;
    search.publish(args, what, &found)
}

/// What the search found, in words, and whether some of it may be innocent.
struct Culprit {
    changes: Vec<String>,
    vague: bool,
}

/// How many replicas of each kernel, unless the user says otherwise.
const SEEDS: u64 = 5;

/// Chance that, of two kernels that don't differ, all seeds of the one meet a requirement and all of the other
/// fail it: of all ways in which as many passes as failures may fall on both, one is that.
fn chance(seeds: u64) -> f64 {
    // 1 / (2n choose n).
    (1..=seeds).map(|k| k as f64 / (seeds + k) as f64).product()
}

/// Which end of a search has these of all changes: 0 the good one, 1 the bad one.
fn is_end(applied: &[usize], all: usize) -> Option<usize> {
    match applied.len() {
        0 => Some(0),
        count if count == all => Some(1),
        _ => None,
    }
}

/// A search and what it has judged.
struct Search {
    lab: Lab,
    plan: Plan,
    seeds: u64,
    out: PathBuf,
    /// Answers by what was asked: nothing is run twice.
    known: BTreeMap<String, Answer>,
    steps: Vec<Value>,
}

impl Search {
    /// What the changes are, and which of them it was.
    fn find(&mut self, args: &Args) -> anyhow::Result<(&'static str, Culprit)> {
        if let (Some(tree), Some(spec)) = (&args.tree, &args.spec) {
            return Ok(("commits", self.commits(tree, &spec::find(spec)?, args)?));
        }
        let kernels = [&args.good].into_iter().chain(&args.through).chain([&args.bad]);
        check_labels(&kernels.cloned().collect::<Vec<_>>())?;
        if !args.through.is_empty() {
            return Ok(("kernels", self.row(args)?));
        }
        let (good, bad) = (Asked::parse(&args.good)?, Asked::parse(&args.bad)?);
        let ends = [good.called(&args.good), bad.called(&args.bad)];
        if good.name == bad.name {
            return Ok(("words", self.words(&good, &bad, ends)?));
        }
        match (spec::find(good.name), spec::find(bad.name)) {
            (Ok(a), Ok(b)) if good.words == bad.words => {
                Ok(("options", self.options(&a, &b, &good.words, ends)?))
            }
            _ => Err(Refused(format!(
                "between {} and {} there is nothing to search: name kernels between them by \
                 --through, two kernels of one name with other words, two that `rtscope kernel list` \
                 can make with the same words, or commits by --tree",
                good.name, bad.name
            ))
            .into()),
        }
    }

    fn words(
        &mut self,
        good: &Asked<'_>,
        bad: &Asked<'_>,
        ends: [&str; 2],
    ) -> anyhow::Result<Culprit> {
        let changes = axis::word_changes(&good.words, &bad.words);
        let kernel = |applied: &[usize]| {
            let words = axis::with_words(&good.words, &changes, applied);
            std::iter::once(good.name.to_owned()).chain(words).collect::<Vec<_>>().join(":")
        };
        let texts = changes.iter().map(axis::WordChange::text).collect::<Vec<_>>();
        self.culprits(&texts, &mut |search, applied| {
            let end = is_end(applied, texts.len()).map(|end| ends[end]);
            search.judge(&kernel(applied), end)
        })
    }

    fn options(
        &mut self,
        good: &Spec,
        bad: &Spec,
        words: &[String],
        ends: [&str; 2],
    ) -> anyhow::Result<Culprit> {
        let changes = axis::option_changes(good, bad)?;
        let texts = changes.iter().map(axis::OptionChange::text).collect::<Vec<_>>();
        self.culprits(&texts, &mut |search, applied| {
            let title = match is_end(applied, texts.len()) {
                Some(end) => ends[end].to_owned(),
                None => format!("{} with {} of {}", good.name, applied.len(), texts.len()),
            };
            let spec = axis::with_options(good, &changes, applied);
            search.built(&spec, words, &title)
        })
    }

    /// Searches changes that can be applied one by one.
    fn culprits(
        &mut self,
        texts: &[String],
        judge: &mut dyn FnMut(&mut Search, &[usize]) -> anyhow::Result<Answer>,
    ) -> anyhow::Result<Culprit> {
        let all: Vec<usize> = (0..texts.len()).collect();
        let good = judge(self, &[])?;
        let bad = judge(self, &all)?;
        self.check_ends(&good, &bad)?;
        let Found { changes, vague } =
            bisect::culprits(texts.len(), &mut |applied| judge(self, applied))?;
        Ok(Culprit { changes: changes.iter().map(|at| texts[*at].clone()).collect(), vague })
    }

    fn row(&mut self, args: &Args) -> anyhow::Result<Culprit> {
        let row: Vec<String> =
            [&args.good].into_iter().chain(&args.through).chain([&args.bad]).cloned().collect();
        self.lab.check_named(&row)?;
        let good = self.judge(&row[0], None)?;
        let bad = self.judge(&row[row.len() - 1], None)?;
        self.check_ends(&good, &bad)?;
        let (good, bad) = bisect::first_bad(row.len() - 1, &mut |at| self.judge(&row[at], None))?;
        let called = |at: usize| Asked::parse(&row[at]).map(|kernel| kernel.called(&row[at]));
        let text = format!("between {} and {}", called(good)?, called(bad)?);
        Ok(Culprit { changes: vec![text], vague: bad - good > 1 })
    }

    fn commits(
        &mut self,
        tree: &std::path::Path,
        spec: &Spec,
        args: &Args,
    ) -> anyhow::Result<Culprit> {
        let place = key_of(&[("tree", tree.as_os_str().as_encoded_bytes())]);
        let place = self.lab.cache().root().join("bisect").join(place);
        std::fs::create_dir_all(place.parent().unwrap_or(&place))
            .with_context(|| format!("can't make {}", place.display()))?;
        let mut spec = spec.clone();
        spec.source = Source::Folder { path: place.clone() };
        spec.name = format!("{}-bisect", spec.name);
        let mut judge = |commit: &str| -> anyhow::Result<Answer> {
            let title = bisect::in_words(tree, commit)?;
            bisect::check_out(tree, commit, &place)?;
            self.built(&spec, &[], &title)
        };
        let ends = [&args.good, &args.bad].map(|name| bisect::commit(tree, name));
        let [good, bad] = ends;
        let (good, bad) = (judge(&good?)?, judge(&bad?)?);
        self.check_ends(&good, &bad)?;
        let mut broken = None;
        let found = bisect::first_bad_commit(tree, &args.good, &args.bad, &mut |commit| {
            let title = bisect::in_words(tree, commit)?;
            bisect::check_out(tree, commit, &place)?;
            self.built(&spec, &[], &title).map_err(|e| {
                let text = crate::cli::said(&e);
                broken = Some(e);
                LabError::Refused(text)
            })
        });
        if let Some(e) = broken {
            return Err(e);
        }
        let (commit, may_be) = found?;
        let all = std::iter::once(&commit).chain(&may_be);
        let changes = all.map(|name| bisect::in_words(tree, name)).collect::<Result<_, _>>()?;
        Ok(Culprit { changes, vague: !may_be.is_empty() })
    }

    /// The search makes sense only between a good end and a bad one.
    fn check_ends(&self, good: &Answer, bad: &Answer) -> anyhow::Result<()> {
        let wrong = |end: &str, answer: &Answer, is: &str| {
            let why = match answer {
                Answer::Unknown(why) => format!("can't be judged: {why}"),
                _ => format!("is {is}"),
            };
            Refused(format!(
                "the {end} kernel {why}; nothing can be searched. The records are in {}",
                self.out.display()
            ))
        };
        match (good, bad) {
            (Answer::Good, Answer::Bad) => Ok(()),
            (Answer::Good, _) => Err(wrong("bad", bad, "good").into()),
            _ => Err(wrong("good", good, "bad").into()),
        }
    }

    /// Builds a kernel where it isn't kept, and judges it. One that doesn't build can't be judged.
    fn built(&mut self, spec: &Spec, words: &[String], title: &str) -> anyhow::Result<Answer> {
        let cache = self.lab.cache().clone();
        let (label, arch) = (spec.name.clone(), spec.arch.clone());
        self.lab.check(&[Expected { label, arch, is_prebuilt: false, is_fetched: false }])?;
        let fetched = source::fetch(spec, &cache, None, &mut say)?;
        let jobs = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let choice = Choice { jobs, lost_too: true };
        let kernel = build::built_already(spec, &fetched, &cache).and_then(|kept| match kept {
            Some(kernel) => Ok(kernel),
            None => {
                let prepared = build::prepare(spec, &fetched, &cache, false, false, &mut say)?;
                build::build(spec, &prepared, &cache, choice, &mut say)
            }
        });
        self.lab.check_interrupted()?;
        let kernel = match kernel {
            Ok(kernel) => kernel,
            Err(e @ LabError::Build { .. }) => {
                let why = e.to_string().lines().next().unwrap_or_default().to_owned();
                return Ok(self.note(title, Answer::Unknown(why), &[]));
            }
            Err(e) => return Err(e.into()),
        };
        let name = std::iter::once(kernel.manifest.key).chain(words.iter().cloned());
        self.judge(&name.collect::<Vec<_>>().join(":"), Some(title))
    }

    /// Runs the plan in a kernel: good when every seed meets the requirement, bad when every seed fails it.
    fn judge(&mut self, kernel: &str, title: Option<&str>) -> anyhow::Result<Answer> {
        if let Some(known) = self.known.get(kernel) {
            return Ok(known.clone());
        }
        let mut subject = self.lab.subjects(&[kernel.to_owned()])?.remove(0);
        let title = title.unwrap_or(&subject.label).to_owned();
        subject.label.clone_from(&title);
        let number = self.known.len() + 1;
        let mut items = Vec::new();
        for seed in 1..=self.seeds {
            let cell = self.lab.cell(&subject, &self.plan, seed)?;
            let name = format!("{number:02}-{}-seed{seed}", output::safe(&title));
            items.push(Item { cell, folder: self.out.join(name) });
        }
        let outcomes = self.lab.run(&items)?;
        self.lab.check_interrupted()?;
        let comparison = Comparison::of(&self.plan, self.lab.timing(), &items, outcomes)?;
        let answer = comparison.answer();
        self.known.insert(kernel.to_owned(), answer.clone());
        let folders: Vec<String> = items
            .iter()
            .filter_map(|item| Some(item.folder.file_name()?.to_string_lossy().into_owned()))
            .collect();
        Ok(self.note(&title, answer, &folders))
    }

    /// Notes a step and tells it.
    fn note(&mut self, what: &str, answer: Answer, records: &[String]) -> Answer {
        let (word, why) = match &answer {
            Answer::Good => ("good", None),
            Answer::Bad => ("bad", None),
            Answer::Unknown(why) => ("unknown", Some(why.clone())),
        };
        let told = why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        note!("step {}: {what} is {word}{told}", self.steps.len() + 1);
        self.steps.push(json!({ "kernel": what, "answer": word, "why": why, "records": records }));
        answer
    }

    fn publish(&self, args: &Args, what: &str, found: &Culprit) -> anyhow::Result<ExitCode> {
        let document = json!({
            "format": 1,
            "plan": self.plan.name,
            "require": args.shape.require().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "good": args.good,
            "bad": args.bad,
            "between": what,
            "steps": self.steps,
            "found": found.changes,
            "vague": found.vague,
            "seeds": self.seeds,
            "chance": chance(self.seeds),
        });
        let text = serde_json::to_string_pretty(&document)? + "\n";
        let path = self.out.join("bisect.json");
        rtscope_measure::recorder::write_whole(&path, text.as_bytes())
            .with_context(|| format!("can't write {}", path.display()))?;
        if args.judging.json {
            print(&text)?;
            return Ok(ExitCode::from(exit::PASS));
        }
        let head = match (found.vague, found.changes.len()) {
            (true, _) => "one of these broke it; the kernels between them could not be judged:",
            (false, 1) => "this broke it:",
            (false, _) => "these broke it together:",
        };
        let seeds = self.seeds;
        print(&format!(
            "{head}\n  {}\n\n{seeds} seeds passed in the good kernel, and {seeds} failed in the bad one: kernels that \
             don't differ show that in {:.1} % of cases.\n{} kernels were run; the steps: {}\n",
            found.changes.join("\n  "),
            100.0 * chance(self.seeds),
            self.known.len(),
            path.display()
        ))?;
        Ok(ExitCode::from(exit::PASS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_kernels_fall_apart_by_seeds_as_rarely_as_combinatorics_says() {
        assert_eq!(chance(1), 0.5);
        assert!((chance(3) - 1.0 / 20.0).abs() < 1e-12);
        assert!((chance(5) - 1.0 / 252.0).abs() < 1e-12);
    }
}
