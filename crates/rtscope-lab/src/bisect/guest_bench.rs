//! A bench that judges kernel after kernel: it builds one on this machine, runs its guests, and has them judged.

use std::{path::PathBuf, thread};

use rtscope_model::plan::Plan;

use super::{
    Answer,
    search::{CandidateKernel, JudgedCandidate, KernelBench},
};
use crate::{
    build::{self, BuildChoice},
    error::LabError,
    folder_lock::FolderLock,
    kernel_ref::KernelRef,
    kernel_under_test::ExpectedKernel,
    lab::{Host, Lab, Outcomes},
    queue::QueuedRun,
    record_folders, source,
    spec::Spec,
};

/// Judges what came of the guests of one kernel.
pub type Judge<'a, E> = &'a mut dyn FnMut(&[QueuedRun], Outcomes) -> Result<Answer, E>;

/// This machine's guests.
#[expect(missing_debug_implementations, reason = "holds functions, which show nothing")]
pub struct GuestBench<'a, E> {
    lab: Lab,
    host: &'a Host<'a>,
    plan: &'a Plan,
    seeds: u64,
    out: PathBuf,
    judge: Judge<'a, E>,
    /// How many kernels have run.
    ran: usize,
    /// The folder of the records, from the first one on.
    claim: Option<FolderLock>,
}

impl<'a, E: From<LabError>> GuestBench<'a, E> {
    /// A bench that runs a plan with so many seeds in each kernel, and keeps the records in a folder.
    pub fn new(
        lab: Lab,
        host: &'a Host<'a>,
        plan: &'a Plan,
        seeds: u64,
        out: PathBuf,
        judge: Judge<'a, E>,
    ) -> GuestBench<'a, E> {
        GuestBench { lab, host, plan, seeds, out, judge, ran: 0, claim: None }
    }

    fn judge_one(&mut self, candidate: &CandidateKernel) -> Result<JudgedCandidate, E> {
        let CandidateKernel { title, kernel, spec } = candidate;
        match spec.as_ref().map(|spec| self.built(spec)).transpose()? {
            None => self.answer(kernel, title),
            Some(Ok(key)) => self.answer(&KernelRef::named(&key, kernel.words().to_vec()), title),
            Some(Err(why)) => {
                Ok(JudgedCandidate { answer: Answer::Unknown(why), records: Vec::new() })
            }
        }
    }

    /// Builds a kernel where it isn't kept: its key, or why it doesn't build.
    fn built(&self, spec: &Spec) -> Result<Result<String, String>, E> {
        let cache = self.lab.cache().clone();
        let (label, arch) = (spec.name.clone(), spec.arch.clone());
        self.lab.check(&[ExpectedKernel {
            label,
            arch,
            is_prebuilt: false,
            needs_fetch: false,
        }])?;
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
        if kernel.is_ok() {
            source::discard(spec, &cache, &mut report)?;
        }
        match kernel {
            Ok(kernel) => Ok(Ok(kernel.manifest.key)),
            Err(e @ LabError::Build { .. }) => {
                Ok(Err(e.to_string().lines().next().unwrap_or_default().to_owned()))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Runs the plan in a kernel and has it judged.
    fn answer(&mut self, kernel: &KernelRef, title: &str) -> Result<JudgedCandidate, E> {
        let mut report = self.host.report();
        let mut found = self.lab.kernels(std::slice::from_ref(kernel), &mut report)?.remove(0);
        found.label = title.to_owned();
        self.ran += 1;
        let mut runs = Vec::new();
        for seed in 1..=self.seeds {
            let run = self.lab.plan_run(&found, self.plan, seed, &mut report)?;
            let name = format!("{:02}-{}-seed{seed}", self.ran, record_folders::safe(title));
            runs.push(QueuedRun { run, folder: self.out.join(name) });
        }
        if self.claim.is_none() {
            self.claim = Some(record_folders::claim_empty(&self.out)?);
        }
        let outcomes = self.lab.run(&runs, self.host)?;
        self.check_interrupted()?;
        let answer = (self.judge)(&runs, outcomes)?;
        Ok(JudgedCandidate { answer, records: runs.iter().map(QueuedRun::folder_name).collect() })
    }

    fn check_interrupted(&self) -> Result<(), LabError> {
        if (self.host.stop)() { Err(LabError::Interrupted) } else { Ok(()) }
    }
}

impl<E: From<LabError>> KernelBench<E> for GuestBench<'_, E> {
    fn lab(&self) -> &Lab {
        &self.lab
    }

    fn judge(&mut self, candidates: &[CandidateKernel]) -> Result<Vec<JudgedCandidate>, E> {
        candidates.iter().map(|candidate| self.judge_one(candidate)).collect()
    }
}
