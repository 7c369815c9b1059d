//! cyclictest's options: every one of rt-tests 2.4 to 2.10, read with its rules, and what is said about those
//! that don't do what they seem to.

mod obsolete;

use rtscope_model::{cpu::CpuSet, plan::ClockName, schedule::Policy};
use rtscope_sampler::Wake;

use super::cpus::{self, Machine};
use crate::dropin::getopt::{Arguments, Opt, ParsedOption, Value, atoi, is_number, stray};

/// The options in the order of cyclictest's table, which its messages about short forms follow.
const TABLE: &[Opt] = &[
    Opt::new("affinity", Some('a'), Value::Optional),
    Opt::new("aligned", Some('A'), Value::Optional),
    Opt::new("breaktrace", Some('b'), Value::Required),
    Opt::new("clock", Some('c'), Value::Required),
    Opt::new("default-system", None, Value::None),
    Opt::new("deepest-idle-state", None, Value::Required),
    Opt::new("distance", Some('d'), Value::Required),
    Opt::new("duration", Some('D'), Value::Required),
    Opt::new("fifo", Some('F'), Value::Required),
    Opt::new("histogram", Some('h'), Value::Required),
    Opt::new("histofall", Some('H'), Value::Required),
    Opt::new("histfile", None, Value::Required),
    Opt::new("interval", Some('i'), Value::Required),
    Opt::new("json", None, Value::Required),
    Opt::new("laptop", None, Value::None),
    Opt::new("latency", None, Value::Required),
    Opt::new("loops", Some('l'), Value::Required),
    Opt::new("mainaffinity", None, Value::Required),
    Opt::new("mlockall", Some('m'), Value::None),
    Opt::new("refresh_on_max", Some('M'), Value::None),
    Opt::new("nsecs", Some('N'), Value::None),
    Opt::new("oscope", Some('o'), Value::Required),
    Opt::new("priority", Some('p'), Value::Required),
    Opt::new("priospread", None, Value::None),
    Opt::new("policy", None, Value::Required),
    Opt::new("quiet", Some('q'), Value::None),
    Opt::new("relative", Some('r'), Value::None),
    Opt::new("resolution", Some('R'), Value::None),
    Opt::new("secaligned", None, Value::Optional),
    Opt::new("system", Some('s'), Value::None),
    Opt::new("smi", None, Value::None),
    Opt::new("smp", Some('S'), Value::None),
    Opt::new("spike", None, Value::Required),
    Opt::new("spike-nodes", None, Value::Required),
    Opt::new("strict-exit", None, Value::None),
    Opt::new("threads", Some('t'), Value::Optional),
    Opt::new("tracemark", None, Value::None),
    Opt::new("unbuffered", Some('u'), Value::None),
    Opt::new("verbose", Some('v'), Value::None),
    Opt::new("dbg_cyclictest", None, Value::None),
    Opt::new("posix_timers", Some('x'), Value::None),
    Opt::new("help", None, Value::None),
    // Gone since rt-tests 1.5, and still in many scripts.
    Opt::new("=n", Some('n'), Value::None),
    Opt::new("=y", Some('y'), Value::Required),
];

/// The most buckets of a histogram.
const BUCKETS_MAX: i64 = 1_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Affinity {
    /// Wherever the kernel puts them.
    #[default]
    Free,
    /// Thread n on the n-th allowed CPU.
    Each,
    /// Thread n on the n-th CPU of the set.
    Set(CpuSet),
}

/// When the first wake-up is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Alignment {
    #[default]
    None,
    /// All start together; thread n wakes this many us times n later.
    Aligned(i64),
    /// All start this many us after a full second.
    Second(i64),
}

/// What a command line asks for.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) affinity: Affinity,
    pub(super) alignment: Alignment,
    /// Threshold in units; none for no threshold. A negative one is never reached.
    pub(super) break_above: Option<u64>,
    pub(super) tracemark: bool,
    pub(super) clock: ClockName,
    /// What `/dev/cpu_dma_latency` is to hold; none leaves it alone.
    pub(super) latency_us: Option<u64>,
    /// The deepest idle state that the measured CPUs may enter, -1 for none at all; no value leaves them.
    pub(super) idle_state: Option<i64>,
    pub(super) distance_us: i64,
    pub(super) duration_s: u64,
    pub(super) fifo: Option<String>,
    /// 0 for no histogram.
    pub(super) buckets: u32,
    pub(super) sums: bool,
    pub(super) histfile: Option<String>,
    pub(super) interval_us: i64,
    pub(super) json: Option<String>,
    /// 0 for no end.
    pub(super) loops: u64,
    pub(super) main_affinity: Option<CpuSet>,
    pub(super) lock_memory: bool,
    pub(super) refresh_on_max: bool,
    pub(super) nanoseconds: bool,
    /// Of so many samples the verbose form prints the largest; below 1 is a mistake.
    pub(super) oscope: i64,
    pub(super) policy: Policy,
    pub(super) priority: u8,
    pub(super) spread: bool,
    pub(super) quiet: bool,
    pub(super) relative: bool,
    pub(super) resolution: bool,
    pub(super) wake: Wake,
    pub(super) smi: bool,
    pub(super) smp: bool,
    /// Latencies above so many units are noted, at most so many of them.
    pub(super) spike: Option<u64>,
    pub(super) spike_nodes: usize,
    pub(super) threads: usize,
    pub(super) verbose: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            affinity: Affinity::Free,
            alignment: Alignment::None,
            break_above: None,
            tracemark: false,
            clock: ClockName::Monotonic,
            latency_us: Some(0),
            idle_state: None,
            distance_us: 500,
            duration_s: 0,
            fifo: None,
            buckets: 0,
            sums: false,
            histfile: None,
            interval_us: 1_000,
            json: None,
            loops: 0,
            main_affinity: None,
            lock_memory: false,
            refresh_on_max: false,
            nanoseconds: false,
            oscope: 1,
            policy: Policy::Other,
            priority: 0,
            spread: false,
            quiet: false,
            relative: false,
            resolution: false,
            wake: Wake::ClockNanosleep,
            smi: false,
            smp: false,
            spike: None,
            spike_nodes: 1_024,
            threads: 1,
            verbose: false,
        }
    }
}

impl Options {
    /// The interval of a thread, in us.
    pub(super) fn interval_of(&self, thread: usize) -> i64 {
        self.interval_us.saturating_add(self.distance_us.saturating_mul(thread as i64))
    }

    /// The priority of a thread. A spread over many threads goes below 0.
    pub(super) fn priority_of(&self, thread: usize) -> i64 {
        let less = if self.spread { thread as i64 } else { 0 };
        i64::from(self.priority) - less
    }

    pub(super) fn cpus_of(&self, thread: usize, machine: &Machine) -> CpuSet {
        let nth = |set: &CpuSet| set.iter().nth(thread % set.len().max(1)).into_iter().collect();
        match &self.affinity {
            Affinity::Free => machine.allowed.clone(),
            Affinity::Each => nth(&machine.allowed),
            Affinity::Set(set) => nth(set),
        }
    }
}

/// What is done with a command line.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Run(Box<Options>),
    /// The help is shown, and this is the exit code.
    Help(u8),
    /// Something that can't be had: the exit code of that.
    Refused(u8),
}

/// A command line as it was read.
#[derive(Clone, Debug)]
pub(super) struct Parsed {
    pub(super) outcome: Action,
    /// Lines for standard output, before anything else.
    pub(super) stdout: String,
    /// Lines for standard error.
    pub(super) stderr: Vec<String>,
    pub(super) strict_exit: bool,
}

/// What a command line has said so far.
struct Reader<'a> {
    machine: &'a Machine,
    options: Options,
    stdout: String,
    stderr: Vec<String>,
    strict_exit: bool,
    /// `--laptop` and `--default-system`: neither sets `/dev/cpu_dma_latency`, whatever `--latency` says.
    laptop: bool,
    default_system: bool,
    distance_given: bool,
    all_threads: bool,
}

/// Why reading ended early.
enum Stop {
    Help(u8),
    Refused(u8),
}

/// Reads a command line without the program's name.
pub(super) fn parse(words: &[String], machine: &Machine) -> Parsed {
    let mut reader = Reader {
        machine,
        options: Options::default(),
        stdout: String::new(),
        stderr: Vec::new(),
        // Looked for first: it decides how a wrong option before it ends.
        strict_exit: words.iter().any(|word| word == "--strict-exit"),
        laptop: false,
        default_system: false,
        distance_given: false,
        all_threads: false,
    };
    let outcome = match reader.read(words).and_then(|()| reader.complete()) {
        Ok(()) => Action::Run(Box::new(reader.options)),
        Err(Stop::Help(code)) => Action::Help(code),
        Err(Stop::Refused(code)) => Action::Refused(code),
    };
    let Reader { stdout, stderr, strict_exit, .. } = reader;
    Parsed { outcome, stdout, stderr, strict_exit }
}

impl Reader<'_> {
    fn read(&mut self, words: &[String]) -> Result<(), Stop> {
        let mut words = Arguments::new(TABLE, words);
        while let Some(option) = words.option() {
            match option {
                Ok(found) => self.option(found, &mut words)?,
                Err(message) => match obsolete::harmless(&message) {
                    Some(sentence) => self.warn(sentence),
                    None => return Err(self.unknown(&message)),
                },
            }
        }
        words.strays().iter().for_each(|word| self.warn(&stray(TABLE, word)));
        Ok(())
    }

    /// cyclictest shows its help for an option that it doesn't know and ends with 0: a test that
    /// looks at the exit code passes without a measurement.
    fn unknown(&mut self, message: &str) -> Stop {
        self.stderr.push(format!("cyclictest: {message}"));
        if let Some(sentence) = obsolete::removed(message) {
            self.warn(sentence);
        }
        if self.strict_exit {
            return Stop::Help(crate::exit::USAGE);
        }
        self.warn("nothing was measured, but the exit code is 0, as in cyclictest; --strict-exit makes it 64");
        Stop::Help(0)
    }

    fn warn(&mut self, text: &str) {
        self.stderr.push(format!("WARN: {text}"));
    }

    /// The number of an option. What is none counts as 0, as in cyclictest, but not silently.
    fn number(&mut self, found: &ParsedOption) -> i64 {
        let text = found.value.as_deref().unwrap_or_default();
        if !is_number(text) {
            self.warn(&format!("--{}: {text:?} is not a number and counts as 0", found.name));
        }
        atoi(text)
    }

    /// A clock by its number or name. What is neither counts as 0, but for the auxiliary clocks: their
    /// names must not give the figures of another clock.
    fn clock(&mut self, found: &ParsedOption) -> Result<(), Stop> {
        let text = found.value.as_deref().unwrap_or_default();
        self.options.clock = match text {
            "monotonic" => ClockName::Monotonic,
            "realtime" => ClockName::Realtime,
            aux if aux.starts_with("aux") => {
                let text = format!("--clock {aux} is not supported: monotonic and realtime are");
                self.stderr.push(text);
                return Err(Stop::Refused(1));
            }
            _ => match self.number(found) {
                0 => ClockName::Monotonic,
                1 => ClockName::Realtime,
                _ => return Err(Stop::Help(1)),
            },
        };
        Ok(())
    }

    fn option(&mut self, found: ParsedOption, words: &mut Arguments<'_>) -> Result<(), Stop> {
        let text = || found.value.clone().unwrap_or_default();
        match found.name {
            "affinity" => self.affinity(found.value, words)?,
            "aligned" | "secaligned" => self.alignment(&found, words)?,
            "breaktrace" => {
                let above = self.number(&found);
                self.options.break_above =
                    (above != 0).then(|| u64::try_from(above).unwrap_or(u64::MAX));
            }
            "clock" => self.clock(&found)?,
            "deepest-idle-state" => {
                let state = self.number(&found);
                self.options.idle_state = (state >= -1).then_some(state);
            }
            "distance" => {
                self.distance_given = true;
                self.options.distance_us = self.number(&found);
            }
            "duration" => self.options.duration_s = seconds(&text()),
            "fifo" => self.options.fifo = found.value,
            "histogram" | "histofall" => {
                let buckets = self.number(&found);
                if buckets < 1 {
                    return Err(Stop::Help(1));
                }
                self.options.buckets = buckets.min(BUCKETS_MAX) as u32;
                self.options.sums |= found.name == "histofall";
            }
            "histfile" => self.options.histfile = found.value,
            "interval" => self.options.interval_us = self.number(&found),
            "json" => self.options.json = found.value,
            "latency" => self.options.latency_us = Some(self.number(&found).max(0) as u64),
            "loops" => self.options.loops = self.number(&found).max(0) as u64,
            "mainaffinity" => self.options.main_affinity = Some(self.cpus(&text())?),
            "oscope" => self.options.oscope = self.number(&found),
            "priority" => self.priority(&found)?,
            "policy" => self.options.policy = policy(&text()),
            "=y" => {
                self.warn("-y is obsolete: write --policy");
                self.options.policy = policy(&text());
            }
            "spike" => {
                let above = self.number(&found);
                self.options.spike = (above > 0).then_some(above as u64);
            }
            "spike-nodes" => {
                let nodes = self.number(&found);
                if self.options.spike.is_some() && nodes > 0 {
                    self.options.spike_nodes = nodes as usize;
                }
            }
            "threads" => self.threads(&found, words)?,
            "help" => return Err(Stop::Help(0)),
            name => self.switch(name),
        }
        Ok(())
    }

    /// Options without a value.
    fn switch(&mut self, name: &str) {
        let options = &mut self.options;
        match name {
            "default-system" => self.default_system = true,
            "laptop" => self.laptop = true,
            "mlockall" => options.lock_memory = true,
            "refresh_on_max" => options.refresh_on_max = true,
            "nsecs" => options.nanoseconds = true,
            "priospread" => options.spread = true,
            "quiet" => options.quiet = true,
            "relative" => options.relative = true,
            "resolution" => options.resolution = true,
            "system" if options.wake != Wake::Timer => options.wake = Wake::Nanosleep,
            "posix_timers" if options.wake != Wake::Nanosleep => options.wake = Wake::Timer,
            "system" | "posix_timers" => {
                options.wake = Wake::ClockNanosleep;
                self.warn("The system option requires clock_nanosleep");
                self.warn("and is not compatible with posix_timers");
                self.warn("Using clock_nanosleep");
            }
            "smi" => options.smi = true,
            "smp" => {
                options.smp = true;
                options.affinity = Affinity::Each;
                options.threads = self.machine.allowed.len();
            }
            "tracemark" => options.tracemark = true,
            "verbose" => options.verbose = true,
            "=n" => self.warn(obsolete::NANOSLEEP),
            // -u needs nothing: every line is written at once. The rest change nothing either.
            _ => (),
        }
    }

    fn affinity(&mut self, glued: Option<String>, words: &mut Arguments<'_>) -> Result<(), Stop> {
        let is_set = |word: &str| atoi(word) != 0 || word.starts_with(['0', '!', '+', 'a']);
        let set = glued.or_else(|| words.take_value_if(is_set));
        if self.options.smp {
            self.warn("-a ignored due to smp mode");
            return Ok(());
        }
        self.options.affinity = match set {
            None => Affinity::Each,
            Some(text) => {
                let set = self.cpus(&text)?;
                if self.all_threads {
                    self.options.threads = set.len();
                }
                if self.options.verbose {
                    self.stdout.push_str(&format!("Using {} cpus.\n", set.len()));
                }
                Affinity::Set(set)
            }
        };
        Ok(())
    }

    fn cpus(&mut self, text: &str) -> Result<CpuSet, Stop> {
        cpus::parse(text, self.machine).map_err(|warning| {
            self.stderr.push(format!("libnuma: Warning: {warning}\n"));
            Stop::Help(1)
        })
    }

    fn alignment(&mut self, found: &ParsedOption, words: &mut Arguments<'_>) -> Result<(), Stop> {
        let value = found.value.clone().or_else(|| words.take_value_if(|word| atoi(word) != 0));
        let offset_us = value.map_or(0, |text| atoi(&text)).max(0);
        let asked = match found.name {
            "aligned" => Alignment::Aligned(offset_us),
            _ => Alignment::Second(offset_us),
        };
        let same =
            std::mem::discriminant(&asked) == std::mem::discriminant(&self.options.alignment);
        if self.options.alignment != Alignment::None && !same {
            return Err(Stop::Help(1));
        }
        self.options.alignment = asked;
        Ok(())
    }

    fn priority(&mut self, found: &ParsedOption) -> Result<(), Stop> {
        let text = found.value.as_deref().unwrap_or_default();
        if text.starts_with('-') && !is_number(text) {
            self.warn(&format!(
                "the priority is {text:?}, the text after the first p, and counts as 0: write -sm -p 80 or -Sm -p 80"
            ));
        }
        let priority = atoi(text);
        self.options.priority =
            u8::try_from(priority).ok().filter(|p| *p <= 99).ok_or(Stop::Help(1))?;
        if !self.options.policy.has_priority() {
            self.options.policy = Policy::Fifo;
        }
        Ok(())
    }

    fn threads(&mut self, found: &ParsedOption, words: &mut Arguments<'_>) -> Result<(), Stop> {
        let value = found.value.clone().or_else(|| words.take_value_if(|word| atoi(word) != 0));
        if self.options.smp {
            self.warn("-t ignored due to smp mode");
            return Ok(());
        }
        self.all_threads = value.is_none();
        self.options.threads = match value {
            None => match &self.options.affinity {
                Affinity::Set(set) => set.len(),
                _ => self.machine.allowed.len(),
            },
            Some(text) => {
                usize::try_from(atoi(&text)).ok().filter(|n| *n > 0).ok_or(Stop::Help(1))?
            }
        };
        Ok(())
    }

    /// What follows from all options together.
    fn complete(&mut self) -> Result<(), Stop> {
        self.priorities();
        self.latency();
        let options = &mut self.options;
        if options.oscope > 1 && !options.verbose {
            self.warn("-o option only meaningful, if verbose");
            return Err(Stop::Help(1));
        }
        if options.oscope < 1 {
            return Err(Stop::Help(1));
        }
        if options.buckets > 0 {
            options.distance_us = 0;
            if self.distance_given {
                self.warn("distance is ignored and set to 0, if histogram enabled");
            }
        }
        let options = &self.options;
        if (0..options.threads).any(|thread| options.interval_of(thread) < 1) {
            self.warn("an interval below 1 us would keep a CPU busy forever: use at least 1 us");
            return Err(Stop::Help(1));
        }
        Ok(())
    }

    /// Policy and priority, each of which may decide the other.
    fn priorities(&mut self) {
        let options = &mut self.options;
        if (options.spread || options.policy.has_priority()) && options.priority == 0 {
            options.priority = (options.threads + 1).min(99) as u8;
            let text = format!("defaulting realtime priority to {}", options.priority);
            self.stderr.push(text);
        }
        if options.priority > 0 && !options.policy.has_priority() {
            options.policy = Policy::Fifo;
            let text = "policy and priority don't match: setting policy to SCHED_FIFO";
            self.stderr.push(text.to_owned());
        }
    }

    /// What leaves `/dev/cpu_dma_latency` alone, wherever it stands on the command line.
    fn latency(&mut self) {
        let reason = match (self.laptop, self.default_system, self.options.idle_state) {
            (true, ..) => "not setting cpu_dma_latency to save battery power",
            (_, true, _) => "not setting cpu_dma_latency from cyclictest",
            (.., Some(_)) => "not setting cpu_dma_latency, --deepest-idle-state is set instead",
            _ => return,
        };
        self.options.latency_us = None;
        self.warn(reason);
    }
}

/// A policy by the beginning of its name; what isn't one counts as other.
fn policy(word: &str) -> Policy {
    let word = word.to_ascii_lowercase();
    let names = [
        ("fifo", Policy::Fifo),
        ("rr", Policy::Rr),
        ("batch", Policy::Batch),
        ("idle", Policy::Idle),
    ];
    let found = names.into_iter().find(|(name, _)| word.starts_with(name));
    found.map_or(Policy::Other, |(_, policy)| policy)
}

/// A duration in seconds: a number, and perhaps m, h or d.
fn seconds(text: &str) -> u64 {
    let number = atoi(text).max(0) as u64;
    let suffix = text.trim_start().trim_start_matches(['+', '-']);
    let suffix = suffix.trim_start_matches(|c: char| c.is_ascii_digit()).chars().next();
    let factor = match suffix.map(|c| c.to_ascii_lowercase()) {
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 86_400,
        _ => 1,
    };
    number.saturating_mul(factor)
}

#[cfg(test)]
mod tests;
