//! Tests that can't run on this machine say so and return. libtest counts them as passed; `cargo xtask test`
//! reads the list that they write, counts them as skipped, and fails on a skip that nobody expects.

use std::{env, fs, io::Write, path::PathBuf};

/// The environment variable that names the file of skips.
const VARIABLE: &str = "RTSCOPE_SKIPS";

/// Says that a test is skipped, and why.
///
/// # Panics
///
/// The list of skips can't be written.
pub fn skip(test: &str, reason: &str) {
    println!("SKIP {test}: {reason}");
    if let Some(path) = env::var_os(VARIABLE) {
        let file = fs::OpenOptions::new().append(true).create(true).open(path);
        writeln!(file.expect("the list of skips"), "{test}: {reason}").expect("the list of skips");
    }
}

/// Says that the test that calls it is skipped, and why: libtest names the thread of a test after it.
///
/// # Panics
///
/// The list of skips can't be written.
pub fn skip_this(reason: &str) {
    let thread = std::thread::current();
    let path = thread.name().unwrap_or("a test without a name");
    skip(path.rsplit("::").next().unwrap_or(path), reason);
}

/// Whether the test runs as root; says that it is skipped when it doesn't.
#[must_use]
pub fn root_or_skip(test: &str) -> bool {
    let is_root = rtscope_sys::process::is_root();
    if !is_root {
        skip(test, "needs root");
    }
    is_root
}

/// A program's file in PATH, if it is there.
#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
