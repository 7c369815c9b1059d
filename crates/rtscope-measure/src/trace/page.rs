//! Pages of the kernel's ring buffer, as `trace_pipe_raw` gives them. Their form is told by `events/header_page`
//! and `events/header_event`, and by Documentation/trace/ring-buffer-design.rst.

use super::format::{Field, fields};

/// Bits of the commit word that hold the length of the page's data; above them stand flags.
const LENGTH: u64 = (1 << 27) - 1;

/// A flag of the commit word: events before this page are missing (`include/linux/ring_buffer.h`).
pub(super) const MISSED: u64 = 1 << 31;

/// Values of an entry's type that are no lengths.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Low bits of a time stamp in an entry of its own; the others are those of the stamp before.
const STAMP_BITS: u32 = 59;

/// How a page is laid out on this kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    stamp: Field,
    commit: Field,
    data: usize,
    /// Bytes of a page.
    pub(super) size: usize,
}

impl Layout {
    /// Reads `events/header_page`.
    pub(super) fn parse(text: &str) -> Option<Layout> {
        let fields = fields(text);
        let data = fields.get("data")?;
        let size =
            data.offset.checked_add(data.size).filter(|size| (256..=1 << 20).contains(size))?;
        Some(Layout {
            stamp: *fields.get("timestamp")?,
            commit: *fields.get("commit")?,
            data: data.offset,
            size,
        })
    }

    /// Whether events are missing before a page.
    pub(super) fn has_missed(self, page: &[u8]) -> bool {
        self.commit.number(page).is_some_and(|word| word & MISSED != 0)
    }

    /// Gives each event of a page with its time. Ends at what makes no sense.
    pub(super) fn walk(self, page: &[u8], mut event: impl FnMut(u64, &[u8])) -> Option<()> {
        let mut at_ns = self.stamp.number(page)?;
        let length = usize::try_from(self.commit.number(page)? & LENGTH).ok()?;
        let data = page.get(self.data..)?;
        let mut rest = &data[..length.min(data.len())];
        while let Some((head, after)) = word(rest) {
            let (kind, delta) = split(head);
            match kind {
                // A page's last entry.
                PADDING if delta == 0 => return Some(()),
                PADDING => {
                    at_ns = at_ns.checked_add(u64::from(delta))?;
                    let (bytes, after) = word(after)?;
                    rest = after.get((bytes as usize).checked_sub(4)?..)?;
                }
                TIME_EXTEND | TIME_STAMP => {
                    let (high, after) = word(after)?;
                    let value = u64::from(delta) + (u64::from(high) << 27);
                    at_ns = match kind {
                        TIME_EXTEND => at_ns.checked_add(value)?,
                        _ => value | (at_ns >> STAMP_BITS << STAMP_BITS),
                    };
                    rest = after;
                }
                _ => {
                    at_ns = at_ns.checked_add(u64::from(delta))?;
                    // Longer ones have their length in a word of its own, which counts itself.
                    let (bytes, data) = match kind {
                        0 => {
                            let (bytes, data) = word(after)?;
                            ((bytes as usize).checked_sub(4)?, data)
                        }
                        words => (words as usize * 4, after),
                    };
                    event(at_ns, data.get(..bytes)?);
                    rest = data.get(bytes.next_multiple_of(4)..)?;
                }
            }
        }
        Some(())
    }
}

/// The next word, and what comes after it.
fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((u32::from_ne_bytes(*head), rest))
}

/// An entry's type and the nanoseconds since the one before: bit fields of 5 and 27 bits, which compilers
/// lay out from the low end on little-endian machines, from the high end on the others.
fn split(head: u32) -> (u32, u32) {
    match cfg!(target_endian = "little") {
        true => (head & 0x1f, head >> 5),
        false => (head >> 27, head & 0x07ff_ffff),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in crate::trace) const HEADER: &str = "\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";

    fn head(kind: u32, delta: u32) -> [u8; 4] {
        let word = match cfg!(target_endian = "little") {
            true => kind | delta << 5,
            false => kind << 27 | delta,
        };
        word.to_ne_bytes()
    }

    /// A page that begins at an instant, with so many bytes of entries.
    pub(in crate::trace) fn page(at_ns: u64, entries: &[u8]) -> Vec<u8> {
        let mut bytes = at_ns.to_ne_bytes().to_vec();
        // Flags above the length: events were missed before this page.
        bytes.extend((entries.len() as u64 | 1 << 31).to_ne_bytes());
        bytes.extend(entries);
        bytes.resize(4096, 0);
        bytes
    }

    /// An entry of a whole number of words.
    pub(in crate::trace) fn entry(delta: u32, data: &[u8]) -> Vec<u8> {
        [&head((data.len() / 4) as u32, delta), data].concat()
    }

    fn walked(page: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut found = Vec::new();
        let layout = Layout::parse(HEADER).expect("a layout");
        layout.walk(page, |at_ns, data| found.push((at_ns, data.to_vec())));
        found
    }

    #[test]
    fn entries_of_all_kinds_are_read() {
        let entries = [
            entry(5, &[1; 8]),
            // Time that doesn't fit 27 bits, then an event of its own length.
            head(TIME_EXTEND, 3).to_vec(),
            2_u32.to_ne_bytes().to_vec(),
            head(0, 1).to_vec(),
            120_u32.to_ne_bytes().to_vec(),
            vec![2; 116],
            // An event that was discarded takes its time with it.
            head(PADDING, 7).to_vec(),
            8_u32.to_ne_bytes().to_vec(),
            vec![9; 4],
            head(TIME_STAMP, 11).to_vec(),
            4_u32.to_ne_bytes().to_vec(),
            entry(0, &[3; 4]),
            head(PADDING, 0).to_vec(),
            entry(1, &[4; 4]),
        ];
        let found = walked(&page(1_000, &entries.concat()));
        let at: Vec<u64> = found.iter().map(|(at_ns, _)| *at_ns).collect();
        let after_extend = 1_005 + 3 + (2 << 27) + 1;
        assert_eq!(at, [1_005, after_extend, 11 + (4 << 27)]);
        assert_eq!(found[1].1, vec![2; 116]);
    }

    #[test]
    fn a_page_without_events_has_none() {
        assert_eq!(walked(&page(1_000, &[])), []);
        assert!(walked(&[0; 8]).is_empty());
    }

    proptest! {
        #[test]
        fn no_page_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for (_, data) in walked(&page(u64::MAX - 5, &bytes)) {
                prop_assert!(data.len() <= bytes.len());
            }
            walked(&bytes);
        }
    }
}
