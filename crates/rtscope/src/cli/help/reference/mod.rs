//! The pages of `docs/reference` that are made from the command line and from the tables of the crates. This test fails
//! when one of them is not what the program says now.

mod commands;
mod names;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// `cargo xtask book --renew` sets it: the test writes what it would have found out of date.
const RENEW: &str = "RTSCOPE_RENEW_REFERENCE";

/// A format that needs a cargo feature, which the released program doesn't have: only the page of the exports names it.
const NOT_RELEASED: &str = "parquet";

/// Each page by its path below `docs/reference`.
fn pages() -> BTreeMap<String, String> {
    let mut pages = commands::pages();
    pages.insert("names.md".to_owned(), names::page());
    pages
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
}

/// A table in Markdown; none where it would have no row.
fn table(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let heads: Vec<String> = heads.iter().map(|&head| head.to_owned()).collect();
    let rule: Vec<String> = heads.iter().map(|_| "---".to_owned()).collect();
    let rows: String = rows.into_iter().map(|row| line(&row)).collect();
    match rows.is_empty() {
        true => String::new(),
        false => format!("{}{}{rows}", line(&heads), line(&rule)),
    }
}

/// Help as Markdown shows it unchanged: what stands between back quotes is code there too.
fn prose(text: &str) -> String {
    let escaped = |part: &str| {
        let special = |c: char| matches!(c, '*' | '<' | '|');
        let kept = part.chars().map(|c| match special(c) {
            true => format!("\\{c}"),
            false => c.to_string(),
        });
        kept.collect::<String>()
    };
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(i, part)| match i % 2 {
        0 => escaped(part),
        _ => format!("`{}`", part.replace('|', "\\|")),
    });
    parts.collect()
}

#[test]
fn the_reference_is_what_the_program_says() {
    let (pages, folder) = (pages(), folder());
    if std::env::var_os(RENEW).is_some() {
        fs::create_dir_all(folder.join("commands")).expect("a folder");
        for (path, text) in &pages {
            fs::write(folder.join(path), text).expect("written");
        }
    }
    let kept = |path: &String| fs::read_to_string(folder.join(path)).unwrap_or_default();
    let mut wrong: Vec<String> =
        pages.iter().filter(|(path, text)| kept(path) != **text).map(|(p, _)| p.clone()).collect();
    for entry in fs::read_dir(folder.join("commands")).into_iter().flatten().flatten() {
        let path = format!("commands/{}", entry.file_name().to_string_lossy());
        wrong.extend((!pages.contains_key(&path)).then_some(path));
    }
    assert!(wrong.is_empty(), "docs/reference, run `cargo xtask book --renew`: {wrong:?}");
}

#[test]
fn help_is_shown_unchanged() {
    assert_eq!(prose("use `a|b*c` or <X>, a_b"), "use `a\\|b*c` or \\<X>, a_b");
    assert_eq!(table(&["a"], []), "");
    assert_eq!(
        table(&["a", "b"], [vec!["1".to_owned(), "2".to_owned()]]),
        "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    );
}
