//! The bench of a sweep: a line in memory, a CPU for the programs that are tried, and a scope on another one. With one
//! CPU the scope reads the line's own count instead.

use std::{
    fmt::Display,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use rtscope_model::{
    cpu::CpuSet,
    schedule::Placement,
    time::Nanos,
    wave::{Capture, CountReading},
};
use rtscope_sys::{clock::SystemClock, line::MemoryLine, sched, tree::Tree};

use super::{
    WaveError, count, line, scope,
    seat::{self, Seat},
    subject::{RunningSubject, Subject},
};

/// Room for edges of one try: 8 MB.
const EDGES_MAX: usize = 1_000_000;

/// After this time the kernel ends a subject of one try.
const SUBJECT_LIMIT: &str = "30s";

/// Longer than a subject takes to start and end.
const START_LIMIT: Nanos = Nanos::from_secs(10);

/// Between the first edge and the first look.
const SETTLE: Duration = Duration::from_millis(20);

/// What stays the same in all tries. Dropping it removes the line.
#[derive(Debug)]
pub struct Bench {
    line: MemoryLine,
    name: String,
    scope: Scope,
    /// The CPU of the subjects.
    pub cpus: CpuSet,
}

/// Who sees the wave.
#[derive(Debug)]
enum Scope {
    /// A thread on a CPU of its own, which looks at the line all the time.
    Looks {
        /// Where it looks from.
        seat: Seat,
        /// The same beside a subject that is a real-time thread, where there is no third CPU.
        modest: Seat,
    },
    /// A thread on the subject's CPU, the only one, which reads the line's own count now and then.
    Counts(Placement),
}

/// What the scope saw of a wave.
#[derive(Debug)]
pub enum Seen {
    Edges(Capture),
    /// Readings of its own count of edges.
    Counts(Vec<CountReading>),
}

/// A folder for the programs that are compiled, which goes when this does.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Result<Scratch, WaveError> {
        let path = std::env::temp_dir().join(format!("rtscope-subjects-{}", std::process::id()));
        let made = fs::create_dir(&path);
        made.map_err(|source| WaveError::File { operation: "make", path: path.clone(), source })?;
        Ok(Scratch(path))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Bench {
    /// A scope on some CPUs, for subjects on another one if there is one. Whether one of these is a real-time thread
    /// must be known.
    ///
    /// # Errors
    ///
    /// When a subject could keep its CPU from everything else, when the scope may not be placed above it on the only
    /// CPU, or without a line.
    pub fn new(eyes: &CpuSet, real_time: bool) -> Result<Bench, WaveError> {
        let allowed = sched::affinity(sched::SELF)?;
        let refused = |why: &str| WaveError::Machine(why.to_owned());
        let tree = Tree::default();
        if real_time && seat::is_unthrottled(&tree) {
            return Err(refused(
                "real-time throttling is off, and a subject that never sleeps would block its CPU: switch \
                 throttling on (kernel.sched_rt_runtime_us = 950000)",
            ));
        }
        let (cpus, scope) = match allowed.without(eyes).iter().next() {
            Some(cpu) => {
                let seat = Seat::best(eyes, &tree);
                let modest = if allowed.len() > 2 { seat.clone() } else { seat.modest() };
                (std::iter::once(cpu).collect(), Scope::Looks { seat, modest })
            }
            None => {
                let place = seat::counting(eyes).ok_or_else(|| {
                    refused(
                        "with one CPU the scope must be a real-time thread above the subject: run it as root, \
                         or raise RLIMIT_RTPRIO to 99",
                    )
                })?;
                (eyes.clone(), Scope::Counts(place))
            }
        };
        let short = format!("sweep-{}", std::process::id());
        let line = line::open_memory(&short)?;
        Ok(Bench { line, name: format!("memory:{short}"), scope, cpus })
    }

    /// Who sees the wave, for people: name and value.
    #[must_use]
    pub fn facts(&self) -> Vec<(String, String)> {
        let fact = |name: &str, value: String| (name.to_owned(), value);
        match &self.scope {
            Scope::Looks { seat, modest } => vec![
                fact("scope", seat.text()),
                fact("scope beside a real-time subject", modest.text()),
            ],
            Scope::Counts(place) => vec![fact(
                "scope",
                format!(
                    "{place}, reads the count of edges that the subject keeps, because there is only one CPU"
                ),
            )],
        }
    }

    /// Starts a subject by `PROGRAM wave-subject ...`, looks at its wave, and ends it. What is wanted of it is a
    /// frequency, for a look of so many nanoseconds.
    ///
    /// # Errors
    ///
    /// When it can't be started, ends, or makes no edge.
    pub fn look(
        &self,
        program: &Path,
        subject: &Subject,
        policy: &(impl Display + Sync),
        wanted: (f64, u64),
    ) -> Result<Seen, WaveError> {
        let (wanted_hz, look_ns) = wanted;
        let start = || -> Result<RunningSubject, WaveError> {
            let mut command = Command::new(program);
            command
                .arg0("rtscope")
                .args(["wave-subject", "--parent", &std::process::id().to_string()])
                .args(["--limit", SUBJECT_LIMIT, "--cpus", &self.cpus.to_string()])
                .args(["--policy", &policy.to_string(), "--"])
                .args(subject.command(&self.name, wanted_hz));
            let running = RunningSubject::start(&subject.name, &mut command, &self.line)?;
            thread::sleep(SETTLE);
            Ok(running)
        };
        match &self.scope {
            Scope::Looks { seat, modest } => self.capture(start()?, look_ns, (seat, modest)),
            // Above the subject, or one that never sleeps would keep it from being started, seen and ended.
            Scope::Counts(place) => scope::at_place(place, Nanos(look_ns + START_LIMIT.0), || {
                let mut running = start()?;
                let counts = count::watch(&self.line, &SystemClock::MONOTONIC, wanted);
                running.check()?;
                Ok(Seen::Counts(counts))
            }),
        }
    }

    /// Looks at the line from another CPU.
    fn capture(
        &self,
        mut running: RunningSubject,
        look_ns: u64,
        (seat, modest): (&Seat, &Seat),
    ) -> Result<Seen, WaveError> {
        let seat = if running.is_real_time(&Tree::default()) { modest } else { seat };
        let limits = scope::CaptureLimits {
            duration_ns: look_ns,
            edges_max: EDGES_MAX,
            gaps_max: scope::GAPS_MAX,
            rest: seat.rest,
        };
        let clock = SystemClock::MONOTONIC;
        let capture = scope::capture(&self.line, &self.name, &seat.place, &clock, limits)?;
        running.check()?;
        Ok(Seen::Edges(capture))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.line.path());
    }
}
