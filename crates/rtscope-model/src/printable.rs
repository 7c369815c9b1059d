//! Texts that others chose (names of threads, hosts, kernels, plans, files) without what a terminal
//! would obey.
//!
//! A thread may be called `ESC[2K` or `x NEWLINE Verdict: PASS`. There are two lines of defence:
//!
//! * Where a foreign text enters a noun, it becomes [`printable`]: one line, nothing but visible
//!   characters. Records, environments and thread lists are read so.
//! * Where text leaves for the terminal, [`guarded`] lets pass line ends, tabs and our own colours.
//!
//! What is taken away is shown as JSON would write it: `\u001b`, `\n`.

use std::borrow::Cow;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A text in one line of visible characters.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, &|_| 0)
}

/// The same in quotes, for a name inside of a sentence. Not as `{:?}` writes it: that would escape once more
/// what is shown already.
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", printable(text))
}

/// The same, for a text that may have lines of its own, as a plan's `about`.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    guarded(text, false)
}

/// A finished text as a terminal may get it: lines, tabs and, when `colour` says so, attributes
/// (`ESC [ numbers m`). Everything else that a terminal would obey is shown instead.
#[must_use]
pub fn guarded(text: &str, colour: bool) -> Cow<'_, str> {
    escaped(text, &|rest: &str| match rest.as_bytes()[0] {
        b'\n' | b'\t' => 1,
        0x1b if colour => attribute_length(rest),
        _ => 0,
    })
}

/// Reads JSON; every text in it becomes [`printable`].
///
/// # Errors
///
/// As `serde_json::from_str`.
pub fn from_json<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    if is_plain(text) {
        return serde_json::from_str(text);
    }
    let mut value = serde_json::from_str(text)?;
    make_printable(&mut value);
    // `from_value` would add a second copy of the code of every type that is read.
    serde_json::from_str(&value.to_string())
}

/// The same value, every text in it [`printable`]. A value that JSON can't hold stays as it is.
#[must_use]
pub fn with_printable_texts<T: Serialize + DeserializeOwned>(value: T) -> T {
    match serde_json::to_string(&value) {
        Ok(text) if !is_plain(&text) => from_json(&text).unwrap_or(value),
        _ => value,
    }
}

/// Whether every text in a JSON text is surely printable: those of most lines of a record are. Only DEL, a character beyond
/// ASCII, or an escape other than `\"` and `\\` can make one that isn't.
fn is_plain(json: &str) -> bool {
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        let is_harmless = match byte {
            b'\\' => matches!(bytes.next(), Some(b'"' | b'\\')),
            byte => byte < 0x7f,
        };
        if !is_harmless {
            return false;
        }
    }
    true
}

/// Makes every text in a document [`printable`], keys too.
pub fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(changed) = printable(text) {
                *text = changed;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(make_printable),
        Value::Object(map) => {
            let entries = std::mem::take(map).into_iter();
            map.extend(entries.map(|(key, mut value)| {
                make_printable(&mut value);
                (printable(&key).into_owned(), value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Controls (C0, DEL, C1), and what ends a line or turns the direction of writing around.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}')
}

/// Shows what a terminal would obey, but for what `pass` lets pass: so many bytes of the rest that
/// begins there.
fn escaped<'a>(text: &'a str, pass: &dyn Fn(&str) -> usize) -> Cow<'a, str> {
    let mut done = String::new();
    let (mut from, mut at) = (0, 0);
    while let Some((offset, c)) = text[at..].char_indices().find(|(_, c)| is_obeyed(*c)) {
        at += offset;
        let passed = pass(&text[at..]);
        if passed > 0 {
            at += passed;
            continue;
        }
        done += &text[from..at];
        match c {
            '\n' => done += "\\n",
            '\r' => done += "\\r",
            '\t' => done += "\\t",
            c => done += &format!("\\u{:04x}", u32::from(c)),
        }
        at += c.len_utf8();
        from = at;
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    Cow::Owned(done + &text[from..])
}

/// Bytes of the attribute that a text begins with; 0 when it is something else.
fn attribute_length(text: &str) -> usize {
    let Some(inside) = text.strip_prefix("\x1b[") else { return 0 };
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
    let numbers = inside.bytes().take_while(is_number).count();
    if inside[numbers..].starts_with('m') { "\x1b[".len() + numbers + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(printable("kworker/0:1 µs 東"), "kworker/0:1 µs 東");
        assert_eq!(printable("a\x1b[2K\x07\u{9b}b"), "a\\u001b[2K\\u0007\\u009bb");
        assert_eq!(printable("x\nVerdict: PASS\r\t"), "x\\nVerdict: PASS\\r\\t");
        assert_eq!(printable("\u{202e}ssap\u{2028}\u{7f}"), "\\u202essap\\u2028\\u007f");
    }

    #[test]
    fn a_name_in_quotes_is_escaped_once() {
        let name = printable("a\x1b[2K \"b\" c:\\d").into_owned();
        assert_eq!(quoted(&name), "\"a\\u001b[2K \"b\" c:\\d\"");
        assert_eq!(quoted("a\n"), "\"a\\n\"", "one that was not shown before is, too");
    }

    #[test]
    fn our_own_colours_pass_where_there_are_any() {
        let text = "a\t\x1b[1;32mpass\x1b[0m\n\x1b[2J\x1b]0;t\x07";
        let shown = "a\t\x1b[1;32mpass\x1b[0m\n\\u001b[2J\\u001b]0;t\\u0007";
        assert_eq!(guarded(text, true), shown);
        assert_eq!(guarded("\x1b[1mx\r\n", false), "\\u001b[1mx\\r\n");
        assert_eq!(guarded("\x1b[1", true), "\\u001b[1");
    }

    #[test]
    fn texts_in_json_are_printable() {
        let read: Vec<String> =
            from_json(r#"["a\u001b[2K", "\u009b", "\"q\"", "b"]"#).expect("json");
        assert_eq!(read, ["a\\u001b[2K", "\\u009b", "\"q\"", "b"]);
        assert!(is_plain(r#"["\"q\" c:\\u001b"]"#), "a backslash before a letter is no escape");
        let number: u64 = from_json("18446744073709551615").expect("a number");
        assert_eq!(number, u64::MAX);
        let map = std::collections::BTreeMap::from([("k\n".to_owned(), "v\x07".to_owned())]);
        let shown = with_printable_texts(map);
        assert_eq!(shown.into_iter().next(), Some(("k\\n".to_owned(), "v\\u0007".to_owned())));
    }

    proptest! {
        #[test]
        fn nothing_that_is_obeyed_is_left(text in any::<String>()) {
            prop_assert!(!printable(&text).chars().any(is_obeyed));
            prop_assert_eq!(printable(&printable(&text)).into_owned(), printable(&text).into_owned());
            let left = guarded(&text, false).into_owned();
            prop_assert!(!left.chars().any(|c| is_obeyed(c) && c != '\n' && c != '\t'));
        }
    }
}
