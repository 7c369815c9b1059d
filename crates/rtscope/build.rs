//! Makes the program smaller: packs its relocations, where that works.

use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if can_pack_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// A relocation takes 24 bytes, a packed one a few bits: a quarter of a megabyte in all. A static program
/// relocates itself, with code of the C library of the machine that it is linked on. That of glibc reads packed
/// ones since version 2.36; the program would crash at its start with an older one.
fn can_pack_relocations() -> bool {
    let is_own = env::var("HOST") == env::var("TARGET");
    let target = env::var("TARGET").unwrap_or_default();
    if !is_own || target != "x86_64-unknown-linux-gnu" {
        return false;
    }
    let Ok(told) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else { return false };
    let told = String::from_utf8_lossy(&told.stdout);
    let version = told.trim().strip_prefix("glibc 2.");
    version
        .and_then(|minor| minor.split('.').next()?.parse::<u32>().ok())
        .is_some_and(|minor| minor >= 36)
}
