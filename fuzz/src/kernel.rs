//! What describes a kernel that the lab builds: its source's Kconfig, configurations, specs and machines.

use std::{cell::Cell, collections::BTreeMap, path::Path};

use rtscope_lab::{
    config::{
        difference::{self, Set},
        kconfig, merge,
        verify::lost,
    },
    machine::Machine,
    spec,
};

use super::parts;

/// Files that an input may include: one that includes itself would be read up to the product's own limit each time.
const INCLUDED_MAX: u32 = 8;

/// Reads bytes as files, each under a line `== NAME`: the Kconfig of a source, the configuration that is asked and
/// the one that came of it.
///
/// # Panics
///
/// When a configuration that was written reads back as another one, or makes no sense.
pub fn kconfig(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let files: BTreeMap<&str, &str> = parts(&text).collect();
    let configuration = |name| merge::read(files.get(name).copied().unwrap_or_default());
    let (asked, found) = (configuration("asked"), configuration(".config"));
    let written = merge::write(&found);
    assert_eq!(merge::read(&written), found);
    drop(merge::senseless(&text));
    let included = Cell::new(0);
    let symbols = kconfig::read_files("x86", &|name| {
        included.set(included.get() + 1);
        let text = files.get(name).filter(|_| included.get() <= INCLUDED_MAX)?;
        Some(text.as_bytes().to_vec())
    });
    for lost in lost(&asked, &found) {
        assert!(!kconfig::explain(&symbols, &lost, &found).is_empty());
    }
    let [before, after] = [&asked, &found].map(|options| -> Set {
        options.iter().map(|(name, value)| (name.clone(), value.word().to_owned())).collect()
    });
    let apart = difference::compare(&before, &after);
    assert!(difference::text(&apart, ["a", "b"], true).starts_with("From a to b:"));
}

/// Reads bytes as a kernel's spec and as a machine of the emulator.
///
/// # Panics
///
/// When a reader fails.
pub fn spec(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    drop(Machine::parse("fuzz", &text));
    // A spec names files: none of this machine.
    if ["\"/", "'/", "..", "\\u", "\\U", "\\x"].iter().any(|sign| text.contains(sign)) {
        return;
    }
    match spec::parse("fuzz", &text, Path::new("no-such-folder")) {
        Ok(specs) => specs.iter().for_each(|spec| {
            let _ = (spec.arch_folder(), spec.image_path(), spec.cross_here());
        }),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
