//! Skeletons of real-time applications: the files in `skeletons/`, with the application's name put in.

use std::{fs, io, path::Path};

/// Stands in the files where the application's name goes: a name that every language takes, so that the
/// files can be compiled as they are.
const PLACEHOLDER: &str = "skeleton_name";

/// The end of every README.
const COMMON: &str = include_str!("../skeletons/README.common.md");

/// A language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Language {
    /// C11
    C,
    /// C++17, with classes for real-time and ordinary threads
    Cpp,
    /// Ada 2012, with GNAT
    Ada,
    /// Rust
    Rust,
    /// Python 3, without libraries
    Python,
}

/// A file: its path in the folder, and its text.
type File = (&'static str, &'static str);

/// The files of a language's folder.
macro_rules! files {
    ($folder:literal: $($path:literal)*) => {
        &[$(($path, include_str!(concat!("../skeletons/", $folder, "/", $path))),)*]
    };
}

impl Language {
    const fn files(self) -> &'static [File] {
        match self {
            Language::C => files!("c": "Makefile" "README.md" "main.c"),
            Language::Cpp => files!("cpp":
                "Makefile" "README.md" "latency.cpp" "latency.hpp" "main.cpp" "options.cpp"
                "options.hpp" "thread.cpp" "thread.hpp"),
            Language::Ada => files!("ada":
                "Makefile" "README.md" "ending.adb" "ending.ads" "latencies.adb" "latencies.ads"
                "linux.adb" "linux.ads" "main.adb" "options.adb" "options.ads" "periodic.adb"
                "periodic.ads"),
            Language::Rust => files!("rust":
                "Cargo.toml.in" "README.md" "src/latency.rs" "src/main.rs" "src/options.rs"
                "src/system.rs"),
            Language::Python => files!("python": "README.md" "main.py"),
        }
    }

    /// The command that builds it, and the one that runs it.
    pub(crate) fn commands(self, name: &str) -> (Option<&'static str>, String) {
        match self {
            Language::C | Language::Cpp | Language::Ada => (Some("make"), format!("./{name}")),
            Language::Rust => (Some("cargo build --release"), format!("target/release/{name}")),
            Language::Python => (None, "python3 main.py".to_owned()),
        }
    }
}

/// Why a name can't be an application's; none when it can.
pub(crate) fn problem_of(name: &str) -> Option<&'static str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    // What cargo has a use of its own for.
    const TAKEN: [&str; 3] = ["test", "main", "build"];
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        Some("the name must start with a letter")
    } else if !name.chars().all(is_word) {
        Some("the name may contain only letters, digits, - and _, and must not be a path")
    } else if name.len() > 64 {
        Some("the name may have at most 64 characters")
    } else if TAKEN.contains(&name) {
        Some("a build tool reserves this name: choose another")
    } else {
        None
    }
}

/// Writes a skeleton into a new folder; the paths that were written.
///
/// # Errors
///
/// When the folder is there already, or can't be written.
pub(crate) fn write(
    language: Language,
    name: &str,
    folder: &Path,
) -> io::Result<Vec<&'static str>> {
    fs::create_dir(folder)?;
    for (path, text) in language.files() {
        let file = folder.join(written_as(path));
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        let end = if *path == "README.md" { COMMON } else { "" };
        fs::write(file, [text, end].concat().replace(PLACEHOLDER, name))?;
    }
    Ok(language.files().iter().map(|(path, _)| written_as(path)).collect())
}

/// A file's path in the new folder. Cargo would leave a folder with a `Cargo.toml` out of this crate's package.
fn written_as(path: &'static str) -> &'static str {
    path.strip_suffix(".in").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_file_of_the_folders_is_written_and_named() {
        for language in Language::value_variants() {
            let folder = tempfile::tempdir().expect("a folder");
            let new = folder.path().join("motor-2");
            let mut written = write(*language, "motor-2", &new).expect("written");
            written.sort_unstable();
            let word = language.to_possible_value().expect("a word").get_name().to_owned();
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("skeletons").join(word);
            let there = files_below(&source);
            let there = there.iter().map(|path| path.trim_end_matches(".in"));
            assert!(there.eq(written.iter().copied()), "every file is in the table");
            for path in written {
                let text = fs::read_to_string(new.join(path)).expect("a text");
                assert!(!text.contains(PLACEHOLDER), "{path}");
            }
            let readme = fs::read_to_string(new.join("README.md")).expect("a text");
            assert!(readme.starts_with("# motor-2\n") && readme.contains("--histogram FILE"));
            assert!(write(*language, "motor-2", &new).is_err(), "a folder is never written over");
        }
    }

    fn files_below(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let name = entry.file_name().into_string().expect("a name");
            match entry.path().is_dir() {
                true => found
                    .extend(files_below(&entry.path()).iter().map(|path| format!("{name}/{path}"))),
                false => found.push(name),
            }
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn a_name_is_a_word() {
        for name in ["motor", "motor-2", "Motor_2"] {
            assert_eq!(problem_of(name), None, "{name}");
        }
        let long = "m".repeat(65);
        for name in ["", "2motor", "-x", "a/b", "..", "a b", "a\"b", "mötor", "test", &long] {
            assert!(problem_of(name).is_some(), "{name}");
        }
    }
}
