//! The bill of materials: what is linked into the program, as a document in CycloneDX's form.
//!
//! It has the packages that `Cargo.lock` names for every target that is released, with their checksums and licences, and
//! what they carry inside: the C code of SQLite and the fonts. Rust's standard library and the C library are named with
//! the versions that the compiler and the program itself tell.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, Package};
use serde_json::{Value, json};

use super::LIMIT;
use crate::{notices, packaging, shell};

/// What comes from outside of cargo's packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// Version of the compiler, and so of its standard library.
    pub(super) rust: String,
    /// Version of the C library, as the program contains it.
    pub(super) c_library: Option<String>,
    /// When the commit was made, in seconds since 1970.
    pub(super) epoch: i64,
}

impl Surroundings {
    pub(super) fn of(program: &[u8], epoch: &str) -> Result<Surroundings> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let said = shell::output(Command::new(rustc).arg("--version"), LIMIT)?;
        let rust = said.split(' ').nth(1).context("rustc tells no version")?.to_owned();
        Ok(Surroundings { rust, c_library: c_library(program), epoch: epoch.parse()? })
    }
}

/// The version in the banner that every program with glibc inside contains.
fn c_library(program: &[u8]) -> Option<String> {
    let banner = b"GNU C Library (";
    let at = program.windows(banner.len()).position(|window| window == banner)?;
    let text = String::from_utf8_lossy(&program[at..program.len().min(at + 160)]).into_owned();
    let (_, version) = text.split_once(" release version ")?;
    let end = version.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'))?;
    Some(version[..end].trim_end_matches('.').to_owned())
}

/// The document for a version of rtscope.
pub(super) fn document(metadata: &Metadata, version: &str, around: &Surroundings) -> Result<Value> {
    let packages = notices::linked(metadata)?;
    let mut checksums = BTreeMap::new();
    for one in packaging::locked()? {
        checksums.insert((one.name, one.version), one.checksum);
    }
    let mut components: Vec<Value> = Vec::new();
    for package in &packages {
        let key = (package.name.to_string(), package.version.to_string());
        let checksum = checksums.get(&key).and_then(Option::as_deref);
        components.push(component(package, checksum)?);
    }
    components.extend(libraries(around));
    let own = format!("pkg:cargo/rtscope@{version}");
    let needed: Vec<&Value> = components.iter().map(|component| &component["bom-ref"]).collect();
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time(around.epoch)?,
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "rtscope",
                "version": version,
                "purl": own,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
        },
        // Flat: who needs whom among the others is in Cargo.lock.
        "dependencies": [{ "ref": own, "dependsOn": needed }],
        "components": components,
    }))
}

/// A package of cargo, with what it carries inside.
fn component(package: &Package, checksum: Option<&str>) -> Result<Value> {
    let purl = format!("pkg:cargo/{}@{}", package.name, package.version);
    let mut component = json!({
        "type": "library",
        "bom-ref": purl,
        "name": package.name.as_str(),
        "version": package.version.to_string(),
        "purl": purl,
        "scope": "required",
    });
    if let Some(licence) = &package.license {
        // An older form of "or", which is not SPDX's.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    let inside = inside(package)?;
    if !inside.is_empty() {
        component["components"] = Value::from(inside);
    }
    Ok(component)
}

/// What a package carries that others made, and that has no package of its own.
fn inside(package: &Package) -> Result<Vec<Value>> {
    let folder = package.manifest_path.parent().context("a manifest is in a folder")?;
    Ok(match package.name.as_str() {
        "libsqlite3-sys" => {
            let version = sqlite(folder.as_std_path())?;
            let purl = format!("pkg:generic/sqlite@{version}");
            vec![json!({
                "type": "library",
                "bom-ref": purl,
                "name": "sqlite",
                "version": version,
                "purl": purl,
                "cpe": format!("cpe:2.3:a:sqlite:sqlite:{version}:*:*:*:*:*:*:*"),
                "description": "C code, compiled with the package that contains it",
                "licenses": [{ "license": { "id": "blessing" } }],
            })]
        }
        "notosans" => vec![json!({
            "type": "data",
            "bom-ref": "noto-sans",
            "name": "Noto Sans",
            "description": "fonts; their outlines are in the program",
            "licenses": [{ "license": { "id": "OFL-1.1" } }],
        })],
        _ => Vec::new(),
    })
}

/// The version of SQLite whose source a package carries.
fn sqlite(folder: &Path) -> Result<String> {
    let header = folder.join("sqlite3/sqlite3.h");
    let text = fs::read_to_string(&header).with_context(|| header.display().to_string())?;
    let line = text.lines().find(|line| line.starts_with("#define SQLITE_VERSION "));
    let version = line.and_then(|line| line.split('"').nth(1));
    Ok(version.context("sqlite3.h tells no version")?.to_owned())
}

/// What the compilers link into every program.
fn libraries(around: &Surroundings) -> Vec<Value> {
    let rust = format!("pkg:generic/rust-std@{}", around.rust);
    let mut c_library = json!({
        "type": "library",
        "bom-ref": "glibc",
        "name": "glibc",
        "description": "the C library of the machine that built the program, linked statically",
        "licenses": [{ "expression": "LGPL-2.1-or-later" }],
    });
    if let Some(version) = &around.c_library {
        c_library["version"] = version.as_str().into();
        c_library["cpe"] = format!("cpe:2.3:a:gnu:glibc:{version}:*:*:*:*:*:*:*").into();
        c_library["purl"] = format!("pkg:generic/glibc@{version}").into();
    }
    let standard = json!({
        "type": "library",
        "bom-ref": rust,
        "name": "rust-std",
        "version": around.rust,
        "purl": rust,
        "description": "Rust's standard library",
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    });
    vec![standard, c_library]
}

/// An instant as these documents write it.
pub(super) fn time(epoch: i64) -> Result<String> {
    let mut date = Command::new("date");
    date.args(["--utc", "--date", &format!("@{epoch}"), "+%Y-%m-%dT%H:%M:%SZ"]);
    Ok(shell::output(&mut date, LIMIT)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rtscope_testing::skip::skip_this;

    use super::*;

    fn ours() -> Value {
        let around = Surroundings {
            rust: "1.99.0".to_owned(),
            c_library: Some("2.36".to_owned()),
            epoch: 1_700_000_000,
        };
        let metadata = super::super::metadata_of_all().expect("metadata");
        document(&metadata, "1.2.3", &around).expect("a document")
    }

    #[test]
    fn everything_that_is_linked_is_named_once() {
        let document = ours();
        let components = document["components"].as_array().expect("components");
        let names: Vec<&str> =
            components.iter().filter_map(|one| one["bom-ref"].as_str()).collect();
        let distinct: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), distinct.len(), "{names:?}");
        let metadata = crate::metadata().expect("metadata");
        for package in notices::linked(&metadata).expect("packages") {
            let purl = format!("pkg:cargo/{}@{}", package.name, package.version);
            let found = components.iter().find(|one| one["purl"] == *purl).expect("a component");
            assert_eq!(found["hashes"][0]["content"].as_str().map(str::len), Some(64), "{purl}");
            assert!(found["licenses"][0]["expression"].is_string(), "{purl}");
        }
        let of = |name: &str| {
            components.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}"))
        };
        let sqlite = &of("libsqlite3-sys")["components"][0];
        assert!(sqlite["version"].as_str().is_some_and(|version| version.starts_with("3.")));
        assert_eq!(of("glibc")["version"], "2.36");
        assert_eq!(of("rust-std")["version"], "1.99.0");
        // What only tests and chores use is not in the program.
        assert!(components.iter().all(|one| one["name"] != "proptest" && one["name"] != "rustsec"));
        assert_eq!(document["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    }

    #[test]
    fn the_c_library_is_read_from_the_program() {
        let text = b"\0GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\nCopyright";
        assert_eq!(c_library(text).as_deref(), Some("2.36"));
        assert_eq!(c_library(b"GNU C Library ("), None);
        assert_eq!(c_library(b"musl"), None);
    }

    /// CycloneDX's own library has the published schema.
    #[test]
    fn cyclonedx_takes_the_document() {
        let folder = crate::scratch().expect("a folder").join("cyclonedx");
        if !folder.join("cyclonedx").is_dir() {
            return skip_this("without CycloneDX's Python package");
        }
        let script = "import sys\n\
            from cyclonedx.schema import SchemaVersion\n\
            from cyclonedx.validation.json import JsonStrictValidator\n\
            error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())\n\
            print('sound' if error is None else repr(error)[:2000])";
        let room = tempfile::tempdir().expect("a folder");
        let check = |document: &Value| {
            let file = room.path().join("bom.json");
            fs::write(&file, document.to_string()).expect("written");
            let mut python = Command::new("/usr/bin/python3");
            python.args(["-c", script]).arg(file).env("PYTHONPATH", &folder);
            shell::output(&mut python, LIMIT).expect("python3")
        };
        let mut document = ours();
        assert_eq!(check(&document).trim(), "sound");
        document["components"][0]["type"] = "nonsense".into();
        assert_ne!(check(&document).trim(), "sound", "the check can fail");
    }
}
