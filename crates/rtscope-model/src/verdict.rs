//! Requirements and verdicts.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::time::Nanos;

/// The answer of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// There was no requirement: figures and findings only.
    Measured,
    /// Every requirement is met and the run is valid.
    Pass,
    /// A requirement is not met.
    Fail,
    /// The run can't answer; the reasons say why.
    Inconclusive,
}

impl Verdict {
    /// The worst of several; none of none. A failure outweighs an open question, that a pass, and a pass a run
    /// without requirements.
    #[must_use]
    pub fn worst(all: impl IntoIterator<Item = Verdict>) -> Option<Verdict> {
        all.into_iter().max_by_key(|verdict| match verdict {
            Verdict::Measured => 0,
            Verdict::Pass => 1,
            Verdict::Inconclusive => 2,
            Verdict::Fail => 3,
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Measured => "Measured",
            Verdict::Pass => "Pass",
            Verdict::Fail => "Fail",
            Verdict::Inconclusive => "Inconclusive",
        })
    }
}

/// The statistic that a requirement bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    Max,
    Mean,
    /// Quantile, in parts of a billion: p99.99 is 999,900,000. An integer, so that it can be compared.
    Quantile(u32),
    /// Number of missed activations.
    Missed,
    /// Of a network sampler: frames that came back after the timeout.
    Late,
    /// Of a network sampler: frames that did not come back.
    Lost,
}

impl Statistic {
    /// Whether it is a count, and not a latency.
    #[must_use]
    pub const fn is_count(self) -> bool {
        matches!(self, Statistic::Missed | Statistic::Late | Statistic::Lost)
    }
}

/// What a cell must satisfy, for example `max < 200us`, `p99.99 < 50us`, `missed = 0`, or a claim about a
/// rate: `max < 200us once in 1h`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requirement {
    pub statistic: Statistic,
    /// The limit: the statistic must stay below it (nanoseconds, or a count for `missed`, `late` and `lost`, which
    /// must not be above it).
    pub limit: u64,
    /// Of a claim: the limit may be reached at most once in this time, on average. Only with `max`.
    pub once_in: Option<Nanos>,
}

impl Requirement {
    /// The latency limit and the time of a claim; none for any other requirement.
    #[must_use]
    pub fn claim(&self) -> Option<(Nanos, Nanos)> {
        Some((Nanos(self.limit), self.once_in?))
    }

    /// The latency limit in nanoseconds; none for a count.
    #[must_use]
    pub fn limit_ns(&self) -> Option<u64> {
        (!self.statistic.is_count()).then_some(self.limit)
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Max => f.write_str("max"),
            Statistic::Mean => f.write_str("mean"),
            Statistic::Missed => f.write_str("missed"),
            Statistic::Late => f.write_str("late"),
            Statistic::Lost => f.write_str("lost"),
            Statistic::Quantile(parts) => {
                let (whole, rest) = (parts / 10_000_000, parts % 10_000_000);
                let digits = format!("{rest:07}");
                match digits.trim_end_matches('0') {
                    "" => write!(f, "p{whole}"),
                    decimals => write!(f, "p{whole}.{decimals}"),
                }
            }
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.statistic {
            count if count.is_count() && self.limit == 0 => write!(f, "{count} = 0")?,
            count if count.is_count() => write!(f, "{count} <= {}", self.limit)?,
            statistic => write!(f, "{statistic} < {}", Nanos(self.limit).exact())?,
        }
        match self.once_in {
            Some(once_in) => write!(f, " once in {}", once_in.exact()),
            None => Ok(()),
        }
    }
}

/// Why a text is not a requirement, with one hint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotARequirement(String);

impl FromStr for Requirement {
    type Err = NotARequirement;

    fn from_str(text: &str) -> Result<Requirement, NotARequirement> {
        let bad = |why: String| {
            NotARequirement(format!(
                "{why}: write it as 'max < 200us', 'p99.99 < 50us', 'mean < 20us', 'missed = 0' or \
                 'max < 200us once in 1h'"
            ))
        };
        let at = text.find(['<', '=']).ok_or_else(|| bad(format!("{text:?} has no '<'")))?;
        let name = text[..at].trim();
        let rest = text[at..].trim_start_matches(['<', '=']);
        let sign = &text[at..text.len() - rest.len()];
        if !["<", "<=", "="].contains(&sign) {
            return Err(bad(format!("{sign:?} is not one of <, <= and =")));
        }
        let (rest, once_in) = match rest.split_once(" once in ") {
            Some((rest, time)) => (rest.trim(), Some(time.trim())),
            None => (rest.trim(), None),
        };
        let statistic = match name {
            "max" => Statistic::Max,
            "mean" | "avg" => Statistic::Mean,
            "missed" => Statistic::Missed,
            "late" => Statistic::Late,
            "lost" => Statistic::Lost,
            name => Statistic::Quantile(
                quantile_parts_of(name)
                    .ok_or_else(|| bad(format!("{name:?} is not a statistic{}", meant(name))))?,
            ),
        };
        let limit = if statistic.is_count() {
            let count: u64 = rest.parse().map_err(|_| bad(format!("{rest:?} is not a count")))?;
            match (sign, count) {
                ("<", 0) => return Err(bad("a count is never below 0".to_owned())),
                ("<", above) => above - 1,
                ("=", 1..) => {
                    let why = format!(
                        "the count {name} takes only an upper limit: write '{name} <= {count}'"
                    );
                    return Err(NotARequirement(why));
                }
                (_, most) => most,
            }
        } else {
            if sign == "=" {
                return Err(bad("a limit for a latency can't use '='".to_owned()));
            }
            if rest.contains("once") {
                return Err(bad(format!("{rest:?} is not a limit")));
            }
            // What is no duration has a hint of its own.
            let limit: Nanos = rest.parse().map_err(|e| NotARequirement(format!("{e}")))?;
            if limit == Nanos::ZERO {
                return Err(bad("a latency is never below 0".to_owned()));
            }
            // Latencies are whole nanoseconds.
            limit.0.saturating_add(u64::from(sign == "<="))
        };
        let once_in = match once_in {
            None => None,
            Some(_) if statistic != Statistic::Max => {
                return Err(bad(format!("\"once in\" goes with max, not with {statistic}")));
            }
            Some(time) => match time.parse().map_err(|e| NotARequirement(format!("{e}")))? {
                Nanos::ZERO => return Err(bad("\"once in 0\" claims nothing".to_owned())),
                time => Some(time),
            },
        };
        Ok(Requirement { statistic, limit, once_in })
    }
}

/// What a quantile without its point was meant to be.
fn meant(name: &str) -> String {
    let digits =
        name.strip_prefix('p').filter(|digits| digits.len() > 2 && digits.starts_with('9'));
    let dotted = digits.and_then(|digits| Some(format!("p{}.{}", digits.get(..2)?, &digits[2..])));
    let dotted = dotted.filter(|dotted| quantile_parts_of(dotted).is_some());
    dotted.map(|dotted| format!(" (did you mean {dotted}?)")).unwrap_or_default()
}

/// The parts of a billion of a quantile's name: 999,900,000 for `p99.99`; none where it isn't one.
pub(crate) fn quantile_parts_of(name: &str) -> Option<u32> {
    name.strip_prefix('p').and_then(quantile_parts)
}

/// `99.99` as parts of a billion; none outside (0, 100) or with more than seven decimals.
fn quantile_parts(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |word: &str| word.chars().all(|c| c.is_ascii_digit());
    if whole.is_empty() || decimals.len() > 7 || !digits(whole) || !digits(decimals) {
        return None;
    }
    let whole: u32 = whole.parse().ok().filter(|n| *n < 100)?;
    let rest: u32 = format!("{decimals:0<7}").parse().ok()?;
    let parts = whole * 10_000_000 + rest;
    (parts > 0).then_some(parts)
}

crate::text::serde_as_text!(Requirement);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_requirement_gets_one_hint() {
        for wrong in [
            "max < 5",
            "max < 5us once",
            "max < 5us once in",
            "max < 5us once in x",
            "max 5us",
            "p0 < 5us",
            "p99 < 5us once in 1h",
            "max < 5us once in 0",
            "missed = x",
            "max > 5us",
            "max < 0",
        ] {
            let said = wrong.parse::<Requirement>().expect_err(wrong).to_string();
            assert_eq!(said.matches("write ").count(), 1, "{wrong}: {said}");
        }
        let said = |text: &str| text.parse::<Requirement>().expect_err(text).to_string();
        assert!(said("p999 < 5ms").contains("(did you mean p99.9?)"));
        assert!(!said("p100 < 5ms").contains("did you mean"));
    }

    #[test]
    fn requirements_are_read_and_written() {
        let show = |text: &str| text.parse::<Requirement>().map(|r| r.to_string());
        assert_eq!(show("max<200us").as_deref(), Ok("max < 200us"));
        assert_eq!(show(" p99.99 < 50 us").as_deref(), Ok("p99.99 < 50us"));
        assert_eq!(show("p50<1ms").as_deref(), Ok("p50 < 1ms"));
        assert_eq!(show("avg < 20us").as_deref(), Ok("mean < 20us"));
        assert_eq!(show("missed <= 3").as_deref(), Ok("missed <= 3"));
        assert_eq!(show("missed = 0").as_deref(), Ok("missed = 0"));
        assert_eq!(show("missed < 3").as_deref(), Ok("missed <= 2"));
        assert_eq!(show("missed < 1").as_deref(), Ok("missed = 0"));
        assert_eq!(show("lost = 0").as_deref(), Ok("lost = 0"));
        assert_eq!(show("late<=7").as_deref(), Ok("late <= 7"));
        assert_eq!(show("max <= 17470ns").as_deref(), Ok("max < 17.471us"));
        assert_eq!(show("max<200us once in 90 min").as_deref(), Ok("max < 200us once in 90min"));
        let claim = "max < 200us once in 1h".parse::<Requirement>().map(|r| r.claim());
        assert_eq!(claim, Ok(Some((Nanos::from_us(200), Nanos::from_secs(3_600)))));
        assert_eq!("max < 200us".parse::<Requirement>().map(|r| r.claim()), Ok(None));
        for wrong in [
            "max",
            "max<",
            "max<200",
            "p100<1us",
            "p0<1us",
            "p<1us",
            "mux<1us",
            "max<0",
            "missed=x",
            "missed < 0",
            "missed = 3",
            "max = 200us",
            "max << 500us",
            "max =< 500us",
            "missed == 0",
            "p9.12345678<1us",
            "max < 200us once in",
            "max < 200us once in 0",
            "p99 < 200us once in 1h",
            "missed = 0 once in 1h",
        ] {
            assert!(wrong.parse::<Requirement>().is_err(), "{wrong:?} was accepted");
        }
    }
}
