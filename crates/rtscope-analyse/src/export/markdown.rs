//! Markdown for a ticket, a merge request or a wiki: verdict, figures, requirements, findings.

use std::fmt::Write as _;

use rtscope_model::finding::Weight;

use super::{
    Exported, Format,
    case::{Suite, suites},
};
use crate::report::terminal::table_markdown;

pub(super) const FORMAT: Format = Format {
    name: "markdown",
    what: "verdict, figures, requirements and findings as Markdown",
    ending: "md",
    write: |subject| Ok(document(subject).into_bytes()),
};

fn document(subject: &Exported<'_>) -> String {
    let (record, judgement) = (subject.record, &subject.judgement);
    let (version, began) = subject.started();
    let (version, began) = (plain(version), plain(began));
    let title = if record.plan.title.is_empty() { &record.plan.name } else { &record.plan.title };
    let mut text = format!("# {}: {}\n\n", plain(title), judgement.verdict);
    for reason in &judgement.reasons {
        let _ = writeln!(text, "- {}", plain(reason));
    }
    let machine = record.before.as_ref().filter(|_| !record.is_imported()).map(|found| {
        let kernel = &found.kernel;
        format!(" on {}, Linux {} ({})", found.host, kernel.release, kernel.preemption.word())
    });
    let machine = plain(&machine.unwrap_or_default());
    let _ = writeln!(text, "\nMeasured{machine}, {began}, rtscope {version}.\n");
    let _ = writeln!(text, "Wake-up latency in us:\n\n{}", table_markdown(judgement, plain));
    let suites = suites(subject);
    let rows: String = suites.iter().flat_map(of_suite).collect();
    if !rows.is_empty() {
        let heading = "| cell | requirement | verdict | because |\n|:---|:---|:---|:---|\n";
        let _ = writeln!(text, "{heading}{rows}");
    }
    for finding in judgement.findings.iter().filter(|finding| finding.weight > Weight::Note) {
        let _ = writeln!(text, "- **{}**: {}", plain(&finding.code), plain(&finding.text));
    }
    text.trim_end().to_owned() + "\n"
}

fn of_suite(suite: &Suite<'_>) -> Vec<String> {
    let cases = suite.cases.iter().filter(|case| case.requirement.is_some());
    let row = |case: &super::case::Case| {
        let (name, because) = (plain(&suite.name), plain(&case.text));
        format!("| {name} | {} | {} | {because} |\n", plain(&case.name), case.verdict)
    };
    cases.map(row).collect()
}

/// A text that is no markup, in a table or out of one.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '|' | '*' | '_' | '`' | '<' | '[' | '\\' => plain.extend(['\\', c]),
            '\n' | '\r' => plain.push(' '),
            c => plain.push(c),
        }
    }
    plain
}
