//! What is below the kernel and around it: firmware, host, container, board, network card.

use rtscope_model::doctor::{
    ProblemKind::{Contradiction, NotKnown, Setting},
    Severity,
    Sureness::{Likely, Sure},
};

use super::{
    super::{Examined, Rule, Symptom, Topic, mend},
    kernel::named_by_firmware,
    listed,
};
use crate::number::counted;

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "smi-counted",
        topic: Topic::Firmware,
        kind: Setting,
        sureness: Sure,
        delay_us: 200,
        why: "in a system management interrupt, the firmware stops all CPUs and no kernel can prevent it",
        cost: "the functions of the firmware that you disable, for example legacy USB",
        find: smi,
    },
    Rule {
        code: "smi-services",
        topic: Topic::Firmware,
        kind: Setting,
        sureness: Likely,
        delay_us: 200,
        why: "these services ask the firmware now and then, which can cause system management interrupts",
        cost: "updates and error logs of the firmware come only when you ask",
        find: smi_services,
    },
    Rule {
        code: "smi-not-known",
        topic: Topic::Firmware,
        kind: NotKnown,
        sureness: Sure,
        delay_us: 0,
        why: "in a system management interrupt, the firmware stops all CPUs and no kernel can prevent it",
        cost: "nothing",
        find: smi_not_known,
    },
    Rule {
        code: "virtual-machine",
        topic: Topic::Virtual,
        kind: Setting,
        sureness: Sure,
        delay_us: 1_000,
        why: "the host decides when a CPU of the guest runs, and no priority in the guest changes it",
        cost: "the host's CPUs aren't shared with other guests any more",
        find: virtual_machine,
    },
    Rule {
        code: "steal-time",
        topic: Topic::Virtual,
        kind: Setting,
        sureness: Sure,
        delay_us: 4_000,
        why: "stolen time is time in which a CPU of the guest wanted to run and the host ran something else",
        cost: "the host's CPUs aren't shared with other guests any more",
        find: steal,
    },
    Rule {
        code: "host-of-guests",
        topic: Topic::Virtual,
        kind: Setting,
        sureness: Likely,
        delay_us: 100,
        why: "a guest's threads take CPU time, and its entries and exits disturb the caches of all CPUs that they run on",
        cost: "the guests share fewer CPUs",
        find: host,
    },
    Rule {
        code: "container",
        topic: Topic::Virtual,
        kind: Setting,
        sureness: Sure,
        delay_us: 10,
        why: "a container has its host's kernel: settings, interrupts and other real-time threads are the host's",
        cost: "nothing",
        find: container,
    },
    Rule {
        code: "dwc-otg",
        topic: Topic::Board,
        kind: Setting,
        sureness: Likely,
        delay_us: 10,
        why: "the USB driver dwc_otg interrupts a CPU 8,000 times in each second while a device is connected",
        cost: "the driver dwc2 doesn't work with every USB device",
        find: dwc_otg,
    },
    Rule {
        code: "pi-kernel-not-booted",
        topic: Topic::Board,
        kind: Contradiction,
        sureness: Likely,
        delay_us: 500,
        why: "config.txt names a real-time kernel, and another one runs",
        cost: "a reboot",
        find: pi_kernel,
    },
    Rule {
        code: "optee-rng",
        topic: Topic::Board,
        kind: Setting,
        sureness: Likely,
        delay_us: 200,
        why: "each read from this hardware generator calls OP-TEE, and the CPU may not take interrupts during the call",
        cost: "the kernel loses this source of entropy",
        find: optee,
    },
    Rule {
        code: "interrupt-pacing",
        topic: Topic::Network,
        kind: Setting,
        sureness: Sure,
        delay_us: 50,
        why: "a packet can wait that long before the card interrupts",
        cost: "more interrupts under load",
        find: pacing,
    },
];

fn smi(x: &Examined<'_>) -> Option<Symptom> {
    let (cpu, count) = x
        .facts
        .smi_counts
        .iter()
        .max_by_key(|(_, count)| **count)
        .filter(|(_, count)| **count > 0)?;
    let uptime: Option<f64> =
        x.facts.text("proc/uptime").and_then(|text| text.split(' ').next()?.parse().ok());
    let rate = uptime
        .filter(|s| *s > 0.0)
        .map(|s| format!(", {:.1} per hour of uptime", *count as f64 * 3_600.0 / s));
    let text = format!(
        "CPU {cpu} counted {} (SMI{}) since its reset{}; some come while the firmware starts",
        counted(*count, "system management interrupt"),
        if *count == 1 { "" } else { "s" },
        rate.unwrap_or_default()
    );
    let mend = "in the firmware setup, try to disable legacy USB support, power capping and patrol-scrub reports; never \
                disable SMIs that control fans or temperature; update the firmware; rtscope run shows how many come while it \
                measures";
    Some(
        Symptom::new(text, mend)
            .at_most(Severity::Medium)
            .shown_by(format!("/dev/cpu/{cpu}/msr"), format!("MSR 0x34 is {count}")),
    )
}

/// Services that ask the firmware.
const ASKERS: [&str; 4] = ["fwupd-refresh.timer", "mcelog", "mcelog.service", "smartd.service"];

fn smi_services(x: &Examined<'_>) -> Option<Symptom> {
    let found: Vec<String> = ASKERS
        .iter()
        .filter(|name| x.facts.has_service(name))
        .map(|name| (*name).to_owned())
        .collect();
    let names = listed(found.clone())?;
    // A guest's firmware stops nobody.
    x.around(false).is_none().then(|| {
        Symptom::new(
            format!("services run that ask the firmware: {names}"),
            mend::disable(&found.join(" ")),
        )
        .at_most(Severity::Medium)
        .shown_by("services", names)
    })
}

fn smi_not_known(x: &Examined<'_>) -> Option<Symptom> {
    let is_metal =
        x.is_x86() && x.around(false).is_none() && !x.environment().cpus.model.is_empty();
    (is_metal && x.facts.smi_counts.is_empty()).then(|| {
        let mend = match x.environment().cpus.model.contains("Intel") {
            true => "as root: modprobe msr, then rtscope doctor again",
            false => "on AMD try perf stat -a -e ls_smi_rx, or use the kernel's hwlat tracer",
        };
        Symptom::new("rtscope can't read an SMI count from this CPU", mend)
            .shown_by("/dev/cpu/0/msr", "not readable, or the CPU doesn't count")
    })
}

fn virtual_machine(x: &Examined<'_>) -> Option<Symptom> {
    let kind = x.around(false)?;
    let text = match kind {
        "virtual machine" => "this is a virtual machine: its host decides when it runs".to_owned(),
        kind => format!("this is a virtual machine ({kind}): its host decides when it runs"),
    };
    let mend = "ask the host's owner: a PREEMPT_RT kernel on the host, each virtual CPU pinned to an isolated CPU with a \
                real-time priority, memory in huge pages, no overcommitment";
    Some(Symptom::new(text, mend).shown_by("/proc/cpuinfo, DMI or device tree", kind))
}

fn steal(x: &Examined<'_>) -> Option<Symptom> {
    // cpu user nice system idle iowait irq softirq steal guest guest_nice, proc_stat(5)
    let ticks: Vec<u64> = x
        .facts
        .text("proc/stat")?
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let (stolen, all) = (*ticks.get(7)?, ticks.iter().take(8).sum::<u64>());
    let share = stolen as f64 / all.max(1) as f64;
    // The share from which a run takes it for latency, too.
    (share > 0.001).then(|| {
        let text = format!("the host took {:.2} % of the CPU time since boot", share * 100.0);
        let mend = "ask the host's owner for CPUs of your own (pinned, not shared), or move to another host";
        Symptom::new(text, mend).shown_by("/proc/stat", format!("steal {stolen} of {all} ticks"))
    })
}

fn host(x: &Examined<'_>) -> Option<Symptom> {
    let emulators = ["qemu-system-", "firecracker", "cloud-hyperviso"];
    let running = x
        .facts
        .services
        .iter()
        .find(|name| emulators.iter().any(|start| name.starts_with(start)))?;
    let text = format!("this machine runs guests: {running}");
    let mend = "keep their virtual CPUs off the CPUs of your threads: rtscope ps --name CPU, then --set TID --cpus 0-1";
    Some(Symptom::new(text, mend).shown_by("running programs", running))
}

fn container(x: &Examined<'_>) -> Option<Symptom> {
    let kind = x.around(true)?;
    let mend = "run rtscope doctor on the host as well; keep what it finds there in mind";
    Some(
        Symptom::new(
            format!("rtscope runs in a container ({kind}): the kernel is the host's"),
            mend,
        )
        .shown_by("/proc/1", kind),
    )
}

fn dwc_otg(x: &Examined<'_>) -> Option<Symptom> {
    let irq =
        x.environment().irqs.iter().find(|irq| irq.name.contains("dwc_otg") && irq.count > 0)?;
    let path = ["boot/firmware/config.txt", "boot/config.txt"];
    let path = path.into_iter().find(|path| x.facts.files.contains_key(*path)).unwrap_or(path[0]);
    let mend = format!("append to /{path}: dtoverlay=dwc2,dr_mode=host (then reboot)");
    Some(
        Symptom::new(format!("USB is served by dwc_otg (interrupt {})", irq.irq), mend)
            .shown_by("/proc/interrupts", format!("{} {} {}", irq.irq, irq.name, irq.count)),
    )
}

fn pi_kernel(x: &Examined<'_>) -> Option<Symptom> {
    use rtscope_model::environment::Preemption;
    let (path, line) = named_by_firmware(x)?;
    let runs = matches!(x.preemption(), Preemption::RealTime | Preemption::Unknown);
    (!runs).then(|| {
        let text = format!("/{path} has {line}, and the kernel that runs is {}", x.environment().kernel.release);
        let mend = "see that the line is in a section for this board ([all], [pi4]), that the file is there, and reboot";
        Symptom::new(text, mend).shown_by(format!("/{path}"), line).shown_by("uname -r", &x.environment().kernel.release)
    })
}

fn optee(x: &Examined<'_>) -> Option<Symptom> {
    let path = "sys/class/misc/hw_random/rng_current";
    let name = x.facts.text(path).filter(|name| name.contains("optee"))?;
    let mend = format!(
        "{}, or in the device tree: disable the secure random number generator",
        mend::write(path, "none")
    );
    Some(
        Symptom::new("random numbers come from the secure firmware", mend)
            .shown_by(format!("/{path}"), name),
    )
}

fn pacing(x: &Examined<'_>) -> Option<Symptom> {
    let slow = |pacing: &rtscope_model::environment::InterruptPacing| {
        pacing.adaptive_receive || pacing.receive_us >= 10
    };
    let card =
        x.environment().network.iter().find(|card| card.pacing.as_ref().is_some_and(slow))?;
    let pacing = card.pacing?;
    let (adaptive, kind) = match pacing.adaptive_receive {
        true => (", adaptive", "adaptive interrupt coalescing"),
        false => ("", "interrupt coalescing"),
    };
    let text = match pacing.receive_us {
        0 => format!("{} delays receive interrupts ({kind})", card.name),
        us => format!("{} delays receive interrupts by up to {us} us ({kind})", card.name),
    };
    let mend = format!(
        "ethtool -C {} adaptive-rx off rx-usecs 0 (if your thread waits for packets of this card)",
        card.name
    );
    Some(Symptom::new(text, mend).delay_us(u64::from(pacing.receive_us).max(10)).shown_by(
        format!("ethtool -c {}", card.name),
        format!("rx-usecs {}{adaptive}", pacing.receive_us),
    ))
}
