//! The running kernel: how far it lets itself be preempted, its timers, its build options.

use rtscope_model::{
    doctor::{
        ProblemKind::{Contradiction, NotKnown, Setting},
        Severity,
        Sureness::{Likely, Possible, Sure},
    },
    environment::Preemption,
    time::Nanos,
};

use super::{
    super::{Examined, Rule, Symptom, Topic, mend, preemption::proof},
    listed,
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "kernel-not-rt",
        topic: Topic::Kernel,
        kind: Setting,
        sureness: Sure,
        delay_us: 500,
        why: "without PREEMPT_RT, interrupt handlers, softirqs and sections of the kernel that can't be preempted \
              delay every thread",
        cost: "a few percent of throughput; out-of-tree modules must be rebuilt",
        find: not_real_time,
    },
    Rule {
        code: "preempt-can-be-full",
        topic: Topic::Kernel,
        kind: Setting,
        sureness: Sure,
        delay_us: 5_000,
        why: "the kernel supports full preemption, but runs in a mode in which it can rarely be preempted",
        cost: "a little throughput",
        find: can_be_full,
    },
    Rule {
        code: "preemption-not-known",
        topic: Topic::Kernel,
        kind: NotKnown,
        sureness: Sure,
        delay_us: 0,
        why: "how far the kernel can be preempted decides what it adds to a latency",
        cost: "nothing",
        find: preemption_not_known,
    },
    Rule {
        code: "kernel-name-lies",
        topic: Topic::Kernel,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 500,
        why: "programs and people that look at the release take this kernel for a real-time kernel",
        cost: "nothing",
        find: name_lies,
    },
    Rule {
        code: "rt-sources-disagree",
        topic: Topic::Kernel,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 500,
        why: "one of the sources describes another kernel than the one that runs",
        cost: "nothing",
        find: sources_disagree,
    },
    Rule {
        code: "low-resolution-timers",
        topic: Topic::Time,
        kind: Setting,
        sureness: Sure,
        delay_us: 4_000,
        why: "without high-resolution timers, every sleep ends at the next tick",
        cost: "nothing on today's machines",
        find: low_resolution_timers,
    },
    Rule {
        code: "hz-low",
        topic: Topic::Kernel,
        kind: Setting,
        sureness: Likely,
        delay_us: 10,
        why: "time slices of RR threads and timeouts of drivers have the granularity of a tick; sleeps of threads don't",
        cost: "a few percent of throughput with HZ=1000",
        find: hz_low,
    },
    Rule {
        code: "debug-options",
        topic: Topic::Debug,
        kind: Setting,
        sureness: Sure,
        delay_us: 200,
        why: "these options check locks, memory or calls while the kernel runs, often with interrupts off",
        cost: "less help when the kernel has a bug",
        find: debug_options,
    },
    Rule {
        code: "vendor-options",
        topic: Topic::Board,
        kind: Setting,
        sureness: Possible,
        delay_us: 50,
        why: "TI's documentation lists these options as removed from its real-time kernels; it may not cover this chip",
        cost: "more power and heat; the functions of these options are lost",
        find: vendor_options,
    },
    Rule {
        code: "irqs-not-threaded",
        topic: Topic::Kernel,
        kind: Setting,
        sureness: Likely,
        delay_us: 100,
        why: "interrupt handlers that aren't threads run before every thread, whatever its priority",
        cost: "a few us for each interrupt",
        find: irqs_not_threaded,
    },
];

fn not_real_time(x: &Examined<'_>) -> Option<Symptom> {
    let kernel = &x.environment().kernel;
    let (model, delay_us) = match x.preemption() {
        Preemption::RealTime | Preemption::Unknown => return None,
        model @ (Preemption::None | Preemption::Voluntary) => (model, 5_000),
        model => (model, 500),
    };
    let text = match kernel.preemption {
        // A configuration says that it is, and the kernel itself that it isn't.
        Preemption::RealTime => "the running kernel isn't PREEMPT_RT".to_owned(),
        _ => format!("the kernel is {}, not PREEMPT_RT", model.word()),
    };
    let package = match x.facts.text("proc/device-tree/compatible") {
        Some(_) if named_by_firmware(x).is_some() => {
            "boot the real-time kernel that config.txt names: see pi-kernel-not-booted"
        }
        Some(board) if board.contains("raspberrypi") => {
            "install a PREEMPT_RT kernel: rtscope kernel help; Raspberry Pi OS has linux-image-rpi-v8-rt"
        }
        _ => debian_package(&kernel.machine),
    };
    let symptom =
        Symptom::new(text, package).delay_us(delay_us).shown_by("uname -v", &kernel.version);
    Some(match kernel.config.get("PREEMPT_RT") {
        None if !kernel.config.is_empty() => {
            let source = kernel.config_source.as_deref().unwrap_or("configuration");
            symptom.shown_by(source, "CONFIG_PREEMPT_RT is not set")
        }
        _ => symptom,
    })
}

/// How to install the real-time kernel of a machine's architecture.
fn debian_package(machine: &str) -> &'static str {
    match machine {
        "x86_64" => "install a PREEMPT_RT kernel, on Debian: apt install linux-image-rt-amd64",
        "aarch64" => "install a PREEMPT_RT kernel, on Debian: apt install linux-image-rt-arm64",
        "armv7l" => {
            "install a PREEMPT_RT kernel, on Debian (armhf): apt install linux-image-rt-armmp"
        }
        _ => "install a PREEMPT_RT kernel: rtscope kernel help",
    }
}

fn can_be_full(x: &Examined<'_>) -> Option<Symptom> {
    let kernel = &x.environment().kernel;
    let is_dynamic = kernel.version.contains("PREEMPT_DYNAMIC") || x.built("PREEMPT_DYNAMIC");
    let (mode, option) = match x.preemption() {
        Preemption::None => ("none", "PREEMPT_NONE"),
        Preemption::Voluntary => ("voluntary", "PREEMPT_VOLUNTARY"),
        _ => return None,
    };
    let path = "sys/kernel/debug/sched/preempt";
    is_dynamic.then(|| {
        let text = format!("the preemption mode is {mode}, and preempt=full can change it");
        let symptom = Symptom::new(text, mend::boot(x.facts, "preempt=full"))
            .shown_by("uname -v", &kernel.version);
        match x.facts.text(path) {
            Some(shown) => symptom.shown_by(format!("/{path}"), shown),
            None if x.built(option) => {
                let source = kernel.config_source.as_deref().unwrap_or("configuration");
                symptom.shown_by(source, format!("CONFIG_{option}=y"))
            }
            None => symptom,
        }
    })
}

fn preemption_not_known(x: &Examined<'_>) -> Option<Symptom> {
    let kernel = &x.environment().kernel;
    let text = match x.preemption() {
        Preemption::Unknown => "it isn't known whether the kernel is PREEMPT_RT",
        Preemption::Dynamic => {
            "the preemption mode isn't known: the kernel chooses it when it boots"
        }
        _ => return None,
    };
    let mend =
        "run rtscope doctor as root, with debugfs mounted: mount -t debugfs none /sys/kernel/debug";
    Some(Symptom::new(text, mend).shown_by("uname -v", &kernel.version))
}

/// The line of a Raspberry Pi's `config.txt` that names a real-time kernel, with the path of the file.
pub(super) fn named_by_firmware<'a>(x: &Examined<'a>) -> Option<(&'static str, &'a str)> {
    let is_rt = |line: &&str| {
        let name = line.strip_prefix("kernel=").unwrap_or_default();
        name.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == "rt")
    };
    ["boot/firmware/config.txt", "boot/config.txt"].into_iter().find_map(|path| {
        let mut lines = x.facts.text(path)?.lines().map(str::trim);
        Some((path, lines.rfind(is_rt)?))
    })
}

fn name_lies(x: &Examined<'_>) -> Option<Symptom> {
    let kernel = &x.environment().kernel;
    let release = kernel.release.to_lowercase();
    let parts: Vec<&str> = release.split(['-', '_', '.', '+']).collect();
    let names_rt = |part: &&str| {
        let digits =
            part.strip_prefix("rt").filter(|rest| rest.chars().all(|c| c.is_ascii_digit()));
        digits.is_some() || *part == "realtime" || *part == "preempt_rt"
    };
    let is_real = x.preemption() == Preemption::RealTime;
    let known = x.preemption() != Preemption::Unknown;
    (known && !is_real && parts.iter().any(names_rt)).then(|| {
        let text = format!("the release {} names a real-time kernel, but the kernel isn't PREEMPT_RT", kernel.release);
        let mend = "build it with CONFIG_PREEMPT_RT=y, or install another kernel; rtscope kernel verify checks it";
        // How much it delays is told by kernel-not-rt.
        Symptom::new(text, mend)
            .at_most(Severity::Medium)
            .shown_by("uname -r", &kernel.release)
            .shown_by("uname -v", &kernel.version)
    })
}

fn sources_disagree(x: &Examined<'_>) -> Option<Symptom> {
    let proof = proof(x.facts);
    let (yes, no) = (proof.real_time.first()?, proof.not_real_time.first()?);
    let text = format!(
        "{} says that the kernel is PREEMPT_RT, and {} says that it isn't",
        yes.file, no.file
    );
    let mend = "boot the kernel that the configuration belongs to, and remove files of older kernels from /boot";
    let symptom = Symptom::new(text, mend).at_most(Severity::Medium);
    Some(symptom.shown_by(&yes.file, &yes.value).shown_by(&no.file, &no.value))
}

/// Resolution in ns from which timers fire on ticks.
const TICK_NS: u64 = 1_000;

fn low_resolution_timers(x: &Examined<'_>) -> Option<Symptom> {
    let mend = "boot a kernel with CONFIG_HIGH_RES_TIMERS=y, and without highres=off";
    if let Some(ns) = x.environment().clock.resolution_ns.filter(|&ns| ns > TICK_NS) {
        let text =
            format!("there are no high-resolution timers: the clock's resolution is {}", Nanos(ns));
        return Some(
            Symptom::new(text, mend).delay_us(ns / 1_000).shown_by("clock_getres", Nanos(ns)),
        );
    }
    if x.parameter("highres") == Some("off") {
        let text = "there are no high-resolution timers: the command line has highres=off";
        let mend = mend::boot_without(x.facts, "highres=off");
        return Some(Symptom::new(text, mend).shown_by("/proc/cmdline", "highres=off"));
    }
    // A live clock with a fine resolution is the better source.
    (x.environment().clock.resolution_ns.is_none() && x.not_built("HIGH_RES_TIMERS")).then(|| {
        let source = x.environment().kernel.config_source.as_deref().unwrap_or("configuration");
        let text = "there are no high-resolution timers: the kernel is built without them";
        Symptom::new(text, mend).shown_by(source, "CONFIG_HIGH_RES_TIMERS is not set")
    })
}

fn hz_low(x: &Examined<'_>) -> Option<Symptom> {
    let hz: u32 = x.environment().kernel.config.get("HZ")?.parse().ok()?;
    (hz < 250).then(|| {
        let mend =
            "build the kernel with CONFIG_HZ_1000=y if RR threads share a CPU; else leave it";
        let source = x.environment().kernel.config_source.as_deref().unwrap_or("configuration");
        Symptom::new(format!("the tick rate is {hz} Hz"), mend)
            .shown_by(source, format!("CONFIG_HZ={hz}"))
    })
}

/// Options whose help in the kernel's Kconfig says that they cost run time.
const DEBUG: [&str; 16] = [
    "DEBUG_ATOMIC_SLEEP",
    "DEBUG_KMEMLEAK",
    "DEBUG_LOCK_ALLOC",
    "DEBUG_MUTEXES",
    "DEBUG_OBJECTS",
    "DEBUG_PAGEALLOC_ENABLE_DEFAULT",
    "DEBUG_RT_MUTEXES",
    "DEBUG_SPINLOCK",
    "DEBUG_WW_MUTEX_SLOWPATH",
    "GCOV_PROFILE_ALL",
    "KASAN",
    "KCSAN",
    "KMSAN",
    "LOCK_STAT",
    "PROVE_LOCKING",
    "SLUB_DEBUG_ON",
];

/// Options with a cheap test in each call, or which do their work only when somebody switches them on.
const CHEAP: [&str; 6] =
    ["DEBUG_PREEMPT", "FAULT_INJECTION", "IRQSOFF_TRACER", "KCOV", "LATENCYTOP", "PREEMPT_TRACER"];

fn debug_options(x: &Examined<'_>) -> Option<Symptom> {
    let is_built = |option: &&&str| x.built(option);
    let is_cheap = !DEBUG.iter().any(|option| x.built(option));
    let built = DEBUG.iter().chain(&CHEAP).filter(is_built);
    let options = listed(built.map(|option| format!("CONFIG_{option}")))?;
    let mend =
        "run a kernel that is built without them: rtscope kernel build makes one from a spec";
    let source = x.environment().kernel.config_source.as_deref().unwrap_or("configuration");
    let text = format!("the kernel is built with debug options that cost run time: {options}");
    let symptom = Symptom::new(text, mend).shown_by(source, options);
    Some(if is_cheap { symptom.delay_us(5) } else { symptom })
}

/// What Texas Instruments removed from its real-time kernels: "Linux Application Development on TI Processors Using
/// Linux-RT SDK", section "Kernel Config Differences".
const LEFT_OUT: [&str; 10] = [
    "BT",
    "CPU_FREQ",
    "CPU_IDLE",
    "HOTPLUG_CPU",
    "KEXEC",
    "OPROFILE",
    "PM",
    "SUSPEND",
    "THERMAL",
    "TRANSPARENT_HUGEPAGE",
];

fn vendor_options(x: &Examined<'_>) -> Option<Symptom> {
    let board = x.facts.text("proc/device-tree/compatible").filter(|text| text.contains("ti,"))?;
    let set = |option: &&&str| {
        x.environment().kernel.config.get(**option).is_some_and(|value| value != "n")
    };
    let options = LEFT_OUT.iter().filter(set).map(|option| format!("CONFIG_{option}"));
    let options = listed(options)?;
    let text =
        format!("the kernel has options that TI removed from its real-time kernels: {options}");
    let mend =
        "start from the vendor's configuration for real time, or disable them and measure again";
    Some(Symptom::new(text, mend).shown_by("/proc/device-tree/compatible", board))
}

fn irqs_not_threaded(x: &Examined<'_>) -> Option<Symptom> {
    let is_real = matches!(x.preemption(), Preemption::RealTime | Preemption::Unknown);
    let is_threaded = rtscope_model::cmdline::has_flag(x.line(), "threadirqs");
    let comes = mend::is_pending(x.facts, "threadirqs");
    (!is_real && !is_threaded && !comes && x.built("IRQ_FORCED_THREADING")).then(|| {
        let mend = mend::boot(x.facts, "threadirqs");
        Symptom::new("interrupt handlers don't run as threads", mend)
            .shown_by("/proc/cmdline", "threadirqs is not given")
    })
}
