//! `cargo xtask book`: the documents as a book, whose links are checked.
//!
//! The documents are written for the git host: a link may leave `docs` for a source or a recipe. The book is built from a
//! copy, in which such a link leads to the repository's address.

mod links;
mod program;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{shell, tidy};

pub(crate) use program::{WITHOUT, find};

/// How long mdBook may take. It takes a second.
const LIMIT: Duration = Duration::from_secs(5 * 60);

/// What writes the pages that are made from the program: the test that finds them out of date.
const RENEWS: &str = "test --quiet --package=rtscope --bin=rtscope help::reference";

/// How long that may take, with a build of the program.
const RENEWING_LIMIT: Duration = Duration::from_secs(25 * 60);

/// Builds the book and checks it. With `--renew` it first writes the pages that are made from the program.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    match words {
        [] => {}
        ["--renew"] => {
            let mut command = shell::cargo();
            command.args(RENEWS.split(' ')).env("RTSCOPE_RENEW_REFERENCE", "1");
            shell::output(&mut command, RENEWING_LIMIT)?;
        }
        _ => bail!("write nothing, or --renew"),
    }
    let log = crate::scratch()?.join("book.log");
    let Some(program) = find(&log)? else {
        bail!("{WITHOUT}: {}", shell::last_lines(&fs::read_to_string(&log)?, 5));
    };
    println!("{}", build(&program, &log)?);
    Ok(true)
}

/// Builds the book with a program and checks all of its links. Answers where it is, and how much was checked.
pub(crate) fn build(program: &Path, log: &Path) -> Result<String> {
    let unlisted = unlisted(&docs())?;
    if !unlisted.is_empty() {
        bail!("docs/SUMMARY.md doesn't have {}", unlisted.join(", "));
    }
    let scratch = crate::scratch()?;
    let (copy, book) = (scratch.join("book-source"), scratch.with_file_name("book"));
    write(program, log, &copy, &book)?;
    let checked = links::check(&book)?;
    if !checked.broken.is_empty() {
        bail!("{}", checked.broken.join("\n"));
    }
    let (pages, links) = (checked.pages, checked.links);
    Ok(format!("{pages} pages, {links} links; open {}", book.join("index.html").display()))
}

fn docs() -> PathBuf {
    crate::root().join("docs")
}

/// Writes the book of a copy of the documents, both anew.
fn write(program: &Path, log: &Path, copy: &Path, book: &Path) -> Result<()> {
    for folder in [copy, book] {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
    }
    let repository = repository()?;
    copy_documents(&docs(), copy, &repository)?;
    let mut command = Command::new(program);
    command.arg("build").arg(copy).arg("--dest-dir").arg(book);
    command.env("MDBOOK_OUTPUT__HTML__GIT_REPOSITORY_URL", &repository);
    let built = shell::logged(&mut command, log, LIMIT)?;
    if !built.is_ok() || built.log.contains(" WARN ") || built.log.contains(" ERROR ") {
        bail!("mdBook: {}", shell::last_lines(&built.log, 20));
    }
    Ok(())
}

/// The documents that the table of contents doesn't list: the book would leave them out.
fn unlisted(docs: &Path) -> Result<Vec<String>> {
    let contents = fs::read_to_string(docs.join("SUMMARY.md")).context("docs/SUMMARY.md")?;
    let mut pages = tidy::files(docs, &["."], "md")?;
    pages.retain(|page| page != "SUMMARY.md" && !contents.contains(&format!("]({page})")));
    Ok(pages)
}

/// The address of the repository, which `Cargo.toml` has.
fn repository() -> Result<String> {
    let packages = crate::metadata()?.packages;
    let address = packages.into_iter().find_map(|package| package.repository);
    address.context("no package has a repository")
}

/// Copies the documents with everything beside them. Links to files outside become addresses.
fn copy_documents(docs: &Path, copy: &Path, repository: &str) -> Result<()> {
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        fs::create_dir_all(copy.join(&folder))?;
        for entry in fs::read_dir(docs.join(&folder))? {
            let path = folder.join(entry?.file_name());
            let from = docs.join(&path);
            if from.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let document = format!("docs/{}", path.display());
                let text = fs::read_to_string(&from)?;
                let to = match path.ends_with("README.md") {
                    true => copy.join(&folder).join("index.md"),
                    false => copy.join(&path),
                };
                fs::write(to, leading_out(&document, &text, repository))?;
            } else {
                fs::copy(&from, copy.join(&path))?;
            }
        }
    }
    Ok(())
}

/// A document whose links to files outside of `docs` lead to the repository. A folder's `README.md` is its `index.md` in the
/// book.
fn leading_out(document: &str, text: &str, repository: &str) -> String {
    let mut new = text.to_owned();
    for link in tidy::links(text) {
        let Some(file) = tidy::target(document, &link) else { continue };
        let address = match file.strip_prefix("docs/") {
            None => format!("{repository}/blob/HEAD/{file}"),
            Some(page) if page.ends_with("README.md") => link.replace("README.md", "index.md"),
            Some(_) => continue,
        };
        new = new.replace(&format!("]({link})"), &format!("]({address})"));
    }
    new
}

#[cfg(test)]
mod in_a_browser;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_leave_the_documents_lead_to_the_repository() {
        let text = "[a](../../SECURITY.md) [b](b.md#x) [c](https://example.com) `[d](../../d)` \
                    [e](../README.md#x)";
        let led = leading_out("docs/guide/a.md", text, "https://host/r");
        assert_eq!(
            led,
            "[a](https://host/r/blob/HEAD/SECURITY.md) [b](b.md#x) [c](https://example.com) `[d](../../d)` \
             [e](../index.md#x)"
        );
    }

    #[test]
    fn every_document_is_in_the_table_of_contents() {
        assert_eq!(unlisted(&crate::root().join("docs")).expect("docs"), [""; 0]);
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("SUMMARY.md"), "- [A](a.md)\n").expect("written");
        for page in ["a.md", "b.md"] {
            fs::write(folder.path().join(page), "").expect("written");
        }
        assert_eq!(unlisted(folder.path()).expect("a list"), ["b.md"]);
    }

    #[test]
    fn a_copy_has_every_file() {
        let (docs, copy) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
        fs::create_dir(docs.path().join("guide")).expect("a folder");
        fs::write(docs.path().join("guide/a.md"), "[x](../../x)").expect("written");
        fs::write(docs.path().join("b.css"), "b").expect("written");
        fs::write(docs.path().join("README.md"), "c").expect("written");
        copy_documents(docs.path(), copy.path(), "https://host").expect("copied");
        let text = |name: &str| fs::read_to_string(copy.path().join(name)).expect("there");
        assert_eq!(text("guide/a.md"), "[x](https://host/blob/HEAD/x)");
        assert_eq!((text("b.css"), text("index.md")), ("b".to_owned(), "c".to_owned()));
    }
}
