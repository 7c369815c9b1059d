//! `cargo xtask notices`: the licences and notices that whoever passes the binary on has to pass on
//! with it.
//!
//! All packages that are linked into `rtscope` on this machine, fonts in them included, with the
//! texts that they ship; a text that several ship stands once. Packages without a text of their own
//! are named with their licence's SPDX expression.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, Package, PackageId};

/// Beginnings of the names of files that hold a licence or a notice. `OFL` is that of
/// fonts.
const NAMES: &[&str] =
    &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "UNLICENSE", "NOTICE", "OFL"];

/// Folders below a package's own in which texts may stand: of a collection of licences, of fonts.
const FOLDERS: &[&str] = &[".", "LICENSES", "fonts"];

const HEAD: &str = "\
rtscope is linked with the packages below, under these terms, with Rust's standard library (MIT or
Apache-2.0), and statically with the C library of the machine that built it: glibc's terms are
LGPL-2.1-or-later. Whoever wants another C library builds rtscope again: its source is open.
";

/// Prints the document.
pub(crate) fn run() -> Result<bool> {
    print!("{}", document(&crate::metadata()?)?);
    Ok(true)
}

/// The document: each text once, below the packages that it belongs to.
pub(crate) fn document(metadata: &Metadata) -> Result<String> {
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut without: BTreeSet<String> = BTreeSet::new();
    for package in linked(metadata)? {
        let name = format!("{} {}", package.name, package.version);
        let folder = package.manifest_path.parent().context("a manifest is in a folder")?;
        let found = texts_in(folder.as_std_path())?;
        if found.is_empty() {
            let licence = package.license.as_deref().unwrap_or("no licence stated");
            without.insert(format!("{name}: {licence}"));
        }
        for text in found {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    let mut document = HEAD.to_owned();
    for (text, names) in by_first_name(texts) {
        document += &format!("\n{}\n{names}\n{0}\n\n{text}\n", "-".repeat(80));
    }
    if !without.is_empty() {
        let without: Vec<String> = without.into_iter().collect();
        let list = without.join("\n");
        document += &format!("\n{}\nWithout a text of their own:\n\n{list}\n", "-".repeat(80));
    }
    Ok(document)
}

/// Texts with the names that they belong to, in the order of the names.
fn by_first_name(texts: BTreeMap<String, BTreeSet<String>>) -> Vec<(String, String)> {
    let joined = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
    let mut texts: Vec<(String, String)> =
        texts.into_iter().map(|(text, names)| (text, joined(names))).collect();
    texts.sort_by(|a, b| a.1.cmp(&b.1));
    texts
}

/// The packages of others that end up in the binary: whatever `rtscope` needs when it runs.
pub(crate) fn linked(metadata: &Metadata) -> Result<Vec<&Package>> {
    let nodes = &metadata.resolve.as_ref().context("the metadata has no graph")?.nodes;
    let is_rtscope = |package: &&Package| package.name.as_str() == "rtscope";
    let program = metadata.packages.iter().find(is_rtscope).context("there is no rtscope")?;
    let mut reached: BTreeSet<&PackageId> = BTreeSet::from([&program.id]);
    let mut next = vec![&program.id];
    while let Some(id) = next.pop() {
        let node = nodes.iter().find(|node| node.id == *id);
        let needed = node.into_iter().flat_map(|node| &node.deps).filter(|dependency| {
            dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
        });
        next.extend(needed.map(|dependency| &dependency.pkg).filter(|id| reached.insert(id)));
    }
    let of_others = |package: &&Package| package.source.is_some() && reached.contains(&package.id);
    Ok(metadata.packages.iter().filter(of_others).collect())
}

/// The texts in a package's folder, without what differs between copies of one text.
fn texts_in(folder: &Path) -> Result<Vec<String>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in FOLDERS.iter().map(|name| folder.join(name)).filter(|folder| folder.is_dir()) {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().to_uppercase();
            if entry.file_type()?.is_file() && NAMES.iter().any(|begin| name.starts_with(begin)) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    let read = |file: PathBuf| {
        let bytes = fs::read(&file).with_context(|| format!("can't read {}", file.display()))?;
        Ok(tidied(&String::from_utf8_lossy(&bytes)))
    };
    files.into_iter().map(read).collect()
}

/// A text without line ends of another system and without blanks at the ends of its lines.
fn tidied(text: &str) -> String {
    let lines: Vec<&str> = text.trim_start_matches('\u{feff}').lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_linked_package_is_in_the_document() {
        let metadata = crate::metadata().expect("metadata");
        let document = document(&metadata).expect("a document");
        let packages = linked(&metadata).expect("packages");
        assert!(packages.iter().any(|package| package.name.as_str() == "serde"));
        for package in packages {
            let name = format!("{} {}", package.name, package.version);
            assert!(document.contains(&name), "{name} is missing");
        }
        // A font inside a package has terms of its own.
        assert!(document.contains("SIL OPEN FONT LICENSE Version 1.1"));
    }

    #[test]
    fn one_text_of_two_packages_stands_once() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("LICENSE-MIT"), "Terms  \r\nand more\r\n\r\n").expect("write");
        fs::write(folder.path().join("readme"), "no terms").expect("write");
        assert_eq!(texts_in(folder.path()).expect("texts"), [tidied("\nTerms\nand more\n")]);
        assert_eq!(tidied("Terms  \r\nand more\r\n\r\n"), "Terms\nand more");
    }
}
