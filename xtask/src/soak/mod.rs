//! `cargo xtask soak`: rtscope runs while it is killed, its disk is full, CPUs go away and the clock steps, and everything
//! is checked after each round.
//!
//! A round is drawn from the seed and its number: a command, settings, a load, a fault and its moment. Then the record
//! must be readable with the right sums, every setting must be as it was, byte for byte, and nothing may be left running.
//! Beside the rounds one run measures all the time: its memory and its open files must stay flat.
//!
//! What it can't show: a machine that loses power. What was written last may be lost then, and settings don't outlive a
//! boot.

mod draw;
mod fault;
mod flat;
mod keeper;
mod leftovers;
mod machine;
mod round;
mod snapshot;
mod subject;
mod sums;
mod tally;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use self::{
    draw::{Choice, Drawn, Ready},
    fault::Fault,
    flat::{Growth, Witness},
    keeper::{Keeper, Undo},
    leftovers::ProgramFile,
    machine::Machine,
    round::Stage,
    snapshot::Snapshot,
    tally::{Head, Tally},
};
use crate::shell;

const USAGE: &str = "usage: cargo xtask soak [--for 30m] [--seed N] [--round N] [--only FAULT,...] [--mild] \
                     [--program FILE]";

/// How often the state is printed.
const PRINTS_EVERY: Duration = Duration::from_secs(60);

/// How often the witness is stopped for a moment.
const STOPS_EVERY: u64 = 50;

#[derive(Debug, PartialEq)]
struct Options {
    /// How long rounds are begun.
    lasts: Duration,
    seed: Option<u64>,
    /// Only the round of this number.
    round: Option<u64>,
    faults: Vec<Fault>,
    is_mild: bool,
    program: Option<PathBuf>,
}

impl Options {
    fn read(words: &[&str]) -> Result<Options> {
        let mut options = Options {
            lasts: Duration::from_secs(5 * 60),
            seed: None,
            round: None,
            faults: Fault::all().collect(),
            is_mild: false,
            program: None,
        };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            if word == "--mild" {
                options.is_mild = true;
                continue;
            }
            let value = *words.next().context(USAGE)?;
            match word {
                "--for" => options.lasts = duration(value)?,
                "--seed" => options.seed = Some(value.parse().context(USAGE)?),
                "--round" => options.round = Some(value.parse().context(USAGE)?),
                "--only" => {
                    options.faults = value.split(',').map(Fault::parse).collect::<Result<_>>()?;
                }
                "--program" => options.program = Some(PathBuf::from(value)),
                _ => bail!(USAGE),
            }
        }
        Ok(options)
    }
}

/// A time such as 90s, 30m or 24h.
fn duration(text: &str) -> Result<Duration> {
    let wrong = || format!("{text:?} is not a time: write 90s, 30m or 24h");
    let units = [("s", 1), ("m", 60), ("min", 60), ("h", 3600), ("d", 24 * 3600)];
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let seconds = units.iter().find(|(name, _)| *name == unit).with_context(wrong)?.1;
    let number: u64 = number.parse().with_context(wrong)?;
    Ok(Duration::from_secs(number.checked_mul(seconds).with_context(wrong)?))
}

/// Soaks. Whether no round failed.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    match words {
        ["--keeper", program] => return Ok(keeper::keep(Path::new(program))),
        ["--eat", mib] => return fault::eat(mib.parse()?),
        _ => {}
    }
    let options = Options::read(words)?;
    machine::with_own_mounts(words);
    let program = match &options.program {
        Some(program) => fs::canonicalize(program)?,
        None => shell::built(&["-p", "rtscope"])?,
    };
    // Two soaks would find what the other one does.
    let lock = File::create(crate::scratch()?.join("soak.lock"))?;
    lock.try_lock().context("another soak runs in this checkout")?;
    let folder = crate::scratch()?.join("soak");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    // Copies have inodes of their own: whatever runs them was started by this soak.
    let copy = |name: &str| -> Result<PathBuf> {
        let copy = folder.join(name).join("rtscope");
        fs::create_dir_all(folder.join(name))?;
        fs::copy(&program, &copy).with_context(|| format!("can't copy {}", program.display()))?;
        Ok(copy)
    };
    let (own, of_witness) = (copy("program")?, copy("witness-program")?);
    let keeper = Keeper::start(&own)?;
    let settings = keeper.hold(Undo::Settings)?;
    let machine = Machine::look(&options.faults, &keeper)?;
    let stage = Stage {
        file: ProgramFile::of(&own)?,
        ours: vec![ProgramFile::of(&own)?, ProgramFile::of(&of_witness)?],
        program: own,
        folder: folder.join("round"),
        keeper: &keeper,
        machine: &machine,
        mark: format!("{}", std::process::id()),
    };
    let mut soak = Soak::prepare(&options, stage, &folder, words)?;
    let mut witness = Witness::start(&of_witness, &folder, &keeper)?;
    soak.rounds(&mut witness)?;
    soak.end_witness(&mut witness)?;
    settings.undo()?;
    soak.finish(&witness)
}

/// A soak that goes on.
struct Soak<'a> {
    options: &'a Options,
    stage: Stage<'a>,
    choice: Choice,
    folder: &'a Path,
    head: Head,
    tally: Tally,
    began: Instant,
}

impl<'a> Soak<'a> {
    /// Runs every command once without a fault: what doesn't run here is left out, with the reason.
    fn prepare(
        options: &'a Options,
        stage: Stage<'a>,
        folder: &'a Path,
        words: &[&str],
    ) -> Result<Soak<'a>> {
        fs::create_dir_all(&stage.folder)?;
        fs::create_dir_all(folder.join("failed"))?;
        let unavailable = &stage.machine.unavailable;
        let is_there = |fault: &Fault| !unavailable.iter().any(|(one, _)| one == fault);
        let mut skipped: Vec<(String, String)> =
            unavailable.iter().map(|(fault, why)| (fault.name().to_owned(), why.clone())).collect();
        let settings = available(&stage, subject::settings(), &mut skipped)?;
        let mut subjects = Vec::new();
        for subject in subject::SUBJECTS {
            match stage.trial(subject)? {
                Ok(span) => subjects.push(Ready { subject, span }),
                Err(why) => skipped.push((subject.name.to_owned(), why)),
            }
        }
        for (what, why) in &skipped {
            println!("SKIP {what}: {why}");
        }
        let choice = Choice {
            faults: options.faults.iter().copied().filter(is_there).collect(),
            subjects,
            settings,
            is_mild: options.is_mild,
        };
        let seed = options.seed.unwrap_or_else(|| fastrand::u64(0..1 << 32));
        let head = Head {
            command: command(words, seed),
            seed,
            took: Duration::ZERO,
            system: shell::output(Command::new("uname").arg("-srm"), Duration::from_secs(10))?
                .trim()
                .to_owned(),
            values: Snapshot::take(Path::new("/")).count(),
            skipped,
            changed_by_kernel: stage.machine.changed_by_kernel.clone(),
            growth: None,
        };
        let tally = Tally::default();
        Ok(Soak { options, stage, choice, folder, head, tally, began: Instant::now() })
    }

    fn rounds(&mut self, witness: &mut Witness) -> Result<()> {
        let (seed, lasts) = (self.head.seed, self.options.lasts);
        println!("seed {seed}: for {} s", lasts.as_secs());
        let only = self.options.round;
        let mut next_print = PRINTS_EVERY;
        for round in only.unwrap_or(0).. {
            self.one(round)?;
            if round % STOPS_EVERY == STOPS_EVERY - 1 {
                witness.stop_for(Duration::from_secs(1));
            }
            witness.look()?;
            let age = self.began.elapsed();
            if age >= next_print {
                next_print = age + PRINTS_EVERY;
                println!(
                    "{:>6} s: {} rounds, {} killed, {} failed, {} s left",
                    age.as_secs(),
                    self.tally.rounds(),
                    self.tally.kills(),
                    self.tally.failures(),
                    lasts.saturating_sub(age).as_secs()
                );
            }
            if only.is_some() || age >= lasts {
                break;
            }
        }
        Ok(())
    }

    fn one(&mut self, round: u64) -> Result<()> {
        let drawn = self.choice.draw(self.head.seed, round).context("no fault can be done here")?;
        let outcome = self.stage.round(&drawn)?;
        if self.options.round.is_some() {
            println!("{drawn:#?}\n{outcome:#?}");
        }
        if !outcome.problems.is_empty() {
            self.keep(round, &drawn, &outcome.problems)?;
        }
        self.tally.add(round, drawn.fault, outcome);
        Ok(())
    }

    /// Keeps the folder of a round that failed, and says why.
    fn keep(&self, round: u64, drawn: &Drawn, problems: &[String]) -> Result<()> {
        let kept = self.folder.join("failed").join(format!("round-{round}"));
        println!("round {round} ({}): {}", drawn.fault.name(), problems.join("; "));
        println!("  its folder is {}", kept.display());
        fs::rename(&self.stage.folder, &kept)?;
        fs::write(kept.join("why.txt"), format!("{drawn:#?}\n{problems:#?}\n"))?;
        Ok(())
    }

    /// Ends the witness, whose record must be as good as that of any run.
    fn end_witness(&mut self, witness: &mut Witness) -> Result<()> {
        let code = witness.end()?;
        fs::create_dir_all(&self.stage.folder)?;
        let mut problems = self.stage.judge(&witness.record, witness.age())?;
        problems.extend(problem_of_end(code));
        let growth = Growth::of(&witness.samples);
        problems.extend(growth.iter().flat_map(Growth::problems));
        self.head.growth = growth;
        if !problems.is_empty() {
            self.tally.fail(None, "witness", "run witness.toml".to_owned(), problems);
        }
        Ok(())
    }

    /// Writes and prints the report.
    fn finish(mut self, witness: &Witness) -> Result<bool> {
        self.head.took = self.began.elapsed();
        let text = tally::markdown(&self.tally, &self.head);
        let scratch = crate::scratch()?;
        fs::write(scratch.join("soak.md"), &text)?;
        let mut document = tally::json(&self.tally, &self.head);
        document["witness"] = witness.samples_json();
        fs::write(scratch.join("soak.json"), serde_json::to_string_pretty(&document)?)?;
        println!("\n{text}\nThis report is {}", scratch.join("soak.md").display());
        Ok(self.tally.is_ok())
    }
}

/// The command that does the same again.
fn command(words: &[&str], seed: u64) -> String {
    let (mut all, seed) = (vec!["cargo xtask soak"], seed.to_string());
    all.extend(words);
    if !words.contains(&"--seed") {
        all.extend(["--seed", &seed]);
    }
    all.join(" ")
}

/// The settings that this machine has.
fn available(
    stage: &Stage,
    all: &'static [&'static str],
    skipped: &mut Vec<(String, String)>,
) -> Result<Vec<&'static str>> {
    let mut settings = Vec::new();
    for &setting in all {
        let tried = stage.run(&format!("tune apply --dry-run {setting}"), "dry-run")?;
        match tried.code() {
            Some(0) => settings.push(setting),
            _ => skipped.push((setting.to_owned(), tried.first_complaint())),
        }
    }
    Ok(settings)
}

/// What is wrong with the end of the witness: whether its figures are good is not judged, but it must have judged them.
fn problem_of_end(code: Option<i32>) -> Option<String> {
    let is_verdict = code.is_some_and(|code| (0..=3).contains(&code));
    (!is_verdict).then(|| format!("the witness ended with {code:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_report_has_the_seed_once() {
        assert_eq!(command(&[], 7), "cargo xtask soak --seed 7");
        assert_eq!(command(&["--mild"], 7), "cargo xtask soak --mild --seed 7");
        let given = ["--seed", "7", "--for", "2m"];
        assert_eq!(command(&given, 7), "cargo xtask soak --seed 7 --for 2m");
    }

    #[test]
    fn the_witness_ends_with_a_verdict_or_it_is_a_problem() {
        assert!((0..=3).all(|code| problem_of_end(Some(code)).is_none()));
        for code in [None, Some(-1), Some(4), Some(64), Some(101), Some(130)] {
            let text = problem_of_end(code).expect("a problem");
            assert_eq!(text, format!("the witness ended with {code:?}"));
        }
    }

    #[test]
    fn options_are_read() {
        let options = Options::read(&["--for", "24h", "--seed", "7", "--only", "kill,cpu"]);
        let options = options.expect("read");
        assert_eq!((options.lasts.as_secs(), options.seed), (86_400, Some(7)));
        assert_eq!(options.faults, [Fault::Kill, Fault::CpuOff]);
        let all = Options::read(&["--mild"]).expect("read");
        assert!(all.is_mild && all.faults.len() == Fault::all().count());
        for wrong in [["--for", "x"], ["--for", "5"], ["--only", "flood"], ["--seed", "-1"]] {
            assert!(Options::read(&wrong).is_err(), "{wrong:?}");
        }
        assert!(Options::read(&["--for"]).is_err() && Options::read(&["quick", "1"]).is_err());
    }

    #[test]
    fn times_have_units() {
        let seconds = |text| duration(text).map(|time| time.as_secs());
        assert_eq!(seconds("90s").expect("a time"), 90);
        assert_eq!(seconds("30m").expect("a time"), 1800);
        assert_eq!(seconds("30min").expect("a time"), 1800);
        for wrong in ["", "m", "1.5h", "99999999999999999999s", "18446744073709551615d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
