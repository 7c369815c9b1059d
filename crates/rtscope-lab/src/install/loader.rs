//! The boot loader of a layout: what it would start, and what makes it start another kernel.

use std::path::{Path, PathBuf};

use super::{
    Wish, armbian, below,
    change::Change,
    extlinux, grub,
    layout::{BootLayout, Chosen},
    raspberry_pi, systemd_boot, u_boot,
};
use crate::error::LabError;

impl BootLayout {
    /// What the boot loader would start now.
    ///
    /// # Errors
    ///
    /// The root isn't of this layout, or its configuration can't be read.
    pub fn chosen(self, root: &Path) -> Result<Chosen, LabError> {
        let named = match self {
            BootLayout::RaspberryPi => raspberry_pi::chosen(root),
            BootLayout::Grub => grub::chosen(root),
            BootLayout::Extlinux => extlinux::chosen(root),
            BootLayout::UBoot => u_boot::chosen(root),
            BootLayout::Armbian => armbian::chosen(root),
            BootLayout::SystemdBoot => systemd_boot::chosen(root),
        }?;
        let place = |path: PathBuf| below::place(root, &path);
        Ok(Chosen {
            image: place(named.image)?,
            initrd: named.initrd.map(place).transpose()?,
            device_tree: named.device_tree.map(place).transpose()?,
            cmdline: named.cmdline,
        })
    }

    /// The changes that install a kernel. The one that makes the boot loader take it is the last.
    pub(super) fn changes(self, wish: &Wish<'_>) -> Result<Vec<Change>, LabError> {
        match self {
            BootLayout::RaspberryPi => raspberry_pi::changes(wish),
            BootLayout::Grub => grub::changes(wish),
            BootLayout::Extlinux => extlinux::changes(wish),
            BootLayout::UBoot => u_boot::changes(wish),
            BootLayout::Armbian => Err(LabError::Refused(
                "on Armbian, install the kernel as a Debian package (`rtscope kernel package`): its own hooks then \
                 choose it"
                    .to_owned(),
            )),
            BootLayout::SystemdBoot => Err(LabError::Refused(
                "with systemd-boot, install the kernel as a Debian package (`rtscope kernel package`): \
                 kernel-install then makes its entry"
                    .to_owned(),
            )),
        }
    }
}
