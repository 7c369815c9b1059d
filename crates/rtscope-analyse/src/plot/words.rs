//! Numbers as people read them: in plots, their sentences and their tables.

use rtscope_model::time::{Nanos, Rounding};

use crate::number::grouped;

/// A latency or a duration: `12.3 us`.
pub(crate) fn time(ns: u64) -> String {
    Nanos(ns).to_string()
}

/// A lower bound.
pub(crate) fn at_least(ns: u64) -> String {
    Nanos(ns).rounded(Rounding::Down)
}

pub(crate) fn mean(ns: f64) -> String {
    Nanos(ns.round() as u64).to_string()
}

/// An instant since the start of the run: to the hundredth of a second below a minute, to the second beyond.
pub(crate) fn instant(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{:.2} s", ns as f64 / 1e9),
        60..3600 => format!("{minutes}:{:02} min", seconds % 60),
        _ => format!("{hours}:{minutes:02}:{:02} h", seconds % 60),
    }
}

/// A part of a whole in percent with two significant digits; 0 only for none.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0 %".to_owned();
    }
    let percent = part as f64 / whole as f64 * 100.0;
    let digits = (1.0 - percent.log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{percent:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text} %")
}

/// A share as `1 in 2,500`. `rounding` applies to the share: a larger number means a smaller share.
pub(crate) fn one_in(share: f64, rounding: Rounding) -> String {
    let n = rounding.reversed().whole(1.0 / share);
    if !(n.is_finite() && n < 1e18) {
        return "none".to_owned();
    }
    match n as u64 {
        0 | 1 => "all".to_owned(),
        n => format!("1 in {}", grouped(n)),
    }
}

/// A power of ten in words that stay short: `1,000`, `1 million`.
pub(crate) fn power_of_ten(n: f64) -> String {
    let (unit, name) = match n {
        1e9.. => (1e9, " billion"),
        1e6.. => (1e6, " million"),
        _ => (1.0, ""),
    };
    format!("{}{name}", grouped((n / unit).round() as u64))
}

/// The first `limit` characters, with `...` in place of what was cut.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let kept: String = text.chars().take(limit.saturating_sub(3)).collect();
    format!("{}...", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(percent(12, 40_000), "0.03 %");
        assert_eq!(percent(1, 3), "33 %");
        assert_eq!(percent(40_000, 40_000), "100 %");
        assert_eq!(percent(0, 0), "0 %");
        assert_eq!(one_in(0.0004, Rounding::Nearest), "1 in 2,500");
        assert_eq!(one_in(1.0, Rounding::Up), "all");
        assert_eq!(one_in(0.0, Rounding::Up), "none");
        let ends = [Rounding::Down, Rounding::Up].map(|end| one_in(0.3, end));
        assert_eq!(ends, ["1 in 4", "1 in 3"]);
        assert_eq!(instant(9_310_000_000), "9.31 s");
        assert_eq!(instant(3_725_000_000_000), "1:02:05 h");
        assert_eq!(power_of_ten(10_000_000.0), "10 million");
        assert_eq!(cut("a long name", 8), "a lon...");
    }
}
