use std::collections::BTreeSet;

use rtscope_testing::skip::skip_this;

use super::*;

const MANIFEST: &str = "[workspace.package]\nversion = \"1.2.3\"\nrust-version = \"1.91\"\n\
                        license = \"MIT OR Apache-2.0\"\nrepository = \"https://a.example/r\"\n\
                        homepage = \"https://a.example/h\"\n";

const CONFIGURATION: &str = "[env]\nLIBSQLITE3_FLAGS = \"\"\"\n-DONE\n-UTWO\n\"\"\"\n";

fn own(sha256: &str) -> String {
    format!(
        "summary = \"look at it\"\ndescription = [\"one two three\", \"four\"]\n\
         maintainer = \"A <a@example.invalid>\"\narchive = \"d/v{{version}}/x-{{version}}.tar.gz\"\n\
         sha256 = \"{sha256}\"\n"
    )
}

fn ours() -> BTreeMap<String, String> {
    recipes(&Description::read().expect("a description")).expect("recipes")
}

#[test]
fn the_recipes_are_those_that_the_description_gives() {
    let folder = crate::root().join("packaging");
    let wrong = stale(&folder, &ours()).expect("compared");
    assert!(wrong.is_empty(), "call cargo xtask packaging: {wrong:?}");
}

/// crates.io shows these fields of each package.
#[test]
fn each_package_says_what_it_is_and_where_it_comes_from() {
    let metadata = crate::metadata().expect("metadata");
    let published = metadata.workspace_packages().into_iter().filter(|it| it.publish.is_none());
    let mut number = 0;
    for package in published {
        let address = package.repository.as_ref().expect("a repository");
        for other in [&package.homepage, &package.documentation] {
            assert_eq!(other.as_ref(), Some(address), "{}", package.name);
        }
        assert!(package.description.as_ref().is_some_and(|it| it.len() > 20), "{}", package.name);
        assert!(package.readme.is_some() && package.rust_version.is_some(), "{}", package.name);
        assert!(!package.keywords.is_empty() && package.keywords.len() <= 5, "{}", package.name);
        assert!(!package.categories.is_empty(), "{}", package.name);
        number += 1;
    }
    assert_eq!(number, 9);
}

#[test]
fn a_changed_a_missing_and_an_old_recipe_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let recipes = BTreeMap::from(
        [("nix/a", "1"), ("nix/b", "2"), ("nix/c", "3")].map(|(a, b)| (a.to_owned(), b.to_owned())),
    );
    fs::create_dir(at("nix")).expect("made");
    for (name, text) in [("nix/a", "1"), ("nix/b", "x"), ("nix/old_0.0.1", "1")] {
        fs::write(at(name), text).expect("written");
    }
    let wrong = stale(folder.path(), &recipes).expect("compared");
    assert_eq!(wrong, ["nix/b", "nix/c", "nix/old_0.0.1"].map(at));
}

#[test]
fn a_description_is_read_and_folded() {
    let of = |own: &str| Description::of(MANIFEST, own, CONFIGURATION);
    let read = of(&own("")).expect("read");
    assert_eq!(read.sqlite, "-DONE -UTWO");
    assert_eq!(read.licences, ["MIT", "Apache-2.0"]);
    assert_eq!((read.title(), read.sha256.clone()), ("Look at it".to_owned(), None));
    assert_eq!(read.archive("$V"), "https://a.example/r/d/v$V/x-$V.tar.gz");
    assert_eq!(read.folded(7), [vec!["one two", "three"], vec!["four"]]);
    let sum = "0123456789abcdef".repeat(4);
    let released = of(&with_sum(&own(""), &sum)).expect("read");
    assert_eq!(released.sha256, Some(sum));
    assert!(of(&own("abc")).is_err());
    assert!(of(&format!("{}odd = 1\n", own(""))).is_err());
}

/// A checksum is in each recipe that has one, once the source is released.
#[test]
fn the_checksum_of_a_release_is_in_the_recipes() {
    let sum = "0123456789abcdef".repeat(4);
    let mut description = Description::read().expect("a description");
    description.sha256 = None;
    let before = recipes(&description).expect("recipes");
    description.sha256 = Some(sum.clone());
    let after = recipes(&description).expect("recipes");
    let with: Vec<&String> =
        after.iter().filter(|(_, text)| text.contains(&sum)).map(|(name, _)| name).collect();
    let recipe = format!("yocto/rtscope_{}.bb", description.version);
    assert_eq!(with, ["arch/.SRCINFO", "arch/PKGBUILD", &recipe]);
    assert!(before["arch/PKGBUILD"].contains("sha256sums=('SKIP')"));
}

/// The words of an assignment in a recipe of Yocto.
fn assigned<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!("\n{name} = \"");
    let from = text.find(&begin).unwrap_or_else(|| panic!("{name}: {text}")) + begin.len();
    let to = from + text[from..].find('"').expect("an end");
    text[from..to].split_whitespace().filter(|word| *word != "\\").collect()
}

#[test]
fn yocto_fetches_each_crate_of_the_lock_once_with_its_checksum() {
    let recipes = ours();
    let crates = &recipes["yocto/rtscope-crates.inc"];
    let locked = locked().expect("a lock");
    assert!(locked.len() > 100);
    let addresses: BTreeSet<&str> =
        crates.split_whitespace().filter(|word| word.starts_with("crate://")).collect();
    assert_eq!(addresses.len(), locked.len());
    for Locked { name, version, checksum, .. } in &locked {
        assert!(addresses.contains(format!("crate://crates.io/{name}/{version}").as_str()));
        let sum = checksum.as_ref().expect("a checksum");
        let line = format!("SRC_URI[{name}-{version}.sha256sum] = \"{sum}\"\n");
        assert_eq!(crates.matches(&line).count(), 1, "{name}");
    }
    // What goes on in the next line ends in a backslash, and quotes are in pairs.
    let (_, recipe) = recipes.iter().find(|(name, _)| name.ends_with(".bb")).expect("a recipe");
    for text in [crates, recipe] {
        assert_eq!(text.matches('"').count() % 2, 0);
        assert!(text.lines().all(|line| !line.ends_with("\\ ")));
    }
    assert_eq!(assigned(recipe, "LIC_FILES_CHKSUM").len(), 2);
    assert_eq!(assigned(recipe, "LICENSE"), ["MIT", "|", "Apache-2.0"]);
}

#[test]
fn bash_reads_the_pkgbuild_as_srcinfo_says() {
    let Some(bash) = shell::find("bash") else { return skip_this("without bash") };
    let script = "set -eu; source \"$1\"
        one() { printf '\\t%s = %s\\n' \"$1\" \"$2\"; }
        echo \"pkgbase = $pkgname\"
        for name in pkgdesc pkgver pkgrel url; do one $name \"${!name}\"; done
        for name in arch license makedepends optdepends options source sha256sums; do
            all=\"$name[@]\"
            for value in \"${!all}\"; do one $name \"$value\"; done
        done
        printf '\\npkgname = %s\\n' \"$pkgname\"
        declare -F prepare build package > /dev/null";
    let file = crate::root().join("packaging/arch/PKGBUILD");
    let mut command = Command::new(bash);
    let said = shell::output(command.args(["-c", script, "-"]).arg(&file), LIMIT).expect("bash");
    assert_eq!(format!("# {HEAD}\n{said}"), ours()["arch/.SRCINFO"]);
}

/// The function that changes Yocto's targets, run as Python with a target.
#[test]
fn yocto_s_targets_can_be_static() {
    let Some(python) = shell::find("python3") else { return skip_this("without python3") };
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("a.json");
    fs::write(&target, "{\"arch\": \"x86_64\"}").expect("written");
    let recipes = ours();
    let (_, recipe) = recipes.iter().find(|(name, _)| name.ends_with(".bb")).expect("a recipe");
    let (_, body) = recipe.split_once("do_rust_gen_targets:append() {\n").expect("a function");
    let (body, _) = body.split_once("\n}\n").expect("an end");
    let place = folder.path().display();
    let script = format!(
        "class D:\n    def getVar(self, name):\n        return {{'RUST_TARGETS_DIR': '{place}/'}}[name]\n\
         def run(d):\n{body}\nrun(D())\n"
    );
    shell::output(Command::new(python).args(["-c", &script]), LIMIT).expect("it runs");
    let target = fs::read_to_string(&target).expect("a target");
    let target: serde_json::Value = serde_json::from_str(&target).expect("JSON");
    assert_eq!(target["crt-static-respected"], true);
    assert_eq!(target["arch"], "x86_64");
}

/// With an infrastructure that only prints what it was given, make reads the package.
#[test]
fn make_reads_the_package_of_buildroot() {
    if shell::find("make").is_none() {
        return skip_this("without make");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = crate::root().join("packaging/buildroot/rtscope.mk");
    let outer = format!(
        "define cargo-package\nall:\n\t@echo '$(RTSCOPE_SITE)/$(RTSCOPE_SOURCE)'\n\
         \t@env $$(RTSCOPE_CARGO_ENV) sh -c 'echo \"$$$$RUSTFLAGS\"; echo \"$$$$LIBSQLITE3_FLAGS\"'\nendef\n\
         include {}\n",
        file.display()
    );
    let path = folder.path().join("Makefile");
    fs::write(&path, outer).expect("written");
    let run = |arch: &str| {
        let mut make = Command::new("make");
        make.arg("--file").arg(&path).arg(format!("NORMALIZED_ARCH={arch}"));
        shell::output(&mut make, LIMIT).expect("make")
    };
    let description = Description::read().expect("a description");
    let address = description.archive(&description.version);
    let (flags, sqlite) = ("-C target-feature=+crt-static", &description.sqlite);
    assert_eq!(run("arm64"), format!("{address}\n{flags}\n{sqlite}\n"));
    let link = "-C link-arg=-Wl,--allow-multiple-definition";
    assert_eq!(run("arm"), format!("{address}\n{flags} {link}\n{sqlite}\n"));
    let config = &ours()["buildroot/Config.in"];
    assert!(
        config
            .lines()
            .all(|line| line.replace('\t', "        ").len() <= 72 || line.starts_with('#'))
    );
}

/// Whatever brackets a flake has, they are in pairs; Nix itself is not needed for that.
#[test]
fn the_flake_is_balanced_and_names_what_it_builds() {
    let flake = &ours()["nix/flake.nix"];
    for (open, close) in [('{', '}'), ('[', ']'), ('(', ')')] {
        assert_eq!(flake.matches(open).count(), flake.matches(close).count(), "{open}");
    }
    assert_eq!(flake.matches("''").count(), 2);
    assert!(flake.contains("licenses; [ mit asl20 ];"));
}
