//! Texts that people write: what is wrong in one, on which line, and what was perhaps meant.

use std::fmt;

use crate::printable::printable;

/// Makes serde write a noun as it is displayed and read it as it is parsed.
macro_rules! serde_as_text {
    ($noun:ty) => {
        impl serde::Serialize for $noun {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $noun {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use serde_as_text;

/// One thing that is wrong in a text, or in a word on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1; none where the text as a whole is meant.
    pub line: Option<usize>,
    pub message: String,
    /// What was perhaps meant.
    pub suggestion: Option<String>,
}

impl Problem {
    /// A problem of no line in particular.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Problem {
        Problem { line: None, message: message.into(), suggestion: None }
    }

    /// Adds the nearest of the known words.
    #[must_use]
    pub fn suggest<'a>(mut self, wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Problem {
        self.suggestion = suggest(wrong, known);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.message))?;
        match &self.suggestion {
            Some(suggestion) => write!(f, " (did you mean {suggestion:?}?)"),
            None => Ok(()),
        }
    }
}

/// All that is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// File or built-in name.
    pub name: String,
    /// At least one problem.
    pub problems: Vec<Problem>,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            f.write_str(&printable(&self.name))?;
            if let Some(line) = problem.line {
                write!(f, ":{line}")?;
            }
            write!(f, ": {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for TextError {}

/// The line of a byte offset, from 1.
#[must_use]
pub fn line_of(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}

/// The lines of byte offsets, from 1. Those in ascending order are found in one pass over the text.
#[must_use]
pub fn lines_of(text: &str, offsets: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let (mut passed, mut line) = (0, 1);
    let of = |offset: usize| {
        let offset = offset.min(text.len());
        if offset < passed {
            (passed, line) = (0, 1);
        }
        line += text[passed..offset].matches('\n').count();
        passed = offset;
        line
    };
    offsets.into_iter().map(of).collect()
}

/// A TOML error with its line, and for an unknown key the nearest known one.
#[must_use]
pub fn problem_of(text: &str, error: &toml::de::Error) -> Problem {
    problem_at(text, error, error.span().map(|span| span.start))
}

/// A TOML error of a value that stands at an offset.
pub(crate) fn problem_at(text: &str, error: &toml::de::Error, at: Option<usize>) -> Problem {
    let message = error.message().trim().to_owned();
    let line = at.map(|at| line_of(text, at));
    let line_text = line.and_then(|line| text.lines().nth(line - 1)).unwrap_or_default();
    if let Some(message) = right_form(&message, line_text) {
        return Problem { line, ..Problem::new(message) };
    }
    if let Some(table) = repeated_table(&message, line_text) {
        let advice = match table {
            "phase" => two_brackets(table),
            _ => format!("[{table}] appears twice: merge the two tables"),
        };
        return Problem { line, ..Problem::new(advice) };
    }
    let mut quoted = message.split('`').skip(1).step_by(2);
    let suggestion = match message.starts_with("unknown ") {
        true => quoted.next().and_then(|wrong| suggest(wrong, quoted)),
        false => None,
    };
    let mut message =
        message.replace("unknown field", "unknown key").replace("missing field", "missing key");
    if let Some(value) = message.strip_prefix("unknown variant ") {
        message = format!("unknown value {}", value.replacen(", expected ", ": write ", 1));
    }
    Problem { line, message, suggestion }
}

fn two_brackets(table: &str) -> String {
    format!("write [[{table}]] with two brackets")
}

/// The table that stands in a text twice, with one bracket.
fn repeated_table<'a>(message: &str, line: &'a str) -> Option<&'a str> {
    let table = line.trim().strip_prefix('[')?.strip_suffix(']')?;
    (message == "duplicate key" && !table.starts_with('[')).then_some(table)
}

/// How a value of the wrong type is written, for the line that it stands in; none for what that doesn't show.
fn right_form(message: &str, line: &str) -> Option<String> {
    let (_, expected) = message.strip_prefix("invalid type: ")?.split_once(", expected ")?;
    let line = line.trim();
    if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return (expected == "a sequence").then(|| two_brackets(name));
    }
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    let is_plain = |word: &str| !word.is_empty() && !word.contains(['{', '[', '#']);
    if !is_plain(key) || key.contains(' ') {
        return None;
    }
    let quoted =
        if value.starts_with(['"', '\'']) { value.to_owned() } else { format!("\"{value}\"") };
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    let form = match expected {
        "a string" if is_number => {
            format!("{quoted}, or with its unit if it is a time, such as \"1ms\"")
        }
        "a string" if is_plain(value) => quoted,
        "a sequence" if is_plain(value) => format!("[{quoted}]"),
        "a map" => "{ name = \"value\" }".to_owned(),
        "a boolean" | "i64" | "an integer" if is_plain(value) => {
            value.trim_matches(['"', '\'']).to_owned()
        }
        _ => return None,
    };
    Some(format!("write it as {key} = {form}"))
}

/// A word as a shell reads it back: in single quotes where it has characters that mean something to a shell.
#[must_use]
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Whether a word that stands for a name or a file of TOML means a file, there or not.
#[must_use]
pub fn is_toml_file(word: &str) -> bool {
    word.contains('/') || word.ends_with(".toml")
}

/// The known word nearest to a mistyped one, if any is near. One letter too many, too few, another or out of its
/// place is near also where the word is too short to look alike otherwise.
pub fn suggest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    known
        .into_iter()
        .map(|word| {
            let likeness = strsim::jaro_winkler(wrong, word);
            let is_slip = word.chars().count() > 2 && strsim::osa_distance(wrong, word) == 1;
            (if is_slip { likeness.max(0.9) } else { likeness }, word)
        })
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word.to_owned())
}

/// The known word that one slip makes a mistyped one of: a letter too many, too few, another or out of its place.
pub fn slip<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known.into_iter().find(|word| strsim::osa_distance(wrong, word) == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_the_wrong_type_is_told_how_it_is_written() {
        for (found, line, form) in [
            (
                "integer `5`, expected a string",
                "duration = 5",
                "duration = \"5\", or with its unit if it is a time, such as \"1ms\"",
            ),
            ("boolean `false`, expected a string", "throttling = false", "throttling = \"false\""),
            ("string \"x\", expected a sequence", "load = \"x\"", "load = [\"x\"]"),
            ("string \"80\", expected i64", "  priority = \"80\"", "priority = 80"),
            ("sequence, expected a map", "settings = [\"a\"]", "settings = { name = \"value\" }"),
        ] {
            let said = right_form(&format!("invalid type: {found}"), line);
            assert_eq!(said, Some(format!("write it as {form}")));
        }
        let said = right_form("invalid type: map, expected a sequence", "[phase]");
        assert_eq!(said.as_deref(), Some("write [[phase]] with two brackets"));
        let text = "[phase]\nname = 'a'\n[phase]\nname = 'b'\n";
        let error = toml::from_str::<toml::Table>(text).expect_err("twice the same");
        let problem = problem_of(text, &error);
        assert_eq!(problem.message, "write [[phase]] with two brackets");
        assert_eq!(problem.line, Some(3));
        let text = text.replace("phase", "sampler");
        let error = toml::from_str::<toml::Table>(&text).expect_err("twice the same");
        assert_eq!(
            problem_of(&text, &error).message,
            "[sampler] appears twice: merge the two tables"
        );
        let table = "phase = { duration = 5 }";
        assert_eq!(right_form("invalid type: integer `5`, expected a string", table), None);
    }

    #[test]
    fn a_wrong_value_is_told_in_the_words_of_a_plan() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Clock {
            Monotonic,
            Realtime,
        }
        type Plan = std::collections::BTreeMap<String, Clock>;
        let text = "\nclock = 'realtme'";
        let error = toml::from_str::<Plan>(text).expect_err("no such clock");
        let problem = problem_of(text, &error);
        assert_eq!(
            (problem.line, problem.to_string().as_str()),
            (
                Some(2),
                "unknown value `realtme`: write `monotonic` or `realtime` (did you mean \"realtime\"?)"
            )
        );
    }

    #[test]
    fn what_means_something_to_a_shell_is_in_quotes() {
        for plain in ["throttling=off", "irq-affinity=0@eth0", "a-b=c,d", "/usr/bin/x_1:2+3%"] {
            assert_eq!(shell_word(plain), plain);
        }
        for (word, quoted) in [
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("a b", "'a b'"),
            ("0@eth0;1@nvme*", "'0@eth0;1@nvme*'"),
            ("$(x)", "'$(x)'"),
            ("~", "'~'"),
            ("a\nb", "'a\nb'"),
            ("\\", r"'\'"),
        ] {
            assert_eq!(shell_word(word), quoted);
        }
    }

    #[test]
    fn a_slip_of_one_letter_is_near_in_a_short_word_too() {
        let verbs = ["report", "run", "ps", "new"];
        assert_eq!(suggest("rnu", verbs).as_deref(), Some("run"));
        assert_eq!(suggest("un", verbs).as_deref(), Some("run"));
        assert_eq!(suggest("ne", verbs).as_deref(), Some("new"));
        assert_eq!(suggest("xy", verbs), None);
    }

    #[test]
    fn lines_of_many_offsets_are_those_of_each_in_any_order() {
        let text = "a\n\nbä\nc";
        let offsets = [0, 1, 2, 3, 7, 100, 3, 0, 8];
        let each = offsets.map(|offset| line_of(text, offset));
        assert_eq!(each, [1, 1, 2, 3, 4, 4, 3, 1, 4]);
        assert_eq!(lines_of(text, offsets), each);
    }

    #[test]
    fn problems_are_said_with_their_place_and_what_was_meant() {
        let far = Problem::new("no such word").suggest("zebra", ["fifo", "other"]);
        let near = Problem::new("no such policy").suggest("fito", ["other", "fifo"]);
        let near = Problem { line: Some(line_of("a\nb\nc", 2)), ..near };
        let error = TextError { name: "p.toml".to_owned(), problems: vec![far, near] };
        assert_eq!(
            error.to_string(),
            "p.toml: no such word\np.toml:2: no such policy (did you mean \"fifo\"?)"
        );
    }
}
