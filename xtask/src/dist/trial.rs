//! A built program is run where it is for: here, under user emulation, in a guest with its kernel.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::target::{Guest, Target};
use crate::{packages::Package, shell};

/// How long a call outside of a guest may take.
const LIMIT: Duration = Duration::from_secs(120);

/// How long the guest may take; its kernel may have to be fetched first.
const GUEST_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The packages that running a target's program takes.
pub(super) fn needed(target: &Target, guests: bool) -> Vec<Package> {
    let package = |name, sign, reason| Package { name, sign, reason };
    let user = "runs programs of another machine";
    let user = (!target.is_own()).then(|| package("qemu-user-static", target.emulator, user));
    let guest = target.guest.filter(|_| guests).map(|guest| {
        let (program, name) = guest.emulator;
        package(name, program, "boots a guest of this kind of machine")
    });
    user.into_iter().chain(guest).collect()
}

/// Calls a program, on another machine under user emulation, and checks what it says. Answers in words.
pub(super) fn here(target: &Target, program: &Path, version: &str) -> Result<String> {
    let run = |words: &[&str]| {
        let mut command = match target.is_own() {
            true => Command::new(program),
            false => {
                let emulator = shell::find(target.emulator).with_context(|| {
                    format!("{} is missing: apt-get install qemu-user-static", target.emulator)
                })?;
                let mut command = Command::new(emulator);
                command.arg(program);
                command
            }
        };
        shell::output(command.args(words), LIMIT)
    };
    let said = run(&["--version"])?;
    ensure!(said.trim() == format!("rtscope {version}"), "--version says {said:?}");
    // Reads every shipped plan.
    let plans = run(&["plan", "list"])?;
    ensure!(plans.contains("lab-quick"), "plan list says {plans:?}");
    let collected = run(&["collect", "--out", "-"])?;
    let collected: Value = serde_json::from_str(&collected)?;
    ensure!(collected["facts"].is_object(), "collect has no facts");
    let how = if target.is_own() { "on this machine" } else { "under user emulation" };
    Ok(format!("{how}: --version, plan list, collect"))
}

/// Runs the lab's shortest plan with the program as all there is in a guest. `host` is the program for
/// this machine. Answers in words, with what was found.
pub(super) fn guest(guest: &Guest, program: &Path, host: &Path, room: &Path) -> Result<String> {
    let (emulator, package) = guest.emulator;
    if shell::find(emulator).is_none() {
        bail!("{emulator} is missing: apt-get install {package}");
    }
    let out = room.join(format!("guest-{}", guest.machine));
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let mut lab = Command::new(host);
    lab.args(["lab", "run", "lab-quick", "--json", "--machine", guest.machine]);
    lab.args(["--kernel", guest.kernel, "--program"]).arg(program).arg("--out").arg(&out);
    let said = shell::output(&mut lab, GUEST_LIMIT)?;
    let found: Value = serde_json::from_str(&said).context("lab run --json printed no JSON")?;
    Ok(format!("in {} on the machine {}: {}", guest.kernel, guest.machine, cells(&found)?))
}

/// What a guest measured: its cells with the cycles that were recorded.
fn cells(document: &Value) -> Result<String> {
    let cells = document["kernels"][0]["cells"].as_array().context("the guest sent no cells")?;
    ensure!(!cells.is_empty(), "the guest measured nothing");
    let mut recorded = 0;
    for cell in cells {
        let all = &cell["all"];
        let count = |name: &str| all[name].as_u64().with_context(|| format!("no {name} of a cell"));
        let (planned, kept, missed) = (count("planned")?, count("recorded")?, count("missed")?);
        ensure!(planned == kept + missed, "{planned} planned, {kept} recorded, {missed} missed");
        recorded += kept;
    }
    Ok(format!("{} cells, {recorded} cycles recorded", cells.len()))
}

/// Unpacks a package as it will be on a machine, and answers where its program is.
pub(super) fn unpacked(package: &Path, room: &Path) -> Result<PathBuf> {
    let root = room.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    fs::create_dir_all(&root)?;
    shell::output(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&root), LIMIT)?;
    let mut sums = Command::new("dpkg-deb");
    let sums = shell::output(sums.args(["--info"]).arg(package).arg("md5sums"), LIMIT)?;
    let list = room.join("md5sums");
    fs::write(&list, sums)?;
    let mut check = Command::new("md5sum");
    shell::output(
        check.args(["--check", "--quiet", "--strict"]).arg(&list).current_dir(&root),
        LIMIT,
    )
    .context("the package's own checksums")?;
    Ok(root.join("usr/bin/rtscope"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_a_program_is_known_before_it_is_built() {
        let names = |name: &str, guests| {
            let target = Target::find(name).expect("known");
            needed(&target, guests).iter().map(|package| package.name).collect::<Vec<_>>()
        };
        let own = if cfg!(target_arch = "riscv64") { "x86-64" } else { "riscv64" };
        assert_eq!(names(own, false), ["qemu-user-static"]);
        assert!(names("armhf", true).contains(&"qemu-system-arm"));
        assert!(!names("armhf", false).contains(&"qemu-system-arm"));
    }

    #[test]
    fn a_guest_that_lost_cycles_is_no_success() {
        let document = |cells: &str| {
            serde_json::from_str(&format!("{{\"kernels\":[{{\"cells\":{cells}}}]}}")).expect("JSON")
        };
        let of = |missed: u8| {
            format!("[{{\"all\":{{\"planned\":20,\"recorded\":19,\"missed\":{missed}}}}}]")
        };
        assert_eq!(cells(&document(&of(1))).expect("balanced"), "1 cells, 19 cycles recorded");
        for wrong in ["[]", "null", &of(0), "[{}]"] {
            assert!(cells(&document(wrong)).is_err(), "{wrong}");
        }
    }
}
