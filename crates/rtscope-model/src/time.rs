//! Time as an integer number of nanoseconds.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A duration or an instant, in nanoseconds. Instants are relative to the epoch named by their field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// Direction in which to round a displayed figure. An upper bound that is rounded down would claim more than was
/// computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    Down,
    Nearest,
    Up,
}

/// Tolerance for floating-point error before rounding, in steps of the last digit.
const EXACT: f64 = 1e-9;

impl Rounding {
    /// A number as a whole number.
    #[must_use]
    pub fn whole(self, number: f64) -> f64 {
        match self {
            Rounding::Down => (number + EXACT).floor(),
            Rounding::Nearest => number.round(),
            Rounding::Up => (number - EXACT).ceil(),
        }
    }

    /// A number with so many decimals, and never `-0`.
    #[must_use]
    pub fn decimals(self, number: f64, decimals: i32) -> f64 {
        let steps = 10f64.powi(decimals);
        self.whole(number * steps) / steps + 0.0
    }

    /// How many steps of this size a number has.
    #[must_use]
    pub fn steps(self, number: u64, step: u64) -> u64 {
        match self {
            Rounding::Down => number / step,
            Rounding::Nearest => number.saturating_add(step / 2) / step,
            Rounding::Up => number.div_ceil(step),
        }
    }

    /// The direction for a figure that gets smaller as the other one gets larger: a time for a rate.
    #[must_use]
    pub const fn reversed(self) -> Rounding {
        match self {
            Rounding::Down => Rounding::Up,
            Rounding::Nearest => Rounding::Nearest,
            Rounding::Up => Rounding::Down,
        }
    }
}

/// Units in which a duration may be written, longest suffix first so that `ms` is not read as `s`.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

impl Nanos {
    /// Nothing.
    pub const ZERO: Nanos = Nanos(0);

    #[must_use]
    pub const fn from_us(us: u64) -> Nanos {
        Nanos(us * 1_000)
    }

    #[must_use]
    pub const fn from_ms(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    #[must_use]
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s * 1_000_000_000)
    }

    /// Seconds as a float: for rates and plots, never for arithmetic on latencies.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// This duration times a positive factor, rounded to the nearest nanosecond.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Nanos {
        Nanos((self.0 as f64 * factor).round() as u64)
    }

    /// As [`Display`](fmt::Display) shows it where that is exact, else as [`exact`](Nanos::exact): a rounded limit would be
    /// another one.
    #[must_use]
    pub fn unrounded(self) -> String {
        let [low, high] = [Rounding::Down, Rounding::Up].map(|rounding| self.rounded(rounding));
        if low == high { low } else { self.exact() }
    }

    /// In the largest unit that keeps it readable: `850 ns`, `12.3 us`, `4.56 ms`, `1 min 30 s`. For a minute or
    /// more, part of a second counts only when rounding up.
    #[must_use]
    pub fn rounded(self, rounding: Rounding) -> String {
        let in_unit = |unit: u64| significant(self.0, unit, rounding);
        match self.0 {
            n @ 0..1_000 => format!("{n} ns"),
            1_000..1_000_000 => format!("{} us", in_unit(1_000)),
            1_000_000..1_000_000_000 => format!("{} ms", in_unit(1_000_000)),
            1_000_000_000..60_000_000_000 => format!("{} s", in_unit(1_000_000_000)),
            n if rounding == Rounding::Up => long_duration(n.div_ceil(1_000_000_000)),
            n => long_duration(n / 1_000_000_000),
        }
    }
}

impl fmt::Display for Nanos {
    /// [`rounded`](Nanos::rounded) to the nearest last digit, or down to a second if it is a minute or more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.rounded(Rounding::Nearest))
    }
}

/// `ns` in a unit of at least 100 ns: up to two decimals, without trailing zeros.
fn significant(ns: u64, unit_ns: u64, rounding: Rounding) -> String {
    let (decimals, of_unit) = if ns < 10 * unit_ns { (2, 100) } else { (1, 10) };
    let steps = rounding.steps(ns, unit_ns / of_unit);
    let text = format!("{:.decimals$}", steps as f64 / of_unit as f64);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn long_duration(total_s: u64) -> String {
    let parts = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let mut rest = total_s;
    let mut words = Vec::new();
    for (size, unit) in parts {
        let n = rest / size;
        rest %= size;
        if n > 0 {
            words.push(format!("{n} {unit}"));
        }
    }
    words.join(" ")
}

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a duration: write a number and a unit, for example 200us, 1ms, 5s, 10min or 6h"
)]
pub struct NotADuration(String);

impl FromStr for Nanos {
    type Err = NotADuration;

    /// Reads `200us`, `1.5 ms`, `10min`; a unit is required except for 0.
    fn from_str(text: &str) -> Result<Nanos, NotADuration> {
        let bad = || NotADuration(text.to_owned());
        let trimmed = text.trim();
        if trimmed == "0" {
            return Ok(Nanos::ZERO);
        }
        let (number, unit_ns) = UNITS
            .iter()
            .filter_map(|(suffix, ns)| Some((trimmed.strip_suffix(suffix)?.trim_end(), *ns)))
            .find(|(number, _)| number.ends_with(|c: char| c.is_ascii_digit()))
            .ok_or_else(bad)?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(unit_ns).map(Nanos).ok_or_else(bad);
        }
        let value: f64 = number.parse().map_err(|_| bad())?;
        let ns = value * unit_ns as f64;
        if !ns.is_finite() || !(0.0..9e18).contains(&ns) {
            return Err(bad());
        }
        Ok(Nanos(ns.round() as u64))
    }
}

impl Nanos {
    /// The shortest text that reads back as exactly this duration: `1ms`, `1500us`, `17.471us`, `7ns`.
    #[must_use]
    pub fn exact(self) -> String {
        if self.0 == 0 {
            return "0".to_owned();
        }
        let fits = |unit: &&(&str, u64)| self.0.is_multiple_of(unit.1) && unit.0 != "µs";
        let (suffix, ns) =
            UNITS.iter().filter(fits).max_by_key(|unit| unit.1).expect("1 ns divides everything");
        // Latencies are read in microseconds; a longer time would be a long number of them.
        if *ns == 1 && (1_000..1_000_000_000).contains(&self.0) {
            let digits = format!("{}.{:03}", self.0 / 1_000, self.0 % 1_000);
            return format!("{}us", digits.trim_end_matches('0'));
        }
        format!("{}{suffix}", self.0 / ns)
    }
}

impl Serialize for Nanos {
    /// In a plan (human-readable text) as `1ms`; nothing else in the formats serialises this type:
    /// measured values are plain integers in fields whose names end in `_ns`.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.exact())
    }
}

impl<'de> Deserialize<'de> for Nanos {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_all_units() {
        let read = |text: &str| text.parse::<Nanos>().map(|n| n.0);
        assert_eq!(read("0"), Ok(0));
        assert_eq!(read("850ns"), Ok(850));
        assert_eq!(read("200us"), Ok(200_000));
        assert_eq!(read("1.5 ms"), Ok(1_500_000));
        assert_eq!(read("2min"), Ok(120_000_000_000));
        assert_eq!(read("1d"), Ok(86_400_000_000_000));
        for wrong in ["", "5", "ms", "-1ms", "1 fortnight", "nan s", "1e300s", "99999999999999d"] {
            assert!(read(wrong).is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    fn exact_text_reads_back() {
        for ns in [0, 1, 999, 1_000, 1_500_000, 60_000_000_000, 86_400_000_000_000, 61_000_000_007]
        {
            assert_eq!(Nanos(ns).exact().parse(), Ok(Nanos(ns)));
        }
        for (ns, text) in [(999, "999ns"), (17_471, "17.471us"), (1_050, "1.05us")] {
            assert_eq!(Nanos(ns).exact(), text);
        }
        // Every digit counts, up to the last that is written so.
        for ns in (999_999_001..1_000_000_100).chain(1_001..3_001) {
            assert_eq!(Nanos(ns).exact().parse(), Ok(Nanos(ns)));
        }
    }

    #[test]
    fn display_picks_a_readable_unit() {
        let show = |ns| Nanos(ns).to_string();
        assert_eq!(show(850), "850 ns");
        assert_eq!(show(12_345), "12.3 us");
        assert_eq!(show(200_000), "200 us");
        assert_eq!(show(4_560_000), "4.56 ms");
        assert_eq!(show(90_000_000_000), "1 min 30 s");
        assert_eq!([show(9_996), show(999_960)], ["10 us", "1000 us"]);
    }

    #[test]
    fn a_bound_is_rounded_to_the_side_that_says_less() {
        let ends = [Rounding::Down, Rounding::Up];
        let shown = |ns| ends.map(|end| Nanos(ns).rounded(end));
        assert_eq!(shown(12_345), ["12.3 us", "12.4 us"]);
        assert_eq!(shown(9_991), ["9.99 us", "10 us"]);
        assert_eq!(shown(200_000), ["200 us", "200 us"]);
        assert_eq!(shown(59_960_000_000), ["59.9 s", "60 s"]);
        assert_eq!(shown(90_000_000_001), ["1 min 30 s", "1 min 31 s"]);
        assert_eq!([200_000, 200_001].map(|ns| Nanos(ns).unrounded()), ["200 us", "200.001us"]);
        let all = [Rounding::Down, Rounding::Nearest, Rounding::Up];
        assert_eq!(all.map(|rounding| rounding.decimals(-1.26, 1)), [-1.3, -1.3, -1.2]);
        assert_eq!(all.map(|rounding| rounding.decimals(0.3, 1)), [0.3; 3]);
        assert_eq!(format!("{:+.1}", Rounding::Up.decimals(-0.04, 1)), "+0.0");
    }
}
