//! Whether a kernel is one for the system that it is to go into: what that system runs is read from its
//! programs, and from its old kernel.

use std::{fs::File, io::Read, path::Path};

use flate2::read::GzDecoder;

use super::{BootLayout, Initrd, Wish, below, layout::Chosen};
use crate::error::LabError;

/// Programs of which every system has some. A system's first program may be a link that leads out of a
/// mounted one.
const PROGRAMS: [&str; 9] = [
    "usr/bin/dash",
    "usr/bin/bash",
    "bin/dash",
    "bin/bash",
    "bin/busybox",
    "usr/bin/busybox",
    "usr/lib/systemd/systemd",
    "lib/systemd/systemd",
    "sbin/init",
];

/// An ELF file's machine, its name, and the kernels that run its programs, as the kernel calls them.
const MACHINES: [(u8, &str, &[&str]); 5] = [
    (3, "32-bit x86", &["x86_64"]),
    (62, "x86-64", &["x86_64"]),
    (40, "32-bit ARM", &["arm", "arm64"]),
    (183, "arm64", &["arm64"]),
    (243, "RISC-V", &["riscv"]),
];

/// Where a kernel's image says what it is for.
const IMAGES: [(usize, &[u8], &[&str]); 4] = [
    (0x202, b"HdrS", &["x86_64"]),
    (0x38, b"ARM\x64", &["arm64"]),
    (0x24, &[0x18, 0x28, 0x6f, 0x01], &["arm"]),
    (0x38, b"RSC\x05", &["riscv"]),
];

/// How a file begins that gzip packed.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Bytes of a file that say what it is for.
const HEAD: u64 = 0x210;

/// Refuses a kernel that wouldn't boot there, as far as that can be known.
pub(super) fn check(wish: &Wish<'_>, old: &Chosen) -> Result<(), LabError> {
    let manifest = &wish.kernel.manifest;
    let (name, arch) = (&manifest.name, manifest.arch.as_str());
    if let Some((what, kernels)) = runs_there(wish, old)
        && !kernels.contains(&arch)
    {
        wish.refuse_unless_forced(&format!(
            "{name} is a kernel for {arch}, and {what}: take one for {}",
            kernels.join(" or ")
        ))?;
    }
    if wish.initrd == Initrd::Without
        && old.initrd.is_some()
        && let Some(disk) = disk_that_needs_programs(&old.cmdline)
    {
        wish.refuse_unless_forced(&format!(
            "the command line has {disk}, which only an initial RAM disk finds, and without one the new kernel would \
             stop there: give a file with --initrd"
        ))?;
    }
    let is_labs = |input: &String| input.starts_with("fragment ") && input.ends_with(" lab");
    if manifest.inputs.keys().any(is_labs) {
        wish.refuse_unless_forced(&format!(
            "{name} was made for the lab's emulators and has next to no drivers: a real machine wouldn't \
             start with it, only an emulated one (`rtscope kernel list` names others)"
        ))?;
    }
    Ok(())
}

/// The root file system, where the kernel itself can't find it. It knows partitions by their names and by the table of
/// partitions, but no file system's label and no volume that a program puts together (the kernel's
/// admin-guide/kernel-parameters, `root=`).
fn disk_that_needs_programs(cmdline: &str) -> Option<&str> {
    const BEGINS: [&str; 7] =
        ["UUID=", "LABEL=", "ZFS=", "zfs:", "/dev/dm-", "/dev/md", "/dev/bcache"];
    // Two old controllers have folders of their own.
    const DRIVERS: [&str; 2] = ["cciss", "ida"];
    let mut words = cmdline.split_whitespace().rev();
    let disk = words.find(|word| word.starts_with("root="))?;
    let named = disk["root=".len()..].trim_start_matches('"');
    let folder = named.strip_prefix("/dev/").and_then(|rest| rest.split_once('/'));
    let is_volume = folder.is_some_and(|(folder, _)| !DRIVERS.contains(&folder));
    (is_volume || BEGINS.iter().any(|begin| named.starts_with(begin))).then_some(disk)
}

/// What the system is, in words, and the architectures of kernels that it takes; none if nothing says it.
fn runs_there(wish: &Wish<'_>, old: &Chosen) -> Option<(String, &'static [&'static str])> {
    let root = wish.root;
    let (boards, what): (&[&str], &str) = match wish.layout {
        BootLayout::RaspberryPi => (&["arm64", "arm"], "no Raspberry Pi runs that"),
        BootLayout::UBoot => (&["arm64", "arm", "riscv"], "no board with a uEnv.txt runs that"),
        BootLayout::Grub | BootLayout::Extlinux | BootLayout::Armbian | BootLayout::SystemdBoot => {
            (&[], "")
        }
    };
    if !boards.is_empty() && !boards.contains(&&*wish.kernel.manifest.arch) {
        return Some((what.to_owned(), boards));
    }
    let program = PROGRAMS.iter().find_map(|name| {
        let path = below::place(root, &root.join(name)).ok()?;
        let head = head_of(&path)?;
        let little = head.get(..6)?.starts_with(b"\x7fELF") && head[5] == 1;
        let (_, called, kernels) = MACHINES.iter().find(|(n, ..)| Some(n) == head.get(18))?;
        little.then(|| {
            (format!("the programs of {} are for {called} (/{name})", root.display()), *kernels)
        })
    });
    program.or_else(|| {
        let arch = of_image(&old.image)?;
        let what = format!("the kernel that boots now ({}) is for", old.image.display());
        Some((format!("{what} {}", arch.join("")), arch))
    })
}

/// The architecture that a kernel's image is for, where its head says it.
pub(super) fn of_image(path: &Path) -> Option<&'static [&'static str]> {
    let head = head_of(path)?;
    let found = IMAGES.iter().find(|(at, mark, _)| head.get(*at..at + mark.len()) == Some(*mark));
    found.map(|(.., arch)| *arch)
}

/// Whether gzip packed a file.
pub(super) fn is_packed(path: &Path) -> bool {
    let begin = || {
        let mut begin = [0; 2];
        File::open(path).and_then(|mut file| file.read_exact(&mut begin)).map(|()| begin)
    };
    path.is_file() && begin().is_ok_and(|begin| begin == GZIP)
}

/// A file's first bytes, unpacked where gzip packed it.
fn head_of(path: &Path) -> Option<Vec<u8>> {
    let read = |reader: &mut dyn Read| {
        let mut head = Vec::new();
        reader.take(HEAD).read_to_end(&mut head).ok().map(|_| head)
    };
    // A pipe would never end.
    if !path.is_file() {
        return None;
    }
    let head = read(&mut File::open(path).ok()?)?;
    match head.starts_with(&GZIP) {
        true => read(&mut GzDecoder::new(File::open(path).ok()?)),
        false => Some(head),
    }
}
