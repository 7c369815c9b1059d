//! Whether the links of a built book lead somewhere: to a file of the book, and to an anchor in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Result;

use crate::tidy;

/// What was found in a book.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) pages: usize,
    /// Links inside of the book.
    pub(super) links: usize,
    /// A line for each link that leads nowhere.
    pub(super) broken: Vec<String>,
}

/// Checks every page below a folder. Addresses of other hosts are not asked.
pub(super) fn check(book: &Path) -> Result<Checked> {
    let mut pages = BTreeMap::new();
    for page in tidy::files(book, &["."], "html")? {
        let text = fs::read_to_string(book.join(&page))?;
        pages.insert(page, text);
    }
    let anchors: BTreeMap<&str, BTreeSet<String>> = pages
        .iter()
        .map(|(page, text)| (page.as_str(), values(text, &["id"]).into_iter().collect()))
        .collect();
    let mut checked = Checked { pages: pages.len(), ..Checked::default() };
    for (page, text) in &pages {
        for link in values(text, &["href", "src"]) {
            // The page for addresses that don't exist begins at the root of its server.
            if link == "/" || link.contains(':') || link.starts_with("//") {
                continue;
            }
            checked.links += 1;
            let (_, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = tidy::target(page, &link).unwrap_or_else(|| page.clone());
            let has_anchor = || anchors.get(target.as_str()).is_none_or(|all| all.contains(anchor));
            if !book.join(&target).is_file() {
                checked.broken.push(format!("{page}: {link} leads to no file"));
            } else if !anchor.is_empty() && !has_anchor() {
                checked.broken.push(format!("{page}: {link} leads to no heading"));
            }
        }
    }
    Ok(checked)
}

/// The values of attributes in a page's tags. Text and comments have none; scripts and what stands in code are text.
fn values(page: &str, names: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some(begin) = rest.find('<') {
        rest = &rest[begin + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            continue;
        }
        let (tag, after) = rest.split_once('>').unwrap_or((rest, ""));
        let is_script = tag.starts_with("script");
        for name in names {
            let attribute = format!(" {name}=\"");
            let value = tag.split_once(&attribute).and_then(|(_, value)| value.split_once('"'));
            found.extend(value.map(|(value, _)| value.replace("&amp;", "&")));
        }
        rest = after;
        if is_script {
            rest = after.split_once("</script>").map_or("", |(_, after)| after);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_tags_alone_are_values() {
        let page = "<a class=\"x\" href=\"b.html?a=1&amp;b#c\">href=\"text\"</a><!-- <a href=\"no\"> -->\
                    <script src=\"s.js\">if (a<b) x = '<a href=\"no\">';</script><h1 id=\"top\">";
        assert_eq!(values(page, &["href", "src"]), ["b.html?a=1&b#c", "s.js"]);
        assert_eq!(values(page, &["id"]), ["top"]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let book = tempfile::tempdir().expect("a folder");
        fs::create_dir(book.path().join("guide")).expect("a folder");
        let write = |name: &str, text: &str| fs::write(book.path().join(name), text).expect("ok");
        write("index.html", "<h1 id=\"one\"><a href=\"guide/a.html#here\"><a href=\"#one\">");
        write(
            "guide/a.html",
            "<h2 id=\"here\"><a href=\"../index.html#two\"><img src=\"no.svg\"><a href=\"https://x\">",
        );
        let checked = check(book.path()).expect("checked");
        assert_eq!((checked.pages, checked.links), (2, 4));
        assert_eq!(
            checked.broken,
            [
                "guide/a.html: ../index.html#two leads to no heading",
                "guide/a.html: no.svg leads to no file"
            ]
        );
    }
}
