//! The machines that guests run on, each a data file in `kernels/machines/`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::{cache::Cache, digest::sha256, engine::order::write_once, error::LabError};

/// An emulated machine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name on the command line.
    pub name: String,
    /// One line.
    pub about: String,
    /// The kernel's own name of the architecture, as in a kept kernel's manifest.
    pub arch: String,
    /// The emulator.
    pub program: String,
    /// The Debian package that has the emulator.
    pub package: String,
    /// The emulator's words for this machine. `{console}` and `{channel}` stand for the files that the
    /// serial lines are written to.
    pub arguments: Vec<String>,
    /// The emulated CPU; none where the machine fixes it.
    pub cpu: Option<String>,
    /// The CPU under KVM; none where KVM is of no use.
    pub cpu_kvm: Option<String>,
    pub memory_mib: u32,
    /// CPUs, where the machine fixes their number.
    pub cpus: Option<u32>,
    /// The kernel's name of the console.
    pub console: String,
    /// The line that the record leaves by, as a name in `/dev`.
    pub channel: String,
    /// The device tree, as laid out below the kernel's `dts`; none where the emulator makes one.
    pub device_tree: Option<String>,
    /// Further words of the kernel command line.
    pub append: Vec<String>,
}

/// Embeds the files.
macro_rules! shipped {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../kernels/machines/", $name, ".toml"))),)*]
    };
}

/// Name and text of every shipped machine; the first of an architecture is its default.
const SHIPPED: &[(&str, &str)] = shipped! { "x86-64" "pc" "microvm" "arm64" "raspi3b" "armhf" };

impl Machine {
    pub fn parse(name: &str, text: &str) -> Result<Machine, LabError> {
        toml::from_str(text).map_err(|e| LabError::Refused(format!("machine {name}: {e}")))
    }

    /// Every shipped machine.
    ///
    /// # Panics
    ///
    /// Never: a test reads each of them.
    #[must_use]
    pub fn shipped() -> Vec<Machine> {
        let read =
            |(name, text): &(&str, &str)| Machine::parse(name, text).expect("a test reads it");
        SHIPPED.iter().map(read).collect()
    }

    /// A machine by the name of a shipped one, or by a file.
    ///
    /// # Errors
    ///
    /// There is no such machine, or its file is wrong.
    pub fn find(name: &str) -> Result<Machine, LabError> {
        let shipped = Machine::shipped();
        if let Some(found) = shipped.iter().find(|machine| machine.name == name) {
            return Ok(found.clone());
        }
        let path = Path::new(name);
        if path.is_file() || name.contains('/') || name.ends_with(".toml") {
            let text = fs::read_to_string(path).map_err(LabError::file("read", path))?;
            return Machine::parse(name, &text);
        }
        let names: Vec<&str> = shipped.iter().map(|machine| machine.name.as_str()).collect();
        Err(LabError::Refused(format!(
            "there is no machine {name:?}: choose {}, or name a file",
            names.join(", ")
        )))
    }

    /// Takes note of a machine's file that the user has named, so that records of it can be replayed.
    ///
    /// # Errors
    ///
    /// The file can't be read, or the note not be written.
    pub fn note_file(name: Option<&str>, cache: &Cache) -> Result<(), LabError> {
        let Some(name) = name else { return Ok(()) };
        if let Some(note) = Machine::note_of(name, cache)? {
            write_once(&note, b"").map_err(LabError::file("write", &note))?;
        }
        Ok(())
    }

    /// Refuses a file that only a record names: it says which program is started as the emulator.
    ///
    /// # Errors
    ///
    /// The file can't be read, or none of this user's guests ran on it.
    pub fn check_noted(name: &str, cache: &Cache) -> Result<(), LabError> {
        match Machine::note_of(name, cache)? {
            Some(note) if !note.exists() => Err(LabError::Refused(format!(
                "the record names the machine {name}, a file that none of your guests has used. That file names the program \
                 that rtscope starts as the emulator: read the file, and run a guest with `--machine {name}` first"
            ))),
            _ => Ok(()),
        }
    }

    /// Where the note of a machine's file is, by its content; none for a shipped machine.
    fn note_of(name: &str, cache: &Cache) -> Result<Option<PathBuf>, LabError> {
        if Machine::shipped().iter().any(|machine| machine.name == name) {
            return Ok(None);
        }
        let bytes = fs::read(name).map_err(LabError::file("read", name))?;
        Ok(Some(cache.root().join("machines").join(sha256(&bytes))))
    }

    /// The machine for a kernel of an architecture: the one that was asked for, or the default.
    ///
    /// # Errors
    ///
    /// There is none, or it is of another architecture.
    pub fn of_kernel(label: &str, arch: &str, asked: Option<&str>) -> Result<Machine, LabError> {
        let machine = match asked {
            Some(name) => Machine::find(name)?,
            None => Machine::for_arch(arch)?,
        };
        if machine.arch == arch {
            return Ok(machine);
        }
        Err(LabError::Refused(format!(
            "{label} is a kernel for {arch}, and the machine {} is for {}",
            machine.name, machine.arch
        )))
    }

    /// The default machine for an architecture.
    ///
    /// # Errors
    ///
    /// No shipped machine runs it.
    pub fn for_arch(arch: &str) -> Result<Machine, LabError> {
        let found = Machine::shipped().into_iter().find(|machine| machine.arch == arch);
        found.ok_or_else(|| {
            LabError::Refused(format!("no machine of the lab runs kernels for {arch}"))
        })
    }
}

/// The kernel's own name of the architecture that this program was built for.
#[must_use]
pub const fn own_arch() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        "x86_64"
    } else if cfg!(target_arch = "aarch64") {
        "arm64"
    } else if cfg!(target_arch = "arm") {
        "arm"
    } else {
        "riscv"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_machine_is_sound() {
        for (name, text) in SHIPPED {
            let machine = Machine::parse(name, text).expect(name);
            assert_eq!(machine.name, *name);
            let all = machine.arguments.join(" ");
            assert!(all.contains("{console}"), "{name}: the console must be kept");
            assert_eq!(all.contains("{channel}"), machine.channel != "console", "{name}");
        }
        assert_eq!(Machine::for_arch("x86_64").expect("there").name, "x86-64");
        assert_eq!(Machine::for_arch("arm64").expect("there").name, "arm64");
    }

    #[test]
    fn a_file_that_only_a_record_names_is_refused() {
        let room = tempfile::tempdir().expect("a folder");
        let (cache, file) = (Cache::at(room.path()), room.path().join("board.toml"));
        fs::write(&file, "program = 'anything'").expect("written");
        let name = file.display().to_string();
        assert!(Machine::check_noted("x86-64", &cache).is_ok());
        let said = Machine::check_noted(&name, &cache).expect_err("a stranger's").to_string();
        assert!(said.contains("that none of your guests has used"), "{said}");
        Machine::note_file(Some(&name), &cache).expect("noted");
        assert!(Machine::check_noted(&name, &cache).is_ok());
        fs::write(&file, "program = 'another'").expect("altered");
        assert!(Machine::check_noted(&name, &cache).is_err());
    }

    #[test]
    fn an_unknown_machine_is_named_with_those_there_are() {
        let said = Machine::find("vax").expect_err("unknown").to_string();
        assert!(said.contains("\"vax\"") && said.contains("raspi3b"), "{said}");
        let said = Machine::parse("mine", "name = 3").expect_err("wrong").to_string();
        assert!(said.contains("machine mine") && said.contains("line 1"), "{said}");
    }
}
