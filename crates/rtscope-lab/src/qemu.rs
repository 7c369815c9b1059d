//! The emulator's command line.

use std::path::{Path, PathBuf};

use rtscope_model::{
    guest::{self, Timing},
    time::Nanos,
};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// What a guest is given beside its kernel, its machine and its files. It stands so in `lab.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestSpec {
    /// How time passes.
    #[serde(flatten)]
    pub timing: Timing,
    /// Seed of everything that is random in the guest.
    pub seed: u64,
    /// CPUs.
    pub cpus: u32,
    /// Memory; none for the machine's own.
    pub memory_mib: Option<u32>,
    /// Whether the guest records its kernel's events around the worst wake-ups.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub events: bool,
    /// The expiry to aim at, on the guest's `CLOCK_MONOTONIC`; 0 for none, in a run that is the same up to any aim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aim_ns: Option<u64>,
}

impl Default for GuestSpec {
    fn default() -> GuestSpec {
        GuestSpec {
            timing: Timing::Virtual { shift: SHIFT_DEFAULT },
            seed: 1,
            cpus: 1,
            memory_mib: None,
            events: false,
            aim_ns: None,
        }
    }
}

impl GuestSpec {
    /// Whether the emulator logs a run on a machine, so that it can be replayed to the bit: in virtual time with
    /// one CPU. It refuses to log several.
    #[must_use]
    pub fn is_logged(&self, machine: &Machine) -> bool {
        self.timing.is_virtual() && machine.cpus.unwrap_or(self.cpus) == 1
    }
}

/// The shift unless the user asks for another: 4 ns for an instruction. The emulator executes 200 to 250 million
/// instructions a second, so that a second in which a guest computes takes about a second of the host, too.
pub const SHIFT_DEFAULT: u8 = 2;

/// The highest shift at which guests work.
pub const SHIFT_MAX: u8 = 5;

/// Instructions of a late wake-up in a guest: 7,600 of tiny-6.12-rt under the loads of lab-quick.
const WAKE_UP_INSTRUCTIONS: u64 = 8_000;

/// Reads a shift of virtual time.
///
/// # Errors
///
/// It is no number up to [`SHIFT_MAX`]. Of a higher one, why no guest works with it: at 6 the sampler of
/// lab-quick no longer sleeps or its loads never work, and from 7 on kernels hang before they speak.
pub fn parse_shift(text: &str) -> Result<u8, String> {
    let shift: u8 = text.parse().map_err(|_| format!("write a number from 0 to {SHIFT_MAX}"))?;
    if shift <= SHIFT_MAX {
        return Ok(shift);
    }
    let ns = 1_u64.checked_shl(shift.into()).unwrap_or(u64::MAX);
    let takes = |instructions| Nanos(ns.saturating_mul(instructions));
    Err(format!(
        "an instruction would take {}, and a late wake-up (about {WAKE_UP_INSTRUCTIONS} instructions) {}. Kernels that \
         slow hang, or leave no time for the sampler and the loads: take 0 to {SHIFT_MAX}",
        takes(1),
        takes(WAKE_UP_INSTRUCTIONS)
    ))
}

/// What the emulator does with the log of a run in virtual time: everything in it that doesn't follow
/// from the inputs, such as the order in which the emulator's two threads took their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log<'a> {
    /// Writes it to a file.
    Record(&'a Path),
    /// Makes the run again that a file holds.
    Replay(&'a Path),
}

impl Log<'_> {
    /// What follows the emulator's `-icount shift=N,sleep=off`. A comma in a file's name is doubled.
    fn icount_option(self) -> String {
        let (verb, path) = match self {
            Log::Record(path) => ("record", path),
            Log::Replay(path) => ("replay", path),
        };
        format!(",rr={verb},rrfile={}", path.display().to_string().replace(',', ",,"))
    }
}

/// What the emulator is told, beside the machine.
#[derive(Clone, Debug)]
pub struct CommandLine<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// What the guest is given.
    pub spec: GuestSpec,
    /// The kernel.
    pub kernel: &'a Path,
    /// Whether that is the kernel as it unpacks itself.
    pub is_unpacked: bool,
    /// The guest's file system.
    pub image: &'a Path,
    /// The device tree.
    pub device_tree: Option<&'a Path>,
    /// Words of the kernel command line, after the lab's own.
    pub append: &'a [String],
    /// File of the console.
    pub console: &'a Path,
    /// File of the record's line.
    pub channel: &'a Path,
    /// The run's log, where the emulator can write one: see [`GuestSpec::is_logged`].
    pub log: Option<Log<'a>>,
    /// What watches the guest's instructions, and changes nothing in the guest.
    pub plugin: Option<&'a Plugin>,
}

/// The lab's plugin of the emulator, and what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The shared object.
    pub file: PathBuf,
    /// Where it writes the instructions before late wake-ups.
    pub out: PathBuf,
    /// An instruction takes `2^shift` ns.
    pub shift: u8,
    /// Smaller latencies, or shorter stretches, are left out.
    pub above_ns: u64,
    /// Further arguments.
    pub more: Vec<(&'static str, String)>,
}

impl Plugin {
    /// What follows the emulator's `-plugin`. A comma in a file's name is doubled.
    pub(crate) fn option(&self) -> String {
        let name = |path: &Path| path.display().to_string().replace(',', ",,");
        let (file, out) = (name(&self.file), name(&self.out));
        let more: String = self.more.iter().map(|(key, value)| format!(",{key}={value}")).collect();
        format!("file={file},out={out},shift={},above={}{more}", self.shift, self.above_ns)
    }
}

impl CommandLine<'_> {
    /// The kernel command line. Address randomisation is off and random numbers come from the
    /// emulator's seed: what differs between two seeds is what the agent shifts, and the length of a word.
    #[must_use]
    pub fn kernel_line(&self) -> String {
        let machine = self.machine;
        let mut words = vec![
            format!("console={}", machine.console),
            "quiet".to_owned(),
            "panic=-1".to_owned(),
            "norandmaps".to_owned(),
            // A serial port without a wire answers so fast that the kernel takes its interrupts for
            // stray ones and switches them off.
            "noirqdebug".to_owned(),
            // The kernel would check its ciphers first: a quarter of the virtual time of a boot.
            "cryptomgr.notests".to_owned(),
        ];
        words.extend(machine.append.iter().cloned());
        if self.spec.timing.is_virtual() && machine.cpus.is_some_and(|cpus| cpus > self.spec.cpus) {
            words.push(format!("maxcpus={}", self.spec.cpus));
        }
        words.push(format!("rtscope.channel={}", machine.channel));
        words.push(format!("rtscope.seed={}", self.spec.seed));
        // Its length moves what lies in memory behind it, as any word would.
        words.push(format!("rtscope.layout={}", "x".repeat((self.spec.seed * 37 % 128) as usize)));
        if self.spec.events {
            words.push(guest::EVENTS_WORD.to_owned());
        }
        words.extend(self.append.iter().cloned());
        words.join(" ")
    }

    /// The words after the program's name.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let machine = self.machine;
        let path = |path: &Path| path.display().to_string();
        let mut words: Vec<String> = Vec::new();
        let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
        match self.spec.timing {
            Timing::Virtual { shift } => {
                add(
                    "-icount",
                    format!(
                        "shift={shift},sleep=off{}",
                        self.log.map_or(String::new(), Log::icount_option)
                    ),
                );
                add("-rtc", "base=2020-01-01,clock=vm".to_owned());
            }
            Timing::Wall => add("-accel", "tcg,thread=multi".to_owned()),
            Timing::Kvm => add("-accel", "kvm".to_owned()),
        }
        add("-seed", self.spec.seed.to_string());
        let cpu = machine.cpu_kvm.as_ref().filter(|_| self.spec.timing == Timing::Kvm);
        if let Some(cpu) = cpu.or(machine.cpu.as_ref()) {
            add("-cpu", cpu.clone());
        }
        add("-smp", machine.cpus.unwrap_or(self.spec.cpus).to_string());
        add("-m", format!("{}M", self.spec.memory_mib.unwrap_or(machine.memory_mib)));
        add("-display", "none".to_owned());
        add("-monitor", "none".to_owned());
        add("-nic", "none".to_owned());
        add("-kernel", path(self.kernel));
        add("-initrd", path(self.image));
        if let Some(tree) = self.device_tree {
            add("-dtb", path(tree));
        }
        add("-append", self.kernel_line());
        if let Some(plugin) = self.plugin {
            add("-plugin", plugin.option());
        }
        words.push("-no-reboot".to_owned());
        let files = |word: &String| {
            let word = word.replace("{console}", &path(self.console));
            word.replace("{channel}", &path(self.channel))
        };
        words.extend(machine.arguments.iter().map(files));
        words
    }

    /// [`CommandLine::arguments`] without the names of files, which say nothing about the run: what is
    /// hashed in their place are the files' contents. A run and its replay have the same identity.
    #[must_use]
    pub fn identity(&self) -> Vec<String> {
        let place = |name: &'static str| Path::new(name);
        let words = CommandLine {
            kernel: place(if self.is_unpacked { "UNPACKED-KERNEL" } else { "KERNEL" }),
            image: place("IMAGE"),
            device_tree: self.device_tree.map(|_| place("DEVICE-TREE")),
            console: place("CONSOLE"),
            channel: place("CHANNEL"),
            log: self.log.map(|_| Log::Record(place("LOG"))),
            plugin: None,
            ..self.clone()
        };
        words.arguments()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_line<'a>(
        machine: &'a Machine,
        timing: Timing,
        append: &'a [String],
    ) -> CommandLine<'a> {
        CommandLine {
            machine,
            spec: GuestSpec { timing, seed: 7, ..GuestSpec::default() },
            kernel: Path::new("/k/vmlinuz"),
            is_unpacked: false,
            image: Path::new("/i/image"),
            device_tree: None,
            append,
            console: Path::new("/o/console.txt"),
            channel: Path::new("/o/channel"),
            log: Some(Log::Record(Path::new("/o/log"))),
            plugin: None,
        }
    }

    #[test]
    fn a_plugin_is_no_part_of_the_identity_and_a_comma_in_its_file_is_doubled() {
        let machine = Machine::find("x86-64").expect("shipped");
        let plugin = Plugin {
            file: PathBuf::from("/c/blocks.so"),
            out: PathBuf::from("/o,1/blocks"),
            shift: 2,
            above_ns: 100_000,
            more: vec![("preempts", "1".to_owned())],
        };
        let first = command_line(&machine, Timing::Virtual { shift: 2 }, &[]);
        let watched = CommandLine { plugin: Some(&plugin), ..first.clone() };
        assert_eq!(first.identity(), watched.identity());
        let line = watched.arguments().join(" ");
        let option = "-plugin file=/c/blocks.so,out=/o,,1/blocks,shift=2,above=100000,preempts=1";
        assert!(line.contains(option), "{line}");
    }

    fn line(machine: &str, timing: Timing) -> String {
        let machine = Machine::find(machine).expect("shipped");
        command_line(&machine, timing, &["preempt=full".to_owned()]).arguments().join(" ")
    }

    #[test]
    fn a_shift_that_no_guest_works_with_is_refused_with_the_reason() {
        for shift in 0..=5 {
            assert_eq!(parse_shift(&shift.to_string()), Ok(shift));
        }
        // By hand: 2^10 ns, and 8000 of them.
        let said = parse_shift("10").expect_err("too slow");
        assert!(
            said.contains("take 1.02 us, and") && said.contains("instructions) 8.19 ms"),
            "{said}"
        );
        for text in ["6", "7", "8", "9", "64", "255"] {
            assert!(parse_shift(text).expect_err(text).ends_with("take 0 to 5"), "{text}");
        }
        for text in ["-1", "fast", "256", ""] {
            assert!(parse_shift(text).expect_err(text).contains("a number from 0 to 5"), "{text}");
        }
    }

    #[test]
    fn virtual_time_fixes_everything_that_could_differ() {
        let line = line("x86-64", Timing::Virtual { shift: 1 });
        for word in [
            "-icount shift=1,sleep=off,rr=record,rrfile=/o/log",
            "-rtc base=2020-01-01,clock=vm",
            "-seed 7",
            "-smp 1",
            "norandmaps",
            "nokaslr",
            "tsc=reliable",
            "rtscope.seed=7",
            "rtscope.channel=ttyS1",
            "preempt=full",
            "-serial file:/o/console.txt -serial file:/o/channel",
        ] {
            assert!(line.contains(word), "{word} is missing: {line}");
        }
    }

    #[test]
    fn the_host_s_clock_needs_no_instruction_counter() {
        let wall = line("x86-64", Timing::Wall);
        assert!(!wall.contains("icount") && wall.contains("tcg,thread=multi"), "{wall}");
        let kvm = line("x86-64", Timing::Kvm);
        assert!(kvm.contains("-accel kvm") && kvm.contains("-cpu host"), "{kvm}");
    }

    #[test]
    fn a_machine_with_a_fixed_number_of_cpus_starts_one_in_virtual_time() {
        let line = line("raspi3b", Timing::Virtual { shift: 1 });
        assert!(line.contains("-smp 4") && line.contains("maxcpus=1"), "{line}");
    }

    #[test]
    fn where_files_lie_is_no_part_of_the_identity() {
        let machine = Machine::find("x86-64").expect("shipped");
        let first = command_line(&machine, Timing::Wall, &[]);
        let elsewhere = CommandLine { kernel: Path::new("/elsewhere"), ..first.clone() };
        assert_eq!(first.identity(), elsewhere.identity());
        assert_ne!(
            first.identity(),
            CommandLine { spec: GuestSpec { seed: 8, ..first.spec }, ..first.clone() }.identity()
        );
        let unpacked = CommandLine { is_unpacked: true, ..first.clone() };
        assert_ne!(first.identity(), unpacked.identity(), "it boots in another way");
    }

    #[test]
    fn only_one_cpu_in_virtual_time_is_logged() {
        let is_logged = |timing, machine: &str, cpus| {
            let machine = Machine::find(machine).expect("shipped");
            GuestSpec { timing, cpus, ..GuestSpec::default() }.is_logged(&machine)
        };
        let virtual_time = Timing::Virtual { shift: 1 };
        assert!(is_logged(virtual_time, "x86-64", 1));
        assert!(!is_logged(virtual_time, "x86-64", 2));
        assert!(!is_logged(virtual_time, "raspi3b", 1), "it has four");
        assert!(!is_logged(Timing::Wall, "x86-64", 1));
    }

    #[test]
    fn a_replay_is_the_same_run_with_the_log_read() {
        let machine = Machine::find("x86-64").expect("shipped");
        let first = command_line(&machine, Timing::Virtual { shift: 1 }, &[]);
        let again = CommandLine { log: Some(Log::Replay(Path::new("/o,1/log"))), ..first.clone() };
        assert_eq!(first.identity(), again.identity());
        let line = again.arguments().join(" ");
        assert!(line.contains("-icount shift=1,sleep=off,rr=replay,rrfile=/o,,1/log"), "{line}");
        let unlogged = CommandLine { log: None, ..first.clone() }.arguments().join(" ");
        assert!(unlogged.contains("-icount shift=1,sleep=off -rtc"), "{unlogged}");
    }
}
