//! The lab's plugins of the emulator: `plugin/blocks.c` writes the instructions before late wake-ups, `plugin/stretches.c`
//! where a thread would have to wait.
//!
//! Distributions don't package them, and they must fit the host and the emulator. So their sources are in this program, and
//! the user's C compiler makes each once for each version of the emulator's plugin interface.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    cache::Cache,
    digest::{KEY_DIGITS, sha256},
    error::LabError,
    qemu::Plugin,
    tool::{self, Need},
};

/// A plugin of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginSource {
    /// Writes the instructions before late wake-ups.
    Blocks,
    /// Writes the stretches in which a thread would have to wait.
    Stretches,
}

impl PluginSource {
    /// Its name, which its files have.
    const fn name(self) -> &'static str {
        match self {
            PluginSource::Blocks => "blocks",
            PluginSource::Stretches => "stretches",
        }
    }

    /// Its text.
    const fn text(self) -> &'static str {
        match self {
            PluginSource::Blocks => {
                concat!(include_str!("../plugin/common.h"), include_str!("../plugin/blocks.c"))
            }
            PluginSource::Stretches => {
                concat!(include_str!("../plugin/common.h"), include_str!("../plugin/stretches.c"))
            }
        }
    }
}

/// What it is compiled with. The emulator has the C library, so neither its headers nor its objects are needed.
const FLAGS: [&str; 5] = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-nostdlib"];

/// Versions of the interface that the sources are written for, the newest first: an emulator takes some older ones, too.
const INTERFACES: [u8; 3] = [3, 2, 1];

/// Starts an emulator without a guest, which ends as soon as it has loaded the plugin.
const PROBE: [&str; 8] =
    ["-machine", "none", "-nodefaults", "-display", "none", "-monitor", "none", "-plugin"];

/// Folder of the cache.
const FOLDER: &str = "plugin";

/// The plugin that this emulator loads, from the cache or compiled. The emulator itself is asked, because its version
/// says neither whether it was built with plugins nor which interfaces it takes. `scratch` is a file that it may write.
///
/// # Errors
///
/// [`LabError::NoPlugin`]: it loads none, or none can be compiled, with what to do.
pub fn loadable(
    source: PluginSource,
    cache: &Cache,
    emulator: &str,
    scratch: &Path,
) -> Result<PathBuf, LabError> {
    let mut said = String::new();
    for interface in INTERFACES {
        let file = compiled(source, cache, interface)
            .map_err(|why| LabError::NoPlugin(why.to_string()))?;
        match probe(&file, emulator, scratch) {
            Ok(()) => return Ok(file),
            Err(why) => said = why,
        }
    }
    Err(LabError::NoPlugin(format!("{emulator} can't load rtscope's plugin ({said})")))
}

/// Whether an emulator loads a plugin; if not, the last line of what it said.
fn probe(file: &Path, emulator: &str, scratch: &Path) -> Result<(), String> {
    let (file, out) = (file.to_owned(), scratch.to_owned());
    let plugin = Plugin { file, out, shift: 0, above_ns: 0, more: vec![("probe", "1".to_owned())] };
    let said = match tool::output(Command::new(emulator).args(PROBE).arg(plugin.option())) {
        // What ended for another reason wrote nothing.
        Ok(_) if fs::read(scratch).is_ok_and(|bytes| bytes == b"E") => return Ok(()),
        Ok(said) | Err(LabError::Program { said, .. }) => said,
        Err(other) => return Err(other.to_string()),
    };
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    Err(last.unwrap_or("without a word").trim().to_owned())
}

/// A plugin for a version of the interface, from the cache or put there.
fn compiled(source: PluginSource, cache: &Cache, interface: u8) -> Result<PathBuf, LabError> {
    let (name, text) = (source.name(), source.text());
    let version = &format!("-DINTERFACE={interface}");
    let folder = cache.root().join(FOLDER);
    let key = &sha256(format!("{text}{FLAGS:?}{version}").as_bytes())[..KEY_DIGITS];
    let path = folder.join(format!("{name}-{key}.so"));
    if path.is_file() {
        return Ok(path);
    }
    tool::require(&[Need::of("cc", "gcc")])?;
    fs::create_dir_all(&folder).map_err(LabError::file("make", &folder))?;
    let process = std::process::id();
    let code = folder.join(format!("{name}-{process}.c"));
    let object = folder.join(format!("{name}.part{process}"));
    fs::write(&code, text).map_err(LabError::file("write", &code))?;
    let mut compiler = Command::new("cc");
    compiler.args(FLAGS).arg(version).arg("-o").arg(&object).arg(&code);
    let made = tool::output(&mut compiler);
    let _ = fs::remove_file(&code);
    made?;
    fs::rename(&object, &path).map_err(LabError::file("write", &path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use rtscope_testing::executable;

    use super::*;

    #[test]
    fn it_is_compiled_once_and_the_emulator_finds_its_entry() {
        if tool::find("cc").is_none() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let both = [PluginSource::Blocks, PluginSource::Stretches];
        let all = both.into_iter().flat_map(|source| INTERFACES.map(|version| (source, version)));
        for (source, interface) in all.clone() {
            let path = compiled(source, &cache, interface).expect("compiled");
            let object = fs::read(&path).expect("there");
            let has = |name: &[u8]| object.windows(name.len()).any(|part| part == name);
            assert!(has(b"qemu_plugin_install\0") && has(b"qemu_plugin_version\0"));
            // Counters of each CPU came with version 2.
            assert_eq!(has(b"qemu_plugin_scoreboard_new\0"), interface >= 2);
            let made = fs::metadata(&path).and_then(|it| it.modified()).expect("there");
            assert_eq!(compiled(source, &cache, interface).expect("again"), path);
            assert_eq!(fs::metadata(&path).and_then(|it| it.modified()).expect("there"), made);
        }
        let kept = fs::read_dir(folder.path().join(FOLDER)).expect("a folder").count();
        assert_eq!(kept, all.count());
    }

    #[test]
    fn the_emulator_says_which_plugin_it_loads_and_why_it_loads_none() {
        if tool::find("cc").is_none() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let out = folder.path().join("out,1");
        if tool::find("qemu-system-x86_64").is_some() {
            for source in [PluginSource::Blocks, PluginSource::Stretches] {
                let found = loadable(source, &cache, "qemu-system-x86_64", &out);
                assert!(found.expect("loads one").is_file());
            }
        }
        // As an emulator refuses the option that was built without plugins.
        let without = folder.path().join("qemu");
        let script = "#!/bin/sh\necho >&2 qemu: -plugin: invalid option\nexit 1\n";
        executable::write(&without, script);
        let without = without.display().to_string();
        let none = folder.path().join("none");
        let said = loadable(PluginSource::Blocks, &cache, &without, &none).expect_err("none");
        let shown = said.to_string();
        assert!(matches!(said, LabError::NoPlugin(_)), "{shown}");
        assert!(shown.contains("-plugin: invalid option"), "{shown}");
    }
}
