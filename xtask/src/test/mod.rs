//! `cargo xtask test`: everything that must hold, from one command on a fresh clone.
//!
//! Prints one line a step and, alone on the last line, `N passed, N failed, N skipped`: the tests
//! as they count themselves, and each other step as one. A step's whole output is in
//! `target/xtask/STEP.log`; of a failed one, what its failed tests said or its end is printed.

mod fetched;
mod kernel;
mod libtest;
mod publish;
mod skips;
mod soak;

use std::{
    fs,
    io::IsTerminal,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};

use crate::{
    advisories, book, icount, packages,
    shell::{self, Finished},
    tidy,
};
use libtest::{Counts, Skip};

/// A step that takes longer hangs. The guests take longest: minutes on two idle cores, several times as long on busy ones.
const STEP_LIMIT: Duration = Duration::from_secs(60 * 60);

/// How much of a failed step's output is printed where no failed test said anything.
const SHOWN_LINES: usize = 200;

/// Cargo locks its folder while it looks whether the tests are built: a compiler that starts later doesn't hold them up.
const CARGO_LOOKS: Duration = Duration::from_secs(10);

/// The step that compiles, with clippy's driver.
const BUILD: &str = "build";

/// Words for cargo, and what the step is called.
struct Step {
    name: &'static str,
    words: Vec<String>,
    /// For a call of `cargo test`, whose tests are counted: fewer than this were not found.
    tests: Option<usize>,
}

impl Step {
    fn new(name: &'static str, words: &str, tests: Option<usize>) -> Step {
        Step { name, words: words.split(' ').map(str::to_owned).collect(), tests }
    }
}

/// The crate whose tests neither change nor measure the machine.
const CALCULATES: &str = "rtscope-analyse";

/// The tests whose guests take longer than all other tests together.
const LAB: &str = "lab";

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

/// All calls of cargo.
struct Steps {
    /// What the others need.
    first: Vec<Step>,
    /// Boots guests, two at a time, beside `computing`, once their kernel is there.
    guests: Step,
    /// The result is the same on a busy machine.
    computing: Vec<Step>,
    /// Changes and measures the machine.
    measuring: Step,
    /// Neither looks at the machine nor changes it, and the result is the same however little CPU time there is.
    calculating: Step,
}

impl Steps {
    /// With `is_long`, also the tests that are ignored since their guests take minutes.
    fn new(is_long: bool) -> Result<Steps> {
        let programs = test_programs(&crate::root().join("crates"))?;
        let chosen = |is_one: &dyn Fn(&(String, String)) -> bool| -> String {
            let names = programs.iter().filter(|one| is_one(one));
            names.map(|(_, name)| format!(" --test {name}")).collect()
        };
        let calculating = chosen(&|(of, _)| of == CALCULATES);
        let measuring = chosen(&|(of, name)| of != CALCULATES && name != LAB);
        let whole = shell::WORKSPACE.join(" ");
        let test = format!("test {whole} --no-fail-fast");
        let skipped: String = OF_THEIR_OWN.map(|name| format!(" --skip {name}")).concat();
        let chosen_ones: String = OF_THEIR_OWN.map(|name| format!(" {name}")).concat();
        let one_at_a_time =
            format!("{test}{measuring} -- --test-threads=1{skipped} --skip {DOCUMENTED}");
        let ignored = if is_long { " --include-ignored" } else { "" };
        let four_at_a_time = format!("{test} --test=it -- --test-threads=4{chosen_ones}");
        Ok(Steps {
            first: vec![
                Step::new("fmt", "fmt --all --check -- --color=never", None),
                Step::new(BUILD, &format!("test {whole} --no-run"), None),
            ],
            guests: Step::new(
                "lab-tests",
                &format!("{test} --test {LAB} -- --test-threads=2{ignored}"),
                Some(1),
            ),
            computing: vec![
                Step::new("unit-tests", &format!("{test} --lib --bins --test usage"), Some(1)),
                Step::new("other-tests", &four_at_a_time, Some(20)),
                Step::new("documented", &format!("{test} --test=it -- {DOCUMENTED}"), Some(3)),
                Step::new("doc-tests", &format!("{test} --doc"), Some(0)),
            ],
            measuring: Step::new("measuring-tests", &one_at_a_time, Some(1)),
            calculating: Step::new("calculating-tests", &format!("{test}{calculating}"), Some(20)),
        })
    }
}

/// The test programs below a folder of crates: the crate, and the program's name.
fn test_programs(crates: &Path) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for of in fs::read_dir(crates)? {
        let of = of?;
        let Ok(tests) = fs::read_dir(of.path().join("tests")) else { continue };
        for test in tests {
            let path = test?.path();
            let is_one =
                path.extension().is_some_and(|it| it == "rs") || path.join("main.rs").exists();
            if let Some(name) = path.file_stem().filter(|_| is_one) {
                let of = of.file_name().to_string_lossy().into_owned();
                all.push((of, name.to_string_lossy().into_owned()));
            }
        }
    }
    all.sort();
    Ok(all)
}

/// Runs all steps, however many fail, and prints the counts.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let is_long = match words {
        [] => false,
        ["--long"] => true,
        _ => bail!("`cargo xtask test` takes no words but --long"),
    };
    let began = Instant::now();
    let scratch = crate::scratch()?;
    let skip_file = scratch.join("skips.txt");
    fs::write(&skip_file, "")?;
    let run = Run { scratch, skip_file, tally: Mutex::default() };
    let steps = Steps::new(is_long)?;

    run.inside("packages", || Ok(packages::set_up(packages::OF_TESTS)));
    run.inside("components", components);
    run.inside("tidy", || match tidy::run()? {
        true => Ok("the rules hold".to_owned()),
        false => Err(anyhow!("rules are broken")),
    });
    run.advisories();
    thread::scope(|scope| {
        scope.spawn(|| run.fetch());
        steps.first.iter().for_each(|step| run.cargo(step));
    });
    run.inside("clippy", || no_warnings(&run.log(BUILD)));
    run.compute(&steps);
    run.measure(&steps);
    // It changes the machine, and looks at what others change.
    run.inside("soak", || soak::short(&run.log("soak-short")));
    run.skips();

    println!("{:7.1} s  all steps", began.elapsed().as_secs_f64());
    let Counts { passed, failed, skipped } = run.tally().counts;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0)
}

/// What the steps have come to.
#[derive(Default)]
struct Tally {
    counts: Counts,
    ignored: Vec<Skip>,
}

/// A run of all steps.
struct Run {
    scratch: &'static Path,
    skip_file: PathBuf,
    tally: Mutex<Tally>,
}

impl Run {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the whole output of a step is.
    fn log(&self, step: &str) -> PathBuf {
        self.scratch.join(format!("{step}.log"))
    }

    /// What the tests read our pages and exports with: waits for the network, and needs no program of ours.
    fn fetch(&self) {
        for package in &fetched::ALL {
            let log = self.log(package.name);
            let link = self.scratch.join(package.name);
            let tools = crate::tools().unwrap_or_else(|_| self.scratch.join("tools"));
            self.inside(package.name, || fetched::fetch(package, &tools, &link, &log));
        }
    }

    /// What needs the CPUs, and gives the same result on a busy machine: the kernel is built and guests run beside the other
    /// steps. Not beside the tests that measure: their loads need the CPUs too, and each run of the program
    /// restores what one of these tests has left on purpose.
    fn compute(&self, steps: &Steps) {
        let log = self.log("kernel");
        thread::scope(|scope| {
            scope.spawn(|| {
                self.inside("kernel", || kernel::make(&log));
                self.cargo(&steps.guests);
            });
            self.book();
            steps.computing.iter().for_each(|step| self.cargo(step));
            self.instructions();
        });
    }

    /// What measures this machine, and beside it what only calculates or compiles, with the CPU time that nobody else wants:
    /// tests that measure sleep most of the time.
    fn measure(&self, steps: &Steps) {
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(CARGO_LOOKS);
                yield_to_all();
                self.cargo(&steps.calculating);
                let log = self.log("publish");
                self.inside("publish", || publish::trial(&self.scratch.join("publish"), &log));
            });
            self.cargo(&steps.measuring);
        });
    }

    /// A step that is a function of ours; its text says what it found.
    fn inside(&self, name: &str, step: impl FnOnce() -> Result<String>) {
        begin(name);
        let began = Instant::now();
        let outcome = step();
        self.count_one(outcome.is_ok());
        let text = outcome.as_ref().map_or_else(|e| format!("{e:#}"), String::clone);
        say(name, began.elapsed(), outcome.is_ok(), &text);
    }

    /// A step that is a call of cargo.
    fn cargo(&self, step: &Step) {
        let mut command = shell::cargo();
        command.args(&step.words).env(skips::VARIABLE, &self.skip_file);
        command.env("CARGO_TERM_COLOR", "never");
        let log = self.log(step.name);
        begin(step.name);
        let began = Instant::now();
        let outcome = shell::logged(&mut command, &log, STEP_LIMIT);
        let took = began.elapsed();
        let finished = match outcome {
            Ok(finished) => finished,
            Err(e) => {
                self.count_one(false);
                return say(step.name, took, false, &format!("{e:#}"));
            }
        };
        let (ok, text) = match step.tests {
            Some(least) => self.count_tests(&finished, least),
            None => {
                self.count_one(finished.is_ok());
                (finished.is_ok(), String::new())
            }
        };
        say(step.name, took, ok, &text);
        if !ok {
            match libtest::failures(&finished.log).join("\n\n") {
                none if none.is_empty() => {
                    println!("{}", shell::last_lines(&finished.log, SHOWN_LINES));
                }
                failures => println!("{failures}"),
            }
            let how = if finished.status.is_none() { "took too long; its" } else { "failed; its" };
            println!("{} {how} whole output is in {}", step.name, log.display());
        }
    }

    fn count_one(&self, ok: bool) {
        let one = Counts { passed: usize::from(ok), failed: usize::from(!ok), skipped: 0 };
        self.tally().counts += one;
    }

    fn count_tests(&self, finished: &Finished, least: usize) -> (bool, String) {
        let counts = test_counts(&finished.log, finished.is_ok(), least);
        let mut tally = self.tally();
        tally.counts += counts;
        tally.ignored.extend(libtest::ignored(&finished.log));
        (counts.failed == 0, format!("{} passed, {} failed", counts.passed, counts.failed))
    }

    /// The instruction count needs valgrind: without it, it is a skipped test.
    fn instructions(&self) {
        if shell::find("valgrind").is_some() {
            return self.inside("icount", || match icount::run()? {
                true => Ok("within its bound".to_owned()),
                false => Err(anyhow!("above its bound")),
            });
        }
        self.skip("icount", "valgrind is not installed");
    }

    /// The advisories need a database, which is never fetched.
    fn advisories(&self) {
        match advisories::database() {
            Some(folder) => self.inside("advisories", || advisories::check(&folder)),
            None => self.skip("advisories", "without RustSec's advisory database"),
        }
    }

    /// The book needs mdBook, which is fetched, or built where it can't be.
    fn book(&self) {
        let log = self.log("book");
        let mut program = None;
        self.inside("mdbook", || {
            program = book::find(&log)?;
            let at = program.as_ref().map(|program| program.display().to_string());
            Ok(at.unwrap_or_else(|| "none: neither fetched nor built".to_owned()))
        });
        match program {
            Some(program) => self.inside("book", || book::build(&program, &log)),
            None => self.skip("book", book::WITHOUT),
        }
    }

    /// A step that this machine lacks something for.
    fn skip(&self, name: &str, reason: &str) {
        let mut tally = self.tally();
        tally.counts.skipped += 1;
        tally.ignored.push(Skip { name: name.to_owned(), reason: reason.to_owned() });
    }

    /// Prints each skip with its reason; one that nobody expected fails.
    fn skips(&self) {
        let mut all = skips::read(&self.skip_file);
        // They returned, so libtest counted them as passed.
        let mut tally = self.tally();
        tally.counts.passed = tally.counts.passed.saturating_sub(all.len());
        tally.counts.skipped += all.len();
        all.append(&mut tally.ignored);
        drop(tally);
        for skip in &all {
            println!("SKIP {}: {}", skip.name, skip.reason);
        }
        self.inside("skips", || {
            let expected = skips::read(&crate::root().join(skips::EXPECTED));
            let unexpected = skips::unexpected(&all, &expected);
            if !unexpected.is_empty() {
                let names: Vec<&str> = unexpected.iter().map(|skip| skip.name.as_str()).collect();
                bail!("not in {}: {}", skips::EXPECTED, names.join(", "));
            }
            Ok(format!("{} in all, none unexpected", all.len()))
        });
    }
}

/// The counts of a call of `cargo test`. A test program that dies, or that is not built, has no
/// summary line: a call that fails, or that finds too few tests, has at least one failure.
fn test_counts(log: &str, ok: bool, least: usize) -> Counts {
    let mut counts = libtest::counts(log);
    if !ok || counts.passed + counts.failed < least {
        counts.failed = counts.failed.max(1);
    }
    counts
}

/// Fails if a compiler printed a warning while cargo built. Cargo repeats the warnings of what it built earlier.
fn no_warnings(log: &Path) -> Result<String> {
    let log = fs::read_to_string(log)?;
    if log.lines().any(|line| line.starts_with("error")) {
        bail!("unknown, because the build failed");
    }
    match warnings(&log) {
        none if none.is_empty() => Ok("no warnings".to_owned()),
        warnings => bail!("{warnings}"),
    }
}

/// What the compiler warned of in our crates. Cargo's own warnings, such as those of network errors, don't count.
fn warnings(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let is_ours = |n: &usize| {
        let has_place = lines.get(n + 1).is_some_and(|next| next.trim_start().starts_with("--> "));
        // Cargo's sum for a crate, whose warnings may have no place.
        let is_sum = lines[*n].contains(" generated ");
        lines[*n].starts_with("warning: ") && (has_place || is_sum)
    };
    let whole = (0..lines.len()).filter(is_ours).map(|n| {
        let until_blank = lines[n..].iter().take_while(|line| !line.is_empty());
        until_blank.copied().collect::<Vec<_>>().join("\n")
    });
    whole.collect::<Vec<_>>().join("\n\n")
}

/// The parts of the toolchain that the steps call.
fn components() -> Result<String> {
    let missing: Vec<&str> = [("fmt", "rustfmt"), ("clippy", "clippy")]
        .into_iter()
        .filter(|(word, _)| {
            shell::output(shell::cargo().args([word, "--version"]), STEP_LIMIT).is_err()
        })
        .map(|(_, component)| component)
        .collect();
    if missing.is_empty() {
        return Ok("nothing is missing".to_owned());
    }
    shell::output(Command::new("rustup").args(["component", "add"]).args(&missing), STEP_LIMIT)?;
    Ok(format!("installed {}", missing.join(" ")))
}

/// Programs that this thread starts from now on run where no other wants the CPU. Where that isn't possible, they run as
/// others do.
fn yield_to_all() {
    let thread = rustix::thread::gettid().to_string();
    let mut chrt = Command::new("chrt");
    let _ = shell::output(chrt.args(["--idle", "--pid", "0", &thread]), STEP_LIMIT);
}

/// Whoever waits at a terminal sees what for; the step's line goes over it.
fn begin(name: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("{:9}  running {name}\r", "");
    }
}

/// One line for a step.
fn say(name: &str, took: Duration, ok: bool, text: &str) {
    let outcome = if ok { "ok    " } else { "FAILED" };
    println!("{:7.1} s  {outcome}  {name:<18} {text}", took.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_of_a_compiler_is_found_and_one_of_the_network_is_none() {
        let cargo = "    Updating index\nwarning: spurious network error (3 tries remaining)\n   Compiling a v0.1.0\n";
        assert_eq!(warnings(&format!("{cargo}    Finished `dev` profile in 1s\n")), "");
        let said = "warning: redundant clone\n  --> a.rs:1:1\n   |\n1  | a";
        let sum = "warning: `a` (lib) generated 1 warning";
        let all = format!("{said}\n\n{sum}");
        assert_eq!(warnings(&format!("{cargo}{all}\n")), all);
    }

    #[test]
    fn each_test_program_is_in_one_step() {
        let mut programs = test_programs(&crate::root().join("crates")).expect("crates");
        programs.extend(test_programs(crate::root()).expect("the chores"));
        assert!(programs.len() > 10, "{programs:?}");
        let steps = Steps::new(false).expect("crates");
        for (of, name) in programs {
            let has = |step: &&Step| step.words.windows(2).any(|two| two == ["--test", &name]);
            let Steps { first, guests, computing, measuring, calculating } = &steps;
            let all = first.iter().chain(computing).chain([guests, measuring, calculating]);
            assert_eq!(all.filter(has).count(), 1, "{of}: {name}");
        }
    }

    #[test]
    fn a_program_that_dies_is_a_failure() {
        assert_eq!(test_counts("signal: 11, SIGSEGV", false, 0).failed, 1);
        let log = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured";
        assert_eq!(test_counts(log, false, 1), Counts { passed: 1, failed: 2, skipped: 0 });
        assert_eq!(test_counts("", true, 1).failed, 1);
        assert_eq!(test_counts("", true, 0), Counts::default());
    }
}
