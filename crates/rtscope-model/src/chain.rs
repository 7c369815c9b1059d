//! Checksums that link the lines of a file, so that a changed line is told from a missing end.
//!
//! The last key of each line, `crc`, is the CRC-32 (IEEE 802.3) of all lines up to and including this
//! one, each without its `crc` key, closing brace and line feed. A line that is changed, removed,
//! doubled or moved breaks the chain at that place. What a file of slices without its end lacks is told
//! by the event `run-ended`, which holds the number of lines and the last checksum of each. That event
//! is itself the end of `events.jsonl`. It also holds the checksum of each file that is written as a
//! whole, such as the plan. The checksums protect against accidents, not against somebody who computes
//! them anew.

use serde::{Deserialize, Serialize};

/// What stands between a line and its checksum.
const KEY: &[u8] = b",\"crc\":";

/// The state of a file's chain: its lines so far and the checksum over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// Lines with a checksum.
    pub lines: u64,
    /// The last checksum.
    pub crc: u32,
}

/// How a line fits to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Its checksum is right.
    Intact,
    /// Its checksum is wrong: this line or its neighbourhood was changed.
    Broken,
    /// It has none, as in records of before there were checksums.
    Absent,
}

impl Chain {
    /// Adds a value, which must become a JSON object with keys, to `text` as the next line of its file,
    /// with its checksum and its line feed.
    ///
    /// # Errors
    ///
    /// When the value can't be written as JSON; the text is as it was then.
    pub fn write(&mut self, text: &mut Vec<u8>, value: &impl Serialize) -> serde_json::Result<()> {
        let start = text.len();
        if let Err(e) = serde_json::to_writer(&mut *text, value) {
            text.truncate(start);
            return Err(e);
        }
        text.pop();
        self.add(&text[start..]);
        text.extend_from_slice(KEY);
        text.extend_from_slice(self.crc.to_string().as_bytes());
        text.extend_from_slice(b"}\n");
        Ok(())
    }

    /// Checks a line that was read. After a broken link the chain goes on from what the line says, so
    /// that each place of damage counts once.
    pub fn check(&mut self, line: &[u8]) -> Link {
        let Some((body, said)) = split(line) else { return Link::Absent };
        self.add(body);
        let link = if self.crc == said { Link::Intact } else { Link::Broken };
        self.crc = said;
        link
    }

    fn add(&mut self, body: &[u8]) {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.crc);
        hasher.update(body);
        (self.lines, self.crc) = (self.lines + 1, hasher.finalize());
    }
}

/// The CRC-32 (IEEE 802.3) of a file that is written as a whole.
#[must_use]
pub fn checksum(file: &[u8]) -> u32 {
    crc32fast::hash(file)
}

/// A line without its checksum, and the checksum.
fn split(line: &[u8]) -> Option<(&[u8], u32)> {
    let line = line.strip_suffix(b"}")?;
    let digits = line.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, digits) = line.split_at(line.len() - digits);
    Some((before.strip_suffix(KEY)?, std::str::from_utf8(digits).ok()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(bodies: &[&str]) -> Vec<String> {
        let mut chain = Chain::default();
        let seal = |body: &&str| {
            let value: serde_json::Value = serde_json::from_str(body).expect("JSON");
            let mut line = Vec::new();
            chain.write(&mut line, &value).expect("a line");
            String::from_utf8(line).expect("text").trim_end().to_owned()
        };
        bodies.iter().map(seal).collect()
    }

    fn links(lines: &[String]) -> Vec<Link> {
        let mut chain = Chain::default();
        lines.iter().map(|line| chain.check(line.as_bytes())).collect()
    }

    #[test]
    fn the_checksum_is_the_crc_of_all_lines_so_far() {
        // `python3 -c 'import zlib; print(zlib.crc32(b"{\"a\":1"), zlib.crc32(b"{\"a\":1{\"b\":2"))'`
        let expected = ["{\"a\":1,\"crc\":2801990766}", "{\"b\":2,\"crc\":3854193186}"];
        assert_eq!(sealed(&["{\"a\":1}", "{\"b\":2}"]), expected);
    }

    #[test]
    fn each_kind_of_change_breaks_one_link() {
        let lines = sealed(&["{\"a\":1}", "{\"a\":2}", "{\"a\":3}", "{\"a\":4}"]);
        let broken = |lines: &[String]| -> Vec<usize> {
            let links = links(lines);
            (0..links.len()).filter(|&at| links[at] == Link::Broken).collect()
        };
        assert_eq!(broken(&lines), [0; 0]);
        assert_eq!(broken(&lines[..2]), [0; 0], "a cut file has an intact chain");
        let mut changed = lines.clone();
        changed[1] = changed[1].replace(":2,", ":9,");
        assert_eq!(broken(&changed), [1]);
        let mut removed = lines.clone();
        removed.remove(1);
        assert_eq!(broken(&removed), [1]);
        let mut doubled = lines.clone();
        doubled.insert(1, lines[1].clone());
        assert_eq!(broken(&doubled), [2]);
        assert_eq!(broken(&lines[1..]), [0]);
    }

    #[test]
    fn a_line_without_a_checksum_is_of_an_older_format() {
        assert_eq!(links(&["{\"a\":1}".to_owned(), "17".to_owned()]), [Link::Absent, Link::Absent]);
    }
}
