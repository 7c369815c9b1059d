//! Slow looks: distances of two readings that are longer than the scope's resolution, but short beside the
//! wave.
//!
//! A look may take longer because the word that it reads has just been written by another CPU, so slow looks
//! and edges come together, and calling them blind would lose edges one by one. Beside pulses that are ten
//! times as long a slow look hides at most one edge: when the level differs, exactly one, which lies within
//! it. It is placed in the middle, and the wave's resolution becomes that much worse.

use rtscope_model::wave::{Capture, Edge, Gap};

/// A slow look is at most this share of the shorter median pulse.
const SHARE: f64 = 0.1;

/// The capture with the slow looks taken as looks: their edges among the edges, the rest of the gaps as
/// gaps, and the resolution that is left.
pub(super) fn admit(capture: &Capture) -> Capture {
    let mut all: Vec<(u64, bool)> = capture.edges.iter().map(|edge| (edge.at_ns(), true)).collect();
    all.extend(capture.gaps.iter().filter(|gap| gap.moved).map(|gap| (middle_ns(gap), false)));
    all.sort_unstable();
    // Levels alternate, so every other distance is of one level; both medians are of the same list where
    // nothing was hidden.
    let distances = |from: usize| {
        let pairs = all.windows(2).skip(from).step_by(2);
        super::median(&mut pairs.map(|pair| pair[1].0 - pair[0].0).collect::<Vec<_>>())
    };
    let longest_ns = (distances(0).min(distances(1)) as f64 * SHARE) as u64;
    let mut admitted =
        Capture { edges: Vec::with_capacity(all.len()), gaps: Vec::new(), ..capture.clone() };
    let mut later = capture.edges.iter().copied().peekable();
    let mut level = capture.level_at_start();
    for gap in &capture.gaps {
        while let Some(edge) = later.next_if(|edge| edge.at_ns() <= gap.start_ns) {
            level = edge.rises();
            admitted.edges.push(edge);
        }
        level ^= gap.moved;
        let length_ns = gap.end_ns - gap.start_ns;
        if length_ns > longest_ns {
            admitted.gaps.push(*gap);
        } else if gap.moved {
            admitted.edges.push(Edge::new(middle_ns(gap), level));
            // The change lies within the gap, or between one of its ends and the look beside it.
            let error_ns = length_ns.div_ceil(2) + capture.resolution_ns;
            admitted.resolution_ns = admitted.resolution_ns.max(error_ns);
        }
    }
    admitted.edges.extend(later);
    admitted
}

fn middle_ns(gap: &Gap) -> u64 {
    gap.start_ns + (gap.end_ns - gap.start_ns) / 2
}
