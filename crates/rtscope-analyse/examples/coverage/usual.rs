//! What the usual way of backing a claim about a rate comes to: the bound of a run whose length is chosen in advance, for a
//! run that is extended until the claim holds, and the time of all threads added up.

use rtscope_analyse::statistics::random::Random;

/// Between two looks, in claimed times.
const LOOK: f64 = 1.0 / 6.0;

/// After how many claimed times one gives up.
const GIVE_UP: [u32; 4] = [3, 5, 15, 100];

/// Threads that one cause delays together.
const THREADS: u64 = 8;

/// How often at most so many events are seen where so many are expected: the Poisson distribution.
fn at_most(events: u64, expected: f64) -> f64 {
    // In logarithms: the first terms are smaller than the smallest float.
    let terms = (1..=events).scan(-expected, |ln, n| {
        *ln += (expected / n as f64).ln();
        Some(ln.exp())
    });
    (-expected).exp() + terms.sum::<f64>()
}

/// Whether a claim that is just false is backed at some look. Each cause is seen on so many threads, whose time is added up.
fn is_backed(threads: u64, times: f64, give_up: u32, random: &mut Random) -> bool {
    let (mut causes, mut next) = (0, times * random.exponential());
    let looks = (f64::from(give_up) / LOOK) as u32;
    (1..=looks).any(|look| {
        let at = f64::from(look) * LOOK;
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

/// Prints how often the false claim was backed.
pub(crate) fn rows(runs: u32) {
    println!(
        "| given up after | an event as often as claimed | a common cause on {THREADS} threads, a quarter too often |"
    );
    println!("|---:|---:|---:|");
    for give_up in GIVE_UP {
        let [alone, common] = [(1, 1.0), (THREADS, 0.8)]
            .map(|(threads, times)| percent(threads, times, give_up, runs));
        println!("| {give_up} times the claimed time | {alone:.0} % | {common:.0} % |");
    }
}
