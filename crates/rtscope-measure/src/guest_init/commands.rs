//! Verbs in a guest, one after the other, each in a process of its own as on a board.

use std::{
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rtscope_model::guest;

use super::{beside, say};

/// Before each verb: some periods of the throttling, so that it begins with all its bandwidth. In virtual time,
/// waiting costs nothing.
const REST: Duration = Duration::from_secs(5);

/// Exit codes of verbs that measured nothing: an error, and a wrong command line.
const ERRORS: [i32; 2] = [1, 64];

/// Runs each, and returns a line for each that failed. One that fails doesn't end the others.
pub(super) fn run(commands: &[guest::Command]) -> String {
    let mut failures = String::new();
    for (n, command) in commands.iter().enumerate() {
        say(&format!("{}/{} {}", n + 1, commands.len(), command.name));
        thread::sleep(REST);
        match one(Path::new("/proc/self/exe"), &command.words) {
            Ok(printed) => {
                beside::write(&guest::Command::output(&command.name), &printed, &mut failures);
            }
            Err(why) => failures.push_str(&format!("{}: {why}\n", command.name)),
        }
    }
    failures
}

/// What a verb prints on standard output. What it says on standard error goes to the console.
fn one(program: &Path, words: &[String]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.arg0("rtscope").args(words).current_dir("/run").stdin(Stdio::null());
    let output = command.output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().for_each(say);
    match output.status.code() {
        Some(code) if !ERRORS.contains(&code) => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        _ => Err(why(&output.status.to_string(), &said)),
    }
}

/// What a verb that failed says, without the name that each of its lines begins with.
fn why(status: &str, said: &str) -> String {
    let lines = said.lines().map(|line| line.strip_prefix("rtscope: ").unwrap_or(line));
    let text = lines.collect::<Vec<_>>().join("; ");
    if text.is_empty() { format!("it ended ({status})") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<String, String> {
        one(Path::new("/bin/sh"), &["-c".to_owned(), script.to_owned()])
    }

    #[test]
    fn a_verb_that_measured_gives_what_it_printed_and_another_says_why() {
        assert_eq!(shell("echo 7; echo later >&2").as_deref(), Ok("7\n"));
        // Inconclusive, or a requirement failed: that is measured.
        assert_eq!(shell("echo 7; exit 3").as_deref(), Ok("7\n"));
        let why = shell("echo 'rtscope: no such line' >&2; exit 64");
        assert_eq!(why, Err("no such line".to_owned()));
        assert!(shell("exit 1").expect_err("an error").contains("exit status: 1"));
        assert!(shell("kill -9 $$").expect_err("killed").contains("signal: 9"));
        assert!(one(Path::new("/nowhere"), &[]).is_err());
    }
}
