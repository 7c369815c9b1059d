//! Figures: a document that shows what was measured says when.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::Problem;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The problem of a document whose blocks of output have times, or that has an image, but no date in its text.
pub(super) fn check(path: &str, text: &str) -> Option<Problem> {
    let (mut first, mut prose, mut is_output, mut in_block) = (None, String::new(), false, false);
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let mut shows = false;
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                in_block = true;
                is_output = matches!(kind, CodeBlockKind::Fenced(language) if matches!(&*language, "text" | "console"));
            }
            Event::End(TagEnd::CodeBlock) => in_block = false,
            Event::Start(Tag::Image { .. }) => shows = true,
            Event::Text(code) if in_block => shows = is_output && has_time(&code),
            Event::Text(part) => {
                prose.push(' ');
                prose.push_str(&part);
            }
            _ => {}
        }
        if shows {
            first.get_or_insert(range.start);
        }
    }
    let line = text[..first?].matches('\n').count() + 1;
    let message =
        "the document shows what was measured: say with which command, and in which month";
    (!has_date(&prose)).then(|| Problem::new(path, line, message))
}

/// Whether a text has a measured time, as `12.5 us`.
fn has_time(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).any(|two| {
        let unit = two[1].trim_end_matches(|c: char| c.is_ascii_punctuation());
        two[0].ends_with(|c: char| c.is_ascii_digit()) && matches!(unit, "us" | "ms")
    })
}

/// Whether a text has a month with its year, or a day as 2026-11-25.
fn has_date(text: &str) -> bool {
    let is_year = |word: &str| word.len() >= 4 && word[..4].bytes().all(|c| c.is_ascii_digit());
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || "(),.;".contains(c)).collect();
    let is_month = |word: &str| MONTHS.contains(&word);
    let is_day = |word: &&str| {
        let parts: Vec<&str> = word.split('-').collect();
        parts.len() == 3 && is_year(parts[0]) && parts[1].len() == 2
    };
    words.windows(2).any(|two| is_month(two[0]) && is_year(two[1])) || words.iter().any(is_day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_with_times_needs_a_date() {
        let output = "# A\n\n```text\nthe maximum is 12.5 us\n```\n";
        let problem = check("docs/a.md", output).expect("a problem");
        assert_eq!(problem.line, 4);
        for date in ["In November 2026.", "(2026-11-25, on a board)"] {
            assert!(check("docs/a.md", &format!("{output}\n{date}\n")).is_none(), "{date}");
        }
        assert!(check("docs/a.md", &format!("{output}\nIn 2026, maybe.\n")).is_some());
        assert!(check("docs/a.md", "![a plot](a.svg)\n").is_some());
    }

    #[test]
    fn what_was_not_measured_needs_none() {
        for text in ["```text\nspool 3\n```\n", "```sh\nrun --limit 12 us\n```\n", "12 us\n"] {
            assert!(check("docs/a.md", text).is_none(), "{text}");
        }
    }
}
