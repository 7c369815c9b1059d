//! JSON that was not always written by a JSON writer: values that are no numbers, quotes inside of
//! texts, and a file that ends in the middle. A file may hold several documents, one after the other: each
//! is a run.

use rtscope_model::finding::Weight;
use serde_json::Value;

use super::{
    ImportOptions, ImportReading, ImportedCell, Reader,
    cell::{Rows, Said},
    number::Printed,
    repeated::repeated,
};

/// The largest document that is read.
const DOCUMENT_MAX: usize = 32 << 20;

/// The most brackets that are open at once.
const DEPTH_MAX: usize = 64;

/// What a format's document says, as one cell.
type ToCell = fn(&Value, &ImportOptions, &mut ImportReading) -> ImportedCell;

/// The most documents of one file that are read.
const DOCUMENTS_MAX: usize = 256;

/// The reader of a format whose documents are a cell each.
pub(super) fn reader(to_cell: ToCell, options: &ImportOptions) -> Box<dyn Reader> {
    Box::new(Documents { text: Text::default(), options: options.clone(), to_cell })
}

struct Documents {
    text: Text,
    options: ImportOptions,
    to_cell: ToCell,
}

impl Reader for Documents {
    fn feed(&mut self, bytes: &[u8]) {
        self.text.feed(bytes);
    }

    fn finish(self: Box<Self>) -> ImportReading {
        let mut reading = ImportReading::default();
        let values = self.text.finish(&mut reading);
        for (n, value) in values.iter().enumerate() {
            let mut cell = (self.to_cell)(value, &self.options, &mut reading);
            if values.len() > 1 {
                cell.name = format!("run {}", n + 1);
            }
            reading.cells.push(cell);
        }
        if values.len() > 1 {
            let text =
                format!("the file holds {} runs: each becomes a separate cell", values.len());
            reading.note("import-several-runs", Weight::Note, text);
        }
        reading
    }
}

/// The file's text on its way in.
#[derive(Debug, Default)]
struct Text {
    text: Vec<u8>,
    beyond: u64,
}

impl Text {
    fn feed(&mut self, bytes: &[u8]) {
        let room = DOCUMENT_MAX - self.text.len();
        let kept = bytes.len().min(room);
        self.text.extend_from_slice(&bytes[..kept]);
        self.beyond += (bytes.len() - kept) as u64;
    }

    /// The documents, mended where they must be: what was mended is told.
    fn finish(self, reading: &mut ImportReading) -> Vec<Value> {
        if self.beyond > 0 {
            let text = format!("{} bytes beyond {DOCUMENT_MAX} were not read", self.beyond);
            reading.note("import-truncated", Weight::PreventsPass, text);
        }
        let text = String::from_utf8_lossy(&self.text);
        let text = text.trim_start_matches('\u{feff}').trim_matches('\0');
        if let Ok(value) = serde_json::from_str(text) {
            tell_repeated(text, reading);
            return vec![value];
        }
        let escaped = quoted(text);
        let mut is_mended = escaped.lines().ne(text.lines());
        let (mut rest, mut values) = (escaped.as_str(), Vec::new());
        while values.is_empty() || (rest.starts_with('{') && values.len() < DOCUMENTS_MAX) {
            let (value, read) = document(rest, reading, &mut is_mended);
            values.push(value);
            rest = rest[read..].trim_start();
        }
        if is_mended {
            let text = "the file is not valid JSON and was repaired (its tool writes values that are not \
                numbers, or unescaped quotes in strings)";
            reading.note("import-mended", Weight::Note, text);
        }
        if !rest.is_empty() {
            let text = format!("{} bytes after the last document were not read", rest.len());
            reading.note("import-damaged", Weight::PreventsPass, text);
        }
        values
    }
}

/// The first document of a text, and how many of its bytes it takes. Says so when it had to be mended.
fn document(text: &str, reading: &mut ImportReading, is_mended: &mut bool) -> (Value, usize) {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    if let Some(Ok(value)) = stream.next() {
        tell_repeated(&text[..stream.byte_offset()], reading);
        return (value, stream.byte_offset());
    }
    let (mended, read, is_cut) = mend(text);
    tell_repeated(&mended, reading);
    let value = match serde_json::from_str(&mended) {
        Ok(value) if is_cut => {
            let text = "the file was cut off: rtscope read it up to that point";
            reading.note("import-truncated", Weight::PreventsPass, text);
            value
        }
        Ok(value) => {
            *is_mended = true;
            value
        }
        Err(error) => {
            let text = format!("the file is not JSON: {error}");
            reading.note("import-damaged", Weight::PreventsPass, text);
            Value::Null
        }
    };
    (value, read)
}

/// Says that keys of a document come twice. Of two values the last is taken.
fn tell_repeated(document: &str, reading: &mut ImportReading) {
    let count = repeated(document);
    if count > 0 {
        let text =
            format!("{count} keys appear twice in one object, and only the last value was read");
        reading.note("import-damaged", Weight::PreventsPass, text);
    }
}

/// Quotes inside of a text that has its line to itself, `"key": "text",`, escaped.
fn quoted(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let inner = line.split_once(": \"").and_then(|(key, rest)| {
            let (inner, comma) = match rest.trim_end().strip_suffix("\",") {
                Some(inner) => (inner, ","),
                None => (rest.trim_end().strip_suffix('"')?, ""),
            };
            let has_quotes = inner.replace("\\\"", "").contains('"');
            (has_quotes && !inner.contains("\": ")).then(|| {
                format!("{key}: \"{}\"{comma}", inner.replace("\\\"", "\"").replace('"', "\\\""))
            })
        });
        lines.push(inner.unwrap_or_else(|| line.to_owned()));
    }
    lines.join("\n")
}

/// Whether a word is what C prints for a number that is none.
fn is_no_number(word: &str) -> bool {
    matches!(word.trim_start_matches(['-', '+']), "nan" | "inf" | "NaN" | "Infinity")
}

/// The first document of a text with numbers that are none as null, and closed where it breaks off; how
/// many bytes it takes, and whether it breaks off.
fn mend(text: &str) -> (String, usize, bool) {
    let mut out = String::with_capacity(text.len() + 16);
    let mut open: Vec<char> = Vec::new();
    // Where the text last was whole but for its closing brackets, and which those are.
    let mut whole: Option<(usize, Vec<char>)> = None;
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => {
                out.push(c);
                let mut escaped = false;
                for (_, c) in characters.by_ref() {
                    out.push(c);
                    match c {
                        '\\' => escaped = !escaped,
                        '"' if !escaped => break,
                        _ => escaped = false,
                    }
                }
            }
            '{' | '[' => {
                open.push(if c == '{' { '}' } else { ']' });
                out.push(c);
                whole = Some((out.len(), open.clone()));
            }
            '}' | ']' => {
                open.pop();
                out.push(c);
                whole = Some((out.len(), open.clone()));
                if open.is_empty() {
                    return (out, at + 1, false);
                }
            }
            ',' => {
                whole = Some((out.len(), open.clone()));
                out.push(c);
            }
            c if c.is_ascii_alphabetic() || matches!(c, '-' | '+') => {
                let rest = &text[at..];
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-+.".contains(c));
                let word = &rest[..end.unwrap_or(rest.len())];
                out.push_str(if is_no_number(word) { "null" } else { word });
                word.chars().skip(1).for_each(|_| {
                    characters.next();
                });
            }
            c => out.push(c),
        }
        if open.len() > DEPTH_MAX {
            return (String::new(), text.len(), true);
        }
    }
    let Some((length, open)) = whole else { return (out, text.len(), true) };
    out.truncate(length);
    out.extend(open.iter().rev());
    (out, text.len(), true)
}

/// A whole number, written as such or as a float.
pub(super) fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let value = value.as_f64().filter(|value| (0.0..9e15).contains(value))?;
        Some(value as u64)
    })
}

/// A text of the document, not longer than a page can take.
pub(super) fn text(value: &Value) -> Option<String> {
    value.as_str().map(|text| text.chars().take(2_000).collect())
}

/// The entries of an object whose keys are numbers, in their order, and how many keys are none.
pub(super) fn numbered(value: &Value) -> (Vec<(u64, &Value)>, u64) {
    let all = value.as_object().into_iter().flatten();
    let mut entries: Vec<(u64, &Value)> =
        all.filter_map(|(key, value)| Some((key.trim().parse().ok()?, value))).collect();
    let unreadable = value.as_object().map_or(0, |all| all.len() - entries.len()) as u64;
    entries.sort_by_key(|entry| entry.0);
    (entries, unreadable)
}

/// Most threads of a document.
const THREADS_MAX: usize = 512;

/// The threads of a document, and what is damaged in them.
#[derive(Debug, Default)]
pub(super) struct Threads<'a> {
    /// Number, object and histogram of each.
    pub(super) entries: Vec<(u64, &'a Value, Rows)>,
    damaged: u64,
}

impl<'a> Threads<'a> {
    pub(super) fn new(value: &'a Value) -> Threads<'a> {
        let (objects, mut damaged) = numbered(value);
        damaged += objects.windows(2).filter(|pair| pair[0].0 == pair[1].0).count() as u64;
        damaged += objects.len().saturating_sub(THREADS_MAX) as u64;
        let mut entries = Vec::new();
        for (index, thread) in objects.into_iter().take(THREADS_MAX) {
            let mut rows = Rows::default();
            let (counts, unreadable) = numbered(&thread["histogram"]);
            damaged += unreadable;
            for (row, count) in counts {
                match whole(count) {
                    Some(count) => rows.add(row, &[count]),
                    None => damaged += 1,
                }
            }
            damaged += rows.absurd + rows.repeated;
            entries.push((index, thread, rows));
        }
        Threads { entries, damaged }
    }

    /// The largest row of all threads.
    pub(super) fn last(&self) -> u64 {
        self.entries.iter().map(|(_, _, rows)| rows.last).max().unwrap_or(0)
    }

    /// Count and extremes of a thread. What is there and isn't a number is damage.
    pub(super) fn of_thread(&mut self, thread: &Value, count: &str) -> Said {
        let keys = [count, "min", "max", "avg"];
        let damaged = keys.iter().filter(|key| {
            let value = &thread[**key];
            !value.is_null() && value.as_f64().is_none()
        });
        self.damaged += damaged.count() as u64;
        // Only wake-ups before their time make an average negative, and only nothing has none.
        let mean = &thread["avg"];
        let is_negative = mean.as_f64().is_some_and(|mean| mean < 0.0)
            && printed(&thread["min"]) != Some(Printed::Early);
        let is_none =
            thread.get("avg").is_some_and(Value::is_null) && number(&thread[count]) != Some(0);
        self.damaged += u64::from(is_negative) + u64::from(is_none);
        let overflow = &thread["overflow"];
        self.damaged += u64::from(!overflow.is_null() && whole(overflow).is_none());
        self.damaged +=
            u64::from(thread[count].is_null() || printed(&thread[count]) == Some(Printed::Early));
        let late = |key: &str| match printed(&thread[key]) {
            Some(Printed::Late(value)) => Some(value),
            _ => None,
        };
        let is_early = |key: &str| printed(&thread[key]) == Some(Printed::Early);
        Said {
            count: late(count),
            min: late("min"),
            max: late("max"),
            mean: thread["avg"].as_f64().filter(|mean| (0.0..1e15).contains(mean)),
            early: u64::from(is_early("min") || is_early("max")),
            ..Said::default()
        }
    }

    /// Tells of damage.
    pub(super) fn add_findings(&self, reading: &mut ImportReading) {
        if self.damaged > 0 {
            let text = format!(
                "{} entries of threads can't be read, are missing or repeated: latencies may be missing",
                self.damaged
            );
            reading.note("import-damaged", Weight::PreventsPass, text);
        }
    }
}

/// A number of latencies.
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        number(value).filter(|_| value.as_f64().is_some_and(|value| value.fract() == 0.0))
    })
}

/// A latency, a minimum or a maximum. A negative one, also as an unsigned number, is that of a wake-up
/// before its time.
fn printed(value: &Value) -> Option<Printed> {
    let number_of = value.as_f64()?;
    let is_early = number_of < 0.0 || number_of >= (1u64 << 62) as f64;
    if is_early { Some(Printed::Early) } else { number(value).map(Printed::Late) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> (Value, Vec<String>) {
        let (mut file, mut reading) = (Text::default(), ImportReading::default());
        file.feed(text.as_bytes());
        let value = file.finish(&mut reading).swap_remove(0);
        (value, reading.findings.into_iter().map(|finding| finding.code).collect())
    }

    #[test]
    fn what_tools_write_is_mended() {
        let mended = || vec!["import-mended".to_owned()];
        assert_eq!(read("{\"avg\": -nan, \"n\": 1}"), (json!({"avg": null, "n": 1}), mended()));
        let quotes = "{\n  \"cmdline:\": \"a \"b c\" d\",\n  \"n\": 1\n}";
        assert_eq!(read(quotes), (json!({"cmdline:": "a \"b c\" d", "n": 1}), mended()));
    }

    #[test]
    fn a_document_that_was_cut_keeps_what_is_whole() {
        let whole = "{\"a\": {\"1\": 10, \"2\": 20}, \"b\": [1, 2]}";
        let cut = |at: usize| read(&whole[..at]).0;
        assert_eq!(cut(18), json!({"a": {"1": 10}}));
        assert_eq!(cut(25), json!({"a": {"1": 10, "2": 20}}));
        assert_eq!(read(&whole[..18]).1, ["import-truncated"]);
        assert_eq!(read("").1, ["import-damaged"]);
        assert_eq!(read(&"[".repeat(100_000)).0, Value::Null);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_fail(text in "[\\[\\]{}\":,\\\\a1n \n-]{0,80}") {
            let _ = read(&text);
        }
    }
}
