//! The kernel's configuration: made from a base and fragments, and checked against what was asked.

pub mod difference;
mod expression;
pub mod kconfig;
pub mod merge;
mod topics;
pub mod verify;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Serialize;

use crate::{
    build_target::{Target, configuration_needs},
    error::LabError,
    progress::{Report, StepProgress, step},
    source::SourceTree,
    spec::{Base, Spec},
    tool::{self, Need},
};

/// A configuration that was made.
#[derive(Clone, Debug, Serialize)]
pub struct Configured {
    pub path: PathBuf,
    /// Options that are `y` or `m`.
    pub options: u64,
    /// Asked options that were lost, each with the reason.
    pub lost: Vec<String>,
}

/// Makes `.config` in the target's folder of objects: base, fragments, `olddefconfig`; and verifies
/// every asked option. With `menuconfig` the kernel's own menu is shown before that.
///
/// # Errors
///
/// A tool is missing, or the kernel's tools fail. Lost options are no error here: they are in what is
/// returned.
pub fn configure(
    spec: &Spec,
    tree: &SourceTree,
    target: &Target,
    menuconfig: bool,
    report: &mut Report<'_>,
) -> Result<Configured, LabError> {
    let mut needs = configuration_needs();
    needs.extend(target.compiler());
    if menuconfig {
        needs.push(Need::of("ncurses.h", "libncurses-dev"));
    }
    tool::require(&needs)?;
    fs::create_dir_all(&target.objects).map_err(LabError::file("make", &target.objects))?;
    let path = target.objects.join(".config");
    match &spec.base {
        Base::Target(name) => {
            step(report, format!("configuring {}: {name}", spec.name));
            check_target(tree, spec, name)?;
            tool::output(target.make(tree).arg(name))?;
        }
        Base::File(file) => {
            step(report, format!("configuring {}: {}", spec.name, file.display()));
            fs::copy(file, &path).map_err(LabError::file("copy", file))?;
        }
    }
    let base = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
    let texts: Vec<(&str, &str)> =
        spec.fragments.iter().map(|f| (f.name.as_str(), f.text.as_str())).collect();
    for one in merge::asked(&texts).1 {
        report(StepProgress::Warning(format!(
            "CONFIG_{}={} of {} overrides {} of {}",
            one.name,
            one.later.1.word(),
            one.later.0,
            one.earlier.1.word(),
            one.earlier.0
        )));
    }
    let text = merge::merged(&merge::read(&base), &texts);
    fs::write(&path, text).map_err(LabError::file("write", &path))?;
    tool::output(target.make(tree).arg("olddefconfig"))?;
    if menuconfig {
        hand_over(target.make(tree).arg("menuconfig"))?;
    }
    verify(spec, tree, &path)
}

/// Verifies a `.config` against what a spec asks.
pub fn verify(spec: &Spec, tree: &SourceTree, path: &Path) -> Result<Configured, LabError> {
    let text = fs::read_to_string(path).map_err(LabError::file("read", path))?;
    let found = merge::read(&text);
    let texts: Vec<(&str, &str)> =
        spec.fragments.iter().map(|f| (f.name.as_str(), f.text.as_str())).collect();
    let lost = verify::lost(&merge::asked(&texts).0, &found);
    let lost = if lost.is_empty() {
        Vec::new()
    } else {
        let symbols = kconfig::read_tree(&tree.path, spec.arch_folder());
        lost.iter().map(|lost| kconfig::explain(&symbols, lost, &found)).collect()
    };
    let options = found.values().filter(|value| ["y", "m"].contains(&value.word())).count() as u64;
    Ok(Configured { path: path.to_owned(), options, lost })
}

/// A default configuration that the source doesn't have is told before make says "no rule".
fn check_target(tree: &SourceTree, spec: &Spec, name: &str) -> Result<(), LabError> {
    let folder = tree.path.join("arch").join(spec.arch_folder()).join("configs");
    if !name.ends_with("_defconfig") || folder.join(name).is_file() {
        return Ok(());
    }
    let names = fs::read_dir(&folder).into_iter().flatten().flatten();
    let names: Vec<String> =
        names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let nearest = rtscope_model::text::suggest(name, names.iter().map(String::as_str));
    let hint = nearest.map(|word| format!(" (did you mean {word:?}?)")).unwrap_or_default();
    Err(LabError::Refused(format!(
        "the source has no {name} for {}{hint}; is it the board's own kernel tree?",
        spec.arch
    )))
}

/// Runs a program in this terminal.
fn hand_over(command: &mut Command) -> Result<(), LabError> {
    let program = command.get_program().to_owned();
    let status = tool::in_terminal(command).map_err(LabError::file("run", program))?;
    if status.success() {
        return Ok(());
    }
    Err(LabError::Program {
        program: "make menuconfig".to_owned(),
        status: status.to_string(),
        said: String::new(),
    })
}
