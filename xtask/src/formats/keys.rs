//! Keys that functions write by name, in `json!` or by an index.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Document;

/// Compares the keys of a document's functions with those that the list has.
pub(super) fn check(document: &Document) -> Result<()> {
    if document.by.is_empty() {
        return Ok(());
    }
    let mut written = BTreeSet::new();
    for place in &document.by {
        let (path, function) = place.split_once(' ').context("a file and a function")?;
        let text = fs::read_to_string(crate::root().join(path)).with_context(|| path.to_owned())?;
        let keys = of_function(&text, function)?;
        ensure!(!keys.is_empty(), "{place} writes no key");
        written.extend(keys);
    }
    let last = |key: &String| key.rsplit('.').next().unwrap_or_default().to_owned();
    let listed: BTreeSet<String> = document.keys.iter().map(|[key, ..]| last(key)).collect();
    let lacking: Vec<&String> = written.difference(&listed).collect();
    let gone: Vec<&String> = listed.difference(&written).collect();
    ensure!(
        lacking.is_empty() && gone.is_empty(),
        "formats.toml lacks {lacking:?}, and has {gone:?}, which no function writes"
    );
    Ok(())
}

/// The keys in the body of a function.
fn of_function(text: &str, name: &str) -> Result<BTreeSet<String>> {
    let tokens: TokenStream = text.parse().map_err(|_| anyhow::anyhow!("this is no Rust"))?;
    let body = body(tokens, name).with_context(|| format!("there is no function {name}"))?;
    let mut keys = BTreeSet::new();
    collect(body, &mut keys);
    Ok(keys)
}

fn body(tokens: TokenStream, name: &str) -> Option<TokenStream> {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |at: usize, word: &str| matches!(trees.get(at), Some(TokenTree::Ident(one)) if *one == word);
    let at = (0..trees.len()).find(|at| is(*at, "fn") && is(at + 1, name));
    let blocks = |from: usize| {
        trees[from..].iter().filter_map(|tree| match tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                Some(group.stream())
            }
            _ => None,
        })
    };
    match at {
        Some(at) => blocks(at).next(),
        None => blocks(0).find_map(|block| body(block, name)),
    }
}

fn collect(tokens: TokenStream, keys: &mut BTreeSet<String>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |at: usize, mark: char| matches!(trees.get(at), Some(TokenTree::Punct(one)) if one.as_char() == mark);
    for (at, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Literal(_) if is(at + 1, ':') => keys.extend(text_of(tree)),
            TokenTree::Group(group) => {
                let mut inner = group.stream().into_iter();
                let is_index = group.delimiter() == Delimiter::Bracket;
                if is_index && is(at + 1, '=') && !is(at + 2, '=') {
                    let only = inner.next().filter(|_| inner.next().is_none());
                    keys.extend(only.as_ref().and_then(text_of));
                }
                collect(group.stream(), keys);
            }
            _ => {}
        }
    }
}

/// The text of a literal that is one.
fn text_of(tree: &TokenTree) -> Option<String> {
    let text = tree.to_string();
    Some(text.strip_prefix('"')?.strip_suffix('"')?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_function_and_of_nothing_else() {
        let text = "fn other() { json!({ \"c\": 1 }) }\n\
            impl A { pub fn document(&self) -> Value { let mut all = json!({ \"a\": [json!({ \"b\": 1 })] });\n\
            all[\"d\"] = 1.into(); if all[\"e\"] == 2 { } match x { \"f\" => 1 }; all } }";
        let keys = of_function(text, "document").expect("it is there");
        assert_eq!(keys.iter().map(String::as_str).collect::<String>(), "abd");
        assert!(of_function(text, "gone").is_err());
    }
}
