//! The commands of `xtask/documents.toml` and of the pages in `docs/walks` are ones that this program takes.

use crate::support::{folder, output, text, words};

const ITEMS: &str = include_str!("../../../../xtask/documents.toml");

/// The pages that follow a document step by step.
const WALKS: [&str; 5] = [
    include_str!("../../../../docs/walks/course-lab.md"),
    include_str!("../../../../docs/walks/project-report.md"),
    include_str!("../../../../docs/walks/policy-study.md"),
    include_str!("../../../../docs/walks/vendor-training.md"),
    include_str!("../../../../docs/walks/microblaze.md"),
];

/// The calls of rtscope in a line, without what the shell does with them.
pub(crate) fn calls_in(line: &str) -> Vec<Vec<String>> {
    let line = line.replace("2>&1", "");
    let parts = line.split(['|', ';', '&', '#']).map(|part| part.split('>').next().unwrap_or(""));
    let call = |words: Vec<String>| {
        let begin = words.iter().position(|word| word != "$" && word != "sudo")?;
        let arguments = words.get(begin + 1..)?;
        (words[begin] == "rtscope" && !arguments.is_empty()).then(|| arguments.to_vec())
    };
    parts.map(words).filter_map(call).collect()
}

/// What a page shows as code: the lines of its blocks, and the code in its text.
fn shown(page: &str) -> Vec<String> {
    let mut shown = Vec::new();
    let (mut prose, mut in_block) = (String::new(), false);
    for line in page.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            shown.push(line.to_owned());
        } else {
            prose.push_str(line);
            prose.push(' ');
        }
    }
    shown.extend(prose.split('`').skip(1).step_by(2).map(str::to_owned));
    shown
}

/// All calls of rtscope: those of the items, then those of the pages.
fn calls() -> Vec<Vec<String>> {
    let lines = ITEMS.lines().filter_map(|line| line.strip_prefix("line = \"\"\""));
    let lines = lines.map(|line| line.trim_end_matches('"').to_owned());
    let shown = WALKS.iter().flat_map(|page| shown(page));
    lines.chain(shown).flat_map(|line| calls_in(&line)).collect()
}

#[test]
fn a_page_shows_its_calls_in_blocks_and_in_its_text() {
    let page = "Say `rtscope run lab`, or `rtscope plan\nshow lab`; not `rtscope`.\n\n```sh\n\
                sudo rtscope run lab --out a    # a comment\n$ rtscope ps & rtscope ps --rt > x\ncargo x\n```\n";
    let calls: Vec<String> =
        shown(page).iter().flat_map(|line| calls_in(line)).map(|call| call.join(" ")).collect();
    assert_eq!(calls, ["run lab --out a", "ps", "ps --rt", "run lab", "plan show lab"]);
}

#[test]
fn the_documents_commands_have_only_options_that_exist() {
    let room = folder();
    let calls = calls();
    assert!(calls.len() > 180, "{} calls", calls.len());
    // The front ends take other programs' options, which their own tests run.
    let own = calls.iter().filter(|call| !["cyclictest", "hackbench"].contains(&call[0].as_str()));
    for call in own {
        let command = call.iter().position(|word| word == "--").unwrap_or(call.len());
        let arguments = call[..command].iter().map(|word| format!("'{word}'"));
        let line = format!("{} --help", arguments.collect::<Vec<_>>().join(" "));
        let asked = output(room.path(), &line);
        assert!(asked.status.success(), "{line}: {}", text(&asked.stderr));
        assert!(text(&asked.stdout).contains("Usage:"), "{line}");
    }
}

#[test]
fn the_documents_plans_experiments_and_kernels_exist() {
    let room = folder();
    let mut checked = 0;
    for call in calls() {
        let verbs: Vec<&str> = call.iter().map(String::as_str).take(3).collect();
        let line = match verbs[..] {
            ["lab", "run", plan] | ["run", plan, ..] if !plan.starts_with('-') => {
                format!("plan show {plan}")
            }
            ["plan", "show", plan] => format!("plan show {plan}"),
            ["sched", "run" | "show", experiment] if !experiment.ends_with(".toml") => {
                format!("sched show {experiment}")
            }
            ["kernel", verb, kernel] if !["install", "rollback", "diff"].contains(&verb) => {
                format!("kernel show {kernel}")
            }
            _ => continue,
        };
        let asked = output(room.path(), &line);
        assert!(asked.status.success(), "{line}: {}", text(&asked.stderr));
        checked += 1;
    }
    assert!(checked > 80, "{checked}");
}
