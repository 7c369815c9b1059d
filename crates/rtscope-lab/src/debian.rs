//! Packages of Debian's archive, without a change to this machine's package sources.
//!
//! What the machine has configured is asked first. Another suite of the same archive (backports), or
//! its source packages, are derived from it: same address, same signature, other suite; in a private
//! configuration of apt, so that nothing of the machine's own changes.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    cache::Cache,
    disk,
    error::LabError,
    progress::{Report, StepProgress, step},
    tool::{self, Need},
};

/// Lists of packages older than this are fetched again when something isn't found in them.
const LISTS_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A suite of an archive that this machine has configured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Archive {
    address: String,
    suite: String,
    component: String,
    label: String,
}

/// apt with the machine's own configuration, or with a private one beside it.
#[derive(Clone, Debug)]
pub struct Apt {
    config: Option<PathBuf>,
    dir: PathBuf,
}

impl Apt {
    /// The machine's own configuration.
    ///
    /// # Errors
    ///
    /// This machine has no apt.
    pub fn own(cache: &Cache) -> Result<Apt, LabError> {
        tool::require(&[Need::of("apt-get", "apt"), Need::of("dpkg-deb", "dpkg")])?;
        Ok(Apt { config: None, dir: cache.root().join("apt") })
    }

    /// A private configuration: all suites of Debian that the machine has, their source packages, and
    /// further suites as `backports`. Its lists are fetched when they are missing or a day old.
    ///
    /// # Errors
    ///
    /// The machine has no Debian archive configured, or its lists can't be fetched.
    pub fn private(
        cache: &Cache,
        further: Option<&str>,
        architecture: Option<&str>,
        report: &mut Report<'_>,
    ) -> Result<Apt, LabError> {
        let own = Apt::own(cache)?;
        let lines = own.lines(further)?;
        let name = [Some("debian"), further, architecture].into_iter().flatten();
        let dir = own.dir.join(name.collect::<Vec<_>>().join("-"));
        for folder in ["lists/partial", "cache/archives/partial"] {
            let folder = dir.join(folder);
            fs::create_dir_all(&folder).map_err(LabError::file("make", &folder))?;
        }
        let sources = dir.join("sources.list");
        let stale = fs::read_to_string(&sources).ok().as_deref() != Some(&lines);
        let stamp = dir.join("updated");
        if stale {
            // If the update fails, the next call asks again.
            let _ = fs::remove_file(&stamp);
        }
        fs::write(&sources, &lines).map_err(LabError::file("write", &sources))?;
        let config = dir.join("apt.conf");
        let foreign = architecture.map_or(String::new(), |architecture| {
            format!("APT::Architectures {{ \"{architecture}\"; }};\nAPT::Architecture \"{architecture}\";\n")
        });
        let text = format!(
            "Dir::Etc::SourceList \"{dir}/sources.list\";\nDir::Etc::SourceParts \"/dev/null\";\n\
             Dir::State::Lists \"{dir}/lists\";\nDir::Cache \"{dir}/cache\";\n\
             APT::Sandbox::User \"\";\nAcquire::Languages \"none\";\n{foreign}",
            dir = dir.display()
        );
        fs::write(&config, text).map_err(LabError::file("write", &config))?;
        let apt = Apt { config: Some(config), dir };
        let age = stamp.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        if stale || age.is_none_or(|age| age > LISTS_AGE_MAX) {
            step(report, "fetching lists of packages");
            match tool::output(apt.command("apt-get").args(["-q", "update"])) {
                Ok(_) => fs::write(&stamp, "").map_err(LabError::file("write", &stamp))?,
                // Without a network, lists that were fetched before will do; and where the archive lacks
                // one list, as in the middle of a mirror's update, the others. The stamp stays as it was,
                // so the next call asks again.
                Err(error) if has_packages(&apt.dir.join("lists")) => {
                    report(StepProgress::Warning(format!(
                        "some lists of packages are missing or old: {error}"
                    )));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        if let Some(config) = &self.config {
            command.env("APT_CONFIG", config);
        }
        command
    }

    /// Lines of a `sources.list`, from what the machine has.
    fn lines(&self, further: Option<&str>) -> Result<String, LabError> {
        let format = "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(LABEL)";
        let targets = tool::output(self.command("apt-get").args([
            "indextargets",
            "--format",
            format,
            "Created-By: Packages",
        ]))?;
        let archives = archives(&targets);
        if archives.is_empty() {
            return Err(LabError::Refused(
                "no Debian archive is configured here, or `apt-get update` was never run: run that, \
                 or name another source in the spec (an archive, a git tree, a folder)"
                    .to_owned(),
            ));
        }
        let keyring = Path::new("/usr/share/keyrings/debian-archive-keyring.gpg");
        Ok(source_lines(&archives, further, keyring.exists().then_some(keyring)))
    }

    /// The version of a package that would be installed, or the asked one when there is such.
    pub fn version(&self, package: &str, asked: Option<&str>) -> Result<Option<String>, LabError> {
        let known = tool::output(self.command("apt-cache").args(["madison", package]))?;
        let versions = versions(&known, package);
        match asked {
            Some(asked) => Ok(versions.into_iter().find(|version| version == asked)),
            None => {
                let policy = tool::output(self.command("apt-cache").args(["policy", package]))?;
                let candidate =
                    policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "));
                let candidate = candidate.filter(|candidate| *candidate != "(none)");
                // A package of a suite that is not for automatic upgrades has a candidate too, but
                // one that conflicts with what is installed may have none.
                Ok(candidate.map(str::to_owned).or_else(|| versions.into_iter().next()))
            }
        }
    }

    /// Every version of a package that the archives hold, the newest first.
    pub fn versions(&self, package: &str) -> Result<Vec<String>, LabError> {
        let known = tool::output(self.command("apt-cache").args(["madison", package]))?;
        Ok(versions(&known, package))
    }

    /// Downloads a package; apt checks its signature and checksum.
    pub fn download(
        &self,
        package: &str,
        version: &str,
        folder: &Path,
        report: &mut Report<'_>,
    ) -> Result<PathBuf, LabError> {
        self.bring(folder, "the package", &["download"], (package, version, ".deb"), report)
    }

    /// Downloads the Debian part of a source package: its patches.
    pub fn download_diff(
        &self,
        package: &str,
        version: &str,
        folder: &Path,
        report: &mut Report<'_>,
    ) -> Result<PathBuf, LabError> {
        let words = ["source", "--download-only", "--diff-only", "--only-source"];
        let (what, file) =
            ("the patches of the source package", (package, version, ".debian.tar.xz"));
        self.bring(folder, what, &words, file, report)
    }

    /// Has apt-get download a file, named by its package, version and ending, unless it is there.
    fn bring(
        &self,
        folder: &Path,
        what: &str,
        words: &[&str],
        (package, version, ending): (&str, &str, &str),
        report: &mut Report<'_>,
    ) -> Result<PathBuf, LabError> {
        let done = folder.join(format!("{package}_{version}{ending}"));
        if done.is_file() {
            return Ok(done);
        }
        step(report, format!("downloading {what} {package} {version}"));
        // A packed source has 150 MB.
        disk::require(folder, 200, " with --cache DIR")?;
        let part = folder.join(format!("part-{}", std::process::id()));
        fs::create_dir_all(&part).map_err(LabError::file("make", &part))?;
        let mut apt = self.command("apt-get");
        apt.current_dir(&part).arg("-q").args(words).arg(format!("{package}={version}"));
        let ran = tool::fetching(&mut apt, || disk::size_bytes(&part), report);
        let found = ran.and_then(|()| {
            let entries = fs::read_dir(&part).map_err(LabError::file("read", &part))?;
            let mut paths = entries.flatten().map(|entry| entry.path());
            let ours = paths.find(|path| path.to_string_lossy().ends_with(ending));
            let path = ours.ok_or_else(|| {
                let words = words.join(" ");
                LabError::Refused(format!("apt-get {words} {package} downloaded no {ending}"))
            })?;
            fs::rename(&path, &done).map_err(LabError::file("rename", path))
        });
        let _ = fs::remove_dir_all(&part);
        found.map(|()| done)
    }
}

/// Whether a folder of apt's holds a list of packages.
fn has_packages(lists: &Path) -> bool {
    let entries = fs::read_dir(lists).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().contains("_Packages"))
}

/// Archives of Debian itself in the answer of `apt-get indextargets`.
fn archives(targets: &str) -> BTreeSet<Archive> {
    let archive = |line: &str| {
        let [origin, address, suite, component, label] =
            line.split('|').collect::<Vec<_>>().try_into().ok()?;
        (origin == "Debian").then(|| Archive {
            address: address.to_owned(),
            suite: suite.to_owned(),
            component: component.to_owned(),
            label: label.to_owned(),
        })
    };
    targets.lines().filter_map(archive).collect()
}

/// Every archive with its packages and its sources, and for the main one a further suite.
fn source_lines(
    archives: &BTreeSet<Archive>,
    further: Option<&str>,
    keyring: Option<&Path>,
) -> String {
    let signed = keyring.map_or(String::new(), |path| format!("[signed-by={}] ", path.display()));
    let mut lines = BTreeSet::new();
    let mut add = |address: &str, suite: &str, component: &str| {
        for kind in ["deb", "deb-src"] {
            lines.insert(format!("{kind} {signed}{address} {suite} {component}\n"));
        }
    };
    for Archive { address, suite, component, label } in archives {
        add(address, suite, component);
        if let Some(further) = further
            && label == "Debian"
            && !suite.contains('-')
        {
            add(address, &format!("{suite}-{further}"), component);
        }
    }
    lines.into_iter().collect()
}

/// Versions in the answer of `apt-cache madison`, as it orders them.
fn versions(madison: &str, package: &str) -> Vec<String> {
    let version = |line: &str| {
        let mut parts = line.split('|').map(str::trim);
        (parts.next()? == package).then_some(parts.next()?.to_owned())
    };
    madison.lines().filter_map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_suites_are_derived_from_the_configured_ones() {
        let targets = "Debian|file:/mirror/debian/|bookworm|main|Debian\n\
                       Debian|file:/mirror/debian/|bookworm-updates|main|Debian\n\
                       Debian|file:/mirror/security/|bookworm-security|main|Debian-Security\n\
                       Somebody|file:/other/|stable|main|Other\n";
        let lines = source_lines(&archives(targets), Some("backports"), Some(Path::new("/k.gpg")));
        let derived = "deb [signed-by=/k.gpg] file:/mirror/debian/ bookworm-backports main\n";
        assert!(lines.contains(derived), "{lines}");
        assert!(lines.contains("deb-src [signed-by=/k.gpg] file:/mirror/debian/ bookworm main\n"));
        assert!(!lines.contains("other") && !lines.contains("security-backports"));
        assert!(!lines.contains("updates-backports"), "{lines}");
        assert_eq!(lines.lines().count(), 8);
        assert!(archives("").is_empty());
    }

    #[test]
    fn one_list_of_packages_is_enough_to_go_on_with() {
        let lists = tempfile::tempdir().expect("a folder");
        assert!(!has_packages(lists.path()) && !has_packages(&lists.path().join("none")));
        for (name, enough) in [
            ("lock", false),
            ("mirror_debian_dists_bookworm_InRelease", false),
            ("mirror_debian_dists_bookworm_main_source_Sources.lz4", false),
            ("mirror_debian_dists_bookworm_main_binary-armhf_Packages.lz4", true),
        ] {
            fs::write(lists.path().join(name), "").expect("written");
            assert_eq!(has_packages(lists.path()), enough, "{name}");
        }
    }

    #[test]
    fn versions_are_madisons() {
        let text = " linux-source-6.1 | 6.1.192-2 | file:/s bookworm-security/main amd64 Packages\n \
                    linux-source-6.1 | 6.1.176-1 | file:/m bookworm/main amd64 Packages\n     \
                    linux | 6.1.176-1 | file:/m bookworm/main Sources\n";
        assert_eq!(versions(text, "linux-source-6.1"), ["6.1.192-2", "6.1.176-1"]);
        assert_eq!(versions(text, "linux"), ["6.1.176-1"]);
    }
}
