//! Numbers as people read them.

use rtscope_model::time::Rounding;

/// A count with a comma between thousands: `1,234,567`.
#[must_use]
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nanoseconds as microseconds: one decimal below 1 ms, none from there on, where the buckets are
/// wider than that.
#[must_use]
pub fn us(ns: u64) -> String {
    us_rounded(ns, Rounding::Nearest)
}

/// Like [`us`], with the given rounding. Round the ends of an interval outwards with it.
#[must_use]
pub fn us_rounded(ns: u64, rounding: Rounding) -> String {
    match rounding.steps(ns, 100) {
        tenths @ 0..10_000 => format!("{}.{}", tenths / 10, tenths % 10),
        _ => grouped(rounding.steps(ns, 1_000)),
    }
}

/// Nanoseconds as microseconds to the last digit, for what must be told from a limit nearby:
/// `1,234.567 us`.
#[must_use]
pub fn exact_us(ns: u64) -> String {
    format!("{}.{:03} us", grouped(ns / 1_000), ns % 1_000)
}

/// A rate with three digits: `0.012`, `12.3`, `12,345`.
#[must_use]
pub fn per_second(rate: f64) -> String {
    per_second_rounded(rate, Rounding::Nearest)
}

/// Like [`per_second`], with the given rounding. Round the ends of an interval outwards with it.
#[must_use]
pub fn per_second_rounded(rate: f64, rounding: Rounding) -> String {
    for (decimals, below) in [(3, 1.0), (2, 10.0), (1, 100.0)] {
        let rounded = rounding.decimals(rate, decimals);
        if rounded < below {
            return format!("{rounded:.0$}", decimals as usize);
        }
    }
    grouped(rounding.whole(rate) as u64)
}

/// A frequency in three digits.
#[must_use]
pub fn hertz(hz: f64) -> String {
    match hz {
        hz if hz >= 1e6 => format!("{:.2} MHz", hz / 1e6),
        hz if hz >= 1e5 => format!("{:.0} kHz", hz / 1e3),
        hz if hz >= 1e4 => format!("{:.1} kHz", hz / 1e3),
        hz if hz >= 1e3 => format!("{:.2} kHz", hz / 1e3),
        hz if hz >= 1e2 => format!("{hz:.0} Hz"),
        hz => format!("{hz:.1} Hz"),
    }
}

/// A frequency with six digits.
#[must_use]
pub fn exact_hertz(hz: f64) -> String {
    match hz {
        hz if hz >= 1e6 => format!("{:.6} MHz", hz / 1e6),
        hz if hz >= 1e3 => format!("{:.6} kHz", hz / 1e3),
        hz => format!("{hz:.4} Hz"),
    }
}

/// A count with its noun: `1 thread`, `1,234 threads`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// How many places a finding names.
const NAMED: usize = 4;

/// The first few of several places, and how many more there are; none when there are none.
pub(crate) fn listed(places: impl IntoIterator<Item = String>) -> Option<String> {
    let places: Vec<String> = places.into_iter().collect();
    let named = places[..places.len().min(NAMED)].join(", ");
    match places.len() {
        0 => None,
        n if n <= NAMED => Some(named),
        n => Some(format!("{named} and {} more", n - NAMED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let shown = [0, 49, 50, 3_999, 999_949, 999_950, 41_234_567, u64::MAX].map(us);
        let expected = ["0.0", "0.0", "0.1", "4.0", "999.9", "1,000", "41,235"];
        assert_eq!(shown[..7], expected);
        assert_eq!([7, 1_234_567].map(exact_us), ["0.007 us", "1,234.567 us"]);
        let rates = [0.0, 0.0123, 1.0, 12.34, 99.96, 12_345.6].map(per_second);
        assert_eq!(rates, ["0.000", "0.012", "1.00", "12.3", "100", "12,346"]);
        let ends = [Rounding::Down, Rounding::Nearest, Rounding::Up];
        assert_eq!(ends.map(|end| us_rounded(1_249, end)), ["1.2", "1.2", "1.3"]);
        assert_eq!(ends.map(|end| us_rounded(999_999, end)), ["999.9", "1,000", "1,000"]);
        assert_eq!(ends.map(|end| per_second_rounded(12.34, end)), ["12.3", "12.3", "12.4"]);
        assert_eq!(ends.map(|end| per_second_rounded(1.1, end)), ["1.10"; 3]);
        assert_eq!(ends.map(|end| per_second_rounded(0.0004, end)), ["0.000", "0.000", "0.001"]);
        assert_eq!(ends.map(|end| per_second_rounded(99.96, end)), ["99.9", "100", "100"]);
        assert_eq!([counted(1, "thread"), counted(2_000, "sample")], ["1 thread", "2,000 samples"]);
    }
}
