//! Whether each crate can be published: a trial of publishing them all, and the docs of what would be uploaded.
//!
//! Cargo's own check builds each crate with all that it needs, one after the other, which takes longer than all tests. Here
//! the packages are unpacked and documented: a file that is missing in one is still found.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, Package};

use super::rustdoc;
use crate::{shell, tidy};

/// How long packaging may take: it waits for the registry's index.
const PACK_LIMIT: Duration = Duration::from_secs(5 * 60);

/// How long unpacking a crate may take.
const UNPACK_LIMIT: Duration = Duration::from_secs(60);

/// Tries it in a folder. Without the registry there is no trial, which is no failure: the docs are those of the checkout.
pub(super) fn trial(folder: &Path, log: &Path) -> Result<String> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let mut cargo = shell::cargo();
    cargo.args(["publish", "--dry-run", "--workspace", "--allow-dirty", "--no-verify"]);
    let tried = shell::logged(cargo.env("CARGO_TARGET_DIR", folder), log, PACK_LIMIT)?;
    let metadata = crate::metadata()?;
    if !tried.is_ok() {
        let said = shell::last_lines(&tried.log, 20);
        if is_unreachable(&said) {
            rustdoc::document(&metadata, &of_checkout(&metadata), log)?;
            let instead = "none: the registry can't be reached, so the checkout was documented";
            return Ok(instead.to_owned());
        }
        bail!("{said}");
    }
    let unpacked = unpack(public(&metadata), &packages(folder)?, &folder.join("unpacked"))?;
    rustdoc::document(&metadata, &unpacked, log)?;
    Ok(format!("{} crates, documented as they would be uploaded", unpacked.len()))
}

/// The packages that are for publishing.
fn public(metadata: &Metadata) -> impl Iterator<Item = &Package> {
    metadata.workspace_packages().into_iter().filter(|it| it.publish.is_none())
}

/// Our crates' names and their folders here.
fn of_checkout(metadata: &Metadata) -> BTreeMap<String, PathBuf> {
    let folder = |it: &Package| Some((it.name.to_string(), it.manifest_path.parent()?.into()));
    public(metadata).filter_map(folder).collect()
}

/// Whether cargo failed for that reason: its warnings of a network that came back don't count.
fn is_unreachable(said: &str) -> bool {
    let error = said.rfind("\nerror").map_or(said, |at| &said[at..]);
    // A registry that is overloaded, or has had too many requests.
    let is_busy = error.contains("HTTP response")
        && [", got 429", ", got 5"].iter().any(|it| error.contains(it));
    let signs = [
        "Could not resolve",
        "Couldn't connect",
        "download of config.json failed",
        "network failure",
        "Timeout was reached",
        "Connection reset",
    ];
    is_busy || signs.iter().any(|sign| error.contains(sign))
}

/// The packages that cargo left below a folder: `NAME-VERSION` and the file.
fn packages(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let files = tidy::files(folder, &["."], "crate")?.into_iter().map(|file| folder.join(file));
    let named = files.map(|file| {
        let name = file.file_stem().context("a package without a name")?;
        Ok((name.to_string_lossy().into_owned(), file))
    });
    named.collect()
}

/// Unpacks the packages of our crates, each of which must be there: names and folders.
fn unpack<'a>(
    ours: impl Iterator<Item = &'a Package>,
    packages: &BTreeMap<String, PathBuf>,
    room: &Path,
) -> Result<BTreeMap<String, PathBuf>> {
    fs::create_dir_all(room)?;
    let mut folders = BTreeMap::new();
    for package in ours {
        let stem = format!("{}-{}", package.name, package.version);
        let file = packages.get(&stem).with_context(|| format!("cargo packaged no {stem}"))?;
        let mut tar = Command::new("tar");
        shell::output(tar.arg("-xzf").arg(file).arg("-C").arg(room), UNPACK_LIMIT)?;
        folders.insert(package.name.to_string(), room.join(stem));
    }
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_that_does_not_answer_is_told_from_a_package_that_is_wrong() {
        let failed = "warning: spurious network error (1 try remaining): [28] Timeout was reached\nerror: failed to";
        let answer = "get successful HTTP response from `https://index.crates.io/li/bc/libc` (192.0.2.1), got";
        for why in ["[28] Timeout was reached (x)", "[35] Recv failure: Connection reset by peer"] {
            assert!(is_unreachable(&format!("{failed} download\n\nCaused by:\n  {why}")), "{why}");
        }
        assert!(is_unreachable(&format!("{failed} {answer} 503")));
        assert!(is_unreachable(&format!("{failed} {answer} 429")));
        assert!(!is_unreachable(&format!("{failed} {answer} 404")));
        assert!(!is_unreachable(&format!("{failed} verify package tarball")));
    }

    #[test]
    fn packages_are_found_wherever_cargo_leaves_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("package/tmp");
        fs::create_dir_all(&deep).expect("a folder");
        for file in ["package/a-0.1.0.crate", "package/tmp/b-c-0.1.0.crate", "package/tmp/index"] {
            fs::write(folder.path().join(file), "").expect("written");
        }
        let found = packages(folder.path()).expect("read");
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a-0.1.0", "b-c-0.1.0"]);
    }

    #[test]
    fn a_crate_that_cannot_be_packaged_is_no_lack_of_a_network() {
        let warning =
            "warning: spurious network error (3 tries remaining): Could not resolve hostname\n";
        let unreachable =
            "error: failed to query replaced source\n\nCaused by:\n  Could not resolve host\n";
        assert!(is_unreachable(&format!("{warning}{unreachable}")));
        let refused = "error: all dependencies must have a version requirement";
        assert!(!is_unreachable(&format!("{warning}{refused}")));
    }
}
