//! Sources and patches: fetched, checked, paired, unpacked.

mod download;
pub mod version;

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Serialize;

pub use self::version::Version;
use crate::{
    cache::Cache,
    debian,
    digest::{key_of, sha256_of_file},
    error::LabError,
    patch::{self, PatchFile},
    patch_report::PatchReport,
    progress::{Report, StepProgress, step},
    spec::{Patch, Spec, SpecSource},
    tool::{self, Need},
};

/// What was fetched of a spec.
#[derive(Clone, Debug, Serialize)]
pub struct Fetched {
    /// What the source is, exactly: package and version, checksum or commit.
    pub identity: String,
    /// The version, where it is known before unpacking.
    pub version: Option<Version>,
    pub place: SourceLocation,
    /// The patches, in their order.
    pub patches: Vec<PatchFile>,
    /// What the user should know about how they go together.
    pub warnings: Vec<String>,
}

/// Where a source is.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceLocation {
    Archive(PathBuf),
    /// A tarball in a Debian package.
    Package(PathBuf),
    /// A commit in a bare repository.
    Commit(PathBuf, String),
    Folder(PathBuf),
}

/// A source that is ready: unpacked and patched.
#[derive(Clone, Debug, Serialize)]
pub struct SourceTree {
    pub path: PathBuf,
    pub version: Version,
    /// What it is: the source's identity, and each patch's.
    pub identity: Vec<(String, String)>,
    /// How the patches went; none when it was ready already or there are none.
    pub report: Option<PatchReport>,
}

/// Fetches source and patches, and checks that they belong together. `from` says where a vendor's
/// tree is, or takes the place of the spec's own address.
///
/// # Errors
///
/// It can't be fetched, is damaged, or patch and source are of different series.
pub fn fetch(
    spec: &Spec,
    cache: &Cache,
    from: Option<&str>,
    report: &mut Report<'_>,
) -> Result<Fetched, LabError> {
    let downloads = cache.downloads();
    fs::create_dir_all(&downloads).map_err(LabError::file("make", &downloads))?;
    cache.sweep();
    if let (SpecSource::Vendor { vendor, reference }, None) = (&spec.source, from) {
        return Err(no_address(vendor, reference));
    }
    // A patch is small: one that is missing is named before a source of 200 MB is fetched.
    let mut patches = Vec::new();
    for wanted in &spec.patches {
        patches.extend(fetch_patch(&spec.name, wanted, cache, report)?);
    }
    let mut fetched = fetch_source(spec, cache, from, report)?;
    fetched.patches = patches;
    if let Some(version) = fetched.version {
        fetched.warnings = pairing(version, &fetched.patches)?;
        for warning in &fetched.warnings {
            report(StepProgress::Warning(warning.clone()));
        }
    }
    Ok(fetched)
}

/// What unpacking and patching a spec's source needs.
#[must_use]
pub fn needs(spec: &Spec) -> Vec<Need> {
    let mut needs = vec![Need::of("tar", "tar")];
    if matches!(spec.source, SpecSource::Debian { .. } | SpecSource::Archive { .. }) {
        needs.push(Need::of("xz", "xz-utils"));
    }
    if matches!(spec.source, SpecSource::Debian { .. }) {
        needs.push(Need::of("dpkg-deb", "dpkg"));
    }
    if matches!(spec.source, SpecSource::Git { .. }) {
        needs.push(Need::of("git", "git"));
    }
    if !spec.patches.is_empty() {
        needs.push(Need::of("patch", "patch"));
    }
    needs
}

fn fetch_source(
    spec: &Spec,
    cache: &Cache,
    from: Option<&str>,
    report: &mut Report<'_>,
) -> Result<Fetched, LabError> {
    let done = |identity: String, version: Option<Version>, place: SourceLocation| Fetched {
        identity,
        version,
        place,
        patches: Vec::new(),
        warnings: Vec::new(),
    };
    match (&spec.source, from) {
        (SpecSource::Folder { path }, None) => folder(path, done),
        (_, Some(path)) if Path::new(path).join("Kbuild").is_file() => {
            folder(Path::new(path), done)
        }
        (SpecSource::Debian { package, suite, version }, None) => {
            let there = version.as_ref().and_then(|version| {
                let path = cache.downloads().join(format!("{package}_{version}.deb"));
                path.is_file().then(|| (path, version.clone()))
            });
            let (path, version) = match there {
                Some(there) => there,
                None => {
                    bring_package(cache, package, suite.as_deref(), version.as_deref(), report)?
                }
            };
            let number = Version::find(&version);
            Ok(done(format!("{package} {version}"), number, SourceLocation::Package(path)))
        }
        (SpecSource::Archive { from, sha256 }, other) => {
            let from = other.unwrap_or(from);
            let path = download::bring(from, Some(sha256), cache, report)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let number = Version::find(name.split_once('-').map_or(&name, |(_, rest)| rest));
            Ok(done(format!("sha256 {sha256}"), number, SourceLocation::Archive(path)))
        }
        (SpecSource::Git { from, reference, commit }, other) => {
            let from = other.unwrap_or(from);
            git(cache, from, reference, commit.as_deref(), report).map(|(repository, commit)| {
                done(format!("commit {commit}"), None, SourceLocation::Commit(repository, commit))
            })
        }
        (SpecSource::Vendor { reference, .. }, Some(from)) => {
            git(cache, from, reference, None, report).map(|(repository, commit)| {
                done(format!("commit {commit}"), None, SourceLocation::Commit(repository, commit))
            })
        }
        (SpecSource::Vendor { vendor, reference }, None) => Err(no_address(vendor, reference)),
        (SpecSource::Debian { .. } | SpecSource::Folder { .. }, Some(from)) => {
            Err(LabError::Refused(format!(
                "--from {from}: not a folder with a kernel's source, and the spec {} names no git tree or \
             archive that it could replace",
                spec.name
            )))
        }
    }
}

fn no_address(vendor: &str, reference: &str) -> LabError {
    LabError::Refused(format!(
        "rtscope doesn't know where to fetch the kernel tree of {vendor}: give the address of its git \
         repository with `--from` (rtscope uses the branch {reference}), or a folder with the unpacked \
         source"
    ))
}

fn folder(
    path: &Path,
    done: impl Fn(String, Option<Version>, SourceLocation) -> Fetched,
) -> Result<Fetched, LabError> {
    let path = path.canonicalize().map_err(LabError::file("read", path))?;
    let version = Version::of_tree(&path)?;
    Ok(done(format!("folder {}", fingerprint(&path)?), Some(version), SourceLocation::Folder(path)))
}

/// A hash of names, sizes and times of a folder's files: says cheaply whether something changed.
fn fingerprint(folder: &Path) -> Result<String, LabError> {
    let mut lines = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).map_err(LabError::file("read", &dir))?.flatten() {
            let path = entry.path();
            let Ok(there) = path.symlink_metadata() else { continue };
            if there.is_dir() {
                if entry.file_name() != ".git" {
                    open.push(path);
                }
                continue;
            }
            let time =
                there.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            let time = time.map_or(0, |time| time.as_nanos());
            let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            lines.push(format!("{name} {} {time}\n", there.len()));
        }
    }
    lines.sort_unstable();
    Ok(key_of(&[("folder", lines.concat().as_bytes())]))
}

/// Downloads a package. Lists of the machine's that are old may name a version that is no more in the
/// archive; fresh lists of our own know the next.
fn bring_package(
    cache: &Cache,
    package: &str,
    suite: Option<&str>,
    asked: Option<&str>,
    report: &mut Report<'_>,
) -> Result<(PathBuf, String), LabError> {
    let (apt, version) = find_package(cache, package, suite, asked, report)?;
    let first = match apt.download(package, &version, &cache.downloads(), report) {
        Ok(path) => return Ok((path, version)),
        Err(error) => error,
    };
    let fresh = debian::Apt::private(cache, suite, None, report);
    let newer = fresh.and_then(|apt| Ok((apt.version(package, asked)?, apt)));
    match newer {
        Ok((Some(newer), apt)) if newer != version => {
            Ok((apt.download(package, &newer, &cache.downloads(), report)?, newer))
        }
        _ => Err(first),
    }
}

/// A package and the apt that knows it: the machine's own, else one with the further suite.
fn find_package(
    cache: &Cache,
    package: &str,
    suite: Option<&str>,
    asked: Option<&str>,
    report: &mut Report<'_>,
) -> Result<(debian::Apt, String), LabError> {
    let own = debian::Apt::own(cache)?;
    if let Some(version) = own.version(package, asked)? {
        return Ok((own, version));
    }
    let private = debian::Apt::private(cache, suite, None, report)?;
    if let Some(version) = private.version(package, asked)? {
        return Ok((private, version));
    }
    let exactly = asked.map_or(String::new(), |version| format!(" in version {version}"));
    Err(LabError::Refused(format!(
        "no configured Debian archive has the package {package}{exactly}: run `apt-get update`, or \
         name another version in the spec"
    )))
}

/// Fetches a reference of a git repository without its history.
fn git(
    cache: &Cache,
    from: &str,
    reference: &str,
    commit: Option<&str>,
    report: &mut Report<'_>,
) -> Result<(PathBuf, String), LabError> {
    tool::require(&[Need::of("git", "git")])?;
    is_repository(from)?;
    // For git it would be an option, and some options name programs.
    if let Some(word) = [from, reference].into_iter().find(|word| word.starts_with('-')) {
        return Err(LabError::Refused(format!(
            "{word:?}: the address and the reference of a git tree don't begin with '-'"
        )));
    }
    if let Some(own) = commit.and_then(|commit| repository_with(from, commit)) {
        return Ok((own, commit.unwrap_or_default().to_owned()));
    }
    let name = format!("git-{}", key_of(&[("from", from.as_bytes())]));
    let repository = cache.downloads().join(&name);
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.env("GIT_HTTP_LOW_SPEED_LIMIT", "1")
            .env("GIT_HTTP_LOW_SPEED_TIME", download::STALLED_AFTER_S);
        // In the background it would keep the lock.
        git.args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"]);
        tool::output(git.arg("--git-dir").arg(&repository).args(words))
    };
    // FETCH_HEAD is what was fetched last, by whomever.
    let _lock = cache.lock(&name, report)?;
    if !repository.join("HEAD").is_file() {
        git(&["init", "--quiet", "--bare"])?;
    }
    let has = |commit: &str| git(&["cat-file", "-e", &format!("{commit}^{{commit}}")]).is_ok();
    if let Some(commit) = commit.filter(|commit| has(commit)) {
        return Ok((repository.clone(), commit.to_owned()));
    }
    step(report, format!("fetching {reference} of a git tree, without its history"));
    git(&["fetch", "--quiet", "--depth", "1", "--", from, reference])
        .map_err(|error| not_fetched(error, from, reference))?;
    let found = git(&["rev-parse", "FETCH_HEAD^{commit}"])?.trim().to_owned();
    match commit {
        Some(asked) if asked != found => Err(LabError::Refused(format!(
            "{reference} is commit {found} now, and the spec asks for {asked}: name the tag or branch \
             that has it"
        ))),
        _ => Ok((repository, found)),
    }
}

/// The repository of a folder of this machine, if it has the commit: nothing is fetched then.
fn repository_with(from: &str, commit: &str) -> Option<PathBuf> {
    let git = |words: &[&str]| tool::output(Command::new("git").arg("-C").arg(from).args(words));
    Path::new(from).is_dir().then_some(())?;
    git(&["cat-file", "-e", &format!("{commit}^{{commit}}")]).ok()?;
    let folder = git(&["rev-parse", "--absolute-git-dir"]).ok()?;
    Some(PathBuf::from(folder.trim()))
}

/// What git said, after what was fetched from where, and before what helps.
fn not_fetched(error: LabError, from: &str, reference: &str) -> LabError {
    let LabError::Program { said, .. } = error else { return error };
    let cause = said.lines().find_map(|line| line.trim().strip_prefix("fatal: "));
    LabError::NotFetched {
        reference: reference.to_owned(),
        from: from.to_owned(),
        cause: cause.unwrap_or(said.trim()).to_owned(),
    }
}

/// Refuses a folder of this machine that is no repository: git would say it in words of its own.
fn is_repository(from: &str) -> Result<(), LabError> {
    let path = Path::new(from);
    // An address has a colon, as in `https://` and `server:path`.
    if (from.contains(':') && !path.exists()) || path.join(".git").exists() {
        return Ok(());
    }
    let what = match () {
        () if !path.exists() => "isn't there",
        // A bundle, or a bare repository.
        () if path.is_file() || path.join("HEAD").is_file() => return Ok(()),
        () => "is neither an unpacked kernel source (it has no Kbuild) nor a git repository",
    };
    Err(LabError::Refused(format!(
        "{from} {what}: give the address of a git repository, or a folder with one or with the unpacked \
         source"
    )))
}

fn fetch_patch(
    kernel: &str,
    wanted: &Patch,
    cache: &Cache,
    report: &mut Report<'_>,
) -> Result<Vec<PatchFile>, LabError> {
    match wanted {
        Patch::File { from, .. } if !from.contains("://") && !Path::new(from).exists() => {
            Err(LabError::Refused(format!(
                "{kernel} needs the patch {from}, which isn't there: download it first; `rtscope kernel \
                 show {kernel}` says what is known about it"
            )))
        }
        Patch::File { from, sha256, made_for } => {
            let path = download::bring(from, sha256.as_deref(), cache, report)?;
            let name = from.rsplit('/').next().unwrap_or(from).to_owned();
            let made_for = Version::find(made_for.as_deref().unwrap_or(&name));
            Ok(vec![patch_file(name, path, made_for)?])
        }
        Patch::Series { path, made_for } => {
            series(path, made_for.as_deref().and_then(Version::find))
        }
        Patch::DebianSeries { package, version, folder, count } => {
            let unpacked = cache.downloads().join(format!("{package}_{version}.debian"));
            if !unpacked.is_dir() {
                let apt = debian::Apt::private(cache, None, None, report)?;
                let packed = apt.download_diff(package, version, &cache.downloads(), report)?;
                unpack(vec![tar_of(&packed)], &unpacked, 0)?;
            }
            let found = series(&unpacked.join(folder), Version::find(version))?;
            if count.is_some_and(|count| count != found.len()) {
                return Err(LabError::Refused(format!(
                    "{package} {version} has {} patches in {folder}, not {} as the spec says",
                    found.len(),
                    count.unwrap_or_default()
                )));
            }
            Ok(found)
        }
    }
}

fn patch_file(
    name: String,
    path: PathBuf,
    made_for: Option<Version>,
) -> Result<PatchFile, LabError> {
    let sha256 = sha256_of_file(&path).map_err(LabError::file("read", &path))?;
    Ok(PatchFile { name, path, sha256, made_for })
}

/// The patches that a folder's `series` names.
fn series(folder: &Path, made_for: Option<Version>) -> Result<Vec<PatchFile>, LabError> {
    let path = folder.join("series");
    let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
    // A line may carry options of quilt after the name; -p1 is what we do anyway.
    let names = text.lines().filter_map(|line| line.split('#').next()?.split_whitespace().next());
    names.map(|name| patch_file(name.to_owned(), folder.join(name), made_for)).collect()
}

/// Warnings on how source and patches go together.
fn pairing(version: Version, patches: &[PatchFile]) -> Result<Vec<String>, LabError> {
    let mut warnings: Vec<String> = Vec::new();
    for patch in patches {
        let Some(made_for) = patch.made_for else { continue };
        let warning = version::pair(version, made_for, &patch.name)?;
        // Patches of one series are made for one version: said once.
        if let Some(warning) = warning
            && !warnings.iter().any(|said| said.contains(&format!("made for {made_for} ")))
        {
            warnings.push(warning);
        }
    }
    if version.has_real_time() && patches.iter().any(|patch| patch.name.contains("-rt")) {
        warnings.push(format!(
            "{version} has real-time preemption without a patch (CONFIG_PREEMPT_RT): is this patch needed?"
        ));
    }
    Ok(warnings)
}

/// What a source with its patches is.
pub(crate) fn identity_of(fetched: &Fetched) -> Vec<(String, String)> {
    let source = ("source".to_owned(), fetched.identity.clone());
    let patches = fetched.patches.iter().map(|p| (format!("patch {}", p.name), p.sha256.clone()));
    std::iter::once(source).chain(patches).collect()
}

fn key_of_tree(identity: &[(String, String)]) -> String {
    let pairs: Vec<(&str, &[u8])> =
        identity.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    key_of(&pairs)
}

/// Removes the unpacked source of a spec that names a commit, which the next build of it unpacks again. A search may ask for
/// many commits, and each source takes more than a GiB; other sources stay.
///
/// # Errors
///
/// It isn't there to be unpacked again, or can't be removed.
pub fn discard(spec: &Spec, cache: &Cache, report: &mut Report<'_>) -> Result<(), LabError> {
    if !matches!(spec.source, SpecSource::Git { .. }) {
        return Ok(());
    }
    let key = key_of_tree(&identity_of(&fetch(spec, cache, None, report)?));
    let path = cache.tree(&key);
    let _lock = cache.lock(&key, report)?;
    match path.is_dir() {
        true => fs::remove_dir_all(&path).map_err(LabError::file("remove", &path)),
        false => Ok(()),
    }
}

/// Makes the source ready: unpacked and patched, once; a folder without patches is used as it is.
///
/// # Errors
///
/// It can't be unpacked, or a patch is rejected; then no half-patched folder is left.
pub fn tree(
    fetched: &Fetched,
    cache: &Cache,
    report: &mut Report<'_>,
) -> Result<SourceTree, LabError> {
    let identity = identity_of(fetched);
    if let (SourceLocation::Folder(path), true) = (&fetched.place, fetched.patches.is_empty()) {
        let version = Version::of_tree(path)?;
        return Ok(SourceTree { path: path.clone(), version, identity, report: None });
    }
    let key = key_of_tree(&identity);
    let path = cache.tree(&key);
    let _lock = cache.lock(&key, report)?;
    if path.is_dir() {
        let version = Version::of_tree(&path)?;
        return Ok(SourceTree { path, version, identity, report: None });
    }
    room_for_tree(cache)?;
    let part = path.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part).map_err(LabError::file("remove", &part))?;
    }
    unpack_place(&fetched.place, &part, report)?;
    let version = Version::of_tree(&part)?;
    pairing(version, &fetched.patches)?;
    let applied = match fetched.patches.as_slice() {
        [] => None,
        patches => {
            let outcome = patch::apply(&part, patches, &path.with_extension("rehearsal"), report);
            if outcome.is_err() {
                let _ = fs::remove_dir_all(&part);
            }
            Some(outcome?)
        }
    };
    fs::rename(&part, &path).map_err(LabError::file("rename", &part))?;
    Ok(SourceTree { path, version, identity, report: applied })
}

/// An unpacked 6.12 takes 1.5 GiB.
fn room_for_tree(cache: &Cache) -> Result<(), LabError> {
    crate::disk::require(cache.root(), 1700, " with --cache DIR")
}

fn unpack_place(
    place: &SourceLocation,
    to: &Path,
    report: &mut Report<'_>,
) -> Result<(), LabError> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match place {
        SourceLocation::Archive(path) => {
            step(report, format!("unpacking {}", name(path)));
            tool::require(&[Need::of("tar", "tar"), Need::of("xz", "xz-utils")])?;
            unpack(vec![tar_of(path)], to, 1)
        }
        SourceLocation::Package(path) => {
            step(report, format!("unpacking {}", name(path)));
            unpack_package(path, to)
        }
        SourceLocation::Commit(repository, commit) => {
            step(report, format!("unpacking commit {commit}"));
            let mut git = Command::new("git");
            git.arg("--git-dir").arg(repository).args(["archive", "--format=tar", commit]);
            unpack(vec![git, tar_of("-")], to, 0)
        }
        SourceLocation::Folder(path) => {
            step(report, format!("copying {}", path.display()));
            let mut tar = Command::new("tar");
            tar.arg("-C").arg(path).args(["--exclude=./.git", "-c", "-f", "-", "."]);
            unpack(vec![tar, tar_of("-")], to, 0)
        }
    }
}

/// The tarball in a package, unpacked without being stored in between.
fn unpack_package(package: &Path, to: &Path) -> Result<(), LabError> {
    tool::require(&[
        Need::of("dpkg-deb", "dpkg"),
        Need::of("tar", "tar"),
        Need::of("xz", "xz-utils"),
    ])?;
    let listed = tool::output(Command::new("dpkg-deb").arg("--contents").arg(package))?;
    let inner = listed
        .split_whitespace()
        .find(|word| word.starts_with("./usr/src/linux-source-") && word.contains(".tar."))
        .ok_or_else(|| LabError::Refused(format!("{} holds no source", package.display())))?;
    let mut outer = Command::new("dpkg-deb");
    outer.arg("--fsys-tarfile").arg(package);
    let mut middle = tar_of("-");
    middle.args(["--to-stdout", inner]);
    let mut last = tar_of("-");
    last.arg("-J");
    unpack(vec![outer, middle, last], to, 1)
}

fn tar_of(archive: impl AsRef<OsStr>) -> Command {
    let mut tar = Command::new("tar");
    tar.arg("-x").arg("-f").arg(archive);
    tar
}

/// Runs a pipeline whose last program is a tar that unpacks into a new folder, which is there only when
/// all went well.
fn unpack(mut programs: Vec<Command>, to: &Path, strip: usize) -> Result<(), LabError> {
    fs::create_dir_all(to).map_err(LabError::file("make", to))?;
    if let Some(tar) = programs.last_mut() {
        tar.arg("-C").arg(to).arg(format!("--strip-components={strip}")).arg("--no-same-owner");
    }
    let unpacked = tool::pipeline(&programs);
    if unpacked.is_err() {
        let _ = fs::remove_dir_all(to);
    }
    unpacked
}

#[cfg(test)]
mod tests;
