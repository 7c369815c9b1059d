//! The commands of `xtask/documents.toml` are ones that this program takes: the page of the documents shows them.

use crate::support::{folder, output, text, words};

const ITEMS: &str = include_str!("../../../../xtask/documents.toml");

/// The calls of rtscope in the command lines, without what the shell does with them.
fn calls() -> Vec<Vec<String>> {
    let lines = ITEMS.lines().filter_map(|line| line.strip_prefix("line = \"\"\""));
    let lines = lines.map(|line| line.trim_end_matches('"').replace("2>&1", ""));
    let parts = |line: String| -> Vec<Vec<String>> {
        let parts = line.split(['|', ';', '&']).map(|part| part.split('>').next().unwrap_or(""));
        let all =
            parts.map(words).filter(|words| words.first().is_some_and(|one| one == "rtscope"));
        all.map(|words| words[1..].to_vec()).collect()
    };
    lines.flat_map(parts).collect()
}

#[test]
fn the_documents_commands_have_only_options_that_exist() {
    let room = folder();
    let calls = calls();
    assert!(calls.len() > 60, "{} calls", calls.len());
    // The front ends take other programs' options, which their own tests run.
    let own = calls.iter().filter(|call| !["cyclictest", "hackbench"].contains(&call[0].as_str()));
    for call in own {
        let command = call.iter().position(|word| word == "--").unwrap_or(call.len());
        let line = format!("{} --help", call[..command].join(" "));
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
            ["lab", "run", plan] | ["run", plan, ..] => format!("plan show {plan}"),
            ["sched", "run", experiment] => format!("sched show {experiment}"),
            ["kernel", verb, kernel] if !["install", "rollback", "diff"].contains(&verb) => {
                format!("kernel show {kernel}")
            }
            _ => continue,
        };
        let asked = output(room.path(), &line);
        assert!(asked.status.success(), "{line}: {}", text(&asked.stderr));
        checked += 1;
    }
    assert!(checked > 20, "{checked}");
}
