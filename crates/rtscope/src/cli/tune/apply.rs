//! `rtscope tune apply`: settings for as long as a program runs, until the next boot, or for every boot.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus},
    time::Duration,
};

use anyhow::Context;
use rtscope_lab::install::{self, BootLayout};
use rtscope_measure::{
    signals::{ForwardedSignals, Interrupt},
    tune::{self, Proposal, ProposedChange, StartFile},
};
use rtscope_model::{cpu::CpuSet, event::Event};
use rtscope_sys::{process, shield, tree::Tree};

use super::{boot, root_of, settings};
use crate::{
    cli::print,
    exit,
    failure::Refused,
    output::{print_folded, shown},
};

/// Change settings while a command runs, or keep them
///
/// rtscope writes the old values to a journal, changes the settings, reads them back and restores them when COMMAND
/// ends. Without COMMAND, it restores them at Ctrl-C. With --keep, they stay until `rtscope tune restore` or the next
/// boot. `rtscope tune list` has the settings; docs/guide/settings.md describes them.
///
/// With `shield`, COMMAND and every process that it starts run inside the shield. Ctrl-C goes to COMMAND, and rtscope waits
/// until COMMAND ends. rtscope forwards SIGTERM and SIGHUP to COMMAND.
///
/// Exit code: that of COMMAND. Without COMMAND: 0 success, 1 error, 64 wrong command line.
///
/// Examples:
///   rtscope tune apply --dry-run shield=last throttling=off
///   sudo rtscope tune apply shield=last -- ./my-loop
///   sudo rtscope tune apply --boot isolcpus=2-3 --boot nohz_full=2-3
///   sudo rtscope tune apply --persist --root /mnt/card throttling=off
///   sudo rtscope tune apply --keep irq-affinity=0@eth0 thp=never
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// Settings to change, for example throttling=off
    #[arg(value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Show what would change, with old and new values, and what can't be moved; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep the settings until `rtscope tune restore` or the next boot
    #[arg(long, conflicts_with = "command")]
    keep: bool,
    /// Change the settings at each boot: write a systemd unit or a start script that applies them
    #[arg(long, conflicts_with = "command")]
    persist: bool,
    /// Set PARAMETER on the kernel command line, for example isolcpus=2-3, in a boot entry beside the old one
    #[arg(long, value_name = "PARAMETER", conflicts_with = "command")]
    boot: Vec<String>,
    /// Write the files of --persist and --boot below DIR, for example a mounted SD card
    #[arg(long, value_name = "DIR", conflicts_with_all = ["keep", "command"])]
    root: Option<PathBuf>,
    /// Layout of the boot files: raspberry-pi, armbian, grub, extlinux, u-boot, systemd-boot [default: detected from the files]
    #[arg(long, value_name = "LAYOUT", requires = "boot")]
    layout: Option<BootLayout>,
    /// Path of rtscope on the system that --persist changes [default: this program; with --root, the rtscope found
    /// there]
    #[arg(long, value_name = "FILE", requires = "persist")]
    program: Option<PathBuf>,
    /// Accept parameters that look mistyped, and replace files of --persist that were edited
    #[arg(long)]
    force: bool,
    /// Print the changes as one JSON document
    #[arg(long, requires = "dry_run")]
    json: bool,
    /// Program that runs under the settings, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Args {
    pub(super) fn only_shows(&self) -> bool {
        self.dry_run
    }
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = settings::read("", &args.settings)?;
    if settings.is_empty() && args.boot.is_empty() {
        return Err(Refused(format!("name at least one setting: {}", names())).into());
    }
    let root = root_of(args.root.as_deref())?;
    if args.root.is_some() && !args.persist && !settings.is_empty() {
        let text = "--root: settings of another system can only be made permanent: add --persist";
        return Err(Refused(text.to_owned()).into());
    }
    if settings.is_empty() && (args.keep || args.persist || !args.command.is_empty()) {
        return Err(Refused(format!("name at least one setting: {}", names())).into());
    }
    let words = boot::words(&args.boot, &root, args.force)?;
    let layout = match words.is_empty() {
        true => None,
        false => Some(boot::layout(&root, args.layout)?),
    };
    let held = tune::SETTINGS
        .iter()
        .find(|one| args.keep && one.needs_its_process() && settings.contains_key(one.name));
    if let Some(held) = held {
        return Err(tune::TuneError::EndsWithProcess { setting: held.name.to_owned() }.into());
    }
    let start_file = match args.persist {
        true => Some(start_file(args, &settings, &root)?),
        false => None,
    };
    if args.dry_run {
        let boot = layout.map(|layout| (layout, words.as_str()));
        return dry_run(args, &settings, &root, start_file.as_ref(), boot);
    }
    // What is permanent first: if it is refused, nothing is changed now either.
    if let Some(file) = &start_file {
        make_permanent(file, &root)?;
    }
    if let Some(layout) = layout {
        print_folded(&boot::set(&root, layout, &words)?)?;
    }
    if settings.is_empty() || args.persist && !args.keep {
        return Ok(ExitCode::from(exit::PASS));
    }
    apply(args, &settings)
}

fn make_permanent(file: &StartFile, root: &Path) -> anyhow::Result<()> {
    file.write()?;
    let link = file.link.iter().map(|(link, _)| link);
    for path in std::iter::once(&file.path).chain(link) {
        print(&format!("{}\n", shown(path)))?;
    }
    reload(root);
    print_folded(&format!(
        "Each boot applies them from now on. `rtscope tune restore --persist{}` removes these files.\n",
        install::of_root(root)
    ))
}

/// What would make the settings permanent.
fn start_file(
    args: &Args,
    settings: &BTreeMap<String, String>,
    root: &Path,
) -> anyhow::Result<StartFile> {
    if root == Path::new("/") {
        let earlier = tune::persisted(root)?.map(|found| found.settings);
        check_each_boot(&Tree::default(), &tune::journal_dir(), earlier, settings)?;
    }
    let program = program(args, root)?;
    Ok(StartFile::new(root, &program, env!("CARGO_PKG_VERSION"), settings, args.force)?)
}

/// Refuses settings that would fail at each boot: what this machine doesn't have, or what doesn't go with the settings
/// that are permanent already. Each boot applies all of them or none.
fn check_each_boot(
    tree: &Tree,
    journal: &Path,
    earlier: Option<BTreeMap<String, String>>,
    settings: &BTreeMap<String, String>,
) -> anyhow::Result<()> {
    let with_them = match &earlier {
        None => String::new(),
        Some(earlier) => {
            let each: Vec<String> =
                earlier.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!(
                "together with the settings that each boot already applies ({}; `rtscope tune restore --persist` removes it)",
                each.join(" ")
            )
        }
    };
    let all = tune::with_earlier(earlier, settings);
    match tune::propose(tree, journal, &all) {
        Ok(_) | Err(tune::TuneError::Kept { .. } | tune::TuneError::Held { .. }) => Ok(()),
        Err(error) if with_them.is_empty() => Err(error.into()),
        Err(error) => Err(anyhow::Error::from(error).context(with_them)),
    }
}

/// The program that the files start.
fn program(args: &Args, root: &Path) -> anyhow::Result<PathBuf> {
    if let Some(program) = &args.program {
        return Ok(program.clone());
    }
    if root == Path::new("/") {
        return std::env::current_exe().context("can't find this program's file");
    }
    let usual = ["/usr/local/bin/rtscope", "/usr/bin/rtscope"].map(PathBuf::from);
    let tree = Tree::under(root);
    let there = usual.iter().find(|path| tree.is_file(path.strip_prefix("/").unwrap_or(path)));
    Ok(there.unwrap_or(&usual[0]).clone())
}

/// Tells a running systemd of the new files. It reads them at the next boot in any case.
pub(super) fn reload(root: &Path) {
    if root == Path::new("/") && Path::new("/run/systemd/system").is_dir() {
        let _ = Command::new("systemctl").arg("daemon-reload").status();
    }
}

fn names() -> String {
    let names: Vec<&str> = tune::SETTINGS.iter().map(|setting| setting.name).collect();
    format!("{} (`rtscope tune list` has their values)", names.join(", "))
}

fn dry_run(
    args: &Args,
    settings: &BTreeMap<String, String>,
    root: &Path,
    start_file: Option<&StartFile>,
    parameters: Option<(BootLayout, &str)>,
) -> anyhow::Result<ExitCode> {
    let proposal = match root == Path::new("/") {
        true => tune::propose(&Tree::default(), &tune::journal_dir(), settings)?,
        false => Proposal::default(),
    };
    let preview = match parameters {
        Some((layout, words)) => boot::preview(root, layout, words)?,
        None => String::new(),
    };
    if args.json {
        let mut document = serde_json::to_value(&proposal)?;
        document["boot"] = serde_json::json!(parameters.map(|(_, words)| words));
        document["start_file"] = serde_json::json!(start_file);
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        if let Some(file) = start_file {
            print(&text_of_file(file))?;
            if root == Path::new("/") {
                print("What each boot would change on this machine as it is now:\n")?;
            }
        }
        print_folded(&(text_of(&proposal, true) + &preview))?;
        print_folded("Nothing was changed (--dry-run).\n")?;
    }
    Ok(ExitCode::from(exit::PASS))
}

/// The file that would be written, with its text indented.
fn text_of_file(file: &StartFile) -> String {
    let mut text = format!("Would write {}:\n", shown(&file.path));
    for line in file.text.lines() {
        let _ = writeln!(text, "{}", format!("  {line}").trim_end());
    }
    if let Some((link, target)) = &file.link {
        let _ = writeln!(text, "Would link {} to {target}", shown(link));
    }
    text
}

/// The changes by setting. Of a setting with many, the first ones unless all are asked.
fn text_of(proposal: &Proposal, all: bool) -> String {
    const FIRST: usize = 4;
    let mut text = String::new();
    let mut rest = proposal.changes.as_slice();
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|one| one.setting == first.setting).count();
        let (of_setting, after) = rest.split_at(count);
        let _ = writeln!(text, "{}", first.setting);
        let shown = if all { count } else { count.min(FIRST) };
        for ProposedChange { place, from, to, .. } in &of_setting[..shown] {
            let _ = writeln!(text, "  {place}: {from} -> {to}");
        }
        if shown < count {
            let _ = writeln!(text, "  and {} more (--dry-run lists them)", count - shown);
        }
        rest = after;
    }
    for name in &proposal.already {
        let _ = writeln!(text, "{name}\n  already has this value");
    }
    for note in &proposal.notes {
        let _ = writeln!(text, "Note: {}", note.text);
    }
    text
}

fn apply(args: &Args, settings: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let (tree, journal) = (Tree::default(), tune::journal_dir());
    let proposal = tune::propose(&tree, &journal, settings)?;
    let interrupt = Interrupt::install_patient()?;
    let forwarded = ForwardedSignals::install()?;
    let applied = tune::apply(&tree, &journal, settings, &mut told)?;
    let to_terminal = text_of(&proposal, false);
    to_terminal.lines().for_each(|line| note!("{line}"));
    if args.keep {
        applied.keep(&journal)?;
        note!("kept until `rtscope tune restore` or the next boot");
        return Ok(ExitCode::from(exit::PASS));
    }
    let outcome = match args.command.split_first() {
        None => {
            note!("applied; press Ctrl-C to restore");
            while !interrupt.is_stopped() {
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(ExitCode::from(exit::PASS))
        }
        Some((program, _)) if interrupt.is_stopped() => {
            note!("interrupted, so {program} was not started");
            Ok(ExitCode::from(exit::INTERRUPTED))
        }
        Some((program, words)) => start(program, words, settings.contains_key("shield"))
            .and_then(|child| wait(child, &forwarded)),
    };
    let mut is_restored = true;
    applied.restore(&mut |event| {
        is_restored &= !is_not_restored(&event);
        told(event);
    });
    if is_restored {
        note!("restored");
        return outcome;
    }
    note!("some settings were not restored: run `rtscope restore` to try again");
    match args.command.is_empty() {
        true => outcome.map(|_| ExitCode::from(exit::ERROR)),
        false => outcome,
    }
}

fn is_not_restored(event: &Event) -> bool {
    matches!(event, Event::Found(finding) if finding.code == tune::NOT_RESTORED)
}

/// The changes are shown by themselves; what goes otherwise is said.
fn told(event: Event) {
    if let Event::Found(finding) = event
        && finding.code != "shield-bound-threads"
        && finding.code != "shield-not-moved"
    {
        note!("{}", finding.line());
    }
}

/// Starts a program, from a thread that is in the shield where there is one: what it starts is there too.
fn start(program: &str, words: &[String], in_shield: bool) -> anyhow::Result<Child> {
    let spawn = || {
        if in_shield && !enter() {
            anyhow::bail!("can't enter the shield, so {program} was not started");
        }
        Command::new(program).args(words).spawn().with_context(|| format!("can't start {program}"))
    };
    let started = std::thread::scope(|scope| scope.spawn(spawn).join());
    started.unwrap_or_else(|_| anyhow::bail!("can't start {program}"))
}

fn enter() -> bool {
    let tree = Tree::default();
    let hierarchies = shield::VERSION_1.iter().chain(&shield::VERSION_2);
    let cpus: Option<CpuSet> = hierarchies.filter_map(|at| shield::shielded(&tree, at)).next();
    cpus.is_some_and(|cpus| shield::enter(&cpus))
}

/// Waits for a program, and sends on to it what ends rtscope.
fn wait(mut child: Child, forwarded: &ForwardedSignals) -> anyhow::Result<ExitCode> {
    loop {
        if let Some(status) = child.try_wait().context("can't wait for the program")? {
            return Ok(code(status));
        }
        if let Some(signal) = forwarded.take() {
            let _ = process::signal(child.id(), signal);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// As a shell tells it: 128 and the signal for a program that was killed.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    ExitCode::from(u8::try_from(code.unwrap_or(1)).unwrap_or(exit::ERROR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_persist_does_not_disable_the_first() {
        let machine = tempfile::tempdir().expect("a folder");
        let state = machine.path().join("sys/devices/system/cpu/cpu0/cpuidle/state1");
        std::fs::create_dir_all(&state).expect("made");
        for (file, text) in [("disable", "0\n"), ("latency", "20\n")] {
            std::fs::write(state.join(file), text).expect("written");
        }
        let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let check = |earlier, settings| {
            let journal = machine.path().join("journals");
            check_each_boot(&Tree::under(machine.path()), &journal, earlier, &settings)
        };
        check(None, one("idle-latency", "10")).expect("alone");
        check(Some(one("idle-latency", "5")), one("idle-latency", "10")).expect("in its place");
        let refused = check(Some(one("idle-state", "0")), one("idle-latency", "10"));
        let refused = refused.expect_err("both set the same files");
        let is_usage = refused.downcast_ref::<tune::TuneError>();
        assert!(matches!(is_usage, Some(tune::TuneError::Refused(_))), "{refused:?}");
        let text = crate::failure::error_text(&refused);
        for part in ["idle-state=0", "tune restore --persist", "both set"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
