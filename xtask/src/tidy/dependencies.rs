//! What others wrote: under which licence, from where, and whether twice.

use std::collections::BTreeMap;

use cargo_metadata::Metadata;
use spdx::{Expression, LicenseReq, ParseMode};

use super::Problem;

/// Licences that let a user ship the binary under MIT or Apache-2.0 with nothing but a notice. Those
/// of fonts (OFL) let a program embed the font.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "OFL-1.1",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// A package that we build.
#[derive(Clone, Debug)]
pub(super) struct Dependency {
    name: String,
    version: String,
    /// As the package states it.
    licence: Option<String>,
    origin: Origin,
}

/// Where a package comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Ours,
    CratesIo,
    Other(String),
}

/// What the workspace is built of on this machine.
pub(super) fn read(metadata: &Metadata) -> Vec<Dependency> {
    // The packages hold every platform's; the resolved graph is what is built here.
    let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let built = nodes.filter_map(|node| metadata.packages.iter().find(|p| p.id == node.id));
    let dependency = |package: &cargo_metadata::Package| Dependency {
        name: package.name.to_string(),
        version: package.version.to_string(),
        licence: package.license.clone(),
        origin: match &package.source {
            None => Origin::Ours,
            Some(source) if source.is_crates_io() => Origin::CratesIo,
            Some(source) => Origin::Other(source.repr.clone()),
        },
    };
    built.map(dependency).collect()
}

/// Packages that may not be used.
pub(super) fn check(dependencies: &[Dependency]) -> Vec<Problem> {
    dependencies.iter().flat_map(|d| [foreign(d), unlicensed(d)]).flatten().collect()
}

fn foreign(dependency: &Dependency) -> Option<Problem> {
    let Origin::Other(origin) = &dependency.origin else { return None };
    let name = &dependency.name;
    Some(Problem::new(
        "Cargo.lock",
        1,
        format!("{name} comes from {origin}, not from the Rust registry"),
    ))
}

fn unlicensed(dependency: &Dependency) -> Option<Problem> {
    let (name, licence) = (&dependency.name, dependency.licence.as_deref());
    if licence.is_some_and(is_allowed) {
        return None;
    }
    let licence = licence.unwrap_or("no licence");
    let message = format!("{name} {} is under {licence}: not allowed", dependency.version);
    Some(Problem::new("Cargo.lock", 1, message))
}

/// Whether an SPDX expression can be satisfied by allowed licences alone.
fn is_allowed(licence: &str) -> bool {
    let allowed = |req: &LicenseReq| {
        let name = req.license.id().map(|id| id.name);
        name.is_some_and(|name| LICENCES.contains(&name))
    };
    Expression::parse_mode(licence, ParseMode::LAX)
        .is_ok_and(|expression| expression.evaluate(allowed))
}

/// Packages of which incompatible versions are built side by side: worth a look, no problem.
pub(super) fn duplicates(dependencies: &[Dependency]) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for dependency in dependencies {
        versions.entry(&dependency.name).or_default().push(&dependency.version);
    }
    let doubled = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    doubled
        .map(|(name, versions)| format!("{name} is built in {}", versions.join(" and ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency(name: &str, version: &str, licence: Option<&str>, origin: Origin) -> Dependency {
        let (name, version) = (name.to_owned(), version.to_owned());
        Dependency { name, version, licence: licence.map(str::to_owned), origin }
    }

    #[test]
    fn one_way_to_satisfy_a_licence_is_enough() {
        for licence in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-2.0-only OR MIT",
            "Apache-2.0 WITH LLVM-exception OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
        ] {
            assert!(is_allowed(licence), "{licence}");
        }
        for licence in ["GPL-3.0-only", "MIT AND GPL-2.0-only", "MPL-2.0", "Mine", ""] {
            assert!(!is_allowed(licence), "{licence}");
        }
    }

    #[test]
    fn packages_have_a_licence_and_come_from_crates_io() {
        let good = dependency("a", "1.0.0", Some("MIT"), Origin::CratesIo);
        let ours = dependency("b", "0.1.0", Some("MIT OR Apache-2.0"), Origin::Ours);
        assert_eq!(check(&[good.clone(), ours]), []);
        let git = Origin::Other("git+https://example.org/c".to_owned());
        let bad = [dependency("c", "1.0.0", None, git), good];
        let messages: Vec<String> = check(&bad).into_iter().map(|p| p.message).collect();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(
            messages[0].contains("not from the Rust registry")
                && messages[1].contains("no licence")
        );
    }

    #[test]
    fn two_versions_of_a_package_are_noted() {
        let of = |name, version| dependency(name, version, None, Origin::CratesIo);
        let notes = duplicates(&[of("a", "1.0.0"), of("b", "1.0.0"), of("a", "2.0.0")]);
        assert_eq!(notes, ["a is built in 1.0.0 and 2.0.0"]);
    }
}
