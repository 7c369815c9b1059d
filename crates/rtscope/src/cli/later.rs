//! Verbs whose options clap learns only where they are asked for.

use std::{cell::Cell, ops::Deref};

use clap::{ArgMatches, Args, Command, CommandFactory, Error, FromArgMatches, Subcommand};

thread_local! {
    /// Whether the commands that are being made know everything from the beginning. clap makes a command of a type, and
    /// nothing but the type can tell it how.
    static IS_WHOLE: Cell<bool> = const { Cell::new(false) };
}

/// The command line with all options of all verbs, for whoever shows them. In one that learns them later, the text of the
/// enum of the verbs below a verb can replace the verb's own.
pub(super) fn whole<T: CommandFactory>() -> Command {
    IS_WHOLE.set(true);
    let command = T::command();
    IS_WHOLE.set(false);
    command
}

/// The options of one verb, or the verbs below it. A command line names one of thirty verbs: to prepare the others
/// takes longer than everything else that a short command does.
#[derive(Debug)]
pub(super) struct Later<T>(Box<T>);

impl<T> Deref for Later<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: FromArgMatches> FromArgMatches for Later<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(|it| Later(Box::new(it)))
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches_mut(matches).map(|it| Later(Box::new(it)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Later<T> {
    fn augment_args(command: Command) -> Command {
        now_or_later(command, T::augment_args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        now_or_later(command, T::augment_args_for_update)
    }
}

impl<T: Subcommand> Subcommand for Later<T> {
    fn augment_subcommands(command: Command) -> Command {
        now_or_later(command, T::augment_subcommands)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        now_or_later(command, T::augment_subcommands_for_update)
    }

    fn has_subcommand(name: &str) -> bool {
        T::has_subcommand(name)
    }
}

fn now_or_later(command: Command, augment: fn(Command) -> Command) -> Command {
    if IS_WHOLE.get() { augment(command) } else { command.defer(augment) }
}
