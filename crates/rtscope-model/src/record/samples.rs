//! Every wake-up of a thread, as `raw/tN.bin` holds them: 16 bytes each, the programmed expiry since the start of the
//! run and the latency, both in nanoseconds and little-endian.
//!
//! Memory is bounded: where there are more than are kept one by one, neighbours are joined to spans with their
//! smallest and largest latency, all of the same number of wake-ups.

/// Bytes of a sample in its file.
const SAMPLE_BYTES: usize = 16;

/// Spans of a thread that a drawing needs: more than a screen has columns.
pub const DRAWN_SPANS: usize = 4096;

/// Spans of a thread that a document holds, at most: with 40 bytes each, 400 MB.
pub const LISTED_SPANS: usize = 10_000_000;

/// Wake-ups that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleSpan {
    /// Programmed expiry of the first, since the start of the run.
    pub start_ns: u64,
    /// Programmed expiry of the last.
    pub end_ns: u64,
    pub count: u64,
    pub min_ns: u64,
    pub max_ns: u64,
}

impl SampleSpan {
    fn join(self, next: SampleSpan) -> SampleSpan {
        SampleSpan {
            start_ns: self.start_ns,
            end_ns: next.end_ns,
            count: self.count + next.count,
            min_ns: self.min_ns.min(next.min_ns),
            max_ns: self.max_ns.max(next.max_ns),
        }
    }
}

/// The wake-ups of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samples {
    /// The thread's index over all sessions.
    pub thread: u32,
    /// In the order of the file. Each is one wake-up unless there are too many.
    pub spans: Vec<SampleSpan>,
}

/// Reads a file of samples piece by piece.
#[derive(Clone, Debug)]
pub struct SampleReader {
    samples: Samples,
    /// Spans that are kept, at most.
    spans_max: usize,
    /// Wake-ups of a span.
    each: u64,
    /// The beginning of a sample whose end comes with the next piece.
    begun: Vec<u8>,
}

impl SampleReader {
    /// Of a thread, with so many spans at most.
    #[must_use]
    pub fn new(thread: u32, spans_max: usize) -> SampleReader {
        let samples = Samples { thread, spans: Vec::new() };
        SampleReader { samples, spans_max, each: 1, begun: Vec::with_capacity(SAMPLE_BYTES) }
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, mut piece: &[u8]) {
        if !self.begun.is_empty() {
            let (missing, rest) = piece.split_at(piece.len().min(SAMPLE_BYTES - self.begun.len()));
            self.begun.extend(missing);
            piece = rest;
            if self.begun.len() < SAMPLE_BYTES {
                return;
            }
            let whole = std::mem::take(&mut self.begun);
            self.take(&whole);
        }
        let samples = piece.chunks_exact(SAMPLE_BYTES);
        self.begun.extend(samples.remainder());
        samples.for_each(|bytes| self.take(bytes));
    }

    fn take(&mut self, bytes: &[u8]) {
        let number = |from: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[from + n]));
        let (at_ns, latency_ns) = (number(0), number(8));
        let new = SampleSpan {
            start_ns: at_ns,
            end_ns: at_ns,
            count: 1,
            min_ns: latency_ns,
            max_ns: latency_ns,
        };
        let spans = &mut self.samples.spans;
        match spans.last_mut() {
            Some(last) if last.count < self.each => *last = last.join(new),
            _ => spans.push(new),
        }
        if spans.len() > self.spans_max {
            let joined =
                spans.chunks(2).map(|two| two.iter().skip(1).fold(two[0], |a, b| a.join(*b)));
            *spans = joined.collect();
            self.each *= 2;
        }
    }

    /// What was read. A sample that the file's end cuts off is left out.
    #[must_use]
    pub fn finish(self) -> Samples {
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(samples: impl IntoIterator<Item = (u64, u64)>) -> Vec<u8> {
        let bytes = |(at, latency): (u64, u64)| [at.to_le_bytes(), latency.to_le_bytes()].concat();
        samples.into_iter().flat_map(bytes).collect()
    }

    fn read(bytes: &[u8], piece: usize) -> Samples {
        let mut reader = SampleReader::new(3, DRAWN_SPANS);
        bytes.chunks(piece).for_each(|piece| reader.feed(piece));
        reader.finish()
    }

    #[test]
    fn samples_are_read_whatever_the_pieces() {
        let mut bytes = file([(1_000, 7), (2_000, 9), (3_000, 8)]);
        bytes.extend([1, 2, 3]);
        let whole = read(&bytes, 1 << 20);
        assert_eq!(whole.spans.len(), 3);
        assert_eq!(
            whole.spans[1],
            SampleSpan { start_ns: 2_000, end_ns: 2_000, count: 1, min_ns: 9, max_ns: 9 }
        );
        for piece in [1, 3, 15, 16, 17, 40] {
            assert_eq!(read(&bytes, piece), whole, "{piece}");
        }
    }

    #[test]
    fn many_samples_are_joined_and_none_is_lost() {
        for count in [4_096, 4_097, 10_000, 1_000_003] {
            // One spike in the last thousand.
            let latency = |n| if n == count - 700 { 900 } else { 10 + n % 5 };
            let read = read(&file((0..count).map(|n| (n * 1_000, latency(n)))), 65_536);
            assert!(
                read.spans.len() <= DRAWN_SPANS && read.spans.len() * 3 > DRAWN_SPANS,
                "{count}"
            );
            assert_eq!(read.spans.iter().map(|span| span.count).sum::<u64>(), count);
            assert_eq!(read.spans.iter().map(|span| span.max_ns).max(), Some(900));
            assert_eq!(read.spans.iter().map(|span| span.min_ns).min(), Some(10));
            let ordered = read.spans.windows(2).all(|two| two[0].end_ns < two[1].start_ns);
            assert!(ordered && read.spans.last().map(|s| s.end_ns) == Some((count - 1) * 1_000));
            let spike = read.spans.iter().find(|span| span.max_ns == 900).expect("kept");
            assert!((spike.start_ns..=spike.end_ns).contains(&((count - 700) * 1_000)));
        }
    }
}
