//! What a run of the lab needs, looked at before anything is fetched or built.

use std::{fs, path::PathBuf};

use rtscope_model::guest::Timing;

use crate::{
    cache::Cache,
    cyclictest,
    error::LabError,
    kernel_under_test::ExpectedKernel,
    machine::{Machine, own_arch},
    options::GuestOptions,
    prebuilt,
    program::GuestProgram,
    tool::{self, Need},
};

/// Checks that guests with these kernels can be run, and returns the machine of each.
///
/// # Errors
///
/// What makes no sense together; a program that a guest could not run; or all that this machine lacks, with the
/// one command that gets it.
pub fn check(
    options: &GuestOptions,
    program: &GuestProgram,
    kernels: &[ExpectedKernel],
    cache: &Cache,
) -> Result<Vec<Machine>, LabError> {
    let machines: Vec<Machine> =
        kernels.iter().map(|kernel| machine(options, program, kernel)).collect::<Result<_, _>>()?;
    if let Some(place) = &options.modules_from {
        fs::metadata(place).map_err(LabError::file("read --modules", place))?;
    }
    let emulators = machines.iter().map(|machine| Need::of(&machine.program, &machine.package));
    let mut needs: Vec<Need> = options.tools.iter().cloned().chain(emulators).collect();
    let fetches = |kernel: &ExpectedKernel| {
        kernel.needs_fetch
            || options.with_cyclictest && cyclictest::needs_fetch(&kernel.arch, cache)
    };
    if kernels.iter().any(fetches) {
        needs.extend(prebuilt::fetching());
    }
    // Modules come from a package, from an archive, or from folders that need nothing.
    let packed = match &options.modules_from {
        Some(place) => place.is_file(),
        None => !options.modules.is_empty() && kernels.iter().any(|kernel| kernel.is_prebuilt),
    };
    if packed {
        let is_archive = |place: &PathBuf| place.extension().is_none_or(|end| end != "deb");
        let package = (!options.modules_from.as_ref().is_some_and(is_archive))
            .then(|| Need::of("dpkg-deb", "dpkg"));
        needs.extend(package.into_iter().chain([Need::of("tar", "tar")]));
    }
    tool::require(&needs)?;
    Ok(machines)
}

/// The machine for a kernel, which must fit it, the program and the other options.
fn machine(
    options: &GuestOptions,
    program: &GuestProgram,
    kernel: &ExpectedKernel,
) -> Result<Machine, LabError> {
    let machine = Machine::of_kernel(&kernel.label, &kernel.arch, options.machine.as_deref())?;
    program.runs_in(&kernel.label, &kernel.arch)?;
    if options.spec.timing == Timing::Kvm && kernel.arch != own_arch() {
        return Err(LabError::Refused(format!(
            "--kvm: this machine's CPUs are {}, and {} is a kernel for {}: leave --kvm out",
            own_arch(),
            kernel.label,
            kernel.arch
        )));
    }
    if let Some(cpus) = machine.cpus.filter(|cpus| options.spec.cpus > *cpus) {
        return Err(LabError::Refused(format!(
            "--smp {}: the machine {} has {cpus} CPUs",
            options.spec.cpus, machine.name
        )));
    }
    Ok(machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{program::samples::program, qemu::GuestSpec};

    #[test]
    fn what_makes_no_sense_together_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cache, path) = (Cache::at(folder.path()), folder.path().join("program"));
        fs::write(&path, program(183, 6)).expect("written");
        let program = GuestProgram::read(&path, true).expect("a program for arm64");
        let options = GuestOptions::default();
        let (label, arch) = ("mine".to_owned(), "arm64".to_owned());
        let kernel = ExpectedKernel { label, arch, is_prebuilt: false, needs_fetch: false };
        let said = |options: GuestOptions| {
            let kernels = std::slice::from_ref(&kernel);
            check(&options, &program, kernels, &cache).expect_err("refused").to_string()
        };
        let spec = GuestSpec { cpus: 8, ..GuestSpec::default() };
        let machine = Some("raspi3b".to_owned());
        let four = said(GuestOptions { machine, spec, ..options.clone() });
        assert_eq!(four, "--smp 8: the machine raspi3b has 4 CPUs");
        if own_arch() != "arm64" {
            let spec = GuestSpec { timing: Timing::Kvm, ..GuestSpec::default() };
            let kvm = said(GuestOptions { spec, ..options.clone() });
            assert!(kvm.starts_with("--kvm: this machine's CPUs are"));
        }
        let other = said(GuestOptions { machine: Some("pc".to_owned()), ..options.clone() });
        assert!(other.contains("a kernel for arm64, and the machine pc is for x86_64"), "{other}");
        let modules_from = Some(folder.path().join("none"));
        let missing = said(GuestOptions { modules_from, ..options });
        assert!(missing.starts_with("can't read --modules "), "{missing}");
    }
}
