//! The lab's plugin of the emulator, which writes the instructions before late wake-ups: `plugin/blocks.c`.
//!
//! Distributions don't package it, and it must fit the host. So its source is in this program, and the user's C
//! compiler makes it once.

use std::{fs, path::PathBuf, process::Command};

use crate::{
    cache::Cache,
    digest::{KEY_DIGITS, sha256},
    error::LabError,
    tool::{self, Need},
};

/// The source.
const SOURCE: &str = include_str!("../plugin/blocks.c");

/// What it is compiled with. The emulator has the C library, so neither its headers nor its objects are needed.
const FLAGS: [&str; 5] = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-nostdlib"];

/// Folder of the cache.
const FOLDER: &str = "plugin";

/// The compiled plugin, from the cache or put there.
///
/// # Errors
///
/// There is no C compiler, with the command that gets one; or it fails.
pub fn compiled(cache: &Cache) -> Result<PathBuf, LabError> {
    let folder = cache.root().join(FOLDER);
    let key = &sha256(format!("{SOURCE}{FLAGS:?}").as_bytes())[..KEY_DIGITS];
    let path = folder.join(format!("blocks-{key}.so"));
    if path.is_file() {
        return Ok(path);
    }
    tool::require(&[Need::of("cc", "gcc")])?;
    fs::create_dir_all(&folder).map_err(LabError::file("make", &folder))?;
    let part = |kind: &str| folder.join(format!("blocks-{}.{kind}", std::process::id()));
    let (source, object) = (part("c"), part("part"));
    fs::write(&source, SOURCE).map_err(LabError::file("write", &source))?;
    let made = tool::output(Command::new("cc").args(FLAGS).arg("-o").arg(&object).arg(&source));
    let _ = fs::remove_file(&source);
    made?;
    fs::rename(&object, &path).map_err(LabError::file("write", &path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_compiled_once_and_the_emulator_finds_its_entry() {
        if tool::find("cc").is_none() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let path = compiled(&cache).expect("compiled");
        let object = fs::read(&path).expect("there");
        let has = |name: &[u8]| object.windows(name.len()).any(|part| part == name);
        assert!(has(b"qemu_plugin_install\0") && has(b"qemu_plugin_version\0"));
        let made = fs::metadata(&path).and_then(|it| it.modified()).expect("there");
        assert_eq!(compiled(&cache).expect("again"), path);
        assert_eq!(fs::metadata(&path).and_then(|it| it.modified()).expect("there"), made);
        assert_eq!(fs::read_dir(folder.path().join(FOLDER)).expect("a folder").count(), 1);
    }
}
