//! The judgement as text for a terminal: figures, requirements, findings, verdict, what to do next.
//!
//! The last lines are what stays on the screen, so the verdict and the next step come last. The
//! sentences of the verdict's reasons are there, and the findings they come from are told once.

mod frames;
mod style;
mod table;
mod tail;

use rtscope_model::{
    environment::Environment,
    finding::{Finding, Weight},
    record::Record,
    verdict::{Requirement, Verdict},
};

use self::style::Ink;
pub use self::{style::Style, table::table_markdown};
use crate::{
    judgement::{Judgement, RequirementOutcome},
    next_step::next_step,
    number::counted,
    report::published,
};

/// The final table of a run and what follows from it.
#[must_use]
pub fn summary(judgement: &Judgement, record: &Record, style: Style) -> String {
    let sections = [
        heading(record, style),
        table::table(judgement, &record.plan, style),
        frames::frames(judgement, style),
        tail::tail(judgement, style),
        style.fold(&published::text(&published::of_run(record, judgement))),
        requirements(&judgement.outcomes, style),
        findings(&judgement.findings, style),
        verdict(judgement, style),
        next(judgement, record, style),
    ];
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The verdict and its first reason in one line.
#[must_use]
pub fn verdict_line(judgement: &Judgement) -> String {
    let Judgement { verdict, reasons, .. } = judgement;
    match reasons.as_slice() {
        [] => verdict.to_string(),
        [only] => format!("{verdict}: {only}"),
        [first, rest @ ..] => {
            format!("{verdict}: {first} (and {})", counted(rest.len() as u64, "more reason"))
        }
    }
}

/// What ran where.
fn heading(record: &Record, style: Style) -> String {
    let plan = &record.plan.name;
    let machine = record.before.as_ref().map(machine_words).unwrap_or_default();
    let first = format!("{} ", style.paint(Ink::Strong, plan));
    let mut text = style.paragraph(&first, plan.chars().count() + 1, &machine);
    let mut samplers: Vec<String> = Vec::new();
    for (_, origin) in record.origins() {
        let words = format!("imported from {}: {}", origin.files.join(", "), origin.text());
        if !samplers.contains(&words) {
            samplers.push(words);
        }
    }
    for thread in record.threads.iter().filter(|thread| thread.imported.is_none()) {
        let mut place = thread.found.clone();
        let twins = record.threads.iter().filter(|other| {
            let (a, b) = (&thread.found, &other.found);
            (a.policy, a.priority, thread.interval_ns) == (b.policy, b.priority, other.interval_ns)
        });
        place.cpus = twins.flat_map(|other| other.found.cpus.iter()).collect();
        let every = rtscope_model::time::Nanos(thread.interval_ns);
        let words = format!("{place} every {every}");
        if !samplers.contains(&words) {
            samplers.push(words);
        }
    }
    if !samplers.is_empty() {
        text += &style.paragraph("  ", 2, &samplers.join("; "));
    }
    let mut paths: Vec<String> = Vec::new();
    for path in record.plan.phases.iter().filter_map(|phase| phase.sampler.network.path()) {
        let words = path.to_string();
        if !paths.contains(&words) {
            paths.push(words);
        }
    }
    if !paths.is_empty() {
        text += &style.paragraph("  frames: ", 10, &paths.join("; "));
    }
    text
}

fn machine_words(machine: &Environment) -> String {
    let kernel = &machine.kernel;
    format!("on {}, kernel {} ({})", machine.host, kernel.release, kernel.preemption.word())
}

fn word(verdict: Verdict) -> (&'static str, Ink) {
    match verdict {
        Verdict::Measured => ("measured", Ink::Strong),
        Verdict::Pass => ("pass", Ink::Good),
        Verdict::Fail => ("fail", Ink::Bad),
        Verdict::Inconclusive => ("inconclusive", Ink::Doubtful),
    }
}

/// Each requirement once, with the cells by what it came to.
fn requirements(outcomes: &[RequirementOutcome], style: Style) -> String {
    let mut asked: Vec<Requirement> = Vec::new();
    for outcome in outcomes {
        if !asked.contains(&outcome.requirement) {
            asked.push(outcome.requirement);
        }
    }
    let asked_width = asked.iter().map(|r| r.to_string().len()).max().unwrap_or(0);
    let word_width = outcomes.iter().map(|o| word(o.verdict).0.len()).max().unwrap_or(0);
    let mut text = String::new();
    for requirement in asked {
        let mut asked = requirement.to_string();
        for (verdict, by_figures) in ANSWERS {
            let is_it =
                |o: &RequirementOutcome| (o.verdict, o.figures_verdict) == (verdict, by_figures);
            let Some(mut places) = places(outcomes, requirement, is_it) else { continue };
            if by_figures != verdict {
                places += &format!(" (the figures alone: {})", word(by_figures).0);
            }
            let (word, ink) = word(verdict);
            let word = style.paint(ink, &format!("{word:<word_width$}"));
            let first = format!("  {asked:<asked_width$}  {word}  ");
            text += &style.paragraph(&first, asked_width + word_width + 6, &places);
            asked.clear();
        }
    }
    if text.is_empty() { text } else { format!("Requirements\n{text}") }
}

/// What a requirement can come to, and what its figures alone say then.
const ANSWERS: [(Verdict, Verdict); 5] = [
    (Verdict::Fail, Verdict::Fail),
    (Verdict::Inconclusive, Verdict::Fail),
    (Verdict::Inconclusive, Verdict::Inconclusive),
    (Verdict::Inconclusive, Verdict::Pass),
    (Verdict::Pass, Verdict::Pass),
];

/// The cells where a requirement came to an answer; none when there is none.
fn places(
    outcomes: &[RequirementOutcome],
    requirement: Requirement,
    is_it: impl Fn(&RequirementOutcome) -> bool,
) -> Option<String> {
    let of: Vec<&RequirementOutcome> =
        outcomes.iter().filter(|o| o.requirement == requirement).collect();
    let names: Vec<&str> = of.iter().filter(|o| is_it(o)).map(|o| o.name.as_str()).collect();
    match names.len() {
        0 => None,
        n if n == of.len() && n > 1 => Some("in every cell".to_owned()),
        _ => Some(format!("in {}", names.join(", "))),
    }
}

/// What a finding does to the verdict, in two words.
fn weight_word(weight: Weight) -> (&'static str, Ink) {
    match weight {
        Weight::Invalidates => ("invalidates", Ink::Bad),
        Weight::PreventsPass => ("prevents pass", Ink::Doubtful),
        Weight::Warning => ("warning", Ink::Doubtful),
        Weight::Note => ("note", Ink::Faint),
    }
}

/// The weighty findings with what to do about them, the notes without.
fn findings(findings: &[Finding], style: Style) -> String {
    let width = findings.iter().map(|f| weight_word(f.weight).0.len()).max().unwrap_or(0);
    let indent = width + 4;
    let mut text = String::new();
    for finding in findings {
        let (word, ink) = weight_word(finding.weight);
        let first = format!("  {}  ", style.paint(ink, &format!("{word:<width$}")));
        if finding.weight == Weight::Note {
            text += &style.paragraph(&first, indent, &finding.text);
            continue;
        }
        let words = format!("{} [{}]", finding.text, finding.code);
        text += &style.paragraph(&first, indent, &words);
        if !finding.advice.is_empty() {
            let first = format!("{}-> ", " ".repeat(indent));
            text += &style.paragraph(&first, indent + 3, &finding.advice);
        }
    }
    if text.is_empty() { text } else { format!("Findings\n{text}") }
}

/// Reasons that are told; a matrix may have hundreds.
const REASONS_SHOWN: usize = 6;

/// The answer and its reasons; a reason that is a finding is named by its code.
fn verdict(judgement: &Judgement, style: Style) -> String {
    let (word, ink) = word(judgement.verdict);
    let title = style.paint(ink, &word.to_uppercase());
    let found = |reason: &&String| judgement.findings.iter().find(|f| f.text == **reason);
    let codes: Vec<&str> =
        judgement.reasons.iter().filter_map(|r| found(&r)).map(|f| f.code.as_str()).collect();
    let mut text = match codes.is_empty() {
        true => format!("Verdict: {title}\n"),
        false => {
            let first = format!("Verdict: {title} ");
            let indent = "Verdict: ".len() + word.len() + 1;
            style.paragraph(&first, indent, &format!("because of {}", codes.join(", ")))
        }
    };
    let told: Vec<&String> = judgement.reasons.iter().filter(|r| found(r).is_none()).collect();
    for reason in told.iter().take(REASONS_SHOWN) {
        text += &style.paragraph("  - ", 4, reason);
    }
    match told.len().saturating_sub(REASONS_SHOWN) {
        0 => text,
        more => text + &format!("  - and {more} more, in the report\n"),
    }
}

fn next(judgement: &Judgement, record: &Record, style: Style) -> String {
    let first = style.paint(Ink::Strong, "Next: ");
    let Some(step) = next_step(judgement, record) else { return String::new() };
    // A command that is folded can't be copied.
    let command = step.command.map_or(String::new(), |command| format!("      {command}\n"));
    style.paragraph(&first, 6, &step.text) + &command
}

#[cfg(test)]
mod tests {
    use rtscope_model::environment::Preemption;

    use super::*;
    use crate::{judge, test_support::Run};

    const PLAIN: Style = Style { width: 90, colour: false };

    fn plan(require: &str) -> String {
        format!(
            r#"
name = "two"
require = [{require}]
[[phase]]
name = "rest"
duration = "4s"
[[phase]]
name = "messages"
duration = "4s"
load = ["message groups=1"]
"#
        )
    }

    /// Latencies that spread like real ones: most near `base`, few far above, one `worst`.
    fn latencies(base: u64, worst: u64) -> Vec<u64> {
        let tail = |i: u64| if i % 100 == 7 { 3 * base + i } else { base + 13 * (i % 97) };
        (0..4_000).map(|i| if i == 2_345 { worst } else { tail(i) }).collect()
    }

    fn run(require: &str, worst: u64) -> Run {
        let (a, b) = (latencies(2_300, 14_000), latencies(2_900, 21_500));
        let (c, d) = (latencies(4_100, 47_900), latencies(5_000, worst));
        Run::new(&plan(require), 2)
            .cell(0, &[&a, &b])
            .cell(1, &[&c, &d])
            .load(1, "message groups=1", &[151_000, 148_500, 152_250, 150_000])
            .end()
    }

    fn shown(run: &Run, style: Style) -> String {
        let record = run.record();
        summary(&judge(&record, &[]), &record, style)
    }

    fn in_a_guest(require: &str) -> Run {
        run(require, 93_210)
            .machine(|machine| {
                machine.virtualisation = Some("kvm".to_owned());
                machine.kernel.preemption = Preemption::Voluntary;
            })
            .tally(|tally| tally.smi = Some(2))
    }

    /// Eight cells, the last never started.
    fn many() -> Run {
        let mut plan = "name = \"loads\"\nrequire = [\"max < 1ms\"]\n".to_owned();
        for i in 0..8 {
            plan += &format!("[[phase]]\nname = \"load {i}\"\nduration = \"1s\"\n");
            plan += if i == 3 { "load = [\"fork\"]\n" } else { "" };
        }
        let mut run = Run::new(&plan, 2);
        for cell in 0..7 {
            let quiet = [3_000; 1_000];
            let worst = [4_000, 5_000, 1_000_300 * u64::from(cell)];
            run = run.cell(cell, &[&quiet, &worst]);
        }
        run.load(3, "fork", &[700]).end()
    }

    #[test]
    fn a_pass_is_shown_with_its_figures() {
        let run = run("\"max < 200us\", \"missed = 0\"", 93_210);
        insta::assert_snapshot!(shown(&run, PLAIN), @r"
        two on board, kernel 6.12.0-rt (PREEMPT_RT)
          fifo 90 on CPUs 0-1 every 1 ms

        Wake-up latency in us
                 recorded  missed  min  mean  p50   p99  p99.9  p99.99   max
        rest  4 s
          CPU 0     4,000       0  2.3   3.0  3.0   7.0   11.0    14.0  14.0
          CPU 1     4,000       0  2.9   3.6  4.0   9.0   13.0    21.5  21.5
          all       8,000       0  2.3   3.3  4.0   8.0   13.0    21.5  21.5
        messages  4 s
          load message groups=1: 150,438 messages a second
          CPU 0     4,000       0  4.1   4.8  5.0  13.0   16.0    47.9  47.9
          CPU 1     4,000       0  5.0   5.8  6.0  16.0   19.0    93.2  93.2
          all       8,000       0  4.1   5.3  6.0  13.0   19.0    93.2  93.2
        A 95 % upper bound needs more samples: 177,767 for p99.99.
        rest, messages: in less than 2 min, disturbances that are rare or last for seconds may not
        have occurred: the intervals do not allow for them.

        Beyond the figures
          rest
            the share of wake-ups that the observed maximum covers is not known: late wake-ups
            come in long spells, and this phase contains too few of them: measure until it
            contains at least ten
            one mode: 3.5 us
          messages
            the share of wake-ups that the observed maximum covers is not known: late wake-ups
            come in long spells, and this phase contains too few of them: measure until it
            contains at least ten
            2 modes: 5.5 us (98.98 %) and 15.5 us (1.03 %)
        Tail extrapolation needs at least 40 slices per phase (a slice is 1 s by default).

        Requirements
          max < 200us  pass  in every cell
          missed = 0   pass  in every cell

        Verdict: PASS
          - rest, max < 200us: the maximum is 21.500 us; no latency of 200us or more in 4 s on 2
            threads: with 95 % confidence at most once in 1.33 s, where an event that hits all
            threads counts as one
          - rest, missed = 0: none of 8,000 activations was missed
          - messages, max < 200us: the maximum is 93.210 us; no latency of 200us or more in 4 s on
            2 threads: with 95 % confidence at most once in 1.33 s, where an event that hits all
            threads counts as one
          - messages, missed = 0: none of 8,000 activations was missed

        Next: the time measured doesn't back 'max < 200us once in 1min': that takes 3 min 42 s or
              more under load. To measure until it is decided:
              rtscope run --until 'max < 200us once in 1min'
        ");
    }

    #[test]
    fn a_phase_that_took_another_time_than_planned_says_so() {
        let quiet = [3_000; 3_000];
        let usual = [3_000; 4_000];
        let run = Run::new(&plan(""), 2).cell(0, &[&quiet, &quiet]).cell(1, &[&usual, &usual]);
        let text = shown(&run.end(), PLAIN);
        assert!(
            text.contains("rest  3 s (planned: 4 s)\n") && text.contains("messages  4 s\n"),
            "{text}"
        );
        assert_eq!(text.matches("when its control thread next runs").count(), 1, "{text}");
        let as_planned = shown(&self::run("", 9_000), PLAIN);
        assert!(!as_planned.contains("planned"), "{as_planned}");
    }

    #[test]
    fn one_line_has_the_verdict_and_its_reason() {
        let line = |run: &Run| verdict_line(&judge(&run.record(), &[]));
        let failed = line(&run("\"max < 50us\"", 93_210));
        assert!(
            failed.starts_with("Fail: messages, max < 50us: the maximum is 93.210 us"),
            "{failed}"
        );
        let guest = line(&in_a_guest("\"max < 200us\", \"p99.99 < 40us\""));
        assert!(guest.starts_with("Inconclusive: this is a virtual machine (kvm)"), "{guest}");
        assert!(guest.ends_with(" more reasons)") && !guest.contains('\n'), "{guest}");
        assert_eq!(line(&run("", 93_210)), "Measured: no requirement was given");
    }

    #[test]
    fn a_fail_names_the_cell_and_how_often() {
        let run = run("\"max < 50us\", \"p99.9 < 40us\"", 93_210);
        let text = shown(&run, PLAIN);
        insta::assert_snapshot!(text[text.find("Requirements").expect("a section")..], @r"
        Requirements
          max < 50us    fail          in messages
                        pass          in rest
          p99.9 < 40us  inconclusive  in every cell

        Verdict: FAIL
          - messages, max < 50us: the maximum is 93.210 us; 1 of 8,000 latencies was 50us or more
            in 4 s on 2 threads: once in 8 s on each thread, 95 % interval once in 5 min 16 s to
            once in 403.6 ms

        Next: find out what was in the way of the late wake-ups of messages. The worst was
              93.210 us in messages, CPU 1. As root:
              rtscope run --explain --above 50us
        ");
    }

    #[test]
    fn an_inconclusive_run_says_what_to_do() {
        let text = shown(&in_a_guest("\"max < 200us\", \"p99.99 < 40us\""), PLAIN);
        insta::assert_snapshot!(text[text.find("Requirements").expect("a section")..], @r"
        Requirements
          max < 200us    inconclusive  in every cell (the figures alone: pass)
          p99.99 < 40us  inconclusive  in every cell

        Findings
          prevents pass  this is a virtual machine (kvm): its host decides when it runs
                         [virtual-machine]
                         -> these figures hold for this guest and host: measure the real machine
          warning        system management interrupts during the run: CPU 0: 2, CPU 1: 2 [smi]
                         -> the firmware stops the CPU where no kernel can see it: look for an
                            update, and turn off USB legacy support and power management in its
                            setup
          note           the kernel is PREEMPT_VOLUNTARY, not PREEMPT_RT

        Verdict: INCONCLUSIVE because of virtual-machine
          - rest, p99.99 < 40us: p99.99 of 8,000 latencies is 21.5 us, with 95 % confidence at
            least 11 us: a 95 % upper bound needs at least 177,767 latencies
          - messages, p99.99 < 40us: p99.99 of 8,000 latencies is 93.2 us, with 95 % confidence at
            least 18 us: a 95 % upper bound needs at least 177,767 latencies

        Next: deal with the finding virtual-machine; if it doesn't matter to you, accept it with
              --accept virtual-machine. The figures also leave a requirement open: measure 23
              times as long, with --duration 184s.
        ");
    }

    #[test]
    fn a_measured_run_is_asked_for_its_deadline() {
        let text = shown(&in_a_guest(""), PLAIN);
        insta::assert_snapshot!(text[text.find("Verdict").expect("a section")..], @r"
        Verdict: MEASURED
          - no requirement was given

        Next: give your deadline to get a verdict, for example --require 'max<100us'.
        ");
    }

    #[test]
    fn many_cells_have_a_line_each() {
        insta::assert_snapshot!(shown(&many(), PLAIN), @r"
        loads on board, kernel 6.12.0-rt (PREEMPT_RT)
          fifo 90 on CPUs 0-1 every 1 ms

        Wake-up latency in us
                recorded  missed  min  mean  p50  p99  p99.9  p99.99    max
        load 0     1,003       0  0.0   3.0  4.0  4.0    5.0     5.0    5.0
        load 1     1,003       1  3.0   4.0  4.0  4.0    6.0   1,000  1,000
        load 2     1,003       2  3.0   5.0  4.0  4.0    6.0   2,001  2,001
        load 3     1,003       3  3.0   6.0  4.0  4.0    6.0   3,001  3,001
        load 4     1,003       4  3.0   7.0  4.0  4.0    6.0   4,001  4,001
        load 5     1,003       5  3.0   8.0  4.0  4.0    6.0   5,002  5,002
        load 6     1,003       6  3.0   9.0  4.0  4.0    6.0   6,002  6,002
        load 7         0       0    -     -    -    -      -       -      -
        7 phases: no intervals for the tail: only a phase of at least 2 s shows whether late
        wake-ups come in clusters.

        Loads
          load 3, fork: 700 messages a second

        Beyond the figures
          the report has the coverage of the maxima, modes and tails

        Requirements
          max < 1ms  fail          in load 1, load 2, load 3, load 4, load 5, load 6
                     inconclusive  in load 7
                     inconclusive  in load 0 (the figures alone: pass)

        Findings
          prevents pass  the run did not reach: load 7 [phases-not-run]
                         -> let the run end

        Verdict: FAIL
          - load 1, max < 1ms: the maximum is 1,000.300 us; 1 of 1,003 latencies was 1ms or more
            in 1 s on 2 threads: once in 1 s on each thread (no interval: only a phase of at least
            2 s shows whether late wake-ups come in clusters)
          - load 2, max < 1ms: the maximum is 2,000.600 us; 1 of 1,003 latencies was 1ms or more
            in 1 s on 2 threads: once in 1.01 s on each thread (no interval: only a phase of at
            least 2 s shows whether late wake-ups come in clusters)
          - load 3, max < 1ms: the maximum is 3,000.900 us; 1 of 1,003 latencies was 1ms or more
            in 1 s on 2 threads: once in 1.01 s on each thread (no interval: only a phase of at
            least 2 s shows whether late wake-ups come in clusters)
          - load 4, max < 1ms: the maximum is 4,001.200 us; 1 of 1,003 latencies was 1ms or more
            in 1 s on 2 threads: once in 1.01 s on each thread (no interval: only a phase of at
            least 2 s shows whether late wake-ups come in clusters)
          - load 5, max < 1ms: the maximum is 5,001.500 us; 1 of 1,003 latencies was 1ms or more
            in 1 s on 2 threads: once in 1.01 s on each thread (no interval: only a phase of at
            least 2 s shows whether late wake-ups come in clusters)
          - load 6, max < 1ms: the maximum is 6,001.800 us; 1 of 1,003 latencies was 1ms or more
            in 1 s on 2 threads: once in 1.01 s on each thread (no interval: only a phase of at
            least 2 s shows whether late wake-ups come in clusters)

        Next: find out what was in the way of the late wake-ups of load 1, load 2, load 3, load 4,
              load 5, load 6. The worst was 6,001.800 us in load 6, CPU 1. As root:
              rtscope run --explain --above 1ms
        ");
    }

    #[test]
    fn of_many_threads_the_worst_are_shown() {
        let plan = "name = \"p\"\n[[phase]]\nname = \"rest\"\nduration = \"1s\"";
        let latencies: Vec<Vec<u64>> = (0..12).map(|t| vec![10_000 - t * 500; 50]).collect();
        let threads: Vec<&[u64]> = latencies.iter().map(Vec::as_slice).collect();
        let text = shown(&Run::new(plan, 12).cell(0, &threads).end(), PLAIN);
        assert!(text.contains("\n  CPU 7  ") && !text.contains("\n  CPU 8  "), "{text}");
        assert!(text.contains("\n  and 4 threads with smaller maxima\n"), "{text}");
    }

    #[test]
    fn every_line_fits() {
        for width in [80, 100, 140] {
            let style = Style { width, colour: false };
            for run in [in_a_guest("\"p99 < 1us\""), many(), run("\"max < 50us\"", 5_000_000_000)] {
                for line in shown(&run, style).lines() {
                    assert!(line.chars().count() <= width, "{width}: {line}");
                }
            }
        }
    }

    #[test]
    fn colour_changes_no_text() {
        for run in [in_a_guest("\"max < 50us\""), many(), run("\"max < 200us\"", 93_210)] {
            let coloured = shown(&run, Style { colour: true, ..PLAIN });
            let mut parts = coloured.split('\x1b');
            let first = parts.next().unwrap_or_default().to_owned();
            let stripped = parts.fold(first, |text, part| {
                text + part.split_once('m').expect("an escape code ends with m").1
            });
            assert_ne!(coloured, stripped);
            assert_eq!(stripped, shown(&run, PLAIN));
        }
    }

    #[test]
    fn the_markdown_table_has_every_row() {
        let judgement = judge(&run("", 93_210).record(), &[]);
        insta::assert_snapshot!(table_markdown(&judgement, str::to_owned), @r"
        | cell | thread | recorded | missed | min | mean | p50 | p99 | p99.9 | p99.99 | max |
        |:---|:---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
        | rest | CPU 0 | 4,000 | 0 | 2.3 | 3.0 | 3.0 | 7.0 | 11.0 | 14.0 | 14.0 |
        | rest | CPU 1 | 4,000 | 0 | 2.9 | 3.6 | 4.0 | 9.0 | 13.0 | 21.5 | 21.5 |
        | rest | all | 8,000 | 0 | 2.3 | 3.3 | 4.0 | 8.0 | 13.0 | 21.5 | 21.5 |
        | messages | CPU 0 | 4,000 | 0 | 4.1 | 4.8 | 5.0 | 13.0 | 16.0 | 47.9 | 47.9 |
        | messages | CPU 1 | 4,000 | 0 | 5.0 | 5.8 | 6.0 | 16.0 | 19.0 | 93.2 | 93.2 |
        | messages | all | 8,000 | 0 | 4.1 | 5.3 | 6.0 | 13.0 | 19.0 | 93.2 | 93.2 |
        ");
    }
}
