//! Options of a verb as they were typed: for the verb in a guest, which reads them again.

use clap::{ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};

/// The options of a verb that runs in guests.
#[derive(Debug)]
pub(in crate::cli) struct Typed<A> {
    /// As they are read here, to be checked before anything runs.
    pub(super) options: A,
    /// As they were typed.
    pub(super) words: Vec<String>,
}

/// The words of the options of `A` that were typed, in the order of the help.
fn words<A: Args>(matches: &ArgMatches) -> Vec<String> {
    let known = A::augment_args(Command::new("guest"));
    let (mut words, mut last) = (Vec::new(), Vec::new());
    for argument in known.get_arguments() {
        let id = argument.get_id().as_str();
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let values = matches.get_raw(id).into_iter().flatten();
        let values = values.map(|value| value.to_string_lossy().into_owned());
        match argument.get_long() {
            Some(name) if argument.get_action().takes_values() => {
                words.extend(values.map(|value| format!("--{name}={value}")));
            }
            Some(name) => words.push(format!("--{name}")),
            None => last.extend(values),
        }
    }
    if !last.is_empty() {
        words.push("--".to_owned());
        words.extend(last);
    }
    words
}

impl<A: Args> FromArgMatches for Typed<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches_mut(&mut matches.clone())
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        let words = words::<A>(matches);
        Ok(Typed { options: A::from_arg_matches_mut(matches)?, words })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<A: Args> Args for Typed<A> {
    fn augment_args(command: Command) -> Command {
        A::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        A::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Args)]
    struct Options {
        #[arg(short, long, default_value = "1ms")]
        period: String,
        #[arg(long, value_delimiter = ',')]
        windows: Vec<u64>,
        #[arg(short, long)]
        quick: bool,
        #[arg(last = true)]
        command: Vec<String>,
    }

    #[derive(Debug, Parser)]
    struct Line {
        #[arg(long)]
        kernel: String,
        #[command(flatten)]
        typed: Typed<Options>,
    }

    #[test]
    fn what_was_typed_is_what_the_guest_reads() {
        let line = "rtscope --kernel a -q -p 2ms --windows 16,32 -- ./mine -x";
        let read = Line::parse_from(line.split(' '));
        let words = &read.typed.words;
        assert_eq!(words.join(" "), "--period=2ms --windows=16 --windows=32 --quick -- ./mine -x");
        let again =
            ["rtscope", "--kernel", "b"].into_iter().chain(words.iter().map(String::as_str));
        let again = Line::parse_from(again);
        assert_eq!(format!("{:?}", again.typed), format!("{:?}", read.typed));
        assert_eq!(read.kernel, "a");
        // A default is the guest's own.
        assert!(Line::parse_from(["rtscope", "--kernel", "a"]).typed.words.is_empty());
    }
}
