//! Documents: what they link to is there, and the commands they show exist.

use std::ops::Range;

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

/// The problems of a document at `path`; `exists` answers for paths relative to the root.
pub(super) fn check(
    path: &str,
    text: &str,
    words: &KnownCommands,
    exists: impl Fn(&str) -> bool,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut in_block = false;
    let line = |range: &Range<usize>| text[..range.start].matches('\n').count() + 1;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let target = target(path, &dest_url);
                if let Some(missing) = target.filter(|target| !exists(target)) {
                    let message = format!("the link leads to {missing}, which is not there");
                    problems.push(Problem::new(path, line(&range), message));
                }
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
fn target(document: &str, link: &str) -> Option<String> {
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
    (is_verb && !is_flag && !known.iter().any(|word| word == verb))
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
        let problems = check("docs/guide/start.md", text, &words, exists);
        problems.iter().map(|problem| format!("{}: {}", problem.line, problem.message)).collect()
    }

    #[test]
    fn links_lead_somewhere() {
        assert_eq!(
            messages(
                "[a](../method/a.md#x) [b](../../README.md) [c](#here) [d](https://example.org/x)\n\
                 [e](../../docs/) `[f](nowhere.md)`"
            ),
            [""; 0]
        );
        let found = messages("one\n\n![p](plot.svg) and [r]\n\n[r]: ../a.md\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("docs/guide/plot.svg") && found[0].starts_with("3:"));
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
