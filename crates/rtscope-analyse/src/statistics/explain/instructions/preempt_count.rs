//! Where preemption was switched off and on: the CPU's preempt count, followed through the instructions that change it.
//!
//! Only changes are seen, never the count itself. But it is 0 whenever a program runs, so it is known from there on, and
//! backwards from the program that reads the clock at the end. The count is the CPU's on x86-64, not a thread's: a switch
//! of threads doesn't change it.
//!
//! Its bits are those of `include/linux/preempt.h`: preemption is off where any of them but the top one is set. The
//! top bit only says whether a switch is needed, and is no part of the changes that are followed.

use super::{code::CountChange, walk::NodeId};

/// Switches softirqs back on by an amount that its caller passes: one less than that, and then one more.
const BY_CALLER: &str = "__local_bh_enable_ip";

/// A change of the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Instructions before the one behind it.
    pub(super) at: u64,
    /// The function that made it.
    pub(super) node: NodeId,
    /// By how much; none where that isn't known.
    pub(super) by: Option<i64>,
}

impl Change {
    /// A change by an instruction of a function. `argument` is the last second argument that was passed as a number.
    pub(super) fn new(
        (at, node, function): (u64, NodeId, &str),
        change: CountChange,
        argument: Option<i64>,
    ) -> Change {
        let by = match change {
            CountChange::By(by) => Some(by),
            CountChange::ByArgument if function == BY_CALLER => {
                argument.map(|argument| 1 - argument)
            }
            CountChange::ByArgument | CountChange::Other => None,
        };
        Change { at, node, by }
    }
}

/// Instructions during which preemption was off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OffSection {
    pub(super) from: u64,
    pub(super) to: u64,
    /// Who switched it off; none where that was before the instructions begin, or isn't known.
    pub(super) off: Option<NodeId>,
    /// Who switched it on.
    pub(super) on: Option<NodeId>,
}

/// What is known of the count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PreemptCount {
    /// Where it is known: from there to the end.
    known_from: u64,
    sections: Vec<OffSection>,
}

impl PreemptCount {
    /// Follows the changes. `users` are positions at which a program ran; the last one is the end. None where they
    /// contradict each other, or there is none.
    pub(super) fn follow(changes: &[Change], users: &[u64]) -> Option<PreemptCount> {
        let end = *users.last()?;
        let done = changes.partition_point(|change| change.at <= end);
        let (mut counts, mut count) = (Vec::new(), 0);
        let mut known_from = 0;
        for change in changes[..done].iter().rev() {
            let Some(by) = change.by else {
                known_from = change.at;
                break;
            };
            counts.push((change, count));
            count -= by;
        }
        counts.reverse();
        let at_start = count;
        let is_sound = counts.iter().all(|(_, count)| *count >= 0) && at_start >= 0;
        let mut users = users.iter().filter(|at| **at >= known_from);
        let is_zero = |at: &u64| {
            let before = counts.partition_point(|(change, _)| change.at <= *at);
            before.checked_sub(1).map_or(at_start, |n| counts[n].1) == 0
        };
        if !is_sound || !users.all(is_zero) {
            return None;
        }
        let mut sections = Vec::new();
        let mut open = (at_start > 0).then_some((known_from, None));
        for (change, count) in counts {
            match open {
                None if count > 0 => open = Some((change.at, Some(change.node))),
                Some((from, off)) if count == 0 => {
                    sections.push(OffSection { from, to: change.at, off, on: Some(change.node) });
                    open = None;
                }
                _ => {}
            }
        }
        Some(PreemptCount { known_from, sections })
    }

    /// Sections that have a part between two positions; none where the count isn't known there.
    pub(super) fn within(&self, from: u64, to: u64) -> Option<impl Iterator<Item = &OffSection>> {
        let overlaps = move |section: &&OffSection| section.from < to && from < section.to;
        (self.known_from <= from).then(|| self.sections.iter().filter(overlaps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(at: u64, by: i64) -> Change {
        Change { at, node: at as NodeId, by: Some(by) }
    }

    fn sections(changes: &[Change], users: &[u64]) -> Option<Vec<(u64, u64, Option<NodeId>)>> {
        let count = PreemptCount::follow(changes, users)?;
        Some(count.sections.iter().map(|one| (one.from, one.to, one.off)).collect())
    }

    #[test]
    fn sections_nest_and_one_may_begin_before_the_instructions() {
        let changes =
            [change(5, -1), change(10, 1), change(20, 0x200), change(30, -0x200), change(40, -1)];
        assert_eq!(sections(&changes, &[100]), Some(vec![(0, 5, None), (10, 40, Some(10))]));
        // A program ran before: the first change can't be a switching on.
        assert_eq!(sections(&changes, &[3, 100]), None);
        assert_eq!(sections(&changes[1..], &[3, 100]), Some(vec![(10, 40, Some(10))]));
        // Never more switched on than off, and nothing without a program that ran.
        assert_eq!(sections(&[change(1, 1), change(2, -1), change(3, 1)], &[9]), None);
        assert_eq!(sections(&changes, &[]), None);
    }

    #[test]
    fn before_a_change_that_is_not_known_nothing_is_said() {
        let unknown = Change { at: 25, node: 1, by: None };
        let changes = [change(10, 1), unknown, change(30, -1), change(40, 1), change(50, -1)];
        let count = PreemptCount::follow(&changes, &[100]).expect("known from 25 on");
        assert_eq!(count.within(35, 60).map(Iterator::count), Some(1));
        assert_eq!(count.within(26, 60).map(Iterator::count), Some(2));
        assert!(count.within(20, 60).is_none());
    }

    #[test]
    fn softirqs_are_switched_on_by_what_the_caller_passed() {
        let of = |function, argument| {
            Change::new((1, 2, function), CountChange::ByArgument, argument).by
        };
        // By hand: __local_bh_enable_ip(ip, 0x201) subtracts 0x200, and then 1.
        assert_eq!(of(BY_CALLER, Some(0x201)), Some(-0x200));
        assert_eq!(of(BY_CALLER, None), None);
        assert_eq!(of("another", Some(0x201)), None);
    }
}
