//! Whether each crate can be published: a trial of publishing them all, and the docs of what would be uploaded.
//!
//! Cargo's own check builds each crate with all that it needs, one after the other, which takes longer than all tests. Here
//! the packages are unpacked side by side and documented together: a file that is missing in one is still found, and
//! what each needs is compiled as far as the docs need it.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use crate::{shell, tidy};

/// How long packaging may take: it waits for the registry's index.
const PACK_LIMIT: Duration = Duration::from_secs(5 * 60);

/// How long the docs may take.
const DOC_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The docs are for whoever works on the code: private rooms are in them, and links lead there. Examples in help texts have
/// addresses as one types them.
const RUSTDOC_FLAGS: &str =
    "--deny warnings --allow rustdoc::private_intra_doc_links --allow rustdoc::bare_urls";

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
    if !tried.is_ok() {
        let said = shell::last_lines(&tried.log, 20);
        if is_unreachable(&said) {
            document(crate::root(), log)?;
            let instead = "none: the registry can't be reached, so the checkout was documented";
            return Ok(instead.to_owned());
        }
        bail!("{said}");
    }
    let packages = packages(folder)?;
    ensure!(!packages.is_empty(), "cargo packaged nothing");
    let room = folder.join("unpacked");
    unpack(&packages, &room)?;
    document(&room, log)?;
    Ok(format!("{} crates, documented as they would be uploaded", packages.len()))
}

/// Writes the docs of a workspace; any warning is an error.
fn document(workspace: &Path, log: &Path) -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.args(["doc", "--workspace", "--no-deps", "--document-private-items", "--manifest-path"]);
    cargo.arg(workspace.join("Cargo.toml")).env("RUSTDOCFLAGS", RUSTDOC_FLAGS);
    // As in our own profile, or the procedural macros would be compiled again.
    let debug = std::env::var("CARGO_PROFILE_DEV_DEBUG");
    cargo.env("CARGO_PROFILE_DEV_DEBUG", debug.as_deref().unwrap_or("line-tables-only"));
    cargo.env("CARGO_PROFILE_DEV_DEBUG_ASSERTIONS", "false");
    cargo.env("CARGO_TERM_COLOR", "never");
    cargo.env("CARGO_TARGET_DIR", crate::metadata()?.target_directory);
    let written = shell::logged(&mut cargo, log, DOC_LIMIT)?;
    ensure!(written.is_ok(), "{}", shell::last_lines(&written.log, 40));
    Ok(())
}

fn is_unreachable(said: &str) -> bool {
    ["Could not resolve", "Couldn't connect", "download of config.json failed", "network failure"]
        .iter()
        .any(|sign| said.contains(sign))
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

/// Unpacks the packages into one workspace, in which each takes the others.
fn unpack(packages: &BTreeMap<String, PathBuf>, room: &Path) -> Result<()> {
    fs::create_dir_all(room)?;
    let (mut members, mut patches) = (String::new(), String::new());
    for (name, file) in packages {
        let mut tar = Command::new("tar");
        // Sets the times to now: packaged files all have the same old time, so cargo would see no change.
        shell::output(tar.arg("-xzmf").arg(file).arg("-C").arg(room), UNPACK_LIMIT)?;
        let (of, _version) = name.rsplit_once('-').context("a package without a version")?;
        let _ = write!(members, "{name:?}, ");
        let _ = writeln!(patches, "{of} = {{ path = {name:?} }}");
    }
    let manifest = format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{members}]\n\n[patch.crates-io]\n{patches}"
    );
    fs::write(room.join("Cargo.toml"), manifest)?;
    fs::copy(crate::root().join("Cargo.lock"), room.join("Cargo.lock"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(is_unreachable("warning: spurious network error: Could not resolve hostname"));
        assert!(!is_unreachable("error: all dependencies must have a version requirement"));
    }
}
