//! The one step that fits best after a run: what to type next.

use rtscope_model::{
    cpu::CpuSet,
    doctor::{DoctorFinding, MachineFacts},
    event::Event,
    finding::{DAMAGE, Weight},
    record::Record,
    text::shell_word,
    time::Nanos,
    verdict::{Requirement, Statistic, Verdict},
};
use serde::Serialize;

use crate::{
    doctor,
    judgement::{CellSummary, Judgement, RequirementOutcome},
    number::exact_us,
    statistics::{
        claim,
        dependence::IntervalRefusal,
        exceedance,
        explain::{Culprit, culprits, explain},
        quantile,
    },
};

/// Claims that a longer run may back.
const CLAIMS: [Nanos; 4] = [
    Nanos::from_secs(60),
    Nanos::from_secs(3_600),
    Nanos::from_secs(86_400),
    Nanos::from_secs(7 * 86_400),
];

/// What to do after a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextStep {
    /// Stable name of the kind of step.
    pub code: &'static str,
    /// In sentences; the last one ends with a colon where a command follows.
    pub text: String,
    /// What to type, where it is one command.
    pub command: Option<String>,
}

impl NextStep {
    fn new(code: &'static str, text: String) -> NextStep {
        NextStep { code, text, command: None }
    }

    fn with_command(code: &'static str, text: &str, command: String) -> NextStep {
        NextStep { code, text: format!("{text}:"), command: Some(command) }
    }
}

/// The step that fits best; none after a pass that needs nothing more.
#[must_use]
pub fn next_step(judgement: &Judgement, record: &Record) -> Option<NextStep> {
    let repaired = || repair(judgement, &[]).map(|text| NextStep::new("resolve-findings", text));
    // Nobody leaves a guest to look at figures.
    let before_use = || {
        let text = repair(judgement, &["virtual-machine"])?;
        Some(NextStep::new("resolve-findings", text))
    };
    match judgement.verdict {
        Verdict::Measured => against_culprit(record)
            .or_else(|| unfinished(judgement, record))
            .or_else(|| swallowed(judgement, record))
            .or_else(before_use)
            .or_else(|| ask(judgement)),
        // An import backs no claim, however long it is.
        Verdict::Pass if record.is_imported() => None,
        Verdict::Pass => longer(judgement),
        Verdict::Fail if record.is_imported() => {
            let text = format!(
                "to find the cause of the latencies of {}, measure with 'rtscope run'.{}",
                failed_names(judgement),
                worst(judgement).1
            );
            Some(NextStep::new("measure-here", text))
        }
        Verdict::Fail => against_culprit(record)
            .or_else(|| change_setting(judgement, record))
            .or_else(|| Some(explain_again(judgement, record))),
        // Nobody can run it longer: the file is as long as it is.
        Verdict::Inconclusive if record.is_imported() => repaired(),
        Verdict::Inconclusive => {
            let figures = open_claim(judgement).or_else(|| more_samples(judgement, record));
            match (repaired(), figures) {
                (Some(first), Some(then)) => Some(NextStep {
                    text: format!(
                        "{} The figures also leave a requirement open: {}",
                        first.text, then.text
                    ),
                    command: then.command,
                    ..first
                }),
                (first, then) => first.or(then),
            }
        }
    }
}

/// After a run without requirement that did not come to its end.
fn unfinished(judgement: &Judgement, record: &Record) -> Option<NextStep> {
    let has = |code: &str| {
        judgement.findings.iter().any(|f| f.code == code && f.weight >= Weight::PreventsPass)
    };
    // Who asks for an end at a latency wants no more.
    if !has("phases-not-run") || has("break-hit") {
        return None;
    }
    let text = "the run ended early, so some phases were not measured. To measure all of them";
    Some(NextStep::with_command("measure-again", text, own_command(record, &[])))
}

/// What helps against what took the most time of the late wake-ups, where the run explained them.
fn against_culprit(record: &Record) -> Option<NextStep> {
    let explained = record.explained.as_deref()?;
    let found = culprits(&explain(explained), explained.is_preempt_rt, explained.is_guest);
    Some(NextStep::new("remove-culprit", remedy_text(found.first()?)))
}

fn remedy_text(culprit: &Culprit) -> String {
    format!(
        "The largest part of the delays was {}, {}: up to {} in one wake-up. {}, then measure again.",
        culprit.kind.text(),
        culprit.name,
        exact_us(culprit.worst_ns),
        capitalised(culprit.remedy.trim_end_matches('.'))
    )
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    first + characters.as_str()
}

/// The setting of the machine that may alone add as much as was seen.
fn change_setting(judgement: &Judgement, record: &Record) -> Option<NextStep> {
    let limit_ns = failed_limit_ns(judgement)?;
    let (worst_ns, sentence) = worst(judgement);
    let finding = suspect(record, limit_ns, worst_ns?)?;
    let delay =
        finding.delay_ns.map_or(String::new(), |ns| format!(", which may add {}", Nanos(ns)));
    let command = format!("rtscope doctor --deadline {}", Nanos(limit_ns).exact());
    let text = format!(
        "{}{delay} (rule {}).{sentence} The settings to change, the worst first",
        capitalised(&finding.text),
        finding.code
    );
    Some(NextStep::with_command("change-setting", &text, command))
}

/// What `rtscope doctor` finds worst on the measured CPUs, of what the run itself left as it was.
fn suspect(record: &Record, limit_ns: u64, worst_ns: u64) -> Option<DoctorFinding> {
    let facts = MachineFacts { environment: record.before.clone()?, ..MachineFacts::default() };
    let cpus: CpuSet = record.threads.iter().flat_map(|thread| thread.found.cpus.iter()).collect();
    let changes = || {
        record.events.iter().filter_map(|stamped| match &stamped.event {
            Event::SettingChanged { setting, to, .. } => Some((setting.as_str(), to.as_str())),
            _ => None,
        })
    };
    let held_us = changes().find(|(setting, _)| *setting == "dma-latency");
    let held_us = held_us.and_then(|(_, to)| to.parse().ok()).unwrap_or(u64::MAX);
    let is_changed = |code: &str| {
        changes().any(|(setting, _)| {
            // A rule is named after its setting: thp-always, throttling-on.
            let rest = code.strip_prefix(setting);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
                || (setting == "idle-state" && code == "deep-idle")
        })
    };
    doctor::suspects(&facts, cpus, held_us, limit_ns)
        .into_iter()
        .filter(|finding| !is_changed(&finding.code))
        // An order of magnitude: what may add 500 us explains 5 ms at most.
        .find(|finding| finding.delay_ns.is_some_and(|ns| ns.saturating_mul(10) >= worst_ns))
}

/// The same run with an explanation of its late wake-ups.
fn explain_again(judgement: &Judgement, record: &Record) -> NextStep {
    let above = failed_limit_ns(judgement);
    let text = format!(
        "find out what was in the way of the late wake-ups of {}.{} As root",
        failed_names(judgement),
        worst(judgement).1
    );
    NextStep::with_command("explain", &text, explain_command(record, above))
}

/// After a run without requirement: activations that were missed because the thread was still late from an earlier one.
fn swallowed(judgement: &Judgement, record: &Record) -> Option<NextStep> {
    let is_known = |cell: &&CellSummary| cell.all.missed_is_known;
    let missed: u64 = judgement.cells.iter().filter(is_known).map(|cell| cell.all.missed).sum();
    if missed == 0 || record.is_imported() {
        return None;
    }
    let text = format!(
        "{} missed, because a thread was late by more than its interval. To find out what was in the way, as root",
        match missed {
            1 => "1 activation was".to_owned(),
            n => format!("{} activations were", crate::number::grouped(n)),
        }
    );
    Some(NextStep::with_command("explain", &text, explain_command(record, None)))
}

/// The run's own command with `--explain`.
fn explain_command(record: &Record, above_ns: Option<u64>) -> String {
    let above = above_ns.map_or(String::new(), |ns| format!(" --above {}", Nanos(ns).exact()));
    format!("{} --explain{above}", own_command(record, &["--explain", "--above"]))
}

/// The run's command without the folder of its results, a comparison, and some more options; `rtscope run` where it
/// isn't one of that verb.
fn own_command(record: &Record, but: &[&str]) -> String {
    let command = record.events.iter().find_map(|stamped| match &stamped.event {
        Event::RunStarted { command, .. } => Some(command.as_slice()),
        _ => None,
    });
    let Some([_, verb, words @ ..]) = command else { return "rtscope run".to_owned() };
    if verb != "run" {
        return "rtscope run".to_owned();
    }
    const LEFT_OUT: [&str; 3] = ["--out", "-o", "--compare-with"];
    // Those with a value.
    let is_left_out =
        |option: &str| LEFT_OUT.contains(&option) || option == "--above" && but.contains(&option);
    let mut text = "rtscope run".to_owned();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if is_left_out(word) {
            words.next();
            continue;
        }
        let is_joined = word.split_once('=').is_some_and(|(option, _)| is_left_out(option));
        if !is_joined && word != "--json" && !but.contains(&word.as_str()) {
            text.push(' ');
            text.push_str(&shell_word(word));
        }
    }
    text
}

/// The tightest limit of a maximum that failed.
fn failed_limit_ns(judgement: &Judgement) -> Option<u64> {
    let failed = judgement.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Fail);
    let maxima = failed.filter(|outcome| outcome.requirement.statistic == Statistic::Max);
    maxima.map(|outcome| outcome.requirement.limit).min()
}

fn failed_cells(judgement: &Judgement) -> Vec<&CellSummary> {
    let failed: Vec<&RequirementOutcome> =
        judgement.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Fail).collect();
    let has_failed = |cell: &&CellSummary| failed.iter().any(|outcome| outcome.cell == cell.cell);
    judgement.cells.iter().filter(has_failed).collect()
}

fn failed_names(judgement: &Judgement) -> String {
    let cells = failed_cells(judgement);
    cells.iter().map(|cell| cell.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The worst latency of the cells that failed, in ns and in a sentence.
fn worst(judgement: &Judgement) -> (Option<u64>, String) {
    let cells = failed_cells(judgement);
    let rows = cells.iter().flat_map(|cell| cell.threads.iter().map(move |row| (*cell, row)));
    let worst = rows.filter_map(|(cell, row)| Some((row.max_ns()?, cell, row)));
    let Some((max_ns, cell, row)) = worst.max_by_key(|(max_ns, ..)| *max_ns) else {
        return (None, String::new());
    };
    let least = if row.max_is_at_least() { "at least " } else { "" };
    let place = format!("{least}{} in {}, {}", exact_us(max_ns), cell.name, row.label);
    (Some(max_ns), format!(" The worst was {place}."))
}

/// Findings that say that what was asked didn't take place: no advice to accept them.
const NOT_DONE: [&str; 7] = [
    "load-did-not-run",
    "load-did-not-start",
    "load-ended-early",
    "no-samples",
    "phases-not-run",
    "run-failed",
    "run-interrupted",
];

/// Which findings stand in the way of a pass.
fn repair(judgement: &Judgement, but: &[&str]) -> Option<String> {
    let mut codes: Vec<&str> = Vec::new();
    for finding in judgement.findings.iter().filter(|f| f.weight >= Weight::PreventsPass) {
        let is_left = but.contains(&finding.code.as_str());
        if !is_left && !codes.contains(&finding.code.as_str()) {
            codes.push(&finding.code);
        }
    }
    let is_acceptable = |code: &&&str| !DAMAGE.contains(code) && !NOT_DONE.contains(code);
    let acceptable: Vec<String> =
        codes.iter().filter(is_acceptable).map(|code| format!("--accept {code}")).collect();
    let is_damaged = codes.iter().any(|code| DAMAGE.contains(code));
    let accept = (judgement.verdict != Verdict::Measured && !acceptable.is_empty()).then(|| {
        let accept = acceptable.join(" ");
        match codes.len() {
            1 => format!("if it doesn't matter to you, accept it with {accept}"),
            _ => format!("accept those that don't matter to you with {accept}"),
        }
    });
    let again = is_damaged.then(|| {
        "the record is damaged, which can't be accepted: use the record as the run wrote it, or measure \
         again"
            .to_owned()
    });
    codes.first()?;
    let noun = if codes.len() == 1 { "finding" } else { "findings" };
    let deal = format!("deal with the {noun} {}", codes.join(", "));
    let see = match judgement.verdict {
        Verdict::Measured => format!("before you rely on the figures, {deal}"),
        _ => deal,
    };
    let steps: Vec<String> = [Some(see), again, accept].into_iter().flatten().collect();
    Some(steps.join("; ") + ".")
}

/// How to get a verdict, with the first round limit above what was seen as an example.
fn ask(judgement: &Judgement) -> Option<NextStep> {
    let maxima = judgement.cells.iter().filter_map(|cell| cell.all.max_ns());
    let max_ns = maxima.max()?;
    let above = exceedance::round_limits_ns(max_ns, max_ns).last().map(|&ns| Nanos(ns).exact())?;
    let text = format!("give your deadline to get a verdict, for example --require 'max<{above}'.");
    Some(NextStep::new("give-deadline", text))
}

/// After a pass: the next stronger claim about the tightest limit of the maximum, and how long it takes.
fn longer(judgement: &Judgement) -> Option<NextStep> {
    let limits = judgement.outcomes.iter().filter(|o| o.requirement.statistic == Statistic::Max);
    let limit_ns = limits.map(|outcome| outcome.requirement.limit).min()?;
    let shortest_ns = judgement.cells.iter().map(|cell| cell.watch().by_all_ns).min()?;
    let now = exceedance::at_most_once_in(shortest_ns);
    let once_in = CLAIMS.iter().find(|once_in| once_in.0 > 2 * now.0)?;
    let limit = Nanos(limit_ns).exact();
    Some(until(&format!("max < {limit} once in {}", once_in.exact()), *once_in))
}

/// A claim that the time measured neither backs nor refutes.
fn open_claim(judgement: &Judgement) -> Option<NextStep> {
    let open = |outcome: &&RequirementOutcome| outcome.figures_verdict == Verdict::Inconclusive;
    let claimed = judgement.outcomes.iter().filter(open).filter_map(|outcome| {
        let (_, once_in) = outcome.requirement.claim()?;
        Some((&outcome.requirement, once_in))
    });
    let (requirement, once_in): (&Requirement, Nanos) =
        claimed.max_by_key(|(_, once_in)| *once_in)?;
    Some(until(&requirement.to_string(), once_in))
}

/// To measure until a claim is decided.
fn until(claim: &str, once_in: Nanos) -> NextStep {
    let needed = Nanos(claim::time_for(once_in, 0).0.next_multiple_of(1_000_000_000));
    let text = format!(
        "the time measured doesn't back '{claim}': that takes {needed} or more under load. To measure until it is \
         decided"
    );
    NextStep::with_command("until", &text, format!("rtscope run --until '{claim}'"))
}

/// How much longer a run must be for a quantile to be bounded.
fn more_samples(judgement: &Judgement, record: &Record) -> Option<NextStep> {
    let open = judgement.outcomes.iter().filter(|o| o.figures_verdict == Verdict::Inconclusive);
    let factors = open.filter_map(|outcome| {
        let Statistic::Quantile(parts) = outcome.requirement.statistic else { return None };
        let cell = judgement.cells.iter().find(|cell| cell.cell == outcome.cell)?;
        let samples = Some(cell.all.corrected.count()).filter(|&samples| samples > 0)?;
        let found = quantile::dependent(&cell.all.corrected, parts, &cell.blocks, true)?;
        // With an upper end, four times the samples halve the interval; what a phase was too short for
        // takes more.
        Some(match found.refusal() {
            Some(IntervalRefusal::Unordered) => return None,
            Some(_) => 10,
            None => found.samples_for_interval().div_ceil(samples).max(4),
        })
    });
    let factor = factors.max()?;
    let duration = duration(record, factor);
    let text = format!("measure {factor} times as long, with {duration}.");
    Some(NextStep::new("measure-longer", text))
}

/// The option that makes the run, as it was, this many times as long. A factor would be of the
/// plan as it ships, which the run may have scaled already.
fn duration(record: &Record, factor: u64) -> String {
    let phases_ns: u64 = record.plan.phases.iter().map(|phase| phase.expected().0).sum();
    let total_ns = phases_ns.saturating_mul(factor).next_multiple_of(1_000_000_000);
    format!("--duration {}", Nanos(total_ns).exact())
}

#[cfg(test)]
mod tests {
    use rtscope_model::environment::{Environment, Preemption};

    use super::*;
    use crate::{judge, statistics::explain::PieceKind, test_support::Run};

    fn plan(require: &str) -> String {
        format!(
            "name = \"two\"\nrequire = [{require}]\n[[phase]]\nname = \"rest\"\nduration = \"2s\"\n[[phase]]\n\
             name = \"messages\"\nduration = \"2s\"\nload = [\"message groups=1\"]\n"
        )
    }

    /// Two phases of one thread, the second with one late wake-up.
    fn run(require: &str, worst_ns: u64) -> Run {
        let mut busy = vec![4_000_u64; 2_000];
        busy[700] = worst_ns;
        Run::new(&plan(require), 1)
            .cell(0, &[&[3_000; 2_000]])
            .cell(1, &[&busy])
            .load(1, "message groups=1", &[1_000, 1_000])
            .end()
    }

    fn step(run: &Run) -> NextStep {
        let record = run.record();
        next_step(&judge(&record, &[]), &record).expect("a step")
    }

    fn stock(machine: &mut Environment) {
        machine.kernel.preemption = Preemption::Voluntary;
    }

    fn started_as(mut run: Run, words: &[&str]) -> Run {
        for stamped in &mut run.events {
            if let Event::RunStarted { command, .. } = &mut stamped.event {
                *command = words.iter().map(|word| (*word).to_owned()).collect();
            }
        }
        run
    }

    #[test]
    fn after_a_fail_the_kernel_is_named_where_it_explains_the_latency() {
        let step = step(&run("\"max < 200us\"", 900_000).machine(stock));
        assert_eq!(step.code, "change-setting");
        assert_eq!(step.command.as_deref(), Some("rtscope doctor --deadline 200us"));
        assert_eq!(
            step.text,
            "The kernel is PREEMPT_VOLUNTARY, not PREEMPT_RT, which may add 5 ms (rule kernel-not-rt). The worst was \
             900.000 us in messages, CPU 0. The settings to change, the worst first:"
        );
    }

    #[test]
    fn a_setting_that_adds_far_less_than_was_seen_explains_nothing() {
        // The stock kernel may add 5 ms, and the wake-up was 60 ms late.
        let late = step(&run("\"max < 200us\"", 60_000_000).machine(stock));
        assert_eq!(late.code, "explain");
        assert_eq!(step(&run("\"max < 200us\"", 40_000_000).machine(stock)).code, "change-setting");
    }

    #[test]
    fn on_a_machine_without_a_high_finding_the_late_wake_ups_are_explained() {
        let words = ["/bin/rtscope", "run", "--require", "max < 200us", "--out", "x y", "--json"];
        let step = step(&started_as(run("\"max < 200us\"", 900_000), &words));
        assert_eq!(step.code, "explain");
        let command = "rtscope run --require 'max < 200us' --explain --above 200us";
        assert_eq!(step.command.as_deref(), Some(command));
        assert!(step.text.contains("900.000 us in messages"), "{}", step.text);
    }

    #[test]
    fn a_hypervisor_is_no_setting_to_change() {
        let guest = run("\"max < 200us\"", 900_000)
            .machine(|machine| machine.virtualisation = Some("kvm".to_owned()));
        assert_eq!(step(&guest).code, "explain");
    }

    #[test]
    fn what_the_run_changed_itself_is_not_to_blame() {
        let slow = |machine: &mut Environment| {
            for cpu in &mut machine.cpus.each {
                cpu.governor = Some("powersave".to_owned());
            }
        };
        let blamed = run("\"max < 200us\"", 900_000).machine(slow);
        assert!(step(&blamed).text.contains("(rule governor)"), "{}", step(&blamed).text);
        let mut changed = blamed;
        let event = Event::SettingChanged {
            setting: "governor".to_owned(),
            path: "/sys/x".to_owned(),
            from: "powersave".to_owned(),
            to: "performance".to_owned(),
        };
        let stamped = changed.events[1].clone();
        changed.events.insert(1, rtscope_model::event::Stamped { event, ..stamped });
        assert_eq!(step(&changed).code, "explain");
    }

    #[test]
    fn a_pass_and_an_open_claim_end_with_a_run_until_the_claim_is_decided() {
        let passed = step(&run("\"max < 200us\"", 9_000));
        assert_eq!(passed.code, "until");
        let command = "rtscope run --until 'max < 200us once in 1min'";
        assert_eq!(passed.command.as_deref(), Some(command));
        // 3.69 times the claimed time: docs/method/claims.md.
        assert!(passed.text.contains("that takes 3 min 42 s or more"), "{}", passed.text);
        let open = step(&run("\"max < 200us once in 1h\"", 9_000));
        let command = "rtscope run --until 'max < 200us once in 1h'";
        assert_eq!((open.code, open.command.as_deref()), ("until", Some(command)));
    }

    #[test]
    fn without_a_requirement_it_asks_for_one_unless_activations_were_missed() {
        let asked = step(&run("", 9_000));
        assert_eq!((asked.code, asked.command), ("give-deadline", None));
        // 2.5 intervals late: two activations pass by.
        let late = step(&run("", 2_500_000));
        assert_eq!(late.code, "explain");
        assert!(late.text.starts_with("2 activations were missed"), "{}", late.text);
        assert_eq!(late.command.as_deref(), Some("rtscope run --explain"));
    }

    #[test]
    fn findings_that_prevent_a_pass_come_first() {
        let mut guest = run("\"max < 200us\"", 9_000)
            .machine(|machine| machine.virtualisation = Some("kvm".to_owned()));
        assert_eq!(step(&guest).code, "resolve-findings");
        guest.plan = plan("");
        assert_eq!(step(&guest).code, "give-deadline", "a guest without a requirement");
    }

    #[test]
    fn a_step_names_all_findings_to_accept_and_what_the_figures_leave_open() {
        let guest = |require: &str| {
            run(require, 9_000).machine(|machine| {
                machine.virtualisation = Some("kvm".to_owned());
                machine.clock.resolution_ns = Some(4_000_000);
            })
        };
        let met = step(&guest("\"max < 200us\""));
        assert!(
            met.text.contains("accept those that don't matter to you with --accept ")
                && met.text.matches("--accept ").count() == 2,
            "{}",
            met.text
        );
        let open = step(&guest("\"max < 200us once in 1h\""));
        assert_eq!(open.code, "resolve-findings");
        assert!(
            open.text.contains("leave a requirement open: the time measured doesn't back"),
            "{}",
            open.text
        );
        let command = "rtscope run --until 'max < 200us once in 1h'";
        assert_eq!(open.command.as_deref(), Some(command));
    }

    #[test]
    fn after_a_run_that_was_interrupted_the_whole_is_measured() {
        let words = ["rtscope", "run", "--explain", "mine.toml"];
        let first = Run::new(&plan(""), 1).cell(0, &[&[3_000; 2_000]]).end();
        let interrupted = step(&started_as(first, &words));
        assert_eq!(interrupted.code, "measure-again");
        assert_eq!(interrupted.command.as_deref(), Some("rtscope run --explain mine.toml"));
    }

    #[test]
    fn what_delayed_most_is_named_as_in_the_table_of_causes() {
        let culprit = Culprit {
            kind: PieceKind::Steal,
            name: "whatever ran".to_owned(),
            count: 2,
            worst_ns: 6_814_711,
            sum_ns: 7_000_000,
            place: None,
            remedy: "measure on the host",
        };
        assert_eq!(
            remedy_text(&culprit),
            "The largest part of the delays was CPU taken by the host, whatever ran: up to 6,814.711 us in one \
             wake-up. Measure on the host, then measure again."
        );
    }
}
