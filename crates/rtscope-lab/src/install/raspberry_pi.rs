//! The Raspberry Pi's firmware: `config.txt` and `cmdline.txt` on a FAT partition.
//!
//! The new kernel gets a folder of its own on the boot partition, with image, device trees, overlays and
//! command line, and `os_prefix` in `config.txt` leads the firmware there. The firmware ignores the
//! prefix when the folder has no kernel or no device tree of its board, and takes the same names without
//! it: so the files in the folder have the names that the old configuration boots, and without the prefix
//! that is the old kernel. Nothing of it is touched.
//!
//! Firmware that is older than `os_prefix` takes the in-place way: `kernel=` with a new name, and our
//! words on the one line of `cmdline.txt`; the old device trees serve both kernels.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use super::{
    Wish, below,
    change::{Change, Content},
    initrd,
    layout::{Chosen, folder_with},
    marked_block::{
        Mark, is_marked, silenced, with_block, with_words, without_block, without_words,
    },
    parameters::{MARK, Words, without_parameters},
    target,
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

/// What the firmware would start.
pub(super) fn chosen(root: &Path) -> Result<Chosen, LabError> {
    let boot = folder_with(root, &BOOT, CONFIG)?;
    of_config(root, &boot, &below::read_text(root, &boot.join(CONFIG))?)
}

/// The last value of a key.
fn value(config: &str, key: &str) -> Option<String> {
    let lines = config.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let mut values = lines.filter_map(|line| line.split_once('=').filter(|(name, _)| *name == key));
    values.next_back().map(|(_, value)| value.trim().to_owned())
}

/// Whether a prefix leads to a file of the boot partition.
fn stays_below(prefix: &str) -> bool {
    Path::new(prefix).components().all(|part| matches!(part, Component::Normal(_)))
}

fn of_config(root: &Path, boot: &Path, config: &str) -> Result<Chosen, LabError> {
    let value = |key: &str| value(config, key);
    let image = |prefix: &str| match value("kernel") {
        Some(name) => boot.join(format!("{prefix}{name}")),
        None => {
            let paths = IMAGES.iter().map(|name| boot.join(format!("{prefix}{name}")));
            let there = paths.clone().find(|path| path.is_file());
            there.unwrap_or_else(|| boot.join(format!("{prefix}{}", IMAGES[1])))
        }
    };
    let prefix = value("os_prefix").filter(|prefix| stays_below(prefix)).unwrap_or_default();
    // The firmware takes a prefix only where it leads to a kernel and a device tree.
    let viable = prefix.is_empty() || (image(&prefix).is_file() && has_board(boot, &prefix));
    let prefix = if viable { prefix } else { String::new() };
    let named = value("cmdline").unwrap_or_else(|| "cmdline.txt".to_owned());
    let own = boot.join(format!("{prefix}{named}"));
    let cmdline = if below::is_file(root, &own) { own } else { boot.join(&named) };
    Ok(Chosen {
        initrd: initramfs_of(boot, config, &prefix, &image(&prefix)),
        image: image(&prefix),
        device_tree: (!trees_of(boot, &prefix).is_empty()).then(|| boot.join(&prefix)),
        cmdline: below::read_text(root, &cmdline)?.trim_end().to_owned(),
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

/// Names of the device trees below a prefix, without it. The firmware puts the prefix before each name, so it is a
/// folder only if it ends in a slash.
fn trees_of(boot: &Path, prefix: &str) -> Vec<String> {
    let (folder, begin) = prefix.rsplit_once('/').unwrap_or(("", prefix));
    let names = files_of(&boot.join(folder)).into_iter().filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_prefix(begin)?;
        (name.starts_with("bcm") && name.ends_with(".dtb")).then(|| name.to_owned())
    });
    names.collect()
}

/// Whether a prefix has a device tree of a board that the boot partition is for: which of its boards it is
/// in, the card doesn't say.
fn has_board(boot: &Path, prefix: &str) -> bool {
    let (new, old) = (trees_of(boot, prefix), trees_of(boot, ""));
    new.iter().any(|name| old.is_empty() || old.contains(name))
}

/// Whether an image is one of 64 bits, where its head or its name says it.
fn is_wide(image: &Path) -> Option<bool> {
    let of_name = || IMAGES.iter().position(|name| image.ends_with(name)).map(|at| at < 2);
    target::of_image(image).map(|kernels| kernels == ["arm64"]).or_else(of_name)
}

/// The names that the firmware may take the old kernel by: the one that is said, or by board.
fn old_names(boot: &Path, config: &str, old: &Path, wide: bool) -> Vec<PathBuf> {
    if let Some(said) = value(config, "kernel") {
        return vec![PathBuf::from(said)];
    }
    let mut names: Vec<PathBuf> = IMAGES.iter().map(PathBuf::from).collect();
    names.retain(|name| boot.join(name).is_file() && is_wide(name) == Some(wide));
    if names.is_empty() {
        names.extend(old.file_name().map(PathBuf::from));
    }
    names
}

/// Refuses device trees among which are not all of the boot partition's.
fn lacks_no_board(
    wish: &Wish<'_>,
    boot: &Path,
    new: &[(Content, PathBuf)],
) -> Result<(), LabError> {
    // 64-bit kernels have none of the boards that can't run them.
    let narrow = ["bcm2708", "bcm2709"];
    let wide = wish.kernel.manifest.arch == "arm64";
    let mut lacking = trees_of(boot, "");
    lacking.retain(|name| {
        let counts = !(wide && narrow.iter().any(|chip| name.starts_with(chip)));
        counts && !new.iter().any(|(_, to)| to == Path::new(name))
    });
    if lacking.is_empty() {
        return Ok(());
    }
    wish.refuse_unless_forced(&format!(
        "{} has no device tree {}, which the boot partition has: on such a board the firmware would boot \
         the old kernel",
        wish.kernel.manifest.name,
        lacking.join(", ")
    ))
}

pub(super) fn changes(wish: &Wish<'_>) -> Result<Vec<Change>, LabError> {
    let boot = folder_with(wish.root, &BOOT, CONFIG)?;
    let config = below::read_text(wish.root, &boot.join(CONFIG))?;
    let plain = without_block(&config);
    let named = value(&plain, "cmdline").filter(|name| stays_below(name));
    let named = PathBuf::from(named.as_deref().unwrap_or("cmdline.txt"));
    let text = below::read_text(wish.root, &boot.join(&named))?;
    if is_marked(&text) && wish.in_place {
        return Err(LabError::Refused(format!(
            "{} has parameters of an earlier installation: run `rtscope kernel rollback` first",
            named.display()
        )));
    }
    let cmdline = (named.as_path(), text.as_str());
    let old = of_config(wish.root, &boot, &plain)?;
    let initrd = initrd(wish, old.initrd.as_deref())?;
    let wide = wish.kernel.manifest.arch == "arm64";
    // [all] ends whatever section the file ends in.
    let mut body = format!("[all]\narm_64bit={}\n", u8::from(wide));
    let mut quiet = plain.clone();
    let mut changes = if wish.in_place {
        body += &format!("kernel={}.img\n", wish.mark());
        body += &match initrd {
            Some(_) => format!("initramfs {}.initrd followkernel\n", wish.mark()),
            None => "auto_initramfs=0\n".to_owned(),
        };
        quiet = silenced(&plain, |line| line.starts_with("initramfs "));
        in_place(wish, &boot, cmdline, initrd)?
    } else {
        body += &format!("os_prefix={}/\n", wish.mark());
        let mut names = old_names(&boot, &plain, &old.image, wide);
        if is_wide(&below::place(wish.root, &old.image)?).is_some_and(|old| old != wide) {
            wish.refuse_unless_forced(&format!(
                "one of the old kernel ({}) and {} is 64-bit and the other 32-bit, so the firmware couldn't fall back to \
                 the old one",
                old.image.display(),
                wish.kernel.manifest.name
            ))?;
            names = vec![PathBuf::from("kernel.img")];
            body += "kernel=kernel.img\n";
        }
        let own = value(&plain, "os_prefix").unwrap_or_default();
        let without_own = |path: &Path| {
            let name = path.strip_prefix(&boot).ok().and_then(Path::to_str);
            name.and_then(|name| name.strip_prefix(&own)).map(PathBuf::from)
        };
        if !own.is_empty() && without_own(&old.image).is_some() {
            wish.refuse_unless_forced(&format!(
                "the old kernel ({}) has an os_prefix of its own, and the firmware would fall back to the \
                 one beside config.txt",
                old.image.display()
            ))?;
        }
        let old_initrd = old.initrd.map(|old| without_own(&old).unwrap_or(old));
        if initrd.is_some() && old_initrd.is_none() {
            body += "initramfs initrd.img followkernel\n";
        }
        prefixed(wish, &boot, cmdline, &names, initrd.map(|new| (new, old_initrd)))?
    };
    // A block of an earlier kernel of ours goes out of force, not out of the journal.
    let text = with_block(&quiet, &wish.title(), &body);
    let path = boot.join(CONFIG);
    changes.push(match wish.once {
        true => Change::File { from: Content::Text(text), to: boot.join(TRY) },
        false => Change::Replace { path, text, mark: Mark::Block },
    });
    Ok(changes)
}

/// A command line of its own, and the line in `config.txt` that names it. The old one stays as it is.
pub(super) fn with_parameters(root: &Path, words: &Words<'_>) -> Result<Vec<Change>, LabError> {
    let boot = folder_with(root, &BOOT, CONFIG)?;
    let path = boot.join(CONFIG);
    let config = without_parameters(&below::read_text(root, &path)?);
    let now = of_config(root, &boot, &config)?;
    let name = format!("{MARK}.txt");
    // The firmware puts the prefix before this name too, where the prefix leads to a kernel.
    let image = now.image.file_name().unwrap_or_default();
    let prefix = now
        .image
        .strip_prefix(&boot)
        .ok()
        .and_then(|below| below.to_str()?.strip_suffix(image.to_str()?).map(str::to_owned));
    let prefix = prefix.filter(|prefix| value(&config, "os_prefix").as_deref() == Some(prefix));
    let line = words.on(&now.cmdline) + "\n";
    let text = with_block(&config, &words.title(), &format!("[all]\ncmdline={name}\n"));
    let to = boot.join(format!("{}{name}", prefix.unwrap_or_default()));
    Ok(vec![
        Change::File { from: Content::Text(line), to },
        Change::Replace { path, text, mark: Mark::Block },
    ])
}

/// A folder of its own, with the image under each of the names, and the initial RAM disk under the old
/// one's. Names are below the folder that the old kernel is in.
fn prefixed(
    wish: &Wish<'_>,
    boot: &Path,
    (cmdline, text): (&Path, &str),
    names: &[PathBuf],
    initrd: Option<(Content, Option<PathBuf>)>,
) -> Result<Vec<Change>, LabError> {
    let trees = device_trees(wish);
    if trees.is_empty() {
        return Err(LabError::Refused(format!(
            "{} has no device trees of a Raspberry Pi, and the firmware takes a folder only with one: \
             build it with `dtbs = true`, or install with --in-place and keep the old device trees",
            wish.kernel.manifest.name
        )));
    }
    lacks_no_board(wish, boot, &trees)?;
    // The firmware reads the first line only.
    let old = without_words(text);
    let line = wish.line(old.lines().next().unwrap_or_default())? + "\n";
    let mut files = vec![(Content::Text(line), cmdline.to_owned())];
    let image = |name: &PathBuf| (Content::Copy(wish.kernel.vmlinuz()), name.clone());
    files.extend(names.iter().map(image));
    if let Some((content, old)) = initrd {
        let auto: Vec<PathBuf> = names.iter().map(|image| auto_name(image).into()).collect();
        let names = match old {
            Some(old) if auto.contains(&old) => auto,
            Some(old) => vec![old],
            None => vec![PathBuf::from("initrd.img")],
        };
        files.extend(names.into_iter().map(|name| (content.clone(), name)));
    }
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
    (cmdline, text): (&Path, &str),
    initrd: Option<Content>,
) -> Result<Vec<Change>, LabError> {
    let words = wish.line("")?;
    if wish.once && !words.is_empty() {
        return Err(LabError::Refused(format!(
            "--once with --in-place can't change the command line, which is the same for both kernels; if boot parameters \
             are set, run `rtscope tune restore --boot{}` first",
            super::of_root(wish.root)
        )));
    }
    let image = boot.join(format!("{}.img", wish.mark()));
    let mut changes = vec![Change::File { from: Content::Copy(wish.kernel.vmlinuz()), to: image }];
    let to = boot.join(format!("{}.initrd", wish.mark()));
    changes.extend(initrd.map(|from| Change::File { from, to }));
    if !words.is_empty() {
        // The old kernel ignores parameters of drivers that it doesn't know.
        let text = with_words(text, &words);
        changes.push(Change::Replace { path: boot.join(cmdline), text, mark: Mark::Words });
    }
    Ok(changes)
}
