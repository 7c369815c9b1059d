//! What `rtscope doctor` reads of a machine: the environment of a record, and the files that its rules look at.
//!
//! It only reads, under a root that can be another folder. Nothing that is missing fails the whole. A file that is
//! there and can't be read is noted as refused, so that a rule can say that something isn't known.

mod anonymous;
mod files;
mod services;

use std::collections::BTreeMap;

use rtscope_model::{
    doctor::{BootLoader, FileReading, MachineFacts},
    printable::with_printable_texts,
};
use rtscope_sys::tree::Tree;

pub use self::anonymous::anonymous;
use crate::environment::{self, smi};

/// Everything that the rules of `rtscope doctor` look at. Takes some milliseconds.
#[must_use]
pub fn collect(tree: &Tree) -> MachineFacts {
    let live = tree.path("").as_os_str() == "/";
    let environment = environment::collect(tree);
    let counts =
        environment.cpus.online.iter().filter_map(|cpu| Some((cpu, smi::count(tree, cpu)?)));
    let smi_counts: BTreeMap<u32, u64> = counts.collect();
    with_printable_texts(MachineFacts {
        files: files::collect(tree, &environment),
        boot_loader: boot_loader(tree),
        services: services::collect(tree),
        smi_counts,
        environment,
        live,
    })
}

/// The boot loader that the files of a root show; the most specific file counts.
fn boot_loader(tree: &Tree) -> BootLoader {
    let shown = [
        ("boot/firmware/cmdline.txt", BootLoader::RaspberryPi),
        ("boot/cmdline.txt", BootLoader::RaspberryPi),
        ("boot/uEnv.txt", BootLoader::UBoot),
        ("boot/extlinux/extlinux.conf", BootLoader::Extlinux),
        ("etc/default/grub", BootLoader::Grub),
        ("etc/kernel/cmdline", BootLoader::SystemdBoot),
    ];
    let found = shown.into_iter().find(|(path, _)| tree.is_file(path));
    found.map_or(BootLoader::Unknown, |(_, loader)| loader)
}

/// A file as it was read; none where there is no such file.
fn reading(tree: &Tree, path: &str) -> Option<FileReading> {
    let source = match tree.read_bytes(path) {
        Ok(bytes) => {
            let bytes = &bytes[..bytes.len().min(files::BYTES_MAX)];
            return Some(FileReading::Text(String::from_utf8_lossy(bytes).trim().to_owned()));
        }
        Err(rtscope_sys::Error::File { source, .. }) => source,
        Err(_) => return None,
    };
    // A file of a device that isn't there answers with other errors.
    (source.kind() == std::io::ErrorKind::PermissionDenied).then_some(FileReading::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn an_empty_root_has_no_facts() {
        let fake = FakeTree::new();
        assert_eq!(collect(&fake.tree), MachineFacts::default());
    }

    #[test]
    fn the_lines_of_a_file_stay_apart() {
        let fake = FakeTree::new();
        fake.file("proc/swaps", "Filename Type\n/dev/sda2 partition\n");
        assert_eq!(
            collect(&fake.tree).text("proc/swaps"),
            Some("Filename Type\n/dev/sda2 partition")
        );
    }

    #[test]
    fn this_machine_has_facts() {
        let facts = collect(&Tree::default());
        assert!(facts.live && !facts.environment.kernel.release.is_empty());
        assert!(facts.text("proc/self/limits").is_some_and(|text| text.contains("realtime")));
    }

    #[test]
    fn the_boot_loader_is_the_one_whose_file_is_there() {
        let fake = FakeTree::new();
        fake.file("etc/default/grub", "GRUB_CMDLINE_LINUX=\"\"\n");
        assert_eq!(boot_loader(&fake.tree), BootLoader::Grub);
        fake.file("boot/firmware/cmdline.txt", "console=tty1\n");
        assert_eq!(boot_loader(&fake.tree), BootLoader::RaspberryPi);
    }
}
