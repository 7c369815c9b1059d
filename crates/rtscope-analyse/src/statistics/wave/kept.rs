//! In which share of a look a wave keeps its frequency: the look is cut into equal parts, and each is judged by the
//! whole periods that end in it. A machine that stands still once spoils the mean of a whole look, but one part only;
//! a program that is too slow, or makes up for late edges by a burst, spoils many.

use rtscope_model::wave::Capture;

use super::{admitted, rising, stretches, without_glitches};

/// Parts of a look.
const PARTS: u64 = 20;

/// Periods of a part, at least: their mean says more than a single one.
const PERIODS_MIN: f64 = 5.0;

/// What was seen in a part.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    periods: u64,
    periods_ns: u64,
    blind_ns: u64,
}

/// The share of parts whose frequency is within the tolerance (a share) of the wanted one. Parts in which the scope
/// was blind for more than half of the time don't count; none when all are such.
#[must_use]
pub fn share(capture: &Capture, wanted_hz: f64, tolerance: f64) -> Option<f64> {
    let capture = &admitted(capture);
    let span_ns = capture.end_ns.saturating_sub(capture.start_ns).max(1);
    let wanted = span_ns as f64 / 1e9 * wanted_hz;
    let count = ((wanted / PERIODS_MIN) as u64).clamp(1, PARTS);
    let part_ns = span_ns.div_ceil(count);
    let part_of = |at_ns: u64| ((at_ns.saturating_sub(capture.start_ns)) / part_ns).min(count - 1);
    let mut parts = vec![Part::default(); count as usize];
    let stretches = stretches(capture);
    let pulses = super::Pulses::new(&capture.edges, &stretches);
    let (clean, _) = without_glitches(&capture.edges, &stretches, &pulses);
    for edges in &clean {
        for pair in rising(edges).windows(2) {
            let part = &mut parts[part_of(pair[1]) as usize];
            part.periods += 1;
            part.periods_ns += pair[1] - pair[0];
        }
    }
    for gap in &capture.gaps {
        for n in part_of(gap.start_ns)..=part_of(gap.end_ns) {
            let (from_ns, to_ns) =
                (capture.start_ns + n * part_ns, capture.start_ns + (n + 1) * part_ns);
            let blind_ns = gap.end_ns.min(to_ns).saturating_sub(gap.start_ns.max(from_ns));
            parts[n as usize].blind_ns += blind_ns;
        }
    }
    parts.retain(|part| part.blind_ns * 2 <= part_ns);
    let keeps = |part: &&Part| {
        let hz = part.periods as f64 * 1e9 / part.periods_ns.max(1) as f64;
        part.periods > 0 && (hz / wanted_hz - 1.0).abs() <= tolerance
    };
    let kept = parts.iter().filter(keeps).count();
    (!parts.is_empty()).then(|| kept as f64 / parts.len() as f64)
}

#[cfg(test)]
mod tests {
    use rtscope_model::wave::{Edge, Gap};

    use super::*;

    const MS: u64 = 1_000_000;

    /// A second of 1 kHz, whose n-th edge comes at an instant of the caller's choice; none is no edge.
    fn wave(at_ns: impl Fn(u64) -> Option<u64>) -> Capture {
        let edges = (0..2_000).filter_map(|n| Some(Edge::new(at_ns(n)?, n % 2 == 0)));
        Capture {
            line: String::new(),
            start_ns: 0,
            end_ns: 1_000 * MS,
            resolution_ns: 500,
            starts_high: None,
            edges: edges.collect(),
            gaps: Vec::new(),
            made: None,
            made_in_gaps: None,
            is_full: false,
        }
    }

    #[test]
    fn a_stall_spoils_its_own_part() {
        let steady = wave(|n| Some(n * MS / 2));
        assert_eq!(share(&steady, 1_000.0, 0.01), Some(1.0));
        // 40 ms without an edge, as real-time throttling makes them.
        let stalled = wave(|n| (!(420..500).contains(&n)).then_some(n * MS / 2));
        assert_eq!(share(&stalled, 1_000.0, 0.01), Some(0.95));
        assert_eq!(share(&steady, 1_200.0, 0.1), Some(0.0));
    }

    /// Glitches don't count as periods in the figures of a wave either.
    #[test]
    fn a_glitch_in_each_part_spoils_none() {
        let mut steady = wave(|n| Some(n * MS / 2));
        for n in (5..2_000).step_by(100).rev() {
            let at_ns = steady.edges[n].at_ns() + MS / 4;
            let glitch = [
                Edge::new(at_ns, !steady.edges[n].rises()),
                Edge::new(at_ns + 500, steady.edges[n].rises()),
            ];
            steady.edges.splice(n + 1..n + 1, glitch);
        }
        assert_eq!(share(&steady, 1_000.0, 0.01), Some(1.0));
    }

    #[test]
    fn a_program_that_makes_up_for_late_edges_keeps_no_period() {
        // 9 ms of nothing, then all of ten periods in one.
        let bursts = wave(|n| Some(n / 20 * 10 * MS + 9 * MS + n % 20 * 50_000));
        let mean = super::super::judge(&bursts, Some(1_000.0)).frequency_hz.expect("seen");
        assert!((mean / 1_000.0 - 1.0).abs() < 0.02, "{mean}");
        // Of parts of 5 ms, every other one has no period.
        let short = Capture { end_ns: 100 * MS, ..bursts };
        assert!(share(&short, 1_000.0, 0.1).expect("seen") < 0.6);
    }

    #[test]
    fn a_part_in_which_the_scope_was_blind_does_not_count() {
        let mut blind = wave(|n| (!(400..500).contains(&n)).then_some(n * MS / 2));
        blind.gaps = vec![Gap { start_ns: 200 * MS, end_ns: 249 * MS, moved: false }];
        assert_eq!(share(&blind, 1_000.0, 0.01), Some(1.0));
        blind.gaps = vec![Gap { start_ns: 0, end_ns: 1_000 * MS, moved: false }];
        blind.edges.clear();
        assert_eq!(share(&blind, 1_000.0, 0.01), None);
    }
}
