//! A run from its set-up to its end.

use std::{
    fs::{self, File},
    io::Write,
    time::Duration,
};

use rtscope_analyse::export::cyclictest::{
    Break, CyclictestOrigin, CyclictestRun, CyclictestThread, CyclictestUnit, LiveRun,
    changed_placement, json,
};
use rtscope_measure::{
    dropin::{self, ParkError},
    environment::{memory_node, smi},
    tune,
};
use rtscope_model::{event::Event, histogram::Histogram, plan::ClockName, schedule::Placement};
use rtscope_sampler::SessionSpec;
use rtscope_sys::{clock::SystemClock, memory, sched, tree::Tree};

use super::{
    cpus::Machine,
    options::{Affinity, Alignment, Options},
    tick::Watch,
};
use crate::dropin::{RT_TESTS_VERSION, print, say};

/// Time between two looks when something is shown, and when nothing is.
const TICK: Duration = Duration::from_millis(10);
const QUIET_TICK: Duration = Duration::from_millis(100);

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
struct Measured {
    running: LiveRun,
    /// A thread did not run any more.
    is_starved: bool,
    /// Its start and its end.
    times: [jiff::Timestamp; 2],
}

impl Stop {
    pub(super) fn fatal(text: impl std::fmt::Display) -> Stop {
        Stop { text: format!("FATAL: {text}"), code: 1 }
    }
}

impl Measurement<'_> {
    pub(super) fn unit(&self) -> CyclictestUnit {
        if self.options.nanoseconds { CyclictestUnit::Ns } else { CyclictestUnit::Us }
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
        let Measured { running, is_starved, times } = outcome?;
        let run = &running.run;
        let hit = run.broke.is_some();
        let code = if hit && self.strict_exit { crate::exit::FAIL } else { u8::from(is_starved) };
        if let Some(file) = json_file {
            let text = json(run, &self.origin(times, code));
            let written = match file {
                Some(mut file) => file.write_all(text.as_bytes()).is_ok(),
                None => print(&text),
            };
            if !written {
                say("WARN: the JSON document was not written");
            }
        }
        self.print_results(run, &running.spikes());
        if hit && !self.strict_exit {
            say(
                "WARN: the threshold was exceeded, but the exit code is 0, as in cyclictest; --strict-exit makes it 2",
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
        let step_ns = dropin::smallest_step_ns(&clock);
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
    fn measure(&self) -> Result<Measured, Stop> {
        let options = self.options;
        let spec = self.spec()?;
        let pinned = (options.affinity != Affinity::Free).then_some(&spec);
        let main_affinity = options.main_affinity.as_ref();
        if let Err(e) = dropin::place_control(main_affinity, pinned, &self.machine.allowed) {
            say(&format!("WARN: can't place the main thread: {e}"));
        }
        let mut threads = dropin::Measurement::park(&spec).map_err(refused)?;
        let placed = self.threads(&spec, threads.placed());
        let mut watch = Watch::new(options, self.unit(), self.tree, placed)
            .map_err(|e| Stop::fatal(crate::failure::error_text(&e)))?;
        self.print_threads(&spec);
        let start = jiff::Timestamp::now();
        threads.release(&self.limits());
        loop {
            watch.wait(threads.pause());
            if !watch.tick(&mut threads) || threads.is_over() {
                break;
            }
        }
        let ending = watch.end(threads);
        let times = [start, jiff::Timestamp::now()];
        if ending.is_runaway {
            return Err(Stop::fatal(
                "a measuring thread ran for a second without sleeping: the interval is too short for this machine",
            ));
        }
        let places = ending.ended.iter().filter_map(|ended| {
            let plan = spec.threads.iter().find(|plan| plan.thread == ended.thread)?;
            Some((&plan.asked, ended.found.as_ref()?))
        });
        if let Some(text) = changed_placement(places) {
            say(&format!("WARN: {text}"));
        }
        let LiveRun { run, .. } = &mut watch.running;
        run.broke = ending.first_break().and_then(|(thread, latency_ns)| {
            Some(Break { tid: run.threads.get(thread as usize)?.tid, latency_ns })
        });
        Ok(Measured { running: watch.running, is_starved: !ending.starved.is_empty(), times })
    }

    fn limits(&self) -> dropin::Limits {
        let Options { loops, duration_s, quiet, verbose, .. } = *self.options;
        dropin::Limits {
            after_second_ns: match self.options.alignment {
                Alignment::Second(offset_us) => Some(offset_us.unsigned_abs() * 1_000),
                _ => None,
            },
            loops: Some(loops).filter(|loops| *loops > 0),
            duration_ns: (duration_s > 0).then(|| duration_s.saturating_mul(1_000_000_000)),
            look: if verbose || !quiet { TICK } else { QUIET_TICK },
        }
    }

    fn threads(&self, spec: &SessionSpec, placed: &[(i32, Placement)]) -> Vec<CyclictestThread> {
        let placed = spec.threads.iter().zip(placed);
        placed
            .map(|(plan, (tid, found))| {
                let empty = Histogram::new(spec.layout);
                let thread = CyclictestThread::placed(*tid as u32, plan.interval_ns, found, empty);
                let node = if self.options.smp { -1 } else { memory_node(self.tree, thread.cpu) };
                let smi = self.options.smi.then_some(0);
                CyclictestThread { node, smi, ..thread }
            })
            .collect()
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

    fn origin(&self, [start, end]: [jiff::Timestamp; 2], code: u8) -> CyclictestOrigin {
        let rfc_2822 =
            |time: jiff::Timestamp| time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string();
        let uname = rustix::system::uname();
        let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        CyclictestOrigin {
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

    fn print_results(&self, run: &CyclictestRun, spikes: &str) {
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
fn refused(error: ParkError) -> Stop {
    match error {
        ParkError::Sample(error) if error.is_permission() => {
            let text = format!("Unable to change scheduling policy!\n{error}");
            Stop { text, code: 1 }
        }
        error => Stop::fatal(error),
    }
}
