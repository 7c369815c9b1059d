//! Axes: from a value to a place, and the ticks between, in steps of 1, 2 and 5.

use rtscope_model::time::Nanos;

/// An axis: values from `from` to `to` lie on places from `at` to `at + length`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    /// Logarithmic; then `from` is above 0.
    pub(crate) log: bool,
    pub(crate) from: f64,
    /// Last value, above the first.
    pub(crate) to: f64,
    at: f64,
    length: f64,
}

/// A place on an axis that is named.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    /// Its name; empty for a line without one.
    pub(crate) label: String,
}

impl Scale {
    /// An axis on which equal lengths are equal differences. An empty span is widened.
    pub(crate) fn linear(from: f64, to: f64, at: f64, length: f64) -> Scale {
        // Beyond 2^53 adding 1 changes nothing.
        let widened = from + (from.abs() * 0.01).max(1.0);
        Scale { log: false, from, to: if to > from { to } else { widened }, at, length }
    }

    /// An axis on which equal lengths are equal ratios. An empty span is widened.
    pub(crate) fn log(from: f64, to: f64, at: f64, length: f64) -> Scale {
        let from = if from > 0.0 { from } else { 1.0 };
        Scale { log: true, from, to: if to > from { to } else { from * 10.0 }, at, length }
    }

    /// The place of a value; values beyond an end lie on it.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.from, self.to);
        let share = if self.log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.at + share * self.length
    }

    /// Values for ticks: about `wanted` on a linear axis; on a logarithmic one the powers of ten,
    /// with 2 and 5 times each where there are few.
    pub(crate) fn values(&self, wanted: usize) -> Vec<f64> {
        if !self.log {
            let step = nice_above((self.to - self.from) / wanted.max(1) as f64);
            let first = (self.from / step).ceil() as i64;
            let last = (self.to / step + 1e-9).floor() as i64;
            return (first..=last).map(|n| n as f64 * step).collect();
        }
        let decades = (self.to / self.from).log10();
        let multiples: &[f64] =
            if decades * 2.4 <= wanted as f64 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = (decades / wanted.max(1) as f64).ceil().max(1.0) as usize;
        let first = self.from.log10().floor() as i32;
        let last = self.to.log10().ceil() as i32;
        let powers = (first..=last).filter(|power| power.rem_euclid(every as i32) == 0);
        powers
            .flat_map(|power| multiples.iter().map(move |m| m * 10f64.powi(power)))
            .filter(|v| (self.from * 0.999..=self.to * 1.001).contains(v))
            .collect()
    }

    /// Ticks for latencies in nanoseconds.
    pub(crate) fn latency_ticks(&self, wanted: usize) -> Vec<Tick> {
        let label = |value: f64| match value.round() as u64 {
            0 => "0".to_owned(),
            ns => Nanos(ns).to_string(),
        };
        self.values(wanted).into_iter().map(|value| Tick { value, label: label(value) }).collect()
    }

    /// Ticks for instants of a run in nanoseconds: whole seconds, minutes, hours or days.
    pub(crate) fn time_ticks(&self, wanted: usize) -> Vec<Tick> {
        let (unit_ns, unit) = time_unit(self.to - self.from);
        let in_unit = Scale { from: self.from / unit_ns, to: self.to / unit_ns, ..*self };
        let label = |value: f64| format!("{} {unit}", trimmed(value));
        let values = in_unit.values(wanted).into_iter();
        values.map(|v| Tick { value: v * unit_ns, label: label(v) }).collect()
    }

    /// Ticks for counts: 1, 10, 100, 1 k...
    pub(crate) fn count_ticks(&self, wanted: usize) -> Vec<Tick> {
        let whole = |value: &f64| *value >= 1.0 || *value == 0.0;
        let values = self.values(wanted).into_iter().filter(whole);
        values.map(|value| Tick { value, label: short(value) }).collect()
    }
}

/// The unit in which a span of time is best told.
fn time_unit(span_ns: f64) -> (f64, &'static str) {
    match span_ns / 1e9 {
        ..1.0 => (1e6, "ms"),
        ..180.0 => (1e9, "s"),
        ..10_800.0 => (60e9, "min"),
        ..259_200.0 => (3_600e9, "h"),
        _ => (86_400e9, "d"),
    }
}

/// A number with up to three decimals, without trailing zeros.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A count in at most five characters: `500`, `20 k`, `3 M`.
pub(crate) fn short(value: f64) -> String {
    match value {
        1e9.. => format!("{} G", trimmed(value / 1e9)),
        1e6.. => format!("{} M", trimmed(value / 1e6)),
        1e3.. => format!("{} k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

/// The power of ten not above a value, and the value as a multiple of it, 1 to 10.
fn normalised(value: f64) -> (f64, f64) {
    let power = 10f64.powi(value.log10().floor() as i32);
    (power, value / power)
}

/// The smallest of 1, 2, 5 times a power of ten that is not below a value above 0.
pub(crate) fn nice_above(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let (power, multiple) = normalised(value);
    let step = [1.0, 2.0, 5.0].into_iter().find(|m| multiple <= m * 1.000_000_1).unwrap_or(10.0);
    step * power
}

/// The largest of 1, 2, 5 times a power of ten that is not above a value above 0.
pub(crate) fn nice_below(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let (power, multiple) = normalised(value);
    let step = [5.0, 2.0].into_iter().find(|m| multiple * 1.000_000_1 >= *m).unwrap_or(1.0);
    step * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: Vec<Tick>) -> Vec<String> {
        ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn places_are_proportional_to_differences_or_ratios() {
        let linear = Scale::linear(0.0, 200.0, 10.0, 100.0);
        assert_eq!(linear.place(50.0), 35.0);
        assert_eq!(linear.place(900.0), 110.0);
        let log = Scale::log(1.0, 10_000.0, 400.0, -200.0);
        assert!((log.place(100.0) - 300.0).abs() < 1e-9);
        assert_eq!(log.place(0.0), 400.0);
    }

    #[test]
    fn ticks_are_round() {
        let linear = Scale::linear(0.0, 87_000.0, 0.0, 1.0);
        assert_eq!(labels(linear.latency_ticks(6)), ["0", "20 us", "40 us", "60 us", "80 us"]);
        let log = Scale::log(1_000.0, 500_000.0, 0.0, 1.0);
        let expected =
            ["1 us", "2 us", "5 us", "10 us", "20 us", "50 us", "100 us", "200 us", "500 us"];
        assert_eq!(labels(log.latency_ticks(9)), expected);
        assert_eq!(labels(log.latency_ticks(5)), ["1 us", "10 us", "100 us"]);
        let wide = Scale::log(0.5, 2e9, 0.0, 1.0);
        assert_eq!(labels(wide.count_ticks(5)), ["1", "100", "10 k", "1 M", "100 M"]);
    }

    #[test]
    fn time_is_told_in_its_own_unit() {
        let over = |span_s: f64| labels(Scale::linear(0.0, span_s * 1e9, 0.0, 1.0).time_ticks(4));
        assert_eq!(over(20.0), ["0 s", "5 s", "10 s", "15 s", "20 s"]);
        assert_eq!(over(600.0), ["0 min", "5 min", "10 min"]);
        assert_eq!(over(43_200.0), ["0 h", "5 h", "10 h"]);
        assert_eq!(over(0.4), ["0 ms", "100 ms", "200 ms", "300 ms", "400 ms"]);
    }

    #[test]
    fn degenerate_spans_still_make_an_axis() {
        for value in [0.0, 5.0, 1e9, u64::MAX as f64] {
            for scale in [Scale::linear, Scale::log] {
                let scale = scale(value, value, 0.0, 100.0);
                assert!(scale.place(5.0).is_finite(), "{scale:?}");
                assert!((1..20).contains(&scale.values(5).len()), "{scale:?}");
            }
        }
    }

    #[test]
    fn nice_numbers_enclose() {
        for value in [0.3, 1.0, 1.1, 2.0, 4.9, 5.0, 7.7, 99.0, 12_345.0] {
            assert!(nice_below(value) <= value * 1.000_001, "{value}");
            assert!(nice_above(value) >= value * 0.999_999, "{value}");
            assert!(nice_above(value) / nice_below(value) < 2.6, "{value}");
        }
    }
}
