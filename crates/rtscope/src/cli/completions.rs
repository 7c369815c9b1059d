//! `rtscope completions`: the command line, for a shell that completes it.

use std::process::ExitCode;

use clap::{Command, builder::PossibleValuesParser};
use clap_complete::Shell;
use rtscope_lab::{prebuilt, spec};
use rtscope_measure::{load::LOADS, wave::subject};

use super::{help, print, sched};
use crate::{exit, plans};

/// Print the completions for a shell
///
/// `rtscope completions bash` prints what bash reads from
/// /usr/share/bash-completion/completions/rtscope or, for one user, from
/// ~/.local/share/bash-completion/completions/rtscope. The Debian package brings those for bash, zsh
/// and fish.
///
/// They offer commands, options and the names of the shipped plans, loads, experiments and kernels. Kernels that you
/// built are not among them: `rtscope kernel list` shows those.
///
/// Examples:
///   rtscope completions bash > ~/.local/share/bash-completion/completions/rtscope
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    print(&script(args.shell)?)?;
    Ok(ExitCode::from(exit::PASS))
}

/// What a shell reads.
pub(super) fn script(shell: Shell) -> anyhow::Result<String> {
    let mut text = Vec::new();
    // zsh offers either names or files, and a user's own plan is a file.
    let names_or_files = shell != Shell::Zsh;
    clap_complete::generate(
        shell,
        &mut named(help::command(), names_or_files),
        "rtscope",
        &mut text,
    );
    Ok(String::from_utf8(text)?)
}

/// The command line with the names of what is shipped as the values of its arguments, which as the parser takes
/// them are any text.
fn named(command: Command, names_or_files: bool) -> Command {
    let plans: Vec<&'static str> = plans::SHIPPED.iter().map(|plan| plan.name).collect();
    let loads: Vec<&'static str> = LOADS.iter().map(|load| load.name).chain(["list"]).collect();
    let experiments: Vec<&'static str> = sched::SHIPPED.iter().map(|(name, _)| *name).collect();
    // clap takes only names that stay as long as the program, which ends when these are printed.
    let built: Vec<&'static str> = spec::all().into_iter().map(|spec| &*spec.name.leak()).collect();
    let kernels: Vec<&'static str> = prebuilt::NAMES.iter().chain(&built).copied().collect();
    let subjects: Vec<&'static str> = subject::SHIPPED
        .iter()
        .map(|subject| subject.name)
        .filter(|name| *name != "python")
        .chain([subject::OWN, "all"])
        .collect();
    let of_files: [(&[&str], &str, &[&'static str]); 26] = [
        (&["run"], "plan", &plans),
        (&["plan", "show"], "plan", &plans),
        (&["plan", "check"], "plan", &plans),
        (&["sched", "run"], "experiment", &experiments),
        (&["lab", "run"], "plan", &plans),
        (&["lab", "run"], "kernel", &kernels),
        (&["lab", "matrix"], "plan", &plans),
        (&["lab", "matrix"], "kernel", &kernels),
        (&["lab", "sched"], "kernel", &kernels),
        (&["lab", "wave", "generate"], "kernel", &kernels),
        (&["lab", "wave", "sweep"], "kernel", &kernels),
        (&["lab", "wave", "sweep"], "subject", &subjects),
        (&["lab", "drift"], "kernel", &kernels),
        (&["lab", "stat"], "kernel", &kernels),
        (&["lab", "throughput"], "kernel", &kernels),
        (&["lab", "bisect"], "plan", &plans),
        (&["lab", "bisect"], "good", &kernels),
        (&["lab", "bisect"], "bad", &kernels),
        (&["lab", "bisect"], "through", &kernels),
        (&["lab", "bisect"], "spec", &built),
        (&["kernel", "fetch"], "name", &built),
        (&["kernel", "patch"], "name", &built),
        (&["kernel", "configure"], "name", &built),
        (&["kernel", "build"], "name", &built),
        (&["kernel", "package"], "name", &built),
        (&["kernel", "install"], "kernel", &built),
    ];
    let of_names: [(&[&str], &str, &[&'static str]); 3] = [
        (&["load"], "name", &loads),
        (&["sched", "show"], "name", &experiments),
        (&["kernel", "show"], "name", &kernels),
    ];
    let of_files = of_files.into_iter().filter(|_| names_or_files);
    of_names.into_iter().chain(of_files).fold(command, |command, (path, argument, values)| {
        with_values(command, path, argument, values)
    })
}

fn with_values(
    command: Command,
    path: &[&str],
    argument: &str,
    values: &[&'static str],
) -> Command {
    match path {
        // `mut_arg` would move a positional argument behind the others.
        [] => command.mut_args(|known| match known.get_id() == argument {
            true => known.value_parser(PossibleValuesParser::new(values.to_vec())),
            false => known,
        }),
        [verb, rest @ ..] => {
            command.mut_subcommand(verb, |below| with_values(below, rest, argument, values))
        }
    }
}
