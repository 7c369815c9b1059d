//! A run from its set-up to its end.

use std::{
    fs::{self, File},
    io::Write,
    time::Duration,
};

use rtscope_analyse::export::cyclictest::{Break, Origin, Run, Thread, Unit, json};
use rtscope_measure::{
    environment::smi,
    interrupt::Interrupt,
    sampler::{Beat, Ended, SampleError, Session, SessionSpec, Starved, ThreadPlan, Wake},
    tune,
    watchdog::{UNATTENDED, Watchdog},
};
use rtscope_model::{
    cpu::CpuSet,
    event::Event,
    histogram::{EXACT_MIN, Histogram, Layout},
    plan::{ClockName, Overrun, Sleep},
    schedule::{Placement, Policy},
};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    memory, sched,
    tracefs::Marker,
    tree::Tree,
};

use super::{
    cpus::Machine,
    options::{Affinity, Alignment, Options},
    tick::Watch,
};
use crate::dropin::{RT_TESTS_VERSION, print, say};

/// Time between two looks when something is shown, and when nothing is.
const TICK: Duration = Duration::from_millis(10);
const QUIET_TICK: Duration = Duration::from_millis(100);

/// How long parked threads are given between release and first expiry.
const RELEASE_MARGIN_NS: u64 = 10_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// Samples that the ring of a thread holds, as in cyclictest.
const RING: usize = 16_384;

/// Exact buckets without a histogram on the command line: for the percentiles.
const BUCKETS: u32 = 10_000;

/// What a run needs to know.
pub(super) struct Measurement<'a> {
    pub(super) options: &'a Options,
    pub(super) machine: &'a Machine,
    pub(super) tree: &'a Tree,
    /// The command line, joined by blanks.
    pub(super) command: String,
    pub(super) strict_exit: bool,
}

/// Why a run could not be: what is said, and the exit code.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) text: String,
    pub(super) code: u8,
}

/// What a run has left.
struct Outcome {
    run: Run,
    /// What `--spike` noted, as text.
    spikes: String,
    /// A thread did not run any more.
    is_starved: bool,
    /// Its start and its end.
    times: [jiff::Timestamp; 2],
}

impl Stop {
    fn fatal(text: impl std::fmt::Display) -> Stop {
        Stop { text: format!("FATAL: {text}"), code: 1 }
    }
}

impl Measurement<'_> {
    fn unit(&self) -> Unit {
        if self.options.nanoseconds { Unit::Ns } else { Unit::Us }
    }

    /// The whole run; the exit code.
    pub(super) fn run(&self) -> Result<u8, Stop> {
        let options = self.options;
        if !sched::may_be_real_time() {
            let text =
                "Unable to change scheduling policy!\neither run as root or join realtime group";
            return Err(Stop { text: text.to_owned(), code: 1 });
        }
        self.print_cpus();
        if options.resolution {
            self.check_resolution();
        }
        if options.lock_memory {
            memory::lock_all().map_err(|e| Stop { text: e.to_string(), code: 255 })?;
        }
        self.check_smi()?;
        let held = match options.idle_state {
            Some(state) => Some(self.forbid_idle_states(state)?),
            None => self.hold_latency(),
        };
        let json_file = self.open_json()?;
        let outcome = self.measure();
        drop(held);
        let Outcome { run, spikes, is_starved, times } = outcome?;
        let hit = run.broke.is_some();
        let code = if hit && self.strict_exit { crate::exit::FAIL } else { u8::from(is_starved) };
        if let Some(file) = json_file {
            let text = json(&run, &self.origin(times, code));
            let written = match file {
                Some(mut file) => file.write_all(text.as_bytes()).is_ok(),
                None => print(&text),
            };
            if !written {
                say("WARN: the JSON document was not written");
            }
        }
        self.print_results(&run, &spikes);
        if hit && !self.strict_exit {
            say(
                "WARN: the threshold was exceeded, yet the exit code is 0 as cyclictest has it; --strict-exit makes it 2",
            );
        }
        Ok(code)
    }

    fn print_cpus(&self) {
        if !self.options.verbose {
            return;
        }
        let Machine { configured, online, .. } = self.machine;
        let mut text = format!("Max CPUs = {}\nOnline CPUs = {}\n", configured.len(), online.len());
        if let Affinity::Set(set) = &self.options.affinity {
            text += &format!("Using {} cpus.\n", set.len());
        }
        print(&text);
    }

    /// Says what resolution the clock declares, and the smallest step that it shows.
    fn check_resolution(&self) {
        let clock = match self.options.clock {
            ClockName::Monotonic => SystemClock::MONOTONIC,
            ClockName::Realtime => SystemClock::REALTIME,
        };
        let mut last_ns = clock.now_ns();
        let steps = (0..1_000_000).filter_map(|_| {
            let now_ns = clock.now_ns();
            let step_ns = now_ns - std::mem::replace(&mut last_ns, now_ns);
            (step_ns > 0).then_some(step_ns)
        });
        let step_ns = steps.take(100_000).min().unwrap_or(0);
        say(&format!("WARN: reported clock resolution: {} nsec", clock.resolution_ns()));
        say(&format!("WARN: measured clock resolution approximately: {step_ns} nsec"));
    }

    fn check_smi(&self) -> Result<(), Stop> {
        if !self.options.smi {
            return Ok(());
        }
        let first = self.machine.allowed.iter().next().unwrap_or(0);
        if smi::count(self.tree, first).is_none() {
            return Err(Stop::fatal("SMI counter is not supported on this processor"));
        }
        match self.options.affinity {
            Affinity::Free => Err(Stop::fatal("SMIs are counted with option -a or -S only")),
            _ => Ok(()),
        }
    }

    /// Forbids idle states deeper than one on the measured CPUs as long as the value lives.
    fn forbid_idle_states(&self, deepest: i64) -> Result<tune::Applied, Stop> {
        let value = match &self.options.affinity {
            Affinity::Set(cpus) => format!("{deepest}@{cpus}"),
            Affinity::Free | Affinity::Each => deepest.to_string(),
        };
        self.tune("idle-state", value)
            .map_err(|e| Stop { text: format!("--deepest-idle-state: {e}"), code: 255 })
    }

    fn tune(&self, setting: &str, value: String) -> Result<tune::Applied, tune::TuneError> {
        let settings = [(setting.to_owned(), value)].into();
        tune::apply(self.tree, &tune::journal_dir(), &settings, &mut |event| {
            if let Event::Found(finding) = event {
                say(&format!("WARN: {}", finding.text));
            }
        })
    }

    /// Asks for short idle states as long as the value lives.
    fn hold_latency(&self) -> Option<tune::Applied> {
        let latency_us = self.options.latency_us?;
        match self.tune("dma-latency", latency_us.to_string()) {
            Ok(applied) => {
                print(&format!("# /dev/cpu_dma_latency set to {latency_us}us\n"));
                Some(applied)
            }
            Err(e) => {
                say(&format!("WARN: {e}"));
                None
            }
        }
    }

    /// The file for JSON; standard output is none.
    fn open_json(&self) -> Result<Option<Option<File>>, Stop> {
        match self.options.json.as_deref() {
            None => Ok(None),
            Some("-") => Ok(Some(None)),
            Some(path) => File::create(path).map(|file| Some(Some(file))).map_err(|e| Stop {
                text: format!("Failed to open '{path}'\n: {}", reason(&e)),
                code: e.raw_os_error().and_then(|n| u8::try_from(n).ok()).unwrap_or(1),
            }),
        }
    }

    /// Places the threads, lets them measure, ends them.
    fn measure(&self) -> Result<Outcome, Stop> {
        let options = self.options;
        let interrupt = Interrupt::install_patient().map_err(Stop::fatal)?;
        let spec = self.spec()?;
        self.place_control(&spec);
        // Before there is a real-time thread: nobody may be left to look after the first one.
        let watchdog = Watchdog::over_sleepers(UNATTENDED);
        // The oldest age there is puts the origin of all instants at that of the clock.
        let mut session = Session::park(&spec, u64::MAX).map_err(refused)?;
        let mut watch = Watch::new(options, self.unit(), self.tree, self.threads(&spec, &session))
            .map_err(|e| Stop::fatal(crate::failure::error_text(&e)))?;
        self.print_threads(&spec);
        session.enter(0, Some(options.loops).filter(|loops| *loops > 0));
        let start_ns = self.start_ns(session.now_ns());
        let start = jiff::Timestamp::now();
        session.release(start_ns);
        let until_ns = match options.duration_s {
            0 => u64::MAX,
            s => start_ns.saturating_add(s.saturating_mul(SECOND_NS)),
        };
        let shows = options.verbose || !options.quiet;
        let tick = if shows { TICK } else { QUIET_TICK };
        loop {
            watchdog.renew();
            let left_ns = until_ns.saturating_sub(session.now_ns());
            watch.wait(tick.min(Duration::from_nanos(left_ns)));
            let read = watch.tick(&mut session);
            let over = session.is_broken() || session.is_full() || interrupt.is_stopped();
            if over || !read || session.now_ns() >= until_ns || session.starved(tick).is_some() {
                break;
            }
        }
        let (ended, starved) = watch.end(session);
        for Starved { thread, cpus, holder } in &starved {
            say(&format!("WARN: thread {thread} did not run on CPU {cpus} for seconds: {holder}"));
        }
        drop(watchdog);
        let times = [start, jiff::Timestamp::now()];
        if interrupt.is_runaway() {
            return Err(Stop::fatal(
                "a measuring thread ran for a second without sleeping: the interval is too short for this machine",
            ));
        }
        let places = ended.iter().filter_map(|ended| {
            let plan = spec.threads.iter().find(|plan| plan.thread == ended.thread)?;
            Some((&plan.asked, ended.found.as_ref()?))
        });
        if let Some(text) = moved(places) {
            say(&format!("WARN: {text}"));
        }
        let broke = first_break(&ended, &watch.run);
        let (spikes, is_starved) = (watch.spikes(), !starved.is_empty());
        Ok(Outcome { run: Run { broke, ..watch.run }, spikes, is_starved, times })
    }

    fn spec(&self) -> Result<SessionSpec, Stop> {
        let options = self.options;
        self.check_priorities()?;
        let unit_ns = self.unit().ns();
        // The first latency above a number of whole units.
        let beyond_ns = |units: u64| units.saturating_add(1).saturating_mul(unit_ns);
        let threads = (0..options.threads).map(|n| ThreadPlan {
            thread: n as u32,
            asked: self.placement(n),
            interval_ns: options.interval_of(n).unsigned_abs().saturating_mul(1_000),
        });
        let marker = match options.break_above {
            Some(_) if options.tracemark => {
                Some(Marker::open(self.tree, unit_ns).map_err(Stop::fatal)?)
            }
            _ => None,
        };
        let overflow_ns = (options.buckets > 0).then(|| u64::from(options.buckets) * unit_ns);
        let noted_ns = overflow_ns.into_iter().chain(options.spike.map(beyond_ns)).min();
        let raw_from_ns = if options.verbose { Some(0) } else { noted_ns };
        Ok(SessionSpec {
            threads: threads.collect(),
            layout: Layout {
                unit_ns,
                exact: if options.buckets > 0 { options.buckets.max(EXACT_MIN) } else { BUCKETS },
            },
            slice_ns: SECOND_NS,
            clock: options.clock,
            beat: Beat {
                first_ns: match options.alignment {
                    Alignment::Aligned(us) => us.unsigned_abs() * 1_000,
                    _ => 0,
                },
                interval_ns: SECOND_NS,
                sleep: match options.wake {
                    Wake::Nanosleep => Sleep::Relative,
                    _ if options.relative => Sleep::Relative,
                    _ => Sleep::Absolute,
                },
                overrun: Overrun::Skip,
                break_above_ns: options
                    .break_above
                    .map_or(u64::MAX, |b| b.saturating_add(1).saturating_mul(unit_ns) - 1),
                raw_from_ns: raw_from_ns.unwrap_or(u64::MAX),
            },
            raw_capacity: if raw_from_ns.is_some() { RING } else { 0 },
            wake: options.wake,
            marker,
            cells: 1,
            one_cell: true,
        })
    }

    /// Refuses a spread of priorities that goes below 0, in cyclictest's words, which name the CPU.
    fn check_priorities(&self) -> Result<(), Stop> {
        let options = self.options;
        let below = (0..options.threads).find(|thread| options.priority_of(*thread) < 0);
        let Some(thread) = below else { return Ok(()) };
        let allowed = &self.machine.allowed;
        let cpu = match options.affinity {
            Affinity::Free => allowed.iter().nth(thread % allowed.len().max(1)),
            _ => options.cpus_of(thread, self.machine).last(),
        };
        let (cpu, priority) = (cpu.unwrap_or(0), options.priority_of(thread));
        Err(Stop::fatal(format!("timerthread{cpu}: failed to set priority to {priority}")))
    }

    fn placement(&self, thread: usize) -> Placement {
        let priority = self.options.priority_of(thread).clamp(0, 99) as u8;
        let policy = match self.options.policy {
            // A spread that has reached 0.
            Policy::Fifo | Policy::Rr if priority == 0 => Policy::Other,
            policy => policy,
        };
        let cpus = self.options.cpus_of(thread, self.machine);
        Placement { policy, priority, nice: 0, budget: None, cpus }
    }

    /// The control thread goes where it was asked to, or else off the measured CPUs if there are
    /// others.
    fn place_control(&self, spec: &SessionSpec) {
        let pinned = self.options.affinity != Affinity::Free;
        let measured: CpuSet = spec.threads.iter().flat_map(|t| t.asked.cpus.iter()).collect();
        let others = self.machine.allowed.without(&measured);
        let place = match &self.options.main_affinity {
            Some(set) => set,
            None if pinned && !others.is_empty() => &others,
            None => return,
        };
        if let Err(e) = sched::set_affinity(sched::SELF, place) {
            say(&format!("WARN: can't place the main thread: {e}"));
        }
    }

    fn threads(&self, spec: &SessionSpec, session: &Session) -> Vec<Thread> {
        let placed = spec.threads.iter().zip(&session.placed);
        placed
            .map(|(plan, (tid, found))| {
                let empty = Histogram::new(spec.layout);
                let thread = Thread::placed(*tid as u32, plan.interval_ns, found, empty);
                let node = if self.options.smp { -1 } else { self.node_of(thread.cpu) };
                let smi = self.options.smi.then_some(0);
                Thread { node, smi, ..thread }
            })
            .collect()
    }

    /// The memory node of a CPU; 0 where the kernel shows none.
    fn node_of(&self, cpu: u32) -> i32 {
        let names = self.tree.list(format!("sys/devices/system/cpu/cpu{cpu}"));
        let node = names.iter().find_map(|name| name.strip_prefix("node")?.parse().ok());
        node.unwrap_or(0)
    }

    fn print_threads(&self, spec: &SessionSpec) {
        if !self.options.verbose {
            return;
        }
        let mut text = String::new();
        for (n, plan) in spec.threads.iter().enumerate() {
            if let (Affinity::Set(_), Some(cpu)) = (&self.options.affinity, plan.asked.cpus.last())
            {
                text += &format!("Thread {n} using cpu {cpu}.\n");
            }
            // cyclictest prints the interval of the thread after this one.
            text += &format!("Thread {n} Interval: {}\n", self.options.interval_of(n + 1));
        }
        print(&text);
    }

    /// The instant of the first expiry.
    fn start_ns(&self, now_ns: u64) -> u64 {
        let Alignment::Second(offset_us) = self.options.alignment else {
            return now_ns + RELEASE_MARGIN_NS;
        };
        let more = if now_ns % SECOND_NS > 900_000_000 { 2 } else { 1 };
        (now_ns / SECOND_NS + more) * SECOND_NS + offset_us.unsigned_abs() * 1_000
    }

    fn origin(&self, [start, end]: [jiff::Timestamp; 2], code: u8) -> Origin {
        let rfc_2822 =
            |time: jiff::Timestamp| time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string();
        let uname = rustix::system::uname();
        let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        Origin {
            command: self.command.clone(),
            rt_tests_version: RT_TESTS_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            start_time: rfc_2822(start),
            end_time: rfc_2822(end),
            return_code: i32::from(code),
            uname: vec![
                ("sysname", text(uname.sysname())),
                ("nodename", text(uname.nodename())),
                ("release", text(uname.release())),
                ("version", text(uname.version())),
                ("machine", text(uname.machine())),
            ],
            realtime: self.tree.read("sys/kernel/realtime").is_ok_and(|text| text == "1"),
        }
    }

    fn print_results(&self, run: &Run, spikes: &str) {
        let options = self.options;
        let mut text = String::new();
        if options.quiet && run.buckets == 0 {
            text += &run.lines();
        }
        text += spikes;
        if run.buckets > 0 {
            let histogram = run.histogram();
            match &options.histfile {
                None => text += &histogram,
                Some(path) => {
                    if let Err(e) = fs::write(path, histogram) {
                        say(&format!("opening histogram file:: {}", reason(&e)));
                    }
                }
            }
        }
        text += &run.threshold();
        print(&text);
    }
}

/// What the kernel answered, in words alone.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// What a refusal of the kernel means here.
fn refused(error: SampleError) -> Stop {
    if error.is_permission() {
        let text = format!("Unable to change scheduling policy!\n{error}");
        return Stop { text, code: 1 };
    }
    Stop::fatal(error)
}

/// That threads no longer ran as they were asked to when they ended, from what was asked and found of
/// each; none when all did.
fn moved<'a>(places: impl Iterator<Item = (&'a Placement, &'a Placement)>) -> Option<String> {
    let what = |place: &Placement| (place.policy, place.priority, place.cpus.clone());
    let mut moved =
        (0..).zip(places).filter(|(_, (asked, found))| what(asked) != what(found)).peekable();
    let (n, (asked, found)) = *moved.peek()?;
    let more = match moved.count() - 1 {
        0 => String::new(),
        1 => ", and 1 more thread was changed".to_owned(),
        more => format!(", and {more} more threads were changed"),
    };
    Some(format!(
        "T:{n} was started as {asked} and ended as {found}{more}: somebody changed it while it measured"
    ))
}

/// The thread that broke the run first.
fn first_break(ended: &[Ended], run: &Run) -> Option<Break> {
    let of = |ended: &Ended| {
        ended.broke_at.map(|(latency_ns, at_ns)| (at_ns + latency_ns, latency_ns, ended.thread))
    };
    let (_, latency_ns, thread) = ended.iter().filter_map(of).min()?;
    Some(Break { tid: run.threads.get(thread as usize)?.tid, latency_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_demoted_is_told() {
        let place = |policy, priority| Placement {
            policy,
            priority,
            nice: 0,
            budget: None,
            cpus: std::iter::once(1).collect(),
        };
        let (asked, demoted) = (place(Policy::Fifo, 80), place(Policy::Other, 0));
        assert_eq!(moved([(&asked, &asked)].into_iter()), None);
        assert_eq!(
            moved([(&asked, &asked), (&asked, &demoted)].into_iter()).as_deref(),
            Some(
                "T:1 was started as fifo 80 on CPU 1 and ended as other on CPU 1: somebody changed it \
                 while it measured"
            )
        );
        let two = moved([(&asked, &demoted); 2].into_iter()).expect("two");
        assert!(two.starts_with("T:0 ") && two.contains("and 1 more thread was changed:"), "{two}");
    }
}
