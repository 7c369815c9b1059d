//! Parameters of the kernel command line: a new boot entry with them beside the old one, for the same kernel.
//!
//! The entry is a copy of the one that boots now, with other words on its command line. It is written as that of a
//! new kernel is: in a marked block, with the old file in the journal. Nothing of the old entry changes.

use std::{collections::BTreeSet, path::Path};

use super::{
    apply, armbian,
    change::{Change, Content, settled},
    extlinux, grub,
    journal::{self, FoundJournal, Heading, JournalLine},
    layout::{BootLayout, Chosen},
    lock,
    marked_block::{Mark, without_titled_block},
    raspberry_pi,
    steps::Steps,
    systemd_boot, u_boot, undo, undo_unfinished,
};
use crate::{
    cache::Identity,
    error::LabError,
    progress::{Report, step},
};

/// Name of files and entries with parameters.
pub(super) const MARK: &str = "rtscope-parameters";

/// What names it in a journal, where a kernel's name stands else.
const NAME: &str = "boot parameters";

/// Words for a kernel command line.
#[derive(Debug)]
pub(super) struct Words<'a>(pub(super) &'a str);

impl Words<'_> {
    /// A command line with them. A parameter that it has already gets the new value: the kernel takes the first of
    /// two for some parameters and the last for others.
    pub(super) fn on(&self, line: &str) -> String {
        let kept = line.split_whitespace().filter(|word| {
            let name = parameter(word);
            !self.0.split_whitespace().any(|new| parameter(new) == name)
        });
        kept.chain(self.0.split_whitespace()).collect::<Vec<_>>().join(" ")
    }

    /// One line for people.
    pub(super) fn title(&self) -> String {
        format!("{NAME}: {}", self.0)
    }
}

/// Title of the copy of a boot entry. The original may be the entry of a kernel that rtscope installed.
pub(super) fn entry_title(of: &str) -> String {
    format!("{} (rtscope parameters)", of.trim_end_matches(" (rtscope)"))
}

/// A parameter's name. The kernel takes `-` and `_` for the same.
fn parameter(word: &str) -> String {
    word.split('=').next().unwrap_or_default().replace('-', "_")
}

/// What was done to a system's boot entries.
#[derive(Clone, Debug)]
pub struct ParametersSet {
    /// What the boot loader starts now.
    pub chosen: Chosen,
    /// All words that are set, those of an earlier call too.
    pub words: String,
    /// Files that are new or replaced, below the root.
    pub changed: Vec<std::path::PathBuf>,
}

/// Adds a boot entry with parameters and makes it the default one. Parameters that were set before stay set: the new entry,
/// which has them too, takes the earlier one's place in one step.
///
/// # Errors
///
/// Words that no command line can hold; a root that isn't of the layout, or whose entry can't be copied; a file that
/// can't be written. Then nothing is changed.
pub fn set_parameters(
    root: &Path,
    layout: BootLayout,
    words: &str,
    steps: &mut Steps,
    report: &mut Report<'_>,
) -> Result<ParametersSet, LabError> {
    refuse_words(words)?;
    let _lock = lock(root)?;
    undo_unfinished(root, steps, report)?;
    let earlier = topmost(&journal::all(root)?).to_vec();
    let words = match earlier.last().and_then(|found| found.heading.parameters.as_ref()) {
        Some(before) => Words(words).on(before),
        None => words.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    let outcome = set_entry(root, layout, &words, &earlier, steps, report);
    if matches!(&outcome, Err(error) if !matches!(error, LabError::Stopped(_))) {
        undo_unfinished(root, &mut Steps::default(), report)?;
    }
    outcome
}

/// The journals of parameters on top of all others, the oldest first.
fn topmost(all: &[FoundJournal]) -> &[FoundJournal] {
    let count = all.iter().rev().take_while(|found| found.heading.parameters.is_some()).count();
    &all[all.len() - count..]
}

/// A text without the block of parameters that were set before.
pub(super) fn without_parameters(text: &str) -> String {
    without_titled_block(text, NAME)
}

/// A file that was made for earlier parameters gets another text: it is ours, and the boot loader reads it.
fn in_place_of(root: &Path, earlier: &[FoundJournal], change: Change) -> Change {
    let made = |to: &Path| {
        let is_it = |line: &JournalLine| matches!(line, JournalLine::New { path, .. } if root.join(path) == *to);
        earlier.iter().flat_map(|found| &found.lines).any(is_it)
    };
    match change {
        Change::File { from: Content::Text(text), to } if made(&to) && to.is_file() => {
            Change::Replace { path: to, text, mark: Mark::Block }
        }
        other => other,
    }
}

/// Writes the entry. The journal keeps what was there, which may be an earlier entry of ours.
fn set_entry(
    root: &Path,
    layout: BootLayout,
    words: &str,
    earlier: &[FoundJournal],
    steps: &mut Steps,
    report: &mut Report<'_>,
) -> Result<ParametersSet, LabError> {
    let changes = settled(root, changes(root, layout, &Words(words))?)?;
    let changes: Vec<Change> =
        changes.into_iter().map(|change| in_place_of(root, earlier, change)).collect();
    let kernel =
        Identity { name: NAME.to_owned(), key: "parameters".to_owned(), ..Identity::default() };
    let heading = Heading { kernel, layout, parameters: Some(words.to_owned()) };
    step(report, format!("setting {words} below {}", root.display()));
    apply(root, &heading, &changes, steps)?;
    let below = |change: &Change| {
        let place = change.place();
        place.strip_prefix(root).unwrap_or(place).to_owned()
    };
    let changed = changes.iter().map(below).collect();
    Ok(ParametersSet { chosen: layout.chosen(root)?, words: words.to_owned(), changed })
}

/// The words that are set below a root; none when none are.
///
/// # Errors
///
/// The journals can't be read.
pub fn parameters(root: &Path) -> Result<Option<String>, LabError> {
    let all = journal::all(root)?;
    let newest = |done: bool| {
        let mut set = all.iter().rev().filter(|found| found.done || !done);
        set.find_map(|found| found.heading.parameters.clone())
    };
    // The next command that writes there undoes what was broken off.
    Ok(newest(true).or_else(|| newest(false)))
}

/// All words that are set below a root, also those below a kernel that was installed since, but for parameters that new
/// words name too.
pub(super) fn all_parameters(root: &Path, new: &str) -> Result<String, LabError> {
    let all = journal::all(root)?.into_iter().filter_map(|found| found.heading.parameters);
    let all = all.fold(String::new(), |before, words| Words(&words).on(&before));
    let is_new = |word: &&str| new.split_whitespace().any(|one| parameter(one) == parameter(word));
    Ok(all.split_whitespace().filter(|word| !is_new(word)).collect::<Vec<_>>().join(" "))
}

/// Removes the boot entry with parameters: the old one is the default again. Answers the words; none when none are set.
///
/// # Errors
///
/// A kernel was installed after, and must be removed first; or a file can't be written: then it can be run again.
pub fn remove_parameters(
    root: &Path,
    steps: &mut Steps,
    report: &mut Report<'_>,
) -> Result<Option<String>, LabError> {
    let _lock = lock(root)?;
    undo_unfinished(root, steps, report)?;
    let all = journal::all(root)?;
    let is_ours = |found: &&FoundJournal| found.heading.parameters.is_some();
    let Some(ours) = all.iter().rev().find(is_ours) else { return Ok(None) };
    let newest = all.last().unwrap_or(ours);
    if newest.dir != ours.dir {
        return Err(LabError::Refused(format!(
            "{} was installed after the boot parameters were set: run `rtscope kernel rollback` first",
            newest.heading.kernel.name
        )));
    }
    let mut notes = Vec::new();
    for found in topmost(&all).iter().rev() {
        notes.extend(undo(root, found, steps)?);
    }
    // A file that was edited after the last of several calls is told of by each.
    let mut told = BTreeSet::new();
    for note in notes.into_iter().filter(|note| told.insert(note.clone())) {
        report(crate::progress::StepProgress::Warning(note));
    }
    let words = ours.heading.parameters.clone();
    if ours.heading.layout == BootLayout::Extlinux
        && let Some(words) = words.as_deref()
        && extlinux::is_generated_with(root, words)
    {
        report(crate::progress::StepProgress::Warning(
            "u-boot-update wrote the boot entries since, with these parameters: run it once more"
                .to_owned(),
        ));
    }
    Ok(words)
}

/// The layout of a root, by the boot loader's files in it.
#[must_use]
pub fn layout_of(root: &Path) -> Option<BootLayout> {
    [
        BootLayout::RaspberryPi,
        BootLayout::Armbian,
        BootLayout::Extlinux,
        BootLayout::UBoot,
        BootLayout::Grub,
        BootLayout::SystemdBoot,
    ]
    .into_iter()
    .find(|layout| layout.chosen(root).is_ok())
}

fn changes(root: &Path, layout: BootLayout, words: &Words<'_>) -> Result<Vec<Change>, LabError> {
    match layout {
        BootLayout::RaspberryPi => raspberry_pi::with_parameters(root, words),
        BootLayout::Grub => grub::with_parameters(root, words),
        BootLayout::Extlinux => extlinux::with_parameters(root, words),
        BootLayout::UBoot => u_boot::with_parameters(root, words),
        BootLayout::Armbian => armbian::with_parameters(root, words),
        BootLayout::SystemdBoot => systemd_boot::with_parameters(root, words),
    }
}

/// Longest command line that a kernel of any architecture takes whole.
const LINE_BYTES: usize = 1024;

/// Refuses what would break a boot loader's file.
pub(super) fn refuse_words(words: &str) -> Result<(), LabError> {
    let refused = |text: String| Err(LabError::Refused(text));
    if words.trim().is_empty() {
        return refused("name at least one parameter, for example isolcpus=2-3".to_owned());
    }
    if words.len() > LINE_BYTES {
        return refused(format!("the parameters have more than {LINE_BYTES} characters"));
    }
    let is_plain = |c: char| c.is_ascii_graphic() || c == ' ';
    let special = ['$', '"', '\'', '`', '\\', ';', '#', '{', '}'];
    match words.chars().find(|c| !is_plain(*c) || special.contains(c)) {
        Some(c) => refused(format!("{words:?}: a boot loader would not pass {c:?} on unchanged")),
        None => Ok(()),
    }
}

/// The command line of the next boot, as it is and as it would be with words.
///
/// # Errors
///
/// The root isn't of the layout, or words that no command line can hold.
pub fn lines_with(
    root: &Path,
    layout: BootLayout,
    words: &str,
) -> Result<(String, String), LabError> {
    refuse_words(words)?;
    let old = layout.chosen(root)?.cmdline;
    let new = Words(words).on(&old);
    Ok((old, new))
}
