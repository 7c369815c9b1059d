//! Tests that skip themselves, and whether that was to be expected.
//!
//! A test that can't run here appends a line `name: reason` to the file that `RTSCOPE_SKIPS` names
//! and returns. `xtask/expected-skips.txt` lists in the same form which may, and why: a test that
//! skips itself for another reason than the one that was foreseen is a surprise too.

use std::{fs, path::Path};

use super::libtest::Skip;

/// The environment variable that names the file of skips.
pub(super) const VARIABLE: &str = "RTSCOPE_SKIPS";

/// The list of expected skips, below the root.
pub(super) const EXPECTED: &str = "xtask/expected-skips.txt";

/// Reads lines `name: reason`; a missing file is an empty one.
pub(super) fn read(path: &Path) -> Vec<Skip> {
    parse(&fs::read_to_string(path).unwrap_or_default())
}

/// Empty lines and those that begin with `#` say nothing; a leading `SKIP` is allowed. A module path
/// holds no colon that a space follows.
fn parse(text: &str) -> Vec<Skip> {
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let skip = |line: &str| {
        let line = line.strip_prefix("SKIP ").unwrap_or(line);
        let (name, reason) = line.split_once(": ").unwrap_or((line, "no reason was given"));
        Skip { name: name.trim().to_owned(), reason: reason.trim().to_owned() }
    };
    lines.map(skip).collect()
}

/// The skips that nobody expected. The name `*` in the list stands for every test.
pub(super) fn unexpected<'a>(skips: &'a [Skip], expected: &[Skip]) -> Vec<&'a Skip> {
    let foreseen = |skip: &Skip| {
        let names = |e: &&Skip| e.name == "*" || e.name == skip.name;
        expected.iter().filter(names).any(|e| e.reason == skip.reason)
    };
    skips.iter().filter(|skip| !foreseen(skip)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let skips = parse("# a\n\nbrowser: chromium: not found\nSKIP it::veth: no root\nodd\n");
        let shown: Vec<_> = skips.iter().map(|s| (s.name.as_str(), s.reason.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("browser", "chromium: not found"),
                ("it::veth", "no root"),
                ("odd", "no reason was given"),
            ]
        );
    }

    #[test]
    fn a_skip_that_is_not_listed_is_unexpected() {
        let skips = parse("a: needs root\nb: no wire\nb: needs root");
        assert_eq!(unexpected(&skips, &parse("b: no wire\nc: never")), [&skips[0], &skips[2]]);
        assert_eq!(unexpected(&skips, &parse("*: needs root")), [&skips[1]]);
        assert!(unexpected(&[], &parse("a: x")).is_empty());
    }

    #[test]
    fn the_list_can_be_read() {
        let listed = read(&crate::root().join(EXPECTED));
        assert!(crate::root().join(EXPECTED).is_file());
        assert!(listed.iter().all(|skip| skip.reason != "no reason was given"), "{listed:?}");
    }
}
