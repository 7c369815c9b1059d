//! `cargo xtask formats`: the page of the JSON documents that have no page of their own.
//!
//! `xtask/formats.toml` says which documents there are, and of which type each is. Keys, types and what is said of them
//! come from the sources of these types, so that the page can't be older than they are.

mod keys;
mod page;
mod shapes;

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use self::shapes::Shapes;

const LIST: &str = "xtask/formats.toml";
const PAGE: &str = "docs/format/json.md";

/// What there is to describe.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    /// What the page says before the first document.
    about: String,
    /// Types that are written otherwise than their fields say, and how.
    forms: BTreeMap<String, String>,
    document: Vec<Document>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// A file's name, or a command.
    name: String,
    /// Which commands print it, and where it lies.
    about: String,
    /// The type that it is written from.
    #[serde(rename = "type")]
    root: Option<String>,
    /// Functions that write keys of it by name, as `crates/a/src/b.rs document`.
    #[serde(default)]
    by: Vec<String>,
    /// The keys that they write, with their type (after `=`, as Rust has it) and what they mean.
    #[serde(default)]
    keys: Vec<[String; 3]>,
}

pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let checks = match words {
        [] => false,
        ["--check"] => true,
        _ => bail!("formats takes --check, or nothing"),
    };
    let text = page()?;
    let path = crate::root().join(PAGE);
    if !checks {
        fs::write(&path, text).with_context(|| format!("can't write {PAGE}"))?;
        return Ok(true);
    }
    let is_true = fs::read_to_string(&path).is_ok_and(|there| there == text);
    if !is_true {
        println!("{PAGE}: not what the types say: run `cargo xtask formats`");
    }
    Ok(is_true)
}

/// The page as the sources have it now.
fn page() -> Result<String> {
    let root = crate::root();
    let text = fs::read_to_string(root.join(LIST)).with_context(|| format!("can't read {LIST}"))?;
    let list: List = toml::from_str(&text).with_context(|| LIST.to_owned())?;
    let mut shapes = Shapes::default();
    for path in crate::tidy::files(root, &["crates"], "rs")? {
        if path.contains("/src/") {
            shapes.add(&path, &fs::read_to_string(root.join(&path))?)?;
        }
    }
    ensure!(!list.document.is_empty(), "{LIST} names no document");
    for document in &list.document {
        keys::check(document).with_context(|| document.name.clone())?;
    }
    page::write(&list, &shapes)
}
