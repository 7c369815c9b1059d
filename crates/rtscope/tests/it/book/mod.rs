//! The code of the documents: commands run, in a folder that has the files which the documents name, and as short as they
//! may be. What can't run here is at least read by the program. Plans and JSON documents are read too.

pub(crate) mod blocks;
mod not_run;
mod prepared;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use blocks::{Block, blocks_of, commands, pages};
use not_run::NOT_RUN;
use rtscope_testing::skip::{program, root_or_skip, skip};

use crate::{
    documents::calls_in,
    support::{folder, output, output_of, text},
};

/// Pages that are made from the program's help, whose own tests read their examples.
const GENERATED: &str = "docs/reference/commands/";

/// Steps of one sitting: what one page leaves behind, the next one uses.
const TUTORIAL: &str = "docs/tutorial/";

/// How many pages have their commands run at a time.
const AT_ONCE: usize = 4;

/// Why a command isn't run, if so.
fn reason_not_to(command: &str) -> Option<usize> {
    let command = command.trim_start_matches("sudo ");
    let begins = |start: &&str| command.starts_with(start);
    NOT_RUN.iter().position(|(_, commands)| commands.iter().any(begins))
}

/// What became of the commands.
#[derive(Default)]
struct Tally {
    run: usize,
    /// For each reason, the commands that weren't run.
    not_run: Vec<usize>,
    /// Of those, the ones that the program read.
    read: usize,
    failures: Vec<String>,
    /// How long each block took, and where it is.
    took: Vec<(Duration, String)>,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.run += other.run;
        self.read += other.read;
        self.not_run.resize(NOT_RUN.len(), 0);
        self.not_run.iter_mut().zip(other.not_run).for_each(|(sum, more)| *sum += more);
        self.failures.extend(other.failures);
        self.took.extend(other.took);
    }
}

/// One at a time: they change settings of the machine, or lines that all of it sees.
const ALONE: [&str; 4] = ["--set ", "rtscope tune ", "rtscope restore", "rtscope wave "];

static ALONE_NOW: Mutex<()> = Mutex::new(());

/// Runs the commands of a block that can run, and reads the others.
fn try_block(room: &Path, block: &Block, tally: &mut Tally) {
    let mut script = String::new();
    for command in commands(block) {
        match reason_not_to(&command) {
            None => {
                script.push_str(&command);
                script.push('\n');
                tally.run += 1;
            }
            Some(reason) => {
                tally.not_run.resize(NOT_RUN.len(), 0);
                tally.not_run[reason] += 1;
                tally.read += usize::from(read(room, block, &command, &mut tally.failures));
            }
        }
    }
    if script.is_empty() {
        return;
    }
    let needs_all = ALONE.iter().any(|part| script.contains(part));
    let _alone = needs_all.then(|| ALONE_NOW.lock().unwrap_or_else(PoisonError::into_inner));
    // What a block makes is not there before.
    let made = [" --out ", "rtscope new "];
    let made = made.iter().flat_map(|before| script.split(before).skip(1));
    for name in made.filter_map(|rest| rest.split_whitespace().next()) {
        let _ = (fs::remove_dir_all(room.join(name)), fs::remove_file(room.join(name)));
    }
    fs::write(room.join(".block"), format!("{script}wait\n")).expect("written");
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "120", "bash", "-e", ".block"]).current_dir(room);
    command.env("PATH", prepared::path(room)).stdin(Stdio::null());
    for (name, below) in [("HOME", ""), ("XDG_DATA_HOME", "data"), ("XDG_CACHE_HOME", "cache")] {
        command.env(name, room.join(below));
    }
    let began = Instant::now();
    let ran = output_of(&mut command);
    tally.took.push((began.elapsed(), format!("{}:{}", block.page, block.line)));
    if !ran.status.success() {
        let (out, err) = (text(&ran.stdout), text(&ran.stderr));
        let end = |text: &str| {
            let lines: Vec<_> = text.lines().collect();
            lines[lines.len().saturating_sub(25)..].join("\n")
        };
        let Block { page, line, .. } = block;
        let status = ran.status;
        tally.failures.push(format!(
            "{page}:{line}: {status}\n{script}{}\n{}",
            end(&out),
            end(&err)
        ));
    }
}

/// Whether a command calls rtscope, which then reads its options.
fn read(room: &Path, block: &Block, command: &str, failures: &mut Vec<String>) -> bool {
    let calls: Vec<_> = command.lines().map(|line| line.trim_end_matches('\\')).collect();
    let calls = calls_in(&calls.join(" "));
    for call in &calls {
        let own = call.iter().position(|word| word == "--").unwrap_or(call.len());
        let words: Vec<String> = call[..own].iter().map(|word| format!("'{word}'")).collect();
        let asked = output(room, &format!("{} --help", words.join(" ")));
        if !asked.status.success() {
            let Block { page, line, .. } = block;
            failures.push(format!("{page}:{line}: {command}\n{}", text(&asked.stderr)));
        }
    }
    !calls.is_empty()
}

/// Writes the plans of a page into files, as its readers do.
fn keep_plans(page: &str, room: &Path) {
    for block in blocks_of(page).iter().filter(|block| block.language == "toml") {
        let plan: toml::Table = block.text.parse().expect("a plan");
        let name = plan["name"].as_str().expect("a name");
        fs::write(room.join(format!("{name}.toml")), &block.text).expect("written");
    }
}

/// Pages whose commands run in one folder: the tutorial, or any other page alone.
fn sittings() -> Vec<Vec<String>> {
    let shown = pages().into_iter().filter(|page| !page.starts_with(GENERATED));
    let (tutorial, others): (Vec<_>, Vec<_>) = shown.partition(|page| page.starts_with(TUTORIAL));
    std::iter::once(tutorial).chain(others.into_iter().map(|page| vec![page])).collect()
}

/// In commands that keep a CPU free of all other processes, also of those that another page starts.
const TAKE_A_CPU: [&str; 2] = ["shield=last", "run vendor-shield"];

/// Runs all pages, some at a time: their commands sleep most of the time.
fn run_all(examples: &Path) -> Vec<Tally> {
    let takes_a_cpu = |pages: &Vec<String>| {
        let mut blocks = pages.iter().flat_map(|page| blocks_of(page));
        blocks.any(|block| TAKE_A_CPU.iter().any(|command| block.text.contains(command)))
    };
    let (alone, together): (Vec<_>, Vec<_>) = sittings().into_iter().partition(takes_a_cpu);
    let mut tallies = run_sittings(together, AT_ONCE, examples);
    tallies.extend(run_sittings(alone, 1, examples));
    tallies
}

/// Runs pages, so many at a time.
fn run_sittings(sittings: Vec<Vec<String>>, at_once: usize, examples: &Path) -> Vec<Tally> {
    let waiting = Mutex::new(sittings.into_iter());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut tally = Tally::default();
        while let Some(pages) = next() {
            let room = folder();
            match pages[0].starts_with(TUTORIAL) {
                true => {
                    prepared::programs(room.path());
                    keep_plans("docs/tutorial/3-plan.md", room.path());
                }
                false => prepared::copy(examples, room.path()),
            }
            for block in pages.iter().flat_map(|page| blocks_of(page)) {
                try_block(room.path(), &block, &mut tally);
            }
        }
        tally
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    })
}

#[test]
fn the_commands_of_the_documents_run() {
    const NAME: &str = "the_commands_of_the_documents_run";
    if !root_or_skip(NAME) {
        return;
    }
    for needed in ["bash", "make"] {
        if program(needed).is_none() {
            return skip(NAME, &format!("without {needed}"));
        }
    }
    let examples = folder();
    prepared::examples(examples.path());
    let mut tally = Tally::default();
    run_all(examples.path()).into_iter().for_each(|one| tally.add(one));
    let not_run: usize = tally.not_run.iter().sum();
    println!(
        "{} commands run, {not_run} don't; the program reads {} of them",
        tally.run, tally.read
    );
    for ((reason, _), count) in NOT_RUN.iter().zip(&tally.not_run) {
        println!("{count:5}  {reason}");
    }
    tally.took.sort();
    for (took, block) in tally.took.iter().rev().take(5) {
        println!("{:5.1} s  {block}", took.as_secs_f64());
    }
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n\n"));
    assert!(tally.run > 100, "{} commands ran", tally.run);
}

#[test]
fn each_reason_not_to_run_a_command_holds_for_one() {
    let all: Vec<String> = pages()
        .iter()
        .flat_map(|page| blocks_of(page))
        .flat_map(|block| commands(&block))
        .collect();
    for start in NOT_RUN.iter().flat_map(|(_, commands)| *commands) {
        let is_one = |command: &String| command.trim_start_matches("sudo ").starts_with(start);
        assert!(all.iter().any(is_one), "no document shows {start:?}");
    }
}

#[test]
fn the_plans_and_json_of_the_documents_are_read() {
    let room = folder();
    let (mut plans, mut documents) = (0, 0);
    for block in pages().iter().flat_map(|page| blocks_of(page)) {
        let at = format!("{}:{}", block.page, block.line);
        match block.language.as_str() {
            "toml" => {
                let table: toml::Table = block.text.parse().unwrap_or_else(|e| panic!("{at}: {e}"));
                if table.contains_key("name") && table.contains_key("phase") {
                    fs::write(room.path().join("plan.toml"), &block.text).expect("written");
                    let checked = output(room.path(), "plan check plan.toml");
                    // A machine may have too few CPUs for it, which is no mistake of the plan.
                    let said = text(&checked.stdout);
                    assert!(said.contains("sound"), "{at}: {said}{}", text(&checked.stderr));
                    plans += 1;
                }
            }
            "json" => {
                for line in block.text.lines() {
                    serde_json::from_str::<serde_json::Value>(line)
                        .unwrap_or_else(|e| panic!("{at}: {e}"));
                    documents += 1;
                }
            }
            "sh" | "console" | "text" => {}
            other => panic!("{at}: a block is sh, console, toml, json or text, not {other:?}"),
        }
    }
    assert!(plans >= 2 && documents >= 1, "{plans} plans, {documents} lines of JSON");
}
