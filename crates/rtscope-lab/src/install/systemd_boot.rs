//! systemd-boot: `loader/loader.conf` and one file for each entry in `loader/entries`, on the EFI partition.

use std::{
    cmp::Ordering,
    fs,
    path::{Path, PathBuf},
};

use super::{
    below,
    change::{Change, Content},
    layout::{Chosen, folder_with, located},
    marked_block::{Mark, silenced, with_block},
    parameters::{MARK, Words, entry_title, without_parameters},
};
use crate::error::LabError;

const FOLDERS: [&str; 4] = ["boot/loader", "efi/loader", "boot/efi/loader", "loader"];
const CONFIG: &str = "loader.conf";

struct Entry {
    name: String,
    text: String,
}

impl Entry {
    fn value(&self, key: &str) -> Option<&str> {
        self.text.lines().find_map(|line| value_of(line, key))
    }
}

fn value_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (name, rest) = line.trim().split_once(char::is_whitespace)?;
    (name == key).then(|| rest.trim())
}

struct Loader {
    folder: PathBuf,
    config: String,
    entries: Vec<Entry>,
}

impl Loader {
    fn read(root: &Path) -> Result<Loader, LabError> {
        let folder = folder_with(root, &FOLDERS, CONFIG)?;
        let path = folder.join(CONFIG);
        let config = below::read_text(root, &path)?;
        let mut entries = Vec::new();
        for file in fs::read_dir(below::place(root, &folder.join("entries"))?)
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = file.path();
            let name = file.file_name().to_string_lossy().into_owned();
            if name.ends_with(".conf") {
                let text = below::read_text(root, &path)?;
                entries.push(Entry { name, text });
            }
        }
        entries.retain(|entry| entry.value("linux").is_some());
        entries.sort_by(|a, b| version_order(sorted_by(a), sorted_by(b)).then(a.name.cmp(&b.name)));
        Ok(Loader { folder, config, entries })
    }

    /// The entry that the configuration names, else the newest.
    fn default(&self) -> Result<&Entry, LabError> {
        let named = self.config.lines().filter_map(|line| value_of(line, "default")).next_back();
        if let Some(saved) = named.filter(|name| name.starts_with('@')) {
            return Err(LabError::Refused(format!(
                "{} has `default {saved}`, which the firmware's variables decide: name an entry there first",
                self.folder.join(CONFIG).display()
            )));
        }
        let fits = |entry: &&Entry| {
            named.is_some_and(|pattern| {
                let bare = entry.name.trim_end_matches(".conf");
                pattern == entry.name
                    || pattern == bare
                    || pattern.strip_suffix('*').is_some_and(|start| entry.name.starts_with(start))
            })
        };
        let chosen = self.entries.iter().rev().find(fits).or(self.entries.last());
        chosen.ok_or_else(|| {
            LabError::Refused(format!(
                "{} has no entry with a `linux` line that rtscope could copy",
                self.folder.join("entries").display()
            ))
        })
    }
}

fn sorted_by(entry: &Entry) -> &str {
    entry.value("version").unwrap_or(&entry.name)
}

/// The order of versions: numbers in them count as numbers.
fn version_order(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| -> Vec<(u64, String)> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let number = rest[..digits].parse().unwrap_or(0);
            rest = &rest[digits..];
            let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            parts.push((number, rest[..letters].to_owned()));
            rest = &rest[letters..];
        }
        parts
    };
    parts(a).cmp(&parts(b))
}

/// What systemd-boot would start.
pub(super) fn chosen(root: &Path) -> Result<Chosen, LabError> {
    let loader = Loader::read(root)?;
    let entry = loader.default()?;
    let base = loader.folder.parent().unwrap_or(root).to_owned();
    let at = |name: &str| {
        let own = base.join(name.trim_start_matches('/'));
        if below::is_there(root, &own) { own } else { located(root, &base, name) }
    };
    let options = entry.text.lines().filter_map(|line| value_of(line, "options"));
    Ok(Chosen {
        image: at(entry.value("linux").unwrap_or_default()),
        initrd: entry.value("initrd").map(&at),
        device_tree: entry.value("devicetree").map(&at),
        cmdline: options.collect::<Vec<_>>().join(" "),
    })
}

/// A copy of the default entry with other options, and a line that names it.
pub(super) fn with_parameters(root: &Path, words: &Words<'_>) -> Result<Vec<Change>, LabError> {
    let mut loader = Loader::read(root)?;
    let name = format!("{MARK}.conf");
    loader.config = without_parameters(&loader.config);
    loader.entries.retain(|entry| entry.name != name);
    let entry = loader.default()?;
    let options = entry.text.lines().filter_map(|line| value_of(line, "options"));
    let line = words.on(&options.collect::<Vec<_>>().join(" "));
    let mut text = format!("# Written by rtscope: {}\n", words.title());
    for old in entry.text.lines().filter(|old| value_of(old, "options").is_none()) {
        match value_of(old, "title") {
            Some(title) => text += &format!("title {}\n", entry_title(title)),
            None => text += &format!("{old}\n"),
        }
    }
    text += &format!("options {line}\n");
    let config = silenced(&loader.config, |old| value_of(old, "default").is_some());
    let config = with_block(&config, &words.title(), &format!("default {name}\n"));
    Ok(vec![
        Change::File { from: Content::Text(text), to: loader.folder.join("entries").join(&name) },
        Change::Replace { path: loader.folder.join(CONFIG), text: config, mark: Mark::Block },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_versions_count() {
        for (older, newer) in [("6.1.9", "6.1.10"), ("6.12", "6.12.1"), ("5.15-a", "6.1-a")] {
            assert_eq!(version_order(older, newer), Ordering::Less, "{older} {newer}");
        }
        assert_eq!(version_order("6.1.0-9", "6.1.0-9"), Ordering::Equal);
    }
}
