//! Sets of CPUs, written the way the kernel writes them: `0-3,6`.

use std::{collections::BTreeSet, fmt, str::FromStr};

/// A set of CPU numbers in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuSet(BTreeSet<u32>);

/// The highest CPU number that is read from a text: twice what Linux supports today (`NR_CPUS` 8192).
const CPU_MAX: u32 = 16_383;

impl CpuSet {
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many CPUs are in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no CPU is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this CPU is in the set.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Puts a CPU into the set.
    pub fn insert(&mut self, cpu: u32) {
        self.0.insert(cpu);
    }

    /// The highest CPU number.
    #[must_use]
    pub fn last(&self) -> Option<u32> {
        self.0.last().copied()
    }

    /// The set in a sentence: `CPU 3` or `CPUs 2-3`.
    #[must_use]
    pub fn named(&self) -> String {
        format!("CPU{} {self}", if self.len() == 1 { "" } else { "s" })
    }

    /// The CPUs of this set that are not in the other.
    #[must_use]
    pub fn without(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.difference(&other.0).copied().collect())
    }

    /// The CPUs that are in both.
    #[must_use]
    pub fn common(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.intersection(&other.0).copied().collect())
    }
}

impl CpuSet {
    /// Reads a mask as the kernel writes it, the first CPU in its last digit: `ff,00000003`. None where it isn't one.
    #[must_use]
    pub fn from_mask(text: &str) -> Option<CpuSet> {
        let digits: Option<Vec<u32>> =
            text.trim().chars().filter(|c| *c != ',').map(|c| c.to_digit(16)).collect();
        let last = CPU_MAX as usize / 4;
        let digits = digits.filter(|digits| !digits.is_empty() && digits.len() <= last + 1)?;
        let places = (0_u32..).zip(digits.into_iter().rev());
        let bits = places.flat_map(|(place, digit)| {
            (0..4).filter(move |bit| digit >> bit & 1 == 1).map(move |bit| place * 4 + bit)
        });
        Some(bits.collect())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        CpuSet(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let words: Vec<String> = ranges
            .iter()
            .map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") })
            .collect();
        f.pad(&words.join(","))
    }
}

/// Why a text is not a set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a set of CPUs: write numbers and ranges such as 0-3,6")]
pub struct NotACpuSet(String);

impl FromStr for CpuSet {
    type Err = NotACpuSet;

    /// Reads `0-3,6`; the empty text is the empty set, as in `/sys/devices/system/cpu/isolated`.
    fn from_str(text: &str) -> Result<CpuSet, NotACpuSet> {
        let words = text.trim().split(',').filter(|_| !text.trim().is_empty());
        let ranges: Option<Vec<(u32, u32)>> = words.map(ends_of).collect();
        let mut ranges = ranges.ok_or_else(|| NotACpuSet(text.to_owned()))?;
        // Each CPU once: a text may name all of them again and again.
        ranges.sort_unstable();
        let mut next = 0;
        let cpus = ranges.into_iter().flat_map(|(first, last)| {
            let from = first.max(next);
            next = next.max(last + 1);
            from..=last
        });
        Ok(cpus.collect())
    }
}

/// The first and the last CPU of a range `2-3`, or twice that of a number.
pub(crate) fn ends_of(word: &str) -> Option<(u32, u32)> {
    let number = |word: &str| word.trim().parse().ok().filter(|cpu| *cpu <= CPU_MAX);
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some((number(first)?, number(last)?)).filter(|(first, last)| first <= last)
}

crate::text::serde_as_text!(CpuSet);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kernel_lists_are_read_and_written() {
        let set: CpuSet = "0-3,6,5\n".parse().expect("a list");
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 5, 6]);
        assert_eq!(set.to_string(), "0-3,5-6");
        assert_eq!("".parse::<CpuSet>().expect("empty").len(), 0);
        for wrong in ["a", "3-1", "1,,2", "0-99999999", "-1", "1-"] {
            assert!(wrong.parse::<CpuSet>().is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    fn a_list_that_names_all_cpus_again_and_again_is_read_at_once() {
        let set: CpuSet = ["0-16383"; 100_000].join(",").parse().expect("a list");
        assert_eq!(set.to_string(), "0-16383");
        assert_eq!("5-6,0-9,2".parse::<CpuSet>().expect("a list").to_string(), "0-9");
    }

    #[test]
    fn a_mask_has_no_more_cpus_than_a_list() {
        let digits = |count| CpuSet::from_mask(&"f".repeat(count)).map(|cpus| cpus.len());
        assert_eq!((digits(4_096), digits(4_097)), (Some(16_384), None));
    }

    #[test]
    fn a_mask_names_the_cpus_of_its_bits() {
        let mask = |text| CpuSet::from_mask(text).map(|cpus| cpus.to_string());
        assert_eq!(mask("3\n").as_deref(), Some("0-1"));
        assert_eq!(mask("00000001,0000000c").as_deref(), Some("2-3,32"));
        assert_eq!(mask("0").as_deref(), Some(""));
        for wrong in ["", "0x3", "0-3", "3 4"] {
            assert_eq!(mask(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn text_reads_back(cpus in proptest::collection::btree_set(0u32..512, 0..64)) {
            let set = CpuSet(cpus);
            prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
        }
    }
}
