//! One batch: its cells, one after the other, each into a part that is renamed into its place when it is whole.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rtscope_model::plan;

use super::{
    ORDER,
    claim::{CellClaim, ClaimAnswer, Watch},
    journal::{CellStep, TaskJournal, TaskLine},
    order::{CellState, OrderedCell, WorkOrder},
};
use crate::{
    boot::Ending,
    error::LabError,
    guest_run::{GuestOutcome, GuestRun},
    kernel_ref::KernelRef,
    kernel_under_test::KernelUnderTest,
    lab::{Host, Lab},
    qemu::GuestSpec,
    queue::QueuedRun,
};

/// How often is looked whether another process is done with a cell.
const LOOK: Duration = Duration::from_secs(1);

/// File that says why a guest brought no record.
const WHY: &str = "why.txt";

/// A process that works on a batch.
#[expect(missing_debug_implementations, reason = "holds functions, which show nothing")]
pub struct BatchRun<'a> {
    pub order: &'a WorkOrder,
    pub out: &'a Path,
    pub lab: &'a mut Lab,
    pub host: &'a Host<'a>,
    pub journal: TaskJournal,
}

/// The runs of a kernel by their plans: those of other seeds are the same but for the seed.
struct PlannedKernel {
    kernel: KernelUnderTest,
    runs: Vec<Option<GuestRun>>,
}

impl BatchRun<'_> {
    /// Runs the cells that are neither there nor another's; then waits for those of others, and takes over what their
    /// owners left. Whether all are there in the end, or their guests brought nothing.
    ///
    /// # Errors
    ///
    /// The kernel can't be found, or is another one than before.
    pub fn run(&mut self, batch: usize) -> Result<bool, LabError> {
        let Some(cells) = self.order.batches.get(batch) else {
            return Err(LabError::Refused(format!("the order has no batch {batch}")));
        };
        let mut left: Vec<&OrderedCell> =
            cells.iter().map(|cell| &self.order.cells[*cell]).collect();
        let mut planned: Option<PlannedKernel> = None;
        let (mut watch, mut all_there) = (Watch::default(), true);
        while !left.is_empty() {
            let mut of_others = Vec::new();
            let count = left.len();
            for cell in left {
                if (self.host.stop)() {
                    return Ok(false);
                }
                if self.is_done(cell) {
                    continue;
                }
                let claim = match CellClaim::ask(self.out, &cell.name, &mut watch)? {
                    ClaimAnswer::Granted(claim) => claim,
                    ClaimAnswer::Taken(_) => {
                        of_others.push(cell);
                        continue;
                    }
                };
                // Another one may have finished it just before it let go.
                if !self.is_done(cell) {
                    let planned = match &mut planned {
                        Some(planned) => planned,
                        none => none.insert(self.find_kernel(cell)?),
                    };
                    all_there &= self.run_cell(cell, planned, &claim)?;
                }
            }
            if of_others.len() == count {
                thread::sleep(LOOK);
            }
            left = of_others;
        }
        Ok(all_there)
    }

    fn is_done(&self, cell: &OrderedCell) -> bool {
        state(self.out, cell) != CellState::Missing
    }

    /// The kernel of a cell. Why it can't be used here goes into the journal, too.
    fn find_kernel(&mut self, cell: &OrderedCell) -> Result<PlannedKernel, LabError> {
        let found = self.kernel(cell.kernel);
        if let Err(e) = &found {
            let line = TaskLine::of(&cell.name, CellStep::NotRun);
            self.journal.add(&TaskLine { why: Some(e.to_string()), ..line })?;
        }
        let runs = vec![None; self.order.plans.len()];
        found.map(|kernel| PlannedKernel { kernel, runs })
    }

    fn kernel(&self, kernel: usize) -> Result<KernelUnderTest, LabError> {
        let asked = KernelRef::parse(&self.order.kernels[kernel])?;
        let report = &mut self.host.report();
        let found = WorkOrder::find_kernel(self.out, &asked, self.lab, report)?;
        WorkOrder::pin(self.out, &asked, &found.sha256)?;
        Ok(found)
    }

    /// Runs a cell, and puts what came of it into its place. Whether anything did.
    fn run_cell(
        &mut self,
        cell: &OrderedCell,
        planned: &mut PlannedKernel,
        claim: &CellClaim,
    ) -> Result<bool, LabError> {
        self.journal.add(&TaskLine::of(&cell.name, CellStep::Began))?;
        let part = self.fresh_part(cell, claim)?;
        let outcome = self.guest_of(cell, planned, &part, claim);
        let line = self.settle(cell, outcome, &part, claim)?;
        let _ = fs::remove_dir_all(&part);
        let said = line.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        let took = line.took_ms.map_or(String::new(), |ms| format!(" in {:.1} s", ms as f64 / 1e3));
        (self.host.note)(&format!("{}: {}{took}{said}", cell.name, line.step.word()));
        let has_come = matches!(line.step, CellStep::Ran | CellStep::Known | CellStep::Failed);
        self.journal.add(&line)?;
        Ok(has_come)
    }

    /// A folder for what a guest brings, and none of what killed processes left of the cell.
    fn fresh_part(&self, cell: &OrderedCell, claim: &CellClaim) -> Result<PathBuf, LabError> {
        let parts = self.out.join(ORDER).join("parts");
        fs::create_dir_all(&parts).map_err(LabError::file("make", &parts))?;
        let at = |number: u32| parts.join(format!("{}.{number}", cell.name));
        for left in (1..=claim.number).map(at).filter(|part| part.exists()) {
            fs::remove_dir_all(&left).map_err(LabError::file("remove", &left))?;
        }
        Ok(at(claim.number))
    }

    fn guest_of(
        &mut self,
        cell: &OrderedCell,
        planned: &mut PlannedKernel,
        part: &Path,
        claim: &CellClaim,
    ) -> Result<(GuestOutcome, String), LabError> {
        let PlannedKernel { kernel, runs } = planned;
        let run = match &mut runs[cell.plan] {
            Some(run) => run,
            none => {
                let plan = plan::parse("order", &self.order.plans[cell.plan])?;
                let report = &mut self.host.report();
                none.insert(self.lab.plan_run(kernel, &plan, cell.seed, report)?)
            }
        };
        let run = run.with_seed(cell.seed);
        let queued = QueuedRun { run, folder: part.to_owned() };
        let stop = || (self.host.stop)() || claim.is_lost();
        let host =
            Host { guard: self.host.guard, stop: &stop, note: self.host.note, news: &|_| {} };
        let outcome = self.lab.run(std::slice::from_ref(&queued), &host)?;
        let outcome = outcome.into_iter().next().unwrap_or(Err(LabError::NotReached))?;
        let why = queued.run.explain(&outcome.ending);
        Ok((outcome, why))
    }

    /// Renames what a guest brought into its place.
    fn settle(
        &self,
        cell: &OrderedCell,
        outcome: Result<(GuestOutcome, String), LabError>,
        part: &Path,
        claim: &CellClaim,
    ) -> Result<TaskLine, LabError> {
        let step = |step| TaskLine::of(&cell.name, step);
        let (outcome, why) = match outcome {
            Ok(found) => found,
            Err(LabError::NotReached | LabError::Interrupted) => return Ok(step(CellStep::Ended)),
            Err(e) => {
                return Ok(TaskLine { why: Some(e.to_string()), ..step(CellStep::NotRun) });
            }
        };
        if !claim.is_still_ours() {
            return Ok(step(CellStep::Lost));
        }
        let took_ms = outcome.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        match outcome.ending {
            Ending::Sent => {
                let to = self.out.join(&cell.name);
                let moved = sync(part).and_then(|()| fs::rename(part, &to));
                match moved {
                    Ok(()) => {}
                    Err(_) if to.exists() => return Ok(step(CellStep::Lost)),
                    Err(e) => return Err(LabError::file("rename", part)(e)),
                }
                let step = step(if took_ms.is_some() { CellStep::Ran } else { CellStep::Known });
                Ok(TaskLine { took_ms, ..step })
            }
            Ending::Interrupted => Ok(step(CellStep::Ended)),
            _ => {
                fs::write(part.join(WHY), &why).map_err(LabError::file("write", part))?;
                let to = WorkOrder::failed(self.out, &cell.name);
                let parent = to.parent().unwrap_or(self.out);
                fs::create_dir_all(parent).map_err(LabError::file("make", parent))?;
                let _ = fs::remove_dir_all(&to);
                fs::rename(part, &to).map_err(LabError::file("rename", part))?;
                Ok(TaskLine { took_ms, why: Some(why), ..step(CellStep::Failed) })
            }
        }
    }
}

/// What became of a cell.
fn state(out: &Path, cell: &OrderedCell) -> CellState {
    if out.join(&cell.name).exists() {
        return CellState::Whole;
    }
    let failed = WorkOrder::failed(out, &cell.name).exists();
    if failed { CellState::Failed } else { CellState::Missing }
}

/// Why a guest brought no record.
#[must_use]
pub fn why_failed(out: &Path, cell: &str) -> String {
    let folder = WorkOrder::failed(out, cell);
    let why = fs::read_to_string(folder.join(WHY)).unwrap_or_default();
    let console = folder.join(crate::boot::CONSOLE);
    format!("{why} (its console: {})", console.display())
}

/// Brings the files of a folder to the disk, so that a record in its place is whole even after a loss of power.
fn sync(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { sync(&path)? } else { File::open(&path)?.sync_all()? }
    }
    File::open(folder)?.sync_all()
}

impl GuestRun {
    /// The same run with another seed.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> GuestRun {
        GuestRun { spec: GuestSpec { seed, ..self.spec }, ..self.clone() }
    }
}
