//! An order: the cells of a matrix, each with the hash of what was asked, and the batches that they are run in.
//!
//! ```text
//! OUT/order.json          the order, which never changes
//! OUT/CELL                the record of a cell, renamed into its place when it was whole
//! OUT/order/rtscope       the program that made the order and runs its tasks
//! OUT/order/kernels       the SHA-256 of each kernel, from when it was found first
//! OUT/order/built         the cache's key of each kernel that was built from a spec of the order
//! OUT/order/submissions   lists of tasks that engines got
//! OUT/order/claims        who works on which cell
//! OUT/order/parts         records that are not whole yet
//! OUT/order/failed        what guests left that brought no record, with the reason
//! OUT/order/tasks         what each process did, a line for each step
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rtscope_model::plan::Plan;
use serde::{Deserialize, Serialize};

use super::{ORDER, unique};
use crate::{
    cache::Cache,
    digest::key_of,
    error::LabError,
    kernel_ref::KernelRef,
    kernel_under_test::{KernelUnderTest, is_to_prepare},
    lab::{Lab, as_run},
    options::GuestOptions,
    progress::Report,
    record_folders::{GUESTS, is_taken, names},
};

/// Version of the file. 1 is the list of guests that one process runs.
const FORMAT: u32 = 2;

/// What is asked of all cells.
#[derive(Clone, Debug)]
pub struct MatrixRequest {
    pub kernels: Vec<KernelRef>,
    /// A plan of one phase for each load.
    pub plans: Vec<Plan>,
    pub seeds: u64,
    pub options: GuestOptions,
    pub cache: PathBuf,
    /// SHA-256 of the program that the guests run.
    pub program_sha256: String,
    /// Whether that program is another one than the one that runs the tasks.
    pub has_guest_program: bool,
    /// Files of specs by the kernels' names, for kernels that only this order knows.
    pub specs: BTreeMap<String, PathBuf>,
}

/// One guest of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderedCell {
    /// The folder of its record.
    pub name: String,
    /// Hash of what was asked.
    pub key: String,
    /// Which kernel.
    pub kernel: usize,
    /// Which plan.
    pub plan: usize,
    pub seed: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkOrder {
    format: u32,
    /// Hash of the keys of all cells.
    pub key: String,
    /// Folder in which the command was typed, by which relative paths are found.
    pub folder: PathBuf,
    /// Folder of kernels, images and records.
    pub cache: PathBuf,
    pub options: GuestOptions,
    /// Whether guests run [`WorkOrder::guest_program`].
    pub has_guest_program: bool,
    /// The kernels as they were typed.
    pub kernels: Vec<String>,
    /// The plans, as TOML.
    pub plans: Vec<String>,
    pub cells: Vec<OrderedCell>,
    /// Files of specs by the kernels' names, for kernels that only this order knows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub specs: BTreeMap<String, PathBuf>,
    /// Cells of each batch. All of a batch are of one kernel.
    pub batches: Vec<Vec<usize>>,
}

impl WorkOrder {
    /// Makes an order, without batches.
    ///
    /// # Errors
    ///
    /// A kernel or a plan is named twice, or the working folder is gone.
    pub fn new(request: &MatrixRequest) -> Result<WorkOrder, LabError> {
        let MatrixRequest { kernels, plans, seeds, .. } = request;
        let loads = names(plans.iter().map(|plan| plan.name.as_str()))?;
        let of_kernels = names(kernels.iter().map(KernelRef::label))?;
        let typed: Vec<String> = kernels.iter().map(ToString::to_string).collect();
        let plans: Vec<String> = plans.iter().map(|plan| as_run(plan).to_toml()).collect();
        let asked = GuestOptions { jobs: None, fresh: false, ..request.options.clone() };
        let asked = serde_json::to_string(&asked).unwrap_or_default();
        let mut cells = Vec::new();
        for (kernel, of_kernel) in of_kernels.iter().enumerate() {
            for seed in 1..=*seeds {
                for (plan, load) in loads.iter().enumerate() {
                    let key = key_of(&[
                        ("kernel", typed[kernel].as_bytes()),
                        ("plan", plans[plan].as_bytes()),
                        ("seed", &seed.to_le_bytes()),
                        ("options", asked.as_bytes()),
                        ("program", request.program_sha256.as_bytes()),
                    ]);
                    let name = format!("{of_kernel}-{load}-seed{seed}");
                    cells.push(OrderedCell { name, key, kernel, plan, seed });
                }
            }
        }
        let keys: Vec<(&str, &[u8])> =
            cells.iter().map(|cell| (cell.name.as_str(), cell.key.as_bytes())).collect();
        Ok(WorkOrder {
            format: FORMAT,
            key: key_of(&keys),
            folder: std::env::current_dir().map_err(LabError::file("find", "."))?,
            cache: std::path::absolute(&request.cache)
                .map_err(LabError::file("find", &request.cache))?,
            options: request.options.clone(),
            has_guest_program: request.has_guest_program,
            kernels: typed,
            plans,
            cells,
            specs: request.specs.clone(),
            batches: Vec::new(),
        })
    }

    /// Makes batches of about this length. `cost` is what a cell of a kernel and a plan will take. The first seeds of
    /// all kernels come first, so that there is something to compare early.
    pub fn split(&mut self, target: Duration, cost: impl Fn(usize, usize) -> Duration) {
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut sum = Duration::ZERO;
        for (number, cell) in self.cells.iter().enumerate() {
            let takes = cost(cell.kernel, cell.plan);
            let last = batches.last().and_then(|batch| batch.last());
            let fits = last.is_some_and(|last| self.cells[*last].kernel == cell.kernel)
                && sum + takes <= target;
            match batches.last_mut().filter(|_| fits) {
                Some(batch) => {
                    batch.push(number);
                    sum += takes;
                }
                None => {
                    batches.push(vec![number]);
                    sum = takes;
                }
            }
        }
        batches.sort_by_key(|batch| self.cells[batch[0]].seed);
        self.batches = batches;
    }

    /// The kernel of a batch.
    #[must_use]
    pub fn kernel_of(&self, batch: usize) -> usize {
        self.batches[batch].first().map_or(0, |cell| self.cells[*cell].kernel)
    }

    /// Puts the order into the folder of the results, or takes the one that is there when it asks for the same.
    ///
    /// # Errors
    ///
    /// The folder holds something else, or can't be written.
    pub fn keep(self, out: &Path) -> Result<WorkOrder, LabError> {
        let path = out.join(GUESTS);
        // Another site may be about to write it.
        let until = Instant::now() + Duration::from_secs(2);
        while !path.exists() && is_taken(out) {
            if Instant::now() > until {
                crate::record_folders::check_empty(out)?;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let text = serde_json::to_string(&self).unwrap_or_default() + "\n";
        if write_once(&path, text.as_bytes()).map_err(LabError::file("write", &path))? {
            return Ok(self);
        }
        let there = WorkOrder::read(out)?;
        if there.key == self.key {
            return Ok(there);
        }
        let known: BTreeMap<&str, &str> =
            there.cells.iter().map(|cell| (cell.name.as_str(), cell.key.as_str())).collect();
        let differs = self
            .cells
            .iter()
            .find(|cell| known.get(cell.name.as_str()) != Some(&cell.key.as_str()));
        let which = differs.map_or(String::new(), |cell| format!(" ({} differs)", cell.name));
        Err(LabError::Refused(format!(
            "{} belongs to another matrix{which}. Only the same command with the same rtscope can continue \
             there: choose another folder with --out",
            out.display()
        )))
    }

    /// Reads the order of a folder.
    ///
    /// # Errors
    ///
    /// There is none, or it can't be read.
    pub fn read(out: &Path) -> Result<WorkOrder, LabError> {
        let path = out.join(GUESTS);
        let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
        let order: Option<WorkOrder> = serde_json::from_str(&text).ok();
        order.filter(|order| order.format == FORMAT).ok_or_else(|| {
            LabError::Refused(format!(
                "{} holds records that were made without --engine: leave --engine out to go on with them, or choose \
                 another folder with --out",
                out.display()
            ))
        })
    }

    /// The program that runs the tasks.
    #[must_use]
    pub fn program(out: &Path) -> PathBuf {
        out.join(ORDER).join("rtscope")
    }

    /// The program that guests run, where that is another one.
    #[must_use]
    pub fn guest_program(out: &Path) -> PathBuf {
        out.join(ORDER).join("guest-program")
    }

    /// Where a cell's guest leaves what it brought when that is no record.
    #[must_use]
    pub fn failed(out: &Path, cell: &str) -> PathBuf {
        out.join(ORDER).join("failed").join(cell)
    }

    /// Which cells are there.
    #[must_use]
    pub fn survey(&self, out: &Path) -> Survey {
        let listed = |folder: &Path| -> BTreeSet<String> {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        let (there, failed) = (listed(out), listed(&out.join(ORDER).join("failed")));
        let has = |set: &BTreeSet<String>, cell: &OrderedCell| set.contains(&cell.name);
        let state = |cell: &OrderedCell| match () {
            () if has(&there, cell) => CellState::Whole,
            () if has(&failed, cell) => CellState::Failed,
            () => CellState::Missing,
        };
        Survey { cells: self.cells.iter().map(state).collect() }
    }

    /// Takes note of a kernel's SHA-256, or compares it with that of an earlier look.
    ///
    /// # Errors
    ///
    /// It is another one, or the note can't be written.
    pub fn pin(out: &Path, kernel: &KernelRef, sha256: &str) -> Result<(), LabError> {
        let path = WorkOrder::pinned(out, kernel);
        if write_once(&path, sha256.as_bytes()).map_err(LabError::file("write", &path))? {
            return Ok(());
        }
        let known = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
        if known == sha256 {
            return Ok(());
        }
        Err(LabError::Refused(format!(
            "{} is not the kernel with which this matrix began (its SHA-256 was {known} and is now {sha256}): choose \
             another folder with --out, or put the earlier kernel back",
            kernel.name()
        )))
    }

    /// Whether a kernel was found for this order.
    #[must_use]
    pub fn is_pinned(out: &Path, kernel: &KernelRef) -> bool {
        WorkOrder::pinned(out, kernel).exists()
    }

    fn pinned(out: &Path, kernel: &KernelRef) -> PathBuf {
        let key = key_of(&[("kernel", kernel.name().as_bytes())]);
        out.join(ORDER).join("kernels").join(key)
    }

    /// Takes note of the key of a kernel that was built from a spec of this order. Another kernel of the cache, which
    /// has the same key under another name, is that very kernel.
    ///
    /// # Errors
    ///
    /// The note can't be written.
    pub fn note_built(out: &Path, kernel: &KernelRef, key: &str) -> Result<(), LabError> {
        let path = WorkOrder::built(out, kernel);
        write_once(&path, key.as_bytes()).map_err(LabError::file("write", &path)).map(drop)
    }

    fn built(out: &Path, kernel: &KernelRef) -> PathBuf {
        out.join(ORDER).join("built").join(kernel.name())
    }

    /// A kernel as the cache has it: by the key under which it was built, else as it was asked for.
    fn as_kept(out: &Path, kernel: &KernelRef) -> KernelRef {
        match fs::read_to_string(WorkOrder::built(out, kernel)) {
            Ok(key) => KernelRef::named(&key, kernel.words().to_vec()),
            Err(_) => kernel.clone(),
        }
    }

    /// Whether a kernel is still to be fetched or built.
    #[must_use]
    pub fn is_to_prepare(
        out: &Path,
        specs: &BTreeMap<String, PathBuf>,
        kernel: &KernelRef,
        cache: &Cache,
    ) -> bool {
        match specs.contains_key(kernel.name()) {
            true => cache.find(WorkOrder::as_kept(out, kernel).name()).is_none(),
            false => is_to_prepare(kernel, cache),
        }
    }

    /// Finds a kernel of an order, which keeps the name that it has there.
    ///
    /// # Errors
    ///
    /// It isn't there, or is damaged.
    pub fn find_kernel(
        out: &Path,
        asked: &KernelRef,
        lab: &Lab,
        report: &mut Report<'_>,
    ) -> Result<KernelUnderTest, LabError> {
        let kept = WorkOrder::as_kept(out, asked);
        let found = lab.kernels(std::slice::from_ref(&kept), report)?.into_iter().next();
        let found = found.ok_or(LabError::NotReached)?;
        Ok(KernelUnderTest { label: asked.label().to_owned(), ..found })
    }
}

/// What became of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellState {
    Missing,
    /// Its record is in its place.
    Whole,
    /// Its guest ran and brought none.
    Failed,
}

/// What became of all cells of an order, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    pub cells: Vec<CellState>,
}

impl Survey {
    #[must_use]
    pub fn count(&self, state: CellState) -> usize {
        self.cells.iter().filter(|one| **one == state).count()
    }
}

/// Writes a file in one step, unless there is one: whether it was written.
pub(crate) fn write_once(path: &Path, text: &[u8]) -> io::Result<bool> {
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    if path.exists() {
        return Ok(false);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let part = parent.join(format!(".{name}.{}", unique()));
    fs::write(&part, text)?;
    let linked = fs::hard_link(&part, path);
    let _ = fs::remove_file(&part);
    match linked {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::plan;

    use super::*;

    fn order(kernels: &[&str], phases: &[&str], seeds: u64) -> WorkOrder {
        let text = |phase: &str| {
            format!("name = '{phase}'\n[[phase]]\nname = '{phase}'\nduration = '1s'\n")
        };
        let plan = |phase: &&str| plan::parse("x", &text(phase)).expect("a plan");
        let request = MatrixRequest {
            kernels: kernels.iter().map(|typed| KernelRef::parse(typed).expect("sound")).collect(),
            plans: phases.iter().map(plan).collect(),
            seeds,
            options: GuestOptions::default(),
            cache: "cache".into(),
            program_sha256: "0".to_owned(),
            has_guest_program: false,
            specs: BTreeMap::new(),
        };
        WorkOrder::new(&request).expect("an order")
    }

    #[test]
    fn batches_are_of_one_kernel_and_of_the_asked_length_and_first_seeds_come_first() {
        let mut order = order(&["a", "b"], &["rest", "disk"], 3);
        let seconds = Duration::from_secs;
        // Cells of a take 10 and 20 s; those of b are longer than a batch.
        order.split(seconds(60), |kernel, plan| match (kernel, plan) {
            (0, 0) => seconds(10),
            (0, _) => seconds(20),
            _ => seconds(100),
        });
        let names = |batch: &Vec<usize>| {
            batch.iter().map(|cell| order.cells[*cell].name.as_str()).collect::<Vec<_>>().join(" ")
        };
        let batches: Vec<String> = order.batches.iter().map(names).collect();
        assert_eq!(
            batches,
            [
                "a-rest-seed1 a-disk-seed1 a-rest-seed2 a-disk-seed2",
                "b-rest-seed1",
                "b-disk-seed1",
                "b-rest-seed2",
                "b-disk-seed2",
                "a-rest-seed3 a-disk-seed3",
                "b-rest-seed3",
                "b-disk-seed3",
            ]
        );
        assert_eq!((order.kernel_of(0), order.kernel_of(1)), (0, 1));
    }

    #[test]
    fn a_folder_is_gone_on_with_by_the_same_order_and_the_same_kernels_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let mut first = order(&["a"], &["rest"], 2);
        first.split(Duration::ZERO, |_, _| Duration::from_secs(1));
        first.keep(&out).expect("made");
        // The batches are those of the first command, whatever a later one would make.
        let again = order(&["a"], &["rest"], 2).keep(&out).expect("the same");
        assert_eq!(again.batches, [[0], [1]]);
        let said = order(&["a"], &["disk"], 2).keep(&out).expect_err("another").to_string();
        assert!(said.contains("a-disk-seed1 differs"), "{said}");
        let kernel = |typed: &str| KernelRef::parse(typed).expect("sound");
        assert!(!WorkOrder::is_pinned(&out, &kernel("a")));
        WorkOrder::pin(&out, &kernel("a"), "one").expect("the first look");
        WorkOrder::pin(&out, &kernel("a:quiet"), "one").expect("the same kernel");
        let said = WorkOrder::pin(&out, &kernel("a"), "two").expect_err("another").to_string();
        assert!(said.contains("a is not the kernel with which this matrix began"), "{said}");
        let foreign = folder.path().join("foreign");
        fs::create_dir(&foreign).expect("made");
        fs::write(foreign.join("letter"), "x").expect("written");
        order(&["a"], &["rest"], 2).keep(&foreign).expect_err("not empty");
        fs::write(foreign.join(GUESTS), r#"{"format":1,"guests":{}}"#).expect("written");
        let said = order(&["a"], &["rest"], 2).keep(&foreign).expect_err("no order").to_string();
        assert!(said.contains("leave --engine out"), "{said}");
    }
}
