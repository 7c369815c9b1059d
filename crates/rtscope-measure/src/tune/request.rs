//! From settings and their values to the changes that they take on this machine. Only reads.

use std::collections::BTreeSet;

use rtscope_model::{
    cpu::CpuSet,
    finding::{Finding, Weight},
    text::Problem,
};
use rtscope_sys::{Error, tree::Tree};

use super::{
    change::{Change, ChangeKind, ThreadName, priority_text, swaps},
    error::TuneError,
    irq, kernel_thread, service,
    setting::{self, SettingDescriptor, Target, ThreadAspect, value},
    shield,
};
use crate::environment::{not_online, online};

/// A setting with its value.
#[derive(Debug)]
pub(super) struct SettingRequest {
    pub(super) setting: &'static SettingDescriptor,
    pub(super) text: String,
}

/// What a setting takes on this machine.
#[derive(Debug, Default)]
pub(super) struct Planned {
    pub(super) changes: Vec<Change>,
    /// Keys of all that it sets, also of what is as asked already.
    pub(super) claims: Vec<String>,
    /// What it leaves as it is, and why.
    pub(super) notes: Vec<Finding>,
    /// Changes that the kernel may refuse without that being an error, as long as not all of them are.
    pub(super) may_be_refused: bool,
}

impl Planned {
    fn new(claims: Vec<String>, changes: Vec<Change>) -> Planned {
        Planned { changes, claims, ..Planned::default() }
    }

    /// Changes that may be refused, each of which is a claim.
    fn tolerant(all: Vec<Change>) -> Planned {
        let claims = all.iter().map(Change::key).collect();
        let changes = all.into_iter().filter(|change| change.old != change.new).collect();
        Planned { changes, claims, notes: Vec::new(), may_be_refused: true }
    }
}

impl SettingRequest {
    pub(super) fn new(name: &str, value: &str) -> Result<SettingRequest, Problem> {
        let setting = setting::find(name)?;
        Ok(SettingRequest { setting, text: setting.text(value)? })
    }

    pub(super) fn is_held(&self) -> bool {
        self.setting.needs_its_process()
    }

    /// The changes on this machine. A shield leaves alone what other settings claim: `taken`.
    pub(super) fn plan(&self, tree: &Tree, taken: &BTreeSet<String>) -> Result<Planned, TuneError> {
        match self.setting.target {
            Target::Held(path) => {
                self.present_files(tree).map(|_| Planned::new(vec![path.to_owned()], Vec::new()))
            }
            Target::Interrupts => self.interrupts(tree),
            Target::Threads(aspect) => self.threads(tree, aspect),
            Target::Services => self.services(tree),
            Target::Swap => Ok(self.swap(tree)),
            Target::Shield => shield::plan(tree, &self.text, taken),
            Target::Workqueues => {
                let cpus = self.text.parse().unwrap_or_default();
                refuse_absent(tree, self.setting.name, &cpus)?;
                self.files(tree)
            }
            _ => self.files(tree),
        }
    }

    fn present_files(&self, tree: &Tree) -> Result<Vec<String>, TuneError> {
        let files = self.setting.files(tree);
        if files.is_empty() {
            let path = tree.path(self.setting.place());
            return Err(TuneError::Absent { setting: self.setting.name.to_owned(), path });
        }
        Ok(files)
    }

    fn files(&self, tree: &Tree) -> Result<Planned, TuneError> {
        let files = self.present_files(tree)?;
        let mut changes = Vec::new();
        for path in &files {
            let old = setting::present(tree, path)?;
            let Some(new) = self.setting.wanted(tree, path, &self.text, &old) else { continue };
            if old != new {
                changes.push(Change::file(self.setting.name, path, &old, &new));
            }
        }
        let may_be_refused = match self.setting.target {
            Target::Each { some_refuse, .. } => some_refuse,
            Target::Workqueues => true,
            _ => false,
        };
        Ok(Planned { may_be_refused, ..Planned::new(files, changes) })
    }

    fn interrupts(&self, tree: &Tree) -> Result<Planned, TuneError> {
        self.present_files(tree)?;
        let entries =
            value::for_names(&self.text, |text| Some(text.to_owned())).unwrap_or_default();
        let mut wanted = std::collections::BTreeMap::new();
        for entry in entries {
            let cpus: CpuSet = entry.value.parse().unwrap_or_default();
            refuse_absent(tree, self.setting.name, &cpus)?;
            // A later entry counts more, as of two equal lines in a file.
            for irq in irq::named(tree, entry.pattern.as_deref())? {
                wanted.insert(irq, cpus.clone());
            }
        }
        let change = |(irq, cpus): (u32, CpuSet)| {
            let path = setting::irq_file(&irq.to_string());
            // One that was freed in the meantime is none to move.
            let old = setting::present(tree, &path).ok()?;
            Some(Change::file(self.setting.name, &path, &old, &cpus.to_string()))
        };
        Ok(Planned::tolerant(wanted.into_iter().filter_map(change).collect()))
    }

    fn threads(&self, tree: &Tree, aspect: ThreadAspect) -> Result<Planned, TuneError> {
        let entries =
            value::for_names(&self.text, |text| Some(text.to_owned())).unwrap_or_default();
        let mut all: Vec<Change> = Vec::new();
        let mut left_out: Vec<String> = Vec::new();
        let threads = kernel_thread::all(tree);
        for entry in entries {
            if aspect == ThreadAspect::Cpus {
                let cpus = entry.value.parse().unwrap_or_default();
                refuse_absent(tree, self.setting.name, &cpus)?;
            }
            let pattern = entry.pattern.unwrap_or_default();
            let found =
                threads.iter().filter(|(_, stat)| kernel_thread::fits(&pattern, &stat.name));
            let before = all.len();
            for (tid, stat) in found {
                let change = self.thread_change(aspect, &ThreadName::of(*tid, stat), &entry.value);
                // It may have ended since it was listed.
                let Ok(old) = change.present(tree) else { continue };
                if aspect == ThreadAspect::Policy && !kernel_thread::is_restorable(&old) {
                    left_out.push(format!("{} (thread {tid}, {old})", stat.name));
                    continue;
                }
                all.retain(|earlier| earlier.key() != change.key());
                all.push(Change { old, ..change });
            }
            if all.len() == before
                && !threads.iter().any(|(_, stat)| kernel_thread::fits(&pattern, &stat.name))
            {
                return Err(no_thread(tree, self.setting.name, &pattern));
            }
        }
        if all.is_empty() && !left_out.is_empty() {
            let text = format!("{}: {}", self.setting.name, not_restorable(&left_out));
            return Err(Problem::new(text).into());
        }
        let note = || Finding::new("setting-left-out", Weight::Note, not_restorable(&left_out));
        let notes = (!left_out.is_empty()).then(note).into_iter().collect();
        Ok(Planned { notes, ..Planned::tolerant(all) })
    }

    fn thread_change(&self, aspect: ThreadAspect, thread: &ThreadName, new: &str) -> Change {
        let kind = match aspect {
            ThreadAspect::Policy => ChangeKind::Policy,
            ThreadAspect::Cpus => ChangeKind::Affinity,
        };
        Change {
            kind,
            thread: Some(thread.clone()),
            ..Change::file(self.setting.name, &format!("proc/{}", thread.tid), "", new)
        }
    }

    fn services(&self, tree: &Tree) -> Result<Planned, TuneError> {
        if !service::has_systemd(tree) {
            let text =
                "services: systemd doesn't run here, and rtscope can stop only systemd services";
            return Err(Problem::new(text).into());
        }
        let all = self.text == value::KNOWN;
        let named: Vec<&str> =
            if all { service::UNITS.to_vec() } else { self.text.split(',').collect() };
        let mut changes = Vec::new();
        for unit in named {
            let state = service::state(tree, unit)?;
            if state == "not-found" && !all {
                let text = format!("services: {unit} isn't installed here: leave it out");
                return Err(Problem::new(text).into());
            }
            if state == service::ACTIVE {
                let change =
                    Change::file(self.setting.name, unit, service::ACTIVE, service::INACTIVE);
                changes.push(Change { kind: ChangeKind::Service, ..change });
            }
        }
        let claims = changes.iter().map(Change::key).collect();
        Ok(Planned::new(claims, changes))
    }

    fn swap(&self, tree: &Tree) -> Planned {
        let change = |(path, priority): (String, i32)| Change {
            kind: ChangeKind::Swap,
            ..Change::file(self.setting.name, &path, &priority_text(priority), "off")
        };
        let mut areas = swaps(tree);
        // The kernel gives priorities of its own in the order in which areas come, the highest first; and what is
        // changed last is put back first.
        areas.sort_by_key(|(_, priority)| *priority);
        let changes: Vec<Change> = areas.into_iter().map(change).collect();
        Planned::new(changes.iter().map(Change::key).collect(), changes)
    }
}

/// Refuses CPUs that don't run. Where the kernel doesn't show which do, it is left to it.
pub(super) fn refuse_absent(tree: &Tree, setting: &str, cpus: &CpuSet) -> Result<(), Problem> {
    let online = online(tree);
    let absent = cpus.without(&online);
    if online.is_empty() || absent.is_empty() {
        return Ok(());
    }
    Err(Problem::new(format!("{setting}: {}", not_online(&absent, &online))))
}

fn not_restorable(threads: &[String]) -> String {
    let first = threads.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    format!(
        "{} kernel thread{} left out, because rtscope could not restore the policy: {first}",
        threads.len(),
        if threads.len() == 1 { " is" } else { "s are" }
    )
}

fn no_thread(tree: &Tree, setting: &str, pattern: &str) -> TuneError {
    let of_users = kernel_thread::every_process(tree)
        .into_iter()
        .any(|(_, stat)| !stat.is_kernel() && kernel_thread::fits(pattern, &stat.name));
    let text = if of_users {
        format!(
            "{setting}: {pattern:?} is not a kernel thread: change a program's threads with `rtscope ps --set`"
        )
    } else {
        format!(
            "{setting}: no kernel thread is called {pattern:?}: list them with `rtscope ps --kernel`"
        )
    };
    let names: Vec<String> =
        kernel_thread::all(tree).into_iter().map(|(_, stat)| stat.name).collect();
    Problem::new(text).suggest(pattern, names.iter().map(String::as_str)).into()
}

/// The findings of what the kernel did not let be changed.
pub(super) fn partly_refused(
    setting: &str,
    refused: &[(String, TuneError)],
    all: usize,
) -> Finding {
    let count = refused.len();
    let first: Vec<&str> = refused.iter().take(3).map(|(place, _)| place.as_str()).collect();
    let text = format!(
        "{setting}: {count} of {all} don't have the new value, because the kernel refused it or another program changed it meanwhile, for example {}",
        first.join(", ")
    );
    Finding::new("setting-partly-refused", Weight::Note, text)
}

/// An error of a thread or file that is no more.
pub(super) fn is_gone(error: &Error) -> bool {
    const NO_SUCH_THREAD: i32 = 3;
    match error {
        Error::File { source, .. } => {
            source.kind() == std::io::ErrorKind::NotFound
                || source.raw_os_error() == Some(NO_SUCH_THREAD)
        }
        other => other.errno() == Some(NO_SUCH_THREAD),
    }
}
