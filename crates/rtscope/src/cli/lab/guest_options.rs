//! What every verb of the lab that boots guests is told, and the lab that does it.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use anyhow::Context;
use rtscope_lab::{
    cache::Cache,
    kernel_ref::KernelRef,
    kernel_under_test::KernelUnderTest,
    lab::{self, GuestVerbs, Host, Outcomes},
    options::GuestOptions,
    program::GuestProgram,
    qemu::{GuestSpec, SHIFT_DEFAULT, parse_shift},
    queue::{News, QueuedRun},
    record_folders,
    tool::Need,
};
use rtscope_measure::signals::Interrupt;
use rtscope_model::{
    guest::{Timing, Tracer},
    plan::Plan,
    time::Nanos,
};

use super::teller::Teller;
use crate::{
    cli::{Refused, ending},
    output::shown,
};

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
    #[arg(long, value_name = "N", default_value_t = SHIFT_DEFAULT, value_parser = parse_shift,
        allow_negative_numbers = true, conflicts_with_all = ["wall", "kvm"])]
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
    /// Record the kernel's events around the worst wake-ups of each phase in the guest, as `rtscope run --explain`
    /// does; delays each wake-up. `rtscope lab explain` sets them beside the instructions
    #[arg(long)]
    events: bool,
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
    /// CPUs of a guest.
    pub(super) fn cpus(&self) -> u32 {
        self.smp
    }

    /// Another program for the guests than this one.
    pub(super) fn program(&self) -> Option<&Path> {
        self.program.as_deref()
    }

    fn timing(&self) -> Timing {
        if self.kvm {
            Timing::Kvm
        } else if self.wall {
            Timing::Wall
        } else {
            Timing::Virtual { shift: self.shift }
        }
    }

    /// What all guests are to have.
    fn guests(&self) -> GuestOptions {
        let spec = GuestSpec {
            timing: self.timing(),
            cpus: self.smp,
            memory_mib: self.memory,
            events: self.events,
            ..GuestSpec::default()
        };
        GuestOptions {
            spec,
            jobs: self.jobs,
            machine: self.machine.clone(),
            modules: self.module.clone(),
            modules_from: self.modules.clone(),
            with_cyclictest: self.with_cyclictest,
            tracer: self.tracer,
            gpio_lines: self.gpio_sim,
            silence: self.silence,
            fresh: self.fresh,
            tools: Vec::new(),
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
        format!(
            "{text:?} is not a memory size for a guest: write for example 512M or 2G (16M to 1024G)"
        )
    })
}

/// A place for known things.
pub(in crate::cli) fn cache_at(asked: Option<&PathBuf>) -> Cache {
    asked.map_or_else(Cache::default, Cache::at)
}

/// The same for a verb that only looks at it: a folder that was named must be there.
pub(in crate::cli) fn known_cache(asked: Option<&PathBuf>) -> anyhow::Result<Cache> {
    match asked.filter(|folder| !folder.is_dir()) {
        Some(folder) => {
            Err(Refused(format!("--cache {}: there is no such folder", shown(folder))).into())
        }
        None => Ok(cache_at(asked)),
    }
}

/// The program that guests run: this very one unless another one is named.
fn guest_program(named: Option<&Path>) -> anyhow::Result<GuestProgram> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => std::env::current_exe().context("can't find this program's own file")?,
    };
    Ok(GuestProgram::read(&path, named.is_some())?)
}

/// Kernels as they were typed.
fn parsed(typed: &[String]) -> anyhow::Result<Vec<KernelRef>> {
    Ok(typed.iter().map(|one| KernelRef::parse(one)).collect::<Result<_, _>>()?)
}

/// Words before an emulator's: they end it when this process ends.
pub(in crate::cli) fn guard() -> Vec<String> {
    let pid = std::process::id().to_string();
    ["/proc/self/exe", "guard", "--parent", &pid, "--"].map(str::to_owned).to_vec()
}

/// The lab, and what of it the user sees and ends.
pub(super) struct Lab {
    pub(super) lab: lab::Lab,
    pub(super) console: Console,
}

/// Where the lab tells how far it is.
pub(super) struct Console {
    interrupt: Interrupt,
    guard: Vec<String>,
    verbose: bool,
}

impl Lab {
    pub(super) fn open(options: &Options) -> anyhow::Result<Lab> {
        Lab::open_with_tools(options, Vec::new())
    }

    /// A lab that asks for these tools of this machine together with all that its guests need.
    pub(super) fn open_with_tools(options: &Options, tools: Vec<Need>) -> anyhow::Result<Lab> {
        let (cache, guests) =
            (cache_at(options.cache.as_ref()), GuestOptions { tools, ..options.guests() });
        Lab::open_with(guests, options.program.as_deref(), cache, options.verbose)
    }

    /// A lab for these guests, which run this very program unless another one is named.
    pub(super) fn open_with(
        guests: GuestOptions,
        program: Option<&Path>,
        cache: Cache,
        verbose: bool,
    ) -> anyhow::Result<Lab> {
        cache.sweep();
        let lab = lab::Lab::open(guests, guest_program(program)?, cache)?;
        let interrupt = Interrupt::install()?;
        ending::of_programs(&interrupt);
        Ok(Lab { lab, console: Console { interrupt, guard: guard(), verbose } })
    }

    /// Asks for everything that guests of these kernels will need, and for `tools` in the same breath.
    pub(super) fn require(
        options: &Options,
        kernels: &[String],
        tools: Vec<Need>,
    ) -> anyhow::Result<()> {
        let guests = GuestOptions { tools, ..options.guests() };
        let program = guest_program(options.program.as_deref())?;
        let lab = lab::Lab::open(guests, program, cache_at(options.cache.as_ref()))?;
        Ok(lab.check_named(&parsed(kernels)?)?)
    }

    pub(super) fn timing(&self) -> Timing {
        self.lab.timing()
    }

    /// Finds the kernels as they were typed.
    pub(super) fn kernels(&self, typed: &[String]) -> anyhow::Result<Vec<KernelUnderTest>> {
        let kernels = parsed(typed)?;
        Ok(self.console.with(|host| self.lab.kernels(&kernels, &mut host.report()))?)
    }

    pub(super) fn plan_run(
        &mut self,
        kernel: &KernelUnderTest,
        plan: &Plan,
        seed: u64,
        folder: PathBuf,
    ) -> anyhow::Result<QueuedRun> {
        let Lab { lab, console } = self;
        let run = console.with(|host| lab.plan_run(kernel, plan, seed, &mut host.report()))?;
        Ok(QueuedRun { run, folder })
    }

    /// Runs verbs in a guest for each kernel and seed, into a folder for each. Without seeds there is one guest for
    /// each kernel.
    pub(super) fn verbs_into(
        &mut self,
        out: &Path,
        kernels: &[KernelUnderTest],
        seeds: Option<u64>,
        verbs: &GuestVerbs,
    ) -> anyhow::Result<(Vec<QueuedRun>, Outcomes)> {
        let names = record_folders::names(kernels.iter().map(|kernel| kernel.label.as_str()))?;
        let Lab { lab, console } = self;
        let mut runs = Vec::new();
        for (kernel, name) in kernels.iter().zip(names) {
            for seed in 1..=seeds.unwrap_or(1) {
                let folder = match seeds {
                    None => name.clone(),
                    Some(_) => format!("{name}-seed{seed}"),
                };
                let run =
                    console.with(|host| lab.verbs_run(kernel, verbs, seed, &mut host.report()))?;
                runs.push(QueuedRun { run, folder: out.join(folder) });
            }
        }
        let outcomes = self.run_into(out, &runs)?;
        Ok((runs, outcomes))
    }

    /// Makes the folder of the records, or goes on in one that holds them, and runs the guests.
    pub(super) fn run_into(&mut self, out: &Path, runs: &[QueuedRun]) -> anyhow::Result<Outcomes> {
        let Lab { lab, console } = self;
        Ok(console.with(|host| lab.run_into(out, runs, host))?)
    }
}

impl Console {
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Does something with a host that tells on standard error how far it is.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Host<'_>) -> T) -> T {
        let teller = Mutex::new(Teller::new(self.verbose));
        let news = |news: &News<'_>| {
            if let Ok(mut teller) = teller.lock() {
                teller.show(news);
            }
        };
        let host = Host {
            guard: &self.guard,
            stop: &|| self.interrupt.is_stopped(),
            note: &|text| note!("{text}"),
            news: &news,
        };
        work(&host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_with_or_without_its_unit() {
        let read = ["512", "512M", "512MiB", "2G", "2GiB", "2 g"].map(parse_mib);
        assert_eq!(read, [512, 512, 512, 2048, 2048, 2048].map(Ok));
        for wrong in ["", "G", "2T", "8", "-1", "5000G", "9999999999"] {
            let said = parse_mib(wrong).expect_err(wrong);
            assert!(said.contains("for example 512M or 2G"), "{said}");
        }
    }
}
