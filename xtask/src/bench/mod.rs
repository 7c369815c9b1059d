//! `cargo xtask bench`: side by side with Debian's cyclictest and hackbench.
//!
//! Both tools do the same work on the same machine in turn, A B A B: what is compared is the ratio of
//! two neighbours, never a figure of today with one of yesterday. A line says whether its goal is met,
//! or "level" when the rounds scatter too much to tell; the exit code doesn't: a busy machine is no
//! mistake of the code. It fails only when something could not be measured.
//!
//! With `--against` it compares with another version of rtscope instead, and a regression fails.

mod histogram;
mod import;
mod lab;
mod messages;
mod process;
mod program;
mod table;
mod versions;
mod wakeup;
mod wave;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, bail};

use crate::shell;
use table::{Line, Outcome};

/// What is asked of the whole bench.
struct Options {
    /// Times that each pair runs.
    rounds: usize,
    /// How long one tool runs in a round of wake-ups.
    wakeups: Duration,
    /// How long one tool runs in a round of messages.
    messages: Duration,
    /// Where to write the lines as JSON.
    json: Option<PathBuf>,
    /// Whether less is measured, and sooner.
    quick: bool,
    /// The only section that is measured; none for all.
    only: Option<String>,
    /// The other version of rtscope that is compared with, instead of with other tools.
    against: Option<String>,
}

/// The program that is measured, and a folder for its records.
struct MeasuredProgram {
    rtscope: PathBuf,
    folder: PathBuf,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options {
            rounds: 11,
            wakeups: Duration::from_secs(5),
            messages: Duration::from_secs(2),
            json: None,
            quick: false,
            only: None,
            against: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match (*word, words.clone().next()) {
                ("--quick", _) => {
                    options.quick = true;
                    options.rounds = 2;
                    options.wakeups = Duration::from_secs(4);
                    options.messages = Duration::from_secs(1);
                }
                ("--json", Some(file)) => {
                    options.json = Some(PathBuf::from(file));
                    words.next();
                }
                ("--only", Some(name)) if SECTIONS.iter().any(|(known, _)| known == name) => {
                    options.only = Some((*name).to_owned());
                    words.next();
                }
                ("--against", Some(version)) => {
                    options.against = Some((*version).to_owned());
                    words.next();
                }
                _ => bail!(
                    "{word:?} is not expected here: write [--quick] [--json FILE] [--only SECTION] or \
                     [--against COMMIT|PROGRAM|last], and of sections one of {}",
                    SECTIONS.map(|(name, _)| name).join("; ")
                ),
            }
        }
        Ok(options)
    }
}

/// A section: its name and what measures its lines.
type Section = (&'static str, fn(&MeasuredProgram, &Options) -> Result<Vec<Line>>);

const SECTIONS: [Section; 8] = [
    ("program", program::lines),
    ("wake-ups", wakeup::lines),
    ("wake-ups, CPUs kept awake", wakeup::lines_awake),
    ("messages", messages::lines),
    ("imports", import::lines),
    ("square waves", wave::lines),
    ("sweeps", wave::sweeps),
    ("lab", lab::lines),
];

/// Measures everything and prints the table. Whether everything could be measured, and nothing became slower than in the
/// version that it is compared with.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let options = Options::parse(words)?;
    let folder = crate::scratch()?.join("bench");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let rtscope = shell::built(&["--release", "--package", "rtscope"])?;
    let subject = MeasuredProgram { rtscope, folder };
    let machine = machine();
    println!("{machine}; {} rounds", options.rounds);

    let (lines, is_well) = match &options.against {
        Some(version) => {
            let lines = versions::lines(&subject, version, options.rounds)?;
            let is_well = lines.iter().all(|line| line.outcome() != Some(Outcome::NotMet));
            (lines, is_well)
        }
        None => beside_other_tools(&subject, &options)?,
    };
    print!("{}", table::text(&lines));
    if let Some(file) = &options.json {
        fs::write(file, table::json(&machine, options.rounds, &lines))?;
    }
    Ok(is_well)
}

/// The lines of all sections that are asked for, and whether all could be measured.
fn beside_other_tools(subject: &MeasuredProgram, options: &Options) -> Result<(Vec<Line>, bool)> {
    for (program, package) in [("cyclictest", "rt-tests"), ("hackbench", "rt-tests")] {
        if shell::find(program).is_none() {
            bail!("{program} is missing: apt-get install {package}");
        }
    }
    let mut lines = Vec::new();
    let mut is_complete = true;
    let asked = |name: &str| options.only.as_ref().is_none_or(|only| only == name);
    for (name, measure) in SECTIONS.into_iter().filter(|(name, _)| asked(name)) {
        eprintln!("measuring: {name}");
        match measure(subject, options) {
            Ok(measured) => lines.extend(measured),
            Err(error) => {
                is_complete = false;
                println!("{name} could not be measured: {error:#}");
            }
        }
    }
    Ok((lines, is_complete))
}

/// The machine in a line: figures without it mean nothing.
fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown CPU", |(_, name)| name.trim());
    let release = read("/proc/sys/kernel/osrelease");
    format!("{model}, {} CPUs, Linux {}", process::cpus().len(), release.trim())
}

fn read_json(path: &Path) -> Result<serde_json::Value> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let options = Options::parse(&["--json", "x.json", "--quick"]).expect("options");
        assert_eq!((options.rounds, options.json), (2, Some(PathBuf::from("x.json"))));
        let options = Options::parse(&["--only", "lab"]).expect("options");
        assert_eq!(options.only.as_deref(), Some("lab"));
        assert!(Options::parse(&["--only", "nothing"]).is_err());
        assert!(Options::parse(&["--json"]).is_err());
        assert!(Options::parse(&["--fast"]).is_err());
    }
}
