//! `rtscope fleet lava`: LAVA's own schema takes each job, and its steps do what they say.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use rtscope_testing::{executable, kernel_ci::FakeKernelCi};
use serde_json::Value;

use crate::{
    fleet::small_program,
    support::{folder, output, output_of, program, refused, skip, text},
};

/// What LAVA's own package makes of a job: it validates it, and refuses one with a field more.
const LAVA: &str = "\
import json, sys, yaml
from lava_common import schemas
job = yaml.safe_load(open(sys.argv[1]))
schemas.validate(job)
schemas.extra_checks(job)
try:
    schemas.validate(dict(job, nonsense=1))
    sys.exit('it takes everything')
except Exception as why:
    assert 'nonsense' in str(why)
print(json.dumps(job))
";

fn lava(folder: &Path, script: &str, job: &str) -> Output {
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", script, job]).current_dir(folder);
    output_of(&mut python)
}

/// Whether LAVA's package is there; says so where it isn't.
fn lava_or_skip(test: &str) -> bool {
    let room = folder();
    let has = Path::new("/usr/bin/python3").exists()
        && lava(room.path(), "import yaml, lava_common.schemas", "").status.success();
    if !has {
        skip(test, "without lava-common");
    }
    has
}

const BOARD: &str = "fleet lava --device-type bcm2711-rpi-4-b --program http://files.example/rtscope \
    --kernel http://files.example/Image --kernel-type image --dtb http://files.example/a.dtb --out job.yaml";

#[test]
fn lava_s_own_schema_takes_the_job_of_each_plan() {
    let test = "lava_s_own_schema_takes_the_job_of_each_plan";
    if !lava_or_skip(test) {
        return;
    }
    let room = folder();
    let here = room.path();
    let lines = [
        format!("{BOARD} --nfsrootfs http://files.example/r.tar.xz --modules http://files.example/m.tar.xz --login root"),
        format!("{BOARD} --ramdisk http://files.example/r.cpio.gz --method grub --tag rt --tag '8 cores'"),
        format!("{BOARD} --ramdisk http://files.example/r.cpio.gz --method barebox --prompt 'root@x:'"),
        format!("{BOARD} --ramdisk http://files.example/r.cpio.gz --method ipxe --program-sha256 {}", "a".repeat(64)),
        "fleet lava --device-type qemu --program http://files.example/rtscope --out job.yaml --kernel \
         http://files.example/bzImage --rootfs http://files.example/r.ext4.xz"
            .to_owned(),
        "fleet lava --device-type qemu --program http://files.example/rtscope --out job.yaml --arch arm64 --kernel \
         http://files.example/Image --ramdisk http://files.example/r.cpio.gz"
            .to_owned(),
    ];
    for line in &lines {
        let made = output(here, line);
        assert!(made.status.success(), "{line}: {}", text(&made.stderr));
        let taken = lava(here, LAVA, "job.yaml");
        assert!(taken.status.success(), "{line}: {}", text(&taken.stderr));
    }
    let plans = output(here, "plan list --json");
    let plans: Value = serde_json::from_slice(&plans.stdout).expect("JSON");
    let names = plans.as_array().expect("plans").iter().filter_map(|plan| plan["name"].as_str());
    let mut count = 0;
    for name in names {
        let line =
            lines[0].replacen("fleet lava", &format!("fleet lava {name} --require 'max < 1ms'"), 1);
        let made = output(here, &line);
        assert!(made.status.success(), "{name}: {}", text(&made.stderr));
        let taken = lava(here, LAVA, "job.yaml");
        assert!(taken.status.success(), "{name}: {}", text(&taken.stderr));
        // The plan comes through YAML as it was.
        let job: Value = serde_json::from_slice(&taken.stdout).expect("JSON");
        let steps = steps_of(&job);
        let plan = steps.iter().find(|step| step.starts_with("cat > plan.toml")).expect("a plan");
        let plan: Vec<&str> = plan.trim_end().lines().collect();
        fs::write(here.join("plan.toml"), plan[1..plan.len() - 1].join("\n")).expect("written");
        let shown = output(here, "plan show plan.toml");
        assert!(shown.status.success(), "{name}: {}", text(&shown.stderr));
        count += 1;
    }
    assert!(count > 10, "{count}");
}

/// The lines of the test's shell.
fn steps_of(job: &Value) -> Vec<String> {
    let actions = job["actions"].as_array().expect("actions");
    let test = actions.iter().find_map(|action| action.get("test")).expect("a test");
    let steps = &test["definitions"][0]["repository"]["run"]["steps"];
    let steps = steps.as_array().expect("steps").iter();
    steps.map(|step| step.as_str().expect("a line").to_owned()).collect()
}

/// The steps as LAVA writes them: into one script, which ends at the first command that fails.
#[test]
fn the_steps_of_a_job_fetch_rtscope_and_print_lava_s_signals() {
    let test = "the_steps_of_a_job_fetch_rtscope_and_print_lava_s_signals";
    if !lava_or_skip(test) {
        return;
    }
    if program("curl").is_none() {
        return skip(test, "without curl");
    }
    let room = folder();
    let here = room.path();
    let server = FakeKernelCi::start();
    small_program(&here.join("small"));
    server.put_file("rtscope", &fs::read(here.join("small")).expect("read"));
    fs::write(here.join("p.toml"), "name = 'p'\n[[phase]]\nname = 'rest'\nduration = '300ms'\n")
        .expect("written");
    let line = format!(
        "fleet lava p.toml --require 'max < 10s' --device-type qemu --program {} --rootfs {} --out job.yaml",
        server.file("rtscope"),
        server.file("disk")
    );
    let made = output(here, &line);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let job: Value = serde_json::from_slice(&lava(here, LAVA, "job.yaml").stdout).expect("JSON");
    let bin = here.join("bin");
    for (name, script) in [
        (
            "lava-test-case",
            "#!/bin/sh\necho \"<LAVA_SIGNAL_TESTCASE TEST_CASE_ID=$1 RESULT=$3>\"\n",
        ),
        ("lava-test-raise", "#!/bin/sh\necho \"<LAVA_TEST_RAISE $1>\"\nexit 1\n"),
    ] {
        executable::write(&bin.join(name), script);
    }
    let run = |steps: &[String]| {
        let script = format!("set -e\n{}\n", steps.join("\n"));
        let script = script.replace("/tmp/rtscope", &here.join("device").display().to_string());
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        output_of(shell.args(["-c", &script]).env("PATH", path).current_dir(here))
    };
    let steps = steps_of(&job);
    let ran = run(&steps);
    let said = text(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", text(&ran.stderr));
    for part in [
        "<LAVA_SIGNAL_TESTSET START rest>",
        "<LAVA_SIGNAL_TESTCASE TEST_CASE_ID=max RESULT=pass UNITS=us MEASUREMENT=",
        "TEST_CASE_ID=require-max-below-10s RESULT=",
        "<LAVA_SIGNAL_TESTCASE TEST_CASE_ID=rtscope RESULT=",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // An rtscope that isn't there, or another one, ends the job as an error and is not run.
    let gone: Vec<String> =
        steps.iter().map(|step| step.replace("files/rtscope", "files/none")).collect();
    let ran = run(&gone);
    assert!(!ran.status.success() && text(&ran.stdout).contains("LAVA_TEST_RAISE can't fetch"));
    let made = output(here, &format!("{line} --program-sha256 {}", "0".repeat(64)));
    assert!(made.status.success(), "{}", text(&made.stderr));
    let job: Value = serde_json::from_slice(&lava(here, LAVA, "job.yaml").stdout).expect("JSON");
    let ran = run(&steps_of(&job));
    assert!(
        !ran.status.success() && text(&ran.stdout).contains("does not have the expected SHA-256"),
        "{}",
        text(&ran.stdout)
    );
}

#[test]
fn a_job_that_no_device_could_boot_is_refused() {
    let room = folder();
    let program = "--program http://files.example/rtscope";
    for (line, why) in [
        (format!("fleet lava --device-type x {program}"), "needs --kernel"),
        (
            format!("fleet lava --device-type x {program} --kernel http://a/b"),
            "--ramdisk or --nfsrootfs",
        ),
        (
            format!("fleet lava --device-type x {program} --rootfs http://a/b"),
            "for the device type qemu",
        ),
        (format!("fleet lava --device-type qemu {program}"), "needs --rootfs"),
        (
            format!("fleet lava --device-type qemu {program} --rootfs http://a/b --dtb http://a/b"),
            "for boards",
        ),
        ("fleet lava --device-type x --program rtscope".to_owned(), "is not an HTTP address"),
        (
            format!("fleet lava --device-type x {program} --program-sha256 12"),
            "64 hexadecimal digits",
        ),
        (
            format!("fleet lava no-such-plan --device-type x {program}"),
            "neither a shipped plan nor a file",
        ),
    ] {
        refused(room.path(), &line, 64, &[why]);
    }
}
