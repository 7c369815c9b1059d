//! `cargo xtask lab-repeat`: how often runs of the lab with the same inputs are equal, and whether each is
//! replayed to the bit, while the machine is more and less busy.
//!
//! A fresh run is compared with the first one by the hashes of all files that its guest brought; then
//! `rtscope lab replay` replays it from its log. The load comes from programs that only compute and that give
//! way to the emulator a little; the load average that was reached is printed.
//! `--at-once` runs several guests beside each other, which are part of the load and starve each other.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{busy::Busy, shell};

const USAGE: &str = "usage: cargo xtask lab-repeat [--runs N] [--load N,N,...] [--at-once N] [--shift N] \
    [--kernel NAME] [--program FILE] [--guest FILE]";

/// A second of wake-ups at rest, where two runs have differed, and one under a load.
const PLAN: &str = "
name = 'repeat'
title = 'the same run again'
[sampler]
policy = 'fifo'
priority = 90
interval = '500us'
warmup = '20ms'
[[phase]]
name = 'rest'
cycles = 1000
[[phase]]
name = 'message'
cycles = 200
settle = '10ms'
load = ['message']
";

/// How long a guest may take.
const GUEST_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The load gives way to the emulator a little.
const NICE: u8 = 9;

/// The load average follows slowly: it is waited for at most this long.
const LOAD_LIMIT: Duration = Duration::from_secs(4 * 60);

/// What is asked.
#[derive(Debug, PartialEq)]
struct Asked {
    runs: u32,
    loads: Vec<u32>,
    /// Guests that run beside each other: they are a part of the load.
    at_once: u32,
    /// Value of the lab's `--shift` (2^N ns per instruction), or `None` for its default.
    shift: Option<u8>,
    kernel: String,
    program: Option<PathBuf>,
    guest: Option<PathBuf>,
}

/// Runs, counts and prints. Whether every replay was equal; fresh runs that differ are counted only.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let asked = parse(words)?;
    let program = match &asked.program {
        Some(program) => fs::canonicalize(program)?,
        None => shell::built(&["--release", "--package", "rtscope"])?,
    };
    let room = crate::scratch()?.join(format!("lab-repeat-{}", std::process::id()));
    fs::create_dir_all(&room)?;
    fs::write(room.join("repeat.toml"), PLAN)?;
    let guest = asked.guest.as_deref().map(fs::canonicalize).transpose()?;
    let lab = Lab { program, guest, room, kernel: asked.kernel, shift: asked.shift };
    let first = lab.fresh("first")?;
    println!("load  load average  fresh equal    replayed equal  seconds of a run and a replay");
    let mut all = true;
    for load in asked.loads {
        let counted = lab.count(load, asked.runs, asked.at_once.min(load), &first)?;
        all &= counted.replayed == counted.runs;
        println!("{counted}");
    }
    if all {
        fs::remove_dir_all(&lab.room)?;
    } else {
        println!("the records that differed are in {}", lab.room.display());
    }
    Ok(all)
}

fn parse(words: &[&str]) -> Result<Asked> {
    let (mut runs, mut loads, mut at_once) = (10, vec![1, 10, 100], 1);
    let mut kernel = "tiny-6.12-rt".to_owned();
    let (mut shift, mut program, mut guest) = (None, None, None);
    for pair in words.chunks(2) {
        match pair {
            ["--runs", number] => runs = number.parse().context(USAGE)?,
            ["--load", list] => {
                let read: Result<_, _> = list.split(',').map(str::parse).collect();
                loads = read.context(USAGE)?;
            }
            ["--at-once", number] => at_once = number.parse().context(USAGE)?,
            ["--shift", number] => shift = Some(number.parse().context(USAGE)?),
            ["--kernel", name] => kernel = (*name).to_owned(),
            ["--program", file] => program = Some(PathBuf::from(file)),
            ["--guest", file] => guest = Some(PathBuf::from(file)),
            _ => bail!(USAGE),
        }
    }
    ensure!(runs > 0 && at_once > 0 && loads.iter().all(|load| (1..=1000).contains(load)), USAGE);
    Ok(Asked { runs, loads, at_once, shift, kernel, program, guest })
}

/// The rtscope that is tried, and where.
struct Lab {
    program: PathBuf,
    guest: Option<PathBuf>,
    room: PathBuf,
    kernel: String,
    shift: Option<u8>,
}

/// What was counted at one load.
struct Counted {
    load: u32,
    /// The lowest and the highest load average at the end of a run.
    average: (f64, f64),
    runs: u32,
    fresh: u32,
    replayed: u32,
    /// How long all runs and all replays took.
    took: (Duration, Duration),
}

impl std::fmt::Display for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (low, high) = self.average;
        let of_all = |count: u32| format!("{count} of {}", self.runs);
        let each = |took: Duration| took.as_secs_f64() / f64::from(self.runs);
        let average = format!("{low:.1} to {high:.1}");
        let (fresh, replayed) = (of_all(self.fresh), of_all(self.replayed));
        let (run, replay) = (each(self.took.0), each(self.took.1));
        let load = self.load;
        write!(f, "{load:<5} {average:<13} {fresh:<14} {replayed:<15} {run:.1}, {replay:.1}")
    }
}

impl Lab {
    fn rtscope(&self, words: &[&str], name: &str) -> Result<shell::Finished> {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.room).args(words);
        shell::logged(&mut command, &self.room.join(format!("{name}.log")), GUEST_LIMIT)
    }

    /// Runs the plan afresh into a folder; the hashes of all that the guest brought.
    fn fresh(&self, out: &str) -> Result<Value> {
        let mut words =
            vec!["lab", "run", "repeat.toml", "--kernel", &self.kernel, "--fresh", "--out", out];
        let guest = self.guest.as_ref().map(|path| path.display().to_string());
        words.extend(guest.iter().flat_map(|path| ["--program", path]));
        let shift = self.shift.map(|shift| shift.to_string());
        words.extend(shift.iter().flat_map(|shift| ["--shift", shift]));
        let ran = self.rtscope(&words, out)?;
        let inputs = record(&self.room.join(out)).join("lab.json");
        let text = fs::read_to_string(&inputs)
            .with_context(|| format!("no record came: {}", shell::last_lines(&ran.log, 10)))?;
        let inputs: Value = serde_json::from_str(&text)?;
        ensure!(inputs["whole"] == true, "no record came: {}", shell::last_lines(&ran.log, 10));
        Ok(inputs["files"].clone())
    }

    fn count(&self, load: u32, runs: u32, at_once: u32, first: &Value) -> Result<Counted> {
        let _busy = self::load(load - at_once)?;
        let counted = Mutex::new(Counted {
            load,
            average: (f64::INFINITY, 0.0),
            runs,
            fresh: 0,
            replayed: 0,
            took: (Duration::ZERO, Duration::ZERO),
        });
        let next = AtomicU32::new(1);
        let worker = || -> Result<()> {
            loop {
                let run = next.fetch_add(1, Relaxed);
                if run > runs {
                    return Ok(());
                }
                let one = self.pair(&format!("load{load}-{run}"), first)?;
                counted.lock().unwrap_or_else(PoisonError::into_inner).add(&one);
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().try_for_each(|one| one.join().expect("no panic"))
        })?;
        Ok(counted.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// A fresh run, and its replay.
    fn pair(&self, out: &str, first: &Value) -> Result<Pair> {
        let began = Instant::now();
        let fresh = self.fresh(out)? == *first;
        let ran = began.elapsed();
        let folder = record(&self.room.join(out)).display().to_string();
        let began = Instant::now();
        let replay = self.rtscope(&["lab", "replay", &folder], out)?;
        let pair = Pair {
            fresh,
            replayed: replay.is_ok(),
            took: (ran, began.elapsed()),
            average: load_average()?,
        };
        if pair.fresh && pair.replayed {
            fs::remove_dir_all(self.room.join(out))?;
        } else {
            println!("{out}: fresh equal: {fresh}; {}", shell::last_lines(&replay.log, 8));
        }
        Ok(pair)
    }
}

/// A fresh run and its replay: whether each was equal, and how long it took.
struct Pair {
    fresh: bool,
    replayed: bool,
    took: (Duration, Duration),
    average: f64,
}

impl Counted {
    fn add(&mut self, one: &Pair) {
        self.fresh += u32::from(one.fresh);
        self.replayed += u32::from(one.replayed);
        self.took = (self.took.0 + one.took.0, self.took.1 + one.took.1);
        self.average = (self.average.0.min(one.average), self.average.1.max(one.average));
        let Counted { load, fresh, replayed, .. } = self;
        eprintln!("load {load}: {fresh} runs equal, {replayed} replays equal");
    }
}

/// The only record in a folder of the lab.
fn record(out: &Path) -> PathBuf {
    let entries = fs::read_dir(out).into_iter().flatten().flatten();
    let found = entries.map(|entry| entry.path()).find(|path| path.join("lab.json").is_file());
    found.unwrap_or_else(|| out.to_owned())
}

/// Starts so many programs that only compute, and waits until the load average is near their number.
fn load(count: u32) -> Result<Busy> {
    let busy = Busy::start(count as usize, NICE)?;
    let until = Instant::now() + LOAD_LIMIT;
    while load_average()? < 0.8 * f64::from(count) && Instant::now() < until {
        thread::sleep(Duration::from_secs(1));
    }
    Ok(busy)
}

/// The load average of the last minute.
fn load_average() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let first = text.split_whitespace().next().context("an empty /proc/loadavg")?;
    Ok(first.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_in_pairs_and_have_bounds() {
        let asked = parse(&["--runs", "3", "--load", "1,40", "--shift", "1"]).expect("sound");
        assert_eq!((asked.runs, asked.loads), (3, vec![1, 40]));
        assert_eq!(asked.shift, Some(1));
        for words in
            [&["--runs"][..], &["--runs", "0"], &["--load", "1,x"], &["--load", "0"], &["3"]]
        {
            parse(words).expect_err("refused");
        }
    }

    #[test]
    fn a_row_has_the_range_of_the_load_and_the_time_of_one_run() {
        let counted = Counted {
            load: 10,
            average: (8.25, 12.0),
            runs: 4,
            fresh: 3,
            replayed: 4,
            took: (Duration::from_secs(40), Duration::from_secs(50)),
        };
        let row = counted.to_string();
        let parts: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(parts.join(" "), "10 8.2 to 12.0 3 of 4 4 of 4 10.0, 12.5");
    }
}
