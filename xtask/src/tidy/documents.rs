//! Documents: what they link to is there, and the commands they show exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{Problem, source::Source};

/// The words that may follow a program's name.
pub(super) struct KnownCommands {
    /// The verbs of the command line.
    rtscope: Vec<String>,
    /// The chores.
    xtask: Vec<String>,
}

impl KnownCommands {
    /// Reads the verbs from the source of the command line: the variants of its `enum Verb`, which a user types,
    /// and of its `enum Internal`, which rtscope starts.
    pub(super) fn new(cli: &Source) -> KnownCommands {
        KnownCommands {
            rtscope: ["Verb", "Internal"].iter().flat_map(|name| variants(cli, name)).collect(),
            xtask: crate::CHORES.iter().map(|chore| chore.name.to_owned()).collect(),
        }
    }

    /// The verbs of the command line.
    pub(super) fn verbs(&self) -> &[String] {
        &self.rtscope
    }
}

/// The variants of an enum, as verbs.
fn variants(cli: &Source, name: &str) -> Vec<String> {
    let start = cli.words.windows(3).position(|w| w[0].is("enum") && w[1].is(name));
    let inside = start.map_or(&[][..], |i| &cli.words[i + 2..]);
    let outer = inside.first().map_or(0, |brace| brace.depth);
    let pairs = inside.iter().zip(inside.iter().skip(1));
    let variants = pairs.take_while(|(_, word)| word.depth > outer).filter(|(before, word)| {
        let begins = ["{", ",", "]"].contains(&before.text.as_str());
        begins && word.is_name() && word.depth == outer + 1
    });
    variants.map(|(_, word)| kebab(&word.text)).collect()
}

/// `LoadWorker` as `load-worker`.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.extend(c.to_lowercase());
    }
    text
}

/// Where the links of a document may lead.
pub(super) struct Targets<E> {
    /// Whether a path, relative to the root, is there.
    pub(super) exists: E,
    /// The anchors of each document, by its path.
    pub(super) anchors: BTreeMap<String, BTreeSet<String>>,
}

impl<E: Fn(&str) -> bool> Targets<E> {
    /// What is wrong with a link of a document.
    fn wrong(&self, document: &str, link: &str) -> Option<String> {
        let file = target(document, link);
        if let Some(missing) = file.as_ref().filter(|file| !(self.exists)(file)) {
            return Some(format!("the link leads to {missing}, which is not there"));
        }
        let (before, anchor) = link.split_once('#')?;
        let file = if before.is_empty() { document } else { file.as_deref()? };
        let has_none = !self.anchors.get(file)?.contains(anchor);
        has_none.then(|| format!("{file} has no heading for the link's #{anchor}"))
    }
}

/// Where all links of a document lead, as they are written.
pub(crate) fn links(text: &str) -> BTreeSet<String> {
    let links = Parser::new_ext(text, Options::ENABLE_TABLES).filter_map(|event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            Some(dest_url.into_string())
        }
        _ => None,
    });
    links.collect()
}

/// The anchor of a heading on a git host.
pub(crate) fn anchor(heading: &str) -> String {
    let text = heading.to_lowercase().replace(' ', "-");
    text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// The anchors of a document's headings, as git hosts and mdBook make them: letters, digits, `_` and `-` of the text in
/// lower case, `-` for each space, and a number for a text that was there before.
pub(super) fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap_or_default());
                let again = (1..).map(|n| format!("{anchor}-{n}"));
                let new = std::iter::once(anchor.clone()).chain(again).find(|a| !found.contains(a));
                found.extend(new);
            }
            _ => {}
        }
    }
    found
}

/// The problems of a document at `path`.
pub(super) fn check(
    path: &str,
    text: &str,
    words: &KnownCommands,
    targets: &Targets<impl Fn(&str) -> bool>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut in_block = false;
    let line = |range: &Range<usize>| text[..range.start].matches('\n').count() + 1;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let wrong = targets.wrong(path, &dest_url);
                problems.extend(wrong.map(|m| Problem::new(path, line(&range), m)));
            }
            Event::Start(Tag::CodeBlock(_)) => in_block = true,
            Event::End(TagEnd::CodeBlock) => in_block = false,
            Event::Text(code) if in_block => {
                let first = line(&range);
                for (i, command) in code.lines().enumerate() {
                    let unknown = unknown_word(command, words);
                    problems.extend(unknown.map(|m| Problem::new(path, first + i, m)));
                }
            }
            Event::Code(code) => {
                let unknown = unknown_word(&code, words);
                problems.extend(unknown.map(|m| Problem::new(path, line(&range), m)));
            }
            _ => {}
        }
    }
    problems
}

/// The file that a relative link leads to, from the root; none for an address or a mere anchor.
pub(crate) fn target(document: &str, link: &str) -> Option<String> {
    let file = link.split('#').next().unwrap_or_default();
    if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
        return None;
    }
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(file.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// What is wrong with a shown command: a chore or a verb that doesn't exist.
fn unknown_word(command: &str, words: &KnownCommands) -> Option<String> {
    let shown: Vec<&str> = command.split_whitespace().skip_while(|w| is_prefix(w)).collect();
    let (program, verb, known) = match shown[..] {
        ["cargo", "xtask", chore, ..] => ("cargo xtask", chore, &words.xtask),
        ["rtscope" | "./rtscope", verb, ..] => ("rtscope", verb, &words.rtscope),
        ["cargo", "run", "--release", "--", verb, ..] => ("rtscope", verb, &words.rtscope),
        _ => return None,
    };
    let is_verb = !verb.is_empty() && verb.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let is_flag = verb.starts_with('-');
    // `help` is a verb of clap's.
    (is_verb && !is_flag && verb != "help" && !known.iter().any(|word| word == verb))
        .then(|| format!("`{program} {verb}` does not exist"))
}

/// What may stand before a command.
fn is_prefix(word: &str) -> bool {
    word == "$" || word == "#" || word == "sudo"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let words = KnownCommands { rtscope: owned(&["run", "plot"]), xtask: owned(&["test"]) };
        let exists = |path: &str| ["README.md", "docs/method/a.md", "docs"].contains(&path);
        let documents = [("docs/method/a.md", "# X"), ("docs/guide/start.md", text)];
        let anchors = documents.map(|(path, text)| (path.to_owned(), anchors(text))).into();
        let targets = Targets { exists, anchors };
        let problems = check("docs/guide/start.md", text, &words, &targets);
        problems.iter().map(|problem| format!("{}: {}", problem.line, problem.message)).collect()
    }

    #[test]
    fn links_lead_somewhere() {
        assert_eq!(
            messages(
                "[a](../method/a.md#x) [b](../../README.md) [c](#here) [d](https://example.org/x)\n\
                 [e](../../docs/) `[f](nowhere.md)`\n\n## Here"
            ),
            [""; 0]
        );
        let found = messages("one\n\n![p](plot.svg) and [r]\n\n[r]: ../a.md\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("docs/guide/plot.svg") && found[0].starts_with("3:"));
    }

    #[test]
    fn links_lead_to_a_heading_that_is_there() {
        let found = messages("# One\n\n[a](#one) [b](#two) [c](../method/a.md#y)");
        let expected = [
            "3: docs/guide/start.md has no heading for the link's #two",
            "3: docs/method/a.md has no heading for the link's #y",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn anchors_are_those_of_a_git_host() {
        let found = anchors("# In `rtscope lab`: 3 a_b-c?\n\n## Same\n\n## Same\n\ntext\n");
        assert_eq!(Vec::from_iter(found), ["in-rtscope-lab-3-a_b-c", "same", "same-1"]);
    }

    #[test]
    fn shown_commands_exist() {
        let good = "`cargo xtask test`, `rtscope --version`, `rtscope`\n\n    sudo rtscope run quick\n\
                    \n```\n$ cargo run --release -- plot x\nrtscope PLAN\n```\nrtscope does it";
        assert_eq!(messages(good), [""; 0]);
        let found = messages("`cargo xtask bake`\n\n```sh\nls\n./rtscope measure\n```\n");
        let expected =
            ["1: `cargo xtask bake` does not exist", "5: `rtscope measure` does not exist"];
        assert_eq!(found, expected);
    }

    #[test]
    fn verbs_are_variants() {
        let text = "enum Other { No }\nenum Verb {\n/// Doc\nRun(Box<run::Args>),\n\
                    #[command(hide = true)]\nKernel,\n}\n\
                    enum Internal {\nLoadWorker { words: Vec<String>, more: u8 },\n}\n\
                    enum Last { No }";
        let cli = Source::new("cli.rs", text).expect("Rust");
        assert_eq!(KnownCommands::new(&cli).rtscope, ["run", "kernel", "load-worker"]);
    }
}
