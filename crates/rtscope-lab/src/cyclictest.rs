//! Debian's own cyclictest for a guest, with the libraries it needs: what our sampler is checked against.
//!
//! The packages are fetched with the machine's own apt, which checks their signatures; nothing of them is
//! installed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    cache::{Cache, publish},
    debian::Apt,
    error::LabError,
    prebuilt::{self, debian_arch},
    progress::{Report, step},
    tool,
};

/// The package of cyclictest, and those of its libraries.
const PACKAGES: [&str; 3] = ["rt-tests", "libnuma1", "libc6"];

/// The program in its package and in the guest.
const PROGRAM: &str = "usr/bin/cyclictest";

/// Beginnings of the names of the libraries that it loads, the loader among them.
const LIBRARIES: [&str; 6] =
    ["ld-linux", "libc.so", "libpthread.so", "librt.so", "libdl.so", "libnuma.so"];

/// Folders of libraries, in packages and in the guest.
const FOLDERS: [&str; 4] = ["lib", "lib64", "usr/lib", "usr/lib64"];

/// A file of a guest: its path, its bytes, whether it can be run.
pub type GuestFile = (String, Vec<u8>, bool);

/// The program and its libraries, fetched when they aren't there.
///
/// # Errors
///
/// No configured archive of Debian has the packages, or the download fails.
pub fn files(
    arch: &str,
    cache: &Cache,
    report: &mut Report<'_>,
) -> Result<Vec<GuestFile>, LabError> {
    let debian = debian_arch(arch).ok_or_else(|| {
        LabError::Refused(format!("Debian has no cyclictest for the architecture {arch}"))
    })?;
    let root = cache.root().join("cyclictest").join(debian);
    if !root.join(PROGRAM).is_file() {
        fetch(arch, debian, &root, cache, report)?;
    }
    let mut files = vec![(PROGRAM.to_owned(), read(&root.join(PROGRAM))?, true)];
    for folder in FOLDERS {
        collect(&root, &root.join(folder), &mut files)?;
    }
    files.sort();
    Ok(files)
}

/// Whether the packages must be fetched first.
#[must_use]
pub fn needs_fetch(arch: &str, cache: &Cache) -> bool {
    let root = debian_arch(arch).map(|debian| cache.root().join("cyclictest").join(debian));
    !root.is_some_and(|root| root.join(PROGRAM).is_file())
}

fn fetch(
    arch: &str,
    debian: &str,
    root: &Path,
    cache: &Cache,
    report: &mut Report<'_>,
) -> Result<(), LabError> {
    tool::require(&prebuilt::fetching())?;
    let apt = match arch == crate::machine::own_arch() {
        true => Apt::own(cache)?,
        false => Apt::private(cache, None, Some(debian), report)?,
    };
    let downloads = cache.downloads().join(debian);
    fs::create_dir_all(&downloads).map_err(LabError::file("make", &downloads))?;
    if root.exists() && !root.join(PROGRAM).is_file() {
        fs::remove_dir_all(root).map_err(LabError::file("remove", root))?;
    }
    publish(root, |part| {
        PACKAGES.into_iter().try_for_each(|package| {
            let file = download(&apt, package, &downloads, report)?;
            step(report, format!("unpacking {package}"));
            tool::extract_package(&file, part, ".")
        })
    })
}

/// A package of the newest version that can be had: one may be in the lists and yet be gone from the
/// archive.
fn download(
    apt: &Apt,
    package: &str,
    downloads: &Path,
    report: &mut Report<'_>,
) -> Result<PathBuf, LabError> {
    let mut last = LabError::Refused(format!(
        "no configured Debian archive has the package {package}: run `apt-get update`"
    ));
    for version in apt.versions(package)? {
        match apt.download(package, &version, downloads, report) {
            Ok(path) => return Ok(path),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// The libraries below a folder. A link becomes the file that it leads to: a guest needs no links.
fn collect(root: &Path, folder: &Path, files: &mut Vec<GuestFile>) -> Result<(), LabError> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(root, &path, files)?;
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(inner) = path.strip_prefix(root) else { continue };
        let wanted = LIBRARIES.iter().any(|library| name.starts_with(library));
        if wanted && let Some(file) = within(root, &path) {
            files.push((inner.to_string_lossy().into_owned(), read(&file)?, true));
        }
    }
    Ok(())
}

/// The file that a path in an unpacked package leads to. A link from the root is one from the package's
/// root; what leads elsewhere is left out.
fn within(root: &Path, path: &Path) -> Option<PathBuf> {
    match fs::read_link(path) {
        Ok(target) if target.is_absolute() => {
            let inner = root.join(target.strip_prefix("/").ok()?);
            within(root, &inner)
        }
        Ok(_) | Err(_) => path.canonicalize().ok().filter(|file| file.is_file()),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, LabError> {
    fs::read(path).map_err(LabError::file("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_its_libraries_are_taken_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let root = folder.path().join("cyclictest/arm64");
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        put("usr/bin/cyclictest", "program");
        put("usr/bin/hackbench", "other");
        put("lib/aarch64-linux-gnu/libc.so.6", "libc");
        put("lib/aarch64-linux-gnu/libcrypt.so.1", "other");
        put("usr/lib/aarch64-linux-gnu/libnuma.so.1.0.0", "numa");
        put("lib/aarch64-linux-gnu/ld-2.36.so", "loader");
        let link = |target: &str, path: &str| {
            std::os::unix::fs::symlink(target, root.join(path)).expect("linked");
        };
        link("libnuma.so.1.0.0", "usr/lib/aarch64-linux-gnu/libnuma.so.1");
        link("/lib/aarch64-linux-gnu/ld-2.36.so", "lib/ld-linux-aarch64.so.1");
        link("/etc/passwd", "lib/librt.so.1");
        let files = files("arm64", &cache, &mut |_| {}).expect("there");
        let told: Vec<(&str, &[u8])> =
            files.iter().map(|(path, body, _)| (path.as_str(), body.as_slice())).collect();
        assert_eq!(
            told,
            [
                ("lib/aarch64-linux-gnu/libc.so.6", &b"libc"[..]),
                ("lib/ld-linux-aarch64.so.1", b"loader"),
                ("usr/bin/cyclictest", b"program"),
                ("usr/lib/aarch64-linux-gnu/libnuma.so.1", b"numa"),
                ("usr/lib/aarch64-linux-gnu/libnuma.so.1.0.0", b"numa"),
            ]
        );
    }
}
