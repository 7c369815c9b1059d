//! A plan with mistakes, read as far as it goes, so that all of them are told at once.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use toml::Spanned;

use crate::text::{Problem, problem_at, problem_of};

/// Mistakes after which reading ends: a text with so many isn't a plan.
const MISTAKES_MAX: usize = 50;

/// A value that a person typed: what it was read as, or why it can't be read.
#[derive(Clone, Debug)]
pub(crate) struct Typed<T> {
    /// Where it stands in the text.
    pub(crate) at: usize,
    read: Result<T, toml::de::Error>,
}

impl<T> Typed<T> {
    /// The value, unless it can't be read.
    pub(crate) fn value(&self) -> Option<&T> {
        self.read.as_ref().ok()
    }

    /// What is wrong with it.
    pub(crate) fn problem(&self, text: &str) -> Option<Problem> {
        let error = self.read.as_ref().err()?;
        Some(problem_at(text, error, Some(self.at)))
    }
}

impl<T> From<T> for Typed<T> {
    fn from(value: T) -> Typed<T> {
        Typed { at: 0, read: Ok(value) }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Typed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Typed<T>, D::Error> {
        let value = Spanned::<toml::Value>::deserialize(deserializer)?;
        Ok(Typed { at: value.span().start, read: T::deserialize(value.into_inner()) })
    }
}

impl<T: Serialize> Serialize for Typed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

/// The values of a list that can be read.
pub(crate) fn values<T: Clone>(list: &[Typed<T>]) -> Vec<T> {
    list.iter().filter_map(Typed::value).cloned().collect()
}

/// Reads a text without the lines (of an inline table, the pairs) that can't be read, and says what is wrong with
/// each of them. None where nothing can be read without one.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> (Option<T>, Vec<Problem>) {
    let (mut left, mut problems) = (text.to_owned(), Vec::new());
    loop {
        let error = match toml::from_str(&left) {
            Ok(read) => return (Some(read), problems),
            Err(error) => error,
        };
        // A key that is missing may be in a line that was left out.
        let is_missing = error.message().starts_with("missing field");
        if !is_missing || problems.is_empty() {
            problems.push(problem_of(text, &error));
        }
        let without = error.span().and_then(|span| {
            without_pair(&left, span.start).or_else(|| without_line(&left, span.start))
        });
        match without.filter(|_| !is_missing && problems.len() < MISTAKES_MAX) {
            Some(without) => left = without,
            None => return (None, problems),
        }
    }
}

/// The text with blanks in place of a line, if that line is a key with its whole value.
fn without_line(text: &str, at: usize) -> Option<String> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let end = text[start..].find('\n').map_or(text.len(), |length| start + length);
    let line = &text[start..end];
    let is_even =
        |open: char, close: char| line.matches(open).count() == line.matches(close).count();
    let is_key = line.contains('=') && !line.trim_start().starts_with(['[', '#']);
    let is_whole =
        is_even('[', ']') && is_even('{', '}') && !line.contains("\"\"\"") && !line.contains("'''");
    (is_key && is_whole)
        .then(|| format!("{}{}{}", &text[..start], " ".repeat(line.len()), &text[end..]))
}

/// The text with blanks in place of a pair of an inline table that is all on one line.
fn without_pair(text: &str, at: usize) -> Option<String> {
    let line_at = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text[line_at..].lines().next()?;
    // For each table that is open: where its present pair begins, and whether a comma is before that.
    let mut open: Vec<(usize, bool)> = Vec::new();
    let mut quote = None;
    let mut is_escaped = false;
    let (mut lists, mut depth) = (0_usize, 0);
    for (place, c) in line.char_indices().map(|(place, c)| (line_at + place, c)) {
        match (quote, c) {
            (Some('"'), '\\') if !is_escaped => {
                is_escaped = true;
                continue;
            }
            (Some(begun), c) if c == begun && !is_escaped => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => lists += 1,
            (None, ']') => lists = lists.saturating_sub(1),
            (None, '{') => open.push((place + 1, false)),
            (None, ',' | '}') if place > at && lists == 0 && open.len() == depth => {
                let (start, has_before) = *open.last()?;
                // A comma goes with the pair: the one behind it, else the one before it.
                let (start, end) = match (c, has_before) {
                    (',', _) => (start, place + 1),
                    (_, true) => (start - 1, place),
                    (_, false) => (start, place),
                };
                let blank = " ".repeat(end - start);
                return Some(format!("{}{blank}{}", &text[..start], &text[end..]));
            }
            (None, ',') if lists == 0 => *open.last_mut()? = (place + 1, true),
            (None, '}') => drop(open.pop()),
            (None, '#') => return None,
            _ => {}
        }
        is_escaped = false;
        if place == at {
            // What is said of a whole table is of none of its pairs.
            if c == '{' {
                return None;
            }
            depth = open.len();
        }
    }
    None
}
