//! Square waves on a line in memory: what the scope can resolve, and how fast our generator is beside a C
//! program with `nanosleep`.
//!
//! The scope looks from the last CPU, what it looks at runs on the first. What it saw is compared with the
//! line's own count of edges outside the scope's gaps: the same edges by the same clock, so what they differ by is
//! the scope's. Its instants are compared with the grid that the generator's edges are planned on: the ideal clock
//! through all edges that it saw, across gaps, has the period that was asked for.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{
    MeasuredProgram, Options, process, read_json,
    table::{Goal, Line},
};
use crate::shell;

/// How far the scope and the generator's own count may differ.
const AGREE_PPM: f64 = 10.0;

/// How long each of both frequencies is looked at.
const LOOK: Duration = Duration::from_secs(10);
const QUICK_LOOK: Duration = Duration::from_secs(2);

/// The generator begins before the scope and ends after it by about this much.
const MARGIN: Duration = Duration::from_secs(1);

pub(super) fn lines(subject: &MeasuredProgram, options: &Options) -> Result<Vec<Line>> {
    if process::cpus().len() < 2 {
        bail!("it needs two CPUs");
    }
    let look = if options.quick { QUICK_LOOK } else { LOOK };
    let (mut fast, mut even) = (Vec::new(), Vec::new());
    // The long looks need no more rounds than it takes to tell a limit.
    let rounds = options.rounds.min(5);
    for round in 0..rounds {
        fast.push(look_at(subject, 1e6, Duration::from_millis(500), round).context("1 MHz")?);
        even.push(look_at(subject, 1e5, look, round).context("100 kHz")?);
    }
    let alone = |what: &str, unit, goal, ours: Vec<f64>| Line {
        what: what.to_owned(),
        unit,
        ours,
        theirs: Vec::new(),
        goal,
    };
    let of = |seen: &[Seen], figure: fn(&Seen) -> f64| seen.iter().map(figure).collect::<Vec<_>>();
    let (resolved, error) = (Goal::AtLeast(990.0), Goal::AtMost(AGREE_PPM));
    Ok(vec![
        alone(
            "1 MHz: what the scope resolves",
            "kHz",
            resolved,
            of(&fast, |seen| seen.scope_hz / 1e3),
        ),
        alone("1 MHz: edges invented", "", Goal::AtMost(0.0), of(&fast, |seen| seen.invented)),
        alone("1 MHz: blind", "%", Goal::None, of(&fast, |seen| seen.blind * 100.0)),
        alone(
            "100 kHz: scope against the generator's count",
            "ppm",
            error,
            of(&even, Seen::error_ppm),
        ),
        alone(
            "100 kHz: scope against the generator's grid",
            "ppm",
            error,
            of(&even, |seen| seen.grid_ppm),
        ),
        alone("100 kHz: edges invented", "", Goal::AtMost(0.0), of(&even, |seen| seen.invented)),
        alone("100 kHz: blind", "%", Goal::None, of(&even, |seen| seen.blind * 100.0)),
    ])
}

/// The line of the sweeps: a section of its own, which a busy machine may spoil alone.
pub(super) fn sweeps(subject: &MeasuredProgram, options: &Options) -> Result<Vec<Line>> {
    let sweeps: Vec<(f64, f64)> =
        (0..options.rounds.min(5)).map(|_| sweep(subject)).collect::<Result<_>>()?;
    Ok(vec![Line {
        what: "highest frequency, beside C nanosleep".to_owned(),
        unit: "Hz",
        ours: sweeps.iter().map(|both| both.0).collect(),
        theirs: sweeps.iter().map(|both| both.1).collect(),
        goal: Goal::AtLeast(1.0),
    }])
}

/// What the scope saw beside what the generator says.
struct Seen {
    scope_hz: f64,
    own_hz: f64,
    /// The ideal clock through the edges against the wanted frequency.
    grid_ppm: f64,
    /// Edges seen beyond those that the program counted.
    invented: f64,
    blind: f64,
}

impl Seen {
    fn error_ppm(&self) -> f64 {
        ((self.scope_hz / self.own_hz - 1.0) * 1e6).abs()
    }

    /// From the scope's document. A refused frequency is no agreement at all.
    fn of(scope: &Value, wanted_hz: f64) -> Result<Seen> {
        let figure = |name: &str| scope[name].as_f64().with_context(|| format!("no {name}"));
        let (edges, made) = (figure("edges")?, figure("made")?);
        let grid_hz = scope["phase"]["period_ns"].as_f64().map_or(0.0, |ns| 1e9 / ns);
        Ok(Seen {
            scope_hz: figure("frequency_hz").unwrap_or(0.0),
            own_hz: figure("counted_hz").unwrap_or(f64::INFINITY),
            grid_ppm: ((grid_hz / wanted_hz - 1.0) * 1e6).abs(),
            invented: (edges - made).max(0.0),
            blind: figure("blind_share")?,
        })
    }
}

/// A spin generator on the first CPU beside the scope on the last.
fn look_at(
    subject: &MeasuredProgram,
    wanted_hz: f64,
    look: Duration,
    round: usize,
) -> Result<Seen> {
    let line = format!("memory:bench-{}-{round}", std::process::id());
    let cpus = process::cpus();
    let first = cpus.first().context("there is no CPU")?.to_string();
    let length = format!("{}ms", (look + MARGIN * 2).as_millis());
    let frequency = format!("{wanted_hz}Hz");
    let words = ["generate", &line, "--freq", &frequency, "--method", "spin", "--cpus", &first];
    let words = [&words[..], &["--duration", &length, "--json"]].concat();
    let generator = Started::new(subject, "generator", &words)?;
    thread::sleep(MARGIN);
    let time = format!("{}ms", look.as_millis());
    let scope = Started::new(subject, "scope", &["capture", &line, "--duration", &time, "--json"])?;
    let scope = scope.document(look).context("the scope");
    generator.document(look).context("the generator")?;
    let _ = fs::remove_file(format!("/dev/shm/rtscope-line-{}", &line["memory:".len()..]));
    Seen::of(&scope?, wanted_hz)
}

/// The highest frequencies of our generator and of C with nanosleep, in one sweep.
fn sweep(subject: &MeasuredProgram) -> Result<(f64, f64)> {
    let page = subject.folder.join("wave.html").display().to_string();
    let words =
        ["sweep", "--subject", "rust", "--subject", "c", "--quick", "--json", "--page", &page];
    let sweep = Started::new(subject, "sweep", &words)?.document(Duration::from_secs(90))?;
    let highest = |name: &str| {
        let subjects = sweep["subjects"].as_array().map_or(&[][..], Vec::as_slice);
        let found = subjects.iter().find(|one| one["name"] == name);
        found.and_then(|one| one["max_frequency_hz"].as_f64())
    };
    let theirs = highest("c").context("the C program kept no frequency, or the scope was blind")?;
    Ok((highest("rust").unwrap_or(0.0), theirs))
}

/// A `rtscope wave` that runs, with what it prints in a file.
struct Started {
    child: Child,
    output: PathBuf,
}

impl Started {
    fn new(subject: &MeasuredProgram, name: &str, words: &[&str]) -> Result<Started> {
        let output = subject.folder.join(format!("wave-{name}.json"));
        let mut command = Command::new(&subject.rtscope);
        command.arg("wave").args(words).stdin(Stdio::null()).stdout(File::create(&output)?);
        Ok(Started { child: shell::start(&mut command)?, output })
    }

    /// What it printed. A refused frequency and late edges are exit codes too.
    fn document(mut self, limit: Duration) -> Result<Value> {
        if shell::wait(&mut self.child, limit + Duration::from_secs(60))?.is_none() {
            bail!("it did not end");
        }
        read_json(&self.output).context("it printed no document")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_figures_are_those_of_the_scope_the_line_s_count_and_the_grid() {
        let scope = |edges: u64, hz: Option<f64>| {
            json!({
                "edges": edges, "made": 2_000, "frequency_hz": hz, "blind_share": 0.01,
                "counted_hz": hz.map(|_| 100_000.0), "phase": { "period_ns": 9_999.98 },
            })
        };
        let seen = Seen::of(&scope(1_990, Some(100_000.5)), 1e5).expect("figures");
        assert!((seen.error_ppm() - 5.0).abs() < 1e-6);
        assert!((seen.grid_ppm - 2.0).abs() < 1e-3);
        assert_eq!((seen.invented, seen.blind), (0.0, 0.01));
        let refused = Seen::of(&scope(2_003, None), 1e5).expect("figures");
        assert_eq!((refused.error_ppm(), refused.invented), (1e6, 3.0));
        assert!(Seen::of(&json!({}), 1e5).is_err());
    }
}
