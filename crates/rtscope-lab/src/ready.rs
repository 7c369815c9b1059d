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
    // Modules come from a package, from an archive, or from folders that need nothing.
    let packed = match wish.modules {
        Some(place) => place.is_file(),
        None => wish.has_modules && kernels.iter().any(|kernel| kernel.is_prebuilt),
    };
    if packed {
        let is_archive = |place: &Path| place.extension().is_none_or(|end| end != "deb");
        let package = (!wish.modules.is_some_and(is_archive)).then(|| Need::of("dpkg-deb", "dpkg"));
        needs.extend(package.into_iter().chain([Need::of("tar", "tar")]));
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::program::samples::program;

    #[test]
    fn what_makes_no_sense_together_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cache, path) = (Cache::at(folder.path()), folder.path().join("program"));
        fs::write(&path, program(183, 6)).expect("written");
        let program = Program::read(&path, true).expect("a program for arm64");
        let wish = Wish {
            machine: None,
            program: &program,
            kvm: false,
            cpus: 1,
            has_modules: false,
            modules: None,
            cyclictest: false,
        };
        let (label, arch) = ("mine".to_owned(), "arm64".to_owned());
        let kernel = Expected { label, arch, is_prebuilt: false, is_fetched: false };
        let said = |wish: Wish<'_>| {
            check(&wish, std::slice::from_ref(&kernel), &cache).expect_err("refused").to_string()
        };
        let four = said(Wish { machine: Some("raspi3b"), cpus: 8, ..wish });
        assert_eq!(four, "--smp 8: the machine raspi3b has 4 CPUs");
        if own_arch() != "arm64" {
            assert!(said(Wish { kvm: true, ..wish }).starts_with("--kvm: this machine's CPUs are"));
        }
        let other = said(Wish { machine: Some("pc"), ..wish });
        assert!(other.contains("a kernel for arm64, and the machine pc is for x86_64"), "{other}");
        let none = folder.path().join("none");
        assert!(said(Wish { modules: Some(&none), ..wish }).starts_with("--modules "));
    }
}
