//! Which numbers of a sequence have come: loss, duplicates and reordering, exactly as long as no number
//! comes 2^28 later than a higher one.

/// How many numbers up to the highest are kept track of: a bit each, 32 MiB.
const WINDOW: u64 = 1 << 28;

/// The same in words of 64 bits.
const WORDS: u64 = WINDOW / 64;

/// Numbers that have come.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// A ring of words, which grows to [`WORDS`].
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
    /// Takes note of a number. Ignored is what no sender of ours makes, a leap of 2^28, and what comes
    /// so late that nobody remembers whether it came before: it stays lost.
    pub(super) fn note(&mut self, number: u64) {
        let highest = self.highest.unwrap_or(0);
        let (word, last) = (number / 64, highest / 64);
        if word >= last.saturating_add(WORDS) || word + WORDS <= last {
            return;
        }
        // Words that the ring uses again.
        for fresh in last + 1..=word {
            if let Some(bits) = self.seen.get_mut((fresh % WORDS) as usize) {
                *bits = 0;
            }
        }
        let (place, bit) = ((word % WORDS) as usize, 1 << (number % 64));
        if place >= self.seen.len() {
            self.seen.resize((place + 1).max(self.seen.len() * 2).min(WORDS as usize), 0);
        }
        if self.seen[place] & bit != 0 {
            self.duplicates += 1;
            return;
        }
        self.seen[place] |= bit;
        self.count += 1;
        self.reordered += u64::from(self.highest.is_some_and(|highest| number < highest));
        self.highest = self.highest.max(Some(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(numbers: impl IntoIterator<Item = u64>) -> (u64, u64, u64) {
        let mut sequence = Sequence::default();
        numbers.into_iter().for_each(|number| sequence.note(number));
        assert!(sequence.seen.len() as u64 <= WORDS);
        (sequence.count, sequence.duplicates, sequence.reordered)
    }

    #[test]
    fn each_number_counts_once() {
        // 0 1 2 3 4 5 9 1000000; 4 and 5 again; 4 and 3 late.
        assert_eq!(noted([0, 1, 2, 5, 4, 4, 9, 5, 1_000_000, 3, u64::MAX]), (8, 2, 2));
    }

    #[test]
    fn a_transfer_of_more_than_a_window_is_counted_to_its_end() {
        // A long transfer, looked at around the edges of the window: three times around the ring.
        let steps = (0..=6 * 4).map(|n| n * (WINDOW / 8));
        assert_eq!(noted(steps), (25, 0, 0));
        let around = |edge: u64| edge - 3..edge + 200;
        assert_eq!(noted([0, WINDOW / 2].into_iter().chain(around(WINDOW))), (205, 0, 0));
        // 5 came already, and its bit is used again; WINDOW + 5 comes twice.
        let again = [5, WINDOW / 2, WINDOW + 5, WINDOW + 5, WINDOW + 2];
        assert_eq!(noted(again), (4, 1, 1));
    }

    #[test]
    fn what_comes_a_window_too_late_stays_lost() {
        assert_eq!(noted([0, WINDOW / 2, WINDOW + 64, 1, 65, 130]), (4, 0, 1));
    }
}
