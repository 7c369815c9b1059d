//! The search for what broke a latency, from the two ends that the user names to the change: which kernels lie
//! between them, and what each of them showed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
};

use rtscope_model::plan::Plan;
use serde::Serialize;

use super::{Answer, FoundChanges, axis};
use crate::{
    build::{self, BuildChoice},
    cache::Cache,
    digest::key_of,
    error::LabError,
    kernel_ref::{KernelRef, check_labels},
    kernel_under_test::ExpectedKernel,
    lab::{Host, Lab, Outcomes},
    queue::QueuedRun,
    record_folders::{self, FolderLock},
    source,
    spec::{self, Spec, SpecSource},
};

/// Between what the user lets search.
#[derive(Clone, Debug)]
pub struct Ends<'a> {
    /// A kernel that meets what is required, or a commit.
    pub good: &'a str,
    /// A kernel that doesn't, or a commit.
    pub bad: &'a str,
    /// Kernels between the two.
    pub through: &'a [String],
    /// A git tree, and how its commits are configured.
    pub tree: Option<(&'a Path, &'a str)>,
}

/// What the search found, in words.
#[derive(Clone, Debug)]
pub struct BisectionFinding {
    /// What lies between the two ends.
    pub between: &'static str,
    pub changes: Vec<String>,
    /// Whether some of them may be innocent.
    pub vague: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct JudgedKernel {
    kernel: String,
    answer: &'static str,
    why: Option<String>,
    records: Vec<String>,
}

/// Judges what came of the guests of one kernel.
pub type Judge<'a, E> = &'a mut dyn FnMut(&[QueuedRun], Outcomes) -> Result<Answer, E>;

/// A search and what it has judged.
#[expect(missing_debug_implementations, reason = "holds functions, which show nothing")]
pub struct Bisection<'a, E> {
    lab: Lab,
    host: &'a Host<'a>,
    plan: &'a Plan,
    seeds: u64,
    out: PathBuf,
    judge: Judge<'a, E>,
    /// Answers by kernel: nothing is run twice.
    known: BTreeMap<KernelRef, Answer>,
    steps: Vec<JudgedKernel>,
    /// The folder of the records, from the first one on.
    claim: Option<FolderLock>,
}

/// Which of the ends must be built, said before the other one runs.
fn to_build(ends: [&Spec; 2], cache: &Cache) -> Option<String> {
    let missing: Vec<&str> = ends
        .iter()
        .map(|spec| spec.name.as_str())
        .filter(|name| cache.find(name).is_none())
        .collect();
    let names = missing.join(" and ");
    let verb = if missing.len() == 1 { "isn't" } else { "aren't" };
    (!missing.is_empty()).then(|| {
        format!("{names} {verb} built yet: the search builds kernels, which takes minutes for each")
    })
}

/// Which end of a search has these of all changes: 0 the good one, 1 the bad one.
fn is_end(applied: &[usize], all: usize) -> Option<usize> {
    match applied.len() {
        0 => Some(0),
        count if count == all => Some(1),
        _ => None,
    }
}

impl<'a, E: From<LabError>> Bisection<'a, E> {
    /// A search that runs a plan with so many seeds in each kernel, and keeps the records in a folder.
    pub fn new(
        lab: Lab,
        host: &'a Host<'a>,
        plan: &'a Plan,
        seeds: u64,
        out: &Path,
        judge: Judge<'a, E>,
    ) -> Bisection<'a, E> {
        let (known, steps, out) = (BTreeMap::new(), Vec::new(), out.to_owned());
        Bisection { lab, host, plan, seeds, out, judge, known, steps, claim: None }
    }

    /// The kernels that were judged, in their order.
    #[must_use]
    pub fn steps(&self) -> &[JudgedKernel] {
        &self.steps
    }

    #[must_use]
    pub fn kernels(&self) -> usize {
        self.known.len()
    }

    /// Finds what it was.
    ///
    /// # Errors
    ///
    /// Between the ends there is nothing to search, one of them is not what it is said to be, or a step fails.
    pub fn find(&mut self, ends: &Ends<'_>) -> Result<BisectionFinding, E> {
        if let Some((tree, spec)) = ends.tree {
            return self.commits(tree, &spec::find(spec)?, ends);
        }
        let kernels = [ends.good].into_iter().chain(ends.through.iter().map(String::as_str));
        let kernels = kernels.chain([ends.bad]).map(KernelRef::parse);
        let kernels = kernels.collect::<Result<Vec<_>, _>>()?;
        check_labels(&kernels)?;
        let [good, bad] = kernels.as_slice() else { return self.row(&kernels) };
        if good.name() == bad.name() {
            return self.words(good, bad);
        }
        match (spec::find(good.name()), spec::find(bad.name())) {
            (Ok(a), Ok(b)) if good.words() == bad.words() => {
                self.options(&a, &b, good.words(), [good.label(), bad.label()])
            }
            _ => Err(LabError::Refused(format!(
                "there is nothing to search between {} and {}: name kernels between them with --through, \
                 or commits with --tree. Or name one kernel with different parameters, or two kernels \
                 of `rtscope kernel list` with the same parameters",
                good.name(),
                bad.name()
            ))
            .into()),
        }
    }

    fn words(&mut self, good: &KernelRef, bad: &KernelRef) -> Result<BisectionFinding, E> {
        let ends = [good.label(), bad.label()];
        let changes = axis::word_changes(good.words(), bad.words());
        let texts = changes.iter().map(axis::WordChange::text).collect::<Vec<_>>();
        self.culprits("words", &texts, &mut |search, applied| {
            let words = axis::with_words(good.words(), &changes, applied);
            let end = is_end(applied, texts.len()).map(|end| ends[end]);
            search.answer(&KernelRef::named(good.name(), words), end)
        })
    }

    fn options(
        &mut self,
        good: &Spec,
        bad: &Spec,
        words: &[String],
        ends: [&str; 2],
    ) -> Result<BisectionFinding, E> {
        let changes = axis::option_changes(good, bad)?;
        if let Some(text) = to_build([good, bad], self.lab.cache()) {
            (self.host.note)(&text);
        }
        let texts = changes.iter().map(axis::OptionChange::text).collect::<Vec<_>>();
        self.culprits("options", &texts, &mut |search, applied| {
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
        between: &'static str,
        texts: &[String],
        judge: &mut impl FnMut(&mut Self, &[usize]) -> Result<Answer, E>,
    ) -> Result<BisectionFinding, E> {
        let all: Vec<usize> = (0..texts.len()).collect();
        let good = judge(self, &[])?;
        let bad = judge(self, &all)?;
        self.check_ends(&good, &bad)?;
        let FoundChanges { changes, vague } =
            super::culprits(texts.len(), &mut |applied| judge(self, applied))?;
        let changes = changes.iter().map(|at| texts[*at].clone()).collect();
        Ok(BisectionFinding { between, changes, vague })
    }

    fn row(&mut self, row: &[KernelRef]) -> Result<BisectionFinding, E> {
        self.lab.check_named(row)?;
        let good = self.answer(&row[0], None)?;
        let bad = self.answer(&row[row.len() - 1], None)?;
        self.check_ends(&good, &bad)?;
        let (good, bad) = super::first_bad(row.len() - 1, &mut |at| self.answer(&row[at], None))?;
        let text = format!("between {} and {}", row[good].label(), row[bad].label());
        Ok(BisectionFinding { between: "kernels", changes: vec![text], vague: bad - good > 1 })
    }

    fn commits(
        &mut self,
        tree: &Path,
        spec: &Spec,
        ends: &Ends<'_>,
    ) -> Result<BisectionFinding, E> {
        fs::metadata(tree).map_err(LabError::file("read --tree", tree))?;
        let place = key_of(&[("tree", tree.as_os_str().as_encoded_bytes())]);
        let place = self.lab.cache().root().join("bisect").join(place);
        let parent = place.parent().unwrap_or(&place);
        fs::create_dir_all(parent).map_err(LabError::file("make", parent))?;
        let mut spec = spec.clone();
        spec.source = SpecSource::Folder { path: place.clone() };
        spec.name = format!("{}-bisect", spec.name);
        let [good, bad] = [ends.good, ends.bad].map(|name| super::commit(tree, name));
        let good = self.commit(tree, &good?, &place, &spec)?;
        let bad = self.commit(tree, &bad?, &place, &spec)?;
        self.check_ends(&good, &bad)?;
        let mut judge = |commit: &str| self.commit(tree, commit, &place, &spec);
        let (commit, may_be) = super::first_bad_commit(tree, ends.good, ends.bad, &mut judge)?;
        let all = std::iter::once(&commit).chain(&may_be);
        let changes = all.map(|name| super::in_words(tree, name)).collect::<Result<_, _>>()?;
        Ok(BisectionFinding { between: "commits", changes, vague: !may_be.is_empty() })
    }

    fn commit(&mut self, tree: &Path, name: &str, at: &Path, spec: &Spec) -> Result<Answer, E> {
        let title = super::in_words(tree, name)?;
        super::check_out(tree, name, at)?;
        self.built(spec, &[], &title)
    }

    /// The search makes sense only between a good end and a bad one.
    fn check_ends(&self, good: &Answer, bad: &Answer) -> Result<(), LabError> {
        let wrong = |end: &str, answer: &Answer, is: &str| {
            let why = match answer {
                Answer::Unknown(why) => format!("can't be judged: {why}"),
                _ => format!("is {is}"),
            };
            LabError::Refused(format!(
                "the {end} kernel {why}, so the search can't start. The records are in {}",
                self.out.display()
            ))
        };
        match (good, bad) {
            (Answer::Good, Answer::Bad) => Ok(()),
            (Answer::Good, _) => Err(wrong("bad", bad, "good")),
            _ => Err(wrong("good", good, "bad")),
        }
    }

    fn check_interrupted(&self) -> Result<(), LabError> {
        if (self.host.stop)() { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// Builds a kernel where it isn't kept, and judges it. One that doesn't build can't be judged.
    fn built(&mut self, spec: &Spec, words: &[String], title: &str) -> Result<Answer, E> {
        let cache = self.lab.cache().clone();
        let (label, arch) = (spec.name.clone(), spec.arch.clone());
        self.lab.check(&[ExpectedKernel { label, arch, is_prebuilt: false, is_fetched: false }])?;
        let mut report = self.host.report();
        let fetched = source::fetch(spec, &cache, None, &mut report)?;
        let jobs = thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let choice = BuildChoice { jobs, lost_too: true };
        let kernel = build::built_already(spec, &fetched, &cache).and_then(|kept| match kept {
            Some(kernel) => Ok(kernel),
            None => {
                let prepared = build::prepare(spec, &fetched, &cache, false, false, &mut report)?;
                build::build(spec, &prepared, &cache, choice, &mut report)
            }
        });
        self.check_interrupted()?;
        match kernel {
            Ok(kernel) => {
                let kernel = KernelRef::named(&kernel.manifest.key, words.to_vec());
                self.answer(&kernel, Some(title))
            }
            Err(e @ LabError::Build { .. }) => {
                let why = e.to_string().lines().next().unwrap_or_default().to_owned();
                Ok(self.note(title, Answer::Unknown(why), Vec::new()))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Runs the plan in a kernel and has it judged.
    fn answer(&mut self, kernel: &KernelRef, title: Option<&str>) -> Result<Answer, E> {
        if let Some(known) = self.known.get(kernel) {
            return Ok(known.clone());
        }
        let mut report = self.host.report();
        let mut found = self.lab.kernels(std::slice::from_ref(kernel), &mut report)?.remove(0);
        let title = title.unwrap_or(&found.label).to_owned();
        found.label.clone_from(&title);
        let number = self.known.len() + 1;
        let mut runs = Vec::new();
        for seed in 1..=self.seeds {
            let run = self.lab.plan_run(&found, self.plan, seed, &mut report)?;
            let name = format!("{number:02}-{}-seed{seed}", record_folders::safe(&title));
            runs.push(QueuedRun { run, folder: self.out.join(name) });
        }
        if self.claim.is_none() {
            self.claim = Some(record_folders::claim_empty(&self.out)?);
        }
        let outcomes = self.lab.run(&runs, self.host)?;
        self.check_interrupted()?;
        let answer = (self.judge)(&runs, outcomes)?;
        self.known.insert(kernel.clone(), answer.clone());
        let folders = runs.iter().map(QueuedRun::folder_name).collect();
        Ok(self.note(&title, answer, folders))
    }

    /// Notes a step and tells it.
    fn note(&mut self, kernel: &str, answer: Answer, records: Vec<String>) -> Answer {
        let (word, why) = match &answer {
            Answer::Good => ("good", None),
            Answer::Bad => ("bad", None),
            Answer::Unknown(why) => ("unknown", Some(why.clone())),
        };
        let told = why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        (self.host.note)(&format!("step {}: {kernel} is {word}{told}", self.steps.len() + 1));
        self.steps.push(JudgedKernel { kernel: kernel.to_owned(), answer: word, why, records });
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_isn_t_built_is_named_before_anything_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let spec = |name: &str| spec::find(name).expect("shipped");
        let ends = [&spec("tiny-6.12-rt"), &spec("tiny-6.12-dynamic")];
        let cache = Cache::at(folder.path());
        let said = to_build(ends, &cache).expect("none is built");
        assert!(said.starts_with("tiny-6.12-rt and tiny-6.12-dynamic aren't built yet"), "{said}");
        let prepared = folder.path().join("prepared");
        fs::create_dir_all(&prepared).expect("made");
        fs::write(prepared.join("vmlinuz"), "x").expect("written");
        let manifest = serde_json::json!({
            "name": "tiny-6.12-rt", "key": "0123456789abcdef", "release": "6.12", "version": "#1",
            "arch": "x86_64", "vmlinuz": "vmlinuz", "inputs": {},
        });
        cache.keep(&prepared, &serde_json::from_value(manifest).expect("sound")).expect("kept");
        let said = to_build(ends, &cache).expect("one is not built");
        assert!(said.starts_with("tiny-6.12-dynamic isn't built yet"), "{said}");
        assert_eq!(to_build([ends[0]; 2], &cache), None);
    }
}
