//! Random numbers from a seed: the same seed gives the same numbers on every machine, so that the
//! same record gives the same bytes.

/// SplitMix64 (G. L. Steele, D. Lea and C. H. Flood, OOPSLA 2014): 2^64 numbers before it repeats.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    #[must_use]
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Uniform above 0 and below 1.
    pub fn share(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Uniform below `n`, which is above 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.share().ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator_and_evenly_spread() {
        // First outputs for seed 0, as printed by the authors' reference program.
        let mut random = Random::new(0);
        assert_eq!(random.bits(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.bits(), 0x6e78_9e6a_a1b9_65f4);
        let mut counts = [0u32; 10];
        (0..100_000).for_each(|_| counts[random.below(10)] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        let mean = (0..100_000).map(|_| random.exponential()).sum::<f64>() / 1e5;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }
}
