//! `rtscope tune status`: which settings are changed, and by whom.

use std::{fmt::Write as _, path::Path, process::ExitCode};

use rtscope_lab::install;
use rtscope_measure::tune::{self, ChangedSetting, Persisted, SettingOwner};
use rtscope_sys::{process, tree::Tree};

use crate::{
    cli::print,
    exit,
    output::{print_folded, shown},
};

/// Show settings that rtscope has changed, and who holds them
///
/// Held: a running process changed the setting, and restores it when it ends. Kept: `rtscope tune apply --keep` changed
/// it. Left: the process was killed. The next rtscope command that measures restores the setting, and so does
/// `rtscope tune restore`.
///
/// Exit code: 0 no setting is changed, or all are as rtscope wrote them; 1 error; 2 somebody has changed a setting
/// since, or a killed process left one.
///
/// Examples:
///   sudo rtscope tune status
///   sudo rtscope tune status --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let found = read(&tune::journal_dir())?;
    if !process::is_root() {
        note!("only root can see what root's runs have changed: run this command as root");
    }
    let root = Path::new("/");
    let permanent = tune::persisted(root)?;
    let words = install::parameters(root)?;
    if args.json {
        let settings = permanent.as_ref().map(|one| &one.settings);
        let document =
            serde_json::json!({ "settings": found, "permanent": settings, "boot": words });
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        print_folded(&(text(&found) + &for_boots(permanent.as_ref(), words.as_deref())))?;
    }
    let is_sound = |one: &ChangedSetting| {
        !one.changed_since && !matches!(one.owner, SettingOwner::Left { .. })
    };
    let sound = found.iter().all(is_sound);
    Ok(ExitCode::from(if sound { exit::PASS } else { exit::FAIL }))
}

fn read(journal: &Path) -> anyhow::Result<Vec<ChangedSetting>> {
    tune::status(&Tree::default(), journal).map_err(|error| {
        anyhow::anyhow!(
            "can't read the journals in {}: {error}: run this command as root",
            journal.display()
        )
    })
}

fn text(found: &[ChangedSetting]) -> String {
    if found.is_empty() {
        return match process::is_root() {
            true => "no setting is changed by rtscope\n".to_owned(),
            false => "no rtscope of this user has changed a setting\n".to_owned(),
        };
    }
    let mut text = String::new();
    let mut last: Option<(&SettingOwner, &str)> = None;
    for one in found {
        if last != Some((&one.owner, &one.command)) {
            let _ = writeln!(text, "{}: {}", who(&one.owner), one.command);
            last = Some((&one.owner, &one.command));
        }
        let _ = write!(text, "  {}: {}: {} -> {}", one.setting, one.place, one.before, one.asked);
        let _ = match (&one.now, one.changed_since) {
            (Some(now), true) => writeln!(text, " (changed to {now} since)"),
            _ => writeln!(text),
        };
    }
    if found.iter().any(|one| !matches!(one.owner, SettingOwner::Held { .. })) {
        text += "`rtscope tune restore` restores the settings that were kept or left.\n";
    }
    text
}

/// What is there for the next boots.
fn for_boots(permanent: Option<&Persisted>, words: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(Persisted { settings, edited, files }) = permanent {
        let each: Vec<String> =
            settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let edited = if *edited { ", edited since" } else { "" };
        let file = files.first().map_or(String::new(), |path| shown(path).to_string());
        let _ = writeln!(text, "at each boot ({file}{edited}): {}", each.join(" "));
    }
    if let Some(words) = words {
        let _ = writeln!(text, "boot parameters: {words}");
    }
    text
}

fn who(owner: &SettingOwner) -> String {
    match owner {
        SettingOwner::Held { pid } => format!("held by process {pid}"),
        SettingOwner::Kept => "kept".to_owned(),
        SettingOwner::Left { pid } => format!("left by process {pid}, which was killed"),
    }
}
