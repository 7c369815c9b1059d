//! Kernels that Debian has built: the quick start of the lab, nothing is compiled.
//!
//! The package is fetched with the machine's own apt, which checks its signature, and unpacked into the
//! cache; nothing of it is installed. A package that lies in a file is unpacked in the same way.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Serialize;

use crate::{
    cache::{Cache, KeptKernel, Manifest},
    debian::Apt,
    digest::{key_of, sha256_of_file},
    error::LabError,
    links,
    machine::own_arch,
    modules::Modules,
    name,
    progress::{Report, step},
    tool::{self, Need},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prebuilt {
    /// Name on the command line, as `debian-rt` or `debian-rt-arm64`.
    pub name: String,
    /// The package that depends on the newest image.
    meta: String,
    /// Debian's name of the architecture.
    debian_arch: &'static str,
    /// The kernel's own name of the architecture.
    arch: &'static str,
    /// A further suite of the archive.
    suite: Option<&'static str>,
    /// What it is, in a sentence's half.
    title: &'static str,
}

/// What is known of a prebuilt kernel without fetching it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Name on the command line.
    pub name: String,
    /// What it is, one line.
    pub title: String,
    /// The package that depends on the newest image.
    pub package: String,
    /// The kernel's own name of the architecture.
    pub arch: String,
    /// A further suite that the package is from, as `backports`.
    pub suite: Option<String>,
    /// The version that this machine's lists of packages name first; none where they don't hold the package.
    pub newest: Option<String>,
    /// The package of the image that the cache keeps, and its version.
    pub kept: Option<(String, String)>,
    /// `uname -r` of the kept one.
    pub release: Option<String>,
}

/// Debian's and the kernel's names of the architectures, and the flavour of Debian's images.
const ARCHITECTURES: [(&str, &str, &str); 3] =
    [("amd64", "x86_64", "amd64"), ("arm64", "arm64", "arm64"), ("armhf", "arm", "armmp")];

/// Names without an architecture: what they are of Debian's, from which further suite, and what for.
const FLAVOURS: [(&str, &str, Option<&str>, &str); 5] = [
    ("debian-stock", "", None, "Debian's kernel, as most machines with Debian run it"),
    ("debian-rt", "rt-", None, "Debian's real-time kernel (PREEMPT_RT)"),
    (CLOUD, "cloud-", None, "Debian's kernel for virtual machines, with few drivers"),
    (
        "debian-backports",
        "",
        Some("backports"),
        "Debian's kernel from the backports of the release",
    ),
    (
        "debian-backports-rt",
        "rt-",
        Some("backports"),
        "Debian's real-time kernel (PREEMPT_RT) from the backports of the release",
    ),
];

/// The kernel for virtual machines, which Debian doesn't build for armhf.
const CLOUD: &str = "debian-cloud";

/// The names of all prebuilt kernels for this machine's architecture; those for others end in
/// `-amd64`, `-arm64` or `-armhf`.
pub const NAMES: [&str; 5] =
    [FLAVOURS[0].0, FLAVOURS[1].0, FLAVOURS[2].0, FLAVOURS[3].0, FLAVOURS[4].0];

impl Prebuilt {
    /// The prebuilt kernel of a name.
    #[must_use]
    pub fn find(name: &str) -> Option<Prebuilt> {
        let own = ARCHITECTURES.iter().find(|(_, arch, _)| *arch == own_arch());
        let other = ARCHITECTURES.iter().find_map(|architecture| {
            let flavour = name.strip_suffix(architecture.0)?.strip_suffix('-')?;
            Some((architecture, flavour))
        });
        let (architecture, flavour) = match other {
            Some(found) => found,
            None => (own?, name),
        };
        let (_, infix, suite, title) =
            FLAVOURS.into_iter().find(|(known, ..)| *known == flavour)?;
        let (debian_arch, arch, image) = *architecture;
        if flavour == CLOUD && debian_arch == "armhf" {
            return None;
        }
        let meta = format!("linux-image-{infix}{image}");
        Some(Prebuilt { name: name.to_owned(), meta, debian_arch, arch, suite, title })
    }

    /// What is known of it here. Nothing is fetched, so of a further suite and of another architecture only
    /// what the cache keeps is known.
    #[must_use]
    pub fn describe(&self, cache: &Cache) -> Description {
        let is_own = self.suite.is_none() && self.arch == own_arch();
        let versions = || self.versions(&Apt::own(cache).ok()?).ok();
        let kept = cache.find(&self.name).map(|kernel| kernel.manifest);
        let input = |name: &str| kept.as_ref()?.inputs.get(name).cloned();
        Description {
            name: self.name.clone(),
            title: self.title.to_owned(),
            package: self.meta.clone(),
            arch: self.arch.to_owned(),
            suite: self.suite.map(str::to_owned),
            newest: is_own.then(versions).flatten().and_then(|all| all.into_iter().next()),
            kept: input("package").zip(input("version")),
            release: kept.as_ref().map(|manifest| manifest.release.clone()),
        }
    }

    /// The kernel's own name of its architecture.
    #[must_use]
    pub fn arch(&self) -> &'static str {
        self.arch
    }

    /// The kernel from the cache, or fetched into it.
    ///
    /// # Errors
    ///
    /// No configured archive of Debian has it, or the download fails.
    pub fn bring(&self, cache: &Cache, report: &mut Report<'_>) -> Result<KeptKernel, LabError> {
        if let Some(kernel) = cache.find(&self.name) {
            return Ok(kernel);
        }
        tool::require(&fetching())?;
        let apt = self.apt(cache, report)?;
        let downloads = cache.downloads();
        fs::create_dir_all(&downloads).map_err(LabError::file("make", &downloads))?;
        // A version may be in the lists and yet be gone from the archive: then the one before it.
        let versions = self.versions(&apt)?;
        let mut last = LabError::Refused(format!(
            "no configured Debian archive has the package {}: run `apt-get update`",
            self.meta
        ));
        for version in versions {
            match self.fetch(&apt, &version, &downloads, cache, report) {
                Ok(kernel) => return Ok(kernel),
                Err(e) if is_gone(&e) => last = e,
                Err(e) => return Err(e),
            }
        }
        Err(last)
    }

    /// The versions of the package, the newest first; of a further suite, only those of that suite.
    fn versions(&self, apt: &Apt) -> Result<Vec<String>, LabError> {
        let mut versions = apt.versions(&self.meta)?;
        versions.dedup();
        // Debian marks what was built for an older release with `~bpo`.
        versions.retain(|version| version.contains("~bpo") == self.suite.is_some());
        Ok(versions)
    }

    fn fetch(
        &self,
        apt: &Apt,
        version: &str,
        downloads: &Path,
        cache: &Cache,
        report: &mut Report<'_>,
    ) -> Result<KeptKernel, LabError> {
        let meta = apt.download(&self.meta, version, downloads, report)?;
        let field =
            tool::output(Command::new("dpkg-deb").arg("--field").arg(&meta).arg("Depends"))?;
        let (image, exactly) = dependency(&field).ok_or_else(|| {
            LabError::Refused(format!("{} {version} does not depend on a kernel", self.meta))
        })?;
        let package =
            apt.download(&image, exactly.as_deref().unwrap_or(version), downloads, report)?;
        step(report, format!("unpacking {image}"));
        let sha256 = sha256_of_file(&package).map_err(LabError::file("read", &package))?;
        let key = key_of(&[("package", sha256.as_bytes())]);
        let found = Package { name: &self.name, image: &image, version, arch: self.arch, sha256 };
        found.unpack(&package, key, cache)
    }

    /// The modules of a prebuilt kernel, from its package, which is fetched again when it is gone.
    pub fn modules(
        &self,
        kernel: &KeptKernel,
        cache: &Cache,
        report: &mut Report<'_>,
    ) -> Result<Modules, LabError> {
        let input = |name: &str| kernel.manifest.inputs.get(name).cloned().unwrap_or_default();
        let (image, version) = (input("package"), input("version"));
        let package = cache.downloads().join(format!("{image}_{version}.deb"));
        let package = match package.is_file() {
            true => package,
            false => {
                self.apt(cache, report)?.download(&image, &version, &cache.downloads(), report)?
            }
        };
        Modules::open(&package, Some(&kernel.manifest.release), cache, report)
    }

    /// apt as it must be asked for this kernel.
    fn apt(&self, cache: &Cache, report: &mut Report<'_>) -> Result<Apt, LabError> {
        let foreign = (self.arch != own_arch()).then_some(self.debian_arch);
        match (self.suite, foreign) {
            (None, None) => Apt::own(cache),
            (suite, foreign) => Apt::private(cache, suite, foreign, report),
        }
    }
}

/// Whether a version may be gone from its archive. A full disk or an interrupt is no reason to try an older one.
fn is_gone(error: &LabError) -> bool {
    const FULL: [&str; 2] = ["enough free space", "No space left"];
    match error {
        LabError::Program { said, .. } => !FULL.iter().any(|words| said.contains(words)),
        LabError::Refused(_) => true,
        _ => false,
    }
}

/// A kernel from a file with a Debian package, as somebody has it. Its modules are in the file.
///
/// # Errors
///
/// The file is no package, or holds no kernel for a machine of the lab.
pub fn of_file(
    file: &Path,
    cache: &Cache,
    report: &mut Report<'_>,
) -> Result<KeptKernel, LabError> {
    let sha256 = sha256_of_file(file).map_err(LabError::file("read", file))?;
    // Apart from those that were fetched: they are found by another name.
    let key = key_of(&[("package in a file", sha256.as_bytes())]);
    if let Ok(kernel) = KeptKernel::open(&cache.kernel_dir(&key)) {
        return Ok(kernel);
    }
    tool::require(&[Need::of("dpkg-deb", "dpkg"), Need::of("tar", "tar")])?;
    let refused = |why: String| LabError::Refused(format!("{}: {why}", file.display()));
    let [image, version] = [field(file, "Package")?, field(file, "Version")?];
    name::check("its package", &image).map_err(refused)?;
    if let Some((kernel, _)) = dependency(&field(file, "Depends")?) {
        return Err(refused(format!(
            "the package {image} holds no kernel, but depends on the one that does: take {kernel}"
        )));
    }
    let arch = arch_of_file(file)?;
    step(report, format!("unpacking {image} {version}"));
    let found = Package { name: &image, image: &image, version: &version, arch, sha256 };
    found.unpack(file, key, cache).map_err(|e| match e {
        LabError::Program { .. } => refused(format!("the package {image} holds no kernel: {e}")),
        other => other,
    })
}

/// The architecture that a file's Debian package is for, in the kernel's own words.
///
/// # Errors
///
/// The file is no package, or the lab has no machine for it.
pub fn arch_of_file(file: &Path) -> Result<&'static str, LabError> {
    fs::metadata(file).map_err(LabError::file("read", file))?;
    tool::require(&[Need::of("dpkg-deb", "dpkg")])?;
    let asked = field(file, "Architecture")?;
    match ARCHITECTURES.iter().find(|(debian, ..)| *debian == asked) {
        Some((_, arch, _)) => Ok(arch),
        None => Err(LabError::Refused(format!(
            "{}: it is for {asked}, and the lab has no machine for that",
            file.display()
        ))),
    }
}

/// A field of a package's description.
fn field(file: &Path, name: &str) -> Result<String, LabError> {
    let said = tool::output(Command::new("dpkg-deb").arg("--field").arg(file).arg(name));
    said.map(|text| text.trim().to_owned())
        .map_err(|e| LabError::Refused(format!("{}: not a Debian package: {e}", file.display())))
}

/// A Debian package with a kernel.
struct Package<'a> {
    /// What the kernel will be called.
    name: &'a str,
    image: &'a str,
    version: &'a str,
    /// The kernel's own name of the architecture.
    arch: &'static str,
    sha256: String,
}

impl Package<'_> {
    fn unpack(&self, package: &Path, key: String, cache: &Cache) -> Result<KeptKernel, LabError> {
        let prepared = cache.root().join(format!("part-{key}-{}", std::process::id()));
        fs::create_dir_all(&prepared).map_err(LabError::file("make", &prepared))?;
        let unpacked = tool::extract_package(package, &prepared, "./boot")
            .and_then(|()| match self.arch {
                "x86_64" => Ok(()),
                _ => tool::extract_package(package, &prepared, "./usr/lib"),
            })
            .and_then(|()| links::remove(&prepared))
            .and_then(|()| {
                let manifest = self.manifest(key, &prepared)?;
                cache.keep(&prepared, &manifest).map_err(LabError::file("keep", &prepared))
            });
        if unpacked.is_err() {
            let _ = fs::remove_dir_all(&prepared);
        }
        unpacked
    }

    fn manifest(&self, key: String, folder: &Path) -> Result<Manifest, LabError> {
        let (image, version) = (self.image, self.version);
        let boot = folder.join("boot");
        let entries = fs::read_dir(&boot).map_err(LabError::file("list", &boot))?;
        let names: Vec<String> =
            entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
        let of = |prefix: &str| names.iter().find(|name| name.starts_with(prefix));
        let vmlinuz = of("vmlinuz-").ok_or_else(|| {
            LabError::Refused(format!("the package {image} {version} holds no kernel"))
        })?;
        let path = |name: &String| PathBuf::from("boot").join(name);
        let inputs = [("package", image), ("version", version), ("sha256", &self.sha256)];
        let dtbs = PathBuf::from("usr/lib").join(image);
        Ok(Manifest {
            name: self.name.to_owned(),
            key,
            release: vmlinuz.trim_start_matches("vmlinuz-").to_owned(),
            arch: self.arch.to_owned(),
            vmlinuz: path(vmlinuz),
            config: of("config-").map(path),
            system_map: of("System.map-").map(path),
            dtbs: folder.join(&dtbs).is_dir().then_some(dtbs),
            inputs: inputs.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..Manifest::default()
        })
    }
}

/// The kernel image that a package depends on, and its exact version where one is asked.
fn dependency(field: &str) -> Option<(String, Option<String>)> {
    let one = field.split(',').map(str::trim).find(|one| one.starts_with("linux-image-"))?;
    let name = one.split_whitespace().next()?.to_owned();
    let version = one.split_once("(= ").and_then(|(_, rest)| rest.strip_suffix(')'));
    Some((name, version.map(str::to_owned)))
}

/// What it takes to fetch a package of Debian and to unpack it.
pub(crate) fn fetching() -> [Need; 3] {
    [Need::of("apt-get", "apt"), Need::of("dpkg-deb", "dpkg"), Need::of("tar", "tar")]
}

/// Debian's name of an architecture.
pub(crate) fn debian_arch(arch: &str) -> Option<&'static str> {
    ARCHITECTURES.iter().find(|(_, known, _)| *known == arch).map(|(debian, ..)| *debian)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kernel_ref::KernelRef, kernel_under_test::KernelUnderTest};

    #[test]
    fn an_older_version_is_tried_only_when_the_newest_is_gone() {
        let apt = |said: &str| LabError::Program {
            program: "apt-get download linux-image-amd64=6.1.1-1".to_owned(),
            status: "exit status: 100".to_owned(),
            said: said.to_owned(),
        };
        assert!(is_gone(&apt("E: Failed to fetch linux-image.deb  404  Not Found")));
        assert!(!is_gone(&apt("E: You don't have enough free space in /var/cache/apt/archives/.")));
        let path = PathBuf::from("/small");
        let space = LabError::Space { path, free_mib: 9, needed_mib: 200, option: "" };
        assert!(!is_gone(&space));
    }

    #[test]
    fn names_say_flavour_and_architecture() {
        let found = Prebuilt::find("debian-rt-arm64").expect("known");
        assert_eq!((found.meta.as_str(), found.arch), ("linux-image-rt-arm64", "arm64"));
        let found = Prebuilt::find("debian-stock-armhf").expect("known");
        assert_eq!((found.meta.as_str(), found.arch), ("linux-image-armmp", "arm"));
        let found = Prebuilt::find("debian-backports-rt-amd64").expect("known");
        assert_eq!((found.meta.as_str(), found.suite), ("linux-image-rt-amd64", Some("backports")));
        for name in NAMES {
            assert_eq!(Prebuilt::find(name).expect("known").arch, own_arch());
        }
        let found = Prebuilt::find("debian-cloud-arm64").expect("known");
        assert_eq!((found.meta.as_str(), found.arch), ("linux-image-cloud-arm64", "arm64"));
        // Debian builds none for armhf.
        for name in ["debian", "debian-rt-", "debian-rt-s390x", "arm64", "debian-cloud-armhf"] {
            assert_eq!(Prebuilt::find(name), None, "{name}");
        }
    }

    #[test]
    fn what_is_known_of_a_kernel_is_said_without_fetching_it() {
        let room = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(room.path());
        let rt = Prebuilt::find("debian-rt-arm64").expect("known");
        let told = rt.describe(&cache);
        assert_eq!((told.package.as_str(), told.arch.as_str()), ("linux-image-rt-arm64", "arm64"));
        assert!(told.title.contains("PREEMPT_RT"), "{told:?}");
        assert_eq!((&told.kept, &told.release), (&None, &None));
        let prepared = room.path().join("prepared");
        fs::create_dir_all(&prepared).expect("made");
        fs::write(prepared.join("vmlinuz"), "image").expect("written");
        let inputs = [("package", "linux-image-6.1.0-1-rt-arm64"), ("version", "6.1.1-1")];
        let manifest = Manifest {
            name: "debian-rt-arm64".into(),
            key: "0123456789abcdef".into(),
            release: "6.1.0-1-rt-arm64".into(),
            vmlinuz: "vmlinuz".into(),
            inputs: inputs.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..Manifest::default()
        };
        cache.keep(&prepared, &manifest).expect("kept");
        let told = rt.describe(&cache);
        let (package, version) = told.kept.expect("kept");
        assert_eq!([package.as_str(), &version], ["linux-image-6.1.0-1-rt-arm64", "6.1.1-1"]);
        assert_eq!(told.release.as_deref(), Some("6.1.0-1-rt-arm64"));
    }

    #[test]
    fn the_image_behind_a_package_is_found() {
        let plain = "linux-image-6.1.0-56-rt-amd64";
        assert_eq!(dependency(plain), Some((plain.to_owned(), None)));
        let exact = "a (>= 1), linux-image-6.12.9+bpo-amd64 (= 6.12.9-1~bpo12+1)\n".trim();
        let expected =
            ("linux-image-6.12.9+bpo-amd64".to_owned(), Some("6.12.9-1~bpo12+1".to_owned()));
        assert_eq!(dependency(exact), Some(expected));
        assert_eq!(dependency("libc6"), None);
    }

    /// Makes a package of Debian's form; none where this machine has no `dpkg-deb`.
    fn packed(room: &Path, fields: &str, files: &[(&str, &[u8])]) -> Option<PathBuf> {
        let root = room.join("root");
        let _ = fs::remove_dir_all(&root);
        let control =
            format!("Version: 1\nMaintainer: m <m@example.org>\nDescription: d\n{fields}\n");
        for (name, body) in files.iter().chain([&("DEBIAN/control", control.as_bytes())]) {
            let path = root.join(name);
            fs::create_dir_all(path.parent()?).expect("made");
            fs::write(path, body).expect("written");
        }
        let file = room.join("mine.deb");
        tool::find("dpkg-deb")?;
        let mut dpkg = Command::new("dpkg-deb");
        dpkg.args(["-Znone", "--build"]).arg(&root).arg(&file);
        tool::output(&mut dpkg).expect("packed");
        Some(file)
    }

    #[test]
    fn a_package_in_a_file_gives_its_kernel_and_its_modules() {
        let room = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(room.path().join("cache"));
        let Some(file) = packed(
            room.path(),
            "Package: linux-image-6.9-x\nArchitecture: arm64",
            &[
                ("boot/vmlinuz-6.9-x", b"image"),
                ("boot/config-6.9-x", b"CONFIG_VETH=m\n"),
                ("usr/lib/linux-image-6.9-x/board.dtb", b"tree"),
                ("lib/modules/6.9-x/kernel/a.ko", b"a module"),
                ("lib/modules/6.9-x/modules.dep", b"kernel/a.ko:\n"),
            ],
        ) else {
            return;
        };
        let plain = file.display().to_string();
        for asked in [plain.clone(), format!("path={plain}"), format!("rt={plain}:quiet")] {
            let found = KernelUnderTest::find(
                &KernelRef::parse(&asked).expect("sound"),
                &cache,
                &mut |_| {},
            )
            .expect("a kernel");
            assert_eq!(fs::read(&found.file).expect("there"), b"image");
            assert_eq!((found.arch.as_str(), found.release.as_deref()), ("arm64", Some("6.9-x")));
            assert!(found.has_as_module("VETH") && found.dtbs.is_some());
            let modules = found.modules(None, &cache, &mut |_| {}).expect("modules");
            let ordered = modules.ordered(&["a".to_owned()]).expect("there");
            assert_eq!(ordered[0].body, b"a module");
        }
        assert_eq!(cache.kernels().len(), 1);
        let same = cache.find("linux-image-6.9-x").expect("kept by its package's name");
        assert_eq!(same.manifest.inputs["version"], "1");
    }

    #[test]
    fn a_package_without_a_kernel_is_refused_with_the_reason() {
        let room = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(room.path().join("cache"));
        let said = |file: &Path| {
            of_file(file, &cache, &mut |_| {}).expect_err("no kernel of ours").to_string()
        };
        let text = room.path().join("text.deb");
        fs::write(&text, "hello").expect("written");
        for (fields, why) in [
            (
                "Package: linux-image-x\nArchitecture: amd64\nDepends: linux-image-6.9-x (= 1)",
                "take linux-image-6.9-x",
            ),
            ("Package: linux-image-x\nArchitecture: s390x", "no machine for that"),
            ("Package: linux-headers-x\nArchitecture: amd64", "holds no kernel"),
        ] {
            let Some(file) = packed(room.path(), fields, &[("usr/share/x", b"")]) else { return };
            assert!(said(&file).contains(why), "{}", said(&file));
        }
        assert!(said(&text).contains("not a Debian package"), "{}", said(&text));
        assert!(said(&room.path().join("none.deb")).contains("none.deb"));
        assert!(fs::read_dir(cache.root()).is_err() || cache.kernels().is_empty());
    }
}
