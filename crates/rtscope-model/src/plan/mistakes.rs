//! A plan with mistakes, read as far as it goes, so that all of them are told at once.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use toml::Spanned;

use crate::text::{Problem, line_of, problem_of};

/// Mistakes after which reading ends: a text with so many isn't a plan.
const MISTAKES_MAX: usize = 50;

/// A value that a person typed: what it was read as, or why it can't be read.
#[derive(Clone, Debug)]
pub(super) struct Typed<T> {
    /// Where it stands in the text.
    pub(super) at: usize,
    read: Result<T, toml::de::Error>,
}

impl<T> Typed<T> {
    /// The value, unless it can't be read.
    pub(super) fn value(&self) -> Option<&T> {
        self.read.as_ref().ok()
    }

    /// What is wrong with it.
    pub(super) fn problem(&self, text: &str) -> Option<Problem> {
        let error = self.read.as_ref().err()?;
        Some(Problem { line: Some(line_of(text, self.at)), ..problem_of(text, error) })
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
pub(super) fn values<T: Clone>(list: &[Typed<T>]) -> Vec<T> {
    list.iter().filter_map(Typed::value).cloned().collect()
}

/// Reads a text without the lines that can't be read, and says what is wrong with each of them. None where
/// nothing can be read without a line.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> (Option<T>, Vec<Problem>) {
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
        let without = error.span().and_then(|span| without_line(&left, span.start));
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
