//! Lines that LAVA takes for results when a test prints them: a test set for each cell, a test case
//! for each figure and each requirement.
//!
//! ```text
//! <LAVA_SIGNAL_TESTCASE TEST_CASE_ID=max RESULT=pass UNITS=us MEASUREMENT=41.7>
//! ```
//!
//! A figure that was measured is a pass of its own; the verdict is that of the requirements' cases.
//! Inconclusive is `unknown`. A name keeps letters, digits, `.`, `_` and `-`.

use std::fmt::Write as _;

use rtscope_model::verdict::{Statistic, Verdict};

use super::{
    Format,
    case::{Suite, suites},
};
use crate::statistics::quantile;

pub(super) const FORMAT: Format = Format {
    name: "lava",
    what: "LAVA's result lines: a test case for each figure and each requirement",
    ending: "txt",
    write: |subject| Ok(suites(subject).iter().map(lines).collect::<String>().into_bytes()),
};

fn lines(suite: &Suite<'_>) -> String {
    let mut text = format!("<LAVA_SIGNAL_TESTSET START {}>\n", id(&suite.name));
    let mut case = |name: &str, result: &str, measured: Option<(&str, String)>| {
        let measured = measured
            .map_or(String::new(), |(unit, value)| format!(" UNITS={unit} MEASUREMENT={value}"));
        let _ = writeln!(
            text,
            "<LAVA_SIGNAL_TESTCASE TEST_CASE_ID={} RESULT={result}{measured}>",
            id(name)
        );
    };
    if let Some(cell) = suite.cell {
        let row = &cell.all;
        let mut figure = |name: &str, ns: Option<u64>| {
            let us = ns.map(|ns| ("us", format!("{}.{:03}", ns / 1_000, ns % 1_000)));
            if us.is_some() {
                case(name, "pass", us);
            }
        };
        figure("min", row.histogram.min_ns());
        figure("mean", row.histogram.mean_ns().map(|ns| ns.round() as u64));
        for parts in quantile::LADDER {
            let rank = quantile::rank(row.histogram.count(), parts);
            figure(&Statistic::Quantile(parts).to_string(), row.histogram.at_rank_ns(rank));
        }
        figure(if row.max_is_at_least() { "max-at-least" } else { "max" }, row.max_ns());
        case("recorded", "pass", Some(("count", row.recorded.to_string())));
        if row.missed_is_known {
            case("missed", "pass", Some(("count", row.missed.to_string())));
        } else if row.missed > 0 {
            case("missed-at-least", "pass", Some(("count", row.missed.to_string())));
        }
    }
    for of in &suite.cases {
        let result = match of.verdict {
            Verdict::Pass | Verdict::Measured => "pass",
            Verdict::Fail => "fail",
            Verdict::Inconclusive => "unknown",
        };
        let name = match of.requirement {
            Some(_) => {
                let name = of.name.replace("<=", "at-most").replace('=', "at-most");
                format!("require-{}", name.replace('<', "below"))
            }
            None => of.name.clone(),
        };
        case(&name, result, None);
    }
    text + "<LAVA_SIGNAL_TESTSET STOP>\n"
}

/// A name without what LAVA would split at.
fn id(name: &str) -> String {
    let mut id = String::new();
    for c in name.chars() {
        match c {
            c if c.is_ascii_alphanumeric() || "._-".contains(c) => id.push(c),
            _ if id.ends_with('-') => {}
            _ => id.push('-'),
        }
    }
    id.trim_matches('-').to_owned()
}
