use std::{collections::BTreeMap, time::SystemTime};

use rtscope_testing::skip::skip_this;

use super::*;

/// What is packed, in a folder of its own.
struct Parts {
    folder: tempfile::TempDir,
    program: PathBuf,
    version: String,
}

impl Parts {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn empty(version: &str) -> Parts {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["man", "completions", "out"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let program = folder.path().join("program");
        Parts { folder, program, version: version.to_owned() }
    }

    /// Files that stand for the real ones.
    fn small() -> Parts {
        let parts = Parts::empty("1.2.3");
        for (name, text) in [
            ("program", "#!/bin/sh\necho I run\n"),
            ("man/rtscope.1", ".TH rtscope 1\n"),
            ("completions/bash", "complete"),
            ("completions/zsh", "#compdef"),
            ("completions/fish", "complete"),
            ("licences", "MIT"),
        ] {
            fs::write(parts.at(name), text).expect("written");
        }
        parts
    }

    /// The program as the tests build it, without what debuggers read, its manual and its completions.
    fn real() -> Parts {
        let metadata = crate::metadata().expect("metadata");
        let built = program();
        let version = super::super::version_of(&built).expect("a version");
        let parts = Parts::empty(&version);
        let mut strip = Command::new("strip");
        strip.arg("--strip-all").arg("-o").arg(&parts.program).arg(&built);
        shell::output(&mut strip, LIMIT).expect("stripped");
        let (man, completions) = (parts.at("man"), parts.at("completions"));
        super::super::documents_of(&built, &man, &completions).expect("documents");
        let licences = crate::notices::document(&metadata).expect("licences");
        fs::write(parts.at("licences"), licences).expect("written");
        parts
    }

    fn package(&self, target: &Target) -> PathBuf {
        let [man, completions, licences] =
            ["man", "completions", "licences"].map(|name| self.at(name));
        let contents = Contents {
            version: &self.version,
            man: &man,
            completions: &completions,
            licences: &licences,
            level: 0,
            epoch: "1700000000",
        };
        let (room, out) = (self.folder.path(), self.at("out"));
        package(target, &self.program, &contents, room, &out).expect("packed")
    }
}

/// The program that `cargo test` put beside the tests; built when there is none.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let beside = test.ancestors().nth(2).map(|folder| folder.join("rtscope"));
    match beside.filter(|path| path.is_file()) {
        Some(path) => path,
        None => shell::built(&["--package", "rtscope"]).expect("built"),
    }
}

fn own() -> Target {
    *super::super::target::TARGETS.iter().find(|target| target.is_own()).expect("a target")
}

fn dpkg_deb(words: &[&str], package: &Path) -> String {
    shell::output(Command::new("dpkg-deb").args(words).arg(package), LIMIT).expect("runs")
}

#[test]
fn a_package_holds_what_was_packed() {
    if shell::find("dpkg-deb").is_none() {
        return skip_this("without dpkg-deb");
    }
    let parts = Parts::small();
    let path = parts.package(&Target::find("arm64").expect("known"));
    assert_eq!(name(&path), "rtscope_1.2.3_arm64.deb");
    let fields =
        dpkg_deb(&["--show", "--showformat=${Package} ${Architecture} ${Installed-Size}"], &path);
    let words: Vec<&str> = fields.split(' ').collect();
    assert_eq!(words[..2], ["rtscope", "arm64"]);
    let listed = dpkg_deb(&["--contents"], &path);
    for line in [
        "-rwxr-xr-x root/root",
        "./usr/bin/rtscope",
        "./usr/share/man/man1/rtscope.1.gz",
        "./usr/share/bash-completion/completions/rtscope",
        "./usr/share/doc/rtscope/copyright",
        "./usr/share/doc/rtscope/changelog.gz",
        "./usr/share/doc/rtscope/CHANGELOG.md.gz",
        "./usr/share/doc/rtscope/README.Debian",
        "./usr/share/lintian/overrides/rtscope",
        "./usr/share/doc/rtscope/third-party-licences.gz",
        "./usr/lib/systemd/system/rtscope-history.timer",
        "./usr/lib/systemd/system/rtscope-doctor.service",
    ] {
        assert!(listed.contains(line), "{line}: {listed}");
    }
    assert!(listed.lines().all(|line| line.contains(" root/root ")), "{listed}");
    // No script runs when it is installed or removed, so nothing is enabled and no setting changes.
    let control = parts.at("control");
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("--control").arg(&path).arg(&control);
    shell::output(&mut unpack, LIMIT).expect("unpacked");
    let files: Vec<String> = list(&control).expect("files").iter().map(|path| name(path)).collect();
    assert_eq!(files, ["control", "md5sums"]);
}

/// The place, the mask, the dates and the order in which files were made don't matter.
#[test]
fn the_same_commit_gives_the_same_bytes() {
    if shell::find("dpkg-deb").is_none() {
        return skip_this("without dpkg-deb");
    }
    let arm64 = Target::find("arm64").expect("known");
    let (one, other) = (Parts::small(), Parts::small());
    let later = SystemTime::now() + Duration::from_secs(86_400);
    for path in below(other.folder.path()).expect("files") {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        fs::File::options()
            .append(true)
            .open(&path)
            .and_then(|f| f.set_modified(later))
            .expect("set");
    }
    let bytes = |parts: &Parts| fs::read(parts.package(&arm64)).expect("a package");
    let (first, second) = (bytes(&one), bytes(&other));
    assert!(first == second, "{} and {} bytes", first.len(), second.len());
    assert!(bytes(&one) == first, "once more in the same place");
    fs::write(&other.program, "#!/bin/sh\necho I walk\n").expect("written");
    assert!(bytes(&other) != first, "another program is another package");
}

#[test]
fn lintian_finds_nothing_in_the_package() {
    if shell::find("dpkg-deb").is_none() || shell::find("lintian").is_none() {
        return skip_this("without lintian");
    }
    let parts = Parts::real();
    let package = parts.package(&own());
    let mut lintian = Command::new("lintian");
    // It refuses to run as root without this word, or warns.
    lintian.args(["--allow-root", "--no-cfg", "--fail-on", "error,warning"]);
    // There is no bug in Debian's list that asks for this package.
    lintian.args(["--suppress-tags", "initial-upload-closes-no-bugs"]);
    let folder = tempfile::tempdir().expect("a folder");
    lintian.arg("--tag-display-limit").arg("0").arg(&package);
    let said = shell::logged(&mut lintian, &folder.path().join("log"), LIMIT).expect("it runs");
    assert!(said.is_ok(), "{}", said.log);
    assert!(!said.log.contains("unused-override"), "{}", said.log);
}

/// Every path below a folder with its size, but dpkg's own files: those change with each call.
fn tree(root: &Path) -> BTreeMap<String, u64> {
    fn walk(folder: &Path, root: &Path, found: &mut BTreeMap<String, u64>) {
        for path in list(folder).expect("listed") {
            let below = path.strip_prefix(root).expect("below").display().to_string();
            if below == "var/lib/dpkg" {
                continue;
            }
            let metadata = path.symlink_metadata().expect("there");
            found.insert(below, if metadata.is_dir() { 0 } else { metadata.size() });
            if metadata.is_dir() {
                walk(&path, root, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(root, root, &mut found);
    found
}

#[test]
fn an_installed_package_runs_and_its_removal_leaves_nothing() {
    if !rtscope_testing::skip::root_or_skip(
        "an_installed_package_runs_and_its_removal_leaves_nothing",
    ) {
        return;
    }
    if shell::find("dpkg").is_none() {
        return skip_this("without dpkg-deb");
    }
    let parts = Parts::real();
    let package = parts.package(&own());
    let machine = tempfile::tempdir().expect("a folder");
    let root = machine.path();
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "usr/bin", "etc"] {
        fs::create_dir_all(root.join(folder)).expect("made");
    }
    // The second file is of another package: dpkg removes a folder that nobody uses any more.
    for (file, text) in [("var/lib/dpkg/status", ""), ("usr/bin/other", "#!/bin/sh\n")] {
        fs::write(root.join(file), text).expect("written");
    }
    let before = tree(root);
    let dpkg = |words: &[&str]| {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", root.display())).args(words);
        shell::output(&mut dpkg, LIMIT).expect("dpkg")
    };
    dpkg(&["--install", &package.display().to_string()]);
    let installed = tree(root);
    assert!(installed.contains_key("usr/share/man/man1/rtscope-run.1.gz"), "{installed:?}");
    let links = ["etc/systemd", "usr/lib/systemd/system/timers.target.wants"];
    assert!(links.iter().all(|link| !installed.contains_key(*link)), "it enabled a unit");
    let mut run = Command::new(root.join("usr/bin/rtscope"));
    let said = shell::output(run.arg("doctor").arg("--help").env("HOME", root), LIMIT);
    assert!(said.expect("it runs").contains("Usage: rtscope doctor"));
    assert_eq!(tree(root), installed, "it wrote something");
    dpkg(&["--purge", "rtscope"]);
    assert_eq!(tree(root), before);
}

#[test]
fn systemd_reads_the_units() {
    let Some(analyze) = shell::find("systemd-analyze") else {
        return skip_this("without systemd-analyze");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let wrong = |unit: &Path| -> Vec<String> {
        let mut verify = Command::new(&analyze);
        verify.args(["verify", "--man=no"]).arg(unit);
        let said = shell::logged(&mut verify, &log, LIMIT).expect("it runs").log;
        // The program itself is not installed here.
        let missing = "Command /usr/bin/rtscope is not executable";
        let lines = said.lines();
        lines
            .filter(|line| line.contains("rtscope-") && !line.contains(missing))
            .map(str::to_owned)
            .collect()
    };
    for unit in list(&crate::root().join("packaging/systemd")).expect("units") {
        assert_eq!(wrong(&unit), [""; 0]);
        let planted = folder.path().join(unit.file_name().expect("a name"));
        let text = fs::read_to_string(&unit).expect("a unit");
        fs::write(&planted, format!("{text}Planted=1\n")).expect("written");
        assert!(wrong(&planted).iter().any(|line| line.contains("Planted")), "not noticed");
        // A timer without its service would start nothing.
        let service = unit.with_extension("service");
        assert!(service.exists(), "{}", service.display());
    }
}

/// systemd gives such a folder, with all that is in it, to the user of the unit. Root trusts its own journals.
#[test]
fn no_unit_takes_the_folder_of_root_s_journals() {
    for unit in list(&crate::root().join("packaging/systemd")).expect("units") {
        let text = fs::read_to_string(&unit).expect("a unit");
        let folders = text.lines().filter_map(|line| line.strip_prefix("StateDirectory="));
        for folder in folders.flat_map(str::split_whitespace) {
            assert!(!Path::new("rtscope/kernels").starts_with(folder), "{}", unit.display());
        }
    }
}

/// Without the right to start real-time threads, doctor would find on each machine that the right is missing.
#[test]
fn the_unit_of_doctor_finds_what_root_finds() {
    if !rtscope_testing::skip::root_or_skip("the_unit_of_doctor_finds_what_root_finds") {
        return;
    }
    let unit = crate::root().join("packaging/systemd/rtscope-doctor.service");
    let unit = fs::read_to_string(unit).expect("a unit");
    let set = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = set.expect("it has few capabilities").split_whitespace();
    let bounds: String = names.map(|name| name.to_lowercase().replace("cap_", ",+")).collect();
    let said = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(program()).arg("doctor");
        let folder = tempfile::tempdir().expect("a folder");
        let said = shell::logged(&mut command, &folder.path().join("log"), LIMIT).expect("it runs");
        let findings = said.log.lines().filter(|line| line.starts_with("high "));
        findings.map(str::to_owned).collect::<Vec<_>>()
    };
    let set = format!("--bounding-set=-all{bounds}");
    let confined = ["setpriv", "--no-new-privs", "--inh-caps=-all", &set];
    let right = |findings: &[String]| findings.iter().any(|one| one.contains("no-rt-permission"));
    assert_eq!(right(&said(&confined)), right(&said(&["env"])));
    let without = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"];
    assert!(right(&said(&without)), "the test can fail");
}
