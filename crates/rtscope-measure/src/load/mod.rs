//! Loads: work that a machine does while its latency is measured.
//!
//! Each load is a process of its own that rtscope starts and stops: it has its own policy, priority
//! and CPUs, dies with rtscope, and counts its work in shared memory, so that the record shows in
//! every slice how much load there really was. What a unit of work is, each load says for itself.
//! A count proves that work was done; it can't show which CPU's caches, queues or locks the work
//! held at an instant.
//!
//! A load is one file and one line in [`LOADS`].

mod board;
pub(crate) mod cpu;
mod disk;
mod error;
mod external;
mod fork;
mod io;
mod launch;
mod memory;
mod message;
pub(crate) mod network;
mod options;
mod processes;
mod serial;
mod timer;
mod video;
mod worker;

use std::path::Path;

use rtscope_model::{load::LoadLine, text::Problem};
use rustix::fs::{Access, access};
use serde::Serialize;

pub(crate) use self::launch::limit_of;
use self::worker::Job;
pub use self::{
    error::LoadError,
    launch::{EndedLoad, Launcher, Rate, RunningLoad, run_alone, run_to_end},
    options::{COMMON_OPTIONS, LoadOption, LoadOptions, ValueKind},
    worker::worker_main,
};

pub const LOADS: &[LoadDescriptor] = &[
    cpu::DESCRIPTOR,
    message::DESCRIPTOR,
    memory::DESCRIPTOR,
    io::DESCRIPTOR,
    disk::DESCRIPTOR,
    network::DESCRIPTOR,
    timer::DESCRIPTOR,
    serial::DESCRIPTOR,
    video::DESCRIPTOR,
    fork::DESCRIPTOR,
    external::DESCRIPTOR,
];

/// What a load is and how it is run.
#[derive(Debug, Serialize)]
pub struct LoadDescriptor {
    /// Its name in plans and on the command line.
    pub name: &'static str,
    /// One line: what it does.
    pub about: &'static str,
    /// What a unit of its work is, as `messages`.
    #[serde(skip)]
    pub unit: fn(&LoadOptions) -> &'static str,
    /// Its own options, beside [`COMMON_OPTIONS`].
    pub options: &'static [LoadOption],
    /// Whether options that are right one by one are right together.
    #[serde(skip)]
    check: fn(&LoadOptions) -> Result<(), Problem>,
    /// Whether this machine has what the load needs: its command, its folders.
    #[serde(skip)]
    is_here: fn(&LoadOptions) -> Result<(), LoadError>,
    /// The load: runs in its own process, until its work is done or it is killed.
    #[serde(skip)]
    run: fn(&Job) -> Result<(), LoadError>,
    /// Removes what a load may have left: called by the starting process when no process of the
    /// load's group is left, however it ended.
    #[serde(skip)]
    clean: fn(&Remains<'_>),
}

/// What is known of a load that has ended.
#[derive(Debug)]
struct Remains<'a> {
    options: &'a LoadOptions,
    pid: u32,
    /// The text that is in the environment of all that it has started.
    mark: &'a str,
}

/// For loads whose options are right together when they are right one by one.
const fn any_options(_: &LoadOptions) -> Result<(), Problem> {
    Ok(())
}

/// For loads that need nothing but the kernel.
const fn needs_nothing(_: &LoadOptions) -> Result<(), LoadError> {
    Ok(())
}

/// Whether files can be made in the folder that an option names.
fn writable(option: &'static str, folder: &Path) -> Result<(), LoadError> {
    // What is no folder has no "." in it.
    access(folder.join("."), Access::WRITE_OK | Access::EXEC_OK).map_err(|e| LoadError::Folder {
        option,
        folder: folder.to_owned(),
        why: e.into(),
    })
}

/// For loads that leave nothing.
const fn leaves_nothing(_: &Remains<'_>) {}

/// A load by its name, and its options with every default filled in.
fn resolve(line: &LoadLine) -> Result<(&'static LoadDescriptor, LoadOptions), Problem> {
    let known = || LOADS.iter().map(|load| load.name);
    let load = LOADS.iter().find(|load| load.name == line.name).ok_or_else(|| {
        let names = known().collect::<Vec<_>>().join(", ");
        let message = format!("there is no load {:?}: write one of {names}", line.name);
        Problem::new(message).suggest(&line.name, known())
    })?;
    let options = LoadOptions::parse(line, load.options)?;
    (load.check)(&options)?;
    Ok((load, options))
}

/// Whether a load's line is right: its name, its options, their values. Starts nothing.
///
/// # Errors
///
/// The first thing that is wrong, with what was perhaps meant. Its line is not filled in.
pub fn check(line: &LoadLine) -> Result<(), Problem> {
    resolve(line).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        for load in LOADS {
            let twice = |option: &&LoadOption| {
                let all = load.options.iter().chain(COMMON_OPTIONS);
                all.filter(|other| other.name == option.name).count() > 1
            };
            assert_eq!(load.options.iter().find(twice), None, "{}", load.name);
            assert!(!load.about.is_empty() && load.options.iter().all(|o| !o.about.is_empty()));
        }
    }

    #[test]
    fn every_default_is_allowed() {
        for load in LOADS {
            let given = |option: &&LoadOption| !option.default.is_empty();
            let defaults =
                load.options.iter().filter(given).map(|o| format!("{}={}", o.name, o.default));
            let command = if load.name == "external" { " -- true" } else { "" };
            let line = format!("{} {}{command}", load.name, defaults.collect::<Vec<_>>().join(" "));
            assert_eq!(check(&line.parse().expect("a line")), Ok(()), "{line}");
        }
    }

    #[test]
    fn the_guide_tells_of_every_option() {
        let guide = include_str!("../../../../docs/guide/loads.md");
        for load in LOADS {
            let chapter =
                guide.split("\n## ").find(|chapter| chapter.lines().next() == Some(load.name));
            let chapter = chapter.unwrap_or_else(|| panic!("no chapter {:?}", load.name));
            let rows = chapter.lines().filter(|line| line.starts_with("| `")).count();
            assert_eq!(rows, load.options.len(), "{}", load.name);
            for option in load.options {
                let row = format!("| `{}` | {}", option.name, option.default);
                assert!(chapter.contains(&row), "{}: {row:?}", load.name);
            }
        }
        for option in COMMON_OPTIONS {
            assert!(guide.contains(&format!("| `{}` | {}", option.name, option.default)));
        }
    }

    #[test]
    fn an_unknown_load_is_named_with_a_suggestion() {
        let problem = check(&"mesage groups=1".parse().expect("a line")).expect_err("refused");
        assert_eq!(problem.suggestion.as_deref(), Some("message"));
        assert!(problem.message.contains("cpu, message, memory"), "{}", problem.message);
    }
}
