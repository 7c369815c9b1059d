//! `cargo xtask dist`: what is released, for every kind of machine.
//!
//! For each target a static, stripped program and a Debian package; for all together the source, the pages
//! of the manual, the completions (both from the real command line), the bill of materials, where all of it
//! comes from, and checksums. Each program is then run:
//! on this machine, under user emulation, and where the lab has a machine, in a guest.

mod debian;
mod provenance;
mod sbom;
mod target;
mod toolchain;
mod trial;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};

use crate::{
    notices,
    packages::{self, Package},
    packaging::Description,
    shell,
};
use debian::Contents;
use provenance::Build;
use sbom::Surroundings;
use target::{TARGETS, Target};

/// How long cargo may build for one target, on a machine that does other things too.
const BUILD_LIMIT: Duration = Duration::from_secs(90 * 60);

/// How long anything else may take.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// Size limit of a program for a board. `dist` fails above it, so that growth is noticed.
const BYTES_MAX: u64 = 14_000_000;

/// What was asked.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    targets: Vec<Target>,
    profile: String,
    /// Whether the programs are run in guests too.
    guests: bool,
}

impl Options {
    fn read(words: &[&str]) -> Result<Options> {
        let mut options =
            Options { targets: Vec::new(), profile: "release".to_owned(), guests: true };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--target" => {
                    let name = words.next().context("--target needs a name")?;
                    let known = TARGETS.iter().map(|target| target.name).collect::<Vec<_>>();
                    let found = Target::find(name).with_context(|| {
                        format!("{name:?} is no target: there are {}", known.join(", "))
                    })?;
                    options.targets.push(found);
                }
                "--profile" => {
                    options.profile = (*words.next().context("--profile needs a name")?).to_owned();
                }
                "--no-guests" => options.guests = false,
                other => bail!(
                    "{other:?} is not expected here: cargo xtask dist [--target NAME]... \
                     [--profile NAME] [--no-guests]"
                ),
            }
        }
        if options.targets.is_empty() {
            options.targets = TARGETS.to_vec();
        }
        Ok(options)
    }

    /// The packages that all of it takes and that aren't there.
    fn needed(&self) -> Vec<Package> {
        let mut needed =
            vec![Package { name: "dpkg", sign: "dpkg-deb", reason: "makes Debian packages" }];
        for target in &self.targets {
            needed.extend(toolchain::missing(target));
            needed.extend(trial::needed(target, self.guests));
        }
        // Two targets may need two programs of one package.
        needed.retain(Package::is_missing);
        needed.sort_by_key(|package| package.name);
        needed.dedup_by_key(|package| package.name);
        needed
    }
}

/// Builds, packs and tries; answers whether every target came through.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let options = Options::read(words)?;
    // Before anything is built: a build takes minutes, and what is missing has to be known now.
    println!("{}", packages::set_up(&options.needed()));
    let metadata = metadata_of_all()?;
    let out = metadata.target_directory.as_std_path().join("dist");
    let room = crate::scratch()?.join("dist");
    for folder in [&out, &room] {
        fs::create_dir_all(folder)?;
    }
    let own = TARGETS.iter().find(|target| target.is_own()).context("no target is this machine")?;
    let host = build(own, &options.profile)?;
    let common = Common::make(&host, &metadata, &out, &room)?;
    let mut sound = true;
    for target in &options.targets {
        let began = Instant::now();
        let outcome = release(target, &options, &host, &common);
        sound &= outcome.is_ok();
        let (mark, text) = match outcome {
            Ok(text) => ("ok    ", text),
            Err(e) => ("FAILED", format!("{e:#}")),
        };
        println!("{:7.1} s  {mark}  {:<8} {text}", began.elapsed().as_secs_f64(), target.name);
    }
    bill(&metadata, &fs::read(&host)?, &common)?;
    source(&common)?;
    pack_documents(&common.out, &common.version, &common.epoch)?;
    let names = options.targets.iter().map(|target| target.name).collect();
    let toolchains = options.targets.iter().map(|one| toolchain::find(one, &options.profile));
    // One that isn't found built nothing.
    let others = toolchains.flatten().filter(|one| !one.words.is_empty()).map(|one| one.name);
    seal(&common, &Build::new(&options.profile, names, others.collect())?)?;
    println!("{}", out.display());
    Ok(sound)
}

/// Cargo's metadata of what is built for any of the targets.
fn metadata_of_all() -> Result<cargo_metadata::Metadata> {
    let mut command = cargo_metadata::MetadataCommand::new();
    command.manifest_path(crate::root().join("Cargo.toml"));
    let words = TARGETS.iter().flat_map(|target| ["--filter-platform", target.triple]);
    command.other_options(words.map(str::to_owned).collect::<Vec<_>>());
    Ok(command.exec()?)
}

/// Writes the bill of materials.
fn bill(metadata: &cargo_metadata::Metadata, program: &[u8], common: &Common) -> Result<()> {
    let around = Surroundings::of(program, &common.epoch)?;
    let document = sbom::document(metadata, &common.version, &around)?;
    let text = serde_json::to_string_pretty(&document)? + "\n";
    Ok(fs::write(common.out.join("rtscope.cdx.json"), text)?)
}

/// Packs the source of the commit; without git there is none.
fn source(common: &Common) -> Result<()> {
    let name = format!("rtscope-{}", common.version);
    let tar = common.out.join(format!("{name}.tar"));
    let mut git = Command::new("git");
    git.args(["archive", "--format=tar", "HEAD"]).arg(format!("--prefix={name}/"));
    git.arg("--output").arg(&tar).current_dir(crate::root());
    if shell::output(&mut git, LIMIT).is_err() {
        println!("no git: without the source");
        return Ok(());
    }
    shell::output(Command::new("gzip").args(["-9", "-n", "-f"]).arg(tar), LIMIT).map(drop)
}

/// Packs the manual, the completions and the licences, for whoever takes the program without a package.
fn pack_documents(out: &Path, version: &str, epoch: &str) -> Result<()> {
    let file = format!("rtscope-{version}-documents.tar");
    let mut tar = Command::new("tar");
    tar.args(["--create", "--file", &file, "--sort=name", "--format=ustar", "--numeric-owner"]);
    tar.args(["--owner=0", "--group=0", "--mode=u=rwX,go=rX"]).arg(format!("--mtime=@{epoch}"));
    tar.args(["man", "completions", "third-party-licences"]).current_dir(out);
    shell::output(&mut tar, LIMIT)?;
    let mut gzip = Command::new("gzip");
    shell::output(gzip.args(["-9", "-n", "-f", &file]).current_dir(out), LIMIT).map(drop)
}

/// Writes where the files come from, and then the checksums of all.
fn seal(common: &Common, build: &Build) -> Result<()> {
    let file = common.out.join("rtscope.intoto.json");
    // It is no subject of its own.
    let _ = fs::remove_file(&file);
    checksums(&common.out)?;
    let sums = fs::read_to_string(common.out.join("SHA256SUMS"))?;
    let statement = provenance::statement(&sums, build, &Description::read()?)?;
    fs::write(file, serde_json::to_string_pretty(&statement)? + "\n")?;
    checksums(&common.out)
}

/// The SHA-256 of a file.
fn sum_of(file: &Path) -> Result<String> {
    let said = shell::output(Command::new("sha256sum").arg(file), LIMIT)?;
    Ok(said.split(' ').next().unwrap_or_default().to_owned())
}

/// What the packages of all targets have in common.
struct Common {
    version: String,
    epoch: String,
    man: PathBuf,
    completions: PathBuf,
    licences: PathBuf,
    out: PathBuf,
    room: PathBuf,
}

impl Common {
    fn make(
        host: &Path,
        metadata: &cargo_metadata::Metadata,
        out: &Path,
        room: &Path,
    ) -> Result<Common> {
        let version = version_of(host)?;
        let (man, completions) = (out.join("man"), out.join("completions"));
        for folder in [&man, &completions] {
            // A page of a verb that is gone must not stay.
            let _ = fs::remove_dir_all(folder);
            fs::create_dir_all(folder)?;
        }
        documents_of(host, &man, &completions)?;
        let licences = out.join("third-party-licences");
        fs::write(&licences, notices::document(metadata)?)?;
        let epoch = epoch()?;
        let (out, room) = (out.to_owned(), room.to_owned());
        Ok(Common { version, epoch, man, completions, licences, out, room })
    }
}

/// The version that a program says it has.
fn version_of(program: &Path) -> Result<String> {
    let version = shell::output(Command::new(program).arg("--version"), LIMIT)?;
    Ok(version.trim().rsplit(' ').next().unwrap_or_default().to_owned())
}

/// Writes the pages of the manual and the completions, which come from the program's own command line.
fn documents_of(program: &Path, man: &Path, completions: &Path) -> Result<()> {
    shell::output(Command::new(program).arg("man").arg(man), LIMIT)?;
    for shell in ["bash", "zsh", "fish"] {
        let script = shell::output(Command::new(program).args(["completions", shell]), LIMIT)?;
        fs::write(completions.join(shell), script)?;
    }
    Ok(())
}

/// When the commit was made, in seconds since 1970; 0 without git, so that nothing depends on today.
fn epoch() -> Result<String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(crate::root());
    Ok(shell::output(&mut git, LIMIT)
        .map_or_else(|_| "0".to_owned(), |said| said.trim().to_owned()))
}

/// One target: built, checked, packed, tried. Answers with what was shown.
fn release(target: &Target, options: &Options, host: &Path, common: &Common) -> Result<String> {
    let built = build(target, &options.profile)?;
    let program = fs::read(&built)?;
    target.check_static(&program).map_err(|e| anyhow!("{}: {e}", built.display()))?;
    let bytes = program.len() as u64;
    if options.profile == "release" && bytes >= BYTES_MAX {
        bail!("the program has {bytes} bytes, and should stay under {BYTES_MAX}");
    }
    let kept = common.out.join(format!("rtscope-{}-{}", common.version, target.name));
    fs::copy(&built, &kept)?;
    let contents = Contents {
        version: &common.version,
        man: &common.man,
        completions: &common.completions,
        licences: &common.licences,
        level: 6,
        epoch: &common.epoch,
    };
    let package = debian::package(target, &kept, &contents, &common.room, &common.out)?;
    let installed = trial::unpacked(&package, &common.room)?;
    let mut shown = format!(
        "{:.1} MB, static; from its package {}",
        bytes as f64 / 1e6,
        trial::here(target, &installed, &common.version)?
    );
    match &target.guest {
        Some(guest) if options.guests => {
            shown += "; ";
            shown += &trial::guest(guest, &installed, host, &common.room)?;
        }
        _ => {}
    }
    Ok(shown)
}

/// Builds the program for a target and answers where it is.
fn build(target: &Target, profile: &str) -> Result<PathBuf> {
    let toolchain = toolchain::find(target, profile)?;
    println!("building for {} with {}", target.name, toolchain.name);
    let mut cargo = shell::cargo();
    cargo.args(["build", "--quiet", "--message-format", "json-render-diagnostics"]);
    cargo.args(["--package", "rtscope", "--target", target.triple, "--profile", profile]);
    cargo.args(&toolchain.words).envs(toolchain.variables);
    shell::executable(&shell::output(&mut cargo, BUILD_LIMIT)?)
}

/// Checksums of all that is released, in the form that `sha256sum --check` reads.
fn checksums(out: &Path) -> Result<()> {
    let file = out.join("SHA256SUMS");
    let _ = fs::remove_file(&file);
    let mut paths = Vec::new();
    for path in debian::list(out)? {
        match path.is_dir() {
            true => paths.extend(debian::list(&path)?),
            false => paths.push(path),
        }
    }
    let mut sha256sum = Command::new("sha256sum");
    sha256sum.current_dir(out).args(paths.iter().filter_map(|path| path.strip_prefix(out).ok()));
    Ok(fs::write(file, shell::output(&mut sha256sum, LIMIT)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_chosen_by_name() {
        let all = Options::read(&[]).expect("all");
        assert_eq!(all.targets.len(), 4);
        assert!(all.guests && all.profile == "release");
        let words = ["--target", "arm64", "--no-guests", "--target", "riscv64", "--profile", "dev"];
        let two = Options::read(&words).expect("two");
        let names: Vec<&str> = two.targets.iter().map(|target| target.name).collect();
        assert_eq!(
            (names, two.guests, two.profile.as_str()),
            (vec!["arm64", "riscv64"], false, "dev")
        );
        let said = Options::read(&["--target", "vax"]).expect_err("unknown").to_string();
        assert!(
            said.contains("\"vax\"") && said.contains("x86-64, arm64, armhf, riscv64"),
            "{said}"
        );
        assert!(Options::read(&["--target"]).is_err() && Options::read(&["all"]).is_err());
    }

    #[test]
    fn documents_are_packed_to_the_same_bytes() {
        let pack = |names: [&str; 2]| {
            let folder = tempfile::tempdir().expect("a folder");
            for name in ["man", "completions"] {
                fs::create_dir(folder.path().join(name)).expect("a folder");
            }
            for name in names {
                fs::write(folder.path().join(name), "text").expect("written");
            }
            fs::write(folder.path().join("third-party-licences"), "MIT").expect("written");
            pack_documents(folder.path(), "1.2.3", "1700000000").expect("packed");
            fs::read(folder.path().join("rtscope-1.2.3-documents.tar.gz")).expect("packed")
        };
        let first = pack(["man/a.1", "completions/bash"]);
        assert!(first == pack(["completions/bash", "man/a.1"]));
        assert!(first != pack(["man/b.1", "completions/bash"]));
    }

    #[test]
    fn checksums_are_checked_by_the_usual_program() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("man")).expect("a folder");
        fs::write(folder.path().join("man/rtscope.1"), "page").expect("written");
        fs::write(folder.path().join("rtscope"), "program").expect("written");
        checksums(folder.path()).expect("summed");
        checksums(folder.path()).expect("a second time");
        let check = || {
            let mut command = Command::new("sha256sum");
            command.args(["--check", "--strict", "SHA256SUMS"]).current_dir(folder.path());
            shell::output(&mut command, LIMIT)
        };
        assert_eq!(check().expect("sound"), "man/rtscope.1: OK\nrtscope: OK\n");
        fs::write(folder.path().join("rtscope"), "another").expect("written");
        assert!(check().is_err());
    }
}
