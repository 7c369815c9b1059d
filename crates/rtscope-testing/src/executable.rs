//! Programs that a test makes and starts.
//!
//! The kernel starts no file that somebody has open for writing ("Text file busy"). While a test writes one, another
//! test's thread may fork, and its child has the descriptor too until it runs its own program. So a separate
//! process writes these files, and our process never has a descriptor of them.

use std::{
    ffi::OsStr,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// Writes a script that may be run at once, with the folders above it. What was there before is replaced.
///
/// # Panics
///
/// The file can't be written.
pub fn write(path: &Path, script: &str) {
    install("/dev/stdin".as_ref(), path, script);
}

/// Copies a program, which may be run at once.
///
/// # Panics
///
/// The file can't be copied.
pub fn copy(from: &Path, to: &Path) {
    install(from.as_ref(), to, "");
}

fn install(from: &OsStr, to: &Path, input: &str) {
    let mut install = Command::new("install");
    install.args(["-D", "-T", "-m", "755", "--"]).arg(from).arg(to).stdin(Stdio::piped());
    let mut child = install.spawn().expect("coreutils' install");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).expect("install reads it");
    drop(stdin);
    assert!(child.wait().expect("a child").success(), "install {}", to.display());
}
