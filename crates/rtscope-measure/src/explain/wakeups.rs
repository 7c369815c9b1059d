//! Who woke whom: from a wake-up back to the interrupt with which it began.

use std::collections::{BTreeMap, VecDeque};

use rtscope_model::explain::{Waker, Wakeup};

use super::finder::LEAD_NS;

/// Wake-ups of a thread that are remembered: enough for threads that wake each other by turns.
const REMEMBERED: usize = 4;

/// So many threads are remembered. Programs that start many short ones must not fill the memory.
const THREADS_MAX: usize = 50_000;

/// So many threads are followed back.
const WAKERS_MAX: usize = 8;

/// The last wake-ups of all threads.
#[derive(Debug, Default)]
pub(super) struct Wakeups {
    threads: BTreeMap<u32, VecDeque<Waker>>,
}

impl Wakeups {
    /// Remembers a wake-up.
    pub(super) fn see(&mut self, thread: Waker) {
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&thread.tid) {
            let from_ns = thread.waking.at_ns.saturating_sub(LEAD_NS);
            self.threads
                .retain(|_, all| all.back().is_some_and(|last| last.waking.at_ns >= from_ns));
        }
        let all = self.threads.entry(thread.tid).or_default();
        if all.len() == REMEMBERED {
            all.pop_front();
        }
        all.push_back(thread);
    }

    /// How the one that woke a thread had been woken, and so on, back to an interrupt or to the thread itself. Ends
    /// early where a wake-up is further back than the events that are kept.
    pub(super) fn before(&self, tid: u32, waking: Wakeup) -> Vec<Waker> {
        let mut wakers: Vec<Waker> = Vec::new();
        let mut last = waking;
        while !last.in_interrupt && last.by != tid && wakers.len() < WAKERS_MAX {
            let all = self.threads.get(&last.by).into_iter().flatten();
            let Some(waker) = all.rev().find(|one| one.waking.at_ns < last.at_ns) else { break };
            if waker.waking.at_ns < waking.at_ns.saturating_sub(LEAD_NS) {
                break;
            }
            wakers.push(*waker);
            last = waker.waking;
        }
        wakers
    }

    /// Nothing was recorded for a time.
    pub(super) fn forget(&mut self) {
        self.threads.clear();
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::trace::Name;

    use super::*;

    fn waking(at_us: u64, by: u32) -> Wakeup {
        Wakeup { at_ns: at_us * 1_000, cpu: 0, by, in_interrupt: by == 0 }
    }

    /// Threads wake each other in this order: when, who, whom.
    fn seen(all: &[(u64, u32, u32)]) -> Wakeups {
        let mut wakeups = Wakeups::default();
        for (at_us, by, tid) in all {
            wakeups.see(Waker { tid: *tid, name: Name::default(), waking: waking(*at_us, *by) });
        }
        wakeups
    }

    fn tids(wakers: &[Waker]) -> Vec<u32> {
        wakers.iter().map(|one| one.tid).collect()
    }

    #[test]
    fn a_wake_up_is_followed_back_to_an_interrupt() {
        let all = seen(&[(900, 0, 3), (1_000, 0, 1), (1_010, 1, 2), (1_020, 0, 1), (1_030, 2, 7)]);
        let wakers = all.before(7, waking(1_030, 2));
        // The later wake-up of 1 is not what made it wake 2.
        assert_eq!(tids(&wakers), [2, 1]);
        assert_eq!(wakers[1].waking, waking(1_000, 0));
        assert!(all.before(7, waking(1_030, 0)).is_empty(), "an interrupt is the begin");
        assert!(all.before(7, waking(1_030, 99)).is_empty(), "nobody saw how 99 was woken");
    }

    #[test]
    fn two_threads_that_wake_each_other_end_with_the_thread_itself() {
        let all = seen(&[(1_000, 7, 2), (1_010, 2, 7), (1_020, 7, 2), (1_030, 2, 7)]);
        let wakers = all.before(7, waking(1_030, 2));
        assert_eq!((tids(&wakers), wakers[0].waking.by), (vec![2], 7));
        // Seen from a third thread their turns are followed, as long as they are remembered.
        let turn = |at_us: u64| match at_us % 2 {
            0 => (at_us, 1, 2),
            _ => (at_us, 2, 1),
        };
        let long = seen(&(1_000..1_050).map(turn).collect::<Vec<_>>());
        assert_eq!(long.before(7, waking(1_050, 2)).len(), WAKERS_MAX.min(2 * REMEMBERED - 1));
    }

    #[test]
    fn what_is_long_ago_is_no_cause_and_many_threads_take_no_more_memory() {
        let late_us = 1_000 + LEAD_NS / 1_000;
        let all = seen(&[(999, 0, 2), (late_us, 2, 7)]);
        assert!(all.before(7, waking(late_us, 2)).is_empty());
        let many: Vec<_> = (1..200_000).map(|n| (u64::from(n), 0, n)).collect();
        assert!(seen(&many).threads.len() <= THREADS_MAX);
    }
}
