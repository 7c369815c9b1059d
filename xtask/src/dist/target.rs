//! The machines that a release is for.

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Name on the command line and in the names of files.
    pub(super) name: &'static str,
    /// Rust's name.
    pub(super) triple: &'static str,
    /// Debian's name.
    pub(super) debian: &'static str,
    /// The C compiler, which links.
    pub(super) gcc: &'static str,
    /// The Debian package of the C compiler, and the one of the C library for it.
    pub(super) compiler: [&'static str; 2],
    /// The file of the C library in its Debian package.
    pub(super) c_library: &'static str,
    /// The program that runs one of this machine's programs on another machine.
    pub(super) emulator: &'static str,
    /// Number of the machine in an ELF header.
    pub(super) elf: u16,
    /// Whether GNU's linker breaks a program that has more code than a call reaches.
    pub(super) has_short_calls: bool,
    /// The emulated machine of the lab and Debian's kernel for it, where the lab boots such.
    pub(super) guest: Option<Guest>,
}

/// What the lab boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guest {
    pub(super) machine: &'static str,
    pub(super) kernel: &'static str,
    /// The system emulator and its package.
    pub(super) emulator: (&'static str, &'static str),
}

/// Every one, in the order in which they are built.
pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "x86-64",
        triple: "x86_64-unknown-linux-gnu",
        debian: "amd64",
        gcc: "x86_64-linux-gnu-gcc",
        compiler: ["gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"],
        c_library: "/usr/x86_64-linux-gnu/lib/libc.a",
        emulator: "qemu-x86_64-static",
        elf: 62,
        has_short_calls: false,
        guest: Some(Guest {
            machine: "x86-64",
            kernel: "debian-rt-amd64",
            emulator: ("qemu-system-x86_64", "qemu-system-x86"),
        }),
    },
    Target {
        name: "arm64",
        triple: "aarch64-unknown-linux-gnu",
        debian: "arm64",
        gcc: "aarch64-linux-gnu-gcc",
        compiler: ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
        c_library: "/usr/aarch64-linux-gnu/lib/libc.a",
        emulator: "qemu-aarch64-static",
        elf: 183,
        has_short_calls: false,
        guest: Some(Guest {
            machine: "arm64",
            kernel: "debian-rt-arm64",
            emulator: ("qemu-system-aarch64", "qemu-system-arm"),
        }),
    },
    Target {
        name: "armhf",
        triple: "armv7-unknown-linux-gnueabihf",
        debian: "armhf",
        gcc: "arm-linux-gnueabihf-gcc",
        compiler: ["gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross"],
        c_library: "/usr/arm-linux-gnueabihf/lib/libc.a",
        emulator: "qemu-arm-static",
        elf: 40,
        has_short_calls: true,
        guest: Some(Guest {
            machine: "armhf",
            kernel: "debian-rt-armhf",
            emulator: ("qemu-system-arm", "qemu-system-arm"),
        }),
    },
    Target {
        name: "riscv64",
        triple: "riscv64gc-unknown-linux-gnu",
        debian: "riscv64",
        gcc: "riscv64-linux-gnu-gcc",
        compiler: ["gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross"],
        c_library: "/usr/riscv64-linux-gnu/lib/libc.a",
        emulator: "qemu-riscv64-static",
        elf: 243,
        has_short_calls: false,
        guest: None,
    },
];

impl Target {
    /// The target of a name, also of Rust's and Debian's.
    pub(super) fn find(name: &str) -> Option<Target> {
        TARGETS.iter().find(|t| [t.name, t.triple, t.debian].contains(&name)).copied()
    }

    /// Whether this machine is one.
    pub(super) fn is_own(&self) -> bool {
        self.triple.starts_with(std::env::consts::ARCH)
            || (std::env::consts::ARCH == "arm" && self.debian == "armhf")
    }

    /// Checks that a program is for this machine and needs nothing there: an ELF file without an
    /// interpreter. Says what is wrong.
    pub(super) fn check_static(&self, program: &[u8]) -> Result<(), String> {
        let elf = Elf::of(program).ok_or("not an ELF file")?;
        if elf.machine != self.elf {
            return Err(format!("it is for ELF machine {}, not {}", elf.machine, self.elf));
        }
        match elf.segments.contains(&Elf::INTERPRETER) {
            true => Err("it is not static: it asks for an interpreter".to_owned()),
            false => Ok(()),
        }
    }
}

/// The parts of an ELF header (little endian) that say where a program runs.
struct Elf {
    machine: u16,
    /// The kinds of its segments.
    segments: Vec<u32>,
}

impl Elf {
    /// `PT_INTERP`.
    const INTERPRETER: u32 = 3;

    fn of(bytes: &[u8]) -> Option<Elf> {
        let half = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if bytes.get(..4)? != b"\x7fELF" {
            return None;
        }
        // Offset, size and number of the program headers in the headers of 64 and of 32 bits; the
        // offset of a little-endian file that fits the memory is in the lower half.
        let (offset, size, count) = match bytes.get(4)? {
            2 => (word(0x20)?, half(0x36)?, half(0x38)?),
            _ => (word(0x1c)?, half(0x2a)?, half(0x2c)?),
        };
        let segment = |i: u16| word(offset as usize + usize::from(i) * usize::from(size));
        Some(Elf { machine: half(0x12)?, segments: (0..count).map_while(segment).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file of 64 bits with one segment.
    fn program(machine: u16, segment: u32) -> Vec<u8> {
        let mut bytes = vec![0; 0x78];
        bytes[..5].copy_from_slice(b"\x7fELF\x02");
        bytes[0x12..0x14].copy_from_slice(&machine.to_le_bytes());
        bytes[0x20] = 0x40;
        bytes[0x36] = 0x38;
        bytes[0x38] = 1;
        bytes[0x40..0x44].copy_from_slice(&segment.to_le_bytes());
        bytes
    }

    #[test]
    fn only_a_static_program_for_the_machine_passes() {
        let arm64 = Target::find("arm64").expect("known");
        assert_eq!(arm64.check_static(&program(183, 1)), Ok(()));
        assert!(arm64.check_static(&program(62, 1)).expect_err("wrong").contains("machine 62"));
        assert!(arm64.check_static(&program(183, 3)).expect_err("wrong").contains("not static"));
        assert!(arm64.check_static(b"#!/bin/sh").is_err());
        assert!(arm64.check_static(b"\x7fELF\x02").is_err());
    }

    #[test]
    fn this_very_program_and_a_dynamic_one_are_told_apart() {
        let own = TARGETS.iter().find(|target| target.is_own()).expect("a target of ours");
        let ours = std::fs::read("/proc/self/exe").expect("readable");
        assert_eq!(own.check_static(&ours), Ok(()), "the workspace builds static programs");
        let shell = std::fs::read("/bin/sh").expect("readable");
        assert!(own.check_static(&shell).is_err());
    }

    #[test]
    fn targets_have_three_names() {
        for name in ["armhf", "armv7-unknown-linux-gnueabihf"] {
            assert_eq!(Target::find(name).expect("known").elf, 40);
        }
        assert_eq!(Target::find("amd64").expect("known").name, "x86-64");
        assert_eq!(Target::find("vax"), None);
    }
}
