//! Services that are known to disturb, stopped and started by systemd.

use std::{io, os::unix::process::CommandExt, process::Command};

use rtscope_sys::{Error, tree::Tree};

pub(super) const ACTIVE: &str = "active";
pub(super) const INACTIVE: &str = "inactive";

/// Units that a machine can do without for a while. Others are nobody's business.
pub(super) const UNITS: [&str; 26] = [
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "auto-cpufreq.service",
    "cpufrequtils.service",
    "cpupower.service",
    "dnf-makecache.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "fwupd-refresh.timer",
    "fwupd.service",
    "irqbalance.service",
    "ksmtuned.service",
    "logrotate.timer",
    "man-db.timer",
    "mcelog.service",
    "mlocate-updatedb.timer",
    "numad.service",
    "ondemand.service",
    "packagekit.service",
    "plocate-updatedb.timer",
    "power-profiles-daemon.service",
    "rasdaemon.service",
    "smartd.service",
    "thermald.service",
    "tlp.service",
    "tuned.service",
];

/// Whether systemd runs, so that it can be asked.
pub(super) fn has_systemd(tree: &Tree) -> bool {
    tree.path("run/systemd/system").is_dir()
}

/// A unit by its name, with or without its ending.
pub(super) fn unit(name: &str) -> Option<&'static str> {
    UNITS.into_iter().find(|unit| *unit == name || unit.strip_suffix(".service") == Some(name))
}

/// `active`, `inactive`, or `not-found` for a unit that isn't installed.
pub(super) fn state(tree: &Tree, unit: &str) -> Result<String, Error> {
    let text = systemctl(tree, &["show", unit, "--property=LoadState,ActiveState"])?;
    let value = |name: &str| {
        let line = |line: &str| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
        text.lines().find_map(line).unwrap_or_default()
    };
    Ok(match (value("LoadState").as_str(), value("ActiveState").as_str()) {
        ("not-found" | "masked", _) => "not-found",
        // On its way to either.
        (_, "active" | "activating" | "reloading") => ACTIVE,
        _ => INACTIVE,
    }
    .to_owned())
}

/// Starts or stops a unit, and waits until that is done.
pub(super) fn make(tree: &Tree, unit: &str, state: &str) -> Result<(), Error> {
    let verb = if state == ACTIVE { "start" } else { "stop" };
    systemctl(tree, &[verb, unit]).map(drop)
}

fn systemctl(tree: &Tree, words: &[&str]) -> Result<String, Error> {
    let program = ["usr/bin/systemctl", "bin/systemctl"].map(|path| tree.path(path));
    let program = program.iter().find(|path| path.exists()).unwrap_or(&program[0]);
    let call = format!("systemctl {}", words.join(" "));
    // Ctrl-C is for us: it must not keep a service from being started again.
    let output = Command::new(program).args(words).process_group(0).output();
    let output = output.map_err(|source| Error::Call { call: call.clone(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    Err(Error::Call { call, source: io::Error::other(said) })
}
