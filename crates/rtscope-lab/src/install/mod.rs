//! Installing a kernel into a root folder, so that the old one always still boots.
//!
//! New files go beside the old ones, under names of their own; nothing that the old kernel needs is
//! overwritten. Last of all, and in one step, the boot loader's configuration is replaced: before it
//! the old kernel is chosen, after it the new one with all its files. Everything is in a journal, so
//! that [`rollback`] restores what was there, also after an installation that was killed.
//!
//! On FAT, where boards keep their boot files, a power failure (not a killed process) in the instant of
//! the replacement may leave both names or none: that file system keeps no journal.

mod armbian;
mod below;
mod change;
mod extlinux;
mod grub;
pub mod journal;
pub mod layout;
mod loader;
pub mod marked_block;
mod parameters;
mod raspberry_pi;
mod steps;
mod systemd_boot;
mod target;
#[cfg(test)]
mod tests;
mod u_boot;
mod u_boot_menu;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rtscope_model::text::shell_word;
use rustix::fs::OFlags;
use serde::Serialize;

use self::{
    change::{Change, Content},
    journal::{FoundJournal, Heading, Journal, JournalLine},
    parameters::{Words, all_parameters, refuse_words},
};
pub use self::{
    layout::{BootLayout, Chosen},
    parameters::{
        ParametersSet, layout_of, lines_with, parameters, remove_parameters, set_parameters,
    },
    steps::Steps,
};
use crate::{
    cache::{KeptKernel, Manifest},
    config::merge,
    disk::{self, Demand, Shortage},
    error::LabError,
    folder_lock::FolderLock,
    progress::{Report, StepProgress, step},
    tool,
};

/// What is asked of an installation.
#[derive(Debug)]
pub struct Wish<'a> {
    pub kernel: &'a KeptKernel,
    /// The root of the system it goes into.
    pub root: &'a Path,
    /// How that system boots.
    pub layout: BootLayout,
    /// Words for the kernel's command line.
    pub words: &'a str,
    /// Boot it once only, where the layout can.
    pub once: bool,
    /// Raspberry Pi with firmware that doesn't know `os_prefix`: image and command line in place.
    pub in_place: bool,
    /// The initial RAM disk.
    pub initrd: Initrd<'a>,
    /// Install it also where it would hardly boot: it is for another architecture, or for emulators, or would find no root
    /// file system.
    pub force: bool,
    /// Whether free space is checked before anything is written.
    pub check_space: bool,
}

/// Where the initial RAM disk comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initrd<'a> {
    /// Made on this machine where the old kernel has one.
    Made,
    File(&'a Path),
    /// None, although the old kernel has one.
    Without,
}

impl Wish<'_> {
    /// Name of files and entries of this kernel.
    fn mark(&self) -> String {
        format!("rtscope-{}", &self.kernel.manifest.key[..8.min(self.kernel.manifest.key.len())])
    }

    /// What boots this kernel once it is installed.
    #[must_use]
    pub fn boot_step(&self) -> String {
        match (self.once, self.layout) {
            (true, BootLayout::RaspberryPi) => "`sudo reboot '0 tryboot'` boots it once".to_owned(),
            (true, _) => {
                format!("`sudo grub-reboot {}` and `sudo reboot` boot it once", self.mark())
            }
            (false, _) => "reboot".to_owned(),
        }
    }

    /// Refuses with a sentence, to which the way round it is added.
    fn refuse_unless_forced(&self, why: &str) -> Result<(), LabError> {
        match self.force {
            true => Ok(()),
            false => Err(LabError::Refused(format!("{why}; use --force to install it anyway"))),
        }
    }

    fn release(&self) -> &str {
        &self.kernel.manifest.release
    }

    /// One line that names the kernel.
    fn title(&self) -> String {
        self.kernel.identity().title()
    }

    /// The new kernel's command line: that of the old one with the boot parameters that are set, and this wish's words.
    fn line(&self, old: &str) -> Result<String, LabError> {
        let kept = match all_parameters(self.root, self.words)? {
            set if set.is_empty() => old.to_owned(),
            set => Words(&set).on(old),
        };
        Ok(format!("{kept} {}", self.words).trim().to_owned())
    }

    /// The kernel's image. U-Boot unpacks one that gzip packed only with variables of its own, so it stays packed only where
    /// the old one is.
    fn image_beside(&self, old: &Path) -> Content {
        let image = self.kernel.vmlinuz();
        let was_packed = below::place(self.root, old).is_ok_and(|old| target::is_packed(&old));
        match target::is_packed(&image) && !was_packed {
            true => Content::Unpacked(image),
            false => Content::Copy(image),
        }
    }
}

/// What was installed.
#[derive(Clone, Debug, Serialize)]
pub struct Installed {
    pub journal: PathBuf,
    /// What the boot loader starts now.
    pub chosen: Chosen,
    /// Files and folders that are new or replaced, below the root.
    pub changed: Vec<PathBuf>,
}

/// Installs a kernel. An installation that was broken off is undone first; if this one fails, it is
/// undone too.
///
/// # Errors
///
/// The root isn't of the layout, the kernel is for other machines or lacks what the layout needs, its release is there already,
/// there is no space, or a file can't be written. Nothing of it stays then.
pub fn install(
    wish: &Wish<'_>,
    steps: &mut Steps,
    report: &mut Report<'_>,
) -> Result<Installed, LabError> {
    if !wish.words.is_empty() {
        refuse_words(wish.words)?;
    }
    let _lock = lock(wish.root)?;
    undo_unfinished(wish.root, steps, report)?;
    has_its_modules(wish.kernel)?;
    let before = wish.layout.chosen(wish.root)?;
    if let Some(missing) = before.missing() {
        report(StepProgress::Warning(format!(
            "the boot configuration names {}, which doesn't exist: does this system boot?",
            missing.display()
        )));
    }
    target::check(wish, &before)?;
    let mut changes = modules(wish);
    changes.extend(wish.layout.changes(wish)?);
    let changes = change::settled(wish.root, changes)?;
    let is_new = |change: &&Change| !matches!(change, Change::Replace { .. });
    if let Some(there) = changes.iter().filter(is_new).find(|change| change.is_taken()) {
        return Err(LabError::Refused(format!(
            "{} is there already: remove that kernel first (`rtscope kernel rollback` if rtscope \
             installed it), or give yours another name with CONFIG_LOCALVERSION in a fragment",
            there.place().display()
        )));
    }
    if wish.check_space {
        check_space(wish, &changes)?;
    }
    let heading = Heading { kernel: wish.kernel.identity(), layout: wish.layout, parameters: None };
    step(report, format!("installing {} below {}", wish.title(), wish.root.display()));
    let outcome = apply(wish.root, &heading, &changes, steps);
    match outcome {
        // A stop stands for a killed process, and that cleans nothing up.
        Err(stopped @ LabError::Stopped(_)) => Err(stopped),
        Err(error) => {
            step(report, "the installation failed; restoring everything");
            undo_unfinished(wish.root, &mut Steps::default(), report)?;
            Err(error)
        }
        Ok(journal) => {
            let changed = changes.iter().map(|change| {
                change.place().strip_prefix(wish.root).unwrap_or(change.place()).to_owned()
            });
            Ok(Installed {
                journal,
                chosen: wish.layout.chosen(wish.root)?,
                changed: changed.collect(),
            })
        }
    }
}

fn apply(
    root: &Path,
    heading: &Heading,
    changes: &[Change],
    steps: &mut Steps,
) -> Result<PathBuf, LabError> {
    let mut journal = Journal::begin(root, heading, steps)?;
    for change in changes {
        change.apply(root, &mut journal, steps)?;
    }
    journal.add(&JournalLine::Done, steps)?;
    Ok(journal.dir().to_owned())
}

/// Refuses a kernel whose drivers are modules that weren't kept with it, as those that the lab only boots.
fn has_its_modules(kernel: &KeptKernel) -> Result<(), LabError> {
    let text = kernel.config().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    let makes_some = merge::read(&text).values().any(|value| value.word() == "m");
    if !makes_some || kernel.modules().is_some() {
        return Ok(());
    }
    let Manifest { name, inputs, .. } = &kernel.manifest;
    let way = match inputs.get("package") {
        Some(package) => format!("install it with `apt-get install {package}`"),
        None => "build it with `modules = true` in its spec".to_owned(),
    };
    Err(LabError::Refused(format!(
        "the cache has {name} without its modules, so a system would lack their drivers: {way}"
    )))
}

/// The modules' folder, where the kernel has modules.
fn modules(wish: &Wish<'_>) -> Vec<Change> {
    let to = wish.root.join("lib/modules").join(wish.release());
    wish.kernel.modules().map(|from| Change::Tree { from, to }).into_iter().collect()
}

/// Checks free space on each file system that something goes to.
fn check_space(wish: &Wish<'_>, changes: &[Change]) -> Result<(), LabError> {
    let mut needed: BTreeMap<u64, (PathBuf, Demand)> = BTreeMap::new();
    let mut add = |place: &Path, demand: &dyn Fn(&mut Demand, u64)| {
        let there = place.ancestors().find(|path| path.exists()).unwrap_or(wish.root);
        let device = there.metadata().map_or(0, |there| there.dev());
        let entry = needed.entry(device);
        let (_, sum) = entry.or_insert_with(|| (there.to_owned(), Demand::default()));
        demand(sum, disk::block_bytes(there));
    };
    let journal = journal::folder(wish.root)?;
    add(&journal, &|sum, block| journal::demand(sum, block));
    for change in changes {
        add(change.place(), &|sum, block| change.demand(sum, block));
        if let Change::Replace { path, .. } = change {
            // Its old content goes into the journal.
            let bytes = path.metadata().map_or(0, |there| there.len());
            add(&journal, &|sum, block| sum.add_file(bytes, block));
        }
    }
    let short = |(path, demand): (PathBuf, Demand)| disk::shortage(&path, demand);
    let shortages: Vec<Shortage> = needed.into_values().filter_map(short).collect();
    match shortages.is_empty() {
        true => Ok(()),
        false => Err(LabError::NoRoom { kernel: wish.title(), shortages }),
    }
}

/// What stands for the kernels of the running system. Everybody may lock `/` itself.
const LOCK: &str = "/run/rtscope-kernels.lock";

/// Locks a root against other processes that change its kernels. They would undo what is half done. Whoever can't write
/// the lock file can't change the system's kernels either.
fn lock(root: &Path) -> Result<Option<FolderLock>, LabError> {
    let locked = match root == Path::new("/") {
        false => FolderLock::of(root)?,
        true => {
            let mut options = File::options();
            options
                .create(true)
                .append(true)
                .mode(0o600)
                .custom_flags(OFlags::NOFOLLOW.bits() as i32);
            let Ok(file) = options.open(LOCK) else { return Ok(None) };
            FolderLock::with(file)
        }
    };
    locked.map(Some).ok_or_else(|| {
        LabError::Refused(format!(
            "another rtscope is changing the kernels or boot parameters of {}: wait until it has ended",
            root.display()
        ))
    })
}

fn undo_unfinished(
    root: &Path,
    steps: &mut Steps,
    report: &mut Report<'_>,
) -> Result<(), LabError> {
    let unfinished = journal::all(root)?.into_iter().rev().filter(|found| !found.done);
    for found in unfinished {
        step(
            report,
            format!("undoing an interrupted installation of {}", found.heading.kernel.name),
        );
        for note in undo(root, &found, steps)? {
            report(StepProgress::Warning(note));
        }
    }
    Ok(())
}

fn undo(root: &Path, found: &FoundJournal, steps: &mut Steps) -> Result<Vec<String>, LabError> {
    // With the boot partition not mounted, its files would seem to be gone.
    found.heading.layout.chosen(root)?;
    let notes = change::undo(root, found, steps)?;
    journal::forget(root, found, steps)?;
    Ok(notes)
}

/// The option that names a root which isn't the running system's, with a blank before it.
#[must_use]
pub fn of_root(root: &Path) -> String {
    match root == Path::new("/") {
        true => String::new(),
        false => format!(" --root {}", shell_word(&root.to_string_lossy())),
    }
}

/// What was taken back.
#[derive(Clone, Debug, Serialize)]
pub struct RolledBack {
    pub taken_back: Heading,
    /// What the boot loader starts now, as far as its configuration says.
    pub chosen: Option<Chosen>,
    /// The file that it is told to start, if that is gone: without a new menu, the system doesn't boot.
    pub missing: Option<PathBuf>,
}

/// Takes the newest installation back and answers what it was. With a kernel's name, release or key, only
/// if it is that.
///
/// # Errors
///
/// Nothing is installed, a newer one is on top of the asked one, or a file can't be written; then it
/// can be run again.
pub fn rollback(
    root: &Path,
    asked: Option<&str>,
    steps: &mut Steps,
    report: &mut Report<'_>,
) -> Result<RolledBack, LabError> {
    let _lock = lock(root)?;
    let all = journal::all(root)?;
    let Some(newest) = all.last() else {
        return Err(LabError::Refused(format!(
            "nothing was installed below {} with `rtscope kernel install`",
            root.display()
        )));
    };
    if newest.heading.parameters.is_some() {
        return Err(LabError::Refused(format!(
            "boot parameters were set last and must be removed first: run `rtscope tune restore --boot{}`",
            of_root(root)
        )));
    }
    let is_asked = |found: &FoundJournal| {
        asked.is_none_or(|asked| {
            found.heading.kernel.name == asked
                || found.heading.kernel.release == asked
                || (asked.len() >= 6 && found.heading.kernel.key.starts_with(asked))
        })
    };
    if !is_asked(newest) {
        let names: Vec<&str> = all.iter().map(|found| found.heading.kernel.name.as_str()).collect();
        return Err(LabError::Refused(format!(
            "{} was installed last and must be removed first: run `rtscope kernel rollback` without a \
             name (installed, the oldest first: {})",
            newest.heading.kernel.name,
            names.join(", ")
        )));
    }
    step(report, format!("removing {}", newest.heading.kernel.name));
    for note in undo(root, newest, steps)? {
        report(StepProgress::Warning(note));
    }
    let chosen = newest.heading.layout.chosen(root);
    let chosen = chosen.map_err(|why| report(StepProgress::Warning(why.to_string()))).ok();
    let is_gone = |file: &&Path| {
        let holds = |line: &JournalLine| matches!(line, JournalLine::New { path, .. } if file.starts_with(root.join(path)));
        newest.lines.iter().any(holds)
    };
    let missing = chosen.as_ref().and_then(Chosen::missing).filter(is_gone).map(Path::to_owned);
    Ok(RolledBack { taken_back: newest.heading.clone(), chosen, missing })
}

/// Beginnings of initial RAM disks: cpio archives, those that a kernel unpacks (`lib/decompress.c`), and U-Boot's image.
const INITRDS: [&[u8]; 10] = [
    b"07070",
    b"\xc7\x71",
    b"\x1f\x8b",
    b"\xfd7zXZ\0",
    b"\x28\xb5\x2f\xfd",
    b"\x02\x21\x4c\x18",
    b"BZh",
    b"\x5d\0\0",
    b"\x89LZO",
    b"\x27\x05\x19\x56",
];

/// Refuses a file that no kernel can unpack: the system would not boot with it.
fn check_initrd(path: &Path) -> Result<(), LabError> {
    let file = File::open(path).map_err(LabError::file("read", path))?;
    let is_file = file.metadata().is_ok_and(|found| found.is_file());
    let mut beginning = Vec::new();
    if is_file {
        file.take(8).read_to_end(&mut beginning).map_err(LabError::file("read", path))?;
    }
    match INITRDS.iter().any(|magic| beginning.starts_with(magic)) {
        true => Ok(()),
        false => Err(LabError::Refused(format!(
            "--initrd {}: this isn't an initial RAM disk (neither a cpio archive nor a compressed one)",
            path.display()
        ))),
    }
}

/// The new kernel's initial RAM disk, where the old kernel has one or one is given.
fn initrd(wish: &Wish<'_>, old: Option<&Path>) -> Result<Option<Content>, LabError> {
    let content = match (wish.initrd, old) {
        (Initrd::File(path), _) => {
            check_initrd(path)?;
            Content::Copy(path.to_owned())
        }
        (Initrd::Without, _) | (Initrd::Made, None) => return Ok(None),
        (Initrd::Made, Some(_)) if wish.root == Path::new("/") => {
            let has = |program| tool::find(program).is_some();
            let words: &[&str] = match (has("mkinitramfs") || !has("dracut"), wish.kernel.modules())
            {
                (true, _) => &["mkinitramfs", "-o"],
                (false, Some(_)) => &["dracut"],
                (false, None) => &["dracut", "--no-kernel"],
            };
            tool::require(&[tool::Need::of(words[0], "initramfs-tools")])?;
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            Content::Made { words, then: vec![wish.release().to_owned()] }
        }
        (Initrd::Made, Some(old)) => {
            return Err(LabError::Refused(format!(
                "the old kernel starts with an initial RAM disk ({}). One for the new kernel can be made only \
                 on that system: install there with `--root /`, give a file with --initrd, or give \
                 --no-initrd if all drivers for the root file system are built into the new kernel",
                old.display()
            )));
        }
    };
    Ok(Some(content))
}
