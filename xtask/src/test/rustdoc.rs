//! Docs of crates, by rustdoc itself with the libraries that the tests' build has made. `cargo doc` would check all that the
//! crates need once more, which takes three times as long as the docs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{
    Artifact, DependencyKind, Metadata, Node, NodeDep, PackageId, camino::Utf8PathBuf,
};

use crate::shell;

/// How long the docs of a crate may take.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Any warning is an error, except what `Cargo.toml` allows.
const FLAGS: [&str; 5] = ["--document-private-items", "--deny", "warnings", "--color", "never"];

/// Writes the docs of crates whose sources are in these folders: our own, or copies of them.
pub(super) fn document(
    metadata: &Metadata,
    folders: &BTreeMap<String, PathBuf>,
    log: &Path,
) -> Result<()> {
    let built = Built::by_the_tests(metadata)?;
    let mut failed = Vec::new();
    for (name, folder) in folders {
        writeln!(File::options().create(true).append(true).open(log)?, "  Documenting {name}")?;
        let mut rustdoc = built.rustdoc(name, folder)?;
        let ended = shell::appended(&mut rustdoc, log, LIMIT)?;
        if !ended.is_some_and(|status| status.success()) {
            failed.push(name.as_str());
        }
    }
    let said = || shell::last_lines(&shell::read(log).unwrap_or_default(), 40);
    ensure!(failed.is_empty(), "{}: {}", failed.join(", "), said());
    Ok(())
}

/// What the tests' build has made, and of what.
struct Built<'a> {
    metadata: &'a Metadata,
    lints: Vec<String>,
    /// The library of each package, or its program where it has none.
    artifacts: BTreeMap<PackageId, Artifact>,
}

impl Built<'_> {
    fn by_the_tests(metadata: &Metadata) -> Result<Built<'_>> {
        // What build scripts use is made for the host, in a folder of its own, possibly with other features.
        let of_host = metadata.target_directory.join("debug");
        let is_wanted = |it: &Artifact| {
            let target = &it.target;
            let is_for_host = it.filenames.iter().any(|file| file.starts_with(&of_host));
            let is_library = target.is_lib() || target.is_rlib();
            !it.profile.test
                && (target.is_proc_macro() || (!is_for_host && (is_library || target.is_bin())))
        };
        let mut artifacts = BTreeMap::new();
        for artifact in shell::artifacts(&shell::messages_of_tests()?).filter(is_wanted) {
            let name = artifact.target.name.clone();
            let other = artifacts.insert(artifact.package_id.clone(), artifact);
            ensure!(
                other.is_none(),
                "the package of {name} has two targets: only one would be documented"
            );
        }
        let manifest = fs::read_to_string(metadata.workspace_root.join("Cargo.toml"))?;
        Ok(Built { metadata, lints: lints(&manifest)?, artifacts })
    }

    /// What documents the crate of a name, with its sources in a folder.
    fn rustdoc(&self, name: &str, folder: &Path) -> Result<Command> {
        let mut ours = self.metadata.workspace_packages().into_iter();
        let package =
            ours.find(|it| it.name == name).with_context(|| format!("{name} is none of ours"))?;
        let artifact =
            self.artifacts.get(&package.id).with_context(|| format!("{name} is not built"))?;
        let own_folder = package.manifest_path.parent().context("a manifest without a folder")?;
        let source = artifact.target.src_path.strip_prefix(own_folder)?;
        let target = &self.metadata.target_directory;
        let crate_name = artifact.target.name.replace('-', "_");

        let mut rustdoc = Command::new("rustdoc");
        rustdoc.current_dir(folder).arg(source).args(["--crate-name", &crate_name]);
        rustdoc.args([
            "--edition",
            package.edition.as_str(),
            "--out-dir",
            target.join("doc").as_str(),
        ]);
        rustdoc.args(["--crate-type", if artifact.target.is_bin() { "bin" } else { "lib" }]);
        rustdoc.args(FLAGS).args(&self.lints);
        let node = self.node(&package.id)?;
        for feature in &node.features {
            rustdoc.arg("--cfg").arg(format!("feature={:?}", feature.as_str()));
        }
        let room = |it: &Artifact| Some(library(it)?.parent()?.to_owned());
        let rooms: BTreeSet<_> = self.artifacts.values().filter_map(room).collect();
        for room in rooms {
            rustdoc.arg("-L").arg(format!("dependency={room}"));
        }
        for (name, file) in self.libraries_of(node) {
            rustdoc.arg("--extern").arg(format!("{name}={file}"));
        }
        // What sources ask cargo for, and where procedural macros find files.
        rustdoc.env("CARGO_PKG_NAME", name).env("CARGO_PKG_VERSION", package.version.to_string());
        rustdoc.env("CARGO_MANIFEST_DIR", folder);
        Ok(rustdoc)
    }

    /// A package with the features that it has by default, which is what would be published.
    fn node(&self, package: &PackageId) -> Result<&Node> {
        let resolve = self.metadata.resolve.as_ref().context("cargo resolved nothing")?;
        resolve.nodes.iter().find(|node| node.id == *package).context("a package is not resolved")
    }

    /// The names by which a package knows what it depends on, and the files of that.
    fn libraries_of<'a>(&'a self, package: &'a Node) -> Vec<(&'a str, &'a str)> {
        let is_normal =
            |dep: &&NodeDep| dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
        // What is for another platform is not built.
        let file = |dep: &NodeDep| library(self.artifacts.get(&dep.pkg)?);
        let named = package.deps.iter().filter(is_normal);
        named.filter_map(|dep| Some((dep.name.as_str(), file(dep)?.as_str()))).collect()
    }
}

/// The lints of rustdoc in a workspace's manifest, as its options.
fn lints(manifest: &str) -> Result<Vec<String>> {
    let manifest: toml::Table = manifest.parse()?;
    let lints =
        manifest.get("workspace").and_then(|it| it.get("lints")?.get("rustdoc")?.as_table());
    let option = |(lint, level): (&String, &toml::Value)| {
        let level = level.as_str().with_context(|| format!("{lint} has no level"))?;
        Ok(format!("--{level}=rustdoc::{lint}"))
    };
    lints.context("no lints of rustdoc")?.iter().map(option).collect()
}

/// What a compiler reads of a library: of a procedural macro its code, else what it declares.
fn library(artifact: &Artifact) -> Option<&Utf8PathBuf> {
    let ending = if artifact.target.is_proc_macro() { "so" } else { "rmeta" };
    artifact.filenames.iter().find(|file| file.extension() == Some(ending))
}
