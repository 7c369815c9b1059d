//! `cargo xtask test`: everything that must hold, from one command on a fresh clone.
//!
//! Prints one line a step and, alone on the last line, `N passed, N failed, N skipped`: the tests
//! as they count themselves, and each other step as one. A step's whole output is in
//! `target/xtask/STEP.log`; of a failed one, what its failed tests said or its end is printed.

mod fetched;
mod idle;
mod kernel;
mod libtest;
mod machine;
mod programs;
mod publish;
mod rustdoc;
mod skips;
mod soak;
mod steps;

use std::{
    fs,
    io::IsTerminal,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};

use crate::{
    advisories, book,
    busy::Busy,
    icount, packages,
    shell::{self, Finished},
    tidy,
};
use libtest::{Counts, Skip};
use machine::MachineLock;
use programs::TestProgram;
use steps::{BUILD, Step, Steps, Work};

/// What takes longer hangs: a test program, or a call of cargo. The guests take longest: minutes on two idle cores, several
/// times as long on busy ones.
const STEP_LIMIT: Duration = Duration::from_secs(60 * 60);

/// How much of a failed step's output is printed where no failed test said anything.
const SHOWN_LINES: usize = 200;

/// What is asked of the tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Whether the tests whose guests take minutes run too.
    is_long: bool,
    /// How many busy processes run beside the tests.
    busy: usize,
}

impl Options {
    fn of(words: &[&str]) -> Result<Options> {
        match words {
            [] => Ok(Options::default()),
            ["--long", rest @ ..] => Ok(Options { is_long: true, ..Options::of(rest)? }),
            ["--busy", number, rest @ ..] => {
                let busy = number.parse().context("after --busy comes a number of processes")?;
                Ok(Options { busy, ..Options::of(rest)? })
            }
            _ => bail!("usage: cargo xtask test [--long] [--busy N]"),
        }
    }
}

/// Runs all steps, however many fail, and prints the counts.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let Options { is_long, busy } = Options::of(words)?;
    let _busy = Busy::start(busy, 0)?;
    let began = Instant::now();
    let scratch = crate::scratch()?;
    let skip_file = scratch.join("skips.txt");
    fs::write(&skip_file, "")?;
    let run = Run { scratch, skip_file, programs: OnceLock::new(), tally: Mutex::default() };
    let steps = Steps::new(is_long);

    run.inside("components", components);
    run.advisories();
    thread::scope(|scope| {
        // These wait for the network and the disk most of the time, and the build needs nothing of them.
        scope.spawn(|| {
            run.inside("packages", || Ok(packages::set_up(packages::OF_TESTS)));
            run.fetch();
            run.inside("tidy", || match tidy::run()? {
                true => Ok("the rules hold".to_owned()),
                false => Err(anyhow!("rules are broken")),
            });
        });
        run.step(&steps.build);
    });
    run.inside("programs", || {
        let all = programs::all()?;
        Ok(format!("{} are built", run.programs.get_or_init(|| all).len()))
    });
    run.inside("clippy", || no_warnings(&run.log(BUILD)));
    {
        let _beside_others = MachineLock::shared();
        run.compute(&steps, is_long);
    }
    let _alone = MachineLock::alone();
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
    /// The test programs, once they are built.
    programs: OnceLock<Vec<TestProgram>>,
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

    /// What needs the CPUs, and gives the same result on a busy machine: guests run beside the other steps. Most of them boot
    /// Debian's kernels. With `is_long`, the kernel of our own is built first, which takes as long as half of all tests.
    /// Not beside the tests that measure: their loads need the CPUs too, and most of these steps have runs of the
    /// program that restore what one of the measuring tests has left on purpose.
    fn compute(&self, steps: &Steps, is_long: bool) {
        thread::scope(|scope| {
            scope.spawn(|| {
                if is_long {
                    self.inside("kernel", || kernel::make(&self.log("kernel")));
                }
                self.step(&steps.guests);
            });
            self.book();
            steps.computing.iter().for_each(|step| self.step(step));
            self.instructions();
        });
    }

    /// What measures this machine, and beside it what only calculates, emulates or compiles: tests that measure sleep most of
    /// the time.
    fn measure(&self, steps: &Steps) {
        thread::scope(|scope| {
            scope.spawn(|| {
                idle::yield_to_all();
                steps.patient.iter().for_each(|step| self.step(step));
                let log = self.log("publish");
                self.inside("publish", || publish::trial(&self.scratch.join("publish"), &log));
            });
            self.step(&steps.measuring);
            idle::stop_yielding();
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

    /// A step that runs cargo or test programs.
    fn step(&self, Step { name, work, least }: &Step) {
        let log = self.log(name);
        begin(name);
        let began = Instant::now();
        let outcome = self.work(work, &log);
        let took = began.elapsed();
        let finished = match outcome {
            Ok(finished) => finished,
            Err(e) => {
                self.count_one(false);
                return say(name, took, false, &format!("{e:#}"));
            }
        };
        let (ok, text) = match least {
            Some(least) => self.count_tests(&finished, *least),
            None => {
                self.count_one(finished.is_ok());
                (finished.is_ok(), String::new())
            }
        };
        say(name, took, ok, &text);
        if !ok {
            match libtest::failures(&finished.log).join("\n\n") {
                none if none.is_empty() => {
                    println!("{}", shell::last_lines(&finished.log, SHOWN_LINES));
                }
                failures => println!("{failures}"),
            }
            let how = if finished.status.is_none() { "took too long; its" } else { "failed; its" };
            println!("{name} {how} whole output is in {}", log.display());
        }
    }

    fn work(&self, work: &Work, log: &Path) -> Result<Finished> {
        let skips = (skips::VARIABLE, self.skip_file.as_path());
        match work {
            Work::Cargo(words) => {
                let mut command = shell::cargo();
                command.args(words).env(skips.0, skips.1).env("CARGO_TERM_COLOR", "never");
                shell::logged(&mut command, log, STEP_LIMIT)
            }
            Work::Programs(chosen, words) => {
                let all = self.programs.get().context("the tests are not built")?;
                programs::run(all.iter().filter(|it| chosen(it)), words, skips, log, STEP_LIMIT)
            }
        }
    }

    fn count_one(&self, ok: bool) {
        let one = Counts { passed: usize::from(ok), failed: usize::from(!ok), skipped: 0 };
        self.tally().counts += one;
    }

    fn count_tests(&self, finished: &Finished, least: usize) -> (bool, String) {
        let counts = test_counts(&finished.log, finished.is_ok(), least);
        let ignored = libtest::ignored(&finished.log);
        let mut tally = self.tally();
        tally.counts += counts;
        tally.ignored.extend(ignored);
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

/// The counts of test programs. A program that dies, or that is not built, has no
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
    fn the_words_are_read_in_any_order() {
        let both = Options { is_long: true, busy: 4 };
        assert_eq!(Options::of(&["--busy", "4", "--long"]).expect("read"), both);
        assert_eq!(Options::of(&["--long", "--busy", "4"]).expect("read"), both);
        for wrong in [&["--busy"][..], &["--busy", "many"], &["--quick"]] {
            Options::of(wrong).expect_err("refused");
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
