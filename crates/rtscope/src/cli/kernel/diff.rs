//! `rtscope kernel diff`: two configurations, each of a kernel that is there or that would be made.

use std::{path::Path, process::ExitCode};

use rtscope_lab::{
    build,
    config::difference::{self, Side},
    spec,
};

use super::{CacheArgs, KernelArgs, Screen, prepared, print_json};
use crate::{cli::print, exit, output::shown};

/// A configuration by name. A kernel that isn't built yet is brought as far as its configuration.
fn side(name: &str, kept: &CacheArgs, screen: &mut Screen) -> anyhow::Result<Side> {
    let cache = kept.cache();
    let is_there = name == "running" || Path::new(name).exists() || cache.find(name).is_some();
    if is_there || spec::find(name).is_err() {
        return Ok(difference::find(name, &cache)?);
    }
    let asked = KernelArgs { name: name.to_owned(), from: None, kept: kept.clone() };
    let (_, prepared) = prepared(&asked, build::require_tools, false, false, screen)?;
    let path = shown(&prepared.configured.path);
    Ok(Side { name: format!("{name} (not built yet)"), ..difference::find(&path, &cache)? })
}

pub(super) fn diff(names: [&String; 2], all: bool, kept: &CacheArgs) -> anyhow::Result<ExitCode> {
    let mut screen = Screen::new(kept.verbose);
    let before = side(names[0], kept, &mut screen)?;
    let after = side(names[1], kept, &mut screen)?;
    drop(screen);
    let found = difference::compare(&before.options, &after.options);
    if kept.json {
        return print_json(&serde_json::to_value(&found)?);
    }
    print(&difference::text(&found, [&before.name, &after.name], all))?;
    Ok(ExitCode::from(exit::PASS))
}
