//! What the test programs say of themselves.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// A test that did not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Skip {
    pub(super) name: String,
    pub(super) reason: String,
}

/// The sum of all summary lines in the output of `cargo test`, which has one for each program:
/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
pub(super) fn counts(output: &str) -> Counts {
    let mut sum = Counts::default();
    for line in output.lines().filter_map(|line| line.strip_prefix("test result: ")) {
        let of = |what: &str| {
            let part = line.split([';', '.']).map(str::trim).find_map(|p| p.strip_suffix(what));
            part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        sum += Counts { passed: of(" passed"), failed: of(" failed"), skipped: of(" ignored") };
    }
    sum
}

/// Whether a program that ended well has run what it was asked for: it says so in its summary line, which is missing where it
/// died quietly, and in which a filter that fits nothing leaves only tests that are filtered out.
pub(super) fn has_run(output: &str) -> bool {
    let Counts { passed, skipped, .. } = counts(output);
    let has_summary = output.lines().any(|line| line.starts_with("test result: ok. "));
    has_summary
        && (passed + skipped > 0
            || !output.contains(" filtered out")
            || output.contains(" 0 filtered out"))
}

/// The ignored tests in the output of `cargo test`: `test a::b ... ignored, because`.
pub(super) fn ignored(output: &str) -> Vec<Skip> {
    let skip = |line: &str| {
        let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
        let reason = rest.strip_prefix(',').map_or("ignored", str::trim).to_owned();
        Some(Skip { name: name.to_owned(), reason })
    };
    output.lines().filter_map(skip).collect()
}

/// What the failed tests of the output of `cargo test` said, a block of each program: from its first line
/// `failures:` to the second, which begins the list of their names.
pub(super) fn failures(output: &str) -> Vec<&str> {
    const TITLE: &str = "\nfailures:\n";
    let mut blocks = Vec::new();
    let mut rest = output;
    while let Some(at) = rest.find(TITLE) {
        let block = &rest[at + TITLE.len()..];
        let Some(end) = block.find(TITLE) else { break };
        blocks.push(block[..end].trim_matches('\n'));
        rest = &block[end + TITLE.len()..];
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 3 tests
test time::reads ... ok
test time::writes ... ignored, needs a desk
test time::other ... FAILED

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s

running 2 tests
test a - b (line 4) ... ok
test a - c (line 9) ... ignored

test result: ok. 21 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 1.00s
";

    #[test]
    fn summary_lines_are_summed() {
        assert_eq!(counts(OUTPUT), Counts { passed: 22, failed: 1, skipped: 2 });
        assert_eq!(counts("error: could not compile\n"), Counts::default());
    }

    #[test]
    fn what_failed_tests_said_is_found() {
        let of = |words: &str, name: &str| {
            format!(
                "test {name} ... FAILED\n\nfailures:\n\n---- {name} stdout ----\n{words}\n\n\n\
                 failures:\n    {name}\n\ntest result: FAILED. 0 passed; 1 failed\n\n"
            )
        };
        let output = format!("{OUTPUT}{}{}", of("assertion failed", "a"), of("12 above 5", "b"));
        assert_eq!(
            failures(&output),
            ["---- a stdout ----\nassertion failed", "---- b stdout ----\n12 above 5"]
        );
        assert!(failures("\nfailures:\n\n---- a stdout ----\nand then it died").is_empty());
        assert!(failures(OUTPUT).is_empty());
    }

    #[test]
    fn ignored_tests_are_skips() {
        let skips = ignored(OUTPUT);
        let shown: Vec<_> = skips.iter().map(|s| (s.name.as_str(), s.reason.as_str())).collect();
        assert_eq!(shown, [("time::writes", "needs a desk"), ("a - c (line 9)", "ignored")]);
    }
}
