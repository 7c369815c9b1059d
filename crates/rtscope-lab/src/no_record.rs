//! Why a guest brought no record, by what is known of its kernel and of what it was given.

use std::{fs, path::Path, time::Duration};

use rtscope_model::{guest::Timing, time::Nanos};

use crate::{boot::Ending, console::Trouble, guest_run::GuestRun, kernel_image::damage};

/// On a busy machine a boot may be silent for longer than this.
const BOOT_MIN: Duration = Duration::from_secs(30);

/// A packed kernel unpacks itself to about so many times its size.
const UNPACKED: u64 = 5;

/// What a kernel needs beside its own code and its image.
const KERNEL_MIB: u64 = 32;

/// Options that let a kernel speak on a serial line.
const SERIAL: [&str; 2] = ["SERIAL_8250_CONSOLE", "SERIAL_AMBA_PL011_CONSOLE"];

impl GuestRun {
    /// What happened and what to do about it, as a sentence: the likeliest, where an ending alone leaves
    /// several.
    #[must_use]
    pub fn explain(&self, ending: &Ending) -> String {
        let why = match ending {
            Ending::Mute if self.spec.timing == Timing::Kvm => Some(
                "KVM is available, but does not run the guest: use --wall, or leave --kvm out"
                    .to_owned(),
            ),
            Ending::Mute | Ending::Halted => self.mute(ending),
            Ending::Trouble(Trouble::NoImage) => self.nothing_to_run(),
            Ending::Hung(_) if self.silence < BOOT_MIN => Some(self.impatient()),
            _ => None,
        };
        why.unwrap_or_else(|| ending.sentence())
    }

    fn mute(&self, ending: &Ending) -> Option<String> {
        let nothing = |why: String| Some(format!("the guest sent nothing: {why}"));
        // The file may have been damaged since it was looked at.
        if let Some(why) = fs::read(&self.kernel.file).ok().and_then(|image| damage(&image)) {
            return nothing(format!("{} does not boot: {why}", self.kernel.file.display()));
        }
        if *ending == Ending::Mute && self.silence < BOOT_MIN {
            return nothing(self.impatient());
        }
        if let Some(word) = self.word(&["8250.", "console=", "earlycon", "pl011"]) {
            return nothing(format!(
                "your kernel parameter {word:?} changes the serial line: leave it out"
            ));
        }
        if let Some(why) = self.too_little_memory() {
            return nothing(why);
        }
        if *ending == Ending::Halted {
            return None;
        }
        if self.spec.cpus > 1 && self.spec.timing.is_virtual() {
            return nothing(format!(
                "it has {} CPUs in virtual time, and some kernels, such as those of Debian 12, don't boot that way: \
                 leave --smp out, or try --wall",
                self.spec.cpus
            ));
        }
        self.kernel.config.as_ref().filter(|path| path.is_file())?;
        if !SERIAL.iter().any(|option| self.kernel.has_option(option)) {
            return nothing(
                "the kernel has no serial support: its configuration has neither \
                 CONFIG_SERIAL_8250_CONSOLE nor CONFIG_SERIAL_AMBA_PL011_CONSOLE"
                    .to_owned(),
            );
        }
        nothing(format!(
            "the kernel has serial support (its configuration says so) and {} MiB of memory, so it \
             hangs before it has a console, or does not boot on the machine {}: try another machine with \
             --machine, or more than {} s with --silence",
            self.memory(),
            self.machine.name,
            self.silence.as_secs()
        ))
    }

    fn nothing_to_run(&self) -> Option<String> {
        let nothing = |why: String| Some(format!("the kernel found nothing to run: {why}"));
        if let Some(word) =
            self.word(&["rdinit=", "init=", "root=", "noinitrd", "initcall_blacklist="])
        {
            return nothing(format!(
                "your kernel parameter {word:?} keeps it from starting the guest's program: leave it out"
            ));
        }
        if !self.kernel.has_option("BLK_DEV_INITRD") {
            return None;
        }
        nothing(self.too_little_memory().unwrap_or_else(|| {
            format!(
                "it has support for an initramfs (its configuration says so), but did not load this one: \
                 try more memory than {} MiB (--memory), and read the output of its console",
                self.memory()
            )
        }))
    }

    fn impatient(&self) -> String {
        self.too_little_memory().unwrap_or_else(|| {
            format!(
                "it may be silent for only {}, but a boot can take longer on a busy machine: give it more \
                 time with --silence",
                Nanos(self.silence.as_nanos() as u64)
            )
        })
    }

    /// Why a kernel may print nothing for long.
    pub(crate) fn why_mute(&self) -> String {
        self.too_little_memory().map_or_else(
            || {
                "Other kernels print something within 15 s. Its image may be damaged, or it has no serial console"
                    .to_owned()
            },
            |why| format!("Probably {why}"),
        )
    }

    /// None if the guest has the memory that it needs.
    fn too_little_memory(&self) -> Option<String> {
        let (given, needed) = (u64::from(self.memory()), self.needed_mib());
        (given < needed).then(|| {
            format!(
                "it has too little memory to boot: it has {given} MiB, and kernel and image need about \
                 {needed}; give it more with --memory"
            )
        })
    }

    /// A word of the kernel command line that was asked for and begins as one of these.
    fn word(&self, beginnings: &[&str]) -> Option<&str> {
        let begins = |word: &&String| beginnings.iter().any(|start| word.starts_with(start));
        self.kernel.append.iter().find(begins).map(String::as_str)
    }

    fn memory(&self) -> u32 {
        self.spec.memory_mib.unwrap_or(self.machine.memory_mib)
    }

    /// What the guest needs to unpack its kernel and its image, roughly: the image lies there twice.
    fn needed_mib(&self) -> u64 {
        let mib = |path: &Path| fs::metadata(path).map_or(0, |there| there.len() >> 20);
        mib(&self.kernel.file) * UNPACKED + mib(&self.image) * 2 + KERNEL_MIB
    }
}

/// Runs for tests.
#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::{
        images::ImageInUse, kernel_image::samples::bz_image, kernel_ref::KernelRef,
        kernel_under_test::KernelUnderTest, machine::Machine, qemu::GuestSpec,
    };

    /// A run with a kernel of 1 MiB, with these words and this configuration.
    pub(crate) fn run(folder: &Path, words: &[&str], config: Option<&str>) -> GuestRun {
        let (kernel, configured) = (folder.join("bzImage"), folder.join("config"));
        fs::write(&kernel, bz_image("6.1.0", 0x1_0000)).expect("written");
        fs::write(&configured, config.unwrap_or_default()).expect("written");
        GuestRun {
            kernel: KernelUnderTest {
                label: "mine".to_owned(),
                reference: KernelRef::parse("path=bzImage").expect("sound"),
                file: kernel,
                sha256: String::new(),
                unpacked: None,
                arch: "x86_64".to_owned(),
                release: None,
                config: config.map(|_| configured),
                dtbs: None,
                device_tree: None,
                append: words.iter().map(|word| (*word).to_owned()).collect(),
                identity: None,
            },
            machine: Machine::find("x86-64").expect("shipped"),
            spec: GuestSpec::default(),
            image: folder.join("none"),
            image_sha256: String::new(),
            held: ImageInUse::default(),
            plan: String::new(),
            planned: Duration::ZERO,
            silence: Duration::from_secs(240),
            plugin: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{samples::run, *};
    use crate::kernel_image::samples::bz_image;

    #[test]
    fn silence_is_explained_by_what_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let has = |run: &GuestRun, part: &str| {
            let said = run.explain(&Ending::Mute);
            assert!(said.contains(part), "{said}");
        };
        let serial = Some("CONFIG_SERIAL_8250_CONSOLE=y\n");
        has(&run(folder.path(), &[], Some("CONFIG_HZ=250\n")), "has no serial support");
        has(&run(folder.path(), &[], serial), "has serial support");
        has(&run(folder.path(), &["8250.nr_uarts=0"], serial), "\"8250.nr_uarts=0\"");
        let mut small = run(folder.path(), &[], serial);
        small.spec.memory_mib = Some(16);
        has(&small, "--memory");
        let silence = Duration::from_millis(1);
        has(&GuestRun { silence, ..run(folder.path(), &[], serial) }, "silent for only 1 ms");
        has(&run(folder.path(), &[], None), "little memory to boot");
        let mut kvm = run(folder.path(), &[], serial);
        kvm.spec.timing = Timing::Kvm;
        has(&kvm, "KVM is available, but does not run the guest: use --wall");
        let mut two = run(folder.path(), &[], serial);
        two.spec.cpus = 2;
        has(&two, "2 CPUs in virtual time");
        two.spec.timing = Timing::Wall;
        has(&two, "has serial support");
        let halted = GuestRun { silence, ..run(folder.path(), &[], None) }.explain(&Ending::Halted);
        assert!(halted.contains("CPU halted"), "its silence is not why: {halted}");
        let cut = run(folder.path(), &[], serial);
        fs::write(&cut.kernel.file, &bz_image("6.1.0", 0x1_0000)[..4096]).expect("written");
        has(&cut, "is cut short, with 4096 of 1051136 bytes");
    }

    #[test]
    fn nothing_to_run_is_no_lack_of_support_where_there_is_support() {
        let folder = tempfile::tempdir().expect("a folder");
        let said = |words: &[&str], config| {
            run(folder.path(), words, config).explain(&Ending::Trouble(Trouble::NoImage))
        };
        let config = Some("CONFIG_BLK_DEV_INITRD=y\n");
        assert!(said(&["rdinit=/nope"], config).contains("\"rdinit=/nope\""));
        assert!(said(&[], config).contains("has support for an initramfs"));
        assert!(said(&[], Some("")).contains("without support for an initramfs"));
    }
}
