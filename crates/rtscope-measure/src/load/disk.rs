//! `disk`: writes a file in blocks and removes it, over and over, as a loop of `dd` and `rm` does.
//!
//! Exercises the file system, the page cache, and, when `fsync=true`, when other loads sync, or
//! when much is written, the disk. It can't show anything of a disk where the directory is in
//! memory (tmpfs).
//!
//! Each file is written from a buffer of its own, taken from the kernel and given back, as each `dd` has
//! one: giving back a buffer of 1 MiB in one go is a part of the load.
//!
//! A unit of work is a byte written. A file is named after the load's process, so that what a
//! killed load leaves is found: the starting process removes it at the load's end, and the next
//! load of this kind in the directory removes what dead processes left.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use rtscope_sys::mapping::Pages;

use super::{
    LoadDescriptor, LoadError, Remains, any_options,
    board::Counter,
    options::{LoadOption, ValueKind},
    worker::{self, Job, Processes},
    writable,
};

const OPTIONS: &[LoadOption] = &[
    LoadOption {
        name: "workers",
        kind: ValueKind::Workers,
        default: "1",
        about: "processes, each with a file of its own",
    },
    LoadOption {
        name: "size",
        kind: ValueKind::Size { min: 1, max: 1 << 40 },
        default: "2MiB",
        about: "size of a file",
    },
    LoadOption {
        name: "block",
        kind: ValueKind::Size { min: 1, max: 1 << 30 },
        default: "1MiB",
        about: "how much is written at a time",
    },
    LoadOption {
        name: "dir",
        kind: ValueKind::Text,
        default: "/var/tmp",
        about: "directory for the files, preferably on the disk to load",
    },
    LoadOption {
        name: "fsync",
        kind: ValueKind::Flag,
        default: "false",
        about: "wait until each file is on the disk before it is removed",
    },
];

pub(super) const DESCRIPTOR: LoadDescriptor = LoadDescriptor {
    name: "disk",
    about: "writes a file and removes it, over and over, as dd and rm do",
    unit: |_| "bytes",
    options: OPTIONS,
    check: any_options,
    is_here: |options| writable("dir", Path::new(options.word("dir"))),
    run,
    clean,
};

/// What the names of our files begin with.
const PREFIX: &str = "rtscope-load-";

fn run(job: &Job) -> Result<(), LoadError> {
    let options = &job.options;
    let dir = Path::new(options.word("dir"));
    remove_files(dir, |pid| !is_disk_load(pid));
    let block = options.size("block").min(options.size("size"));
    let (size, fsync) = (options.size("size"), options.flag("fsync"));
    let pid = std::process::id();
    let mut crew = Processes::new(job)?;
    for worker in 0..options.workers(&job.placement.cpus) {
        let path = dir.join(format!("{PREFIX}{pid}-{worker}"));
        // A directory that can't be written must be known before the load counts as working.
        write_and_remove(&path, &[], 0, false, job.board.counter(0))?;
        crew.add(&job.placement, |counter| {
            loop {
                let mut buffer = Pages::map(block)?;
                buffer.as_mut_slice().fill(0);
                write_and_remove(&path, buffer.as_mut_slice(), size, fsync, counter)?;
            }
        })?;
    }
    crew.work()
}

fn write_and_remove(
    path: &PathBuf,
    block: &[u8],
    size: usize,
    fsync: bool,
    counter: Counter<'_>,
) -> Result<(), LoadError> {
    let failed = |what: &str| LoadError::io(format!("{what} {}", path.display()));
    // A file that is there already is not ours, or a link that somebody has laid out for us.
    let mut file = File::create_new(path).map_err(failed("create"))?;
    let written = write(&mut file, block, size, fsync, counter).map_err(failed("write"));
    let removed = fs::remove_file(path).map_err(failed("remove"));
    written.and(removed)
}

fn write(
    file: &mut File,
    block: &[u8],
    size: usize,
    fsync: bool,
    counter: Counter<'_>,
) -> std::io::Result<()> {
    let mut left = size;
    while left > 0 {
        let part = &block[..block.len().min(left)];
        file.write_all(part)?;
        counter.add(part.len() as u64);
        left -= part.len();
    }
    if fsync { file.sync_all() } else { Ok(()) }
}

fn clean(remains: &Remains<'_>) {
    remove_files(Path::new(remains.options.word("dir")), |pid| pid == remains.pid);
}

/// Removes files of loads whose process meets a condition. What can't be removed stays: the load
/// that follows has other names.
fn remove_files(dir: &Path, is_gone: impl Fn(u32) -> bool) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_str().and_then(process_of).is_some_and(&is_gone) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a process is a living load of this kind: a number is given anew some time after a
/// process has ended, and one that has ended without being waited for has no command line any more.
fn is_disk_load(pid: u32) -> bool {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    read("comm").trim() == worker::process_name(DESCRIPTOR.name) && !read("cmdline").is_empty()
}

/// The process in the name of a load's file.
fn process_of(name: &str) -> Option<u32> {
    let (pid, worker) = name.strip_prefix(PREFIX)?.split_once('-')?;
    worker.parse::<u32>().ok()?;
    pid.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::board::Board;

    #[test]
    fn a_file_is_written_counted_and_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let board = Board::new().expect("memory");
        write_and_remove(&path, &[0; 10], 25, true, board.counter(0)).expect("written");
        assert_eq!((board.work(), path.exists()), (25, false));
        fs::write(&path, "not ours").expect("written");
        let error = write_and_remove(&path, &[0; 10], 25, false, board.counter(0));
        let text = error.expect_err("refused").to_string();
        assert!(text.contains("create") && text.contains("file"), "{text}");
        assert_eq!(fs::read_to_string(&path).expect("still there"), "not ours");
    }

    #[test]
    fn only_files_of_gone_loads_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let names = ["rtscope-load-7-0", "rtscope-load-8-0", "rtscope-load-7-x", "other-7-0"];
        for name in names {
            fs::write(dir.path().join(name), "").expect("written");
        }
        remove_files(dir.path(), |pid| pid == 7);
        let left = names.map(|name| dir.path().join(name).exists());
        assert_eq!(left, [false, true, true, true]);
    }
}
