//! The compiler for another machine.
//!
//! When the user's own toolchain has the target's standard library (`rustup target add`), it is used.
//! Else Debian's `rustc-web` and the standard library's source are fetched with the machine's own apt,
//! unpacked into the target folder and nowhere else, and the standard library is built along. The
//! C compiler builds SQLite and links; it is the one of Debian.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use super::target::Target;
use crate::{packages::Package, shell};

/// How long apt or dpkg may take for a step.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// How cargo builds for a target.
#[derive(Clone, Debug, Default)]
pub(super) struct Toolchain {
    pub(super) name: String,
    /// Variables for cargo.
    pub(super) variables: Vec<(String, OsString)>,
    /// Words for cargo.
    pub(super) words: Vec<&'static str>,
}

/// The toolchain for a target; fetched when it isn't there.
pub(super) fn find(target: &Target, profile: &str) -> Result<Toolchain> {
    let mut toolchain = match own_library(target)? {
        true => {
            Toolchain { name: "the toolchain of this machine".to_owned(), ..Default::default() }
        }
        false => debian(target)?,
    };
    if let Some(linker) = linker_to_set(target) {
        if !missing(target).is_empty() {
            let packages = target.compiler.join(" ");
            bail!("{} or its C library is missing: apt-get install {packages}", target.gcc);
        }
        toolchain.variables.push((linker, target.gcc.into()));
        if target.has_short_calls && profile != "release" {
            toolchain.variables.push(linked_by_lld(target)?);
        }
    }
    Ok(toolchain)
}

/// The variable that makes the C compiler link with LLVM's linker, which comes with rustup's toolchains.
///
/// A call of Thumb code reaches 16 MiB; a debug build has more code. GNU's linker (2.40) then leads calls of `memcpy` and
/// `memchr` through stubs, and leaves the mark of Thumb code out of the addresses of the functions that choose their
/// versions. The C library calls these as ARM code before `main`: SIGSEGV or SIGILL.
fn linked_by_lld(target: &Target) -> Result<(String, OsString)> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--print", "target-libdir"]).current_dir(crate::root());
    let library = shell::output(&mut command, LIMIT)?;
    flags_for_lld(target, Path::new(library.trim()))
}

/// `library` is the folder of this machine's own standard library.
fn flags_for_lld(target: &Target, library: &Path) -> Result<(String, OsString)> {
    let folder = library.with_file_name("bin").join("gcc-ld");
    if !folder.join("ld.lld").is_file() {
        bail!(
            "GNU's linker makes a broken program for {} from more than 16 MiB of code, and this machine's \
             Rust has no ld.lld in {}: build with `--profile release`, or with a toolchain of rustup",
            target.name,
            folder.display()
        );
    }
    let upper = target.triple.to_uppercase().replace('-', "_");
    let flags = format!("-Clink-arg=-fuse-ld=lld -Clink-arg=-B{}", folder.display());
    Ok((format!("CARGO_TARGET_{upper}_RUSTFLAGS"), flags.into()))
}

/// The packages that lack for linking programs for a target.
pub(super) fn missing(target: &Target) -> Vec<Package> {
    let [compiler, library] = target.compiler;
    let package = |name, sign| Package { name, sign, reason: "links programs for another machine" };
    let (compiler, library) = (package(compiler, target.gcc), package(library, target.c_library));
    if linker_to_set(target).is_none() {
        return Vec::new();
    }
    match shell::find(target.gcc) {
        // The library comes with the compiler's recommendations only: it is asked for by name.
        None => vec![compiler, library],
        Some(gcc) if !has_c_library(&gcc) => vec![library],
        Some(_) => Vec::new(),
    }
}

/// The variable that tells cargo the linker for a target; none where cargo knows one.
fn linker_to_set(target: &Target) -> Option<String> {
    let upper = target.triple.to_uppercase().replace('-', "_");
    let name = format!("CARGO_TARGET_{upper}_LINKER");
    (!target.is_own() && std::env::var_os(&name).is_none()).then_some(name)
}

/// Whether a C compiler has the static C library: it answers with its path, or with the bare name.
fn has_c_library(gcc: &Path) -> bool {
    let said = shell::output(Command::new(gcc).arg("-print-file-name=libc.a"), LIMIT);
    said.is_ok_and(|said| Path::new(said.trim()).is_absolute())
}

/// Whether the toolchain that runs us has the standard library for a target.
fn own_library(target: &Target) -> Result<bool> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--print", "target-libdir", "--target", target.triple]);
    let folder = shell::output(command.current_dir(crate::root()), LIMIT)?;
    Ok(has_library(Path::new(folder.trim())))
}

fn has_library(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|e| e.file_name()).any(|name| name.to_string_lossy().starts_with("libstd-"))
}

/// Debian's newest `rustc-web`, unpacked.
fn debian(target: &Target) -> Result<Toolchain> {
    let needed = ["apt-get", "apt-cache", "dpkg-deb"];
    let by_rustup = format!("`rustup target add {}`", target.triple);
    if let Some(missing) = needed.iter().find(|program| shell::find(program).is_none()) {
        bail!(
            "Rust's standard library for {} is missing: {by_rustup}; without rustup, Debian's Rust would \
             do, but this machine has no {missing}",
            target.triple
        );
    }
    let apt_cache = |words: &[&str]| shell::output(Command::new("apt-cache").args(words), LIMIT);
    let version = newest(&apt_cache(&["madison", "rustc-web"])?).with_context(|| {
        format!(
            "no archive of Debian that is configured here has rustc-web: run `apt-get update`, or \
             {by_rustup}"
        )
    })?;
    let folder = crate::scratch()?.join(format!("rust-{version}"));
    if !folder.exists() {
        let show = |package: &str| apt_cache(&["show", &format!("{package}={version}")]);
        let compiler = dependency(&show("libstd-rust-web-dev")?, "libstd-rust-web-")
            .context("libstd-rust-web-dev depends on no libstd-rust-web")?;
        let llvm = dependency(&show(&compiler)?, "libllvm")
            .with_context(|| format!("{compiler} depends on no libllvm"))?;
        let of_rust = ["rustc-web", "libstd-rust-web-dev", &compiler, "rust-web-src"];
        let mut packages = of_rust.map(|name| format!("{name}={version}")).to_vec();
        packages.push(llvm);
        println!("fetching Debian's Rust {version}: 140 MB, unpacked 500 MB");
        fetch(&packages, &folder)?;
    }
    // The standard library's place is part of what cargo compares: one name for it.
    let folder = folder.canonicalize()?;
    let rustc = wrapper(&folder)?;
    let said = shell::output(Command::new(&rustc).arg("--version"), LIMIT).with_context(|| {
        "Debian's Rust does not start; the libraries it lacks are those that its libllvm depends on"
    })?;
    Ok(Toolchain {
        name: format!("Debian's {}", said.trim()),
        // Building the standard library is not stable yet; this lets a stable compiler do it.
        variables: vec![
            ("RUSTC".to_owned(), rustc.into()),
            ("RUSTC_BOOTSTRAP".to_owned(), "1".into()),
        ],
        words: vec!["-Zbuild-std=std,panic_abort"],
    })
}

/// The first version in the answer of `apt-cache madison`, which is the newest.
fn newest(madison: &str) -> Option<String> {
    let line = madison.lines().next()?;
    Some(line.split('|').nth(1)?.trim().to_owned())
}

/// The package that another one depends on, by the beginning of its name.
fn dependency(shown: &str, prefix: &str) -> Option<String> {
    let field = shown.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    let names = field.split(',').filter_map(|one| one.split_whitespace().next());
    names.into_iter().find(|name| name.starts_with(prefix)).map(str::to_owned)
}

/// Fetches packages and unpacks them into a folder that is there complete or not at all.
fn fetch(packages: &[String], folder: &Path) -> Result<()> {
    let part = crate::scratch()?.join("rust-part");
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    let (debs, root) = (part.join("debs"), part.join("root"));
    fs::create_dir_all(&debs)?;
    fs::create_dir_all(&root)?;
    let mut apt_get = Command::new("apt-get");
    // Root's apt would give up its rights before it writes into a folder that is ours alone.
    apt_get.args(["--quiet", "-o", "APT::Sandbox::User=root", "download"]).args(packages);
    shell::output(apt_get.current_dir(&debs), LIMIT)?;
    for entry in fs::read_dir(&debs)?.flatten() {
        let mut unpack = Command::new("dpkg-deb");
        shell::output(unpack.arg("--extract").arg(entry.path()).arg(&root), LIMIT)?;
    }
    // Of the source, only the standard library is used.
    for source in fs::read_dir(root.join("usr/src"))?.flatten() {
        for unused in ["compiler", "src"] {
            let _ = fs::remove_dir_all(source.path().join(unused));
        }
    }
    fs::rename(&root, folder)?;
    Ok(fs::remove_dir_all(&part)?)
}

/// A script that starts the unpacked compiler with the libraries that were unpacked with it.
fn wrapper(folder: &Path) -> Result<PathBuf> {
    let (usr, path) = (folder.join("usr"), folder.join("rustc"));
    let libraries = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    let script = format!(
        "#!/bin/sh\nLD_LIBRARY_PATH='{}' exec '{}' \"$@\"\n",
        usr.join(libraries).display(),
        usr.join("bin/rustc").display()
    );
    if fs::read_to_string(&path).ok().as_deref() != Some(&script) {
        fs::write(&path, &script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use rtscope_testing::executable;

    use super::*;

    #[test]
    fn packages_are_found_in_apts_answers() {
        let madison = " rustc-web | 1.96.0-2 | file:/s security/main amd64 Packages\n \
                       rustc-web | 1.85.0-3 | file:/m stable/main amd64 Packages\n";
        assert_eq!(newest(madison).as_deref(), Some("1.96.0-2"));
        assert_eq!(newest(""), None);
        let shown =
            "Package: libstd-rust-web-1.96\nDepends: libc6 (>= 2.34), libllvm22, libstdc++6\n";
        assert_eq!(dependency(shown, "libllvm").as_deref(), Some("libllvm22"));
        assert_eq!(dependency(shown, "libstd-rust-web-"), None);
    }

    #[test]
    fn a_library_counts_when_it_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(!has_library(folder.path()) && !has_library(&folder.path().join("none")));
        fs::write(folder.path().join("libstd-0123.rlib"), "").expect("written");
        assert!(has_library(folder.path()));
    }

    #[test]
    fn a_compiler_without_a_c_library_does_not_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let gcc = |said: &str| {
            let path = folder.path().join("gcc");
            executable::write(&path, &format!("#!/bin/sh\necho {said}\n"));
            has_c_library(&path)
        };
        assert!(gcc("/usr/lib/gcc-cross/x/12/../../../../x/lib/libc.a"));
        assert!(!gcc("libc.a") && !has_c_library(&folder.path().join("none")));
    }

    #[test]
    fn this_machine_builds_for_itself_with_its_own_toolchain() {
        let own = super::super::target::TARGETS.iter().find(|t| t.is_own()).expect("a target");
        assert!(own_library(own).expect("rustc answers"));
        assert!(missing(own).is_empty() && linker_to_set(own).is_none());
    }

    #[test]
    fn a_large_program_for_armhf_is_linked_by_lld() {
        let folder = tempfile::tempdir().expect("a folder");
        let armhf = Target::find("armhf").expect("a target");
        let library = folder.path().join("lib");
        let said = flags_for_lld(&armhf, &library).expect_err("no linker").to_string();
        assert!(said.contains("--profile release") && said.contains("bin/gcc-ld"), "{said}");
        let linkers = folder.path().join("bin/gcc-ld");
        fs::create_dir_all(&linkers).expect("made");
        fs::write(linkers.join("ld.lld"), "").expect("written");
        let (name, flags) = flags_for_lld(&armhf, &library).expect("there");
        assert_eq!(name, "CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_RUSTFLAGS");
        let expected = format!("-Clink-arg=-fuse-ld=lld -Clink-arg=-B{}", linkers.display());
        assert_eq!(flags, OsString::from(expected));
        let short: Vec<_> =
            super::super::target::TARGETS.iter().filter(|t| t.has_short_calls).collect();
        assert_eq!(
            short,
            [&armhf],
            "the others call 128 MiB far or farther, or have no such functions"
        );
    }

    #[test]
    fn the_wrapper_hands_its_words_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().join("usr/bin/rustc");
        executable::write(&real, "#!/bin/sh\necho \"$#|$1|$LD_LIBRARY_PATH\"\n");
        let rustc = wrapper(folder.path()).expect("a script");
        let mode = fs::metadata(&rustc).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        // Read by a shell: a process that another test starts just now may hold the new file open.
        let mut command = Command::new("sh");
        let said = shell::output(command.arg(rustc).args(["a b", "c"]), LIMIT).expect("runs");
        assert!(said.starts_with("2|a b|/") && said.contains("/usr/lib/"), "{said}");
    }
}
