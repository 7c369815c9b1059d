//! A source file as a flat list of words: what a check looks for is a pattern in it. Comments are
//! gone and a text literal is one word, so that neither is mistaken for code.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Problem;

pub(super) struct Source {
    /// Relative to the root, as `crates/rtscope-model/src/lib.rs`.
    pub(super) path: String,
    /// As it stands in the file.
    pub(super) text: String,
    /// Its words in order.
    pub(super) words: Vec<Word>,
}

/// An identifier, a literal, one character of punctuation, or a bracket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// Line in the file, from 1.
    pub(super) line: usize,
    /// How many brackets are open around it; a bracket has the depth of what is around it.
    pub(super) depth: usize,
}

impl Source {
    /// Reads a file's text; a text that is no Rust is a problem.
    pub(super) fn new(path: &str, text: &str) -> Result<Source, Problem> {
        let tokens: TokenStream = text.parse().map_err(|e: proc_macro2::LexError| {
            Problem::new(path, e.span().start().line, "this is not Rust")
        })?;
        let mut words = Vec::new();
        flatten(tokens, 0, &mut words);
        Ok(Source { path: path.to_owned(), text: text.to_owned(), words })
    }

    /// The crate's folder: `rtscope-model`, or `xtask`.
    pub(super) fn crate_name(&self) -> &str {
        let mut parts = self.path.split('/');
        match parts.next() {
            Some("crates") => parts.next().unwrap_or_default(),
            first => first.unwrap_or_default(),
        }
    }

    pub(super) fn problem(&self, line: usize, message: impl Into<String>) -> Problem {
        Problem::new(&self.path, line, message)
    }

    /// Pairs of neighbours.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&Word, &Word)> {
        self.words.iter().zip(self.words.iter().skip(1))
    }
}

impl Word {
    /// Whether it is a name or a keyword.
    pub(super) fn is_name(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }

    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text
    }
}

fn flatten(tokens: TokenStream, depth: usize, words: &mut Vec<Word>) {
    let word =
        |text: String, span: proc_macro2::Span| Word { text, line: span.start().line, depth };
    for tree in tokens {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                words.push(word(open.to_owned(), group.span_open()));
                flatten(group.stream(), depth + 1, words);
                words.push(word(close.to_owned(), group.span_close()));
            }
            TokenTree::Literal(literal) => {
                // Never to be taken for a name: `b"x"` and `r"x"` begin with a letter.
                words.push(word(format!("\u{0}{literal}"), literal.span()));
            }
            TokenTree::Ident(ident) => words.push(word(ident.to_string(), ident.span())),
            TokenTree::Punct(punct) => words.push(word(punct.as_char().to_string(), punct.span())),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn source(path: &str, text: &str) -> Source {
        Source::new(path, text).expect("Rust")
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        let source = source("crates/a/src/b.rs", "// unsafe\nlet x = \"unsafe\"; f(1)");
        let names: Vec<&str> =
            source.words.iter().filter(|w| w.is_name()).map(|w| w.text.as_str()).collect();
        assert_eq!(names, ["let", "x", "f"]);
        let inner = source.words.iter().find(|w| w.depth == 1).expect("a word in brackets");
        assert_eq!((inner.line, source.crate_name()), (2, "a"));
    }

    #[test]
    fn what_is_no_rust_is_a_problem() {
        assert!(Source::new("a.rs", "fn f( {").is_err());
    }
}
