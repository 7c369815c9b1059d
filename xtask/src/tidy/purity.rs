//! The model and the analysis see no file, no clock, no environment, no process and no network.

use super::{
    Problem,
    source::{Source, Word},
};

/// The crates that are pure.
const PURE: [&str; 3] = ["rtscope-histogram", "rtscope-model", "rtscope-analyse"];

/// Modules of the standard library that lead outside.
const OUTSIDE: [&str; 4] = ["env", "fs", "net", "process"];

/// Types that read a clock.
const CLOCKS: [&str; 2] = ["Instant", "SystemTime"];

/// What leads outside in a pure crate. Its tests in `tests/` may.
pub(super) fn check(source: &Source) -> Vec<Problem> {
    let is_pure = PURE.contains(&source.crate_name()) && source.path.contains("/src/");
    if !is_pure {
        return Vec::new();
    }
    let clocks = source.words.iter().filter(|word| CLOCKS.contains(&word.text.as_str()));
    let mut found: Vec<&Word> = clocks.collect();
    for (i, _) in source.words.iter().enumerate().filter(|(_, word)| word.is("std")) {
        let members = members(&source.words[i + 1..]).into_iter();
        found.extend(members.filter(|member| OUTSIDE.contains(&member.text.as_str())));
    }
    let say = |word: &Word| {
        source.problem(word.line, format!("{} is pure: no {} here", source.crate_name(), word.text))
    };
    found.into_iter().map(say).collect()
}

/// What is named directly below `std`, given the words after it: `::fs`, or `::{fs, time::Duration}`.
fn members(rest: &[Word]) -> Vec<&Word> {
    let [first_colon, second_colon, first, ..] = rest else { return Vec::new() };
    if !first_colon.is(":") || !second_colon.is(":") {
        return Vec::new();
    }
    if !first.is("{") {
        return vec![first];
    }
    let pairs = rest[2..].iter().zip(&rest[3..]);
    let inside = pairs.take_while(|(_, word)| word.depth > first.depth);
    let begins = inside.filter(|(before, word)| {
        word.depth == first.depth + 1 && (before.is("{") || before.is(","))
    });
    begins.map(|(_, word)| word).collect()
}

/// Each pure crate has a `clippy.toml` that names what is banned, so that an editor shows it too.
pub(super) fn fences(exists: impl Fn(&str) -> bool) -> Vec<Problem> {
    let fence = |name: &&str| format!("crates/{name}/clippy.toml");
    let missing = PURE.iter().map(fence).filter(|path| !exists(path));
    missing.map(|path| Problem::new(&path, 1, "a pure crate needs this file")).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::source::tests::source, *};

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&source(path, text)).iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn ways_outside_are_found() {
        let text = "use std::fs;\nuse std::{fmt,\n    net::TcpStream,\n    time::{Duration,\n    \
                    Instant}};\nfn f() { let x = std::env::var(\"A\"); }";
        assert_eq!(lines("crates/rtscope-model/src/a.rs", text), [5, 1, 3, 6]);
        assert_eq!(lines("crates/rtscope-measure/src/a.rs", text), [0; 0]);
    }

    #[test]
    fn names_that_only_look_alike_are_not() {
        let text = "use std::{fmt::{self, env}, time::Duration};\nuse crate::process;\n\
                    // std::fs\nstruct Std;\nfn net() {}";
        assert_eq!(lines("crates/rtscope-analyse/src/a.rs", text), [0; 0]);
    }

    #[test]
    fn a_pure_crate_has_a_fence() {
        assert_eq!(fences(|_| true), []);
        assert_eq!(fences(|path| path.contains("model")).len(), 2);
    }
}
