//! `cargo xtask tidy`: the rules that no compiler checks, and rustfmt's.
//!
//! Each check is a function from texts to problems, so that it is tested on small texts.

mod dependencies;
mod documents;
mod edges;
mod english;
mod features;
mod figures;
mod names;
mod purity;
mod source;
mod style;
mod unsafe_code;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::Path,
};

use anyhow::{Context, Result, anyhow};

use source::Source;

pub(crate) use documents::{anchor, links, target};

/// Where a rule is broken, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    path: String,
    line: usize,
    message: String,
}

impl Problem {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Problem {
        Problem { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Programs of our users, by their rules.
const SKELETONS: &str = "crates/rtscope/skeletons/";

/// Runs every check, prints what it finds, answers whether there was no problem.
pub(crate) fn run() -> Result<bool> {
    let root = crate::root();
    let metadata = crate::metadata()?;
    let mut problems = Vec::new();
    let mut types = names::PublicTypes::default();
    let is_ours = |path: &String| !path.starts_with(SKELETONS);
    for path in files(root, &["crates", "xtask"], "rs")?.into_iter().filter(is_ours) {
        let text = read(root, &path)?;
        match Source::new(&path, &text) {
            Ok(source) => {
                problems.extend(unsafe_code::check(&source));
                problems.extend(purity::check(&source));
                problems.extend(style::check(&source));
                types.add(&source);
                if path.starts_with("crates/") && path.contains("/src/") {
                    problems.extend(english::check_source(&source));
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    problems.extend(types.problems());
    problems.extend(purity::fences(|path| root.join(path).is_file()));
    problems.extend(edges::check(&edges::read(&metadata)));
    let packages = dependencies::read(&metadata);
    problems.extend(dependencies::check(&packages));
    let words = documents::KnownCommands::new(&cli(root)?);
    let map = read(root, "ARCHITECTURE.md")?;
    let exists = |path: &str| root.join(path).exists();
    problems.extend(features::check(&map, words.verbs(), &rooms(root)?, exists));
    let documents: BTreeMap<String, String> = files(root, &["."], "md")?
        .into_iter()
        .map(|path| read(root, &path).map(|text| (path, text)))
        .collect::<Result<_>>()?;
    let anchors = |(path, text): (&String, &String)| (path.clone(), documents::anchors(text));
    let targets = documents::Targets {
        exists: |link: &str| root.join(link).exists(),
        anchors: documents.iter().map(anchors).collect(),
    };
    for (path, text) in &documents {
        problems.extend(documents::check(path, text, &words, &targets));
        if path == "README.md" || path.starts_with("docs/") {
            problems.extend(english::check(path, text));
            problems.extend(figures::check(path, text));
        }
    }
    problems.sort();
    problems.iter().for_each(|problem| println!("{problem}"));
    for note in dependencies::duplicates(&packages) {
        println!("note: {note}");
    }
    match problems.len() {
        0 => println!("tidy: no problem"),
        1 => println!("tidy: 1 problem"),
        n => println!("tidy: {n} problems"),
    }
    let is_formatted = crate::shell::cargo().args(["fmt", "--all", "--check"]).status()?.success();
    let are_described = crate::formats::run(&["--check"])?;
    Ok(problems.is_empty() && is_formatted && are_described)
}

/// The source that lists the verbs of the command line.
fn cli(root: &Path) -> Result<Source> {
    let path = "crates/rtscope/src/cli/mod.rs";
    Source::new(path, &read(root, path)?).map_err(|problem| anyhow!("{problem}"))
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("can't read {path}"))
}

/// The folders directly below the crates' `src`, except those of tests, as paths relative to the root, sorted.
fn rooms(root: &Path) -> Result<Vec<String>> {
    let sources = files(root, &["crates"], "rs")?;
    let room = |path: &String| {
        let (package, inside) = path.split_once("/src/")?;
        let (room, _) = inside.split_once('/')?;
        (room != "tests").then(|| format!("{package}/src/{room}"))
    };
    let rooms: BTreeSet<String> = sources.iter().filter_map(room).collect();
    Ok(rooms.into_iter().collect())
}

/// The files below some folders with an extension, as paths relative to the root, sorted. Hidden
/// folders and those that git ignores are left out.
pub(crate) fn files(root: &Path, folders: &[&str], extension: &str) -> Result<Vec<String>> {
    let ignored = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
    let ignored: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('/')).collect();
    let mut found = Vec::new();
    let mut open: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder)
            .with_context(|| format!("can't read {}", folder.display()))?
            .flatten()
        {
            let path = entry.path();
            let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            let relative = relative.trim_start_matches("./").to_owned();
            if entry.file_name().to_string_lossy().starts_with('.')
                || ignored.contains(&relative.as_str())
            {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(relative);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_leaves_out_what_is_hidden_or_ignored() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in ["a.md", "docs/b.md", "docs/c.rs", "target/d.md", ".git/e.md"] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, "").expect("a file");
        }
        fs::write(folder.path().join(".gitignore"), "/target\n").expect("a file");
        assert_eq!(files(folder.path(), &["."], "md").expect("a list"), ["a.md", "docs/b.md"]);
        assert!(files(folder.path(), &["missing"], "md").is_err());
    }
}
