//! KTAP, version 1, as the kernel's tests print it: a subtest for each cell, a line for each
//! requirement. Readers of TAP count the outer lines.
//!
//! An inconclusive requirement is `not ok` with the directive ERROR: it could not be told. The reason
//! is a diagnostic line before its result, since readers give diagnostic lines to the result that
//! follows.

use std::fmt::Write as _;

use rtscope_model::verdict::Verdict;

use super::{
    FleetExported, Format,
    case::{Case, Suite, suites, suites_of_fleet},
};

pub(super) const FORMAT: Format = Format {
    name: "ktap",
    what: "KTAP version 1: a subtest for each cell, a line for each requirement",
    ending: "tap",
    write: |subject| Ok(document(&suites(subject)).into_bytes()),
};

/// The cells of all places, each under the place's name.
pub(super) fn of_fleet(fleet: &FleetExported<'_>) -> String {
    document(&suites_of_fleet(fleet))
}

fn document(suites: &[Suite<'_>]) -> String {
    let mut text = format!("KTAP version 1\n1..{}\n", suites.len());
    for (number, suite) in (1..).zip(suites) {
        let of = |verdict: Verdict| suite.cases.iter().any(|case| case.verdict == verdict);
        let _ = writeln!(text, "  KTAP version 1\n  # Subtest: {}", plain(&suite.name));
        let _ = writeln!(text, "  1..{}", suite.cases.len());
        for (number, case) in (1..).zip(&suite.cases) {
            let _ = writeln!(text, "  # {}: {}", plain(&case.name), one_line(&case.text));
            let _ = writeln!(text, "  {}", line(number, case));
        }
        let (word, directive) = match (of(Verdict::Fail), of(Verdict::Inconclusive)) {
            (true, _) => ("not ok", ""),
            (_, true) => ("not ok", " # ERROR inconclusive"),
            _ if suite.cases.is_empty() => ("ok", " # SKIP no requirement"),
            _ => ("ok", ""),
        };
        let _ = writeln!(text, "{word} {number} {}{directive}", plain(&suite.name));
    }
    text
}

fn line(number: usize, case: &Case) -> String {
    let name = plain(&case.name);
    match case.verdict {
        Verdict::Fail => format!("not ok {number} {name}"),
        Verdict::Inconclusive => format!("not ok {number} {name} # ERROR inconclusive"),
        Verdict::Pass | Verdict::Measured => format!("ok {number} {name}"),
    }
}

/// A description: a `#` would begin a directive.
fn plain(text: &str) -> String {
    one_line(text).replace('#', "+")
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
