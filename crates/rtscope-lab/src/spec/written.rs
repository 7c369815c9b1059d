//! A spec as files that another process reads: its text, and beside it its fragments.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{Base, Patch, Spec, SpecSource, located, located_patch};
use crate::{engine::order::write_once, error::LabError};

/// The keys of a spec as it is typed. Tables come last, as TOML wants it.
#[derive(Serialize)]
struct WrittenSpec<'a> {
    name: &'a str,
    title: &'a str,
    about: &'a str,
    tried: &'a str,
    arch: &'a str,
    cross: Option<&'a str>,
    base: String,
    fragments: Vec<String>,
    image: &'a str,
    modules: bool,
    dtbs: bool,
    source: SpecSource,
    patch: Vec<Patch>,
}

/// Writes a spec of the working folder into a folder as `NAME.toml`, which [`super::find`] reads as the same kernel. What is there already
/// stays. Returns the file.
///
/// # Errors
///
/// A file can't be written.
pub fn write(spec: &Spec, folder: &Path) -> Result<PathBuf, LabError> {
    fs::create_dir_all(folder).map_err(LabError::file("make", folder))?;
    let keep = |name: &str, text: &str| {
        let path = folder.join(name);
        write_once(&path, text.as_bytes()).map_err(LabError::file("write", &path))?;
        Ok::<PathBuf, LabError>(path)
    };
    let mut fragments = Vec::new();
    for (number, fragment) in spec.fragments.iter().enumerate() {
        let name = format!("{}-{number}.config", spec.name);
        keep(&name, &fragment.text)?;
        fragments.push(name);
    }
    // What is relative to this folder is looked for from the written file's.
    let here = env::current_dir().map_err(LabError::file("find", "."))?;
    let patch = spec.patches.iter().map(|patch| located_patch(patch.clone(), &here)).collect();
    let written = WrittenSpec {
        name: &spec.name,
        title: &spec.title,
        about: &spec.about,
        tried: &spec.tried,
        arch: &spec.arch,
        cross: spec.cross.as_deref(),
        base: match &spec.base {
            Base::Target(name) => name.clone(),
            Base::File(path) => here.join(path).display().to_string(),
        },
        fragments,
        image: &spec.image,
        modules: spec.modules,
        dtbs: spec.dtbs,
        source: located(spec.source.clone(), &here),
        patch,
    };
    let text = toml::to_string(&written)
        .map_err(|e| LabError::Refused(format!("the spec {} can't be written: {e}", spec.name)))?;
    keep(&format!("{}.toml", spec.name), &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec;

    #[test]
    fn every_shipped_spec_is_read_back_as_the_same_kernel() {
        let folder = tempfile::tempdir().expect("a folder");
        let here = env::current_dir().expect("a folder");
        for mut shipped in spec::all() {
            let path = write(&shipped, folder.path()).expect("written");
            let read = spec::find(&path.display().to_string()).expect("sound");
            let texts = |spec: &Spec| -> Vec<String> {
                spec.fragments.iter().map(|fragment| fragment.text.clone()).collect()
            };
            assert_eq!(texts(&read), texts(&shipped));
            shipped.source = located(shipped.source, &here);
            let patches = shipped.patches.into_iter();
            shipped.patches = patches.map(|patch| located_patch(patch, &here)).collect();
            let same = Spec { fragments: shipped.fragments.clone(), ..read };
            assert_eq!(same, shipped);
        }
    }
}
