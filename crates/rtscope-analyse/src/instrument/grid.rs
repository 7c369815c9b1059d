//! The grid that an instrument's edges lie on, which may be coarser than its file's unit of time: pigpio stamps
//! in microseconds what it samples every 5 us.
//!
//! A sampled wave shows its grid by pulses of one level that differ: the differences and the pulses are multiples
//! of the time between two samples. Pulses that hardly ever differ show nothing, and neither do a few edges.

use rtscope_model::wave::{Edge, Gap};

/// Pulses that are looked at together: by chance, so many have no common divisor.
const TOGETHER: usize = 20;

/// A grid shows in so many groups of pulses, at least.
const GROUPS_MIN: usize = 3;

/// The distance of the grid's points in nanoseconds; none where no grid shows. A few edges beside the grid don't
/// hide it: the answer is the median of those that each [`TOGETHER`] pulses give. Pulses with a gap in them are
/// none.
pub(super) fn distance_ns(edges: &[Edge], gaps: &[Gap]) -> Option<u64> {
    let pulses = whole_pulses(edges, gaps);
    let mut found: Vec<u64> =
        pulses.chunks_exact(TOGETHER).filter(|some| differ(some)).map(common_divisor).collect();
    found.sort_unstable();
    found.get(found.len() / 2).copied().filter(|_| found.len() >= GROUPS_MIN)
}

/// The longest time between two samples that these edges can be of, where no grid shows: pulses that never differ are
/// the same for each divisor of it. A wave that is too fast for the samples can look so, as one of 150 kHz does to
/// samples of 5 us: like one of 50 kHz.
pub(super) fn longest_ns(edges: &[Edge], gaps: &[Gap]) -> Option<u64> {
    let pulses = whole_pulses(edges, gaps);
    (pulses.len() >= TOGETHER).then(|| common_divisor(&pulses))
}

/// The pulses without a gap in them.
fn whole_pulses(edges: &[Edge], gaps: &[Gap]) -> Vec<u64> {
    let mut pulses = Vec::with_capacity(edges.len());
    let mut gaps = gaps.iter().peekable();
    for pair in edges.windows(2) {
        let (start_ns, end_ns) = (pair[0].at_ns(), pair[1].at_ns());
        while gaps.next_if(|gap| gap.end_ns <= start_ns).is_some() {}
        if gaps.peek().is_none_or(|gap| gap.start_ns >= end_ns) {
            pulses.push(end_ns - start_ns);
        }
    }
    pulses
}

/// Whether pulses of one level differ. Levels take turns.
fn differ(pulses: &[u64]) -> bool {
    pulses.windows(3).any(|three| three[0] != three[2])
}

fn common_divisor(numbers: &[u64]) -> u64 {
    numbers.iter().copied().fold(0, |mut a, mut b| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        instrument,
        statistics::wave::{self, FrequencyRefusal},
    };

    /// A wave of this half period, seen by samples every `grid_ns` from `offset_ns` on.
    fn sampled(half_ns: u64, grid_ns: u64, offset_ns: u64, samples: u64) -> Vec<Edge> {
        let level = |n: u64| (n * grid_ns / half_ns).is_multiple_of(2);
        (1..samples)
            .filter(|&n| level(n) != level(n - 1))
            .map(|n| Edge::new(offset_ns + n * grid_ns, level(n)))
            .collect()
    }

    #[test]
    fn a_sampled_wave_shows_its_grid() {
        // 125 kHz, and about 40 kHz and 1 kHz, by samples of 5 us.
        for half_ns in [4_000, 12_501, 500_100] {
            assert_eq!(
                distance_ns(&sampled(half_ns, 5_000, 3, 200_000), &[]),
                Some(5_000),
                "{half_ns}"
            );
        }
        assert_eq!(distance_ns(&sampled(12_501, 42, 0, 200_000), &[]), Some(42));
    }

    /// What pigpio's piscope saves of 125 kHz: a unit of 1 us, and samples every 5 us.
    #[test]
    fn a_frequency_above_what_the_grid_can_tell_is_refused() {
        let mut text = "$timescale 1 us $end $var wire 1 A 17 $end $enddefinitions $end".to_owned();
        for edge in sampled(4_000, 5_000, 0, 40_000) {
            text += &format!("\n#{} {}A", edge.at_ns() / 1_000, u8::from(edge.rises()));
        }
        let reading =
            instrument::read(text.as_bytes(), instrument::CaptureChoice::default()).expect("a VCD");
        assert_eq!(reading.capture.resolution_ns, 5_000);
        assert!(reading.findings[0].contains("a grid of 5 us"), "{:?}", reading.findings);
        let judged = wave::judge(&reading.capture, None);
        assert_eq!((judged.refusal, judged.frequency_hz), (Some(FrequencyRefusal::TooFast), None));
    }

    /// 150 kHz by samples of 5 us looks like an even wave of 50 kHz, and nothing in the file tells.
    #[test]
    fn an_even_wave_may_be_a_faster_one() {
        let mut text = "$timescale 1 us $end $var wire 1 A 17 $end $enddefinitions $end".to_owned();
        for edge in (1..400_u64).map(|n| Edge::new(n * 10_000, n % 2 == 1)) {
            text += &format!("\n#{} {}A", edge.at_ns() / 1_000, u8::from(edge.rises()));
        }
        let read = |samples_hz| {
            let choice = instrument::CaptureChoice { samples_hz, ..Default::default() };
            instrument::read(text.as_bytes(), choice).expect("a VCD")
        };
        let reading = read(None);
        assert_eq!((reading.capture.resolution_ns, reading.findings.len()), (1_000, 1));
        assert!(reading.findings[0].contains("multiples of 10 us"), "{:?}", reading.findings);
        let told = read(Some(200_000.0));
        assert_eq!((told.capture.resolution_ns, told.findings.len()), (5_000, 0));
        // A rate above that of the file's unit makes nothing better.
        assert_eq!(read(Some(10e6)).capture.resolution_ns, 1_000);
    }

    #[test]
    fn pulses_that_never_differ_and_few_edges_show_none() {
        assert_eq!(distance_ns(&sampled(10_000, 5_000, 0, 1_000), &[]), None);
        assert_eq!(distance_ns(&sampled(4_000, 5_000, 0, 50), &[]), None);
        assert_eq!(distance_ns(&[], &[]), None);
    }

    /// A steady wave, of which some edges were not seen.
    #[test]
    fn a_gap_is_no_longer_pulse() {
        let mut edges = sampled(10_000, 5_000, 0, 2_000);
        let gaps: Vec<Gap> = [100, 300, 500, 700]
            .into_iter()
            .map(|n: usize| {
                let (start_ns, end_ns) = (edges[n].at_ns() + 1, edges[n + 3].at_ns() - 1);
                Gap { start_ns, end_ns, moved: false }
            })
            .collect();
        let is_hidden =
            |edge: &Edge| gaps.iter().any(|gap| (gap.start_ns..gap.end_ns).contains(&edge.at_ns()));
        edges.retain(|edge| !is_hidden(edge));
        assert_eq!(distance_ns(&edges, &gaps), None);
        assert_eq!(distance_ns(&edges, &[]), Some(10_000));
    }

    #[test]
    fn single_edges_beside_the_grid_do_not_hide_it() {
        let mut edges = sampled(4_000, 5_000, 0, 10_000);
        for place in [700, 2_100] {
            edges[place] = Edge::new(edges[place].at_ns() + 1_000, edges[place].rises());
        }
        assert_eq!(distance_ns(&edges, &[]), Some(5_000));
    }

    #[test]
    fn a_wave_with_jitter_has_the_grid_of_its_unit() {
        // Half periods of 40 us and 0, 1 or 2 us.
        let edges = (0..500).scan(0, |at, n: u64| {
            *at += 40_000 + 1_000 * (n * n % 3);
            Some(Edge::new(*at, n.is_multiple_of(2)))
        });
        assert_eq!(distance_ns(&edges.collect::<Vec<_>>(), &[]), Some(1_000));
    }
}
