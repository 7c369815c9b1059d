//! A page for each verb, with all of its subcommands, and a page that lists them.

use std::{collections::BTreeMap, fmt::Write as _};

use clap::{Arg, Command, builder::PossibleValue};

use super::{
    super::{GROUPS, command, examples},
    NOT_RELEASED, prose,
};

/// Each page by its path.
pub(super) fn pages() -> BTreeMap<String, String> {
    let mut root = command();
    root.build();
    let mut pages = BTreeMap::from([("commands/README.md".to_owned(), contents(&root))]);
    for verb in shown(&root) {
        let mut page = String::new();
        section(&mut page, "rtscope", verb, 1);
        pages.insert(format!("commands/{}.md", verb.get_name()), page.trim_end().to_owned() + "\n");
    }
    pages
}

/// The subcommands that a user sees.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

/// The verbs in their groups.
fn contents(root: &Command) -> String {
    let mut page = "# Commands\n\nThese pages are made from the program's help, so `rtscope COMMAND --help` says the same. \
                    [First steps](../../guide/first-steps.md#what-all-commands-share) has the rules that all commands \
                    share.\n"
        .to_owned();
    for (group, verbs) in GROUPS {
        let _ = writeln!(page, "\n## {group}\n");
        for verb in verbs.iter().filter_map(|verb| root.find_subcommand(verb)) {
            let (name, about) = (verb.get_name(), verb.get_about().unwrap_or_default().to_string());
            if name != "help" {
                let _ = writeln!(page, "* [`rtscope {name}`]({name}.md): {}", prose(&about));
            }
        }
    }
    page
}

/// A command, and below it its subcommands.
fn section(page: &mut String, parent: &str, command: &Command, level: usize) {
    let path = format!("{parent} {}", command.get_name());
    let about = command.get_long_about().or(command.get_about()).unwrap_or_default().to_string();
    let _ = writeln!(page, "{} {path}\n\n{}\n", "#".repeat(level), prose(&about));
    let usage = command.clone().render_usage().to_string();
    let _ = writeln!(page, "```text\n{}\n```\n", usage.trim());
    for (heading, arguments) in arguments(command) {
        let _ = writeln!(page, "**{heading}**\n");
        for argument in arguments {
            let _ = writeln!(page, "* {}", entry(argument));
        }
        page.push('\n');
    }
    if let Some(examples) = examples(command) {
        let _ = writeln!(page, "**Examples**\n\n```sh\n{}\n```\n", examples.trim_end());
    }
    for sub in shown(command) {
        section(page, &path, sub, level + 1);
    }
}

/// A command's arguments below their headings, in the order of the help.
fn arguments(command: &Command) -> Vec<(String, Vec<&Arg>)> {
    let mut all: Vec<(String, Vec<&Arg>)> = Vec::new();
    let is_shown = |argument: &&Arg| !argument.is_hide_set() && argument.get_id() != "help";
    for argument in command.get_arguments().filter(is_shown) {
        let heading = match (argument.get_help_heading(), argument.is_positional()) {
            (Some(heading), _) => heading,
            (None, true) => "Arguments",
            (None, false) => "Options",
        };
        match all.iter_mut().find(|(known, _)| known == heading) {
            Some((_, list)) => list.push(argument),
            None => all.push((heading.to_owned(), vec![argument])),
        }
    }
    // As in the help: what has no name stands first.
    all.sort_by_key(|(heading, _)| match heading.as_str() {
        "Arguments" => 0,
        "Options" => 1,
        _ => 2,
    });
    all
}

/// An argument: its names, its help, its default and its values.
fn entry(argument: &Arg) -> String {
    let text = argument.get_long_help().or(argument.get_help()).unwrap_or_default().to_string();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let values: Vec<String> = argument
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(|name| format!("<{name}>"))
        .collect();
    let values =
        if argument.get_action().takes_values() { values.join(" ") } else { String::new() };
    let names = argument.get_short().map(|c| format!("-{c}")).into_iter();
    let names = names.chain(argument.get_long().map(|name| format!("--{name}")));
    let names: Vec<String> = names.collect();
    let name = format!("{} {values}", names.join(", ")).trim().to_owned();
    let mut entry = format!("`{name}`: {}", prose(&text));
    let default: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let is_told = argument.is_hide_default_value_set() || !argument.get_action().takes_values();
    if !default.is_empty() && !is_told {
        let _ = write!(entry, ". Default: `{}`", default.join(" "));
    }
    let possible = argument.get_possible_values();
    let is_shown =
        |value: &&PossibleValue| !value.is_hide_set() && value.get_name() != NOT_RELEASED;
    let possible: Vec<_> = possible.iter().filter(is_shown).collect();
    if possible.is_empty() || !argument.get_action().takes_values() {
        return entry;
    }
    let names: Vec<String> =
        possible.iter().map(|value| format!("`{}`", value.get_name())).collect();
    if possible.iter().all(|value| value.get_help().is_none()) {
        let _ = write!(entry, ". Values: {}", names.join(", "));
        return entry;
    }
    entry.push_str(". Values:");
    for (value, name) in possible.iter().zip(names) {
        let about = value.get_help().map(|help| prose(&help.to_string())).unwrap_or_default();
        let _ = write!(entry, "\n  * {name}: {about}");
    }
    entry
}
