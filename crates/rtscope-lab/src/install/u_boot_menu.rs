//! Debian's u-boot-menu: `u-boot-update` writes `extlinux.conf` anew with each kernel, from settings in shell files.
//!
//! What is to stay must be in these settings. u-boot-menu 4.2 reads `/etc/default/u-boot` and then the files of
//! `conf.d`; earlier versions read the first one only.

use std::path::Path;

use super::{
    below,
    change::{Change, Content},
    marked_block::{Mark, with_block},
    parameters::{Words, without_parameters},
};
use crate::error::LabError;

const PROGRAM: &str = "usr/sbin/u-boot-update";
const SETTINGS: &str = "etc/default/u-boot";

/// A file whose name comes last, so that its settings count.
const OWN: &str = "etc/u-boot-menu/conf.d/zz-rtscope.conf";

/// Whether `u-boot-update` wrote a text of `extlinux.conf`, and is still there to write it again.
pub(super) fn writes(root: &Path, extlinux: &str) -> bool {
    extlinux.contains("u-boot-update") && below::is_file(root, &root.join(PROGRAM))
}

/// The settings with which `u-boot-update` writes this command line.
///
/// # Errors
///
/// A file can't be read.
pub(super) fn with_line(root: &Path, line: &str, words: &Words<'_>) -> Result<Change, LabError> {
    let (disk, others): (Vec<&str>, Vec<&str>) =
        line.split_whitespace().partition(|word| word.starts_with("root="));
    let mut body = format!("U_BOOT_PARAMETERS=\"{}\"\n", others.join(" "));
    // Without parameters in its settings, it takes the disk from where it takes the parameters.
    if let Some(disk) = disk.first() {
        body += &format!("U_BOOT_ROOT=\"{disk}\"\n");
    }
    let program = below::read_text(root, &root.join(PROGRAM))?;
    if program.contains("/etc/u-boot-menu/conf.d") {
        let text = format!("# Written by rtscope: {}\n{body}", words.title());
        return Ok(Change::File { from: Content::Text(text), to: root.join(OWN) });
    }
    let path = root.join(SETTINGS);
    let text = without_parameters(&below::read_text(root, &path)?);
    Ok(Change::Replace { path, text: with_block(&text, &words.title(), &body), mark: Mark::Block })
}
