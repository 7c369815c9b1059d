//! Claims about a rate that are watched until they are decided: how often a false one is backed and a true
//! one refuted.

use std::collections::BTreeMap;

use rtscope_analyse::statistics::{claim::ClaimWatch, random::Random};
use rtscope_model::{histogram::Histogram, slice::Slice, time::Nanos, verdict::Verdict};

use crate::systems::{LAYOUT, RATE, System, slice_of};

/// The claim: 20 us or more at most once in 10 min.
const LIMIT: Nanos = Nanos::from_us(20);
const ONCE_IN_S: u64 = 600;

/// Seconds between two looks, and after which one gives up.
const LOOK_S: u64 = 10;
const GIVE_UP_S: u64 = 10 * ONCE_IN_S;

/// Events come once in these multiples of the claimed time: a little too often, and rarely enough.
const TRUTHS: [f64; 4] = [0.5, 0.97, 1.03, 5.0];

/// What a claim comes to in many runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decided {
    /// Runs in which it was backed.
    pub(crate) backed: u32,
    /// Runs in which it was refuted.
    pub(crate) refuted: u32,
}

/// Watches the claim in many runs of a system whose events come once in `times` the claimed time.
pub(crate) fn decided(system: System, times: f64, runs: u32) -> Decided {
    let mut decided = Decided::default();
    for seed in 0..runs {
        match verdict(system, times, &mut Random::new(u64::from(seed))) {
            Verdict::Pass => decided.backed += 1,
            Verdict::Fail => decided.refuted += 1,
            _ => {}
        }
    }
    decided
}

/// Late wake-ups of a thread by second, and the time of the first of them.
fn late(system: System, pause_s: f64, random: &mut Random) -> BTreeMap<u64, (f64, u64)> {
    let mut late = BTreeMap::new();
    let mut add = |at_s: f64, count| late.entry(at_s as u64).or_insert((at_s, 0)).1 += count;
    let mut at_s = pause_s * random.exponential();
    while at_s < GIVE_UP_S as f64 {
        let (count, seconds) = system.event();
        (0..seconds).for_each(|second| add(at_s + f64::from(second), count));
        // The next spell begins after this one. A shorter event takes no time.
        at_s += if seconds > 1 { f64::from(seconds) } else { 0.0 };
        at_s += pause_s * random.exponential();
    }
    late
}

fn verdict(system: System, times: f64, random: &mut Random) -> Verdict {
    let once_in = Nanos::from_secs(ONCE_IN_S);
    let mut watch = ClaimWatch::new(LIMIT, once_in, LAYOUT, 0..system.threads());
    let late = late(system, times * ONCE_IN_S as f64, random);
    for second in 0..GIVE_UP_S {
        let (first_s, count) = late.get(&second).copied().unwrap_or_default();
        let mut one = Histogram::new(LAYOUT);
        one.add(&[(5_000, RATE - count)], 5_000, 5_000, 0);
        (0..count).for_each(|_| one.record(30_000));
        for thread in 0..system.threads() {
            let slice = slice_of(thread, second, &one);
            watch.add(&Slice { max_at_ns: (first_s * 1e9) as u64, ..slice });
        }
        if second % LOOK_S == LOOK_S - 1 {
            let verdict = watch.claim().verdict;
            if verdict != Verdict::Inconclusive {
                return verdict;
            }
        }
    }
    Verdict::Inconclusive
}

/// Prints what each claim came to.
pub(crate) fn rows(runs: u32) {
    println!("| system | an event once in | claim | backed | refuted | open after 10 times |");
    println!("|---|---:|---|---:|---:|---:|");
    for times in TRUTHS {
        for system in System::ALL {
            let found = decided(system, times, runs);
            let percent = |count: u32| 100.0 * f64::from(count) / f64::from(runs.max(1));
            println!(
                "| {} | {times} of the claimed time | {} | {:.1} % | {:.1} % | {:.1} % |",
                system.name(),
                if times < 1.0 { "false" } else { "true" },
                percent(found.backed),
                percent(found.refuted),
                percent(runs - found.backed - found.refuted),
            );
        }
    }
}
