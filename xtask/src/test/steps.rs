//! What the tests consist of: calls of cargo, and test programs, each of which is in at least one step.

use super::programs::TestProgram;
use crate::shell;

/// The step that compiles, with clippy's driver.
pub(super) const BUILD: &str = "build";

/// A step, and what it runs.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) work: Work,
    /// If it runs tests, they are counted: fewer than this were not found.
    pub(super) least: Option<usize>,
}

/// What a step runs.
pub(super) enum Work {
    /// Cargo, with these words.
    Cargo(Vec<String>),
    /// The chosen test programs, with these words.
    Programs(fn(&TestProgram) -> bool, Vec<String>),
}

impl Step {
    fn cargo(name: &'static str, words: &str, least: Option<usize>) -> Step {
        Step { name, work: Work::Cargo(words_of(words)), least }
    }

    fn programs(
        name: &'static str,
        chosen: fn(&TestProgram) -> bool,
        words: &str,
        least: usize,
    ) -> Step {
        Step { name, work: Work::Programs(chosen, words_of(words)), least: Some(least) }
    }
}

fn words_of(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Crates whose tests neither change nor measure the machine.
const CALCULATE: [&str; 3] = ["rtscope-analyse", "rtscope-histogram", "rtscope-model"];

/// Integration tests of the program.
const PROGRAM: &str = "it";

/// Integration tests whose guests take longer than all other tests together.
const LAB: &str = "lab";

/// Lab tests whose guests run in virtual time, and so may wait. They run beside the tests that measure: `rtscope lab`
/// doesn't restore what one of the measuring tests has left on purpose.
const PATIENT: [&str; 5] = ["beside::", "experiments::", "explain::", "preemption::", "verbs::"];

/// Tests of the program that neither change this machine nor judge how late it wakes threads: each has folders, ports and
/// machines of its own.
const OF_THEIR_OWN: [&str; 26] = [
    "accounting::",
    "check::",
    "collect::",
    "command_lines::",
    "compare::",
    "doctor::",
    "doctor_input::",
    "documents::",
    "explain_files::",
    "export::",
    "fleet",
    "history::",
    "hostile::",
    "import::",
    "kernels::",
    "lava::",
    "long::",
    "mutations::",
    "packaging::",
    "page::",
    "ps::",
    "pull_lab::",
    "skeletons::",
    "stat::",
    "streams::",
    "wrong_input::",
];

/// The commands of the documents, which change settings of the machine. They are short, and wait for each other where they must.
const DOCUMENTED: &str = "book::";

/// Examples of the documentation, at least: each library that others can use has one on its front page.
const EXAMPLES: usize = 8;

/// All steps that run cargo or test programs.
pub(super) struct Steps {
    /// What the others need.
    pub(super) build: Step,
    /// Boots guests, two at a time, beside `computing`.
    pub(super) guests: Step,
    /// The result is the same on a busy machine.
    pub(super) computing: Vec<Step>,
    /// Changes and measures the machine.
    pub(super) measuring: Step,
    /// Neither looks at the machine nor changes it, and the result is the same however little CPU time there is: beside
    /// `measuring`, with the CPU time that nobody else wants.
    pub(super) patient: Vec<Step>,
}

impl Steps {
    /// With `is_long`, also the tests that are ignored since their guests take minutes.
    pub(super) fn new(is_long: bool) -> Steps {
        let skip = |names: &[&str]| -> String {
            names.iter().map(|name| format!(" --skip {name}")).collect()
        };
        let ignored = if is_long { "--include-ignored" } else { "" };
        let (patient, of_their_own) = (PATIENT.join(" "), OF_THEIR_OWN.join(" "));
        let whole = shell::WORKSPACE.join(" ");
        Steps {
            build: Step::cargo(BUILD, &format!("test {whole} --no-run"), None),
            guests: Step::programs(
                "lab-tests",
                |it| it.is(LAB),
                &format!("--test-threads=2 {ignored}{}", skip(&PATIENT)),
                10,
            ),
            computing: vec![
                Step::programs("unit-tests", is_unit_test, "", 100),
                Step::programs(
                    "other-tests",
                    |it| it.is(PROGRAM),
                    &format!("--test-threads=4 {of_their_own}"),
                    20,
                ),
                Step::programs("documented", |it| it.is(PROGRAM), DOCUMENTED, 3),
                Step::cargo(
                    "doc-tests",
                    &format!("test {whole} --no-fail-fast --doc"),
                    Some(EXAMPLES),
                ),
            ],
            measuring: Step::programs(
                "measuring-tests",
                measures,
                &format!("--test-threads=1{} --skip {DOCUMENTED}", skip(&OF_THEIR_OWN)),
                100,
            ),
            patient: vec![
                Step::programs("calculating-tests", calculates, "", 100),
                Step::programs(
                    "patient-guests",
                    |it| it.is(LAB),
                    &format!("--test-threads=2 {ignored} {patient}"),
                    2,
                ),
            ],
        }
    }
}

fn calculates(program: &TestProgram) -> bool {
    CALCULATE.contains(&program.of())
}

/// The chores have no other tests than of their parts.
fn is_unit_test(program: &TestProgram) -> bool {
    (program.name.is_none() || program.of() == "xtask") && !calculates(program)
}

/// Whether a program's tests look at the machine, at least some of them.
fn measures(program: &TestProgram) -> bool {
    !is_unit_test(program) && !calculates(program) && !program.is(LAB)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// All of the workspace, as the folders show them.
    fn programs() -> Vec<TestProgram> {
        let crates = fs::read_dir(crate::root().join("crates")).expect("crates");
        let folders = crates.map(|it| it.expect("a folder").path());
        folders.chain([crate::root().join("xtask")]).flat_map(|folder| of_folder(&folder)).collect()
    }

    fn of_folder(folder: &Path) -> Vec<TestProgram> {
        let mut found = vec![TestProgram::at(folder, None)];
        for test in fs::read_dir(folder.join("tests")).into_iter().flatten() {
            let path = test.expect("an entry").path();
            if path.extension().is_some_and(|it| it == "rs") || path.join("main.rs").exists() {
                let name = path.file_stem().expect("a name").to_string_lossy();
                found.push(TestProgram::at(folder, Some(&name)));
            }
        }
        found
    }

    #[test]
    fn each_test_program_is_in_a_step_and_only_those_of_several_kinds_in_more() {
        let programs = programs();
        assert!(programs.len() > 20, "{programs:?}");
        let Steps { build, guests, computing, measuring, patient } = Steps::new(false);
        let all: Vec<Step> =
            [computing, patient].into_iter().flatten().chain([build, guests, measuring]).collect();
        for program in programs {
            let takes = |step: &&Step| match step.work {
                Work::Programs(chosen, _) => chosen(&program),
                Work::Cargo(_) => false,
            };
            let expected = match program.name.as_deref() {
                Some(PROGRAM) => 3,
                Some(LAB) => 2,
                _ => 1,
            };
            assert_eq!(all.iter().filter(takes).count(), expected, "{program:?}");
        }
    }
}
