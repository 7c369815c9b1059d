//! How much later than its instant of the grid an activation is due.
//!
//! The grid stays: activations are counted by its instants, so planned, recorded and missed ones add up as without an
//! offset. An offset is always shorter than the interval, so expiries come in the order of their instants.

/// How much later than its instant of the grid each activation is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offset {
    /// At the instant.
    #[default]
    None,
    /// By a pseudo-random part of the interval, each as likely as the others. The same seed gives the same offsets.
    Spread {
        /// The largest part, 1 to 100.
        percent: u64,
        seed: u64,
    },
    /// By one nanosecond less than the interval. An activation that can be due at `at_ns` on the session's clock is due
    /// then. So up to that instant, a run with an aim is the same as one without.
    Aimed {
        /// 0 is never.
        at_ns: u64,
    },
}

impl Offset {
    /// When the activation of an instant is due; `first_ns` is the grid's first instant.
    #[inline]
    pub(crate) fn due_ns(self, instant_ns: u64, first_ns: u64, interval_ns: u64) -> u64 {
        match self {
            Offset::None => instant_ns,
            Offset::Spread { percent, seed } => {
                let random = mixed(seed ^ instant_ns.wrapping_sub(first_ns));
                let width_ns = interval_ns * percent / 100;
                instant_ns + ((u128::from(random) * u128::from(width_ns)) >> 64) as u64
            }
            Offset::Aimed { at_ns } if at_ns.wrapping_sub(instant_ns) < interval_ns => at_ns,
            Offset::Aimed { .. } => instant_ns + interval_ns - 1,
        }
    }
}

/// What a guest of the lab is told of its expiries, beside its plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestExpiries {
    /// Seed of the run, which is added to that of the plan's spread.
    pub seed: u64,
    /// The expiry to aim at, on the sessions' clock; 0 for none, in a run that is to be the same up to any aim.
    pub aim_ns: Option<u64>,
}

impl GuestExpiries {
    /// The offset in place of the plan's.
    #[must_use]
    pub fn applied_to(self, planned: Offset) -> Offset {
        match (self.aim_ns, planned) {
            (Some(at_ns), _) => Offset::Aimed { at_ns },
            (None, Offset::Spread { percent, seed }) => {
                Offset::Spread { percent, seed: seed.wrapping_add(self.seed) }
            }
            (None, planned) => planned,
        }
    }
}

/// A number of which each bit depends on all bits of another: the output function of SplitMix64 (G. Steele, D. Lea,
/// C. Flood, "Fast splittable pseudorandom number generators", 2014).
#[inline]
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mixing_function_gives_the_published_first_number() {
        // The first output of SplitMix64 with seed 0.
        assert_eq!(mixed(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn an_aim_moves_one_activation_and_no_other() {
        let due = |at_ns, instant_ns| Offset::Aimed { at_ns }.due_ns(instant_ns, 1_000, 100);
        let plain: Vec<u64> = (0..5).map(|n| due(0, 1_000 + n * 100)).collect();
        assert_eq!(plain, [1_099, 1_199, 1_299, 1_399, 1_499]);
        let aimed: Vec<u64> = (0..5).map(|n| due(1_230, 1_000 + n * 100)).collect();
        assert_eq!(aimed, [1_099, 1_199, 1_230, 1_399, 1_499]);
    }
}
