//! The search for what broke a latency, from the two ends that the user names to the change: which kernels lie
//! between them, and what each of them showed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{Answer, FoundChanges, axis};
use crate::{
    cache::Cache,
    error::LabError,
    kernel_ref::{KernelRef, check_labels},
    lab::Lab,
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

/// A kernel that the search asks about.
#[derive(Clone, Debug)]
pub struct CandidateKernel {
    /// What the steps call it.
    pub title: String,
    pub kernel: KernelRef,
    /// How it is built; none for one that is there, or that is fetched.
    pub spec: Option<Box<Spec>>,
}

/// What became of a candidate.
#[derive(Clone, Debug)]
pub struct JudgedCandidate {
    pub answer: Answer,
    /// Folders of its records, below that of the search.
    pub records: Vec<String>,
}

/// Where kernels are built, run and judged.
pub trait KernelBench<E> {
    /// The lab that the kernels are for.
    fn lab(&self) -> &Lab;

    /// Judges some kernels, which differ from each other and from all before.
    ///
    /// # Errors
    ///
    /// The user ended it, or this machine can't do it. A kernel that doesn't build or boot is no error.
    fn judge(&mut self, candidates: &[CandidateKernel]) -> Result<Vec<JudgedCandidate>, E>;
}

/// A search and what it has judged.
#[expect(missing_debug_implementations, reason = "holds functions, which show nothing")]
pub struct Bisection<'a, E> {
    bench: &'a mut dyn KernelBench<E>,
    /// Kernels that the bench is asked about in one go.
    ways: usize,
    /// Tells the user how far it is.
    note: &'a dyn Fn(&str),
    /// Folder of the records.
    out: PathBuf,
    /// Answers by kernel: nothing is run twice.
    known: BTreeMap<KernelRef, Answer>,
    steps: Vec<JudgedKernel>,
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
    /// A search whose bench keeps the records in a folder.
    pub fn new(
        bench: &'a mut dyn KernelBench<E>,
        ways: usize,
        note: &'a dyn Fn(&str),
        out: &Path,
    ) -> Bisection<'a, E> {
        let (known, steps, out) = (BTreeMap::new(), Vec::new(), out.to_owned());
        Bisection { bench, ways: ways.max(1), note, out, known, steps }
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
        self.culprits("words", &texts, &|applied| {
            let words = axis::with_words(good.words(), &changes, applied);
            let kernel = KernelRef::named(good.name(), words);
            let end = is_end(applied, texts.len()).map(|end| ends[end]);
            CandidateKernel { title: end.unwrap_or(kernel.label()).to_owned(), kernel, spec: None }
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
        if let Some(text) = to_build([good, bad], self.bench.lab().cache()) {
            (self.note)(&text);
        }
        let texts = changes.iter().map(axis::OptionChange::text).collect::<Vec<_>>();
        self.culprits("options", &texts, &|applied| {
            let title = match is_end(applied, texts.len()) {
                Some(end) => ends[end].to_owned(),
                None => format!("{} with {} of {}", good.name, applied.len(), texts.len()),
            };
            to_be_built(axis::with_options(good, &changes, applied), words, title)
        })
    }

    /// Searches changes that can be applied one by one.
    fn culprits(
        &mut self,
        between: &'static str,
        texts: &[String],
        candidate: &dyn Fn(&[usize]) -> CandidateKernel,
    ) -> Result<BisectionFinding, E> {
        let all: Vec<usize> = (0..texts.len()).collect();
        self.check_ends(candidate(&[]), candidate(&all))?;
        let ways = self.ways;
        let found = super::culprits(texts.len(), ways, &mut |asked: &[Vec<usize>]| {
            self.answers(asked.iter().map(|applied| candidate(applied)).collect())
        })?;
        let FoundChanges { changes, vague } = found;
        let changes = changes.iter().map(|at| texts[*at].clone()).collect();
        Ok(BisectionFinding { between, changes, vague })
    }

    fn row(&mut self, row: &[KernelRef]) -> Result<BisectionFinding, E> {
        self.bench.lab().check_named(row)?;
        let candidate = |at: usize| {
            let kernel = row[at].clone();
            CandidateKernel { title: kernel.label().to_owned(), kernel, spec: None }
        };
        let (last, ways) = (row.len() - 1, self.ways);
        self.check_ends(candidate(0), candidate(last))?;
        let (good, bad) = super::first_bad(last, ways, &mut |asked: &[usize]| {
            self.answers(asked.iter().map(|at| candidate(*at)).collect())
        })?;
        let text = format!("between {} and {}", row[good].label(), row[bad].label());
        Ok(BisectionFinding { between: "kernels", changes: vec![text], vague: bad - good > 1 })
    }

    fn commits(
        &mut self,
        tree: &Path,
        spec: &Spec,
        ends: &Ends<'_>,
    ) -> Result<BisectionFinding, E> {
        let tree = &fs::canonicalize(tree).map_err(LabError::file("read --tree", tree))?;
        let candidate = |commit: &str| -> Result<CandidateKernel, LabError> {
            let short = commit.get(..12).unwrap_or(commit);
            let name = format!("{}-bisect-{short}", spec.name);
            let from = tree.display().to_string();
            let (reference, commit_too) = (commit.to_owned(), Some(commit.to_owned()));
            let source = SpecSource::Git { from, reference, commit: commit_too };
            let spec = Spec { name, source, ..spec.clone() };
            Ok(to_be_built(spec, &[], super::in_words(tree, commit)?))
        };
        let ends = (ends.good, ends.bad);
        let [good, bad] = [ends.0, ends.1].map(|name| super::commit(tree, name));
        self.check_ends(candidate(&good?)?, candidate(&bad?)?)?;
        let ways = self.ways;
        let mut judge = |asked: &[String]| {
            let asked = asked.iter().map(|commit| candidate(commit));
            self.answers(asked.collect::<Result<_, _>>()?)
        };
        let (commit, may_be) = super::first_bad_commit(tree, ends, ways, &mut judge)?;
        let all = std::iter::once(&commit).chain(&may_be);
        let changes = all.map(|name| super::in_words(tree, name)).collect::<Result<_, _>>()?;
        Ok(BisectionFinding { between: "commits", changes, vague: !may_be.is_empty() })
    }

    /// The search makes sense only between a good end and a bad one.
    fn check_ends(&mut self, good: CandidateKernel, bad: CandidateKernel) -> Result<(), E> {
        let answers = match self.ways {
            // A good end that isn't one spares the run of the other.
            1 => {
                let mut answers = self.answers(vec![good])?;
                if answers == [Answer::Good] {
                    answers.extend(self.answers(vec![bad])?);
                }
                answers
            }
            _ => self.answers(vec![good, bad])?,
        };
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
        match answers.as_slice() {
            [Answer::Good, Answer::Bad] => Ok(()),
            [Answer::Good, bad] => Err(wrong("bad", bad, "good").into()),
            [good, ..] => Err(wrong("good", good, "bad").into()),
            [] => Err(LabError::NotReached.into()),
        }
    }

    /// The answers for some kernels, of which the bench is asked about those that it has not judged yet.
    fn answers(&mut self, asked: Vec<CandidateKernel>) -> Result<Vec<Answer>, E> {
        let order: Vec<KernelRef> = asked.iter().map(|one| one.kernel.clone()).collect();
        let mut new: Vec<CandidateKernel> = Vec::new();
        for candidate in asked {
            let is_asked = new.iter().any(|one| one.kernel == candidate.kernel);
            if !is_asked && !self.known.contains_key(&candidate.kernel) {
                new.push(candidate);
            }
        }
        if !new.is_empty() {
            let judged = self.bench.judge(&new)?;
            for (candidate, judged) in new.into_iter().zip(judged) {
                self.note(&candidate.title, &judged);
                self.known.insert(candidate.kernel, judged.answer);
            }
        }
        let answer = |kernel: &KernelRef| self.known.get(kernel).cloned();
        order.iter().map(|kernel| answer(kernel).ok_or(LabError::NotReached.into())).collect()
    }

    /// Notes a step and tells it.
    fn note(&mut self, kernel: &str, judged: &JudgedCandidate) {
        let (word, why) = match &judged.answer {
            Answer::Good => ("good", None),
            Answer::Bad => ("bad", None),
            Answer::Unknown(why) => ("unknown", Some(why.clone())),
        };
        let told = why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        (self.note)(&format!("step {}: {kernel} is {word}{told}", self.steps.len() + 1));
        let records = judged.records.clone();
        self.steps.push(JudgedKernel { kernel: kernel.to_owned(), answer: word, why, records });
    }
}

/// A kernel that is built unless it is there. Its name is that of its configuration and source alone.
fn to_be_built(spec: Spec, words: &[String], title: String) -> CandidateKernel {
    let kernel = KernelRef::named(&spec.name, words.to_vec());
    CandidateKernel { title, kernel, spec: Some(Box::new(spec)) }
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
