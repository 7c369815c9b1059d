//! Debian packages that a chore uses: named with their reason, installed when we may.

use std::{ffi::OsString, path::Path, process::Command, time::Duration};

use anyhow::Result;

use crate::shell;

/// How long apt may take.
const LIMIT: Duration = Duration::from_secs(15 * 60);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    /// A program of it, or the path of a file: where it is found, the package isn't missing, whoever
    /// installed it.
    pub(crate) sign: &'static str,
    pub(crate) reason: &'static str,
}

impl Package {
    /// Whether its sign isn't here.
    pub(crate) fn is_missing(&self) -> bool {
        match self.sign.starts_with('/') {
            true => !Path::new(self.sign).exists(),
            false => shell::find(self.sign).is_none(),
        }
    }
}

/// The reasons of several.
const KERNEL: &str = "builds kernels";
const REBOOT: &str = "makes the disk and the boot loader of the guest that reboots";
const SLURM: &str = "hands out nodes and runs batches, in a cluster of this machine alone";
const SKELETON: &str = "makes a skeleton that `rtscope new` wrote into a program";

/// What the tests use, beyond what every Debian has, in alphabetical order.
pub(crate) const OF_TESTS: &[Package] = &[
    Package { name: "bc", sign: "bc", reason: KERNEL },
    Package { name: "bison", sign: "bison", reason: KERNEL },
    Package {
        name: "busybox-static",
        sign: "/usr/share/doc/busybox-static",
        reason: "is the system of the guest that reboots",
    },
    Package {
        name: "chromium-headless-shell",
        sign: "chromium-headless-shell",
        reason: "is the real browser that opens the pages",
    },
    Package { name: "curl", sign: "curl", reason: "resumes the download of a source" },
    Package {
        name: "dosfstools",
        sign: "mkfs.vfat",
        reason: "makes the boot partition that a kernel is installed on",
    },
    Package { name: "e2fsprogs", sign: "/usr/sbin/mke2fs", reason: REBOOT },
    Package { name: "flex", sign: "flex", reason: KERNEL },
    Package { name: "g++", sign: "g++", reason: SKELETON },
    Package { name: "gcc", sign: "gcc", reason: KERNEL },
    Package { name: "git", sign: "git", reason: "fetches a source from a git tree" },
    Package { name: "gnat", sign: "gnatmake", reason: SKELETON },
    Package {
        name: "gnuplot-nox",
        sign: "gnuplot",
        reason: "plots our output by other people's recipes",
    },
    Package { name: "grub-common", sign: "grub-mkrescue", reason: REBOOT },
    Package { name: "grub-pc-bin", sign: "/usr/lib/grub/i386-pc/moddep.lst", reason: REBOOT },
    Package { name: "iperf3", sign: "iperf3", reason: "receives what rtscope throughput sends" },
    Package {
        name: "iproute2",
        sign: "ip",
        reason: "lays the wire between two namespaces that the network load uses",
    },
    Package { name: "kmod", sign: "depmod", reason: KERNEL },
    Package {
        name: "lava-common",
        sign: "/usr/lib/python3/dist-packages/lava_common/__init__.py",
        reason: "validates the jobs that we write for LAVA",
    },
    Package { name: "libc6-dev", sign: "/usr/include/stdio.h", reason: KERNEL },
    Package { name: "libelf-dev", sign: "/usr/include/libelf.h", reason: KERNEL },
    Package { name: "lintian", sign: "lintian", reason: "checks the Debian package" },
    Package { name: "lz4", sign: "lz4", reason: KERNEL },
    Package { name: "make", sign: "make", reason: KERNEL },
    Package { name: "mtools", sign: "mformat", reason: REBOOT },
    Package { name: "munge", sign: "/usr/sbin/munged", reason: SLURM },
    Package { name: "npm", sign: "npm", reason: "fetches axe-core, which checks the pages" },
    Package { name: "openssh-client", sign: "ssh", reason: "reaches the places of a fleet" },
    Package {
        name: "openssh-server",
        sign: "/usr/sbin/sshd",
        reason: "is what answers at the places of a fleet",
    },
    Package { name: "patch", sign: "patch", reason: "applies real-time patches" },
    Package { name: "perl", sign: "prove", reason: "reads our KTAP as TAP" },
    Package { name: "python3", sign: "python3", reason: SKELETON },
    Package {
        name: "python3-junitparser",
        sign: "/usr/lib/python3/dist-packages/junitparser/__init__.py",
        reason: "reads our JUnit XML",
    },
    Package {
        name: "python3-prometheus-client",
        sign: "/usr/lib/python3/dist-packages/prometheus_client/openmetrics/parser.py",
        reason: "reads our OpenMetrics text",
    },
    Package {
        name: "python3-yaml",
        sign: "/usr/lib/python3/dist-packages/yaml/__init__.py",
        reason: "reads the recipes for CI servers",
    },
    Package {
        name: "qemu-system-x86",
        sign: "qemu-system-x86_64",
        reason: "boots the kernels that the lab compares",
    },
    Package {
        name: "rt-tests",
        sign: "cyclictest",
        reason: "has cyclictest and hackbench, which we are compared with",
    },
    Package { name: "slurm-client", sign: "sbatch", reason: SLURM },
    Package { name: "slurmctld", sign: "/usr/sbin/slurmctld", reason: SLURM },
    Package { name: "slurmd", sign: "/usr/sbin/slurmd", reason: SLURM },
    Package { name: "trace-cmd", sign: "trace-cmd", reason: "reads what rtscope export writes" },
    Package {
        name: "valgrind",
        sign: "valgrind",
        reason: "counts instructions of the sampler's loop, and simulates branches for rtscope stat",
    },
    Package { name: "xorriso", sign: "xorriso", reason: REBOOT },
    Package { name: "xz-utils", sign: "xz", reason: "unpacks sources" },
];

/// Installs what is missing when we may; else says how to. What is still missing afterwards is no
/// failure here: a test that needs it skips itself, and an unexpected skip fails.
pub(crate) fn set_up(packages: &[Package]) -> String {
    let missing: Vec<Package> = packages.iter().filter(|p| p.is_missing()).copied().collect();
    if missing.is_empty() {
        return "nothing is missing".to_owned();
    }
    for package in &missing {
        println!("{} is missing: it {}", package.name, package.reason);
    }
    let by_hand = format!("apt-get install --no-install-recommends {}", names(&missing));
    let Some(prefix) = right_to_install() else {
        return format!("install what is missing: sudo {by_hand}");
    };
    let words = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"];
    let apt_get: Vec<OsString> = prefix.iter().chain(&words).map(OsString::from).collect();
    match install(&apt_get, &missing) {
        Ok(()) => format!("installed {}", names(&missing)),
        Err(e) => format!("{by_hand} did not work: {e:#}"),
    }
}

fn names(packages: &[Package]) -> String {
    packages.iter().map(|package| package.name).collect::<Vec<_>>().join(" ")
}

/// What to put before apt-get, when this is a Debian and we may install: nothing for root, sudo
/// where it doesn't ask for a password.
fn right_to_install() -> Option<&'static [&'static str]> {
    shell::find("apt-get")?;
    let says = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    if says("id", &["-u"]).as_deref() == Some("0") {
        return Some(&[]);
    }
    says("sudo", &["-n", "true"]).map(|_| &["sudo", "-n"][..])
}

/// Another run of the tests, or the machine's own update, may install packages at the same time. apt-get waits for up
/// to this many seconds.
const PATIENCE: [&str; 2] = ["-o", "DPkg::Lock::Timeout=600"];

/// Installs with an `apt-get` that is called by these words.
fn install(apt_get: &[OsString], packages: &[Package]) -> Result<()> {
    let run = |words: &[&str]| {
        let mut command = Command::new(&apt_get[0]);
        command.args(&apt_get[1..]).args(["--quiet", "--yes"]).args(PATIENCE).args(words);
        shell::output(&mut command, LIMIT)
    };
    let mut words = vec!["install", "--no-install-recommends"];
    words.extend(packages.iter().map(|package| package.name));
    // The lists of a fresh machine are missing or old: fetch them when the first try fails.
    if run(&words).is_err() {
        run(&["update"])?;
        run(&words)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use rtscope_testing::executable;

    use super::*;

    /// An apt-get that notes its words, and knows no package before it was told to update.
    struct Fake {
        folder: tempfile::TempDir,
    }

    impl Fake {
        fn new(lists: &str) -> Fake {
            let folder = tempfile::tempdir().expect("a folder");
            let script = format!(
                "#!/bin/sh\ncd {0} && echo \"$*\" >> said\ncase \"$*\" in\n\
                 *update) touch lists;;\n*) test -e {lists} || {{ echo 'E: Unable to locate' >&2; exit 100; }};;\n\
                 esac\n",
                folder.path().display()
            );
            let program = folder.path().join("apt-get");
            executable::write(&program, &script);
            Fake { folder }
        }

        fn program(&self) -> PathBuf {
            self.folder.path().join("apt-get")
        }

        fn said(&self) -> String {
            fs::read_to_string(self.folder.path().join("said")).expect("it was called")
        }
    }

    #[test]
    fn a_fresh_machine_fetches_the_lists_first_and_an_old_one_does_not() {
        let words = format!("--quiet --yes {}", PATIENCE.join(" "));
        let asked = format!("{words} install --no-install-recommends bc bison\n");
        let fresh = Fake::new("lists");
        install(&[fresh.program().into()], &OF_TESTS[..2]).expect("installed");
        assert_eq!(fresh.said(), format!("{asked}{words} update\n{asked}"));
        let old = Fake::new("/");
        install(&["env".into(), "A=b".into(), old.program().into()], &OF_TESTS[..2])
            .expect("installed");
        assert_eq!(old.said(), asked);
        let none = Fake::new("never");
        let said =
            install(&[none.program().into()], &OF_TESTS[..2]).expect_err("fails").to_string();
        assert!(said.contains("Unable to locate"), "{said}");
    }

    #[test]
    fn packages_are_listed_once_and_in_order() {
        assert!(OF_TESTS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(names(OF_TESTS).starts_with("bc bison busybox-static "));
    }

    #[test]
    fn a_package_is_missing_without_its_program_or_file() {
        let package = |sign| Package { name: "x", sign, reason: "is a test" };
        assert!(!package("sh").is_missing() && !package("/proc/self").is_missing());
        assert!(package("no-such-program").is_missing() && package("/no/such/file").is_missing());
    }
}
