//! How a system boots: which file names the kernel, and where it lies.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use rtscope_model::text::suggest;
use serde::{Deserialize, Serialize};

use super::below;
use crate::error::LabError;

/// How a system boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootLayout {
    /// The Raspberry Pi's firmware with `config.txt`.
    RaspberryPi,
    /// GRUB with `grub.cfg`.
    Grub,
    /// `extlinux.conf`, read by U-Boot or syslinux.
    Extlinux,
    /// U-Boot with `uEnv.txt`.
    UBoot,
    /// U-Boot with Armbian's `armbianEnv.txt`. Kernels are not installed there, only parameters are set.
    Armbian,
    /// systemd-boot with `loader.conf`. Kernels are not installed there, only parameters are set.
    SystemdBoot,
}

/// Names on the command line.
const NAMES: [(&str, BootLayout); 6] = [
    ("raspberry-pi", BootLayout::RaspberryPi),
    ("grub", BootLayout::Grub),
    ("extlinux", BootLayout::Extlinux),
    ("u-boot", BootLayout::UBoot),
    ("armbian", BootLayout::Armbian),
    ("systemd-boot", BootLayout::SystemdBoot),
];

impl fmt::Display for BootLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = NAMES.iter().find(|(_, layout)| layout == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

impl FromStr for BootLayout {
    type Err = String;

    fn from_str(text: &str) -> Result<BootLayout, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, layout)| *layout);
        found.ok_or_else(|| {
            let names = NAMES.map(|(name, _)| name);
            let hint = suggest(text, names).map(|word| format!(" (did you mean {word:?}?)"));
            format!(
                "no layout {text:?}; there are {}{}",
                names.join(", "),
                hint.unwrap_or_default()
            )
        })
    }
}

/// What the boot loader would start, as far as its configuration says. Paths are absolute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Chosen {
    pub image: PathBuf,
    /// The initial RAM disk.
    pub initrd: Option<PathBuf>,
    /// Device tree, or the folder that the loader picks it from.
    pub device_tree: Option<PathBuf>,
    /// The kernel's command line, where the layout says it.
    pub cmdline: String,
}

impl Chosen {
    /// A file that is named and isn't there: the system wouldn't boot.
    #[must_use]
    pub fn missing(&self) -> Option<&Path> {
        let files = [Some(&self.image), self.initrd.as_ref(), self.device_tree.as_ref()];
        files.into_iter().flatten().map(PathBuf::as_path).find(|path| !path.exists())
    }
}

/// The first folder below a root that has a file.
pub(super) fn folder_with(root: &Path, folders: &[&str], file: &str) -> Result<PathBuf, LabError> {
    let mut all = folders.iter().map(|folder| root.join(folder));
    let found = all.find(|folder| below::is_file(root, &folder.join(file)));
    found.ok_or_else(|| {
        let places: Vec<String> = folders
            .iter()
            .map(|folder| root.join(folder).join(file).display().to_string())
            .collect();
        LabError::Refused(format!(
            "{} has none of {}: is it mounted, and is the layout right?",
            root.display(),
            places.join(", ")
        ))
    })
}

/// A path as a boot loader names it (`/boot/Image`, `/Image` where /boot is a partition of its own) as
/// a path here.
pub(super) fn located(root: &Path, base: &Path, name: &str) -> PathBuf {
    let bare = name.trim_start_matches('/');
    let places = [root.join(bare), root.join("boot").join(bare), base.join(bare)];
    let there = places.iter().find(|path| below::is_there(root, path));
    there.unwrap_or(if name.starts_with('/') { &places[0] } else { &places[2] }).clone()
}
