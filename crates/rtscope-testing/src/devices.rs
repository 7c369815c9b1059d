//! The network devices of this machine.

use std::{collections::BTreeSet, fs};

/// Prefix of the names of devices that a test puts into this machine's own network namespace.
pub const OF_TESTS: &str = "rts-test";

/// The names of the network devices, except those of tests, which come and go with other runs of the tests.
///
/// # Panics
///
/// The kernel doesn't list them.
#[must_use]
pub fn lasting() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/net/dev").expect("devices");
    let names = text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    names.filter(|name| !name.starts_with(OF_TESTS)).collect()
}
