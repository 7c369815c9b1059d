//! Lines of JSON out of pieces of a file, in the memory of one line.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::ends::ADVICE;
use crate::{
    chain::{Chain, Link},
    finding::{Finding, Weight},
    printable::{from_json, printable},
};

/// A longer line is none of ours: it is skipped and counted as damaged.
const LINE_MAX: usize = 64 << 20;

/// Reads the lines of one file. A damaged line is skipped and counted.
#[derive(Debug)]
pub(super) struct Lines<T> {
    name: String,
    /// The beginning of a line whose end was not fed yet.
    rest: Vec<u8>,
    /// Whether the line in progress is too long to keep.
    too_long: bool,
    /// Lines so far, blank ones among them.
    number: u64,
    chain: Chain,
    damaged: Places,
    broken: Places,
    unsealed: Places,
    kind: PhantomData<T>,
}

/// How often something was seen, and the line where it was seen first.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    count: u64,
    first: u64,
}

impl Places {
    fn add(&mut self, line: u64) {
        if self.count == 0 {
            self.first = line;
        }
        self.count += 1;
    }
}

/// What reading a file's lines told besides their content.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) name: String,
    /// Where the chain of checksums ended.
    pub(super) chain: Chain,
    pub(super) findings: Vec<Finding>,
}

impl<T: DeserializeOwned> Lines<T> {
    pub(super) fn new(name: &str) -> Lines<T> {
        Lines {
            name: printable(name).into_owned(),
            rest: Vec::new(),
            too_long: false,
            number: 0,
            chain: Chain::default(),
            damaged: Places::default(),
            broken: Places::default(),
            unsealed: Places::default(),
            kind: PhantomData,
        }
    }

    /// Takes the next piece of the file; `take` gets each value.
    pub(super) fn feed(&mut self, mut bytes: &[u8], take: &mut impl FnMut(T)) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            if self.rest.is_empty() && !self.too_long {
                self.line(&bytes[..end], take);
            } else {
                self.keep(&bytes[..end]);
                self.end_of_kept(take);
            }
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.too_long |= self.rest.len() + bytes.len() > LINE_MAX;
        if self.too_long {
            self.rest = Vec::new();
        } else {
            self.rest.extend_from_slice(bytes);
        }
    }

    fn end_of_kept(&mut self, take: &mut impl FnMut(T)) {
        if std::mem::take(&mut self.too_long) {
            self.number += 1;
            self.damaged.add(self.number);
            return;
        }
        let mut kept = std::mem::take(&mut self.rest);
        self.line(&kept, take);
        kept.clear();
        self.rest = kept;
    }

    fn line(&mut self, line: &[u8], take: &mut impl FnMut(T)) {
        self.number += 1;
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        let value = std::str::from_utf8(line).ok().and_then(|text| from_json(text).ok());
        let Some(value) = value else {
            self.damaged.add(self.number);
            return;
        };
        match self.chain.check(line) {
            Link::Intact => {}
            Link::Broken => self.broken.add(self.number),
            Link::Absent => self.unsealed.add(self.number),
        }
        take(value);
    }

    pub(super) fn finish(mut self, take: &mut impl FnMut(T)) -> Read {
        if self.too_long || !self.rest.is_empty() {
            self.end_of_kept(take);
        }
        let mut findings: Vec<Finding> = self.damage().into_iter().collect();
        findings.extend(self.change());
        Read { name: self.name, chain: self.chain, findings }
    }

    fn damage(&self) -> Option<Finding> {
        let (name, first) = (&self.name, self.damaged.first);
        let text = match self.damaged.count {
            0 => return None,
            1 => format!("{name}: line {first} can't be read"),
            n => format!("{name}: {n} lines can't be read, the first is line {first}"),
        };
        Some(Finding::new("record-damaged", Weight::PreventsPass, text))
    }

    /// A chain that doesn't hold. Older files have none; a file in which only some lines have a
    /// checksum got the others from elsewhere.
    fn change(&self) -> Option<Finding> {
        let unsealed = self.unsealed.count > 0 && self.chain.lines > 0;
        let name = &self.name;
        let text = if self.broken.count > 0 {
            let (first, count) = (self.broken.first, self.broken.count);
            let more = match count {
                1 => String::new(),
                n => format!(" (and at {} other places)", n - 1),
            };
            format!(
                "{name}: line {first} or the line before it was changed, removed or duplicated{more}"
            )
        } else if unsealed {
            format!(
                "{name}: line {} has no checksum, but other lines have one",
                self.unsealed.first
            )
        } else {
            return None;
        };
        Some(Finding::new("record-changed", Weight::PreventsPass, text).advise(ADVICE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, piece: usize) -> (Vec<u64>, Vec<String>) {
        let mut values = Vec::new();
        let mut lines = Lines::<u64>::new("x.jsonl");
        text.as_bytes().chunks(piece).for_each(|piece| lines.feed(piece, &mut |n| values.push(n)));
        let findings = lines.finish(&mut |n| values.push(n)).findings;
        (values, findings.into_iter().map(|finding| finding.text).collect())
    }

    #[test]
    fn pieces_of_any_size_give_the_same_lines() {
        for piece in 1..12 {
            assert_eq!(read("17\n\n 23 \r\n42", piece), (vec![17, 23, 42], vec![]), "{piece}");
        }
    }

    /// The fuzzer found that the name of a file in a record's folder went to the terminal unchanged.
    #[test]
    fn the_name_of_a_damaged_file_is_printable() {
        let mut lines = Lines::<u64>::new("slices/t0\u{1b}[2J.jsonl");
        lines.feed(b"{\n", &mut drop);
        let text = lines.finish(&mut drop).findings[0].text.clone();
        assert_eq!(text, "slices/t0\\u001b[2J.jsonl: line 1 can't be read");
    }

    #[test]
    fn one_damaged_line_is_one() {
        let said = |text| read(text, 100).1[0].clone();
        assert_eq!(said("1\n{\n3\n"), "x.jsonl: line 2 can't be read");
        assert_eq!(said("1\n{\n?\n"), "x.jsonl: 2 lines can't be read, the first is line 2");
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let mut lines = Lines::<u64>::new("x.jsonl");
        let piece = vec![b'1'; 1 << 20];
        (0..70).for_each(|_| lines.feed(&piece, &mut |_| panic!("a value")));
        assert!(lines.rest.capacity() <= LINE_MAX);
        let read = lines.finish(&mut |_| panic!("a value"));
        assert_eq!(read.findings[0].text, "x.jsonl: line 1 can't be read");
    }
}
