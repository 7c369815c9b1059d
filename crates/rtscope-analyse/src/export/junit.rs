//! JUnit XML, as CI servers read it: a suite for each cell, a case for each requirement.
//!
//! A requirement that is not met is a failure, one that is inconclusive an error. A cell without a
//! requirement is a suite without cases. The figures are properties. A suite takes as long as its
//! phase; judging a requirement takes no time of its own, so that the times of cases add up to no
//! more than the run's.

use std::fmt::Write as _;

use rtscope_model::{
    time::Nanos,
    verdict::{Statistic, Verdict},
};

use super::{
    Exported, FleetExported, Format,
    case::{Case, Suite, suites, suites_of_fleet},
};
use crate::statistics::quantile;

pub(super) const FORMAT: Format = Format {
    name: "junit",
    what: "JUnit XML: a test case for each requirement in each cell",
    ending: "xml",
    write: |subject| Ok(document(&subject.record.plan.name, &suites(subject)).into_bytes()),
};

/// The suites of all places, each under the place's name.
pub(super) fn of_fleet(fleet: &FleetExported<'_>) -> String {
    document(fleet.plan, &suites_of_fleet(fleet))
}

fn document(plan: &str, suites: &[Suite<'_>]) -> String {
    let cases = || suites.iter().flat_map(|suite| &suite.cases);
    let cells = suites.iter().filter_map(|suite| suite.cell);
    let time = seconds(cells.map(|cell| cell.duration_ns).sum());
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"rtscope {}\" {} time=\"{time}\">\n",
        escaped(plan),
        counts(cases())
    );
    suites.iter().for_each(|suite| text += &of_suite(suite, plan));
    text + "</testsuites>\n"
}

fn counts<'a>(cases: impl Iterator<Item = &'a Case> + Clone) -> String {
    let of = |verdict: Verdict| cases.clone().filter(|case| case.verdict == verdict).count();
    let (failures, errors) = (of(Verdict::Fail), of(Verdict::Inconclusive));
    format!("tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\"", cases.count())
}

fn of_suite(suite: &Suite<'_>, plan: &str) -> String {
    let (_, began) = suite.subject.map_or(("", ""), Exported::started);
    // The schema of Ant has a time of day without a zone.
    let began = began.trim_end_matches('Z');
    let host = suite.subject.map_or("", Exported::host);
    let time = seconds(suite.cell.map_or(0, |cell| cell.duration_ns));
    let mut text = format!(
        "  <testsuite name=\"{}\" {} skipped=\"0\" time=\"{time}\" timestamp=\"{}\" hostname=\"{}\">\n",
        escaped(&suite.name),
        counts(suite.cases.iter()),
        escaped(began),
        escaped(host)
    );
    text += &properties(suite);
    for case in &suite.cases {
        let _ = write!(
            text,
            "    <testcase name=\"{}\" classname=\"rtscope.{}.{}\" time=\"0.000\"",
            escaped(&case.name),
            escaped(plan),
            escaped(&suite.name)
        );
        let problem = match case.verdict {
            Verdict::Fail => Some(("failure", "requirement")),
            Verdict::Inconclusive => Some(("error", "inconclusive")),
            Verdict::Pass | Verdict::Measured => None,
        };
        let said = escaped(&case.text);
        text += &match problem {
            Some((tag, kind)) => format!(
                ">\n      <{tag} message=\"{}\" type=\"{kind}\">{said}</{tag}>\n    </testcase>\n",
                escaped(&brief(&case.text))
            ),
            None => format!(">\n      <system-out>{said}</system-out>\n    </testcase>\n"),
        };
    }
    text + "  </testsuite>\n"
}

/// A line for the list of a CI server, which has the whole text one click away: the first statement, and no more than
/// 120 characters of it.
fn brief(text: &str) -> String {
    let first = text.split("; ").next().unwrap_or(text);
    match first.char_indices().nth(MESSAGE_MAX) {
        None => first.to_owned(),
        Some(_) => {
            let cut: String = first.chars().take(MESSAGE_MAX - 3).collect();
            format!("{}...", cut.rsplit_once(' ').map_or(cut.as_str(), |(whole, _)| whole))
        }
    }
}

/// Characters of a message at most.
const MESSAGE_MAX: usize = 120;

/// The figures of a cell, or what the run is.
fn properties(suite: &Suite<'_>) -> String {
    let mut pairs: Vec<(String, String)> = Vec::new();
    if let Some(cell) = suite.cell {
        let row = &cell.all;
        pairs.push(("recorded".to_owned(), row.recorded.to_string()));
        if row.missed_is_known {
            pairs.push(("missed".to_owned(), row.missed.to_string()));
        } else if row.missed > 0 {
            pairs.push(("missed_at_least".to_owned(), row.missed.to_string()));
        }
        let mut figure = |name: &str, ns: Option<u64>| {
            pairs.extend(ns.map(|ns| (format!("latency_ns_{name}"), ns.to_string())));
        };
        figure("min", row.histogram.min_ns());
        figure("mean", row.histogram.mean_ns().map(|ns| ns.round() as u64));
        for parts in quantile::LADDER {
            let rank = quantile::rank(row.histogram.count(), parts);
            figure(&Statistic::Quantile(parts).to_string(), row.histogram.at_rank_ns(rank));
        }
        figure(if row.max_is_at_least() { "max_at_least" } else { "max" }, row.max_ns());
    } else if let Some(subject) = suite.subject {
        let (version, _) = subject.started();
        pairs.push(("rtscope".to_owned(), version.to_owned()));
        pairs.push(("verdict".to_owned(), subject.judgement.verdict.to_string()));
        if let Some(found) = subject.record.before.as_ref() {
            pairs.push(("kernel".to_owned(), found.kernel.release.clone()));
        }
    }
    let property = |(name, value): &(String, String)| {
        format!("      <property name=\"{}\" value=\"{}\"/>\n", escaped(name), escaped(value))
    };
    let lines: String = pairs.iter().map(property).collect();
    format!("    <properties>\n{lines}    </properties>\n")
}

fn seconds(ns: u64) -> String {
    format!("{:.3}", Nanos(ns).as_secs_f64())
}

/// A text in XML, in quotes or between tags; what XML 1.0 can't hold becomes a replacement mark.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' | '\r' | '\t' => escaped.push(' '),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_short_line_of_whole_words() {
        assert_eq!(brief("the maximum is 9 us; 1 of 8 latencies was late"), "the maximum is 9 us");
        let long = brief(&"processes used the CPU ".repeat(20));
        assert!(long.chars().count() <= MESSAGE_MAX && long.ends_with("..."), "{long}");
        assert!(
            long.trim_end_matches("...")
                .split(' ')
                .all(|word| "processes used the CPU".contains(word))
        );
        assert_eq!(brief(&"x".repeat(MESSAGE_MAX)).len(), MESSAGE_MAX);
    }
}
