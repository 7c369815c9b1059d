//! The shipped plans, and how a plan is found by name or by file.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use anyhow::Context;
use rtscope_model::{
    plan::{self, Plan},
    text::{is_toml_file, shell_word, suggest},
};

use crate::failure::Refused;

/// A plan that is part of the binary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shipped {
    /// Name on the command line.
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// Declares the table from the files in `plans/`.
macro_rules! shipped {
    ($($name:literal)*) => {
        &[$(Shipped { name: $name, text: include_str!(concat!("../plans/", $name, ".toml")) },)*]
    };
}

/// Every shipped plan, the default first.
pub(crate) const SHIPPED: &[Shipped] = shipped! {
    "quick" "soak" "network" "fieldbus" "goperf" "godd" "stress" "lab" "policies" "vendor-net" "vendor-toggle"
    "vendor-shield" "osadl" "load-matrix"
    "cost" "lab-quick" "lab-matrix" "lab-course"
};

/// The largest plan that is read from a file: a device that never ends is none.
const BYTES_MAX: u64 = 16 << 20;

/// The plan that runs when none is named.
pub(crate) const DEFAULT: &str = "quick";

/// The plan that runs until a claim is decided when none is named.
pub(crate) const DEFAULT_UNTIL: &str = "soak";

/// The plan of `network` when none is named.
pub(crate) const DEFAULT_NETWORK: &str = "network";

/// The plan of `lab run` and `lab bisect` when none is named.
pub(crate) const DEFAULT_LAB: &str = "lab-quick";

/// The plan of `lab matrix` when none is named.
pub(crate) const DEFAULT_MATRIX: &str = "lab-matrix";

/// The text of a shipped plan or a file, and the name that errors call it.
pub(crate) fn text(name: &str) -> anyhow::Result<(String, String)> {
    if let Some(shipped) = SHIPPED.iter().find(|shipped| shipped.name == name) {
        return Ok((format!("plan {name}"), shipped.text.to_owned()));
    }
    if name == "-" {
        let mut text = String::new();
        let read = io::stdin().take(BYTES_MAX + 1).read_to_string(&mut text);
        read.context("can't read a plan from standard input")?;
        return within_bounds("standard input".to_owned(), text);
    }
    if !is_toml_file(name) && !Path::new(name).exists() {
        let nearest = suggest(name, SHIPPED.iter().map(|shipped| shipped.name));
        let hint =
            nearest.map(|nearest| format!(" (did you mean {nearest:?}?)")).unwrap_or_default();
        let text = format!(
            "{name:?} is neither a shipped plan nor a file{hint}; `rtscope plan list` shows the plans"
        );
        return Err(Refused(text).into());
    }
    let mut bytes = Vec::new();
    let read = File::open(name).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("can't read plan {name}"))?;
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // A plan may be a script of rtscope.
    let is_script = first.starts_with(b"#!") && !first.windows(7).any(|word| word == b"rtscope");
    if is_script || bytes.starts_with(b"\x7fELF") {
        let program = if name.contains('/') { name.to_owned() } else { format!("./{name}") };
        let program = shell_word(&program);
        let text = format!(
            "{program} is a program and not a plan: `rtscope check -- {program}` watches the threads of a program"
        );
        return Err(Refused(text).into());
    }
    let text = String::from_utf8(bytes).with_context(|| format!("can't read plan {name}"))?;
    within_bounds(name.to_owned(), text)
}

fn within_bounds(name: String, text: String) -> anyhow::Result<(String, String)> {
    if text.len() as u64 > BYTES_MAX {
        let most = BYTES_MAX >> 20;
        return Err(Refused(format!("{name} is not a plan: it is larger than {most} MiB")).into());
    }
    Ok((name, text))
}

/// Reads and checks a plan: its text, its loads, its settings.
pub(crate) fn load(name: &str) -> anyhow::Result<Plan> {
    let (shown, text) = text(name)?;
    let checks = plan::Checks {
        load: &rtscope_measure::load::check,
        setting: &rtscope_measure::tune::check,
    };
    Ok(plan::parse_checked(&shown, &text, &checks)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_no_plan() {
        for start in [&b"#!/bin/sh\n"[..], b"\x7fELF\x02\xff"] {
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), start).expect("written");
            let error = text(&file.path().display().to_string()).expect_err("refused").to_string();
            assert!(error.contains("rtscope check -- "), "{error}");
        }
    }

    #[test]
    fn every_shipped_plan_is_sound_and_named_as_its_file() {
        for shipped in SHIPPED {
            let plan = load(shipped.name).unwrap_or_else(|e| panic!("{}: {e}", shipped.name));
            assert_eq!(plan.name, shipped.name);
            assert!(
                !plan.title.is_empty() && !plan.about.is_empty(),
                "{} explains itself",
                plan.name
            );
        }
    }

    #[test]
    fn no_title_names_a_length_that_scaling_changes() {
        for shipped in SHIPPED {
            let title = load(shipped.name).expect("a plan").title.to_lowercase();
            for length in ["second", "minute", "hour", " min", "million", "0 cycles"] {
                assert!(!title.contains(length), "{}: {title}", shipped.name);
            }
        }
    }
}
