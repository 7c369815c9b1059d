//! `external`: any command, supervised.
//!
//! Exercises what the command exercises. The count shows how often it was started; it can't show
//! how much the command did.
//!
//! The command is given to `sh -c`. When it ends well it is started again at once, unless
//! `restart=false`: then its end is the load's end. When it fails, the load has failed. Everything
//! that it has started is killed before it is started again and at the load's end, wherever it has
//! gone: the supervising process adopts orphans, and what even then got away is found by its
//! environment. What kills rtscope and the supervisor in the same instant leaves
//! the command's own children, though not the command.
//!
//! A unit of work is one start of the command.

use std::{
    convert::Infallible,
    fs::File,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rtscope_model::{
    schedule::{Placement, Policy},
    text::Problem,
};
use rtscope_sys::{
    fork::{
        Children, Exit, Waited, default_signals, fork, hold_signals, next_signal, signal, wait,
    },
    process, sched,
};

use super::{
    LoadDescriptor, LoadError, Remains,
    board::State,
    options::{LoadOption, LoadOptions, ValueKind},
    processes::{descendants, marked},
    worker::{Job, place},
    writable,
};

const OPTIONS: &[LoadOption] = &[
    LoadOption {
        name: "command",
        kind: ValueKind::Text,
        default: "",
        about: "the command, written after the options: external restart=false -- make -j4",
    },
    LoadOption {
        name: "restart",
        kind: ValueKind::Flag,
        default: "true",
        about: "start the command again when it ends; false: the load ends with it",
    },
    LoadOption {
        name: "log",
        kind: ValueKind::Text,
        default: "",
        about: "file to append the command's output to; without it, the output is discarded",
    },
];

pub(super) const DESCRIPTOR: LoadDescriptor = LoadDescriptor {
    name: "external",
    about: "runs any command, and all that it starts",
    unit: |_| "runs",
    options: OPTIONS,
    check,
    is_here,
    run,
    clean,
};

/// What the supervisor waits for.
const SIGNALS: [i32; 5] =
    [signal::ALARM, signal::CHILD, signal::HANG_UP, signal::INTERRUPT, signal::TERMINATE];

/// How long the command's processes may take to end when they are asked to.
const GRACE: Duration = Duration::from_millis(500);

/// How long killed processes may take to die.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(2);

fn check(options: &LoadOptions) -> Result<(), Problem> {
    match options.given("command") {
        Some(_) => Ok(()),
        None => {
            let message = "an external load needs a command: write it as external -- COMMAND";
            Err(Problem::new(message))
        }
    }
}

fn is_here(options: &LoadOptions) -> Result<(), LoadError> {
    find(options.word("command"))?;
    let Some(log) = options.given("log") else { return Ok(()) };
    // The folder of a bare name is empty, which means the one we are in.
    writable("log", &Path::new(log).parent().unwrap_or(Path::new("/")).join("."))
}

fn run(job: &Job) -> Result<(), LoadError> {
    let command = job.options.word("command");
    find(command)?;
    process::adopt_orphans();
    // Held back from here on, so that even rtscope's death leaves the time to kill the tree.
    hold_signals(&SIGNALS);
    if !process::die_with_parent(job.parent, signal::TERMINATE) {
        return Err(LoadError::NotStartedByUs);
    }
    stay_above(&job.placement)?;
    let outcome = supervise(job, command);
    end_tree();
    outcome
}

/// A real-time command could keep its supervisor from ending it: that must come before it.
fn stay_above(placement: &Placement) -> Result<(), LoadError> {
    if placement.policy.has_priority() {
        let priority = (placement.priority + 1).min(99);
        let above = Placement { policy: Policy::Fifo, priority, ..placement.clone() };
        sched::set_policy(sched::SELF, &above)?;
    }
    Ok(())
}

fn supervise(job: &Job, command: &str) -> Result<(), LoadError> {
    let restart = job.options.flag("restart");
    let counter = job.board.counter(0);
    let mut runs = 0;
    loop {
        let pid = start(job, command)?;
        runs += 1;
        counter.add(1);
        if runs == 1 {
            wait_until_placed(job);
            job.board.set_state(State::Working);
        }
        match wait_for_end(pid)? {
            None => return Ok(()),
            Some(Exit::Code(0)) if restart => {}
            Some(Exit::Code(0)) => return Ok(()),
            Some(exit) => return Err(LoadError::Command { how: exit.to_string(), runs }),
        }
        if wait(Children::Any, false) != Waited::NoChild {
            end_tree();
        }
    }
}

/// Whether the program of a command exists: the shell knows, by its own words and the search path.
/// Only a command that begins with a plain word can be asked for.
fn find(command: &str) -> Result<(), LoadError> {
    let word = command.split_whitespace().next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    if !word.chars().all(is_plain) {
        return Ok(());
    }
    let found = Command::new("/bin/sh")
        .args(["-c", "command -v -- \"$1\"", "sh", word])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(LoadError::io("run /bin/sh"))?;
    if found.success() { Ok(()) } else { Err(LoadError::NoCommand(word.to_owned())) }
}

/// Starts the command: a forked process that is guarded and placed, then becomes the shell.
fn start(job: &Job, command: &str) -> Result<u32, LoadError> {
    let (stdout, stderr) = outputs(job.options.given("log"))?;
    let supervisor = std::process::id();
    let become_shell = || -> Result<Infallible, LoadError> {
        job.guard(supervisor)?;
        place(&job.placement)?;
        job.board.count_placed();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        // Signals that are blocked here would stay blocked in the command if its shell doesn't clear the mask (bash
        // doesn't).
        default_signals();
        // Returns only if there is no shell.
        Err(LoadError::io("run /bin/sh")(shell.exec()))
    };
    let pid = fork(|| {
        let Err(e) = become_shell();
        job.board.fail(&e.to_string());
        1
    })?;
    Ok(pid)
}

/// Where the command's output goes.
fn outputs(log: Option<&str>) -> Result<(Stdio, Stdio), LoadError> {
    let Some(path) = log else { return Ok((Stdio::null(), Stdio::null())) };
    let failed = || LoadError::io(format!("open {path}"));
    let file = File::options().append(true).create(true).open(path).map_err(failed())?;
    let twin = file.try_clone().map_err(failed())?;
    Ok((file.into(), twin.into()))
}

/// Waits until the first run is placed, or has said that it can't be.
fn wait_until_placed(job: &Job) {
    let until = Instant::now() + KILL_LIMIT;
    while job.board.placed() == 0 && job.board.state() == State::Starting && Instant::now() < until
    {
        thread::sleep(LOOK);
    }
}

/// Waits for the command's end, and takes note of orphans that end meanwhile. `None` when the load
/// is to end.
fn wait_for_end(command: u32) -> Result<Option<Exit>, LoadError> {
    const LONG: Duration = Duration::from_secs(3600);
    loop {
        while let Waited::Ended(pid, exit) = wait(Children::Any, false) {
            match exit {
                _ if pid != command => {}
                Exit::Signal(signal::ALARM) => return Err(LoadError::Limit),
                _ => return Ok(Some(exit)),
            }
        }
        match next_signal(&SIGNALS, LONG) {
            Some(signal::ALARM) => return Err(LoadError::Limit),
            Some(signal::CHILD) | None => {}
            Some(_) => return Ok(None),
        }
    }
}

/// Ends every process below this one: asks first, then kills until none is left.
fn end_tree() {
    for (number, limit) in [(signal::TERMINATE, GRACE), (signal::KILL, KILL_LIMIT)] {
        let until = Instant::now() + limit;
        for round in 0.. {
            if none_left() {
                return;
            }
            // One request is enough; but what is forked while others are killed must be killed too.
            if round == 0 || number == signal::KILL {
                for pid in descendants(std::process::id()) {
                    let _ = process::signal(pid, number);
                }
            }
            if Instant::now() >= until {
                break;
            }
            thread::sleep(LOOK);
        }
    }
}

/// Takes note of all children that have ended. Whether there are no others.
fn none_left() -> bool {
    loop {
        match wait(Children::Any, false) {
            Waited::Ended(..) => {}
            Waited::Running => return false,
            Waited::NoChild => return true,
        }
    }
}

/// Kills what a supervisor that was killed itself has left.
fn clean(remains: &Remains<'_>) {
    let until = Instant::now() + KILL_LIMIT;
    loop {
        let left = marked(remains.mark);
        if left.is_empty() || Instant::now() >= until {
            return;
        }
        for pid in &left {
            let _ = process::signal(*pid, signal::KILL);
        }
        for pid in left {
            while wait(Children::One(pid), false) == Waited::Running && Instant::now() < until {
                thread::sleep(LOOK);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_command_is_named() {
        find("sh -c true").expect("a program of the search path");
        find("cd / && ls").expect("a word of the shell");
        find("A=1 no-such-program").expect("can't be known");
        let text = find("no-such-program -x").expect_err("missing").to_string();
        assert!(text.contains("\"no-such-program\" was not found"), "{text}");
    }

    #[test]
    fn a_command_is_required() {
        let problem =
            crate::load::check(&"external".parse().expect("a line")).expect_err("refused");
        assert!(problem.message.contains("external -- COMMAND"), "{}", problem.message);
    }
}
