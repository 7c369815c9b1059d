//! Stretches of a guest's run in which a thread that becomes due would have to wait: what the lab's plugin of the
//! emulator writes.
//!
//! The file is described at the head of the plugin's source. It is read whatever is in it: what makes no sense ends the
//! reading, and what came before it counts.

/// Bytes of a number.
const NUMBER: usize = 8;

/// A wake-up of the sampler: an instant on the guest's clock and in its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockMark {
    /// The latency that the sampler measured.
    pub latency_ns: u64,
    /// The programmed expiry, on the guest's `CLOCK_MONOTONIC`.
    pub expiry_ns: u64,
    /// Instructions that the guest had executed when the sampler read the clock.
    pub read: u64,
    /// Time that had passed without an instruction.
    pub idle_ns: u64,
}

/// A stretch from one point at which the kernel could switch to a thread until the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Instructions that the guest had executed before it.
    pub from: u64,
    /// Instructions in it.
    pub length: u64,
    /// Time that had passed without an instruction.
    pub idle_ns: u64,
    /// Address of its first block.
    pub first: u64,
    /// Address of its last block.
    pub last: u64,
}

/// All that a plugin wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretches {
    /// Wake-ups in the order of time.
    pub marks: Vec<ClockMark>,
    /// Stretches in the order of time.
    pub all: Vec<Stretch>,
    /// Whether the plugin ended in order and lost nothing.
    pub is_whole: bool,
}

impl Stretches {
    /// Reads what a plugin wrote.
    #[must_use]
    pub fn read(mut bytes: &[u8]) -> Stretches {
        let mut found = Stretches { is_whole: true, ..Stretches::default() };
        if found.fill(&mut bytes).is_none() {
            found.is_whole = false;
        }
        found
    }

    /// Adds entry after entry up to the end; none where the input ends before it or makes no sense.
    fn fill(&mut self, input: &mut &[u8]) -> Option<()> {
        loop {
            let (kind, rest) = input.split_first()?;
            *input = rest;
            match kind {
                b'M' => {
                    let [latency_ns, expiry_ns, read, idle_ns] = numbers(input)?;
                    self.marks.push(ClockMark { latency_ns, expiry_ns, read, idle_ns });
                }
                b'S' => {
                    let [from, length, idle_ns, first, last] = numbers(input)?;
                    self.all.push(Stretch { from, length, idle_ns, first, last });
                }
                b'L' => self.is_whole = false,
                b'E' => return Some(()),
                _ => return None,
            }
        }
    }
}

fn numbers<const N: usize>(input: &mut &[u8]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let (taken, rest) = input.split_first_chunk::<NUMBER>()?;
        (*number, *input) = (u64::from_le_bytes(*taken), rest);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, numbers) in
            [(b'M', &[5_000, 1_000_000, 104, 7][..]), (b'S', &[100, 250, 7, 0x1000, 0x2000][..])]
        {
            bytes.push(kind);
            bytes.extend(numbers.iter().flat_map(|number: &u64| number.to_le_bytes()));
        }
        bytes.push(b'E');
        bytes
    }

    #[test]
    fn what_the_plugin_wrote_is_read() {
        let found = Stretches::read(&sample());
        assert!(found.is_whole);
        let mark = ClockMark { latency_ns: 5_000, expiry_ns: 1_000_000, read: 104, idle_ns: 7 };
        assert_eq!(found.marks, [mark]);
        let stretch = Stretch { from: 100, length: 250, idle_ns: 7, first: 0x1000, last: 0x2000 };
        assert_eq!(found.all, [stretch]);
    }

    #[test]
    fn what_is_cut_off_lost_or_makes_no_sense_is_not_whole() {
        let whole = sample();
        for length in 0..whole.len() {
            assert!(!Stretches::read(&whole[..length]).is_whole, "cut at {length}");
        }
        let lost = [&whole[..whole.len() - 1], b"LE"].concat();
        assert!(!Stretches::read(&lost).is_whole && Stretches::read(&lost).all.len() == 1);
        assert!(!Stretches::read(b"X").is_whole);
    }
}
