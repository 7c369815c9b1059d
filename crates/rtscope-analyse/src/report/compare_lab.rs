//! The worst wake-ups of two guests beside each other, by their instructions: for a terminal, as a page and as JSON.
//!
//! Two kernels go different ways from their first instruction on, so no wake-up of one is that of the other. What is
//! compared is the same phase under the same load: its worst wake-up, and the shortest way among the worst ones, which
//! the load didn't make longer.

use std::collections::BTreeMap;

use askama::Template;
use serde::Serialize;

use super::explain_lab::{Explanation, PART_NAMES, cause};
use crate::{
    number::{grouped, us},
    plot::{self, flame, spike},
    statistics::explain::{PieceKind, instructions::LateWakeup},
};

/// The page's file.
pub const PAGE: &str = "explain-compare.html";

/// [`InstructionComparison::format`].
pub const FORMAT: u32 = 1;

/// Functions of each phase whose times differ most.
const FUNCTIONS: usize = 6;

/// A kernel runs on for so long at least before its being able to switch is worth telling.
const HELD_NS: u64 = 10_000;

/// Two guests beside each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstructionComparison {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of rtscope.
    pub version: String,
    /// The folders of the records.
    pub records: [String; 2],
    /// Their kernels.
    pub kernels: [String; 2],
    /// The phases that both have.
    pub phases: Vec<ComparedPhase>,
}

/// A phase in two guests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComparedPhase {
    /// The phase.
    pub phase: String,
    /// The worst latencies.
    pub worst_ns: [u64; 2],
    /// The longest cause of each.
    pub causes: [String; 2],
    /// Time in which the kernel ran on, with preemption or interrupts off or without a place where it can switch.
    pub held_ns: [u64; 2],
    /// Instructions of each part of the way.
    pub parts: Vec<ComparedPart>,
    /// Functions with the largest difference of their own time in the worst wake-ups, the largest first.
    pub functions: Vec<ComparedFunction>,
}

/// Instructions of a part of the way from the expiry to the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ComparedPart {
    /// As `interrupt to wake-up`.
    pub part: &'static str,
    /// In the worst wake-ups.
    pub worst: [Option<u64>; 2],
    /// In the shortest way among those that were explained.
    pub shortest: [Option<u64>; 2],
}

/// Time in a function without what it called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComparedFunction {
    /// Its name.
    pub name: String,
    /// Time in each guest.
    pub ns: [u64; 2],
}

impl ComparedPart {
    /// So many instructions more the second guest takes on the shortest way.
    #[must_use]
    pub fn more(&self) -> Option<i64> {
        let [first, second] = self.shortest;
        second?.checked_signed_diff(first?)
    }
}

/// Compares two explained records; none without a common phase.
#[must_use]
pub fn compare(first: &Explanation, second: &Explanation) -> Option<InstructionComparison> {
    let mut phases: Vec<&str> = Vec::new();
    for one in &first.spikes {
        if !phases.contains(&one.phase.as_str()) {
            phases.push(&one.phase);
        }
    }
    let phases: Vec<ComparedPhase> =
        phases.into_iter().filter_map(|phase| compared(phase, [first, second])).collect();
    (!phases.is_empty()).then(|| InstructionComparison {
        format: FORMAT,
        version: second.version.clone(),
        records: [first, second].map(|it| it.record.clone()),
        kernels: [first, second].map(|it| it.kernel.clone()),
        phases,
    })
}

/// The worst wake-up of a phase.
fn worst<'a>(all: &'a Explanation, phase: &str) -> Option<&'a LateWakeup> {
    let of_phase = all.spikes.iter().filter(|one| one.phase == phase);
    of_phase.max_by_key(|one| one.explained.latency_ns)
}

fn compared(phase: &str, both: [&Explanation; 2]) -> Option<ComparedPhase> {
    let [Some(first), Some(second)] = both.map(|all| worst(all, phase)) else { return None };
    let held_ns = |one: &LateWakeup| {
        let is_held = |kind| matches!(kind, PieceKind::Blocking | PieceKind::InterruptsOff);
        one.explained.pieces.iter().filter(|it| is_held(it.kind)).map(|it| it.ns).sum()
    };
    let part = |n: usize| {
        let of = |one: &LateWakeup| one.instructions.parts()[n];
        let shortest = |all: &Explanation| {
            all.spikes.iter().filter(|one| one.phase == phase).filter_map(of).min()
        };
        let worst = [first, second].map(of);
        ComparedPart { part: PART_NAMES[n], worst, shortest: both.map(shortest) }
    };
    Some(ComparedPhase {
        phase: phase.to_owned(),
        worst_ns: [first, second].map(|one| one.explained.latency_ns),
        causes: [first, second].map(cause),
        held_ns: [first, second].map(held_ns),
        parts: (0..PART_NAMES.len()).map(part).collect(),
        functions: functions([first, second]),
    })
}

fn functions(worst: [&LateWakeup; 2]) -> Vec<ComparedFunction> {
    let mut times: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for (side, one) in worst.into_iter().enumerate() {
        for function in &one.functions {
            times.entry(&function.name).or_default()[side] += function.ns;
        }
    }
    let mut all: Vec<(&str, [u64; 2])> = times.into_iter().collect();
    all.sort_by_key(|(name, [first, second])| (u64::MAX - first.abs_diff(*second), *name));
    all.truncate(FUNCTIONS);
    all.into_iter().map(|(name, ns)| ComparedFunction { name: name.to_owned(), ns }).collect()
}

/// Whether one of the two could switch where the other ran on, in words.
fn switches(all: &InstructionComparison, phase: &ComparedPhase) -> Option<String> {
    let [first, second] = phase.held_ns;
    let (longer, shorter) = if first > second { (0, 1) } else { (1, 0) };
    let [long_ns, short_ns] = [longer, shorter].map(|side| phase.held_ns[side]);
    (long_ns >= HELD_NS && short_ns < long_ns / 2).then(|| {
        format!(
            "{} ran on for {} us before it switched, {} for {} us",
            all.kernels[longer],
            us(long_ns),
            all.kernels[shorter],
            us(short_ns)
        )
    })
}

/// The parts of the shortest way that have more than so many instructions more in the second record.
#[must_use]
pub fn longer_than(all: &InstructionComparison, limit: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for phase in &all.phases {
        for part in &phase.parts {
            let more = part.more().and_then(|more| u64::try_from(more).ok());
            if let Some(more) = more.filter(|more| *more > limit) {
                let ComparedPhase { phase, .. } = phase;
                lines.push(format!("{phase}, {}: {} instructions more", part.part, grouped(more)));
            }
        }
    }
    lines
}

fn count_text(count: Option<u64>) -> String {
    count.map_or_else(|| "unknown".to_owned(), grouped)
}

fn more_text(part: &ComparedPart) -> String {
    part.more().map_or_else(String::new, |more| match more {
        0 => "equal".to_owned(),
        ..0 => format!("-{}", grouped(more.unsigned_abs())),
        _ => format!("+{}", grouped(more.unsigned_abs())),
    })
}

/// Both guests for a terminal.
#[must_use]
pub fn table(all: &InstructionComparison) -> String {
    let [first, second] = &all.kernels;
    let mut text =
        format!("first:  {}, {first}\nsecond: {}, {second}\n", all.records[0], all.records[1]);
    for phase in &all.phases {
        text += &format!("\n{}\n", phase.phase);
        for (name, side) in [("first", 0), ("second", 1)] {
            let latency = us(phase.worst_ns[side]);
            text += &format!("  {name:6} {latency:>9} us at worst; {}\n", phase.causes[side]);
        }
        text += &switches(all, phase).map_or_else(String::new, |line| format!("  {line}\n"));
        text += &format!(
            "  {:<22}{:>12}{:>12}{:>12}{:>14}{:>12}\n",
            "instructions", "first", "second", "difference", "worst, first", "second"
        );
        for part in &phase.parts {
            text += &format!(
                "  {:<22}{:>12}{:>12}{:>12}{:>14}{:>12}\n",
                part.part,
                count_text(part.shortest[0]),
                count_text(part.shortest[1]),
                more_text(part),
                count_text(part.worst[0]),
                count_text(part.worst[1]),
            );
        }
    }
    text + "\nThe first three columns are the shortest path among the wake-ups that were explained.\n"
}

/// A phase on the page.
struct Shown<'a> {
    one: &'a ComparedPhase,
    switches: Option<String>,
    sides: Vec<ShownSide>,
    parts: Vec<[String; 6]>,
    functions: Vec<[String; 3]>,
}

/// A guest's worst wake-up of a phase on the page.
struct ShownSide {
    title: String,
    cause: String,
    plot: String,
    flame: String,
}

#[derive(Template)]
#[template(path = "compare_lab.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    all: &'a InstructionComparison,
    headline: String,
    phases: Vec<Shown<'a>>,
    json: String,
}

/// The page; `explained` is what was compared.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &InstructionComparison, explained: [&Explanation; 2]) -> String {
    let mut number = 0;
    let mut side = |phase: &ComparedPhase, n: usize| {
        number += 1;
        let one = worst(explained[n], &phase.phase)?;
        Some(ShownSide {
            title: format!("{}: {} us", all.kernels[n], us(phase.worst_ns[n])),
            cause: phase.causes[n].clone(),
            plot: spike::draw(&one.explained, number),
            flame: flame::draw(&one.stacks, number),
        })
    };
    let part = |part: &ComparedPart| {
        let [first, second] = part.shortest.map(count_text);
        let [worst_first, worst_second] = part.worst.map(count_text);
        [part.part.to_owned(), first, second, more_text(part), worst_first, worst_second]
    };
    let mut shown = |phase| Shown {
        one: phase,
        switches: switches(all, phase),
        sides: [0, 1].into_iter().filter_map(|n| side(phase, n)).collect(),
        parts: phase.parts.iter().map(part).collect(),
        functions: phase
            .functions
            .iter()
            .map(|it| [it.name.clone(), us(it.ns[0]), us(it.ns[1])])
            .collect(),
    };
    let page = Page {
        style: include_str!("template/style.css"),
        plot_rules: plot::dark_rules(),
        headline: headline(all),
        phases: all.phases.iter().map(&mut shown).collect(),
        json: super::harmless_json(all),
        all,
    };
    page.render().expect("a string takes every text")
}

fn headline(all: &InstructionComparison) -> String {
    let largest = all.phases.iter().max_by_key(|it| it.worst_ns[0].abs_diff(it.worst_ns[1]));
    let Some(ComparedPhase { phase, worst_ns, .. }) = largest else { return String::new() };
    let [first, second] = worst_ns.map(us);
    format!(
        "Under {phase}, the worst wake-up was {first} us late in {}, and {second} us in {}",
        all.kernels[0], all.kernels[1]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::explain::{
        Certainty, Explained, Piece,
        instructions::{FunctionTime, Paths},
    };

    fn wakeup(phase: &str, held_ns: u64, to_wakeup: u64) -> LateWakeup {
        let piece = |kind, name: &str, at_ns, ns| Piece {
            kind,
            name: name.to_owned(),
            at_ns,
            ns,
            certainty: Certainty::Measured,
            why: "",
            place: None,
        };
        LateWakeup {
            phase: phase.to_owned(),
            explained: Explained {
                tid: 0,
                name: "CPU 0".to_owned(),
                latency_ns: held_ns + 4_000,
                cpu: 0,
                at_ns: 0,
                woken_by: None,
                wakers: Vec::new(),
                pieces: vec![
                    piece(PieceKind::ExpiryWork, "hrtimer_wakeup", 0, 4_000),
                    piece(PieceKind::Blocking, "release_pages", 4_000, held_ns),
                ],
                is_lossy: false,
            },
            instructions: Paths {
                interrupt_to_wakeup: Some(to_wakeup),
                wakeup_to_switch: Some(held_ns / 4),
                ..Paths::default()
            },
            functions: vec![FunctionTime { name: "release_pages".to_owned(), ns: held_ns }],
            stacks: Vec::new(),
        }
    }

    fn explanation(kernel: &str, spikes: Vec<LateWakeup>) -> Explanation {
        Explanation {
            format: 1,
            version: "0".to_owned(),
            record: format!("lab/{kernel}"),
            kernel: kernel.to_owned(),
            is_preempt_rt: None,
            emulator: String::new(),
            shift: 2,
            equal_files: 1,
            is_whole: true,
            spikes,
            events: None,
        }
    }

    #[test]
    fn a_longer_way_shows_to_the_instruction_and_a_load_s_share_of_it_does_not() {
        // The load made the worst wake-up of each longer; the shortest way is the kernel's own.
        let stock = [wakeup("disk", 700_000, 400), wakeup("disk", 90_000, 368)];
        let rt = [wakeup("disk", 20_000, 900), wakeup("disk", 20_000, 568), wakeup("rest", 0, 9)];
        let (stock, rt) = (explanation("stock", stock.into()), explanation("rt", rt.into()));
        let all = compare(&stock, &rt).expect("a common phase");
        let [phase] = all.phases.as_slice() else { panic!("one phase") };
        assert_eq!(phase.worst_ns, [704_000, 24_000]);
        let part = phase.parts[1];
        assert_eq!((part.shortest, part.more()), ([Some(368), Some(568)], Some(200)));
        assert_eq!(phase.parts[0].more(), None);
        assert_eq!(longer_than(&all, 199), ["disk, interrupt to wake-up: 200 instructions more"]);
        assert!(longer_than(&all, 200).is_empty());
        let text = table(&all);
        assert!(
            text.contains("stock ran on for 700.0 us before it switched, rt for 20.0 us"),
            "{text}"
        );
        assert!(text.contains("+200"), "{text}");
        assert_eq!(phase.functions[0].ns, [700_000, 20_000]);
        assert!(compare(&stock, &explanation("rest", vec![wakeup("rest", 0, 9)])).is_none());
    }
}
