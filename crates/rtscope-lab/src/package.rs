//! Kernels to take elsewhere: Debian packages made by the kernel's own rules, or a tarball of all that an
//! installation needs.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    build::{self, Prepared},
    cache::{Cache, KeptKernel, MANIFEST},
    error::LabError,
    links, name,
    progress::{Report, StepProgress, step},
    spec,
    tool::{self, Need},
};

#[must_use]
pub fn tarball_name(kernel: &KeptKernel) -> String {
    let manifest = &kernel.manifest;
    format!("{}-{}-{}.tar.gz", manifest.name, manifest.release, manifest.arch)
}

/// Packs a kept kernel: image, configuration, symbols, modules, device trees and what is known of it. The
/// same kernel gives the same bytes.
pub fn tarball(
    kernel: &KeptKernel,
    folder: &Path,
    report: &mut Report<'_>,
) -> Result<PathBuf, LabError> {
    tool::require(&[Need::of("tar", "tar"), Need::of("gzip", "gzip")])?;
    fs::create_dir_all(folder).map_err(LabError::file("make", folder))?;
    let path = folder.join(tarball_name(kernel));
    step(report, format!("packing {}", path.display()));
    let part = path.with_extension("part");
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"]);
    tar.args(["--use-compress-program=gzip -n", "-c", "-f"])
        .arg(&part)
        .arg("-C")
        .arg(&kernel.dir)
        .arg(".");
    let packed = tool::output(&mut tar);
    if packed.is_err() {
        let _ = fs::remove_file(&part);
    }
    packed?;
    fs::rename(&part, &path).map_err(LabError::file("rename", &part))?;
    Ok(path)
}

/// A kernel that is there: by name or key in a cache, a folder with a manifest, or a tarball.
pub fn find(name: &str, cache: &Cache) -> Result<KeptKernel, LabError> {
    let path = Path::new(name);
    if path.join(MANIFEST).is_file() {
        let kernel = KeptKernel::open(path).map_err(LabError::file("read", path))?;
        check(&kernel, path)?;
        return Ok(kernel);
    }
    if path.is_file() {
        return unpack(path, cache);
    }
    cache.find(name).ok_or_else(|| {
        let names: Vec<String> = cache.kernels().into_iter().map(|k| k.manifest.name).collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let way = match spec::find(name) {
            Ok(_) => format!("`rtscope kernel build {name}` builds it"),
            Err(_) => "`rtscope kernel list` lists those that rtscope can build".to_owned(),
        };
        LabError::Refused(format!(
            "the kernel {name:?} is not built (built: {there}): {way}; you can also name its tarball or folder"
        ))
    })
}

/// Unpacks such a tarball into a cache, where it is a kept kernel then.
pub fn unpack(tarball: &Path, cache: &Cache) -> Result<KeptKernel, LabError> {
    tool::require(&[Need::of("tar", "tar"), Need::of("gzip", "gzip")])?;
    let mut head = [0; 2];
    let mut file = fs::File::open(tarball).map_err(LabError::file("read", tarball))?;
    if file.read_exact(&mut head).is_err() || head != [0x1f, 0x8b] {
        return Err(none(tarball, "not a tarball"));
    }
    let part = cache.kernel_dir(&format!("unpacking-{}", std::process::id()));
    fs::create_dir_all(&part).map_err(LabError::file("make", &part))?;
    let mut tar = Command::new("tar");
    tar.args(["-x", "--no-same-owner", "-f"]).arg(tarball).arg("-C").arg(&part);
    let kernel = tool::output(&mut tar).and_then(|_| links::remove(&part)).and_then(|()| {
        let kernel = KeptKernel::open(&part)
            .map_err(|_| none(tarball, &format!("a tarball without a {MANIFEST} in it")))?;
        check(&kernel, tarball)?;
        cache.keep(&part, &kernel.manifest).map_err(LabError::file("keep", &part))
    });
    let _ = fs::remove_dir_all(&part);
    kernel
}

/// Refuses a kernel of somebody else that isn't whole, or whose manifest names files outside of its folder.
fn check(kernel: &KeptKernel, named: &Path) -> Result<(), LabError> {
    let manifest = &kernel.manifest;
    let refused = |why: String| LabError::Refused(format!("{}: {why}", named.display()));
    name::check("its kernel's name", &manifest.name).map_err(refused)?;
    let words = [("release", &manifest.release), ("arch", &manifest.arch)];
    if let Some((what, word)) = words.iter().find(|(_, word)| word.contains('/')) {
        return Err(refused(format!(
            "the {what} {word:?} in its {MANIFEST} has a slash in it: build or download the kernel again"
        )));
    }
    let others = [&manifest.config, &manifest.system_map, &manifest.modules, &manifest.dtbs];
    let is_inside = |path: &PathBuf| {
        let found = fs::symlink_metadata(kernel.dir.join(path));
        links::stays_below(path) && !found.is_ok_and(|found| found.is_symlink())
    };
    let mut paths = others.into_iter().flatten().chain([&manifest.vmlinuz]);
    if let Some(path) = paths.find(|path| !is_inside(path)) {
        return Err(refused(format!(
            "its {MANIFEST} names {}, which is a symbolic link or outside the kernel's folder: build or download the kernel again",
            path.display()
        )));
    }
    let key = &manifest.key;
    let is_key = key.len() >= 8 && key.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_key || !kernel.vmlinuz().is_file() {
        let message = format!(
            "{} is damaged: its image or its key is missing; build or download it again",
            named.display()
        );
        return Err(LabError::Refused(message));
    }
    Ok(())
}

fn none(path: &Path, what: &str) -> LabError {
    LabError::Refused(format!(
        "{} is {what}: name a kernel that is built, a tarball of `rtscope kernel package`, or a folder with a \
         {MANIFEST}",
        path.display()
    ))
}

/// Makes Debian packages of a built kernel with the kernel's own rules: image with modules, headers, C
/// library headers. The objects are used, and the packaged kernel has the key of the built one.
///
/// # Errors
///
/// A tool is missing, or the kernel's rules fail.
pub fn debian(
    prepared: &Prepared,
    kernel: &KeptKernel,
    cache: &Cache,
    folder: &Path,
    jobs: u32,
    report: &mut Report<'_>,
) -> Result<Vec<PathBuf>, LabError> {
    tool::require(&build::package_needs())?;
    fs::create_dir_all(folder).map_err(LabError::file("make", folder))?;
    let objects = &prepared.target.objects;
    let around = objects.parent().unwrap_or(objects);
    // The rules write beside the objects of every kernel.
    let _lock = cache.lock("packages", report)?;
    for left in files(around) {
        fs::remove_file(&left).map_err(LabError::file("remove", &left))?;
    }
    step(report, "making Debian packages");
    let mut make = prepared.target.make(&prepared.tree);
    build::mark(&mut make, &kernel.manifest.key, &prepared.tree.path);
    // The rules count their calls, and write the count into the kernel.
    make.env("KDEB_PKGVERSION", format!("{}-1", prepared.tree.version));
    // The rules ask for packages that only a full build needs; what is really missing is checked above.
    make.arg(format!("-j{}", jobs.max(1))).args(["bindeb-pkg", "DPKG_FLAGS=-d"]);
    let mut last = Vec::new();
    let mut lines = 0;
    let status = tool::each_line(&mut make, |line| {
        lines += 1;
        report(StepProgress::Amount {
            unit: "lines of its log",
            done: lines,
            total: None,
            seconds_left: None,
            at: line.trim().to_owned(),
        });
        if last.len() == 20 {
            last.remove(0);
        }
        last.push(line.to_owned());
    })?;
    if !status.success() {
        let (program, status) = ("make bindeb-pkg".to_owned(), status.to_string());
        return Err(LabError::Program { program, status, said: last.join("\n") });
    }
    let mut moved = Vec::new();
    for path in files(around) {
        if path.extension().is_some_and(|ending| ending == "deb") {
            let to = folder.join(path.file_name().unwrap_or_default());
            fs::copy(&path, &to).map_err(LabError::file("copy", &path))?;
            moved.push(to);
        }
        let _ = fs::remove_file(&path);
    }
    Ok(moved)
}

/// What the rules leave beside the objects: the packages, and lists of them for archives.
const OF_RULES: [&str; 3] = ["deb", "buildinfo", "changes"];

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    let is_one = |path: &PathBuf| {
        path.extension().is_some_and(|ending| OF_RULES.iter().any(|one| ending == *one))
    };
    paths.retain(is_one);
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Manifest;

    fn kernel(cache: &Cache) -> KeptKernel {
        let dir = cache.root().join("prepared");
        fs::create_dir_all(dir.join("modules/6.12.0/kernel")).expect("made");
        fs::write(dir.join("vmlinuz"), "image").expect("written");
        fs::write(dir.join("modules/6.12.0/kernel/a.ko"), "module").expect("written");
        let manifest = Manifest {
            name: "small".into(),
            key: "0123456789abcdef".into(),
            release: "6.12.0".into(),
            arch: "arm64".into(),
            vmlinuz: "vmlinuz".into(),
            modules: Some("modules/6.12.0".into()),
            ..Manifest::default()
        };
        cache.keep(&dir, &manifest).expect("kept")
    }

    #[test]
    fn a_tarball_is_unpacked_on_another_machine() {
        let folder = tempfile::tempdir().expect("a folder");
        let here = Cache::at(folder.path().join("here"));
        let kernel = kernel(&here);
        let out = folder.path().join("out");
        let path = tarball(&kernel, &out, &mut |_| {}).expect("packed");
        assert_eq!(path.file_name().expect("a name"), "small-6.12.0-arm64.tar.gz");
        let first = fs::read(&path).expect("a file");
        tarball(&kernel, &out, &mut |_| {}).expect("packed again");
        assert_eq!(fs::read(&path).expect("a file"), first, "the same kernel gives the same bytes");
        let there = Cache::at(folder.path().join("there"));
        let unpacked = unpack(&path, &there).expect("unpacked");
        assert_eq!(unpacked.manifest, kernel.manifest);
        let module = unpacked.modules().expect("modules").join("kernel/a.ko");
        assert_eq!(fs::read_to_string(module).expect("a file"), "module");
        unpack(&path, &there).expect("a second time");
        assert_eq!(there.kernels().len(), 1);
        let bytes = fs::read(&path).expect("a file");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("damaged");
        assert!(unpack(&path, &there).is_err());
        for other in ["", "root:x:0:0\n"] {
            fs::write(&path, other).expect("written");
            let said = unpack(&path, &there).expect_err("no kernel").to_string();
            assert!(said.contains("is not a tarball: name a kernel"), "{said}");
        }
        let named = Manifest { name: "../small".into(), ..kernel.manifest.clone() };
        let text = serde_json::to_string(&named).expect("JSON");
        fs::write(kernel.dir.join(MANIFEST), text).expect("written");
        let packed = tarball(
            &KeptKernel::open(&kernel.dir)
                .map(|it| KeptKernel { manifest: kernel.manifest.clone(), ..it })
                .expect("there"),
            &out,
            &mut |_| {},
        );
        let said = unpack(&packed.expect("packed"), &there).expect_err("its name").to_string();
        assert!(said.contains("its kernel's name \"../small\" has a slash in it"), "{said}");
        let left = fs::read_dir(there.root().join("kernels")).expect("read").count();
        assert_eq!(left, 1, "nothing half-unpacked stays");
        // A folder is looked at as a tarball is.
        let of_folder = |manifest: Manifest| {
            let text = serde_json::to_string(&manifest).expect("JSON");
            fs::write(kernel.dir.join(MANIFEST), text).expect("written");
            find(&kernel.dir.display().to_string(), &there).map_err(|e| e.to_string())
        };
        let good = &kernel.manifest;
        of_folder(good.clone()).expect("a kernel");
        std::os::unix::fs::symlink("/etc/passwd", kernel.dir.join("config")).expect("made");
        for (wrong, why) in [
            (named, "its kernel's name"),
            (Manifest { release: "../../6.12".into(), ..good.clone() }, "has a slash in it"),
            (Manifest { key: "caf\u{e9}caf\u{e9}".into(), ..good.clone() }, "key is missing"),
            (
                Manifest { vmlinuz: "/etc/passwd".into(), ..good.clone() },
                "outside the kernel's folder",
            ),
            (
                Manifest { modules: Some("../x".into()), ..good.clone() },
                "outside the kernel's folder",
            ),
            (
                Manifest { config: Some("config".into()), ..good.clone() },
                "outside the kernel's folder",
            ),
        ] {
            let said = of_folder(wrong).expect_err(why);
            assert!(said.contains(why), "{said}");
        }
    }
}
