//! `cargo xtask packaging`: the recipes of other build systems, written from one description.
//!
//! What packages say of rtscope is in `Cargo.toml`, `Cargo.lock`, `.cargo/config.toml` and `packaging/description.toml`, and
//! nowhere else.
//! The recipes are kept in the repository, because whoever builds with them has no `cargo xtask`.

mod arch;
mod buildroot;
mod container;
mod nix;
mod yocto;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::shell;

/// The description, below the root.
const DESCRIPTION: &str = "packaging/description.toml";

/// Cargo's configuration, below the root: build systems replace it by their own.
const CONFIGURATION: &str = ".cargo/config.toml";

/// Folders whose whole content is written here: what else is in them is of an older version.
const FOLDERS: [&str; 5] = ["arch", "buildroot", "container", "nix", "yocto"];

/// The first line of each recipe.
const HEAD: &str = "Written by `cargo xtask packaging` from Cargo.toml, Cargo.lock, .cargo/config.toml and packaging/description.toml.";

/// How long a checksum may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What every package says of rtscope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) version: String,
    /// The oldest Rust that builds it.
    pub(crate) rust: String,
    /// Licences to choose from.
    pub(crate) licences: Vec<String>,
    pub(crate) homepage: String,
    pub(crate) summary: String,
    /// Paragraphs.
    pub(crate) paragraphs: Vec<String>,
    pub(crate) maintainer: String,
    /// Address of a release's source, with `{version}` in place of its version.
    archive: String,
    /// Checksum of that archive. None before the release.
    sha256: Option<String>,
    /// Parts of SQLite that are built or left out, as its build script reads them.
    sqlite: String,
}

#[derive(Deserialize)]
struct Manifest {
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    package: WorkspacePackage,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WorkspacePackage {
    version: String,
    rust_version: String,
    license: String,
    repository: String,
    homepage: String,
}

#[derive(Deserialize)]
struct Configuration {
    env: Environment,
}

#[derive(Deserialize)]
struct Environment {
    #[serde(rename = "LIBSQLITE3_FLAGS")]
    sqlite: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    summary: String,
    description: Vec<String>,
    maintainer: String,
    archive: String,
    sha256: String,
}

impl Description {
    /// Reads it from the checkout.
    pub(crate) fn read() -> Result<Description> {
        let text = |name: &str| {
            let path = crate::root().join(name);
            fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))
        };
        Description::of(&text("Cargo.toml")?, &text(DESCRIPTION)?, &text(CONFIGURATION)?)
    }

    fn of(manifest: &str, own: &str, configuration: &str) -> Result<Description> {
        let Manifest { workspace: Workspace { package } } = toml::from_str(manifest)?;
        let own: Own = toml::from_str(own).context(DESCRIPTION)?;
        let Configuration { env } = toml::from_str(configuration).context(CONFIGURATION)?;
        let sha256 = own.sha256.trim();
        let is_sum = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        ensure!(sha256.is_empty() || is_sum, "{DESCRIPTION}: sha256 is no checksum: {sha256:?}");
        Ok(Description {
            archive: format!("{}/{}", package.repository, own.archive),
            version: package.version,
            rust: package.rust_version,
            licences: package.license.split(" OR ").map(str::to_owned).collect(),
            homepage: package.homepage,
            summary: own.summary,
            paragraphs: own.description,
            maintainer: own.maintainer,
            sha256: is_sum.then(|| sha256.to_owned()),
            sqlite: env.sqlite.split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }

    /// Address of the source, with the words of a recipe in place of the version.
    fn archive(&self, version: &str) -> String {
        self.archive.replace("{version}", version)
    }

    /// The summary as a sentence without its full stop.
    fn title(&self) -> String {
        let mut letters = self.summary.chars();
        let first = letters.next().map(char::to_uppercase);
        first.into_iter().flatten().chain(letters).collect()
    }

    /// The paragraphs in lines of at most so many letters.
    pub(crate) fn folded(&self, width: usize) -> Vec<Vec<String>> {
        self.paragraphs.iter().map(|text| fold(text, width)).collect()
    }
}

fn fold(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A package of others in `Cargo.lock`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Locked {
    pub(crate) name: String,
    pub(crate) version: String,
    #[serde(default)]
    source: Option<String>,
    /// SHA-256 of the archive in the registry.
    #[serde(default)]
    pub(crate) checksum: Option<String>,
}

/// The packages of others, in the order of `Cargo.lock`.
pub(crate) fn locked() -> Result<Vec<Locked>> {
    #[derive(Deserialize)]
    struct Lock {
        package: Vec<Locked>,
    }
    let path = crate::root().join("Cargo.lock");
    let lock: Lock = toml::from_str(&fs::read_to_string(path)?)?;
    Ok(lock.package.into_iter().filter(|package| package.source.is_some()).collect())
}

/// Every recipe: its place below `packaging`, and its text.
fn recipes(description: &Description) -> Result<BTreeMap<String, String>> {
    let root = crate::root();
    let all = [
        arch::recipes(description),
        buildroot::recipes(description, root)?,
        container::recipes(description),
        nix::recipes(description),
        yocto::recipes(description, &locked()?, root)?,
    ];
    Ok(all.into_iter().flatten().collect())
}

/// A checksum of a file, by a program such as `md5sum`.
fn sum(program: &str, file: &Path) -> Result<String> {
    let said = shell::output(Command::new(program).arg(file), LIMIT)?;
    Ok(said.split_whitespace().next().context("no checksum")?.to_owned())
}

/// Writes the recipes, or says which are not as they would be written.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let folder = crate::root().join("packaging");
    match words {
        [] => {}
        ["--check"] => {
            let wrong = stale(&folder, &recipes(&Description::read()?)?)?;
            for path in &wrong {
                println!("{} is not what `cargo xtask packaging` writes", path.display());
            }
            return Ok(wrong.is_empty());
        }
        ["--archive", file] => note_archive(Path::new(file))?,
        _ => bail!("cargo xtask packaging [--check] [--archive FILE]"),
    }
    let recipes = recipes(&Description::read()?)?;
    for path in stale(&folder, &recipes)? {
        let below = path.strip_prefix(&folder)?.to_string_lossy().into_owned();
        match recipes.get(&below) {
            Some(text) => {
                fs::create_dir_all(path.parent().context("a recipe is in a folder")?)?;
                fs::write(&path, text)?;
            }
            None => fs::remove_file(&path)?,
        }
        println!("{}", path.display());
    }
    Ok(true)
}

/// Writes the checksum of a release's source into the description.
fn note_archive(file: &Path) -> Result<()> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let description = Description::read()?;
    let expected = description.archive(&description.version);
    ensure!(
        expected.ends_with(&format!("/{name}")),
        "{name} is not the source of this version: {expected}"
    );
    let path = crate::root().join(DESCRIPTION);
    let text = fs::read_to_string(&path)?;
    Ok(fs::write(path, with_sum(&text, &sum("sha256sum", file)?))?)
}

/// The description with another checksum.
fn with_sum(text: &str, sum: &str) -> String {
    let lines = text.lines().map(|line| match line.starts_with("sha256 = ") {
        true => format!("sha256 = \"{sum}\"\n"),
        false => format!("{line}\n"),
    });
    lines.collect()
}

/// The files that differ from what would be written, are missing, or are too many.
fn stale(folder: &Path, recipes: &BTreeMap<String, String>) -> Result<Vec<PathBuf>> {
    let differs = |(name, text): (&String, &String)| {
        let path = folder.join(name);
        let found = fs::read_to_string(&path).ok();
        (found.as_ref() != Some(text)).then_some(path)
    };
    let mut wrong: Vec<PathBuf> = recipes.iter().filter_map(differs).collect();
    for name in FOLDERS {
        let Ok(entries) = fs::read_dir(folder.join(name)) else { continue };
        for entry in entries {
            let file = entry?.file_name().to_string_lossy().into_owned();
            if !recipes.contains_key(&format!("{name}/{file}")) {
                wrong.push(folder.join(name).join(file));
            }
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod workflows;
