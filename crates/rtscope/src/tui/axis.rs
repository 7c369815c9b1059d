//! A logarithmic axis of latencies, and times as people read them.

use rtscope_model::time::Nanos;

/// The smallest latency that an axis tells apart.
const FLOOR_NS: u64 = 100;

/// The largest: 31 years.
const CEILING_NS: u64 = 1_000_000_000_000_000_000;

/// A logarithmic range of latencies, from and to a step of 1-2-5, at least a decade wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogAxis {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

impl LogAxis {
    /// The narrowest axis that shows both.
    pub(crate) fn around(min_ns: u64, max_ns: u64) -> LogAxis {
        let from_ns = step_below(min_ns.clamp(FLOOR_NS, CEILING_NS));
        let mut to_ns = from_ns * 10;
        while to_ns <= max_ns.min(CEILING_NS) {
            to_ns = step_above(to_ns);
        }
        LogAxis { from_ns, to_ns }
    }

    /// Where a latency lies, 0 to 1; what lies outside is at the end.
    pub(crate) fn position(self, ns: u64) -> f64 {
        let inside = ns.clamp(self.from_ns, self.to_ns) as f64;
        (inside / self.from_ns as f64).ln() / (self.to_ns as f64 / self.from_ns as f64).ln()
    }

    /// Round latencies on the axis, ends included, the most welcome first: powers of ten, then the
    /// other steps of 1-2-5.
    pub(crate) fn ticks(self) -> impl Iterator<Item = u64> {
        let next = |ns: &u64| Some(step_above(*ns));
        let all = move || {
            std::iter::successors(Some(self.from_ns), next).take_while(move |ns| *ns <= self.to_ns)
        };
        all().filter(|ns| is_decade(*ns)).chain(all().filter(|ns| !is_decade(*ns)))
    }
}

fn decade(ns: u64) -> u64 {
    10u64.pow(ns.max(1).ilog10())
}

fn is_decade(ns: u64) -> bool {
    ns == decade(ns)
}

fn step_below(ns: u64) -> u64 {
    let one = decade(ns);
    [5, 2, 1].into_iter().map(|n| n * one).find(|step| *step <= ns).unwrap_or(one)
}

fn step_above(ns: u64) -> u64 {
    let one = decade(ns);
    [2, 5].into_iter().map(|n| n * one).find(|step| *step > ns).unwrap_or(one * 10)
}

/// Which places along an axis are still free for a label.
#[derive(Debug, Default)]
pub(crate) struct Places(Vec<(u16, u16)>);

impl Places {
    /// Takes the places from `begin` to before `end`; false when one of them, or a neighbour, is
    /// taken.
    pub(crate) fn take(&mut self, begin: u16, end: u16) -> bool {
        let is_free = self.0.iter().all(|taken| begin > taken.1 || end < taken.0);
        if is_free {
            self.0.push((begin, end));
        }
        is_free
    }
}

/// A latency as an axis says it: `500 ns`, `20 us`, `1 ms`.
pub(crate) fn label(ns: u64) -> String {
    Nanos(ns).to_string()
}

/// A duration as a clock shows it: `0:07`, `12:34`, `1:02:03`.
pub(crate) fn clock(ns: u64) -> String {
    let s = ns / 1_000_000_000;
    match s / 3_600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        h => format!("{h}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

/// The same for a time that is left: the next full second.
pub(crate) fn clock_left(ns: u64) -> String {
    clock(ns.saturating_add(999_999_999))
}

/// A duration to the tenth of a second where it is short: `5 s`, `10.3 s`, `2 min 5 s`.
pub(crate) fn rounded(ns: u64) -> String {
    let grain_ns = if ns < 1_000_000_000 { 1_000_000 } else { 100_000_000 };
    Nanos(ns.saturating_add(grain_ns / 2) / grain_ns * grain_ns).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_holds_what_it_is_built_around() {
        let axis = LogAxis::around(1_234, 34_200);
        assert_eq!(axis, LogAxis { from_ns: 1_000, to_ns: 50_000 });
        assert_eq!((axis.position(0), axis.position(1_000)), (0.0, 0.0));
        assert_eq!((axis.position(50_000), axis.position(u64::MAX)), (1.0, 1.0));
        let ticks: Vec<_> = axis.ticks().collect();
        assert_eq!(ticks, [1_000, 10_000, 2_000, 5_000, 20_000, 50_000]);
        // Nothing, everything, and a latency that is a step itself.
        assert_eq!(LogAxis::around(0, 0), LogAxis { from_ns: 100, to_ns: 1_000 });
        assert_eq!(LogAxis::around(1_000, 10_000), LogAxis { from_ns: 1_000, to_ns: 20_000 });
        assert_eq!(LogAxis::around(0, u64::MAX).to_ns, 2 * CEILING_NS);
        assert_eq!(LogAxis::around(u64::MAX, u64::MAX).from_ns, CEILING_NS);
    }

    #[test]
    fn labels_keep_a_distance() {
        let mut places = Places::default();
        let taken = [(4, 8), (8, 10), (9, 12), (0, 4), (0, 3)].map(|(a, b)| places.take(a, b));
        assert_eq!(taken, [true, false, true, false, true]);
    }

    #[test]
    fn times_are_readable() {
        let clocks = [0, 7_900_000_000, 754_000_000_000, 3_723_000_000_000].map(clock);
        assert_eq!(clocks, ["0:00", "0:07", "12:34", "1:02:03"]);
        assert_eq!([0, 1, 7_900_000_000].map(clock_left), ["0:00", "0:01", "0:08"]);
        let shown = [900_400_000, 5_012_000_000, 10_260_000_000, 125_000_000_000].map(rounded);
        assert_eq!(shown, ["900 ms", "5 s", "10.3 s", "2 min 5 s"]);
    }
}
