//! Makes the program smaller: packs its font and, where that works, its relocations.

use std::{env, fs, io::Write, path::Path, process::Command};

use flate2::{Compression, write::ZlibEncoder};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    pack_font();
    if can_pack_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The font that pictures are drawn with: unpacked it is a third of all that the program embeds.
fn pack_font() {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::best());
    packer.write_all(epaint_default_fonts::UBUNTU_LIGHT).expect("written to memory");
    let folder = env::var_os("OUT_DIR").expect("cargo names a folder");
    let packed = packer.finish().expect("written to memory");
    fs::write(Path::new(&folder).join("font.zlib"), packed).expect("the folder can be written to");
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
