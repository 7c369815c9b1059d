//! Specs: read, checked, found.

use super::*;
use crate::source::version::{self, Version};

const SPEC: &str = r#"
name = "board"
title = "A board"
arch = "arm64"
cross = "aarch64-linux-gnu-"
base = "defconfig"
fragments = ["latency"]

[source]
kind = "archive"
from = "linux-5.4.72.tar.xz"
sha256 = "0123456789012345678901234567890123456789012345678901234567890123"

[[patch]]
kind = "file"
from = "patch-5.4.70-rt40.patch.gz"

[variant.rt]
fragments = ["rt"]

[variant.full]
title = "A board, PREEMPT"
fragments = ["full"]
"#;

#[test]
fn variants_are_kernels_of_their_own() {
    let specs = parse("board.toml", SPEC, Path::new("/specs")).expect("sound");
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["board-full", "board-rt"]);
    let rt = &specs[1];
    assert_eq!((rt.title.as_str(), specs[0].title.as_str()), ("A board", "A board, PREEMPT"));
    assert_eq!(rt.fragments.len(), 2);
    assert_eq!(rt.image_path(), Path::new("arch/arm64/boot/Image.gz"));
    let SpecSource::Archive { from, .. } = &rt.source else { panic!("an archive") };
    assert_eq!(from, "/specs/linux-5.4.72.tar.xz", "paths are relative to the spec");
}

#[test]
fn a_name_that_fits_no_folder_is_refused_with_its_line() {
    let wrong = |from: &str, to: &str| {
        parse("b.toml", &SPEC.replacen(from, to, 1), Path::new("/"))
            .expect_err("refused")
            .to_string()
    };
    let said = wrong("\"board\"", "\"boards/mine\"");
    assert!(said.contains("b.toml:2: the name \"boards/mine\" has a slash in it"), "{said}");
    assert!(wrong("\"board\"", "\"my:board\"").contains("has ':' in it"));
    let said = wrong("[variant.rt]", "[variant.\"r/t\"]");
    assert!(said.contains("b.toml:18: the variant \"r/t\" has a slash in it"), "{said}");
}

#[test]
fn a_senseless_line_of_a_fragment_or_a_base_is_named_with_file_and_line() {
    let room = tempfile::tempdir().expect("a folder");
    let own = room.path().join("own.config");
    let read = |from: &str, to: &str| parse("b.toml", &SPEC.replacen(from, to, 1), room.path());
    fs::write(&own, "CONFIG_HZ_1000=y\n# CONFIG_KEXEC is not set\n").expect("written");
    assert!(read("\"latency\"", "\"own.config\"").is_ok());
    for (text, line, why) in [
        ("CONFIG_A=y\n\nCONFIG_FOO\n", 3, "\"CONFIG_FOO\" has no value"),
        ("hello world\nCONFIG_FOO\n", 1, "\"hello world\" is neither CONFIG_NAME=VALUE"),
    ] {
        fs::write(&own, text).expect("written");
        let place = format!("{}, line {line}: {why}", own.display());
        let said = read("\"latency\"", "\"own.config\"").expect_err("refused").to_string();
        assert!(said.contains(&format!("b.toml:7: fragment {place}")), "{said}");
        let said = read("\"defconfig\"", "\"own.config\"").expect_err("refused").to_string();
        assert!(said.contains(&format!("b.toml:6: base {place}")), "{said}");
    }
    assert!(SPECS.iter().all(|spec| parse(spec.name, spec.text, Path::new(".")).is_ok()));
    for fragment in FRAGMENTS {
        assert_eq!(merge::senseless(fragment.text), [], "{}", fragment.name);
    }
}

/// The keys that a table of the spec takes, as its reader names them when it meets another one.
fn keys_of(table: &str, kind: &str) -> Vec<String> {
    let marker = format!("[{table}]\nkind = \"{kind}\"\nbogus = 1\n");
    let head = SPEC.split("[source]").next().expect("a head");
    let source = "[source]\nkind = \"vendor\"\nvendor = \"v\"\nreference = \"r\"\n";
    let text = if table == "source" { head.to_owned() } else { format!("{head}{source}") };
    let e = toml::from_str::<SpecText>(&(text + &marker)).expect_err("an unknown key").to_string();
    let (_, expected) = e.split_once("expected ").unwrap_or_else(|| panic!("{kind}: {e}"));
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_key_of_every_kind_of_source_and_patch_is_documented() {
    let page = include_str!("../../../../docs/guide/kernel.md");
    for (table, kinds) in [
        ("source", &["debian", "archive", "git", "vendor", "folder"][..]),
        ("[patch]", &["file", "series", "debian-series"][..]),
    ] {
        for kind in kinds {
            let keys = keys_of(table, kind);
            assert!(!keys.is_empty());
            let heading = format!("\n**`[{table}]`, `kind = \"{kind}\"`**");
            let (_, after) = page.split_once(&heading).unwrap_or_else(|| panic!("{heading}"));
            let after = after.split_once("\n|").expect("a table").1;
            let rows = after.split("\n\n").next().expect("rows").lines();
            let told: Vec<&str> = rows
                .filter_map(|row| row.trim_start_matches("| ").strip_prefix('`')?.split('`').next())
                .collect();
            assert_eq!(told, keys, "{heading}");
        }
    }
}

#[test]
fn mistakes_are_named_with_line_and_suggestion() {
    let wrong = |from: &str, to: &str| {
        let text = SPEC.replace(from, to);
        assert_ne!(text, SPEC);
        parse("b.toml", &text, Path::new("/")).expect_err("refused").to_string()
    };
    assert!(wrong("base =", "bass =").contains("unknown key `bass`"));
    assert!(wrong("base =", "bass =").contains("did you mean \"base\"?"));
    assert!(wrong("\"arm64\"", "\"arm46\"").contains("b.toml:4: \"arm46\" is not an architecture"));
    assert!(wrong("\"arm64\"", "\"arm46\"").contains("did you mean \"arm64\"?"));
    assert!(wrong("[\"rt\"]", "[\"rtt\"]").contains("b.toml:19: fragment \"rtt\" is neither"));
    assert!(wrong("[\"rt\"]", "[]").contains("variant \"rt\" has no fragments"));
    assert!(
        wrong("\"defconfig\"", "\"my.config\"").contains("b.toml:6: base \"my.config\" is neither")
    );
    assert!(wrong("0123456789012345678901", "012345").contains("is not 64 hexadecimal digits"));
    assert!(wrong("\"archive\"", "\"archiv\"").contains("did you mean \"archive\"?"));
    assert!(wrong("\"patch-5", "\"https://host.example/patch-5").contains("needs its sha256"));
    let two = wrong("\"arm64\"", "\"arm46\"");
    assert_eq!(two.lines().count(), 1);
    let text = SPEC.replace("\"arm64\"", "\"arm46\"").replace("[\"rt\"]", "[\"rtt\"]");
    let both = parse("b.toml", &text, Path::new("/")).expect_err("refused");
    assert_eq!(both.problems.len(), 2, "all mistakes are named at once");
}

#[test]
fn every_shipped_spec_is_sound_and_honest() {
    let all = all();
    assert!(all.len() >= SPECS.len());
    for (i, spec) in all.iter().enumerate() {
        assert!(!spec.title.is_empty() && !spec.about.is_empty(), "{} explains itself", spec.name);
        assert!(!spec.tried.is_empty(), "{} says how far it was tried", spec.name);
        assert!(all[..i].iter().all(|other| other.name != spec.name), "{}", spec.name);
        assert!(find(&spec.name).is_ok());
        if spec.name.ends_with("-rt") {
            let texts: Vec<(&str, &str)> =
                spec.fragments.iter().map(|f| (f.name.as_str(), f.text.as_str())).collect();
            let asked = crate::config::merge::asked(&texts).0;
            assert_eq!(asked["PREEMPT_RT"].word(), "y", "{}", spec.name);
        }
    }
    for shipped in SPECS {
        let named = |spec: &Spec| spec.name.starts_with(shipped.name);
        assert!(all.iter().any(named), "{} is named as its file", shipped.name);
        assert!(!shipped.text.contains("://"), "{} names no host", shipped.name);
    }
}

#[test]
fn specs_are_found_by_name_and_by_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("board.toml");
    fs::write(&path, SPEC).expect("written");
    let file = path.display().to_string();
    assert_eq!(find(&format!("{file}:rt")).expect("a variant").name, "board-rt");
    let said = find(&file).expect_err("several").to_string();
    assert!(said.contains("has variants; name one:") && said.contains("board.toml:rt"), "{said}");
    let said = find("tiny-6.12").expect_err("several").to_string();
    assert!(said.contains("tiny-6.12-dynamic, tiny-6.12-rt"), "{said}");
    let said = find("tiny-6.12-tr").expect_err("none").to_string();
    assert!(said.contains("did you mean \"tiny-6.12-rt\"?"), "{said}");
}

/// The version that a source will have, from its package, version or branch: what can be told without
/// fetching it.
fn version_of(source: &SpecSource) -> Version {
    let (said, branch) = match source {
        SpecSource::Debian { package, version, .. } => (version.as_ref().unwrap_or(package), false),
        SpecSource::Git { reference, .. } | SpecSource::Vendor { reference, .. } => {
            (reference, true)
        }
        other => panic!("a shipped spec can't name {other:?}"),
    };
    assert!(!branch || said.ends_with(".y"), "{said} is no branch of stable updates");
    Version::find(said).unwrap_or_else(|| panic!("{said} names no version"))
}

#[test]
fn every_shipped_spec_has_its_compiler_and_fragments_of_its_architecture() {
    for spec in all() {
        let name = &spec.name;
        let expected = match spec.arch.as_str() {
            "x86_64" => (None, Some("lab-x86"), "bzImage"),
            "arm64" => (Some("aarch64-linux-gnu-"), Some("lab-arm64"), "Image"),
            "arm" => (Some("arm-linux-gnueabihf-"), None, "zImage"),
            other => panic!("{name}: no compiler is known for {other}"),
        };
        assert_eq!(spec.cross.as_deref(), expected.0, "{name}");
        assert!(spec.image.starts_with(expected.2), "{name} makes {}", spec.image);
        for fragment in &spec.fragments {
            let of_one = fragment.name.starts_with("lab-");
            let fits = !of_one || expected.1 == Some(fragment.name.as_str());
            assert!(fits, "{name}: the fragment {} is another architecture's", fragment.name);
        }
        let is_board = matches!(spec.source, SpecSource::Vendor { .. });
        let is_pc = spec.arch == "x86_64";
        assert_eq!(spec.dtbs, !is_pc, "{name}: boards need device trees, emulated ones too");
        assert_eq!(is_board, spec.tried.contains("nor tried on a board"), "{name} is honest");
    }
}

#[test]
fn every_shipped_real_time_kernel_gets_its_preemption_from_somewhere() {
    for spec in all().iter().filter(|spec| spec.name.ends_with("-rt")) {
        let name = &spec.name;
        let version = version_of(&spec.source);
        let is_vendors_own = matches!(&spec.source, SpecSource::Vendor { reference, .. } if reference.contains("-rt-"));
        // Mainline 6.12 has it for x86-64, arm64 and riscv; 32-bit ARM is not among them.
        let in_mainline = version.has_real_time() && spec.arch != "arm";
        let patched = !spec.patches.is_empty();
        assert_eq!(
            [in_mainline, is_vendors_own, patched].iter().filter(|way| **way).count(),
            1,
            "{name}: {version}, patches: {patched}, the vendor's own branch: {is_vendors_own}"
        );
    }
}

#[test]
fn every_shipped_patch_is_made_for_its_source_exactly() {
    let mut pairs = 0;
    for spec in all() {
        for patch in &spec.patches {
            if let Patch::File { from, .. } = patch {
                // A branch goes on, so that its updates are not known here: the series is.
                let made_for = Version::find(from).expect("a version in its name");
                let source = version_of(&spec.source);
                assert!(version::pair(source, made_for, from).is_ok(), "{}: one series", spec.name);
                assert!(
                    !from.contains("://"),
                    "{}: without a checksum, the user brings it",
                    spec.name
                );
                assert!(spec.about.contains("Download the patch"), "{}", spec.name);
                continue;
            }
            let Patch::DebianSeries { version, count, .. } = patch else {
                panic!("{}: a shipped spec can't name {patch:?}", spec.name);
            };
            let made_for = Version::find(version).expect("a version");
            let said = version::pair(version_of(&spec.source), made_for, "the series");
            assert_eq!(said.expect("one series"), None, "{}: no warning", spec.name);
            assert!(count.is_some(), "{}: a shortened series must be noticed", spec.name);
            pairs += 1;
        }
    }
    assert!(pairs > 0, "a spec with patches is shipped");
}
