//! `extlinux.conf`, as U-Boot and syslinux read it: our label beside the old ones, and the default.

use std::path::{Path, PathBuf};

use super::{
    Wish, below,
    change::Change,
    initrd,
    layout::{Chosen, folder_with, located},
    marked_block::{Mark, silenced, with_block, without_block},
    parameters::{MARK, Words, without_parameters},
    u_boot_menu,
};
use crate::error::LabError;

const FOLDERS: [&str; 2] = ["boot/extlinux", "extlinux"];
const CONFIG: &str = "extlinux.conf";

fn read(root: &Path) -> Result<(PathBuf, String), LabError> {
    let path = folder_with(root, &FOLDERS, CONFIG)?.join(CONFIG);
    let text = below::read_text(root, &path)?;
    Ok((path, text))
}

/// A label's lines: keyword in capitals, and the rest.
#[derive(Debug, Default)]
struct Label {
    name: String,
    lines: Vec<(String, String)>,
}

impl Label {
    fn value(&self, keys: &[&str]) -> Option<&str> {
        self.lines
            .iter()
            .find(|(key, _)| keys.contains(&key.as_str()))
            .map(|(_, rest)| rest.as_str())
    }
}

const IMAGE: [&str; 2] = ["LINUX", "KERNEL"];
const TREE_FOLDER: [&str; 2] = ["FDTDIR", "DEVICETREEDIR"];
const TREE: [&str; 2] = ["FDT", "DEVICETREE"];

/// The label that the last `DEFAULT` names, else the first.
fn default_label(text: &str) -> Option<Label> {
    let mut labels: Vec<Label> = Vec::new();
    let mut default = None;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let (key, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let (key, rest) = (key.to_ascii_uppercase(), rest.trim().to_owned());
        match key.as_str() {
            "LABEL" => labels.push(Label { name: rest, lines: Vec::new() }),
            "DEFAULT" => default = Some(rest),
            _ => {
                if let Some(label) = labels.last_mut().filter(|_| !key.is_empty()) {
                    label.lines.push((key, rest));
                }
            }
        }
    }
    let wanted = labels.iter().position(|label| Some(&label.name) == default.as_ref());
    let at = wanted.unwrap_or(0);
    (at < labels.len()).then(|| labels.swap_remove(at))
}

fn no_label(path: &Path) -> LabError {
    LabError::Refused(format!(
        "{} has no label with a kernel that rtscope could copy",
        path.display()
    ))
}

/// What the boot loader would start.
pub(super) fn chosen(root: &Path) -> Result<Chosen, LabError> {
    let (path, text) = read(root)?;
    let label = default_label(&text).ok_or_else(|| no_label(&path))?;
    let base = path.parent().unwrap_or(root);
    let at = |name: &str| located(root, base, name);
    Ok(Chosen {
        image: at(label.value(&IMAGE).ok_or_else(|| no_label(&path))?),
        initrd: label.value(&["INITRD"]).map(at),
        device_tree: label.value(&TREE).or(label.value(&TREE_FOLDER)).map(at),
        cmdline: label.value(&["APPEND"]).unwrap_or_default().to_owned(),
    })
}

pub(super) fn changes(wish: &Wish<'_>) -> Result<Vec<Change>, LabError> {
    if wish.once {
        return Err(LabError::Refused(
            "extlinux.conf has no way to boot a kernel once; leave --once out".to_owned(),
        ));
    }
    let (path, text) = read(wish.root)?;
    let plain = without_block(&text);
    let label = default_label(&plain).ok_or_else(|| no_label(&path))?;
    let old = label.value(&IMAGE).ok_or_else(|| no_label(&path))?;
    let base = path.parent().unwrap_or(wish.root);
    let old_image = located(wish.root, base, old);
    let folder = old_image.parent().unwrap_or(base).to_owned();
    let seen = old.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let release = wish.release();
    let image = format!("vmlinuz-{release}");
    let mut changes =
        vec![Change::File { from: wish.image_beside(&old_image), to: folder.join(&image) }];
    let mut body = format!("LABEL {}\n\tLINUX {seen}{image}\n", wish.mark());
    if let Some(dtbs) = wish.kernel.dtbs() {
        let name = format!("dtbs-{release}");
        if let Some(line) = tree_line(&label, &dtbs, &format!("{seen}{name}"))? {
            body += &line;
            changes.push(Change::Tree { from: dtbs, to: folder.join(&name) });
        }
    } else if let Some((key, value)) = label
        .lines
        .iter()
        .find(|(key, _)| TREE.contains(&key.as_str()) || TREE_FOLDER.contains(&key.as_str()))
    {
        body += &format!("\t{key} {value}\n");
    }
    let old_initrd = label.value(&["INITRD"]).map(|name| located(wish.root, base, name));
    let name = format!("initrd.img-{release}");
    if let Some(from) = initrd(wish, old_initrd.as_deref())? {
        body += &format!("\tINITRD {seen}{name}\n");
        changes.push(Change::File { from, to: folder.join(&name) });
    }
    let line = wish.line(label.value(&["APPEND"]).unwrap_or_default())?;
    body += &format!("\tAPPEND {line}\nDEFAULT {}\n", wish.mark());
    let quiet = silenced(&plain, |line| {
        line.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("DEFAULT"))
    });
    let text = with_block(&quiet, &wish.title(), &body);
    changes.push(Change::Replace { path, text, mark: Mark::Block });
    Ok(changes)
}

/// A copy of the default label with other words.
pub(super) fn with_parameters(root: &Path, words: &Words<'_>) -> Result<Vec<Change>, LabError> {
    let (path, text) = read(root)?;
    let text = without_parameters(&text);
    let label = default_label(&text).ok_or_else(|| no_label(&path))?;
    label.value(&IMAGE).ok_or_else(|| no_label(&path))?;
    let kept = label.lines.iter().filter(|(key, _)| key != "APPEND");
    // What a menu shows for the old label would be said of two.
    let kept = kept.filter(|(key, _)| !key.starts_with("MENU"));
    let lines: String = kept.map(|(key, rest)| format!("\t{key} {rest}\n")).collect();
    let line = words.on(label.value(&["APPEND"]).unwrap_or_default());
    let body = format!("LABEL {MARK}\n{lines}\tAPPEND {line}\nDEFAULT {MARK}\n");
    let quiet = silenced(&text, |line| {
        line.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("DEFAULT"))
    });
    let is_generated = u_boot_menu::writes(root, &text);
    let text = with_block(&quiet, &words.title(), &body);
    let mut changes = vec![Change::Replace { path, text, mark: Mark::Block }];
    if is_generated {
        changes.insert(0, u_boot_menu::with_line(root, &line, words)?);
    }
    Ok(changes)
}

/// Whether u-boot-update wrote these words onto the command line that boots now.
pub(super) fn is_generated_with(root: &Path, words: &str) -> bool {
    let Ok((_, text)) = read(root) else { return false };
    let label = default_label(&text).unwrap_or_default();
    let line: Vec<&str> = label.value(&["APPEND"]).unwrap_or_default().split_whitespace().collect();
    u_boot_menu::writes(root, &text) && words.split_whitespace().all(|word| line.contains(&word))
}

/// The new label's device tree: the same file of the new kernel, or its folder; none where the old label
/// has none.
fn tree_line(label: &Label, dtbs: &Path, seen: &str) -> Result<Option<String>, LabError> {
    let Some(old) = label.value(&TREE) else {
        let has = label.value(&TREE_FOLDER).is_some();
        return Ok(has.then(|| format!("\tFDTDIR {seen}\n")));
    };
    // `/boot/dtbs/ti/k3-board.dtb`: the longest end of it that the new kernel has.
    let parts: Vec<&str> = old.split('/').filter(|part| !part.is_empty()).collect();
    let ends = (0..parts.len()).map(|from| parts[from..].join("/"));
    let found = ends.into_iter().find(|end| dtbs.join(end).is_file());
    match found {
        Some(end) => Ok(Some(format!("\tFDT {seen}/{end}\n"))),
        None => Err(LabError::Refused(format!(
            "the new kernel has no device tree like {old}: it was built for another board, or its \
             device trees weren't built"
        ))),
    }
}
