//! This checkout beside another version of rtscope: the last release, any commit, or a program.
//!
//! Both do the same work in turn, A B A B, and their times are compared. Instructions, which valgrind counts, are the same
//! on a busy machine and on a quiet one, so they can be compared over years: the last lines are rows for the table in
//! `docs/method/performance.md`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use super::{
    MeasuredProgram, import,
    table::{Goal, Line},
};
use crate::{icount, shell};

/// Lines of the log that is imported, judged and drawn.
const LOG_LINES: u64 = 500_000;

/// How much longer it may take than the other version, by time: what a noisy machine does to a median.
const TIME_MAX: f64 = 1.1;

/// How many more instructions it may take.
const INSTRUCTIONS_MAX: f64 = 1.05;

/// How long git may take.
const LOOK_UP: Duration = Duration::from_secs(60);

/// How long a build of another version may take.
const BUILD_LIMIT: Duration = Duration::from_secs(60 * 60);

/// A version of rtscope that is compared.
struct Version {
    name: String,
    rtscope: PathBuf,
    /// The example that runs the sampler's loop; a program alone has none.
    tick: Option<PathBuf>,
}

/// What both do: its name, and the words for rtscope. `LOG` stands for the log, `RECORD` for the imported log, `OUT` for a
/// new file or folder.
const WORK: [(&str, &[&str]); 4] = [
    ("start", &["--version"]),
    ("import", &["import", "LOG", "--interval", "1ms", "--out", "OUT"]),
    ("judge", &["export", "RECORD", "--format", "json", "--out", "OUT"]),
    ("judge and page", &["report", "RECORD", "--out", "OUT"]),
];

/// Compares the subject with the version that `against` names, and prints rows for the table over versions.
pub(super) fn lines(subject: &MeasuredProgram, against: &str, rounds: usize) -> Result<Vec<Line>> {
    if shell::find("valgrind").is_none() {
        bail!("valgrind is missing: apt-get install valgrind");
    }
    let theirs = other(against)?;
    let changes = if crate::has_changes()? { ", with changes" } else { "" };
    let ours = Version {
        name: format!("{}{changes}", described("HEAD")?),
        rtscope: subject.rtscope.clone(),
        tick: Some(shell::built(&icount::EXAMPLE)?),
    };
    let folder = &subject.folder;
    let log = folder.join("versions.log");
    import::write_log(&log, LOG_LINES)?;
    let room =
        Room { log, record: folder.join("versions-record"), out: folder.join("versions-out") };
    let words = ["import", "LOG", "--interval", "1ms", "--out", "RECORD"];
    import::timed(&mut room.command(&ours, &words)?)?;

    let mut lines = Vec::new();
    for (what, words) in WORK {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            a.push(import::timed(&mut room.command(&theirs, words)?)?.0);
            b.push(import::timed(&mut room.command(&ours, words)?)?.0);
        }
        lines.push(line(what, "ms", b, a, TIME_MAX));
    }
    let mut counts = [Vec::new(), Vec::new()];
    for (version, counts) in [&theirs, &ours].into_iter().zip(&mut counts) {
        let tick = version.tick.as_deref().map(icount::per_tick).transpose()?;
        counts.push(tick);
        for (_, words) in WORK {
            let executed = icount::count(&room.command(version, words)?)?;
            counts.push(Some(executed as f64 / 1e6));
        }
    }
    let [a, b] = &counts;
    let names = std::iter::once("tick").chain(WORK.map(|(what, _)| what));
    for (n, what) in names.enumerate() {
        if let (Some(a), Some(b)) = (a[n], b[n]) {
            let unit = if n == 0 { "instr" } else { "M instr" };
            lines.push(line(what, unit, vec![b], vec![a], INSTRUCTIONS_MAX));
        }
    }
    for (version, counts) in [(&theirs, a), (&ours, b)] {
        println!("{}", row(version, counts)?);
    }
    Ok(lines)
}

fn line(what: &str, unit: &'static str, ours: Vec<f64>, theirs: Vec<f64>, limit: f64) -> Line {
    Line { what: what.to_owned(), unit, ours, theirs, goal: Goal::AtMost(limit) }
}

/// A row of the table over versions: instructions, and the program's size.
fn row(version: &Version, counts: &[Option<f64>]) -> Result<String> {
    let size = fs::metadata(&version.rtscope)?.len() as f64 / 1e6;
    let cell = |count: &Option<f64>| count.map_or("-".to_owned(), |count| format!("{count:.1}"));
    let counts: Vec<String> = counts.iter().map(cell).collect();
    Ok(format!("| {} | {} | {size:.1} |", version.name, counts.join(" | ")))
}

/// The files that both versions work with.
struct Room {
    log: PathBuf,
    record: PathBuf,
    out: PathBuf,
}

impl Room {
    fn command(&self, version: &Version, words: &[&str]) -> Result<Command> {
        if self.out.is_dir() {
            fs::remove_dir_all(&self.out)?;
        } else if self.out.exists() {
            fs::remove_file(&self.out)?;
        }
        let mut command = Command::new(&version.rtscope);
        for word in words {
            match *word {
                "LOG" => command.arg(&self.log),
                "RECORD" => command.arg(&self.record),
                "OUT" => command.arg(&self.out),
                word => command.arg(word),
            };
        }
        Ok(command)
    }
}

/// The version that a commit, a tag or a program's path names; `last` is the newest tag.
fn other(against: &str) -> Result<Version> {
    if Path::new(against).is_file() {
        let rtscope = fs::canonicalize(against)?;
        return Ok(Version { name: against.to_owned(), rtscope, tick: None });
    }
    let against = match against {
        "last" => &git(&["describe", "--tags", "--abbrev=0"])
            .context("no release is tagged yet: name a commit or a program")?,
        named => named,
    };
    let commit = git(&["rev-parse", "--verify", &format!("{against}^{{commit}}")])
        .with_context(|| format!("{against:?} is neither a program nor a commit"))?;
    let kept = crate::scratch()?.join("versions");
    let programs = kept.join(&commit);
    let version = Version {
        name: described(&commit)?,
        rtscope: programs.join("rtscope"),
        tick: Some(programs.join("tick")),
    };
    if !version.rtscope.exists() {
        eprintln!("building {}", version.name);
        build(&commit, &kept, &programs)?;
    }
    Ok(version)
}

/// Builds a commit in a work tree of its own, and keeps the two programs.
fn build(commit: &str, kept: &Path, programs: &Path) -> Result<()> {
    let tree = kept.join("tree");
    let _ = fs::remove_dir_all(&tree);
    git(&["worktree", "prune"])?;
    fs::create_dir_all(kept)?;
    git(&["worktree", "add", "--detach", &tree.to_string_lossy(), commit])?;
    let built = |words: &[&str]| -> Result<PathBuf> {
        let mut cargo = shell::cargo();
        cargo.current_dir(&tree).env("CARGO_TARGET_DIR", kept.join("target"));
        cargo.args(["build", "--quiet", "--message-format", "json-render-diagnostics"]).args(words);
        shell::executable(&shell::output(&mut cargo, BUILD_LIMIT)?)
    };
    let made = built(&["--release", "--package", "rtscope", "--bin", "rtscope"])
        .and_then(|rtscope| Ok((rtscope, built(&icount::EXAMPLE)?)));
    git(&["worktree", "remove", "--force", &tree.to_string_lossy()])?;
    let (rtscope, tick) = made?;
    fs::create_dir_all(programs)?;
    fs::copy(tick, programs.join("tick"))?;
    // Last: where it is, both are.
    fs::copy(rtscope, programs.join("rtscope"))?;
    Ok(())
}

/// A commit with its date, as it stands in the table.
fn described(commit: &str) -> Result<String> {
    git(&["log", "-1", "--format=%h, %as", commit])
}

fn git(words: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.current_dir(crate::root()).args(words);
    Ok(shell::output(&mut command, LOOK_UP)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::table::Outcome::{Level, Met, NotMet};

    #[test]
    fn more_instructions_are_a_regression_and_scattered_times_are_none() {
        let more = line("judge", "M instr", vec![10.6], vec![10.0], INSTRUCTIONS_MAX);
        let few_more = line("judge", "M instr", vec![10.4], vec![10.0], INSTRUCTIONS_MAX);
        assert_eq!((more.outcome(), few_more.outcome()), (Some(NotMet), Some(Met)));
        let rounds = |ours: f64| line("judge", "ms", vec![ours; 7], vec![10.0; 7], TIME_MAX);
        assert_eq!(rounds(11.5).outcome(), Some(NotMet));
        let mut scattered = rounds(11.5);
        scattered.ours[0] = 9.0;
        assert_eq!(scattered.outcome(), Some(Level));
    }

    #[test]
    fn a_row_has_a_cell_for_each_count_and_the_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let rtscope = folder.path().join("rtscope");
        fs::write(&rtscope, vec![0; 2_500_000]).expect("written");
        let version = Version { name: "abc".to_owned(), rtscope, tick: None };
        let counts = [None, Some(1.26), Some(20.0), Some(3.0), Some(4.0)];
        let row = row(&version, &counts).expect("a row");
        assert_eq!(row, "| abc | - | 1.3 | 20.0 | 3.0 | 4.0 | 2.5 |");
    }

    #[test]
    fn what_is_neither_a_program_nor_a_commit_is_refused() {
        let said = other("no-such-thing").map(|_| ()).expect_err("refused").to_string();
        assert!(said.contains("neither a program nor a commit"), "{said}");
    }
}
