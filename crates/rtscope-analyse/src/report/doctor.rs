//! What `rtscope doctor` found, for a terminal and as a page. The same document gives the same bytes.

use std::fmt::Write;

use askama::Template;
use rtscope_model::{
    doctor::{DoctorDocument, DoctorFinding, FileValue, ProblemKind, Readiness, Severity},
    time::Nanos,
};

use crate::{
    doctor::{PURPOSES, Purpose, against::MachinesApart},
    number::counted,
};

/// Findings that the terminal shows without `--all`.
const SHOWN: usize = 5;

/// Facts of a comparison that the terminal shows.
const FACTS_SHOWN: usize = 40;

/// The machine in one line.
fn machine(document: &DoctorDocument) -> String {
    let found = &document.facts.environment;
    if found.kernel.release.is_empty() {
        return "No kernel is shown".to_owned();
    }
    let inside =
        found.virtualisation.as_ref().map_or(String::new(), |kind| format!(" inside {kind}"));
    format!(
        "Linux {} ({}) on {}{inside}",
        found.kernel.release,
        document.preemption.model,
        counted(found.cpus.online.len() as u64, "CPU")
    )
}

/// Whether the kernel is `PREEMPT_RT`, with the sources that say so.
fn preemption(document: &DoctorDocument) -> String {
    let proof = &document.preemption;
    let names = |side: &[FileValue]| {
        side.iter().map(|one| one.file.as_str()).collect::<Vec<_>>().join(", ")
    };
    match (proof.real_time.is_empty(), proof.not_real_time.is_empty()) {
        (true, true) => "PREEMPT_RT: not known, no source is readable".to_owned(),
        (false, true) => format!("PREEMPT_RT: yes, by {}", names(&proof.real_time)),
        (true, false) => format!("PREEMPT_RT: no, by {}", names(&proof.not_real_time)),
        (false, false) => format!(
            "PREEMPT_RT: the sources disagree: yes by {}, no by {}",
            names(&proof.real_time),
            names(&proof.not_real_time)
        ),
    }
}

/// What it was judged for.
fn purpose(document: &DoctorDocument) -> String {
    let about = Purpose::named(&document.purpose).map_or("", |purpose| purpose.about);
    format!("for {}: {about}; deadline {}", document.purpose, Nanos(document.deadline_ns))
}

/// What a finding may add to a latency.
fn delay(finding: &DoctorFinding) -> String {
    match (finding.delay_ns, finding.kind) {
        (Some(ns), _) => format!("may add {}", Nanos(ns)),
        (None, ProblemKind::NotKnown) => "not known".to_owned(),
        (None, _) => "not a delay".to_owned(),
    }
}

fn files(found: &[FileValue]) -> String {
    found.iter().map(|one| format!("{}: {}", one.file, one.value)).collect::<Vec<_>>().join("; ")
}

/// The text for a terminal: the worst findings, or all of them with everything about them.
#[must_use]
pub fn text(document: &DoctorDocument, all: bool) -> String {
    let mut text = format!("{}\n{}\n", document.verdict, machine(document));
    let _ = writeln!(text, "{}\n{}", preemption(document), purpose(document));
    let shown = if all { document.findings.len() } else { SHOWN };
    for finding in document.findings.iter().take(shown) {
        let kind = if finding.kind == ProblemKind::Contradiction { ", contradiction" } else { "" };
        let _ = writeln!(
            text,
            "\n{:8} {} ({}{kind}, {})",
            finding.severity.word(),
            finding.code,
            delay(finding),
            finding.sureness.word()
        );
        let _ = writeln!(text, "  {}", finding.text);
        if all {
            let _ = writeln!(text, "  found: {}\n  why: {}", files(&finding.found), finding.why);
        }
        let _ = writeln!(text, "  -> {}", finding.mend);
        if all {
            let _ = writeln!(text, "  cost: {}", finding.cost);
        }
    }
    text + &rest(document, shown)
}

/// The command that shows all of it, for the same purpose and deadline.
fn all_of(document: &DoctorDocument) -> String {
    let mut command = "rtscope doctor --all".to_owned();
    if document.purpose != PURPOSES[0].name {
        command += &format!(" --for {}", document.purpose);
    }
    let usual = Purpose::named(&document.purpose).map(|purpose| purpose.deadline_ns);
    if usual != Some(document.deadline_ns) {
        command += &format!(" --deadline {}", Nanos(document.deadline_ns).exact());
    }
    command
}

/// What isn't shown.
fn rest(document: &DoctorDocument, shown: usize) -> String {
    let mut text = String::new();
    let hidden = &document.findings[document.findings.len().min(shown)..];
    if !hidden.is_empty() {
        let count = |severity| hidden.iter().filter(|one| one.severity == severity).count();
        let severities = [Severity::High, Severity::Medium, Severity::Unknown, Severity::Low];
        let counts = severities.into_iter().filter(|severity| count(*severity) > 0);
        let words: Vec<String> =
            counts.map(|severity| format!("{} {}", count(severity), severity.word())).collect();
        let _ =
            writeln!(text, "\n{} more ({}): {}", hidden.len(), words.join(", "), all_of(document));
    }
    if !document.left_out.is_empty() {
        let n = document.left_out.len() as u64;
        let _ = write!(
            text,
            "\n{} left out, which {} not matter for this purpose and deadline: {}\n",
            counted(n, "finding"),
            if n == 1 { "does" } else { "do" },
            document.left_out.join(", ")
        );
    }
    text
}

/// The text of a comparison of two machines.
#[must_use]
pub fn against_text(apart: &MachinesApart, other: &str) -> String {
    let list =
        |codes: &[String]| if codes.is_empty() { "none".to_owned() } else { codes.join(", ") };
    let mut text = format!("\nagainst {other}\n  findings only here: {}\n", list(&apart.only_here));
    let _ = writeln!(text, "  findings only there: {}", list(&apart.only_there));
    for fact in apart.facts.iter().take(FACTS_SHOWN) {
        let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
        let _ = writeln!(
            text,
            "  {}: here {}, there {}",
            fact.what,
            side(&fact.here),
            side(&fact.there)
        );
    }
    let more = apart.facts.len().saturating_sub(FACTS_SHOWN);
    if more > 0 {
        let _ = writeln!(text, "  {more} more differences: --json lists them");
    }
    text
}

#[derive(Template)]
#[template(path = "doctor.html")]
struct Page<'a> {
    style: &'static str,
    document: &'a DoctorDocument,
    machine: String,
    preemption: String,
    purpose: String,
    class: &'static str,
    rows: Vec<Row<'a>>,
    json: String,
}

struct Row<'a> {
    finding: &'a DoctorFinding,
    class: &'static str,
    severity: &'static str,
    sureness: &'static str,
    delay: String,
    is_contradiction: bool,
}

/// The page.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(document: &DoctorDocument) -> String {
    let row = |finding| Row {
        finding,
        class: match finding.severity {
            Severity::High => "prevents",
            Severity::Medium => "warning",
            Severity::Low | Severity::Unknown => "note",
        },
        severity: finding.severity.word(),
        sureness: finding.sureness.word(),
        delay: delay(finding),
        is_contradiction: finding.kind == ProblemKind::Contradiction,
    };
    let page = Page {
        style: include_str!("template/style.css"),
        machine: machine(document),
        preemption: preemption(document),
        purpose: purpose(document),
        class: match document.readiness {
            Readiness::Ready => "Ready",
            Readiness::NotReady => "Not ready",
            Readiness::NotKnown => "Not known",
        },
        rows: document.findings.iter().map(row).collect(),
        json: super::harmless_json(document),
        document,
    };
    page.render().expect("a string takes every text")
}
