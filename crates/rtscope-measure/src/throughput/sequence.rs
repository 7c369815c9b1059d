//! Which numbers of a sequence have come: loss, duplicates and reordering, exactly.

/// The highest number that is kept track of: a bit each, 32 MiB.
const NUMBERS_MAX: u64 = 1 << 28;

/// Numbers that have come.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    seen: Vec<u64>,
    /// Numbers, each once.
    pub(super) count: u64,
    /// Numbers that came again.
    pub(super) duplicates: u64,
    /// Numbers that came after a higher one.
    pub(super) reordered: u64,
    highest: Option<u64>,
}

impl Sequence {
    /// Takes note of a number. Numbers that no sender of ours makes are ignored.
    pub(super) fn note(&mut self, number: u64) {
        if number >= NUMBERS_MAX {
            return;
        }
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.seen.len() {
            self.seen.resize((word + 1).max(self.seen.len() * 2), 0);
        }
        if self.seen[word] & bit != 0 {
            self.duplicates += 1;
            return;
        }
        self.seen[word] |= bit;
        self.count += 1;
        self.reordered += u64::from(self.highest.is_some_and(|highest| number < highest));
        self.highest = self.highest.max(Some(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_counts_once() {
        let mut sequence = Sequence::default();
        let numbers = [0, 1, 2, 5, 4, 4, 9, 5, 1_000_000, 3, u64::MAX];
        numbers.into_iter().for_each(|number| sequence.note(number));
        // 0 1 2 3 4 5 9 1000000; 4 and 5 again; 4 and 3 late.
        assert_eq!((sequence.count, sequence.duplicates, sequence.reordered), (8, 2, 2));
    }
}
