//! How the command line looks: verbs in groups, texts that wrap at any width, examples at the end, and what was
//! perhaps meant.

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::{ffi::OsString, fmt::Write as _};

use clap::{
    ColorChoice, Command, CommandFactory, FromArgMatches, ValueEnum,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};
use rtscope_model::{printable::printable, text::suggest};

use super::{Cli, later};
use crate::plans;

/// The verbs as a user meets them. A test sees to it that every verb is in one group.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Measure", &["run", "plan", "load", "throughput", "network", "wave"]),
    ("Judge", &["report", "claim", "plot", "export"]),
    ("Compare and history", &["import", "compare", "history"]),
    ("The system", &["doctor", "collect", "ps", "sched", "tune", "restore"]),
    ("Programs", &["check", "explain", "drift", "stat", "new"]),
    ("Kernels and fleets", &["lab", "kernel", "fleet"]),
    ("Other tools' names", &["cyclictest", "hackbench"]),
    ("This program", &["completions", "help"]),
];

/// Before the examples in a doc comment, and in the help.
const EXAMPLES: &str = "Examples:\n";

/// The command line as help, completions and manual show it.
pub(super) fn command() -> Command {
    let command = arranged(later::whole::<Cli>());
    let groups = groups(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

/// Reads the command line; an error knows what was perhaps meant.
pub(super) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let words: Vec<OsString> = words.into_iter().collect();
    // Most command lines are valid and need no help text. Preparing it takes several times as long as parsing.
    read(Cli::command(), &words).or_else(|e| {
        if e.kind() == ErrorKind::DisplayVersion {
            return Err(e);
        }
        let command = command().color(color(words.clone()));
        read(command.clone(), &words).map_err(|e| match e.use_stderr() {
            true => with_hints(e, &command, &words),
            false => e,
        })
    })
}

fn read(command: Command, words: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// An error with what was perhaps meant.
fn with_hints(error: clap::Error, command: &Command, words: &[OsString]) -> clap::Error {
    // The message quotes the words: read them again as they can be shown.
    let shown: Vec<OsString> =
        words.iter().map(|word| printable(&word.to_string_lossy()).into_owned().into()).collect();
    let mut e = read(command.clone(), &shown).err().unwrap_or(error);
    add_suggestion(&mut e, &shown);
    add_kernel_hint(&mut e, &shown);
    add_values(&mut e, &shown);
    add_owner(&mut e, &shown);
    add_separator(&mut e, command, &shown);
    e
}

/// A program that a command is to start stands behind `--`.
fn add_separator(error: &mut clap::Error, root: &Command, words: &[OsString]) {
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg) else { return };
    let takes_program = level(root, words).get_arguments().any(clap::Arg::is_last_set);
    if error.kind() != ErrorKind::UnknownArgument || wrong.starts_with('-') || !takes_program {
        return;
    }
    let tip = format!("a program and its arguments go after --, for example: -- {wrong}");
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// What `--color` says of help and errors, which are written before the command line is read.
pub(super) fn color(words: impl IntoIterator<Item = OsString>) -> ColorChoice {
    let words: Vec<OsString> = words.into_iter().collect();
    let words: Vec<_> =
        words.iter().map_while(|word| word.to_str().filter(|w| *w != "--")).collect();
    let after = |i: usize| words.get(i + 1).copied();
    let said =
        words.iter().enumerate().find_map(|(i, word)| match word.strip_prefix("--color")? {
            "" => after(i),
            value => value.strip_prefix('='),
        });
    said.and_then(|said| ColorChoice::from_str(said, false).ok()).unwrap_or_default()
}

/// The likeliest verb. clap itself names every likely one, and none where two letters of a short word changed
/// places.
fn add_suggestion(error: &mut clap::Error, words: &[OsString]) {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return;
    }
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    let root = command();
    let level = level(&root, words);
    if let Some(meant) = suggest(wrong, level.get_subcommands().map(Command::get_name)) {
        let meant = ContextValue::Strings(vec![meant]);
        error.insert(ContextKind::SuggestedSubcommand, meant);
    }
}

/// The command that some words name.
fn level<'a>(root: &'a Command, words: &[OsString]) -> &'a Command {
    let mut level = root;
    for word in words.iter().skip(1) {
        level = level.find_subcommand(word).unwrap_or(level);
    }
    level
}

/// The verb beside the one that was typed that has an unknown option, in place of an option with a similar name.
fn add_owner(error: &mut clap::Error, words: &[OsString]) {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return };
    let verbs = words.iter().take_while(|word| !word.to_string_lossy().starts_with('-')).count();
    if error.kind() != ErrorKind::UnknownArgument || verbs < 3 {
        return;
    }
    let (option, root) = (unknown.trim_start_matches('-').to_owned(), command());
    let group = words[1].to_string_lossy();
    let has_it = |verb: &&Command| {
        verb.get_arguments().any(|argument| argument.get_long() == Some(option.as_str()))
    };
    let owner = level(&root, &words[..2]).get_subcommands().find(has_it);
    if let Some(owner) = owner {
        let tip = format!("rtscope {group} {} has --{option}", owner.get_name());
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
}

/// The values of a missing option, where it takes one of a few.
fn add_values(error: &mut clap::Error, words: &[OsString]) {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return };
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return;
    }
    let root = command();
    let tips = level(&root, words).get_arguments().filter_map(|argument| {
        let option = format!("--{}", argument.get_long()?);
        let is_missing = missing.iter().any(|one| one.split(' ').next() == Some(&option));
        let values = argument.get_possible_values();
        let values: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
        (is_missing && !values.is_empty())
            .then(|| format!("{option} is one of {}", values.join(", ")).into())
    });
    let tips: Vec<StyledStr> = tips.collect();
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// What to type when a verb of the lab misses its --kernel: the word that was meant as one, if any, gets it.
fn add_kernel_hint(error: &mut clap::Error, words: &[OsString]) {
    let misses = |all: &Vec<String>| all.iter().any(|missing| missing.starts_with("--kernel"));
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => misses(missing),
        _ => false,
    };
    if error.kind() != ErrorKind::MissingRequiredArgument || !missing {
        return;
    }
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    // `lab wave sweep` has a word more than `lab run`.
    let names = if words.get(2).is_some_and(|word| word == "wave") { 4 } else { 3 };
    let Some((verb, rest)) = words.split_at_checked(names) else { return };
    let verb = verb[1..].join(" ");
    let is_plan =
        |word: &str| word.ends_with(".toml") || plans::SHIPPED.iter().any(|p| p.name == word);
    let kernel = rest.first().filter(|word| !word.starts_with('-') && !is_plan(word));
    let tip = match kernel {
        Some(kernel) => {
            format!("a kernel is named with --kernel: rtscope {verb} --kernel {kernel}")
        }
        None => {
            let more: String = rest.iter().map(|word| format!(" {word}")).collect();
            format!("name a kernel: rtscope {verb}{more} --kernel debian-stock")
        }
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// The examples of a command, a line each, as they are typed.
pub(super) fn examples(command: &Command) -> Option<String> {
    let text = command.get_after_help()?.to_string();
    let lines = text.split_once(EXAMPLES)?.1.lines();
    Some(lines.map(|line| line.strip_prefix("  ").unwrap_or(line).to_owned() + "\n").collect())
}

/// A command whose doc comment became prose that wraps at any width, and examples behind the options.
fn arranged(command: Command) -> Command {
    let command = command.mut_subcommands(arranged);
    let Some(text) = command.get_long_about().map(ToString::to_string) else { return command };
    let (prose, examples) = match text.split_once(EXAMPLES) {
        Some((prose, examples)) => (prose, Some(examples)),
        None => (text.as_str(), None),
    };
    let prose = paragraphs(prose);
    let is_whole = command.get_about().is_some_and(|about| about.to_string() == prose);
    let command = if is_whole { command.long_about(None) } else { command.long_about(prose) };
    match examples {
        Some(examples) => command.after_help(format!("{EXAMPLES}{}", examples.trim_end())),
        None => command,
    }
}

/// A text with one line for each paragraph.
fn paragraphs(text: &str) -> String {
    let paragraph = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.trim().split("\n\n").map(paragraph).collect::<Vec<_>>().join("\n\n")
}

/// The list of verbs, group by group.
fn groups(command: &Command) -> String {
    let names = || GROUPS.iter().flat_map(|(_, verbs)| verbs.iter());
    let width = names().map(|name| name.len()).max().unwrap_or(0);
    let about = |name: &str| match command.find_subcommand(name).and_then(Command::get_about) {
        Some(about) => about.to_string(),
        None => "Print this help, or that of a command".to_owned(),
    };
    let mut text = String::new();
    for (heading, verbs) in GROUPS {
        let _ = writeln!(text, "{heading}:");
        for name in verbs {
            let _ = writeln!(text, "  {name:width$}  {}", about(name));
        }
        text.push('\n');
    }
    text
}
