//! What a run of the lab needs, looked at before anything is fetched or built.

use std::path::Path;

use crate::{
    cache::Cache,
    cyclictest,
    error::LabError,
    machine::{Machine, own_arch},
    prebuilt,
    program::Program,
    subject::Expected,
    tool::{self, Need},
};

/// What is asked of the guests.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The machine's name; none for the default of a kernel's architecture.
    pub machine: Option<&'a str>,
    /// The program in the guest.
    pub program: &'a Program,
    /// Whether the host's own CPUs run the guest.
    pub kvm: bool,
    /// CPUs of a guest.
    pub cpus: u32,
    /// Whether modules were named.
    pub has_modules: bool,
    /// Where the modules are; none for those of the kernel's package or build.
    pub modules: Option<&'a Path>,
    /// Whether Debian's cyclictest runs, too.
    pub cyclictest: bool,
}

/// Checks that guests with these kernels can be run, and returns the machine of each.
///
/// # Errors
///
/// What makes no sense together; a program that a guest could not run; or all that this machine lacks, with the
/// one command that gets it.
pub fn check(
    wish: &Wish<'_>,
    kernels: &[Expected],
    cache: &Cache,
) -> Result<Vec<Machine>, LabError> {
    let machines: Vec<Machine> =
        kernels.iter().map(|kernel| machine(wish, kernel)).collect::<Result<_, _>>()?;
    if let Some(place) = wish.modules.filter(|place| !place.exists()) {
        let place = place.display();
        return Err(LabError::Refused(format!(
            "--modules {place}: there is no such file or folder"
        )));
    }
    let emulators = machines.iter().map(|machine| Need::of(&machine.program, &machine.package));
    let mut needs: Vec<Need> = emulators.collect();
    let fetches = |kernel: &Expected| {
        kernel.is_fetched || wish.cyclictest && cyclictest::is_fetched(&kernel.arch, cache)
    };
    if kernels.iter().any(fetches) {
        needs.extend(prebuilt::fetching());
    }
    if wish.modules.is_some_and(Path::is_file) || wish.has_modules {
        needs.extend([Need::of("dpkg-deb", "dpkg"), Need::of("tar", "tar")]);
    }
    tool::require(&needs)?;
    Ok(machines)
}

/// The machine for a kernel, which must fit it, the program and the other options.
fn machine(wish: &Wish<'_>, kernel: &Expected) -> Result<Machine, LabError> {
    let machine = Machine::of_kernel(&kernel.label, &kernel.arch, wish.machine)?;
    wish.program.runs_in(&kernel.label, &kernel.arch)?;
    if wish.kvm && kernel.arch != own_arch() {
        return Err(LabError::Refused(format!(
            "--kvm: this machine's CPUs are {}, and {} is a kernel for {}: leave --kvm out",
            own_arch(),
            kernel.label,
            kernel.arch
        )));
    }
    if let Some(cpus) = machine.cpus.filter(|cpus| wish.cpus > *cpus) {
        return Err(LabError::Refused(format!(
            "--smp {}: the machine {} has {cpus} CPUs",
            wish.cpus, machine.name
        )));
    }
    Ok(machine)
}
