//! What users type at the lab: plans and their options, kernels and their names.

use std::{fs, path::Path, process::Command};

use crate::{any_kernel, document, ready_or_skip, room, rtscope, text};

/// Runs the lab; its exit code and what it says.
fn lab(folder: &Path, line: &str, more: &[&str]) -> (Option<i32>, String) {
    let words: Vec<&str> = ["lab"].into_iter().chain(line.split(' ')).collect();
    let ran = rtscope(folder, &[&words[..], more].concat()).output().expect("starts");
    (ran.status.code(), text(&ran))
}

#[test]
fn the_default_plan_runs_in_the_guest_as_the_options_shape_it() {
    let test = "the_default_plan_runs_in_the_guest_as_the_options_shape_it";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    let line = "run --memory 1024 --out out --interval 700us --priority 37 --cycles 23";
    let (code, said) =
        lab(room.path(), line, &["--require", "missed = 0", "--kernel", any_kernel()]);
    assert!(matches!(code, Some(0 | 2 | 3)), "{said}");
    let document = document(&room.path().join("out"));
    let cells = document["kernels"][0]["cells"].as_array().expect("cells").iter();
    let seen: Vec<_> =
        cells.map(|cell| (cell["name"].as_str(), cell["all"]["recorded"].as_u64())).collect();
    let expected = ["rest", "message", "disk"].map(|name| (Some(name), Some(23)));
    assert_eq!(seen, expected, "{said}");
    let plan = room.path().join(format!("out/{}-seed1/plan.toml", any_kernel()));
    let plan = fs::read_to_string(plan).expect("the plan of the guest");
    for line in ["interval = \"700us\"", "priority = 37", "cycles = 23"] {
        assert!(plan.contains(line), "{line}: {plan}");
    }
}

#[test]
fn what_makes_no_sense_in_a_guest_is_refused_before_one_boots() {
    let room = room();
    for (line, why) in [
        ("run --kernel x --set governor=performance", "one frequency"),
        ("matrix --kernel x --set idle-state=0", "no idle states"),
        ("sched --kernel x --interval 1ms", "an experiment has no sampler"),
        ("sched --kernel x --cycles 5", "--work sets"),
        ("drift --kernel x --duration 1ms", "from 10ms to 1d"),
        ("drift --kernel x --period 10ms --work 9ms", "at most 80 %"),
        ("drift --kernel x --gpio-sim 8", "need a plan"),
        ("drift --kernel x --events", "need a plan"),
        ("throughput --kernel x --duration 1ms", "from 50ms"),
        ("stat --kernel x --compare -- ./a", "takes two commands"),
        ("wave sweep --subject pascal --kernel x", "a guest has no subject pascal: use c, "),
        ("wave sweep --subject rust --kernel x --from 2kHz --to 1kHz", "--from must be below"),
        ("wave generate led:a --freq 1kHz --kernel x", "only memory:NAME and gpio:sim/N"),
        ("wave generate --freq 1GHz --kernel x", "is not a frequency"),
        ("run --kernel x --shift 10", "(about 8000 instructions) 8.19 ms"),
        ("sched --kernel x --shift 6", "take 0 to 5"),
    ] {
        let (code, said) = lab(room.path(), line, &[]);
        assert_eq!(code, Some(64), "{line}: {said}");
        assert!(said.contains(why), "{line}: {said}");
    }
    let (code, said) =
        lab(room.path(), "bisect --good x --bad y --seeds 1", &["--require", "max < 1ms"]);
    assert!(code == Some(64) && said.contains("in 50 % of cases; use --seeds 4"), "{said}");
    let bisect = "bisect --good x --bad y --at-most 1h";
    let (code, said) = lab(room.path(), bisect, &["--until", "max < 1ms once in 1h"]);
    assert!(code == Some(64) && said.contains("hours to check on the real machine"), "{said}");
    // How many CPUs there are shows when the kernel is there.
    if ready_or_skip("what_makes_no_sense_in_a_guest_is_refused_before_one_boots") {
        let (code, said) = lab(room.path(), "run --kernel debian-rt --cpus 3", &[]);
        assert_eq!(code, Some(64), "{said}");
        assert!(said.contains("measures CPU 3, but the guest has only CPU 0"), "{said}");
        let (code, said) = lab(room.path(), "run --kernel debian-stock --tracer timerlat", &[]);
        assert_eq!(code, Some(64), "{said}");
        assert!(said.contains("built without CONFIG_TIMERLAT_TRACER"), "{said}");
    }
}

#[test]
fn a_missing_file_is_an_error_and_a_wrong_word_a_wrong_command_line() {
    let room = room();
    for line in [
        "run none.toml --kernel x",
        "run --kernel path=none",
        "run --kernel none.deb",
        "sched none.toml --kernel x",
        "replay none",
        "bisect --tree none --spec tiny-6.12-rt --good a --bad b --require missed=0",
    ] {
        let (code, said) = lab(room.path(), line, &[]);
        assert_eq!(code, Some(1), "{line}: {said}");
        assert!(said.contains("none"), "{line}: {said}");
    }
    for (line, why) in [
        ("run --kernel rt=path=", "names no kernel"),
        ("run --kernel tiny-6.12-rt:", "nothing follows a colon"),
        ("run --kernel x --preempt full", "rtscope lab matrix has --preempt"),
        ("run --kernel x --out small.toml", "it is a file; name a folder"),
    ] {
        let (code, said) = lab(room.path(), line, &[]);
        assert_eq!(code, Some(64), "{line}: {said}");
        assert!(said.contains(why), "{line}: {said}");
    }
    if !ready_or_skip("a_missing_file_is_an_error_and_a_wrong_word_a_wrong_command_line") {
        return;
    }
    for option in ["--modules", "--machine"] {
        let (code, said) = lab(room.path(), "run --kernel debian-rt", &[option, "none.toml"]);
        assert_eq!(code, Some(1), "{option}: {said}");
    }
}

#[test]
fn a_label_is_the_kernel_s_name_everywhere_and_the_record_can_be_replayed() {
    let test = "a_label_is_the_kernel_s_name_everywhere_and_the_record_can_be_replayed";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    // The same guests as in the comparison of `main.rs`: if that test ran first, the cache has both records.
    let line = "run small.toml --memory 1024 --kernel one=debian-rt --kernel two=debian-stock:preempt=none";
    let (code, said) = lab(room.path(), line, &["--out", "out"]);
    assert_eq!(code, Some(0), "{said}");
    let out = room.path().join("out");
    let document = document(&out);
    let kernels = document["kernels"].as_array().expect("kernels");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let seen: Vec<_> = kernels
        .iter()
        .map(|kernel| [&kernel["kernel"], &kernel["record"], &kernel["inputs"]["kernel"]].map(text))
        .collect();
    assert_eq!(
        seen,
        [
            ["one", "one-seed1", "one=debian-rt"],
            ["two", "two-seed1", "two=debian-stock:preempt=none"]
        ]
    );
    assert!(said.contains("[1/2] ") && said.contains("one seed 1 small"), "{said}");
    let page = fs::read_to_string(out.join("index.html")).expect("a page");
    assert!(
        page.contains("two-seed1/report.html") && page.contains("two=debian-stock:preempt=none")
    );
    // The same guest by another name is known, and bears that name.
    let line = "run small.toml --memory 1024 --kernel other=debian-rt --out again";
    let (code, said) = lab(room.path(), line, &[]);
    assert!(code == Some(0) && said.contains("other seed 1 small: known"), "{said}");
    let inputs = fs::read_to_string(room.path().join("again/other-seed1/lab.json")).expect("there");
    assert!(inputs.contains("\"kernel\": \"other=debian-rt\""), "{inputs}");
    let (code, said) = lab(room.path(), "replay again/other-seed1", &[]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_label_that_is_taken_or_fits_no_folder_is_refused() {
    let room = room();
    for (line, why) in [
        ("run --kernel a=debian-rt --kernel a=debian-stock", "two kernels are called a"),
        ("sched --kernel debian-rt --kernel debian-rt=debian-stock", "two kernels are called"),
        ("matrix --kernel a/b=debian-rt", "the label \"a/b\" has a slash in it"),
        ("run --kernel a:b=debian-rt --kernel ..=debian-rt", "begins with"),
    ] {
        let (code, said) = lab(room.path(), line, &[]);
        assert_eq!(code, Some(64), "{line}: {said}");
        assert!(said.contains(why), "{line}: {said}");
    }
    let line = "bisect --good a=debian-rt --bad a=debian-rt:nohz=off";
    let (code, said) = lab(room.path(), line, &["--require", "max < 50us"]);
    assert!(code == Some(64) && said.contains("two kernels are called a"), "{said}");
}

/// A plan whose load needs a module of the kernel.
const VETH: &str = "
name = 'veth'
title = 'a pair of network devices'
[sampler]
interval = '500us'
warmup = '20ms'
[[phase]]
name = 'veth'
cycles = 50
settle = '20ms'
load = ['network over=veth']
";

#[test]
fn debian_s_cloud_kernel_and_one_in_a_package_boot_with_their_modules() {
    let test = "debian_s_cloud_kernel_and_one_in_a_package_boot_with_their_modules";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    fs::write(room.path().join("veth.toml"), VETH).expect("written");
    let depends = Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]).output();
    let depends = String::from_utf8(depends.expect("starts").stdout).expect("text");
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let mut apt = Command::new("apt-get");
    apt.current_dir(room.path()).args(["-q", "download", package.expect("the kernel's package")]);
    assert!(apt.output().expect("starts").status.success(), "{package:?}");
    let mut files = fs::read_dir(room.path()).expect("there").flatten();
    let file = files.find(|entry| entry.path().extension().is_some_and(|ending| ending == "deb"));
    let mine = format!("mine=path={}", file.expect("a package").file_name().display());
    let line = "run veth.toml --memory 1024 --out out --kernel debian-cloud --kernel";
    let (code, said) = lab(room.path(), line, &[&mine]);
    assert_eq!(code, Some(0), "{said}");
    let document = document(&room.path().join("out"));
    for (kernel, label) in
        document["kernels"].as_array().expect("kernels").iter().zip(["debian-cloud", "mine"])
    {
        assert_eq!(kernel["kernel"], label, "{said}");
        assert_eq!(kernel["cells"][0]["all"]["recorded"], 50, "{said}");
        // The package's configuration stands in for /proc/config.gz.
        let record = room.path().join("out").join(kernel["record"].as_str().expect("a folder"));
        assert!(record.join("config.gz").exists(), "{}", record.display());
        let release = &kernel["verification"]["running"]["release"];
        assert!(release.as_str().is_some_and(|name| name.ends_with("-cloud-amd64")), "{release}");
    }
    assert!(!said.contains("load-did-not-start"), "{said}");
    let line = "run veth.toml --kernel debian-cloud --module vet";
    let (code, said) = lab(room.path(), line, &[]);
    assert!(code == Some(64) && said.contains("has no module \"vet\""), "{said}");
}

#[test]
fn kernels_that_debian_has_built_are_shown() {
    let room = room();
    let kernel = |words: &[&str]| {
        let ran = rtscope(room.path(), &[&["kernel"], words, &["--cache", "cache"]].concat());
        let ran = { ran }.output().expect("starts");
        (ran.status.code(), text(&ran))
    };
    for (name, package, title) in [
        ("debian-stock-amd64", "linux-image-amd64", "as most machines with Debian"),
        ("debian-rt-arm64", "linux-image-rt-arm64", "PREEMPT_RT"),
        ("debian-cloud-amd64", "linux-image-cloud-amd64", "virtual machines"),
    ] {
        let (code, said) = kernel(&["show", name]);
        assert_eq!(code, Some(0), "{said}");
        let source = format!("Debian's package {package}, fetched by apt");
        for part in [title, &source, "newest ", "in the cache   none"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let (_, said) = kernel(&["show", name, "--json"]);
        let document: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(document["package"], package);
        let (code, said) = kernel(&["build", name]);
        assert!(code == Some(64) && said.contains("there is nothing to make"), "{said}");
    }
    let (code, said) = kernel(&["show", "debian-stok"]);
    assert!(code == Some(64) && said.contains("did you mean \"debian-stock\"?"), "{said}");
}

#[test]
fn each_problem_of_a_spec_and_its_fragments_has_a_line_of_its_own() {
    const SPEC: &str = "name = 'my/board'\ntitle = 'mine'\narch = 'x86_64'\nbase = 'defconfig'\n\
                        fragments = ['own.config']\n[source]\nkind = 'vendor'\nvendor = 'v'\nreference = 'r'\n";
    let room = room();
    fs::write(room.path().join("mine.toml"), SPEC).expect("written");
    fs::write(room.path().join("own.config"), "CONFIG_HZ_1000=y\nhello world\n").expect("written");
    let ran = rtscope(room.path(), &["kernel", "build", "mine.toml"]).output().expect("starts");
    let said = text(&ran);
    assert_eq!(ran.status.code(), Some(64), "{said}");
    let mut lines = said.lines();
    let mut next = || lines.next().unwrap_or_default();
    assert!(next().contains("mine.toml:1: the name \"my/board\" has a slash in it"), "{said}");
    let fragment = "mine.toml:5: fragment own.config, line 2: \"hello world\" is neither";
    assert!(next().contains(fragment), "{said}");
}

#[test]
fn the_list_of_the_cache_has_every_part_and_locks_are_never_deleted() {
    let room = room();
    for verb in ["cache list --cache kept", "cache prune --cache kept"] {
        let (code, said) = lab(room.path(), verb, &[]);
        assert_eq!(code, Some(64), "{said}");
    }
    // A folder of somebody else's.
    let picture = room.path().join("home/images/cat.jpg");
    fs::create_dir_all(picture.parent().expect("a folder")).expect("made");
    fs::write(&picture, "a cat").expect("written");
    let (code, said) = lab(room.path(), "cache prune --cache home", &[]);
    assert_eq!((code, picture.exists()), (Some(64), true), "{said}");
    fs::create_dir_all(room.path().join("kept/apt")).expect("made");
    let (code, said) = lab(room.path(), "cache list --cache kept", &[]);
    assert_eq!(code, Some(0), "{said}");
    for part in ["records", "apt", "locks"] {
        assert!(said.lines().any(|line| line.trim_start().starts_with(part)), "{part}: {said}");
    }
    assert_eq!(lab(room.path(), "cache prune apt --cache kept", &[]).0, Some(0));
    assert_eq!(lab(room.path(), "cache prune locks --cache kept", &[]).0, Some(64));
}
