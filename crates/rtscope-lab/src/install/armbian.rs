//! Armbian: U-Boot's script `boot.scr` reads `armbianEnv.txt`, and puts `extraargs` on the kernel's command line. Of two
//! equal names the last counts. Kernels are not installed there, only parameters are set.

use std::path::{Path, PathBuf};

use super::{
    below,
    change::Change,
    layout::Chosen,
    marked_block::{Mark, with_block},
    parameters::{Words, without_parameters},
};
use crate::error::LabError;

const FILE: &str = "boot/armbianEnv.txt";

/// Images that the script loads, by architecture.
const IMAGES: [&str; 2] = ["boot/Image", "boot/zImage"];

fn read(root: &Path) -> Result<(PathBuf, String), LabError> {
    let path = root.join(FILE);
    let text = below::read_text(root, &path)?;
    Ok((path, text))
}

fn extra_arguments(text: &str) -> &str {
    let lines = text.lines().rev().map(str::trim);
    lines
        .filter_map(|line| line.strip_prefix("extraargs="))
        .map(str::trim)
        .next()
        .unwrap_or_default()
}

/// What U-Boot would start. Of the command line only what the file adds to it is known.
pub(super) fn chosen(root: &Path) -> Result<Chosen, LabError> {
    let (path, text) = read(root)?;
    let mut images = IMAGES.iter().map(|name| root.join(name));
    let image = images.find(|image| below::is_file(root, image)).ok_or_else(|| {
        LabError::Refused(format!(
            "{} is there, but neither boot/Image nor boot/zImage: is the boot partition mounted?",
            path.display()
        ))
    })?;
    let there = |name: &str| {
        let path = root.join(name);
        below::is_there(root, &path).then_some(path)
    };
    Ok(Chosen {
        image,
        initrd: there("boot/uInitrd"),
        device_tree: there("boot/dtb"),
        cmdline: extra_arguments(&text).to_owned(),
    })
}

pub(super) fn with_parameters(root: &Path, words: &Words<'_>) -> Result<Vec<Change>, LabError> {
    let (path, text) = read(root)?;
    let text = without_parameters(&text);
    let body = format!("extraargs={}\n", words.on(extra_arguments(&text)));
    let text = with_block(&text, &words.title(), &body);
    Ok(vec![Change::Replace { path, text, mark: Mark::Block }])
}
