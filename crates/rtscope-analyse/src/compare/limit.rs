//! How often a limit is reached on both sides, and who meets it.
//!
//! An import may hold latencies without a bucket: where one of them may lie on either side of the
//! limit, how often it was reached is not known. It is then said how often at least.

use rtscope_model::time::Nanos;
use serde::Serialize;

use super::{
    pairing::{Member, Pair},
    ratio::{self, Ratio},
    sample::Sample,
};
use crate::number::grouped;

/// How often a limit is reached on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exceedances {
    /// The limit.
    pub limit_ns: u64,
    /// Latencies of A at or above it; none where that is not known.
    pub a: Option<u64>,
    /// So many of A surely are.
    pub a_surely: u64,
    /// Of so many.
    pub a_of: u64,
    /// Latencies of B at or above it; none where that is not known.
    pub b: Option<u64>,
    /// So many of B surely are.
    pub b_surely: u64,
    /// Of so many.
    pub b_of: u64,
    /// B's share as a multiple of A's; none when neither reached it, or one is not known.
    pub ratio: Option<Ratio>,
}

/// Counts at a limit.
pub(super) fn of(pair: &Pair<'_>, a: &Sample, b: &Sample, limit_ns: u64) -> Exceedances {
    let (a, a_surely, a_of) = count(&pair.a, a, limit_ns);
    let (b, b_surely, b_of) = count(&pair.b, b, limit_ns);
    let ratio = a.zip(b).and_then(|(a, b)| ratio::of((a, a_of), (b, b_of)));
    Exceedances { limit_ns, a, a_surely, a_of, b, b_surely, b_of, ratio }
}

/// How many latencies of a side are at or above a limit, how many surely, and out of how many.
fn count(members: &[Member<'_>], side: &Sample, limit_ns: u64) -> (Option<u64>, u64, u64) {
    let histogram = &side.histogram;
    let (surely, at_most) = histogram.at_or_above(limit_ns);
    // Each thread's maximum proves one.
    let threads = members.iter().flat_map(|member| &member.cell.threads);
    let of_each: u64 = threads.map(|row| row.histogram.at_or_above(limit_ns).0).sum();
    let surely = surely.max(of_each).min(at_most);
    let is_known = histogram.unplaced().is_empty() || surely == at_most;
    (is_known.then_some(at_most), surely, histogram.count())
}

impl Exceedances {
    /// Who meets the limit, from how many, and whether that may be chance; none when nobody was seen.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let limit = Nanos(self.limit_ns);
        let counts = format!(
            "{} against {}",
            counted(self.a, self.a_surely, self.a_of),
            counted(self.b, self.b_surely, self.b_of)
        );
        if (self.a, self.b) == (Some(0), Some(0)) {
            return (self.a_of > 0 && self.b_of > 0).then(|| {
                format!(
                    "no latency of {limit} or more on either side: {counts}, nothing to compare"
                )
            });
        }
        let who = match (self.a, self.b) {
            (_, Some(0)) => format!("B meets {limit}, A does not"),
            (Some(0), _) => format!("A meets {limit}, B does not"),
            _ => format!("neither side meets {limit}"),
        };
        let than = match &self.ratio {
            Some(ratio) => ratio.sentence(),
            None => "how many it really was is not in the file".to_owned(),
        };
        Some(format!("{who}: {counts}; {than}"))
    }
}

/// `13 of 100`, or how many at least.
pub(crate) fn counted(count: Option<u64>, surely: u64, of: u64) -> String {
    match count {
        Some(count) => format!("{} of {}", grouped(count), grouped(of)),
        None => format!("at least {} of {}", grouped(surely), grouped(of)),
    }
}

impl Ratio {
    /// The ratio with its interval, and whether it may be chance.
    #[must_use]
    pub fn sentence(&self) -> String {
        let times = |ratio: f64| match ratio {
            r if r >= 99.5 => grouped(r.round() as u64),
            r if r >= 0.01 => format!("{r:.2}"),
            r => format!("{r:.1e}"),
        };
        let high = self.high.map_or_else(|| "no bound".to_owned(), times);
        if self.low <= 1.0 && self.high.is_none_or(|high| high >= 1.0) {
            return format!(
                "that may be chance (B's share is, at 95 %, {} to {high} times A's)",
                times(self.low)
            );
        }
        match self.ratio {
            Some(ratio) if ratio > 0.0 => format!(
                "B's share is {} times A's, at 95 % {} to {high} times",
                times(ratio),
                times(self.low)
            ),
            Some(_) => format!("at 95 % B's share is at most {high} times A's"),
            None => format!("at 95 % B's share is at least {} times A's", times(self.low)),
        }
    }
}
