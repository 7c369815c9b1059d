//! In a container: what the image holds, what the pod may do, and whether Kubernetes takes the manifests.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rtscope_testing::skip::{program, root_or_skip, skip};

use crate::support::{folder, json, output, output_of, text};

/// The files for a cluster.
fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes")
}

/// What the pod's description gives: a root with nothing but the program, read-only, and two capabilities. `chroot` needs a
/// third one.
const AS_IN_THE_POD: &str = r#"
set -e
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs none run
mount -t tmpfs none tmp
mount -t tmpfs none dev
mknod -m 666 dev/null c 1 3
mount --bind records records
mount -o remount,bind,ro .
shift
caps=-all,+sys_nice,+ipc_lock,+sys_chroot
exec setpriv --no-new-privs --bounding-set "$caps" --inh-caps "$caps" env -i /usr/sbin/chroot . /rtscope "$@"
"#;

#[test]
fn an_image_from_scratch_measures_with_two_capabilities() {
    let test = "an_image_from_scratch_measures_with_two_capabilities";
    if !root_or_skip(test) {
        return;
    }
    if program("unshare").is_none() || program("setpriv").is_none() {
        skip(test, "util-linux isn't installed");
        return;
    }
    for name in ["run.yaml", "doctor.yaml"] {
        let manifest = fs::read_to_string(packaging().join(name)).expect("a manifest");
        for line in [r#"drop: ["ALL"]"#, r#"add: ["SYS_NICE", "IPC_LOCK"]"#, "runAsUser: 0"] {
            assert!(manifest.contains(line), "{name}: {line}");
        }
    }
    let room = folder();
    for name in ["proc", "sys", "dev", "run", "tmp", "records", "plans"] {
        fs::create_dir(room.path().join(name)).expect("made");
    }
    let plan = output(room.path(), "plan show quick");
    fs::write(room.path().join("plans/mine.toml"), plan.stdout).expect("written");
    fs::copy(env!("CARGO_BIN_EXE_rtscope"), room.path().join("rtscope")).expect("copied");
    let mut inside = Command::new("unshare");
    inside.args([
        "--mount",
        "--pid",
        "--fork",
        "--propagation",
        "private",
        "sh",
        "-c",
        AS_IN_THE_POD,
        "sh",
    ]);
    inside.arg(room.path()).args([
        "run",
        "/plans/mine.toml",
        "--duration",
        "2s",
        "--quiet",
        "--out",
        "/records/node",
    ]);
    let ran = output_of(&mut inside);
    assert_eq!(ran.status.code(), Some(0), "{}{}", text(&ran.stdout), text(&ran.stderr));
    let record = json(room.path(), "report records/node --json");
    assert_eq!(record["cells"][0]["cpus"][0]["policy"], "fifo", "the capabilities are enough");
    let findings = record["findings"].to_string();
    assert!(!findings.contains("memory-not-locked"), "{findings}");
}

#[test]
fn kubernetes_takes_the_manifests() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/xtask/kubernetes");
    if !package.join("kubernetes_validate").is_dir() {
        skip("kubernetes_takes_the_manifests", "without kubernetes-validate");
        return;
    }
    let check = |manifest: &Path| {
        let script = "import sys; from kubernetes_validate.__main__ import main; sys.exit(main())";
        let mut command = Command::new("/usr/bin/python3");
        command.env("PYTHONPATH", &package).args(["-c", script, "--strict"]).arg(manifest);
        output_of(&mut command)
    };
    let mut checked = 0;
    for entry in fs::read_dir(packaging()).expect("listed").flatten() {
        if entry.path().extension().is_some_and(|ending| ending == "yaml") {
            let said = check(&entry.path());
            assert!(said.status.success(), "{}{}", text(&said.stdout), text(&said.stderr));
            checked += 1;
        }
    }
    assert_eq!(checked, 3);
    // The check can fail.
    let wrong = folder();
    let text_of = fs::read_to_string(packaging().join("run.yaml")).expect("a manifest");
    fs::write(wrong.path().join("wrong.yaml"), text_of.replace("completions:", "completion:"))
        .expect("written");
    assert!(!check(&wrong.path().join("wrong.yaml")).status.success());
}
