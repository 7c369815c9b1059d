//! The side that starts a load, reads its work, and ends it.
//!
//! The starting process becomes the parent of a load's orphaned workers, so that it can take note
//! of the end of each: none stays behind, not even as a zombie.

use std::{
    os::unix::process::{CommandExt, ExitStatusExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rtscope_model::{cpu::CpuSet, load::LoadLine, plan::Phase, time::Nanos};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    fork::{Children, Waited, signal, wait},
    process, sched,
    tree::Tree,
};

use crate::environment::{permission, permission_advice};

use super::{
    LoadDescriptor, LoadError, LoadOptions, Remains,
    board::{Board, State},
    processes, resolve,
    worker::{LIMITS, LoadLimits},
};
use crate::environment;

/// How long a load may take until it works.
const START_LIMIT: Nanos = Nanos::from_secs(10);

/// How long a load that was asked to end may take until it is killed.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// How long killed processes may take to die: one that waits in the kernel, for a disk that is
/// written out, dies when that is done.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A load that was asked to end so long ago is looked at: what does it wait for?
const STUCK_AFTER: Duration = Duration::from_millis(250);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// How long a load may outlive its duration or its phase before its own kernel timer ends it.
const GRACE: Nanos = Nanos::from_secs(5);

/// How long the loads of a phase may live.
pub(crate) fn limit_of(phase: &Phase) -> Nanos {
    limit(phase.expected().0.saturating_mul(2), phase.loads.len())
}

/// How long each of some loads may live that are started one after the other for a time. The first one lives while those after
/// it start, each of which may take [`START_LIMIT`].
fn limit(duration_ns: u64, loads: usize) -> Nanos {
    Nanos(duration_ns.saturating_add(START_LIMIT.0 * loads as u64 + GRACE.0))
}

/// Starts loads.
///
/// A load dies with the *thread* that started it: start loads from a thread that lives as long.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program that becomes a load's process.
    pub program: PathBuf,
    /// Words before the load's line: they lead that program to [`super::worker_main`].
    pub arguments: Vec<String>,
    pub measured: CpuSet,
    /// Every CPU that a load may use.
    pub all: CpuSet,
    /// Every CPU that is there; empty when that is not known.
    pub online: CpuSet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedLoad {
    /// Whether it ended as it should: its work was done, or it was stopped.
    pub ok: bool,
    pub how: String,
}

impl EndedLoad {
    fn badly(how: impl Into<String>) -> EndedLoad {
        EndedLoad { ok: false, how: how.into() }
    }
}

impl Launcher {
    /// Starts loads as this very program with the subcommand `load-worker`.
    #[must_use]
    pub fn new(measured: CpuSet, all: CpuSet) -> Launcher {
        let program = PathBuf::from("/proc/self/exe");
        let online = environment::online(&Tree::default());
        Launcher { program, arguments: vec!["load-worker".to_owned()], measured, all, online }
    }

    /// Whether a load could start on this machine, as far as that is known without starting it: its
    /// line, its CPUs, its command, its folders.
    pub fn can_start(&self, line: &LoadLine) -> Result<(), LoadError> {
        let (descriptor, options) = resolve(line).map_err(LoadError::Line)?;
        self.cpus(options.word("cpus"))?;
        (descriptor.is_here)(&options)
    }

    /// Starts a load, and returns when it works. The kernel ends it after `limit`, which begins now and not when it works, if
    /// nobody does before.
    ///
    /// # Errors
    ///
    /// When its line is wrong, when it can't be placed as asked, or when it does not begin to work
    /// within 10 s. Nothing is left running then.
    pub fn start(&self, line: &LoadLine, limit: Nanos) -> Result<RunningLoad, LoadError> {
        let (descriptor, options) = resolve(line).map_err(LoadError::Line)?;
        let limits = LoadLimits {
            parent: std::process::id(),
            began_ns: SystemClock::MONOTONIC.now_ns(),
            limit_ns: limit.0,
            cpus: self.cpus(options.word("cpus"))?,
        };
        let mark = limits.write();
        let board = Board::new()?;
        let shared = board.file().try_clone().map_err(LoadError::io("share the board"))?;
        process::adopt_orphans();
        let child = Command::new(&self.program)
            .arg0("rtscope")
            .args(&self.arguments)
            .arg(line.to_string())
            .env(LIMITS, &mark)
            .stdin(Stdio::from(shared))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|source| LoadError::Program { program: self.program.clone(), source })?;
        let mut running = RunningLoad {
            child,
            board,
            descriptor,
            options,
            mark,
            limit,
            asked: None,
            waiting: 0,
            looked: false,
            gone: None,
            ended: None,
        };
        running.wait_until_it_works()?;
        Ok(running)
    }

    /// The CPUs that a load's option `cpus` names.
    fn cpus(&self, text: &str) -> Result<CpuSet, LoadError> {
        let (cpus, none) = match text {
            "all" => (self.all.clone(), "no CPU may be used"),
            "measured" => (self.measured.clone(), "no CPU is measured"),
            "others" => (self.all.without(&self.measured), "every CPU is measured"),
            set => (set.parse().unwrap_or_default(), "that names no CPU"),
        };
        let absent = cpus.without(&self.online);
        if cpus.is_empty() {
            Err(LoadError::NoCpu { asked: text.to_owned(), why: none })
        } else if absent.is_empty() || self.online.is_empty() {
            Ok(cpus)
        } else {
            Err(LoadError::NotOnline { absent, online: self.online.clone() })
        }
    }
}

/// A load that runs. Dropping it stops it.
#[derive(Debug)]
pub struct RunningLoad {
    child: Child,
    board: Board,
    descriptor: &'static LoadDescriptor,
    options: LoadOptions,
    mark: String,
    limit: Nanos,
    /// When it was asked to end.
    asked: Option<Instant>,
    /// How many of its processes waited in the kernel then, or later.
    waiting: usize,
    /// Somebody has looked what a load that did not end waits for.
    looked: bool,
    /// When its process was gone, and how that ended.
    gone: Option<(Instant, EndedLoad)>,
    /// When nothing was left of it.
    ended: Option<EndedLoad>,
}

impl RunningLoad {
    /// The load's process, which leads its process group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What a unit of its work is.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        (self.descriptor.unit)(&self.options)
    }

    /// Units of work done so far. Reads memory: the load notices nothing.
    #[must_use]
    pub fn work(&self) -> u64 {
        self.board.work()
    }

    /// Whether the load has ended: done with its work, failed, killed, or stopped. Does not wait,
    /// and is silent as long as any of its processes is left.
    pub fn poll(&mut self) -> Option<EndedLoad> {
        if self.ended.is_none() {
            if !self.looked && self.asked.is_some_and(|at| at.elapsed() > STUCK_AFTER) {
                self.looked = true;
                self.waiting = self.waiting.max(processes::waiting(self.pid()));
            }
            self.ended = self.end_of_process().and_then(|ended| self.end_of_workers(ended));
        }
        self.ended.clone()
    }

    /// Whether it was asked to end before it had ended.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Asks a load that has not ended to end. Does not wait: [`RunningLoad::poll`] tells when it has.
    pub fn ask_to_end(&mut self) {
        if self.asked.is_none() && self.poll().is_none() {
            self.asked = Some(Instant::now());
            // One that has done nothing may have waited all the time, and end at once now.
            if self.work() == 0 {
                self.waiting = processes::waiting(self.pid());
            }
            self.signal(signal::TERMINATE);
        }
    }

    /// Ends the load and everything it has started, and waits for that.
    pub fn stop(mut self) -> EndedLoad {
        self.end()
    }

    fn end(&mut self) -> EndedLoad {
        self.ask_to_end();
        loop {
            match self.poll() {
                Some(ended) => return ended,
                None => thread::sleep(LOOK),
            }
        }
    }

    /// Signals every process of the group. A group that is gone is what is wanted.
    fn signal(&self, number: i32) -> bool {
        process::signal_group(self.pid(), number)
    }

    /// How the load's process ended; kills it when it was asked to end long ago.
    fn end_of_process(&mut self) -> Option<EndedLoad> {
        if self.gone.is_none() {
            let ended = match self.child.try_wait() {
                Ok(Some(status)) => Some(self.judge(status)),
                Ok(None) => self.press(),
                Err(e) => Some(EndedLoad::badly(format!("can't find out how it ended: {e}"))),
            };
            self.gone = ended.map(|ended| (Instant::now(), ended));
        }
        self.gone.as_ref().map(|(_, ended)| ended.clone())
    }

    fn press(&self) -> Option<EndedLoad> {
        let since = self.asked?.elapsed();
        if since > STOP_GRACE {
            self.signal(signal::KILL);
        }
        let given_up = since > STOP_GRACE + KILL_LIMIT;
        given_up
            .then(|| EndedLoad::badly("it was killed but did not end: it is stuck in the kernel"))
    }

    /// How the load's process ended by itself.
    fn judge(&self, status: ExitStatus) -> EndedLoad {
        if self.asked.is_some() {
            return EndedLoad { ok: true, how: "stopped".to_owned() };
        }
        if status.success() && self.board.state() == State::Done {
            return EndedLoad { ok: true, how: "its work was done".to_owned() };
        }
        if status.signal() == Some(signal::ALARM) {
            return EndedLoad::badly(format!("it reached its time limit of {}", self.limit));
        }
        EndedLoad::badly(self.board.failure().unwrap_or_else(|| match status.signal() {
            Some(number) => format!("it was killed by signal {number}"),
            None => format!("it ended with exit code {}", status.code().unwrap_or(-1)),
        }))
    }

    /// Kills and takes note of the workers of a load whose process is gone, and removes what they
    /// left.
    fn end_of_workers(&self, ended: EndedLoad) -> Option<EndedLoad> {
        while let Waited::Ended(..) = wait(Children::Group(self.pid()), false) {}
        let given_up = self.gone.as_ref().is_some_and(|(since, _)| since.elapsed() > KILL_LIMIT);
        if self.signal(signal::KILL) && !given_up {
            return None;
        }
        let (options, pid, mark) = (&self.options, self.pid(), self.mark.as_str());
        (self.descriptor.clean)(&Remains { options, pid, mark });
        match given_up {
            true => Some(EndedLoad::badly(format!(
                "{}, but some of its workers did not end when killed",
                ended.how
            ))),
            false if self.waiting > 0 => {
                let (how, n) = (ended.how, self.waiting);
                let how = format!("{how}, while {n} of its processes waited in the kernel");
                Some(EndedLoad { how, ..ended })
            }
            false => Some(ended),
        }
    }

    fn wait_until_it_works(&mut self) -> Result<(), LoadError> {
        let until = Instant::now() + Duration::from_nanos(START_LIMIT.0);
        loop {
            match self.board.state() {
                State::Working | State::Done => return Ok(()),
                State::Starting | State::Failed => {}
            }
            if let Some(ended) = self.poll() {
                return Err(LoadError::Ended { how: ended.how });
            }
            if Instant::now() >= until {
                self.end();
                return Err(LoadError::Slow(START_LIMIT));
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a load achieved in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub work: u64,
    /// What a unit is.
    pub unit: &'static str,
    /// Length of the span.
    pub span_ns: u64,
}

impl Rate {
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.work as f64 / Nanos(self.span_ns).as_secs_f64().max(1e-9)
    }
}

/// Runs a load that has an end of its own, and answers how long its work took: from the instant at
/// which its workers were let go to the end of the last, or until `is_over` says that it shall end.
/// The kernel ends it after `limit`.
pub fn run_to_end(
    launcher: &Launcher,
    line: &LoadLine,
    limit: Nanos,
    is_over: impl Fn() -> bool,
) -> Result<u64, LoadError> {
    let mut running = launcher.start(line, limit)?;
    let began = Instant::now();
    loop {
        if is_over() {
            running.stop();
            return Ok(began.elapsed().as_nanos() as u64);
        }
        match running.poll() {
            Some(ended) if ended.ok => return Ok(running.board.took_ns()),
            Some(ended) => return Err(LoadError::Ended { how: ended.how }),
            None => thread::sleep(LOOK),
        }
    }
}

/// Runs a load without measuring: for this long, or until its own end. Tells what it achieved about
/// once a second, and returns how it ended and what it achieved in all.
///
/// # Errors
///
/// As [`Launcher::start`]; and, at once, when this user may not have the real-time policy of the line.
pub fn run_alone(
    launcher: &Launcher,
    line: &LoadLine,
    duration: Nanos,
    on_rate: &mut dyn FnMut(Rate),
) -> Result<(EndedLoad, Rate), LoadError> {
    const SECOND_NS: u64 = 1_000_000_000;
    let clock = SystemClock::MONOTONIC;
    let limit = limit(duration.0, 1);
    let (_, options) = resolve(line).map_err(LoadError::Line)?;
    if matches!(options.word("policy"), "fifo" | "rr") && !sched::may_be_real_time() {
        return Err(LoadError::Permission(permission_advice(&permission::collect())));
    }
    let mut running = launcher.start(line, limit)?;
    let unit = running.unit();
    let began_ns = clock.now_ns();
    let until_ns = began_ns.saturating_add(duration.0);
    let (mut work, mut at_ns) = (0, began_ns);
    let (ended, all) = loop {
        let ended = running.poll();
        let (now_ns, now_work) = (clock.now_ns(), running.work());
        let over = ended.is_some() || now_ns >= until_ns;
        if now_ns - at_ns >= SECOND_NS || over && now_work > work {
            on_rate(Rate { work: now_work - work, unit, span_ns: now_ns - at_ns });
            (work, at_ns) = (now_work, now_ns);
        }
        if over {
            let all = Rate { work: now_work, unit, span_ns: now_ns - began_ns };
            break (ended.unwrap_or_else(|| running.stop()), all);
        }
        let next_ns = until_ns.min(at_ns + SECOND_NS).saturating_sub(now_ns);
        thread::sleep(Duration::from_nanos(next_ns.clamp(1_000_000, 50_000_000)));
    };
    Ok((ended, all))
}

#[cfg(test)]
mod tests {
    use rtscope_model::plan;

    use super::*;

    #[test]
    fn loads_that_start_as_slowly_as_they_may_are_there_until_their_phase_ends() {
        let text = "name = 'x'\n[[phase]]\nname = 'a'\nduration = '100ms'\nload = ['cpu', 'io']\n";
        let phase = &plan::parse("x", text).expect("a plan").phases[0];
        let slowest = Nanos(2 * START_LIMIT.0 + phase.expected().0);
        assert_eq!(limit_of(phase).0 - slowest.0, phase.expected().0 + GRACE.0);
    }
}
