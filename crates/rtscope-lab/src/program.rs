//! The program that runs in a guest: what its ELF header says of it, before a guest has to find out.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    error::LabError,
    kernel_image::{u16_at, u32_at},
};

/// Kinds of an ELF file's segments: what the kernel loads, and the name of the program that loads the rest.
const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;

/// ELF's numbers of machines, the kernel's own names of their architectures, and what `uname -m` calls them.
const MACHINES: [(u16, &str, &str); 4] = [
    (62, "x86_64", "x86_64"),
    (183, "arm64", "aarch64"),
    (40, "arm", "armv7l"),
    (243, "riscv", "riscv64"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestProgram {
    path: PathBuf,
    /// Whether it was named, and isn't just this very program.
    is_named: bool,
    machine: u16,
    bytes: Vec<u8>,
}

impl GuestProgram {
    /// Reads a program that the user named, or else this program's own file.
    ///
    /// # Errors
    ///
    /// It can't be read, is no program for Linux, is cut short, or needs libraries that no guest has.
    pub fn read(path: &Path, is_named: bool) -> Result<GuestProgram, LabError> {
        let mut bytes = fs::read(path).map_err(LabError::file("read", path))?;
        let refused = |why: &str| LabError::Refused(format!("{}: {why}", path.display()));
        let elf =
            Elf::of(&bytes).ok_or_else(|| refused("this is not a program for Linux (ELF)"))?;
        let machine = elf.u16_at(18).unwrap_or_default();
        let segments = elf.segments().ok_or_else(|| refused("this program is cut short"))?;
        if segments.iter().any(|segment| segment.kind == INTERPRETER) {
            return Err(refused(&not_static(is_named)));
        }
        let loaded = segments.iter().filter(|segment| segment.kind == LOAD);
        let end = loaded.map(|segment| segment.end).max().unwrap_or_default();
        if end == 0 || end > bytes.len() as u64 {
            return Err(refused("this program is cut short"));
        }
        let sections = elf.section_fields();
        // Symbols and what debuggers read lie behind what is loaded: of a build for tests, two thirds.
        bytes.truncate(end as usize);
        sections.into_iter().for_each(|field| bytes[field].fill(0));
        Ok(GuestProgram { path: path.to_owned(), is_named, machine, bytes })
    }

    /// All of it that a kernel loads.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What `uname -m` says on a machine that it is for.
    #[must_use]
    pub fn machine(&self) -> Option<&'static str> {
        MACHINES.iter().find(|(machine, ..)| *machine == self.machine).map(|(.., called)| *called)
    }

    /// Refuses a program that a kernel for an architecture can't run.
    ///
    /// # Errors
    ///
    /// What the program is for and what the guest is.
    pub fn runs_in(&self, kernel: &str, arch: &str) -> Result<(), LabError> {
        let own = MACHINES.iter().find(|(machine, ..)| *machine == self.machine);
        if own.is_some_and(|(_, own, _)| *own == arch) {
            return Ok(());
        }
        let is_for = own.map_or_else(
            || format!("a machine with the number {}", self.machine),
            |(.., called)| (*called).to_owned(),
        );
        let guest = MACHINES.iter().find(|(_, known, _)| *known == arch);
        let guest = guest.map_or(arch, |(.., called)| called);
        let what = match self.is_named {
            true => format!("{}: this program", self.path.display()),
            false => "this rtscope".to_owned(),
        };
        Err(LabError::Refused(format!(
            "{what} is for {is_for}, the guest is {guest} ({kernel}): name a static rtscope for {guest} with \
             --program"
        )))
    }
}

/// A guest has no libraries, and another machine may have different ones. `cargo install` makes a dynamic program
/// unless the user asks for a static one.
fn not_static(is_named: bool) -> String {
    let way = match is_named {
        true => "name the program of a release",
        false => {
            "name the program of a release with --program, or with `program` in the file of places"
        }
    };
    let arch = std::env::consts::ARCH;
    format!(
        "this program is not static, and a guest or another machine may lack its libraries: {way}, or make one with \
         RUSTFLAGS='-C target-feature=+crt-static' cargo install rtscope --target {arch}-unknown-linux-gnu"
    )
}

/// A file in ELF's form, with the least significant byte first.
pub(crate) struct Elf<'a> {
    bytes: &'a [u8],
    is_64_bit: bool,
}

/// A part of a file that is loaded, or says how.
pub(crate) struct Segment {
    pub(crate) kind: u32,
    /// Where it begins in the file.
    pub(crate) start: u64,
    /// Where it ends in the file.
    pub(crate) end: u64,
}

impl<'a> Elf<'a> {
    /// None of what is no program: its type is that of objects, or of something else.
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Elf<'a>> {
        let is_64_bit = *bytes.get(4)? == 2;
        let elf = Elf { bytes, is_64_bit };
        let is_little = bytes.starts_with(b"\x7fELF") && bytes[5] == 1;
        (is_little && matches!(elf.u16_at(16)?, 2 | 3)).then_some(elf)
    }

    pub(crate) fn segments(&self) -> Option<Vec<Segment>> {
        let (table, size, count) = match self.is_64_bit {
            true => (0x20, 0x36, 0x38),
            false => (0x1c, 0x2a, 0x2c),
        };
        let first = usize::try_from(self.word_at(table)?).ok()?;
        let size = usize::from(self.u16_at(size)?);
        let segment = |i: usize| {
            let at = first.checked_add(i * size)?;
            let (offset, bytes) =
                if self.is_64_bit { (at + 8, at + 32) } else { (at + 4, at + 16) };
            let start = self.word_at(offset)?;
            let end = start.checked_add(self.word_at(bytes)?)?;
            Some(Segment { kind: self.u32_at(at)?, start, end })
        };
        (0..usize::from(self.u16_at(count)?)).map(segment).collect()
    }

    /// The fields of the header that say where sections are: offset, number, and the one of their names.
    fn section_fields(&self) -> [std::ops::Range<usize>; 2] {
        if self.is_64_bit { [0x28..0x30, 0x3c..0x40] } else { [0x20..0x24, 0x30..0x34] }
    }

    fn u16_at(&self, at: usize) -> Option<u16> {
        u16_at(self.bytes, at)
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        u32_at(self.bytes, at)
    }

    /// An offset or a size.
    fn word_at(&self, at: usize) -> Option<u64> {
        if !self.is_64_bit {
            return self.u32_at(at).map(u64::from);
        }
        Some(u64::from_le_bytes(self.bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
    }
}

/// Programs for tests.
#[cfg(test)]
pub(crate) mod samples {
    use super::LOAD;

    /// A program of one segment of 0x200 bytes, with 0x100 bytes of symbols behind it.
    pub(crate) fn program(machine: u16, kind: u32) -> Vec<u8> {
        let mut elf = vec![0x55; 0x300];
        elf[..0xc0].fill(0);
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[16] = 2;
        elf[18..20].copy_from_slice(&machine.to_le_bytes());
        elf[0x20] = 0x40;
        elf[0x28..0x30].copy_from_slice(&0x2c0_u64.to_le_bytes());
        (elf[0x36], elf[0x38], elf[0x3c], elf[0x3e]) = (56, 2, 3, 2);
        for (at, kind, bytes) in [(0x40, LOAD, 0x200_u64), (0x78, kind, 0x10)] {
            elf[at..at + 4].copy_from_slice(&kind.to_le_bytes());
            elf[at + 32..at + 40].copy_from_slice(&bytes.to_le_bytes());
        }
        elf
    }
}

#[cfg(test)]
mod tests {
    use super::{samples::program, *};

    fn read(bytes: &[u8], is_named: bool) -> Result<GuestProgram, LabError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("program");
        fs::write(&path, bytes).expect("written");
        GuestProgram::read(&path, is_named)
    }

    #[test]
    fn a_program_of_another_architecture_is_told_as_that() {
        let found = read(&program(183, 6), true).expect("a program");
        assert!(found.runs_in("debian-rt-arm64", "arm64").is_ok());
        let said = found.runs_in("debian-rt", "x86_64").expect_err("another").to_string();
        assert!(said.contains("this program is for aarch64, the guest is x86_64"), "{said}");
        assert!(said.starts_with('/') && said.contains("(debian-rt)"), "{said}");
        let own = read(&program(62, 6), false).expect("a program");
        let said = own.runs_in("debian-rt-armhf", "arm").expect_err("another").to_string();
        assert!(said.starts_with("this rtscope is for x86_64, the guest is armv7l"), "{said}");
    }

    #[test]
    fn what_is_no_static_program_is_refused() {
        let said = |bytes: &[u8]| read(bytes, true).expect_err("refused").to_string();
        assert!(said(b"garbage").contains("not a program for Linux"));
        assert!(said(b"#!/bin/sh\n").contains("not a program for Linux"));
        let dynamic = said(&program(62, INTERPRETER));
        assert!(dynamic.contains("not static") && dynamic.contains("+crt-static' cargo install"));
        let own = read(&program(62, INTERPRETER), false).expect_err("refused").to_string();
        assert!(own.starts_with('/') && own.contains("with --program"), "{own}");
        assert!(said(&program(62, 6)[..0x1ff]).contains("cut short"));
        assert!(said(&program(62, 6)[..0x60]).contains("cut short"));
    }

    #[test]
    fn only_what_a_kernel_loads_is_taken() {
        let found = read(&program(62, 6), true).expect("a program");
        assert_eq!(found.bytes().len(), 0x200);
        assert_eq!(found.bytes()[0x40..], program(62, 6)[0x40..0x200]);
        // It has no sections any more, and says so.
        let fields = [&found.bytes()[0x28..0x30], &found.bytes()[0x3c..0x40]].concat();
        assert_eq!(fields, [0; 12]);
    }
}
