//! A Debian package, made of a built program, its manual, its completions, its units and its licences.
//!
//! It has no maintainer scripts: installing it changes no setting, enables no unit and gives no user a right.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result};

use super::target::Target;
use crate::{packaging::Description, shell};

/// How long packing may take: xz is slow on a busy machine.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// Where units lie in a package. Debian moves what packages have in `/lib` to `/usr/lib`; both are one folder.
const UNITS: &str = "usr/lib/systemd/system";

/// What goes into a package, beside the program.
pub(super) struct Contents<'a> {
    /// Version of the workspace.
    pub(super) version: &'a str,
    /// Folder with the pages of the manual.
    pub(super) man: &'a Path,
    /// Folder with the completions, named after their shells.
    pub(super) completions: &'a Path,
    /// The licences of everything that is linked into the program.
    pub(super) licences: &'a Path,
    /// How small xz makes it, 0 to 9.
    pub(super) level: u8,
    /// Seconds since 1970 that files are dated with: of the commit, so that the same commit gives the
    /// same package.
    pub(super) epoch: &'a str,
}

/// Makes a package in `out`. What is packed is laid out in `room`.
pub(super) fn package(
    target: &Target,
    program: &Path,
    contents: &Contents<'_>,
    room: &Path,
    out: &Path,
) -> Result<PathBuf> {
    let tree = room.join(format!("deb-{}", target.name));
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    let file = |from: &Path, to: &str, mode: u32| -> Result<()> {
        let to = tree.join(to);
        fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
        fs::copy(from, &to).with_context(|| format!("can't read {}", from.display()))?;
        Ok(fs::set_permissions(&to, fs::Permissions::from_mode(mode))?)
    };
    file(program, "usr/bin/rtscope", 0o755)?;
    for page in list(contents.man)? {
        file(&page, &format!("usr/share/man/man1/{}", name(&page)), 0o644)?;
    }
    for (shell, to) in [
        ("bash", "bash-completion/completions/rtscope"),
        ("zsh", "zsh/vendor-completions/_rtscope"),
        ("fish", "fish/vendor_completions.d/rtscope.fish"),
    ] {
        file(&contents.completions.join(shell), &format!("usr/share/{to}"), 0o644)?;
    }
    let root = crate::root();
    for unit in list(&root.join("packaging/systemd"))? {
        file(&unit, &format!("{UNITS}/{}", name(&unit)), 0o644)?;
    }
    let doc = "usr/share/doc/rtscope";
    file(&root.join("CHANGELOG.md"), &format!("{doc}/CHANGELOG.md"), 0o644)?;
    file(contents.licences, &format!("{doc}/third-party-licences"), 0o644)?;
    let description = Description::read()?;
    fs::write(tree.join(doc).join("changelog"), changelog(contents, &description)?)?;
    fs::write(tree.join(doc).join("copyright"), copyright(root)?)?;
    fs::write(tree.join(doc).join("README.Debian"), README)?;
    let overrides = tree.join("usr/share/lintian/overrides");
    fs::create_dir_all(&overrides)?;
    fs::write(overrides.join("rtscope"), OVERRIDES)?;
    compress(&tree)?;
    open_folders(&tree)?;
    let sum = sums(&tree)?;
    let control = tree.join("DEBIAN");
    fs::create_dir_all(&control)?;
    fs::write(control.join("md5sums"), sum)?;
    let text = control_text(target, contents.version, kib(&tree)?, &description);
    fs::write(control.join("control"), text)?;
    open_folders(&tree)?;
    let path = out.join(format!("rtscope_{}_{}.deb", contents.version, target.debian));
    let mut pack = Command::new("dpkg-deb");
    pack.env("SOURCE_DATE_EPOCH", contents.epoch);
    pack.args(["--root-owner-group", "-Zxz"]).arg(format!("-z{}", contents.level));
    pack.arg("--build").arg(&tree).arg(&path);
    shell::output(&mut pack, LIMIT)?;
    fs::remove_dir_all(&tree)?;
    Ok(path)
}

/// Debian Policy 5.3: what a binary package says of itself.
fn control_text(target: &Target, version: &str, kib: u64, description: &Description) -> String {
    let paragraphs = description
        .folded(78)
        .into_iter()
        .map(|lines| lines.into_iter().map(|line| format!(" {line}\n")).collect::<String>());
    let paragraphs: Vec<String> = paragraphs.collect();
    format!(
        "Package: rtscope\nVersion: {version}\nArchitecture: {}\n\
         Maintainer: {}\nInstalled-Size: {kib}\n\
         Suggests: qemu-system-x86 | qemu-system-arm\nSection: utils\nPriority: optional\n\
         Homepage: {}\nDescription: {}\n{}",
        target.debian,
        description.maintainer,
        description.homepage,
        description.summary,
        paragraphs.join(" .\n")
    )
}

/// What Debian's checker of packages would find, and why it is so.
const OVERRIDES: &str = "\
# One file that is copied to a board must need nothing there.
rtscope: statically-linked-binary
# A static program that may lie anywhere in memory looks like a library that needs none.
rtscope: shared-library-lacks-prerequisites
";

/// What the package leaves to the administrator: who may start real-time threads, and the units.
const README: &str = "\
rtscope for Debian
==================

The package gives no user a right: it has no group, no limits and no file
capabilities. root can start real-time threads. To allow others to, make a
group first. As root:

    groupadd --system rtscope
    usermod -aG rtscope USER

USER must log in again. Then choose one of these ways:

 * Limits, for all programs of the group. USER must log in again here, too:

     printf '@rtscope - rtprio 99\\n@rtscope - memlock unlimited\\n' \\
         > /etc/security/limits.d/rtscope.conf

 * Capabilities, for a copy of rtscope (setcap is in the package libcap2-bin).
   The copy stays as it is when the package is updated, and comes before
   /usr/bin/rtscope in most paths:

     install -o root -g rtscope -m 750 /usr/bin/rtscope /usr/local/bin/rtscope
     setcap cap_sys_nice,cap_ipc_lock+ep /usr/local/bin/rtscope

Real-time threads can keep other programs from running.

Two timers are installed, but not enabled:

 * rtscope-doctor.timer runs `rtscope doctor` each week. It only reads.
 * rtscope-history.timer measures for 4 s each day, 2 s of them under load, and
   adds the run to /var/lib/rtscope-history/history.sqlite.

     systemctl enable --now rtscope-doctor.timer

Disable them before you remove the package:

     systemctl disable --now rtscope-doctor.timer rtscope-history.timer
";

/// Debian Policy 4.4: the versions, in a form of its own. What changed is told by ours, which lies beside it.
fn changelog(contents: &Contents<'_>, description: &Description) -> Result<String> {
    let mut date = Command::new("date");
    date.env("LC_ALL", "C").args(["--utc", "--rfc-email", "--date"]);
    let date = shell::output(date.arg(format!("@{}", contents.epoch)), LIMIT)?;
    Ok(format!(
        "rtscope ({}) unstable; urgency=medium\n\n  * What changed is in CHANGELOG.md.gz beside this file.\n\n \
         -- {}  {}\n",
        contents.version,
        description.maintainer,
        date.trim()
    ))
}

/// Debian Policy 12.5: under which terms. Both of ours are named, ours to choose from is the user's.
fn copyright(root: &Path) -> Result<String> {
    let mit = fs::read_to_string(root.join("LICENSE-MIT"))?;
    let mit: String = mit
        .lines()
        .map(|line| format!(" {}\n", if line.is_empty() { "." } else { line }))
        .collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: rtscope\n\
         Comment: The program contains libraries and fonts of others, each under its own terms; they are\n \
         in third-party-licences.gz beside this file.\n\n\
         Files: *\nCopyright: The rtscope authors\nLicense: MIT or Apache-2.0\n\n\
         License: MIT\n{mit}\n\
         License: Apache-2.0\n On Debian, the whole text is in /usr/share/common-licenses/Apache-2.0.\n"
    ))
}

/// Debian Policy 12.1, 12.7: the manual and the changelogs are compressed, without a date inside.
fn compress(tree: &Path) -> Result<()> {
    let mut files = list(&tree.join("usr/share/man/man1"))?;
    let doc = tree.join("usr/share/doc/rtscope");
    files.extend(["changelog", "CHANGELOG.md", "third-party-licences"].map(|name| doc.join(name)));
    shell::output(Command::new("gzip").args(["-9", "-n"]).args(files), LIMIT).map(drop)
}

/// Everybody may enter the folders and read the files, whatever the mask of whoever builds.
fn open_folders(tree: &Path) -> Result<()> {
    shell::output(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(tree), LIMIT).map(drop)
}

/// What `md5sum` says of every file.
fn sums(tree: &Path) -> Result<String> {
    let mut md5sum = Command::new("md5sum");
    let paths = below(tree)?;
    md5sum.current_dir(tree).args(paths.iter().filter_map(|path| path.strip_prefix(tree).ok()));
    shell::output(&mut md5sum, LIMIT)
}

/// The size of all files, each rounded up to whole KiB as Debian counts it.
fn kib(tree: &Path) -> Result<u64> {
    let sizes = below(tree)?.into_iter().map(|path| Ok(path.metadata()?.size().div_ceil(1024)));
    sizes.sum()
}

/// Every file below a folder, sorted.
fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in list(folder)? {
        match path.is_dir() {
            true => found.extend(below(&path)?),
            false => found.push(path),
        }
    }
    Ok(found)
}

/// The entries of a folder, sorted.
pub(super) fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("can't list {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
