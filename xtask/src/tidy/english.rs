//! The language of what users read: phrases that make a reader stop, and sentences that are too long. CONTRIBUTING.md
//! and the tests of the command line's help have the other rules.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{Problem, source::Source};

/// Phrases that were translated word by word, and what to write instead.
const PHRASES: [(&str, &str); 15] = [
    ("all there is in", "the only content of"),
    ("as ever", "as always"),
    ("comes out again", "is the same"),
    ("gone around", "skipped"),
    ("in the manner of", "like"),
    ("is told from", "differs from"),
    ("it is said", "name who says it"),
    ("lies with", "is in"),
    ("none of and", "neither and nor"),
    ("so it is said", "say it"),
    ("told apart", "different, or separated"),
    ("that is none", "that isn't one"),
    ("to the bit", "bit for bit"),
    ("what it lay in", "name the thing"),
    ("which is none", "which isn't one"),
];

/// Words of a sentence in a document or a message at most; code counts as one.
const SENTENCE_WORDS: usize = 30;

/// The problems of a document for users.
pub(super) fn check(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for paragraph in paragraphs(text) {
        let phrases = phrases(&paragraph.text).into_iter();
        problems.extend(phrases.map(|message| Problem::new(path, paragraph.line, message)));
        let long = too_long(&paragraph.text).into_iter();
        problems.extend(long.map(|message| Problem::new(path, paragraph.line, message)));
    }
    problems
}

/// The problems of the texts in a source file, which the program prints. Its tests are left out, and so are comments
/// where they aren't the help of the command line.
pub(super) fn check_source(source: &Source) -> Vec<Problem> {
    let tests = source.text.lines().position(|line| line == "#[cfg(test)]").unwrap_or(usize::MAX);
    let has_help = source.path.starts_with("crates/rtscope/src/cli/");
    let is_text = |text: &str| text.starts_with("\u{0}\"") || text.starts_with("\u{0}r");
    let mut problems = Vec::new();
    for words in source.words.windows(3) {
        let [doc, equals, literal] = words else { continue };
        let is_comment = doc.is("doc") && equals.is("=");
        if is_text(&literal.text) && literal.line <= tests && (has_help || !is_comment) {
            let text = literal.text.replace("\\\n", " ");
            // The text of a file, or SQL.
            let is_message = !is_comment && !text.contains('\n');
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let mut found = phrases(&text);
            // The help has a check of its own, which sees its paragraphs.
            let lines = text.split("\\n").filter(|_| is_message);
            found.extend(lines.flat_map(too_long));
            problems.extend(found.into_iter().map(|message| source.problem(literal.line, message)));
        }
    }
    problems
}

/// The sentences of a text that are too long.
fn too_long(text: &str) -> Vec<String> {
    let message = |sentence: &str| {
        let words = sentence.split_whitespace().count();
        let begin: String = sentence.chars().take(40).collect();
        (words > SENTENCE_WORDS)
            .then(|| format!("a sentence of {words} words: at most {SENTENCE_WORDS}: {begin}..."))
    };
    sentences(text).into_iter().filter_map(message).collect()
}

/// What is wrong with the phrases of a text.
fn phrases(text: &str) -> Vec<String> {
    let text = format!(" {} ", text.to_lowercase());
    let is_in = |phrase: &str| {
        text.match_indices(phrase).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + phrase.len()..]);
            !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric)
        })
    };
    let found = PHRASES.iter().filter(|(phrase, _)| is_in(phrase));
    found
        .map(|(phrase, instead)| format!("{phrase:?} reads like a translation: {instead}"))
        .collect()
}

/// A paragraph of a document, without its code.
struct Paragraph {
    line: usize,
    text: String,
}

/// The paragraphs and points of a list; tables, headings and code have other rules.
fn paragraphs(text: &str) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let (mut left_out, mut begins) = (0, true);
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Table(_) | Tag::Heading { .. } | Tag::CodeBlock(_)) => left_out += 1,
            Event::End(TagEnd::Table | TagEnd::Heading(_) | TagEnd::CodeBlock) => left_out -= 1,
            Event::Start(Tag::Paragraph | Tag::Item) => begins = true,
            Event::Text(_) | Event::Code(_) | Event::SoftBreak if left_out == 0 => {
                if begins {
                    let line = text[..range.start].matches('\n').count() + 1;
                    found.push(Paragraph { line, text: String::new() });
                    begins = false;
                }
                let Some(paragraph) = found.last_mut() else { continue };
                match event {
                    Event::Text(part) => paragraph.text += &part,
                    Event::Code(_) => paragraph.text += "code",
                    _ => paragraph.text.push(' '),
                }
            }
            _ => {}
        }
    }
    found
}

/// The sentences of a paragraph. What follows a colon or a semicolon is one of its own.
fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut begin = 0;
    for (at, _) in text.match_indices(' ') {
        if text[..at].ends_with(['.', '?', '!', ':', ';']) {
            found.push(&text[begin..at]);
            begin = at + 1;
        }
    }
    found.push(&text[begin..]);
    found
}

#[cfg(test)]
mod tests {
    use super::{super::source::tests::source, *};

    fn messages(text: &str) -> Vec<String> {
        check("docs/a.md", text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_phrase_is_found_in_prose_and_texts_of_the_program_only() {
        let said =
            messages("A run\nis told\nfrom another.\n\n`is told from`\n\n```\nto the bit\n```\n");
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("docs/a.md:1: \"is told from\""), "{said:?}");
        assert_eq!(messages("It fits to the bits, and this nonetheless."), [""; 0]);
        let text = "/// So it is said.\nfn f() { g(\"equal to \\\n the bit\", r\"it is said\") } // told apart\n\
                    #[cfg(test)]\nmod tests { const A: &str = \"told apart\"; }";
        let said = check_source(&source("a.rs", text));
        assert_eq!(said.iter().map(|problem| problem.line).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn a_message_may_have_no_longer_sentences_than_a_document() {
        let words = |count: usize| vec!["word"; count].join(" ");
        let lines = |text: &str| -> Vec<usize> {
            check_source(&source("a.rs", text)).iter().map(|problem| problem.line).collect()
        };
        let (short, long) = (words(SENTENCE_WORDS), words(SENTENCE_WORDS + 1));
        assert_eq!(lines(&format!("/// {long}\n#[error(\"{long}\")]\nstruct A;")), [2]);
        assert_eq!(
            lines(&format!("fn f() {{ g(\"{short}; {short}. {short}\\n{short}\") }}")),
            [0; 0]
        );
    }

    #[test]
    fn a_sentence_may_have_just_so_many_words() {
        let sentence = |words: usize| format!("{}.", vec!["word"; words].join(" "));
        assert_eq!(messages(&sentence(SENTENCE_WORDS)), [""; 0]);
        let long = messages(&format!("Short. {}", sentence(SENTENCE_WORDS + 1)));
        assert!(long.len() == 1 && long[0].contains("31 words"), "{long:?}");
        let two = format!("{} {}", sentence(SENTENCE_WORDS), sentence(SENTENCE_WORDS));
        assert_eq!(messages(&two), [""; 0]);
        // Points of a list stand for themselves, and a table or a block of code is no sentence.
        let list: String = (0..40).map(|n| format!("- point {n}\n")).collect();
        assert_eq!(messages(&list), [""; 0]);
        let words = vec!["word"; 60].join(" ");
        assert_eq!(messages(&format!("| a |\n|---|\n| {words} |\n\n    {words}\n")), [""; 0]);
        assert_eq!(messages(&format!("One `{words}` is a word.")), [""; 0]);
    }
}
