//! `rtscope lab cache`: what is kept, and room again.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::{Subcommand, builder::PossibleValuesParser};
use rtscope_lab::{cache::Cache, disk::size_bytes};

use super::guest_options;
use crate::{cli::print, exit, failure::Refused, output::shown};

/// The parts of the cache that can be deleted.
const ROOMS: [(&str, &str); 13] = [
    ("records", "records of guests in virtual time"),
    ("images", "file systems of guests: at most 2 GiB, used in the last 14 days"),
    ("kernels", "kernels, fetched or built"),
    ("unpacked", "the same kernels unpacked, which boot faster"),
    ("downloads", "packages and archives"),
    ("trees", "unpacked sources"),
    ("build", "objects of builds"),
    ("modules", "modules of kernels, unpacked"),
    ("symbols", "symbols of guests' kernels, which `lab explain` reads"),
    ("plugin", "plugin of the emulator, compiled for `lab explain`"),
    ("cyclictest", "Debian's cyclictest with its libraries"),
    ("machines", "hashes of machines' files on which guests ran"),
    ("apt", "lists of Debian's packages"),
];

/// Another rtscope may hold a lock in it, so it stays.
const LOCKS: (&str, &str) = ("locks", "locks of the parts that rtscope is working on");

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum Verb {
    /// List the contents of the cache, with their sizes
    ///
    /// When rtscope makes the file system of a guest, it deletes those that were not used for 14 days. If the
    /// others take more than 2 GiB, it also deletes those that were not used for the longest time. It never deletes
    /// one that is in use. Everything else stays until `lab cache prune`.
    ///
    /// Examples:
    ///   rtscope lab cache list
    #[command(verbatim_doc_comment)]
    List {
        /// Folder of the cache
        #[arg(long, value_name = "DIR")]
        cache: Option<PathBuf>,
    },
    /// Delete records and images, or other parts of the cache by name
    ///
    /// Images in use are kept. While another rtscope fetches or builds a kernel, so are sources, builds and kernels.
    ///
    /// Examples:
    ///   rtscope lab cache prune
    ///   rtscope lab cache prune downloads trees
    #[command(verbatim_doc_comment)]
    Prune {
        /// Parts to delete
        #[arg(default_values = ["records", "images"], value_parser = PossibleValuesParser::new(ROOMS.map(|(room, _)| room)))]
        rooms: Vec<String>,
        /// Folder of the cache
        #[arg(long, value_name = "DIR")]
        cache: Option<PathBuf>,
    },
}

pub(super) fn main(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List { cache } => list(&guest_options::known_cache(cache.as_ref())?)?,
        Verb::Prune { rooms, cache } => {
            let known = guest_options::known_cache(cache.as_ref())?;
            if cache.is_some() && !known.is_one() {
                let text = format!(
                    "{} is not an rtscope cache, so nothing was deleted",
                    shown(known.root())
                );
                return Err(Refused(text).into());
            }
            prune(&known, rooms)?;
        }
    }
    Ok(ExitCode::from(exit::PASS))
}

fn list(cache: &Cache) -> anyhow::Result<()> {
    print(&format!("{}\n", shown(cache.root())))?;
    for (room, what) in ROOMS.into_iter().chain([LOCKS]) {
        let folder = cache.root().join(room);
        let entries = fs::read_dir(&folder).map_or(0, Iterator::count);
        let mib = size_bytes(&folder) >> 20;
        print(&format!("  {room:10} {entries:>5} {mib:>7} MiB  {what}\n"))?;
    }
    for kernel in cache.kernels() {
        let manifest = &kernel.manifest;
        print(&format!("  kernel {} {} ({})\n", manifest.name, manifest.release, manifest.arch))?;
    }
    Ok(())
}

fn prune(cache: &Cache, rooms: &[String]) -> anyhow::Result<()> {
    for room in rooms {
        let folder = cache.root().join(room);
        let before = size_bytes(&folder);
        let left = cache.prune(room)?;
        let freed = before.saturating_sub(size_bytes(&folder)) >> 20;
        let used = match left {
            0 => String::new(),
            1 => "; 1 entry is in use and was kept".to_owned(),
            n => format!("; {n} entries are in use and were kept"),
        };
        print(&format!("{room}: deleted {freed} MiB{used}\n"))?;
    }
    Ok(())
}
