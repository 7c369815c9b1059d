//! Guests in which an expiry is aimed, and the plugin that finds what to aim at.

use std::path::Path;

use rtscope_model::{guest::Timing, symbols::KernelSymbols};

use crate::{
    cache::Cache,
    emulator_plugin::{self, PluginSource},
    error::LabError,
    guest_run::GuestRun,
    qemu::Plugin,
};

/// Functions at whose beginning a kernel switches threads, or looks whether it has to.
const POINTS: [&str; 5] = [
    "__schedule",
    "__cond_resched",
    "dynamic_cond_resched",
    "preempt_schedule",
    "preempt_schedule_irq",
];

/// A function that takes a spin lock: in a kernel that preempts itself, it begins by adding to the preempt count.
const LOCK: &str = "_raw_spin_lock";

/// The code by which exceptions enter the kernel and leave it, with interrupts off.
const ENTRY: [&str; 2] = ["__entry_text_start", "__entry_text_end"];

/// Stretches shorter than this are of no interest: each kernel has thousands of them.
const ABOVE_NS: u64 = 8_000;

/// The run with an aim; 0 aims at nothing, in a run that is otherwise the same.
#[must_use]
pub fn aimed(run: &GuestRun, at_ns: u64) -> GuestRun {
    let mut run = run.clone();
    run.spec.aim_ns = Some(at_ns);
    run
}

/// The run with a plugin that writes the stretches to aim at into `out`. `preempts` says whether the kernel preempts
/// itself where interrupts are on and its preempt count is 0.
///
/// # Errors
///
/// The guest isn't an x86-64 one with one CPU in virtual time, its kernel's symbols lack a name, or the emulator loads no
/// plugin.
pub fn watched(
    run: &GuestRun,
    preempts: bool,
    symbols: &KernelSymbols,
    out: &Path,
    cache: &Cache,
) -> Result<GuestRun, LabError> {
    let shift = shift_of(run)?;
    let address = |name: &str| symbols.address(name);
    let points: Vec<String> =
        POINTS.into_iter().filter_map(address).map(|at| at.to_string()).collect();
    let [Some(entry), Some(entry_end)] = ENTRY.map(address) else {
        return Err(lacks(ENTRY[0]));
    };
    let mut more = vec![
        ("preempts", u8::from(preempts).to_string()),
        ("points", points.join("+")),
        ("entry", format!("{entry}+{entry_end}")),
        ("code", format!("{}+{}", symbols.code().start, symbols.code().end)),
    ];
    if preempts {
        let lock = address(LOCK).ok_or_else(|| lacks(LOCK))?;
        more.push(("lock", lock.to_string()));
    }
    let plugin = Plugin {
        file: emulator_plugin::loadable(PluginSource::Stretches, cache, &run.machine.program, out)?,
        out: out.to_owned(),
        shift,
        above_ns: ABOVE_NS,
        more,
    };
    Ok(GuestRun { plugin: Some(plugin), ..run.clone() })
}

/// An instruction of the guest takes `2^shift` ns.
///
/// # Errors
///
/// The guest isn't an x86-64 one with one CPU in virtual time.
pub fn shift_of(run: &GuestRun) -> Result<u8, LabError> {
    let Timing::Virtual { shift } = run.spec.timing else {
        let text = "only a run in virtual time can be repeated up to a given instant: leave out --wall and --kvm";
        return Err(LabError::Refused(text.to_owned()));
    };
    if run.kernel.arch != "x86_64" || !run.spec.is_logged(&run.machine) {
        let text = "rtscope searches in x86-64 guests with one CPU only: leave out --smp, and choose such a kernel";
        return Err(LabError::Refused(text.to_owned()));
    }
    Ok(shift)
}

fn lacks(name: &str) -> LabError {
    LabError::Refused(format!(
        "the kernel's symbols have no {name}: rtscope can't find stretches in it; use a kernel with \
         CONFIG_KALLSYMS, such as Debian's"
    ))
}
