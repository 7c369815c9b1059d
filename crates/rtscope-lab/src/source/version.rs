//! Versions of sources and patches, and whether they belong together.

use std::{fmt, fs, path::Path};

use serde::Serialize;

use crate::error::LabError;

/// A kernel's version: 6.12.95 is series 6.12, sublevel 95.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Version {
    /// 6 of 6.12.95.
    pub major: u32,
    /// 12 of 6.12.95.
    pub minor: u32,
    /// 95 of 6.12.95; 0 of 6.12.
    pub sublevel: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.sublevel)
    }
}

impl Version {
    /// The first version in a text: `6.1.176-1`, `patch-5.4.70-rt40.patch.gz`.
    #[must_use]
    pub fn find(text: &str) -> Option<Version> {
        let starts = text.char_indices().filter(|(i, c)| {
            c.is_ascii_digit() && !text[..*i].ends_with(|b: char| b.is_ascii_digit() || b == '.')
        });
        starts.filter_map(|(i, _)| Version::at_start(&text[i..])).next()
    }

    fn at_start(text: &str) -> Option<Version> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let mut parts = text[..end].trim_end_matches('.').split('.');
        let mut next = || parts.next().map(str::parse::<u32>);
        let (major, minor) = (next()?.ok()?, next()?.ok()?);
        let sublevel = next().transpose().ok()?.unwrap_or(0);
        Some(Version { major, minor, sublevel })
    }

    /// The version of an unpacked source, from its `Makefile`.
    ///
    /// # Errors
    ///
    /// It has none: the folder is no kernel's source.
    pub fn of_tree(tree: &Path) -> Result<Version, LabError> {
        let path = tree.join("Makefile");
        let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
        let number = |key: &str| {
            let value =
                |line: &str| line.strip_prefix(key)?.trim().strip_prefix('=')?.trim().parse().ok();
            text.lines().take(20).find_map(value)
        };
        match (number("VERSION"), number("PATCHLEVEL"), number("SUBLEVEL")) {
            (Some(major), Some(minor), Some(sublevel)) => Ok(Version { major, minor, sublevel }),
            _ => Err(LabError::Refused(format!("{} is not a kernel's source", tree.display()))),
        }
    }

    fn series(self) -> (u32, u32) {
        (self.major, self.minor)
    }

    /// Whether the mainline source of this version has real-time preemption in it.
    #[must_use]
    pub fn has_real_time(self) -> bool {
        self.series() >= (6, 12)
    }
}

/// Whether a patch made for one version goes with a source of another. A warning, when it may.
///
/// Within a series the stable updates change few lines, so that a patch made for a near sublevel
/// mostly applies; a rehearsal proves it before the source is touched. Between series it can't.
///
/// # Errors
///
/// Another series.
pub fn pair(source: Version, patch: Version, patch_name: &str) -> Result<Option<String>, LabError> {
    if source.series() != patch.series() {
        return Err(LabError::Pairing(format!(
            "{patch_name} is made for {patch} and the source is {source}: a real-time patch fits \
             only its own series; take a source of {}.{} or a patch of {}.{}",
            patch.major, patch.minor, source.major, source.minor
        )));
    }
    let gap = source.sublevel.abs_diff(patch.sublevel);
    let versions = if gap == 1 { "version" } else { "versions" };
    Ok(match source.sublevel.cmp(&patch.sublevel) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(format!(
            "{patch_name} is made for {patch} and the source is {source}, {gap} stable {versions} newer: \
             fuzz and offsets are to be expected, and a reject is possible"
        )),
        std::cmp::Ordering::Less => Some(format!(
            "{patch_name} is made for {patch} and the source is {source}, {gap} stable {versions} older: \
             the patch may need changes that this source lacks; it is better to use a source of {patch}"
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::find(text).unwrap_or_else(|| panic!("no version in {text}"))
    }

    #[test]
    fn versions_are_found_in_names() {
        let found = |text| version(text).to_string();
        assert_eq!(found("patch-5.4.70-rt40.patch.gz"), "5.4.70");
        assert_eq!(found("6.12.95-1~bpo12+1"), "6.12.95");
        assert_eq!(found("linux-6.12.tar.xz"), "6.12.0");
        assert_eq!(found("linux-source-6.1"), "6.1.0");
        assert_eq!(found("rpi-6.12.y"), "6.12.0");
        assert_eq!(Version::find("rt40.patch"), None);
    }

    #[test]
    fn the_courses_pair_is_taken_with_the_numbers_said() {
        let warning = pair(version("5.4.72"), version("5.4.70"), "patch-5.4.70-rt40.patch.gz");
        let warning = warning.expect("taken").expect("with a warning");
        assert!(
            warning.contains("made for 5.4.70 and the source is 5.4.72, 2 stable versions newer")
        );
        assert_eq!(pair(version("6.1.176-1"), version("6.1.176-1"), "series").expect("fits"), None);
        let older =
            pair(version("5.4.69"), version("5.4.70"), "p").expect("taken").expect("warned");
        assert!(
            older.contains("1 stable version older") && older.contains("to use a source of 5.4.70")
        );
    }

    #[test]
    fn another_series_is_refused() {
        let said =
            pair(version("6.1.176"), version("5.4.70"), "p").expect_err("refused").to_string();
        assert!(said.contains("a source of 5.4 or a patch of 6.1"), "{said}");
        assert!(pair(version("5.10.1"), version("5.1.10"), "p").is_err());
    }

    #[test]
    fn a_trees_version_is_its_makefiles() {
        let tree = tempfile::tempdir().expect("a folder");
        assert!(Version::of_tree(tree.path()).is_err());
        let text = "# SPDX\nVERSION = 5\nPATCHLEVEL = 4\nSUBLEVEL = 73\nEXTRAVERSION =\n";
        fs::write(tree.path().join("Makefile"), text).expect("written");
        let found = Version::of_tree(tree.path()).expect("a version");
        assert_eq!(found.to_string(), "5.4.73");
        assert!(!found.has_real_time() && version("6.12").has_real_time());
    }
}
