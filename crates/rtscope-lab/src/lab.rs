//! The lab: from what the user asks to guests that have run.
//!
//! Kernels are found, each guest gets its image and what it does beside its plan, the records of guests that
//! are known are taken, and the others are run.

use std::{collections::BTreeMap, fs, path::Path, thread, time::Duration};

use rtscope_model::{
    cpu::CpuSet,
    guest::{self, GuestExtras, Timing, Tracer},
    plan::{CpuChoice, Phase, Plan},
    time::Nanos,
};

use crate::{
    boot::Ending,
    cache::Cache,
    costs::Costs,
    cyclictest,
    digest::sha256,
    error::LabError,
    explain,
    folder_lock::FolderLock,
    guest_run::{self, Extra, GuestOutcome, GuestRun, Surroundings},
    kernel_ref::{self, KernelRef},
    kernel_under_test::{ExpectedKernel, KernelUnderTest},
    machine::Machine,
    options::GuestOptions,
    program::GuestProgram,
    progress::{Report, StepProgress},
    qemu::GuestSpec,
    queue::{self, News, QueuedRun},
    ready, record_folders,
    replay::Temporary,
};

/// On some virtual machines KVM is there and hangs: a kernel that says nothing for so long will not.
const KVM_SPEAKS_IN: Duration = Duration::from_secs(10);

/// How long a guest under KVM may take until its agent speaks.
const KVM_BOOTS_IN: Duration = Duration::from_secs(30);

/// What became of each guest, in their order.
pub type Outcomes = Vec<Result<GuestOutcome, LabError>>;

/// What the lab needs of the program that it is a part of.
#[expect(missing_debug_implementations, reason = "holds functions, which show nothing")]
pub struct Host<'a> {
    /// Words before the emulator's: a program that ends it when this process ends.
    pub guard: &'a [String],
    /// Whether to end everything now.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Tells the user a line.
    pub note: &'a (dyn Fn(&str) + Sync),
    /// Takes what is said while guests run.
    pub news: &'a (dyn Fn(&News<'_>) + Sync),
}

impl Host<'_> {
    /// Tells the user each step and each warning.
    pub fn report(&self) -> impl FnMut(StepProgress) {
        |progress| {
            if let StepProgress::Step(text) | StepProgress::Warning(text) = progress {
                (self.note)(&text);
            }
        }
    }
}

/// A lab that is ready to run guests.
#[derive(Debug)]
pub struct Lab {
    options: GuestOptions,
    cache: Cache,
    program: GuestProgram,
    /// Versions of emulators, by their programs.
    emulators: BTreeMap<String, String>,
    /// The folder that the lab writes into, from its first guest on.
    claim: Option<FolderLock>,
}

impl Lab {
    /// A lab whose guests run this program.
    ///
    /// # Errors
    ///
    /// The options can't be met whatever the kernel is.
    pub fn open(
        options: GuestOptions,
        program: GuestProgram,
        cache: Cache,
    ) -> Result<Lab, LabError> {
        if options.silence == Some(Nanos::ZERO) {
            let why = "--silence 0: every guest is silent while it boots, so rtscope would end it at once; write a \
                       time, for example 10min, or leave it out";
            return Err(LabError::Refused(why.to_owned()));
        }
        if options.spec.timing == Timing::Kvm {
            let opened = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
            opened.map_err(|e| {
                LabError::Refused(format!("--kvm: /dev/kvm: {e}; use --wall, or leave it out"))
            })?;
        }
        Ok(Lab { options, cache, program, emulators: BTreeMap::new(), claim: None })
    }

    /// Where things are kept.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// What all guests have.
    #[must_use]
    pub fn options(&self) -> &GuestOptions {
        &self.options
    }

    /// SHA-256 of the program that the guests run.
    #[must_use]
    pub fn program_sha256(&self) -> String {
        sha256(self.program.bytes())
    }

    /// How time passes in the guests.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.options.spec.timing
    }

    /// Guests at a time.
    #[must_use]
    pub fn jobs(&self) -> usize {
        let own = || thread::available_parallelism().map_or(1, usize::from);
        self.options.jobs.map_or_else(own, usize::from)
    }

    /// Refuses what could not run in the end: before anything is fetched or built.
    ///
    /// # Errors
    ///
    /// As [`ready::check`].
    pub fn check(&self, kernels: &[ExpectedKernel]) -> Result<(), LabError> {
        ready::check(&self.options, &self.program, kernels, &self.cache).map(drop)
    }

    /// As [`Lab::check`], of kernels as a command line names them.
    ///
    /// # Errors
    ///
    /// Also two kernels of one label, and a kernel that isn't there.
    pub fn check_named(&self, kernels: &[KernelRef]) -> Result<(), LabError> {
        kernel_ref::check_labels(kernels)?;
        let expected = kernels.iter().map(|kernel| ExpectedKernel::look_up(kernel, &self.cache));
        self.check(&expected.collect::<Result<Vec<_>, _>>()?)
    }

    /// Refuses what goes with a plan only.
    ///
    /// # Errors
    ///
    /// Which options these are.
    pub fn check_without_plan(&self) -> Result<(), LabError> {
        let options = &self.options;
        let is_of_plan = options.with_cyclictest
            || options.tracer.is_some()
            || options.spec.events
            || options.gpio_lines.is_some();
        if is_of_plan {
            let text =
                "--with-cyclictest, --tracer, --events and --gpio-sim need a plan: use lab run";
            return Err(LabError::Refused(text.to_owned()));
        }
        Ok(())
    }

    /// Finds the kernels; those that are prebuilt are fetched when they aren't there and everything else that a
    /// run needs is.
    ///
    /// # Errors
    ///
    /// As [`Lab::check_named`], and what can't be fetched.
    pub fn kernels(
        &self,
        kernels: &[KernelRef],
        report: &mut Report<'_>,
    ) -> Result<Vec<KernelUnderTest>, LabError> {
        self.check_named(kernels)?;
        kernels.iter().map(|one| KernelUnderTest::find(one, &self.cache, report)).collect()
    }

    /// The run of a plan in a kernel.
    ///
    /// # Errors
    ///
    /// The guest doesn't have the plan's CPUs, or can't be made.
    pub fn plan_run(
        &mut self,
        kernel: &KernelUnderTest,
        plan: &Plan,
        seed: u64,
        report: &mut Report<'_>,
    ) -> Result<GuestRun, LabError> {
        refuse_absent_cpus(plan, self.cpus_in(kernel)?)?;
        let mut needs = load_modules(&plan.phases);
        needs.extend(GPIO_MODULES.into_iter().filter(|_| self.options.gpio_lines.is_some()));
        let extra = self.extra(kernel, &needs, report)?;
        let longest = plan.phases.iter().map(|phase| phase.expected().0).max().unwrap_or(0);
        let longest = Duration::from_nanos(longest);
        let text = as_run(plan).to_toml();
        let run = self.guest_run(kernel, (&plan.name, &text), extra, seed, longest)?;
        Ok(GuestRun { planned: Duration::from_nanos(plan.expected().0), ..run })
    }

    /// The run of verbs in place of a plan.
    ///
    /// # Errors
    ///
    /// The guest can't be made.
    pub fn verbs_run(
        &mut self,
        kernel: &KernelUnderTest,
        verbs: &GuestVerbs,
        seed: u64,
        report: &mut Report<'_>,
    ) -> Result<GuestRun, LabError> {
        let mut extra = self.extra(kernel, &verbs.modules(), report)?;
        extra.files.extend(verbs.files.iter().cloned());
        extra.beside.commands.clone_from(&verbs.commands);
        extra.beside.gpio_lines = verbs.gpio_lines;
        self.guest_run(kernel, (&verbs.name, ""), extra, seed, verbs.longest)
    }

    /// CPUs of a guest: in virtual time a machine with a fixed number of them starts no more than were asked
    /// for.
    fn cpus_in(&self, kernel: &KernelUnderTest) -> Result<u32, LabError> {
        let machine = kernel.clone().machine(self.options.machine.as_deref())?;
        let asked = self.options.spec.cpus;
        let fixed = machine.cpus.unwrap_or(asked);
        Ok(if self.timing().is_virtual() { asked.min(fixed) } else { fixed })
    }

    /// The run of a plan (or of nothing) with its name, which is silent for `longest` of the guest's time.
    fn guest_run(
        &mut self,
        kernel: &KernelUnderTest,
        (name, plan): (&str, &str),
        extra: Extra,
        seed: u64,
        longest: Duration,
    ) -> Result<GuestRun, LabError> {
        let mut kernel = kernel.clone();
        let machine = kernel.machine(self.options.machine.as_deref())?;
        if !self.emulators.contains_key(&machine.program) {
            Machine::note_file(self.options.machine.as_deref(), &self.cache)?;
            let version = guest_run::emulator_version(&machine)?;
            self.emulators.insert(machine.program.clone(), version);
        }
        let (image, image_sha256, held) =
            guest_run::pack(&kernel, self.program.bytes(), plan, extra, &self.cache)?;
        Ok(GuestRun {
            kernel,
            machine,
            spec: GuestSpec { seed, ..self.options.spec },
            image,
            image_sha256,
            held,
            plan: name.to_owned(),
            planned: longest,
            silence: self.silence(longest),
            plugin: None,
        })
    }

    /// What the guest has and does beside its plan or its verbs, with the modules that these need where the kernel
    /// has them as modules.
    fn extra(
        &self,
        kernel: &KernelUnderTest,
        needs: &[Module],
        report: &mut Report<'_>,
    ) -> Result<Extra, LabError> {
        let options = &self.options;
        if needs.contains(&GPIO_SIM) {
            refuse_without_gpio(kernel)?;
        }
        options.tracer.map_or(Ok(()), |tracer| refuse_without_tracer(kernel, tracer))?;
        let mut names = options.modules.clone();
        let needed = needs.iter().filter(|(option, _)| kernel.has_as_module(option));
        names.extend(needed.map(|(_, module)| (*module).to_owned()));
        let mut extra = Extra {
            beside: GuestExtras {
                cyclictest: options.with_cyclictest,
                tracer: options.tracer,
                gpio_lines: options.gpio_lines,
                ..GuestExtras::default()
            },
            files: Vec::new(),
        };
        if !names.is_empty() {
            let modules = kernel.modules(options.modules_from.as_deref(), &self.cache, report)?;
            for module in modules.ordered(&names)? {
                extra.beside.modules.push(module.path.clone());
                extra.files.push((module.path, module.body, false));
            }
        }
        if options.with_cyclictest {
            extra.files.extend(cyclictest::files(&kernel.arch, &self.cache, report)?);
        }
        Ok(extra)
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

    /// Makes the folder of the records, or goes on in one that holds them, and runs the guests. No other rtscope
    /// writes into it while this lab is there.
    ///
    /// # Errors
    ///
    /// As [`Lab::run`], and [`record_folders::claim`].
    pub fn run_into(
        &mut self,
        out: &Path,
        runs: &[QueuedRun],
        host: &Host<'_>,
    ) -> Result<Outcomes, LabError> {
        self.probe_kvm(runs, host.guard)?;
        let guest = |queued: &QueuedRun| (queued.folder_name(), self.key(queued));
        let claim =
            record_folders::claim(out, runs.iter().map(guest).collect(), !self.options.fresh)?;
        self.claim = Some(claim);
        if self.timing().is_virtual() && self.options.spec.cpus > 1 {
            (host.note)(&format!(
                "in virtual time {} CPUs take turns on one CPU of this machine. This is slow, and real-time \
                 kernels before 6.12 may hang. rtscope ends a guest after {} s without output (--silence)",
                self.options.spec.cpus,
                runs.iter().map(|queued| queued.run.silence.as_secs()).max().unwrap_or(0)
            ));
        }
        (host.note)(&self.forecast(runs));
        Ok(self.run_queue(runs, host))
    }

    /// Runs guests into folders that don't exist yet.
    ///
    /// # Errors
    ///
    /// KVM was asked for and does not run a guest. What happens to a guest is its own outcome.
    pub fn run(&self, runs: &[QueuedRun], host: &Host<'_>) -> Result<Outcomes, LabError> {
        self.probe_kvm(runs, host.guard)?;
        Ok(self.run_queue(runs, host))
    }

    /// What a guest of this kind will take, from earlier runs or guessed.
    #[must_use]
    pub fn cost(&self, run: &GuestRun) -> Duration {
        Costs::read(&self.cache).estimate([run].into_iter(), 1).time
    }

    /// The symbols of a guest's kernel, with those of the modules that it loads: the text of its `/proc/kallsyms`. They
    /// are taken from the cache, or the guest boots into `folder` and measures nothing.
    ///
    /// # Errors
    ///
    /// The guest can't be run or sent no symbols, or files.
    pub fn symbols(
        &self,
        run: &GuestRun,
        folder: &Path,
        host: &Host<'_>,
    ) -> Result<String, LabError> {
        let around = Surroundings {
            cache: &self.cache,
            guard: host.guard,
            reuse: true,
            stop: host.stop,
            say: host.note,
        };
        let folder = Temporary(folder.to_owned());
        explain::symbols(run, &self.emulator(run), &folder.0, &around)
    }

    /// Refuses `--kvm` where KVM is there and runs no guest: within a time limit, before any guest waits
    /// for its own.
    fn probe_kvm(&self, runs: &[QueuedRun], guard: &[String]) -> Result<(), LabError> {
        let (Timing::Kvm, Some(first)) = (self.timing(), runs.first()) else { return Ok(()) };
        let spoke = first.run.speaks_under_kvm(guard, &self.cache, KVM_SPEAKS_IN);
        let refused = |e| LabError::Refused(format!("--kvm: {e}; use --wall, or leave it out"));
        match spoke.map_err(refused)? {
            true => Ok(()),
            false => Err(LabError::Refused(format!(
                "--kvm: KVM is available, but a guest printed nothing within {} s: use --wall, or leave it out",
                KVM_SPEAKS_IN.as_secs()
            ))),
        }
    }

    /// How long it will take, as a sentence.
    fn forecast(&self, runs: &[QueuedRun]) -> String {
        let is_known = |queued: &&QueuedRun| {
            !self.options.fresh
                && queued.run.is_known(&self.key(queued), &queued.folder, &self.cache)
        };
        let (known, left): (Vec<&QueuedRun>, Vec<&QueuedRun>) = runs.iter().partition(is_known);
        let left = left.iter().map(|queued| &queued.run);
        let estimate = Costs::read(&self.cache).estimate(left, self.jobs());
        estimate.sentence(runs.len(), known.len(), self.jobs())
    }

    /// What a run's record is known by, as `lab.json` in it has it.
    #[must_use]
    pub fn key(&self, queued: &QueuedRun) -> String {
        queued.run.inputs(&self.emulator(&queued.run)).key
    }

    fn emulator(&self, run: &GuestRun) -> String {
        self.emulators.get(&run.machine.program).cloned().unwrap_or_default()
    }

    fn run_queue(&self, runs: &[QueuedRun], host: &Host<'_>) -> Outcomes {
        let around = Surroundings {
            cache: &self.cache,
            guard: host.guard,
            reuse: !self.options.fresh,
            stop: host.stop,
            say: host.note,
        };
        let outcomes =
            queue::run_all(runs, self.jobs(), |run| self.emulator(run), &around, host.news);
        self.note_costs(runs, &outcomes);
        outcomes
    }

    /// Takes note of what whole runs took, for the next estimate; without it that is only a guess.
    fn note_costs(&self, runs: &[QueuedRun], outcomes: &[Result<GuestOutcome, LabError>]) {
        let mut costs = Costs::read(&self.cache);
        for (queued, outcome) in runs.iter().zip(outcomes) {
            if let Ok(GuestOutcome { ending: Ending::Sent, took: Some(took), .. }) = outcome {
                costs.note(&queued.run, *took);
            }
        }
        let _ = costs.keep(&self.cache);
    }
}

/// A plan without what changes nothing of what runs: what is said of it, and what is required. A word more
/// would be another image, and so another measurement.
pub(crate) fn as_run(plan: &Plan) -> Plan {
    let mut runs = Plan { published: Vec::new(), about: String::new(), ..plan.clone() };
    // Claims that end a phase are a part of what runs.
    if !plan.until_decided {
        runs.require.clear();
        runs.phases.iter_mut().for_each(|phase| phase.require.clear());
    }
    runs
}

/// Refuses a plan that measures CPUs which a guest with so many doesn't have.
fn refuse_absent_cpus(plan: &Plan, cpus: u32) -> Result<(), LabError> {
    let there: CpuSet = (0..cpus).collect();
    let absent = plan.phases.iter().find_map(|phase| match &phase.sampler.cpus {
        CpuChoice::These(set) => Some(set.without(&there)).filter(|absent| !absent.is_empty()),
        CpuChoice::All | CpuChoice::Last => None,
    });
    absent.map_or(Ok(()), |absent| {
        let (absent, there) = (absent.named(), there.named());
        Err(LabError::Refused(format!(
            "the plan measures {absent}, but the guest has only {there}: name others with --cpus, or add some with --smp"
        )))
    })
}

/// A module that something needs: the kernel's option, and the module.
type Module = (&'static str, &'static str);

/// A pair of network devices.
const VETH: Module = ("VETH", "veth");

/// What loads need: the load's name, the option and its value that ask for it.
const LOAD_MODULES: [(&str, &str, &str, Module); 1] = [("network", "over", "veth", VETH)];

/// A simulated GPIO chip.
const GPIO_SIM: Module = ("GPIO_SIM", "gpio-sim");

/// What it needs, itself among it.
const GPIO_MODULES: [Module; 2] = [("CONFIGFS_FS", "configfs"), GPIO_SIM];

/// The modules that the loads of a plan need.
fn load_modules(phases: &[Phase]) -> Vec<Module> {
    let loads = || phases.iter().flat_map(|phase| &phase.loads);
    let asked = LOAD_MODULES.iter().filter(|(load, option, value, _)| {
        loads().any(|line| {
            line.name == *load && line.options.get(*option).is_some_and(|found| found == value)
        })
    });
    asked.map(|(.., module)| *module).collect()
}

/// Refuses a kernel without the simulated GPIO chip.
fn refuse_without_gpio(kernel: &KernelUnderTest) -> Result<(), LabError> {
    if !kernel.lacks("GPIO_SIM") {
        return Ok(());
    }
    Err(LabError::Refused(format!(
        "{} was built without CONFIG_GPIO_SIM and has no simulated GPIO lines: leave out --gpio-sim and \
         gpio:{}/0, or use a kernel that has them, such as one that `rtscope kernel build` makes",
        kernel.label,
        guest::GPIO_LABEL
    )))
}

/// Refuses a kernel that is known not to have a tracer.
fn refuse_without_tracer(kernel: &KernelUnderTest, tracer: Tracer) -> Result<(), LabError> {
    let option = format!("{}_TRACER", tracer.name().to_uppercase());
    if !kernel.lacks(&option) {
        return Ok(());
    }
    Err(LabError::Refused(format!(
        "--tracer {tracer}: {} was built without CONFIG_{option}. Debian's real-time kernel and those that \
         `rtscope kernel build` makes have it",
        kernel.label
    )))
}

/// Verbs of rtscope that a guest runs in place of a plan.
#[derive(Clone, Debug, Default)]
pub struct GuestVerbs {
    /// What they are called together.
    pub name: String,
    /// The verbs, in the order in which they run.
    pub commands: Vec<guest::Command>,
    /// Further files of the guest: path, bytes, whether it can be run.
    pub files: Vec<(String, Vec<u8>, bool)>,
    /// Whether they need a pair of network devices.
    pub over_veth: bool,
    /// Lines of a simulated GPIO chip.
    pub gpio_lines: Option<u32>,
    /// How long they run in the guest's time without a word, about.
    pub longest: Duration,
}

impl GuestVerbs {
    fn modules(&self) -> Vec<Module> {
        let gpio = GPIO_MODULES.into_iter().filter(|_| self.gpio_lines.is_some());
        gpio.chain(self.over_veth.then_some(VETH)).collect()
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::{plan, published::Published};

    use super::*;

    fn plan(more: &str) -> Plan {
        let text = format!(
            "name = 'x'\nabout = 'a text'\n{more}\n[[phase]]\nname = 'rest'\nduration = '1s'\n"
        );
        plan::parse("x", &text).expect("a plan")
    }

    #[test]
    fn what_is_required_or_said_of_a_plan_is_no_part_of_what_runs() {
        let mut plan = plan("");
        plan.published.push(Published {
            missing: "not measured".to_owned(),
            source: "somebody".to_owned(),
            ..Published::default()
        });
        let mut other = plan.clone();
        other.published.clear();
        other.about = "another text".to_owned();
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
    fn cpus_that_a_guest_lacks_are_named() {
        let mut plan = plan("");
        assert!(refuse_absent_cpus(&plan, 1).is_ok(), "all that there are");
        plan.phases[0].sampler.cpus = CpuChoice::These("1-2".parse().expect("a set"));
        let said = refuse_absent_cpus(&plan, 2).expect_err("refused").to_string();
        assert!(said.contains("measures CPU 2, but the guest has only CPUs 0-1"), "{said}");
        assert!(refuse_absent_cpus(&plan, 3).is_ok());
    }
}
