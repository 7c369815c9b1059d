//! Bytes to lines: pieces of any size, a bounded memory, colours and carriage returns taken out.

use std::borrow::Cow;

use memchr::memchr;

/// The longest line that is read; of a longer one nothing is.
pub(super) const LINE_MAX: usize = 64 << 10;

/// Cuts a stream into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    begun: Vec<u8>,
    skipping: bool,
    /// Lines that were too long to be read.
    pub(super) overlong: u64,
    /// Bytes after the last line break: a file that was cut, perhaps.
    pub(super) ends_open: bool,
}

impl Lines {
    /// Hands each complete line to `each`. `fast` may take as many whole lines from the front of
    /// what it is given as it likes, and says how many bytes they were.
    pub(super) fn feed<T>(
        &mut self,
        target: &mut T,
        mut bytes: &[u8],
        fast: impl Fn(&mut T, &[u8]) -> usize,
        each: impl Fn(&mut T, &[u8]),
    ) {
        while !bytes.is_empty() {
            if self.begun.is_empty() && !self.skipping {
                bytes = &bytes[fast(target, bytes)..];
            }
            let Some(end) = memchr(b'\n', bytes) else {
                self.keep(bytes);
                return;
            };
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.skipping || self.begun.len() + line.len() > LINE_MAX {
                self.overlong += 1;
                self.skipping = false;
            } else if self.begun.is_empty() {
                each(target, line);
            } else {
                self.begun.extend_from_slice(line);
                each(target, &self.begun);
            }
            self.begun.clear();
            bytes = rest;
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.skipping || self.begun.len() + bytes.len() > LINE_MAX {
            self.skipping = true;
            self.begun.clear();
        } else {
            self.begun.extend_from_slice(bytes);
        }
    }

    /// The line that the file ends in without a line break.
    pub(super) fn last(&mut self) -> Option<Vec<u8>> {
        if std::mem::take(&mut self.skipping) {
            self.overlong += 1;
            self.ends_open = true;
        }
        let line = std::mem::take(&mut self.begun);
        self.ends_open |= !line.is_empty();
        (!line.is_empty()).then_some(line)
    }
}

/// A line without terminal sequences (`ESC [ ... letter`) and carriage returns.
pub(super) fn without_colours(line: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = |byte: &u8| !matches!(byte, 0x1b | b'\r');
    if line.iter().all(is_plain) {
        return Cow::Borrowed(line);
    }
    let mut plain = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            0x1b if tail.first() == Some(&b'[') => {
                let end = tail[1..].iter().position(|byte| (0x40..=0x7e).contains(byte));
                rest = end.map_or(&[], |end| &tail[end + 2..]);
                // A cursor that moves begins a new line of the screen.
                plain.push(b' ');
            }
            0x1b | b'\r' => {}
            byte => plain.push(byte),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Lines) {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.feed(&mut found, piece, |_, _| 0, |found, line| found.push(line.to_vec()));
        }
        found.extend(lines.last());
        (found, lines)
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let long = vec![b'x'; LINE_MAX];
        let (found, lines) = cut(&[b"a\n", &long, b"y\nb\n", &long, b"z"]);
        assert_eq!(found, [b"a", b"b"]);
        assert_eq!((lines.overlong, lines.ends_open), (2, true));
    }

    #[test]
    fn colours_are_taken_out() {
        assert_eq!(&*without_colours(b"\x1b[31mT: 0\x1b[0m\r"), b" T: 0 ");
        assert_eq!(&*without_colours(b"\x1b[4Apolicy\x1b["), b" policy ");
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_lines(text in "[a-c\n]{0,60}", piece in 1_usize..9) {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece).collect();
            let (found, _) = cut(&pieces);
            let expected: Vec<&[u8]> =
                text.lines().map(str::as_bytes).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
