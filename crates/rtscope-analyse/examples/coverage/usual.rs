//! What the usual way of backing a claim about a rate comes to: the bound of a run whose length is chosen in advance, for a
//! run that is extended until the claim holds, and the time of all threads added up.

use rtscope_analyse::statistics::random::Random;
use statrs::distribution::{DiscreteCDF, Poisson};

/// Looks in each claimed time.
const LOOKS: u32 = 6;

/// After how many claimed times one gives up.
const GIVE_UP: [u32; 4] = [3, 5, 15, 100];

/// Threads that one cause delays together.
const THREADS: u64 = 8;

/// How often at most so many events are seen where so many are expected.
fn at_most(events: u64, expected: f64) -> f64 {
    Poisson::new(expected).map_or(1.0, |seen| seen.cdf(events))
}

/// Whether a claim is backed at some look, when a cause comes once in `times` the claimed time. Each is seen on so many threads,
/// whose time is added up.
fn is_backed(threads: u64, times: f64, give_up: u32, random: &mut Random) -> bool {
    let (mut causes, mut next) = (0, times * random.exponential());
    (1..=give_up * LOOKS).any(|look| {
        let at = f64::from(look) / f64::from(LOOKS);
        while next < at {
            causes += 1;
            next += times * random.exponential();
        }
        at_most(causes * threads, at * threads as f64) <= 0.05
    })
}

fn percent(threads: u64, times: f64, give_up: u32, runs: u32) -> f64 {
    let is_wrong =
        |seed: &u32| is_backed(threads, times, give_up, &mut Random::new((*seed).into()));
    100.0 * (0..runs).filter(is_wrong).count() as f64 / f64::from(runs.max(1))
}

/// Prints how often false claims were backed: one that is just false, and one that is false by a quarter, of one thread and of
/// the time of several threads with a common cause.
pub(crate) fn rows(runs: u32) {
    println!(
        "| given up after | just false | false by a quarter | the same, {THREADS} threads added up |"
    );
    println!("|---:|---:|---:|---:|");
    for give_up in GIVE_UP {
        let [just, quarter, added] = [(1, 0.97), (1, 0.8), (THREADS, 0.8)]
            .map(|(threads, times)| percent(threads, times, give_up, runs));
        println!(
            "| {give_up} times the claimed time | {just:.1} % | {quarter:.1} % | {added:.1} % |"
        );
    }
}
