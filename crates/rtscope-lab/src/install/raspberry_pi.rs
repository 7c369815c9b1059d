//! The Raspberry Pi's firmware: `config.txt` and `cmdline.txt` on a FAT partition.
//!
//! The new kernel gets a folder of its own on the boot partition, with image, device trees, overlays and
//! command line, and `os_prefix` in `config.txt` leads the firmware there. The firmware ignores the
//! prefix when the folder has no kernel or no device tree. Nothing of the old kernel is touched.
//!
//! Firmware that is older than `os_prefix` takes the in-place way: `kernel=` with a new name, and our
//! words on the one line of `cmdline.txt`; the old device trees serve both kernels.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Wish,
    change::{Change, Content},
    initrd,
    layout::{Chosen, folder_with},
    marked_block::{
        Mark, is_marked, silenced, with_block, with_words, without_block, without_words,
    },
};
use crate::error::LabError;

/// Where the boot partition is, below the root: newer systems, older ones, the partition by itself.
const BOOT: [&str; 3] = ["boot/firmware", "boot", ""];

/// What the firmware looks for when no `kernel=` is given, of the newest boards first.
const IMAGES: [&str; 5] =
    ["kernel_2712.img", "kernel8.img", "kernel7l.img", "kernel7.img", "kernel.img"];

/// `config.txt` is read in this one, or once, for `reboot '0 tryboot'`, in the other.
const CONFIG: &str = "config.txt";
const TRY: &str = "tryboot.txt";

fn read(path: &Path) -> Result<String, LabError> {
    fs::read_to_string(path).map_err(LabError::file("read", path))
}

/// What the firmware would start.
pub(super) fn chosen(root: &Path) -> Result<Chosen, LabError> {
    let boot = folder_with(root, &BOOT, CONFIG)?;
    of_config(&boot, &read(&boot.join(CONFIG))?)
}

fn of_config(boot: &Path, config: &str) -> Result<Chosen, LabError> {
    let value = |key: &str| {
        let lines = config.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let mut values =
            lines.filter_map(|line| line.split_once('=').filter(|(name, _)| *name == key));
        values.next_back().map(|(_, value)| value.trim().to_owned())
    };
    let image = |prefix: &str| match value("kernel") {
        Some(name) => boot.join(format!("{prefix}{name}")),
        None => {
            let paths = IMAGES.iter().map(|name| boot.join(format!("{prefix}{name}")));
            let there = paths.clone().find(|path| path.is_file());
            there.unwrap_or_else(|| boot.join(format!("{prefix}{}", IMAGES[1])))
        }
    };
    let prefix = value("os_prefix").unwrap_or_default();
    // The firmware takes a prefix only where it leads to a kernel and a device tree.
    let folder = boot.join(&prefix);
    let viable = image(&prefix).is_file() && (prefix.is_empty() || has_device_tree(&folder));
    let prefix = if viable { prefix } else { String::new() };
    let named = value("cmdline").unwrap_or_else(|| "cmdline.txt".to_owned());
    let own = boot.join(format!("{prefix}{named}"));
    let cmdline = if own.is_file() { own } else { boot.join(&named) };
    Ok(Chosen {
        initrd: initramfs_of(boot, config, &prefix, &image(&prefix)),
        image: image(&prefix),
        device_tree: has_device_tree(&boot.join(&prefix)).then(|| boot.join(&prefix)),
        cmdline: read(&cmdline)?.trim_end().to_owned(),
    })
}

/// The initial RAM disk: as `initramfs NAME ADDRESS` says last, or, with `auto_initramfs`, the one that is
/// called as the image is, if it is there.
fn initramfs_of(boot: &Path, config: &str, prefix: &str, image: &Path) -> Option<PathBuf> {
    let lines = || config.lines().map(str::trim).rev();
    let named = lines().find_map(|line| line.strip_prefix("initramfs")?.strip_prefix([' ', '=']));
    let named = named.and_then(|rest| rest.split_whitespace().next());
    if let Some(name) = named {
        // The firmware goes on without a file that isn't in the prefix's folder.
        let path = boot.join(format!("{prefix}{name}"));
        return (prefix.is_empty() || path.is_file()).then_some(path);
    }
    let auto = lines().find_map(|line| line.strip_prefix("auto_initramfs="))?.trim();
    let path = image.with_file_name(auto_name(image));
    (auto == "1" && path.is_file()).then_some(path)
}

/// `initramfs8` of `kernel8.img`.
fn auto_name(image: &Path) -> String {
    let stem = image.file_stem().unwrap_or_default().to_string_lossy();
    stem.replacen("kernel", "initramfs", 1)
}

fn has_device_tree(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.path().extension().is_some_and(|e| e == "dtb"))
}

pub(super) fn changes(wish: &Wish<'_>) -> Result<Vec<Change>, LabError> {
    let boot = folder_with(wish.root, &BOOT, CONFIG)?;
    let config = read(&boot.join(CONFIG))?;
    let cmdline = read(&boot.join("cmdline.txt"))?;
    if is_marked(&cmdline) && wish.in_place {
        return Err(LabError::Refused(
            "cmdline.txt has words of an earlier installation: `rtscope kernel rollback` first"
                .to_owned(),
        ));
    }
    let plain = without_block(&config);
    let old = of_config(&boot, &plain)?;
    let initrd = initrd(wish, old.initrd.as_deref())?;
    let initramfs = initramfs(wish, initrd.is_some());
    let mut changes = if wish.in_place {
        in_place(wish, &boot, &cmdline, initrd)?
    } else {
        prefixed(wish, &boot, &cmdline, initrd)?
    };
    let mark = wish.mark();
    let wide = if wish.kernel.manifest.arch == "arm64" { 1 } else { 0 };
    let image = if wish.in_place { format!("{mark}.img") } else { "kernel.img".to_owned() };
    let prefix = if wish.in_place { String::new() } else { format!("os_prefix={mark}/\n") };
    // [all] ends whatever section the file ends in.
    let body = format!("[all]\narm_64bit={wide}\n{prefix}kernel={image}\n{initramfs}");
    // A block of an earlier kernel of ours goes out of force, not out of the journal.
    let quiet = silenced(&plain, |line| wish.in_place && line.starts_with("initramfs "));
    let text = with_block(&quiet, &wish.title(), &body);
    let path = boot.join(CONFIG);
    changes.push(match wish.once {
        true => Change::File { from: Content::Text(text), to: boot.join(TRY) },
        false => Change::Replace { path, text, mark: Mark::Block },
    });
    Ok(changes)
}

fn initramfs(wish: &Wish<'_>, has_one: bool) -> String {
    match has_one {
        true if wish.in_place => format!("initramfs {}.initrd followkernel\n", wish.mark()),
        true => "initramfs initrd.img followkernel\n".to_owned(),
        false => "auto_initramfs=0\n".to_owned(),
    }
}

/// A folder of its own.
fn prefixed(
    wish: &Wish<'_>,
    boot: &Path,
    cmdline: &str,
    initrd: Option<Content>,
) -> Result<Vec<Change>, LabError> {
    let trees = device_trees(wish);
    if trees.is_empty() {
        return Err(LabError::Refused(format!(
            "{} has no device trees of a Raspberry Pi, and the firmware takes a folder only with one: \
             build it with `dtbs = true`, or install with --in-place and keep the old device trees",
            wish.kernel.manifest.name
        )));
    }
    let mut files = vec![
        (Content::Copy(wish.kernel.vmlinuz()), PathBuf::from("kernel.img")),
        (
            Content::Text(with_words(&without_words(cmdline), wish.words)),
            PathBuf::from("cmdline.txt"),
        ),
    ];
    files.extend(initrd.map(|content| (content, PathBuf::from("initrd.img"))));
    let has_overlays = trees.iter().any(|(_, to)| to.starts_with("overlays"));
    let has_readme = trees.iter().any(|(_, to)| to == Path::new("overlays/README"));
    files.extend(trees);
    if has_overlays && !has_readme {
        // The firmware takes overlays from a folder only where a file of this name is.
        let text = format!("Overlays of {}.\n", wish.title());
        files.push((Content::Text(text), PathBuf::from("overlays/README")));
    }
    Ok(vec![Change::Files { from: files, to: boot.join(wish.mark()) }])
}

/// The board's device trees and overlays as they lie on the boot partition.
fn device_trees(wish: &Wish<'_>) -> Vec<(Content, PathBuf)> {
    let Some(dtbs) = wish.kernel.dtbs() else { return Vec::new() };
    let mut found = Vec::new();
    let folders = [dtbs.join("broadcom"), dtbs.clone()];
    for folder in &folders {
        for path in files_of(folder) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("bcm2") && name.ends_with(".dtb") {
                found.push((Content::Copy(path), PathBuf::from(name)));
            }
        }
        for path in files_of(&folder.join("overlays")) {
            let to = Path::new("overlays").join(path.file_name().unwrap_or_default());
            found.push((Content::Copy(path), to));
        }
    }
    found
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Beside the old files, under a new name.
fn in_place(
    wish: &Wish<'_>,
    boot: &Path,
    cmdline: &str,
    initrd: Option<Content>,
) -> Result<Vec<Change>, LabError> {
    if wish.once && !wish.words.is_empty() {
        return Err(LabError::Refused(
            "--once with --in-place can't change the command line, which is the same for both kernels"
                .to_owned(),
        ));
    }
    let image = boot.join(format!("{}.img", wish.mark()));
    let mut changes = vec![Change::File { from: Content::Copy(wish.kernel.vmlinuz()), to: image }];
    let to = boot.join(format!("{}.initrd", wish.mark()));
    changes.extend(initrd.map(|from| Change::File { from, to }));
    if !wish.words.is_empty() {
        // The old kernel ignores parameters of drivers that it doesn't know.
        let text = with_words(cmdline, wish.words);
        changes.push(Change::Replace { path: boot.join("cmdline.txt"), text, mark: Mark::Words });
    }
    Ok(changes)
}
