//! Whether the kernel's events and the instructions say the same of late wake-ups of a guest.
//!
//! Both look at the same run, so each wake-up is known by its expiry. By the events a latency ends when the thread leaves
//! the kernel, or with the switch to it, so the instructions are compared up to there.

use rtscope_model::trace::Section;
use serde::Serialize;

use super::{
    Explained, Piece, PieceKind, cpu,
    instructions::{DEVICE, LateWakeup, SOFTIRQS},
};
use crate::number::us;

/// Times that are so little apart agree: an event is written some instructions beside what it marks.
const NEAR_NS: u64 = 2_000;

/// Times that differ by such a part of the longer one agree.
const NEAR_PARTS: u64 = 20;

/// Both explanations of late wake-ups beside each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Wake-ups that both explain.
    pub compared: Vec<ComparedWakeup>,
    /// Wake-ups that the instructions explain and whose events weren't kept.
    pub without_events: usize,
}

/// A wake-up that both explain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComparedWakeup {
    /// The phase.
    pub phase: String,
    /// When it should have run, on the guest's clock.
    pub at_ns: u64,
    /// From there to the end of the latency by the events.
    pub until_end_ns: u64,
    /// Time of each kind of piece that either has.
    pub kinds: Vec<KindTimes>,
    /// Names that only one of them has, with their kinds.
    pub names: Vec<OneSidedName>,
    /// Whether both name the same kinds and names, with the same times.
    pub agrees: bool,
}

/// Time that both see of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KindTimes {
    /// The kind.
    pub kind: PieceKind,
    /// By the instructions.
    pub by_instructions_ns: u64,
    /// By the events.
    pub by_events_ns: u64,
}

/// A name that one explanation has and the other doesn't.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OneSidedName {
    /// The kind.
    pub kind: PieceKind,
    /// The name.
    pub name: String,
    /// Whether the instructions have it, and not the events.
    pub is_of_instructions: bool,
}

impl Agreement {
    /// Wake-ups of which both say the same.
    #[must_use]
    pub fn agreeing(&self) -> usize {
        self.compared.iter().filter(|one| one.agrees).count()
    }
}

impl ComparedWakeup {
    /// What the two say differently, in words.
    #[must_use]
    pub fn differences(&self) -> Vec<String> {
        let times = self.kinds.iter().filter(|kind| !kind.agree()).map(|one| {
            let (instructions, events) = (us(one.by_instructions_ns), us(one.by_events_ns));
            format!("{}: {instructions} us by instructions, {events} us by events", one.kind.text())
        });
        let names = self.names.iter().map(|one| {
            let whose = if one.is_of_instructions { "instructions" } else { "events" };
            format!("{} {}: only by {whose}", one.kind.text(), one.name)
        });
        times.chain(names).collect()
    }
}

impl KindTimes {
    /// Whether both times are the same, but for what the writing of events explains.
    #[must_use]
    pub fn agree(&self) -> bool {
        let apart_ns = self.by_instructions_ns.abs_diff(self.by_events_ns);
        apart_ns <= NEAR_NS.max(self.by_instructions_ns.max(self.by_events_ns) / NEAR_PARTS)
    }
}

/// Compares what instructions and events say of the same wake-ups.
#[must_use]
pub fn compare(by_instructions: &[LateWakeup], by_events: &[Explained]) -> Agreement {
    let mut all = Agreement::default();
    for one in by_instructions {
        match by_events.iter().find(|other| other.at_ns == one.explained.at_ns) {
            Some(other) => all.compared.push(compared(one, other)),
            None => all.without_events += 1,
        }
    }
    all
}

fn compared(one: &LateWakeup, events: &Explained) -> ComparedWakeup {
    let until_ns = events.at_ns + events.latency_ns;
    let cut = one.explained.pieces.iter().filter(|piece| piece.at_ns < until_ns).map(|piece| {
        let ns = piece.ns.min(until_ns - piece.at_ns);
        Piece { ns, ..piece.clone() }
    });
    let instructions: Vec<Piece> = cut.collect();
    let kinds = kinds(&instructions, &events.pieces);
    let mut names = names(&instructions, &events.pieces, true);
    names.extend(self::names(&events.pieces, &instructions, false));
    ComparedWakeup {
        phase: one.phase.clone(),
        at_ns: events.at_ns,
        until_end_ns: events.latency_ns,
        agrees: names.is_empty() && kinds.iter().all(KindTimes::agree),
        kinds,
        names,
    }
}

fn kinds(instructions: &[Piece], events: &[Piece]) -> Vec<KindTimes> {
    let mut kinds: Vec<PieceKind> = instructions.iter().chain(events).map(|it| it.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let sum = |pieces: &[Piece], kind| -> u64 {
        pieces.iter().filter(|piece| piece.kind == kind).map(|piece| piece.ns).sum()
    };
    let times = |kind| KindTimes {
        kind,
        by_instructions_ns: sum(instructions, kind),
        by_events_ns: sum(events, kind),
    };
    kinds.into_iter().map(times).collect()
}

/// Names of `pieces` that `others` lack, where both could have them: threads are names of the events only, and the
/// functions that held a CPU are names of the instructions.
fn names(pieces: &[Piece], others: &[Piece], is_of_instructions: bool) -> Vec<OneSidedName> {
    let could = |piece: &&Piece| {
        let is_named = match piece.kind {
            PieceKind::Interrupt => true,
            PieceKind::Softirq => piece.name != SOFTIRQS,
            _ => false,
        };
        is_named && piece.ns > NEAR_NS
    };
    let is_same = |one: &str, other: &str| {
        // The instructions show that a device interrupted, but not its number.
        let is_device = |name: &str| name == DEVICE || name.starts_with("IRQ ");
        // On arm64 the timer of a CPU is a numbered interrupt, too.
        let timer = cpu::section_name(Section::LocalTimer);
        let is_timer = |name: &str| name == timer || name.ends_with("(arch_timer)");
        one == other
            || is_timer(one) && is_timer(other)
            || (one == DEVICE || other == DEVICE) && is_device(one) && is_device(other)
    };
    let has = |piece: &Piece| {
        others.iter().any(|other| other.kind == piece.kind && is_same(&other.name, &piece.name))
    };
    let missing = pieces.iter().filter(could).filter(|piece| !has(piece));
    let mut names: Vec<OneSidedName> = missing
        .map(|piece| OneSidedName {
            kind: piece.kind,
            name: piece.name.clone(),
            is_of_instructions,
        })
        .collect();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Certainty, instructions::Paths},
        *,
    };

    fn piece(kind: PieceKind, name: &str, at_us: u64, us: u64) -> Piece {
        let (at_ns, ns) = (at_us * 1_000, us * 1_000);
        let (name, certainty) = (name.to_owned(), Certainty::Measured);
        Piece { kind, name, at_ns, ns, certainty, why: "", place: None }
    }

    fn explained(pieces: Vec<Piece>) -> Explained {
        Explained {
            tid: 7,
            name: "sampler".to_owned(),
            latency_ns: pieces.iter().map(|piece| piece.ns).sum(),
            cpu: 0,
            at_ns: pieces[0].at_ns,
            woken_by: None,
            wakers: Vec::new(),
            pieces,
            is_lossy: false,
        }
    }

    fn instructions(pieces: Vec<Piece>) -> LateWakeup {
        LateWakeup {
            phase: "disk".to_owned(),
            explained: explained(pieces),
            instructions: Paths::default(),
            functions: Vec::new(),
            stacks: Vec::new(),
        }
    }

    #[test]
    fn wake_ups_agree_by_kind_up_to_the_switch() {
        use PieceKind::{Blocking, ExpiryWork, Interrupt, Switching};
        let one = instructions(vec![
            piece(ExpiryWork, "timer", 100, 6),
            piece(Blocking, "release_pages", 106, 300),
            piece(Interrupt, "local timer", 406, 9),
            piece(Switching, "return to user space", 415, 40),
        ]);
        let mut parts = vec![
            piece(ExpiryWork, "timer", 100, 5),
            piece(Blocking, "load:disk-127", 105, 303),
            piece(Interrupt, "local timer", 408, 8),
        ];
        let same = compare(std::slice::from_ref(&one), &[explained(parts.clone())]);
        assert_eq!((same.agreeing(), same.without_events), (1, 0), "{same:?}");
        // 1 us of the way back to user space is before the switch that the events saw.
        let switching = same.compared[0].kinds.iter().find(|it| it.kind == Switching);
        assert_eq!(switching.map(|it| it.by_instructions_ns), Some(1_000));
        parts[1].ns += 20_000;
        assert_eq!(compare(std::slice::from_ref(&one), &[explained(parts)]).agreeing(), 0);
    }

    #[test]
    fn a_name_that_only_one_has_and_a_wake_up_without_events_are_told() {
        use PieceKind::{ExpiryWork, Interrupt};
        let one = instructions(vec![
            piece(ExpiryWork, "timer", 100, 6),
            piece(Interrupt, "local timer", 106, 9),
        ]);
        let other = explained(vec![
            piece(ExpiryWork, "timer", 100, 6),
            piece(Interrupt, "IRQ 4 (ttyS0)", 106, 9),
        ]);
        let found = compare(&[one.clone(), one.clone()], &[other]);
        let told: Vec<_> =
            found.compared[0].names.iter().map(|it| (&*it.name, it.is_of_instructions)).collect();
        assert_eq!(told, [("local timer", true), ("IRQ 4 (ttyS0)", false)]);
        assert_eq!((found.agreeing(), found.compared.len()), (0, 2));
        assert_eq!(
            found.compared[0].differences()[0],
            "interrupt local timer: only by instructions"
        );
        let late = explained(vec![piece(ExpiryWork, "timer", 900, 6)]);
        assert_eq!(compare(&[one], &[late]).without_events, 1);
    }

    #[test]
    fn softirqs_are_compared_by_name_unless_the_instructions_have_none() {
        let [named, unnamed] =
            ["NET_RX", SOFTIRQS].map(|name| piece(PieceKind::Softirq, name, 0, 50));
        let found = names(&[named, unnamed], &[], false);
        assert_eq!(found.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["NET_RX"]);
    }
}
