//! Reading a `cyclictest -v` log: beside `wc -l`, which does no more than look at each byte, and beside
//! the script that people have for it, `cut | sort -n | uniq -c`.
//!
//! The log is made here and is warm for all three. An import writes a record and its page besides.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{
    MeasuredProgram, Options, process,
    table::{Goal, Line},
};
use crate::shell;

/// Lines of the log, about 270 MB; a tenth in a quick bench.
const LINES: u64 = 10_000_000;

/// Times of `wc -l` that an import may take; the aim beyond it is 4.
const TIMES_OF_WC: f64 = 8.0;

/// Share of the script's time that an import may take.
const SHARE_OF_SCRIPT: f64 = 0.05;

/// Memory may not grow with the log: ten times as long, it takes no more than this times as much.
const SAME_MEMORY: f64 = 1.2;

/// The longest that one tool may take.
const LONGEST: Duration = Duration::from_secs(300);

pub(super) fn lines(subject: &MeasuredProgram, options: &Options) -> Result<Vec<Line>> {
    let count = if options.quick { LINES / 10 } else { LINES };
    let log = subject.folder.join("verbose.log");
    let short = subject.folder.join("verbose-short.log");
    write_log(&log, count)?;
    write_log(&short, count / 10)?;
    let (mut ours, mut wc) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        wc.push(timed(Command::new("wc").arg("-l").arg(&log))?.0);
        ours.push(import(subject, &log)?.0);
    }
    let script = "cut -d: -f3 \"$0\" | sort -n | uniq -c";
    let by_script = timed(Command::new("sh").args(["-c", script]).arg(&log))?.0;
    let beside_script = import(subject, &log)?.0;
    let (peak, peak_short) = (import(subject, &log)?.1, import(subject, &short)?.1);
    fs::remove_file(&log)?;
    let line = |what: &str, unit, ours, theirs, limit| {
        let goal = Goal::AtMost(limit);
        Line { what: what.to_owned(), unit, ours, theirs, goal }
    };
    Ok(vec![
        line("import of a log, beside wc -l", "ms", ours, wc, TIMES_OF_WC),
        line(
            "import, beside cut | sort -n | uniq -c",
            "ms",
            vec![beside_script],
            vec![by_script],
            SHARE_OF_SCRIPT,
        ),
        line(
            "peak memory, beside that of a tenth of it",
            "MB",
            vec![peak],
            vec![peak_short],
            SAME_MEMORY,
        ),
    ])
}

/// A log of two threads, in blocks as cyclictest writes them; latencies spread and have a tail.
pub(super) fn write_log(path: &Path, count: u64) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(
        file,
        "Max CPUs = 2\nOnline CPUs = 2\nThread 0 Interval: 1500\nThread 1 Interval: 2000"
    )?;
    let (mut cycles, mut seed) = ([0u64; 2], 1u64);
    for n in 0..count {
        let thread = usize::from(n % 16 >= 10);
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = seed >> 40;
        let latency =
            4 + random % 20 + if random.is_multiple_of(9_973) { random % 30_000 } else { 0 };
        writeln!(file, "{thread:8}:{:8}:{latency:8}", cycles[thread])?;
        cycles[thread] += 1;
    }
    Ok(file.flush()?)
}

/// Time in ms and peak memory in MB of an import, page and all.
fn import(subject: &MeasuredProgram, log: &Path) -> Result<(f64, f64)> {
    let record: PathBuf = subject.folder.join("imported");
    let _ = fs::remove_dir_all(&record);
    let mut command = Command::new(&subject.rtscope);
    timed(command.arg("import").arg(log).arg("--out").arg(&record)).context("rtscope import")
}

/// Time in ms of a command, and its peak memory in MB; what it prints is dropped.
pub(super) fn timed(command: &mut Command) -> Result<(f64, f64)> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let mut child = shell::start(command)?;
    let mut peak = 0;
    loop {
        // The peak only grows: the last look counts.
        peak = process::peak_memory_bytes(child.id()).unwrap_or(peak).max(peak);
        if let Some(status) = child.try_wait()? {
            let took = began.elapsed();
            if !status.success() {
                bail!("{command:?} ended with {status}");
            }
            return Ok((took.as_secs_f64() * 1e3, peak as f64 / 1e6));
        }
        if began.elapsed() > LONGEST {
            shell::kill_tree(&mut child);
            bail!("{command:?} did not end");
        }
        thread::sleep(Duration::from_millis(1));
    }
}
