//! Culprits of a record: what was in the way, over all late activations, with what helps against it.

use serde::Serialize;

use super::{Explained, NMI, OWN_INTERRUPT, PAGE_FAULT, Piece, PieceKind};

/// What was in the way of late activations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Culprit {
    /// What kind of thing.
    pub kind: PieceKind,
    /// Its name.
    pub name: String,
    /// In how many late activations; threads of one name count each.
    pub count: u64,
    /// The longest time in one of them.
    pub worst_ns: u64,
    /// The time in all of them.
    pub sum_ns: u64,
    /// The kernel's function, where it is known.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// What helps.
    pub remedy: &'static str,
}

/// Culprits of late activations, the longest sum first. What took less than a tenth of a latency is left out: it is no
/// reason.
#[must_use]
pub fn culprits(all: &[Explained], is_preempt_rt: Option<bool>, is_guest: bool) -> Vec<Culprit> {
    let mut found: Vec<Culprit> = Vec::new();
    for one in all {
        for piece in one.causes().iter().filter(|piece| piece.ns * 10 >= one.latency_ns) {
            let name = culprit_name(piece);
            let at = found.iter().position(|known| known.kind == piece.kind && known.name == name);
            let at = at.unwrap_or_else(|| {
                found.push(Culprit {
                    kind: piece.kind,
                    name,
                    count: 0,
                    worst_ns: 0,
                    sum_ns: 0,
                    place: None,
                    remedy: remedy(piece, is_preempt_rt, is_guest),
                });
                found.len() - 1
            });
            let culprit = &mut found[at];
            culprit.count += 1;
            culprit.worst_ns = culprit.worst_ns.max(piece.ns);
            culprit.sum_ns += piece.ns;
            if culprit.place.is_none() {
                culprit.place.clone_from(&piece.place);
            }
        }
    }
    found.sort_by(|a, b| b.sum_ns.cmp(&a.sum_ns).then_with(|| a.name.cmp(&b.name)));
    found
}

/// What a culprit is called. Numbers of threads differ from run to run; its name must not. A host that takes the CPU is
/// one culprit, whatever ran then.
fn culprit_name(piece: &Piece) -> String {
    match piece.kind {
        PieceKind::Steal | PieceKind::OutsideLinux => "whatever ran".to_owned(),
        _ => without_number(&piece.name),
    }
}

/// `NAME-TID (...)` without the number.
fn without_number(name: &str) -> String {
    if let Some(thread) = name.strip_prefix("while ").and_then(|rest| rest.strip_suffix(" ran")) {
        return format!("while {} ran", without_number(thread));
    }
    let (thread, rest) = name.split_once(" (").map_or((name, None), |(a, b)| (a, Some(b)));
    let thread = match thread.rsplit_once('-') {
        Some((name, tid)) if !tid.is_empty() && tid.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => thread,
    };
    rest.map_or_else(|| thread.to_owned(), |rest| format!("{thread} ({rest}"))
}

/// What helps against a kind of thing.
fn remedy(piece: &Piece, is_preempt_rt: Option<bool>, is_guest: bool) -> &'static str {
    match piece.kind {
        PieceKind::TimerSlack => {
            "give the thread a real-time policy, or set its slack to 1 ns with prctl(PR_SET_TIMERSLACK, 1)"
        }
        PieceKind::IdleExit if is_guest => {
            "the host had to wake the virtual CPU: pin it to a CPU of its own, or measure on the host"
        }
        PieceKind::IdleExit => {
            "keep the CPU out of deep idle states: cpu_latency = \"0us\" in a plan's [tune], or /dev/cpu_dma_latency"
        }
        PieceKind::InterruptsOff if is_preempt_rt == Some(true) => {
            "the kernel's code at this place keeps interrupts off: report it with this record, or move its work to \
             another CPU"
        }
        PieceKind::InterruptsOff | PieceKind::Softirq | PieceKind::Blocking
            if is_preempt_rt != Some(true) =>
        {
            "a PREEMPT_RT kernel makes most of this preemptible: compare with `rtscope lab matrix`"
        }
        PieceKind::Softirq => {
            "move the interrupts that raise it to another CPU, or lower the priority of its thread"
        }
        PieceKind::Blocking => {
            "the kernel's code keeps preemption off here: move the other thread to another CPU"
        }
        PieceKind::InterruptsOff => "move the work that keeps interrupts off to another CPU",
        PieceKind::OutsideLinux | PieceKind::Steal if is_guest => {
            "the host or its firmware took the CPU: give the guest CPUs of its own, or measure on the host"
        }
        PieceKind::OutsideLinux | PieceKind::Steal => {
            "firmware or hardware stopped the CPU: look for SMIs (`rtscope doctor`) and check the BIOS settings"
        }
        PieceKind::Interrupt => interrupt_remedy(&piece.name),
        PieceKind::ExpiryWork
            if piece.name == OWN_INTERRUPT || piece.name.starts_with("hrtimer_wakeup") =>
        {
            "the timer interrupt's own work: use a faster CPU, or a kernel with fewer debug options"
        }
        PieceKind::ExpiryWork if piece.name.starts_with("trace_event_raw_event_") => {
            "the guest recorded its kernel's events: run it without --events"
        }
        PieceKind::ExpiryWork => {
            "other timers expired first: move the programs that set them to another CPU"
        }
        PieceKind::Interference => {
            "give the other thread a lower priority than this one, or give them different CPUs"
        }
        PieceKind::Switching if piece.name == PAGE_FAULT => {
            "lock the program's memory with mlockall(MCL_CURRENT | MCL_FUTURE), and touch all of it before the loop \
             begins"
        }
        PieceKind::Switching => {
            "the scheduler's own work: use a faster CPU, or a kernel with fewer debug options"
        }
        PieceKind::Unknown if is_guest => {
            "the events don't show the cause: give the guest its own CPUs, measure on the host, or see which events this \
             kernel lacks"
        }
        PieceKind::Unknown => "the events don't say: see which events this kernel lacks",
    }
}

/// What helps against an interrupt of this name.
fn interrupt_remedy(name: &str) -> &'static str {
    match name {
        // Only a device's interrupt has a number in /proc/irq.
        _ if name.starts_with("IRQ ") => {
            "move the interrupt to another CPU (/proc/irq/NUMBER/smp_affinity_list), or move this thread instead. A \
             managed interrupt, such as that of an NVMe drive, refuses that: boot with isolcpus=managed_irq,LIST"
        }
        _ if name.ends_with("from another CPU") => {
            "`rtscope explain --cpu N` shows which thread on another CPU sends it, and what helps"
        }
        _ if name.starts_with(NMI) => {
            "profilers and the kernel's watchdog cause such interrupts: stop them, or boot with nmi_watchdog=0. Others come \
             from firmware or hardware: look at the kernel's log"
        }
        _ => "`rtscope explain --cpu N` shows what else runs on this CPU, and what helps",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::explain::Certainty;

    fn late(latency_ns: u64, pieces: &[(PieceKind, &str, u64)]) -> Explained {
        let piece = |(kind, name, ns): &(PieceKind, &str, u64)| Piece {
            kind: *kind,
            name: (*name).to_owned(),
            at_ns: 0,
            ns: *ns,
            certainty: Certainty::Measured,
            why: "",
            place: None,
        };
        Explained {
            tid: 7,
            name: "app".to_owned(),
            latency_ns,
            cpu: 0,
            at_ns: 0,
            woken_by: None,
            wakers: Vec::new(),
            pieces: pieces.iter().map(piece).collect(),
            is_lossy: false,
        }
    }

    #[test]
    fn a_preempt_rt_kernel_is_no_remedy_for_itself() {
        let of = |kind, is_preempt_rt| {
            let late = late(10, &[(kind, "x", 10)]);
            remedy(&late.pieces[0], is_preempt_rt, false)
        };
        for kind in [PieceKind::InterruptsOff, PieceKind::Softirq, PieceKind::Blocking] {
            assert!(
                of(kind, Some(false)).contains("PREEMPT_RT")
                    && of(kind, None) == of(kind, Some(false))
            );
            assert!(!of(kind, Some(true)).contains("PREEMPT_RT"), "{kind:?}");
        }
    }

    #[test]
    fn an_interrupt_s_remedy_is_that_of_its_kind() {
        let of = |name: &str, part: &str| assert!(interrupt_remedy(name).contains(part), "{name}");
        of("IRQ 24 (eth0)", "smp_affinity_list");
        of("rescheduling, from another CPU", "sends it");
        of(&format!("{NMI} (watchdog)"), "nmi_watchdog=0");
        of("thermal", "what else runs on this CPU");
    }

    #[test]
    fn culprits_are_added_up_by_name_and_small_ones_left_out() {
        let hog = |tid: u32| format!("hog-{tid} (real-time priority 99)");
        let (first, second) = (hog(41), hog(42));
        let all = [
            late(
                100,
                &[(PieceKind::Interference, &first, 60), (PieceKind::Softirq, "softirq RCU", 9)],
            ),
            late(
                50,
                &[
                    (PieceKind::Interference, &second, 20),
                    (PieceKind::IdleExit, "exit from idle", 30),
                ],
            ),
        ];
        let found = culprits(&all, Some(false), false);
        let shown: Vec<_> =
            found.iter().map(|c| (c.name.as_str(), c.count, c.worst_ns, c.sum_ns)).collect();
        assert_eq!(
            shown,
            [("hog (real-time priority 99)", 2, 60, 80), ("exit from idle", 1, 30, 30)]
        );
        assert!(found[0].remedy.contains("priority"));
        let stolen = |name| late(90, &[(PieceKind::Steal, name, 80)]);
        let one = culprits(&[stolen("while cc1-8 ran"), stolen("while ld-9 ran")], None, true);
        assert_eq!((one.len(), one[0].count, one[0].sum_ns), (1, 2, 160), "{one:?}");
        let remedy_of = |kind, name: &str| {
            culprits(&[late(10, &[(kind, name, 10)])], Some(true), false)[0].remedy
        };
        assert!(remedy_of(PieceKind::Interrupt, "IRQ 9 (disk)").contains("/proc/irq"));
        let sent = remedy_of(PieceKind::Interrupt, "function call from another CPU");
        assert!(!sent.contains("/proc/irq") && sent.contains("--cpu"), "{sent}");
        let own = remedy_of(PieceKind::ExpiryWork, OWN_INTERRUPT);
        assert!(!own.contains("other timers"), "{own}");
        assert!(remedy_of(PieceKind::ExpiryWork, "tick_nohz_handler").contains("other timers"));
        assert_eq!(without_number("while load:message-28253 ran"), "while load:message ran");
        assert_eq!(without_number("softirq NET-RX"), "softirq NET-RX");
    }
}
