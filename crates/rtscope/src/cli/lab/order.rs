//! What every verb of the lab that boots guests is told, and how it is made into cells.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use rtscope_lab::{
    boot::Ending,
    cache::Cache,
    cell::{self, Cell, Extra, Outcome, Surroundings},
    costs::Costs,
    cyclictest,
    error::LabError,
    program::Program,
    progress::Progress,
    qemu::{Timing, parse_shift},
    queue::{self, Item, News},
    ready::{self, Wish},
    subject::{self, Expected, Subject},
};
use rtscope_measure::interrupt::Interrupt;
use rtscope_model::{
    guest::{self, Beside, Tracer},
    plan::{Phase, Plan},
    time::Nanos,
};

use super::{
    estimate, output,
    teller::{SILENT, Teller},
};
use crate::cli::{Refused, ending, shape};

/// On some virtual machines KVM is there and hangs: a kernel that says nothing for so long will not.
const KVM_SPEAKS_IN: Duration = Duration::from_secs(10);

/// How long a guest under KVM may take until its agent speaks.
const KVM_BOOTS_IN: Duration = Duration::from_secs(30);

/// What is asked of the guests of a plan, and where the answer goes.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Judging {
    /// Number of runs per kernel, each with its own seed [default: 1; bisect: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(super) seeds: Option<u64>,
    /// Folder for the records and the page [default: rtscope-runs/lab-PLAN-TIME]
    #[arg(short, long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// How guests are run.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Options {
    /// Count time in instructions of the guest, not by this machine's clock (default). rtscope logs a run with one
    /// CPU, and `lab replay` repeats it bit for bit
    #[arg(long, conflicts_with_all = ["wall", "kvm"])]
    r#virtual: bool,
    /// Use this machine's clock, with everything that disturbs it
    #[arg(long, conflicts_with = "kvm")]
    wall: bool,
    /// Use this machine's clock and its CPUs, through KVM
    #[arg(long)]
    kvm: bool,
    /// Count 2^N ns of virtual time for each instruction, N from 0 to 5
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_shift,
        conflicts_with_all = ["wall", "kvm"])]
    shift: u8,
    /// Number of guests that run at a time [default: one for each CPU]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Machine of the guest: a name of `rtscope lab machines`, or a file
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// Number of CPUs of a guest. With several CPUs, virtual time shows the order of events but no latency
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    smp: u32,
    /// Memory of a guest, for example 512M or 2G; a number alone is in MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_mib)]
    memory: Option<u32>,
    /// Run this static rtscope in the guest, for kernels of another architecture
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Load this module in the guest, with the modules that it depends on; repeatable. rtscope adds the modules
    /// that the plan's loads need
    #[arg(long, value_name = "NAME")]
    module: Vec<String>,
    /// Take the kernel's modules from a folder such as /lib/modules/RELEASE, a Debian package or an archive
    /// [default: those of the kernel's package or build]
    #[arg(long, value_name = "PLACE")]
    modules: Option<PathBuf>,
    /// Measure each phase once more with Debian's cyclictest, in the same kernel under the same loads, and
    /// compare both histograms
    #[arg(long)]
    with_cyclictest: bool,
    /// Run this tracer of the kernel after the plan, under the loads of each phase: osnoise or timerlat. The record
    /// contains its output
    #[arg(long, value_name = "TRACER")]
    tracer: Option<Tracer>,
    /// Create a simulated GPIO chip with N lines in the guest, and test each line
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    gpio_sim: Option<u32>,
    /// Kill a guest that produces no output for this long, for example 10min
    #[arg(long, value_name = "TIME")]
    silence: Option<Nanos>,
    /// Print the output of the guests, even if standard error isn't a terminal
    #[arg(short, long)]
    verbose: bool,
    /// Run every guest, even if the cache has its record
    #[arg(long)]
    fresh: bool,
    /// Folder of kernels, images and records [default: that of `lab cache list`]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

impl Options {
    /// The defaults, for verbs that leave no choice.
    pub(super) fn usual(fresh: bool, cache: Option<PathBuf>) -> Options {
        Options {
            r#virtual: true,
            wall: false,
            kvm: false,
            shift: 1,
            jobs: None,
            machine: None,
            smp: 1,
            memory: None,
            program: None,
            module: Vec::new(),
            modules: None,
            with_cyclictest: false,
            tracer: None,
            gpio_sim: None,
            silence: None,
            verbose: false,
            fresh,
            cache,
        }
    }
}

/// An amount of memory in MiB: `512`, `512M`, `2G`.
fn parse_mib(text: &str) -> Result<u32, String> {
    let word = text.trim().trim_end_matches("iB").trim_end_matches('B');
    let (number, unit) = match word.strip_suffix(['G', 'g']) {
        Some(number) => (number, 1024),
        None => (word.strip_suffix(['M', 'm']).unwrap_or(word), 1),
    };
    let mib = number.trim().parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
    mib.filter(|mib| (16..=1_048_576).contains(mib)).ok_or_else(|| {
        format!("{text:?} is not the memory of a guest: write 512M or 2G, from 16M to 1024G")
    })
}

/// A place for known things.
pub(super) fn cache_of(asked: Option<&PathBuf>) -> Cache {
    asked.map_or_else(Cache::default, Cache::at)
}

/// Says a step on standard error.
pub(super) fn say(progress: Progress) {
    if let Progress::Step(text) | Progress::Warning(text) = progress {
        note!("{text}");
    }
}

/// A lab that is ready to run cells.
pub(super) struct Lab {
    options: Options,
    cache: Cache,
    program: Program,
    guard: Vec<String>,
    interrupt: Interrupt,
    emulators: BTreeMap<String, String>,
}

impl Lab {
    pub(super) fn open(options: &Options) -> anyhow::Result<Lab> {
        let path = match &options.program {
            Some(path) => path.clone(),
            None => std::env::current_exe().context("can't find this program's own file")?,
        };
        let program = Program::read(&path, options.program.is_some())?;
        if options.silence == Some(Nanos::ZERO) {
            let why = "--silence 0: every guest is silent while it boots, and would be ended at once; write a \
                       time, for example 10min, or leave it out";
            return Err(Refused(why.to_owned()).into());
        }
        if options.kvm {
            let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
            opened.map_err(|e| {
                Refused(format!("--kvm: /dev/kvm: {e}; use --wall, or leave it out"))
            })?;
        }
        let interrupt = Interrupt::install()?;
        ending::of_programs(&interrupt);
        let pid = std::process::id().to_string();
        let guard = ["/proc/self/exe", "guard", "--parent", &pid, "--"].map(str::to_owned).to_vec();
        Ok(Lab {
            options: options.clone(),
            cache: cache_of(options.cache.as_ref()),
            program,
            guard,
            interrupt,
            emulators: BTreeMap::new(),
        })
    }

    /// Where things are kept.
    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Ends what goes on from step to step when the user asked for the end.
    pub(super) fn check_interrupted(&self) -> anyhow::Result<()> {
        if self.interrupt.is_stopped() { anyhow::bail!("interrupted") } else { Ok(()) }
    }

    pub(super) fn timing(&self) -> Timing {
        if self.options.kvm {
            Timing::Kvm
        } else if self.options.wall {
            Timing::Wall
        } else {
            Timing::Virtual { shift: self.options.shift }
        }
    }

    /// Guests at a time.
    pub(super) fn jobs(&self) -> usize {
        let own = || std::thread::available_parallelism().map_or(1, usize::from);
        self.options.jobs.map_or_else(own, usize::from)
    }

    /// Refuses what could not run in the end: before anything is fetched or built.
    pub(super) fn check(&self, kernels: &[Expected]) -> anyhow::Result<()> {
        let options = &self.options;
        let wish = Wish {
            machine: options.machine.as_deref(),
            program: &self.program,
            kvm: options.kvm,
            cpus: options.smp,
            has_modules: !options.module.is_empty(),
            modules: options.modules.as_deref(),
            cyclictest: options.with_cyclictest,
        };
        ready::check(&wish, kernels, &self.cache)?;
        Ok(())
    }

    /// As [`Lab::check`], of kernels by their names.
    pub(super) fn check_named(&self, names: &[String]) -> anyhow::Result<()> {
        subject::check_labels(names)?;
        let expected = names.iter().map(|name| Expected::of(name, &self.cache));
        self.check(&expected.collect::<Result<Vec<_>, _>>()?)
    }

    /// Refuses what goes with a plan only.
    pub(super) fn check_without_plan(&self) -> Result<(), Refused> {
        let options = &self.options;
        if options.with_cyclictest || options.tracer.is_some() || options.gpio_sim.is_some() {
            let text = "--with-cyclictest, --tracer and --gpio-sim go with a plan: take lab run";
            return Err(Refused(text.to_owned()));
        }
        Ok(())
    }

    /// Finds the kernels; those that are prebuilt are fetched when they aren't there and everything else that a
    /// run needs is.
    pub(super) fn subjects(&self, names: &[String]) -> anyhow::Result<Vec<Subject>> {
        self.check_named(names)?;
        let find = |name: &String| Subject::find(name, &self.cache, &mut say);
        Ok(names.iter().map(find).collect::<Result<_, LabError>>()?)
    }

    /// The cell of a plan in a kernel.
    pub(super) fn cell(
        &mut self,
        subject: &Subject,
        plan: &Plan,
        seed: u64,
    ) -> anyhow::Result<Cell> {
        shape::refuse_absent_cpus(plan, self.cpus_of(subject)?)?;
        let extra = self.extra(subject, &plan.phases)?;
        let runs = as_run(plan);
        let longest = plan.phases.iter().map(|phase| phase.expected().0).max().unwrap_or(0);
        let longest = Duration::from_nanos(longest);
        let cell = self.guest(subject, (&plan.name, &runs.to_toml()), extra, seed, longest)?;
        Ok(Cell { planned: Duration::from_nanos(plan.expected().0), ..cell })
    }

    /// The cell of experiments, each with its name and text, in place of a plan. `longest` is how long one
    /// of them computes.
    pub(super) fn experiments_cell(
        &mut self,
        subject: &Subject,
        experiments: &[(String, String)],
        longest: Duration,
    ) -> anyhow::Result<Cell> {
        let mut extra = self.extra(subject, &[])?;
        for (name, text) in experiments {
            extra.beside.experiments.push(name.clone());
            extra.files.push((guest::experiment_file(name), text.clone().into_bytes(), false));
        }
        self.guest(subject, ("experiments", ""), extra, 1, longest)
    }

    /// CPUs of a guest: in virtual time a machine with a fixed number of them starts no more than were asked
    /// for.
    fn cpus_of(&self, subject: &Subject) -> Result<u32, LabError> {
        let machine = subject.clone().machine(self.options.machine.as_deref())?;
        let asked = self.options.smp;
        let fixed = machine.cpus.unwrap_or(asked);
        Ok(if self.timing().is_virtual() { asked.min(fixed) } else { fixed })
    }

    /// A cell of a plan (or of nothing) with its name, which is silent for `longest` of the guest's time.
    fn guest(
        &mut self,
        subject: &Subject,
        (name, plan): (&str, &str),
        extra: Extra,
        seed: u64,
        longest: Duration,
    ) -> anyhow::Result<Cell> {
        let mut subject = subject.clone();
        let machine = subject.machine(self.options.machine.as_deref())?;
        if !self.emulators.contains_key(&machine.program) {
            let version = cell::emulator_version(&machine)?;
            self.emulators.insert(machine.program.clone(), version);
        }
        let (image, image_sha256, held) =
            cell::pack(&subject, self.program.bytes(), plan, extra, &self.cache)?;
        Ok(Cell {
            subject,
            machine,
            timing: self.timing(),
            seed,
            cpus: self.options.smp,
            memory_mib: self.options.memory,
            image,
            image_sha256,
            held,
            plan: name.to_owned(),
            planned: longest,
            silence: self.silence(longest),
        })
    }

    /// What the guest has and does beside the phases of a plan.
    fn extra(&self, subject: &Subject, phases: &[Phase]) -> anyhow::Result<Extra> {
        let options = &self.options;
        if options.gpio_sim.is_some() && subject.lacks("GPIO_SIM") {
            return Err(Refused(format!(
                "--gpio-sim: {} was built without CONFIG_GPIO_SIM: leave it out, or take a kernel that has \
                 it, as those that `rtscope kernel build` makes",
                subject.label
            ))
            .into());
        }
        let mut names = options.module.clone();
        names.extend(wanted_modules(subject, phases, options.gpio_sim.is_some()));
        let mut extra = Extra {
            beside: Beside {
                cyclictest: options.with_cyclictest,
                tracer: options.tracer,
                gpio_lines: options.gpio_sim,
                ..Beside::default()
            },
            files: Vec::new(),
        };
        if !names.is_empty() {
            let modules = subject.modules(options.modules.as_deref(), &self.cache, &mut say)?;
            for module in modules.ordered(&names)? {
                extra.beside.modules.push(module.path.clone());
                extra.files.push((module.path, module.body, false));
            }
        }
        if options.with_cyclictest {
            extra.files.extend(cyclictest::files(&subject.arch, &self.cache, &mut say)?);
        }
        Ok(extra)
    }

    /// Refuses `--kvm` where KVM is there and runs no guest: within a time limit, before any cell waits
    /// for its own.
    fn probe_kvm(&self, items: &[Item]) -> anyhow::Result<()> {
        let (true, Some(first)) = (self.options.kvm, items.first()) else { return Ok(()) };
        let spoke = first.cell.speaks_under_kvm(&self.guard, &self.cache, KVM_SPEAKS_IN);
        let spoke =
            spoke.map_err(|e| Refused(format!("--kvm: {e}; use --wall, or leave it out")))?;
        match spoke {
            true => Ok(()),
            false => Err(Refused(format!(
                "--kvm: KVM is there, but a guest said nothing within {} s: use --wall, or leave it out",
                KVM_SPEAKS_IN.as_secs()
            ))
            .into()),
        }
    }

    /// How long a guest may be silent: it speaks when a phase begins, and on a busy host a second of
    /// virtual time under load may take a minute. Under KVM it boots in seconds or not at all.
    fn silence(&self, longest: Duration) -> Duration {
        match (self.options.silence, self.timing()) {
            (Some(time), _) => Duration::from_nanos(time.0),
            (None, Timing::Kvm) => KVM_BOOTS_IN + longest.saturating_mul(2),
            (None, _) => Duration::from_secs(240) + longest.saturating_mul(60),
        }
    }

    /// Makes the folder of the records, or goes on in one that holds them, and runs the cells.
    ///
    /// # Errors
    ///
    /// As [`Lab::run`], and a folder that holds others.
    pub(super) fn run_into(
        &self,
        out: &Path,
        items: &[Item],
    ) -> anyhow::Result<Vec<Result<Outcome, LabError>>> {
        self.probe_kvm(items)?;
        let guest = |item: &Item| {
            let name = item.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, item.cell.inputs(&self.emulator(&item.cell)).key)
        };
        let guests: BTreeMap<String, String> = items.iter().map(guest).collect();
        output::claim(out, guests, !self.options.fresh)?;
        if self.timing().is_virtual() && self.options.smp > 1 {
            note!(
                "{} CPUs in virtual time take turns on one of this machine's: slow, and real-time kernels \
                 before 6.12 may hang (one that says nothing is ended after {} s; --silence changes that)",
                self.options.smp,
                items.iter().map(|item| item.cell.silence.as_secs()).max().unwrap_or(0)
            );
        }
        self.foretell(items);
        Ok(self.go(items))
    }

    /// Says how long it will take.
    fn foretell(&self, items: &[Item]) {
        let is_known = |item: &&Item| {
            let key = item.cell.inputs(&self.emulator(&item.cell)).key;
            !self.options.fresh && item.cell.is_known(&key, &item.folder, &self.cache)
        };
        let (known, run): (Vec<&Item>, Vec<&Item>) = items.iter().partition(is_known);
        let cells = run.iter().map(|item| &item.cell);
        let estimate = Costs::of(&self.cache).estimate(cells, self.jobs());
        note!("{}", estimate::sentence(items.len(), known.len(), self.jobs(), estimate));
    }

    fn emulator(&self, cell: &Cell) -> String {
        self.emulators.get(&cell.machine.program).cloned().unwrap_or_default()
    }

    /// Runs cells into folders that don't exist yet.
    ///
    /// # Errors
    ///
    /// KVM was asked for and does not run a guest. What happens to a cell is its own outcome.
    pub(super) fn run(&self, items: &[Item]) -> anyhow::Result<Vec<Result<Outcome, LabError>>> {
        self.probe_kvm(items)?;
        Ok(self.go(items))
    }

    /// Runs cells and tells on standard error how far it is.
    fn go(&self, items: &[Item]) -> Vec<Result<Outcome, LabError>> {
        let stop = || self.interrupt.is_stopped();
        let around = Surroundings {
            cache: &self.cache,
            guard: &self.guard,
            reuse: !self.options.fresh,
            stop: &stop,
            say: &|text| note!("{text}"),
        };
        let teller = Mutex::new(Teller::new(self.options.verbose));
        let news = |news: &News<'_>| {
            if let Ok(mut teller) = teller.lock() {
                teller.tell(news);
            }
        };
        let (ended, end) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let teller = &teller;
            // Ends when the other side is dropped.
            scope.spawn(move || {
                let began = Instant::now();
                while end.recv_timeout(SILENT) == Err(mpsc::RecvTimeoutError::Timeout) {
                    if let Ok(mut teller) = teller.lock() {
                        teller.still_there(began.elapsed());
                    }
                }
            });
            let outcomes =
                queue::run_all(items, self.jobs(), |cell| self.emulator(cell), &around, &news);
            drop(ended);
            self.note_costs(items, &outcomes);
            outcomes
        })
    }

    /// Takes note of what whole runs took, for the next estimate; without it that is only a guess.
    fn note_costs(&self, items: &[Item], outcomes: &[Result<Outcome, LabError>]) {
        let mut costs = Costs::of(&self.cache);
        for (item, outcome) in items.iter().zip(outcomes) {
            if let Ok(Outcome { ending: Ending::Sent, took: Some(took), .. }) = outcome {
                costs.note(&item.cell, *took);
            }
        }
        let _ = costs.keep(&self.cache);
    }
}

/// A plan without what changes nothing of what runs: what is said of it, and what is required. A word more
/// would be another image, and so another measurement.
fn as_run(plan: &Plan) -> Plan {
    let mut runs = Plan { published: Vec::new(), about: String::new(), ..plan.clone() };
    // Claims that end a phase are a part of what runs.
    if !plan.until_decided {
        runs.require.clear();
        runs.phases.iter_mut().for_each(|phase| phase.require.clear());
    }
    runs
}

/// Modules that a load needs: the load's name, the option and its value that ask for it, the kernel's
/// option, and the module.
const LOAD_MODULES: [(&str, &str, &str, &str, &str); 1] =
    [("network", "over", "veth", "VETH", "veth")];

/// Modules that a simulated GPIO chip needs: the kernel's option, and the module.
const GPIO_MODULES: [(&str, &str); 2] = [("CONFIGFS_FS", "configfs"), ("GPIO_SIM", "gpio-sim")];

/// The modules that a plan needs in a kernel that has them as modules.
fn wanted_modules(subject: &Subject, phases: &[Phase], gpio: bool) -> Vec<String> {
    let loads = || phases.iter().flat_map(|phase| &phase.loads);
    let asked = LOAD_MODULES.iter().filter(|(load, option, value, ..)| {
        loads().any(|line| {
            line.name == *load && line.options.get(*option).is_some_and(|found| found == value)
        })
    });
    let of_loads = asked.map(|(.., option, module)| (*option, *module));
    let of_gpio = GPIO_MODULES.into_iter().filter(|_| gpio);
    let needed = of_loads.chain(of_gpio).filter(|(option, _)| subject.has_as_module(option));
    needed.map(|(_, module)| module.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plans;

    #[test]
    fn what_is_required_or_said_of_a_plan_is_no_part_of_what_runs() {
        let plan = plans::load("lab-course").expect("shipped");
        let mut other = plan.clone();
        other.about = "another text".to_owned();
        other.published.clear();
        other.require = vec!["max < 50us".parse().expect("a requirement")];
        other.phases[0].require = other.require.clone();
        assert_eq!(as_run(&plan).to_toml(), as_run(&other).to_toml());
        other.phases[0].sampler.priority -= 1;
        assert_ne!(as_run(&plan).to_toml(), as_run(&other).to_toml());
        // Here the requirement decides how long a phase takes.
        other.until_decided = true;
        assert_eq!(as_run(&other).require.len(), 1);
    }

    #[test]
    fn memory_is_read_with_or_without_its_unit() {
        let read = ["512", "512M", "512MiB", "2G", "2GiB", "2 g"].map(parse_mib);
        assert_eq!(read, [512, 512, 512, 2048, 2048, 2048].map(Ok));
        for wrong in ["", "G", "2T", "8", "-1", "5000G", "9999999999"] {
            let said = parse_mib(wrong).expect_err(wrong);
            assert!(said.contains("write 512M or 2G"), "{said}");
        }
    }
}
