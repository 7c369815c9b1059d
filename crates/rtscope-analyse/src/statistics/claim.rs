//! How long a run must be before it may claim that a latency is reached at most once in a time.
//!
//! With `k` exceedances in the time `T` under observation, the true rate is at 95 %, one-sided, at
//! most `q / T`, with `q` the 95 % quantile of the gamma distribution of shape `k + 1`: 3.00 for none,
//! 4.74 for one, 6.30 for two. The claim "at most once in `C`" holds from `T = q C` on.
//!
//! What it can't show: that the conditions of the run are those of the years to come.

use rtscope_model::{histogram::Histogram, time::Nanos, verdict::Verdict};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Gamma};

use super::exceedance;

/// A claim, held against an observation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// The limit.
    pub limit_ns: u64,
    /// It is reached at most once in this time of one thread.
    pub once_in_ns: u64,
    /// Latencies at or above the limit that were seen, at most.
    pub seen: u64,
    /// Time under observation, summed over the threads.
    pub observed_ns: u64,
    /// Time under observation that it takes with so many seen.
    pub needed_ns: u64,
    /// Pass: the observation backs it. Fail: at 95 % the rate is higher. Inconclusive: too short.
    pub verdict: Verdict,
}

/// Time under observation that backs "at most once in `interval`" at 95 % with `seen` exceedances.
#[must_use]
pub fn exposure_for(interval: Nanos, seen: u64) -> Nanos {
    let gamma = Gamma::new(seen as f64 + 1.0, 1.0).expect("a positive shape");
    interval.scaled(gamma.inverse_cdf(0.95))
}

/// Holds a claim against the latencies that were seen in a time. An exceedance that may have been one
/// counts.
#[must_use]
pub fn of(histogram: &Histogram, exposure_ns: u64, limit: Nanos, once_in: Nanos) -> Claim {
    let (surely, seen) = histogram.at_or_above(limit.0);
    let needed = exposure_for(once_in, seen);
    let claimed = exposure_ns as f64 / once_in.0 as f64;
    let verdict = if exposure_ns >= needed.0 {
        Verdict::Pass
    } else if exceedance::poisson_low(surely) > claimed {
        Verdict::Fail
    } else {
        Verdict::Inconclusive
    };
    Claim {
        limit_ns: limit.0,
        once_in_ns: once_in.0,
        seen,
        observed_ns: exposure_ns,
        needed_ns: needed.0,
        verdict,
    }
}

impl Claim {
    /// The claim and what the observation makes of it.
    #[must_use]
    pub fn sentence(&self) -> String {
        let [limit, once_in, observed, needed] =
            [self.limit_ns, self.once_in_ns, self.observed_ns, self.needed_ns].map(Nanos);
        let claim = format!("{limit} or more at most once in {once_in} of a thread's time");
        let seen = match self.seen {
            0 => "none".to_owned(),
            n => crate::number::grouped(n),
        };
        let seen = format!("{seen} in {observed}");
        match self.verdict {
            Verdict::Pass => format!("{claim}: backed at 95 %, {seen} ({needed} were enough)"),
            Verdict::Fail => format!("{claim}: not so at 95 %, {seen}"),
            _ => {
                let more = Nanos(self.needed_ns - self.observed_ns);
                format!("{claim}: open, {seen}; {more} more of it without one would back it")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::histogram::Layout;

    use super::*;

    #[test]
    fn times_are_those_of_the_tables() {
        let day = Nanos::from_secs(86_400);
        let days = |seen: u64| exposure_for(day, seen).as_secs_f64() / 86_400.0;
        // Upper 95 % one-sided limits of a Poisson mean for 0, 1, 2 and 10 events.
        for (seen, table) in [(0, 2.996), (1, 4.744), (2, 6.296), (10, 16.962)] {
            assert!((days(seen) - table).abs() < 6e-4, "{seen}: {}", days(seen));
        }
        assert_eq!(exposure_for(day, 0), exceedance::exposure_for(day));
    }

    #[test]
    fn a_claim_is_backed_open_or_wrong() {
        let with = |late: u64| {
            let mut histogram = Histogram::new(Layout::default());
            histogram.add(&[(5, 1_000_000), (250, late)], 5_000, 250_000, 0);
            let hour_ns = 3_600_000_000_000;
            of(&histogram, hour_ns, Nanos::from_us(200), Nanos::from_secs(600))
        };
        assert_eq!(with(0).verdict, Verdict::Pass);
        assert_eq!(with(3).verdict, Verdict::Inconclusive);
        // 20 in six times 10 min: at 95 % at least 12.2.
        assert_eq!(with(20).verdict, Verdict::Fail);
        let open = with(3).sentence();
        assert!(open.contains("open, 3 in 1 h; 17 min 32 s more"), "{open}");
    }
}
