//! What a file is, from how it begins: a few lines that no other format has.

use super::lines;

/// The first lines of a file, without colours.
pub(super) struct Beginning<'a> {
    /// Trimmed lines, the last perhaps cut.
    pub(super) lines: Vec<std::borrow::Cow<'a, str>>,
}

/// Lines that are looked at.
const LINES: usize = 400;

impl<'a> Beginning<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Beginning<'a> {
        let lines = bytes.split(|&byte| byte == b'\n' || byte == b'\r').take(LINES);
        let lines = lines.map(|line| match lines::without_colours(line) {
            std::borrow::Cow::Borrowed(line) => String::from_utf8_lossy(line.trim_ascii()),
            std::borrow::Cow::Owned(line) => {
                String::from_utf8_lossy(line.trim_ascii()).into_owned().into()
            }
        });
        Beginning { lines: lines.filter(|line| !line.is_empty()).collect() }
    }

    /// Whether some line is so.
    pub(super) fn any(&self, is: impl Fn(&str) -> bool) -> bool {
        self.lines.iter().any(|line| is(line))
    }

    /// Whether the file is a JSON object with this key near its beginning.
    pub(super) fn has_key(&self, key: &str) -> bool {
        let is_object = self.lines.first().is_some_and(|line| line.starts_with('{'));
        is_object && self.any(|line| line.contains(&format!("\"{key}\"")))
    }
}
