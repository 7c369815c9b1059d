//! Unsafe code lives in `rtscope-sys` alone.

use super::{Problem, source::Source};

/// The crate that may.
const HOME: &str = "rtscope-sys";

const FORBID: &str = "#![forbid(unsafe_code)]";

/// Unsafe code outside its home, and crates that don't forbid it.
pub(super) fn check(source: &Source) -> Vec<Problem> {
    if source.crate_name() == HOME {
        return Vec::new();
    }
    let found = source.words.iter().filter(|word| word.is("unsafe"));
    let mut problems: Vec<Problem> = found
        .map(|word| source.problem(word.line, format!("unsafe code belongs into {HOME}")))
        .collect();
    let is_crate_root =
        source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
    if is_crate_root && !source.text.lines().any(|line| line == FORBID) {
        problems.push(source.problem(1, format!("write {FORBID} under the crate's doc")));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::{super::source::tests::source, *};

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&source(path, text)).iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn unsafe_code_is_found_outside_its_home() {
        let text = "fn f() {\n    unsafe { g() }\n}\nunsafe impl Send for A {}";
        assert_eq!(lines("crates/rtscope-measure/src/a.rs", text), [2, 4]);
        assert_eq!(lines("crates/rtscope-sys/src/a.rs", text), [0; 0]);
        assert_eq!(lines("xtask/src/a.rs", "// unsafe\nfn f() { g(\"unsafe\") }"), [0; 0]);
    }

    #[test]
    fn a_crate_forbids_unsafe_code() {
        let good = "//! Doc.\n\n#![forbid(unsafe_code)]\n";
        assert_eq!(lines("crates/rtscope-model/src/lib.rs", good), [0; 0]);
        assert_eq!(lines("crates/rtscope-model/src/lib.rs", "//! Doc.\n"), [1]);
        assert_eq!(lines("xtask/src/main.rs", "//! #![forbid(unsafe_code)]\n"), [1]);
        assert_eq!(lines("crates/rtscope-sys/src/lib.rs", "//! Doc.\n"), [0; 0]);
    }
}
