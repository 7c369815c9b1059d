//! Kernels that Debian has built: the quick start of the lab, nothing is compiled.
//!
//! The package is fetched with the machine's own apt, which checks its signature, and unpacked into the
//! cache; nothing of it is installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    cache::{Cache, Kernel, Manifest, key_of, sha256_of_file},
    error::LabError,
    machine::own_arch,
    modules::Modules,
    progress::{Report, step},
    source::debian::Apt,
    tool::{self, Need},
};

/// A prebuilt kernel.
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
}

/// Debian's and the kernel's names of the architectures, and the flavour of Debian's images.
const ARCHITECTURES: [(&str, &str, &str); 3] =
    [("amd64", "x86_64", "amd64"), ("arm64", "arm64", "arm64"), ("armhf", "arm", "armmp")];

/// Names without an architecture: what they are of Debian's, and from which further suite.
const FLAVOURS: [(&str, &str, Option<&str>); 4] = [
    ("debian-stock", "", None),
    ("debian-rt", "rt-", None),
    ("debian-backports", "", Some("backports")),
    ("debian-backports-rt", "rt-", Some("backports")),
];

/// The names of all prebuilt kernels for this machine's architecture; those for others end in
/// `-amd64`, `-arm64` or `-armhf`.
pub const NAMES: [&str; 4] = [FLAVOURS[0].0, FLAVOURS[1].0, FLAVOURS[2].0, FLAVOURS[3].0];

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
        let (_, infix, suite) = FLAVOURS.into_iter().find(|(known, ..)| *known == flavour)?;
        let (debian_arch, arch, image) = *architecture;
        let meta = format!("linux-image-{infix}{image}");
        Some(Prebuilt { name: name.to_owned(), meta, debian_arch, arch, suite })
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
    pub fn bring(&self, cache: &Cache, report: &mut Report<'_>) -> Result<Kernel, LabError> {
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
            "no configured archive of Debian has the package {}: run `apt-get update`",
            self.meta
        ));
        for version in versions {
            match self.fetch(&apt, &version, &downloads, cache, report) {
                Ok(kernel) => return Ok(kernel),
                Err(e) => last = e,
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
    ) -> Result<Kernel, LabError> {
        let meta = apt.download(&self.meta, version, downloads, report)?;
        let field =
            tool::output(Command::new("dpkg-deb").arg("--field").arg(&meta).arg("Depends"))?;
        let (image, exactly) = dependency(&field).ok_or_else(|| {
            LabError::Refused(format!("{} {version} depends on no kernel", self.meta))
        })?;
        let package =
            apt.download(&image, exactly.as_deref().unwrap_or(version), downloads, report)?;
        step(report, format!("unpacking {image}"));
        self.unpack(&image, version, &package, cache)
    }

    /// The modules of a prebuilt kernel, from its package, which is fetched again when it is gone.
    ///
    /// # Errors
    ///
    /// As [`Prebuilt::bring`].
    pub fn modules(
        &self,
        kernel: &Kernel,
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

    fn unpack(
        &self,
        image: &str,
        version: &str,
        package: &Path,
        cache: &Cache,
    ) -> Result<Kernel, LabError> {
        let sha256 = sha256_of_file(package).map_err(LabError::file("read", package))?;
        let key = key_of(&[("package", sha256.as_bytes())]);
        let prepared = cache.root().join(format!("part-{key}-{}", std::process::id()));
        fs::create_dir_all(&prepared).map_err(LabError::file("make", &prepared))?;
        let unpacked = extract(package, &prepared, "./boot")
            .and_then(|()| match self.arch {
                "x86_64" => Ok(()),
                _ => extract(package, &prepared, "./usr/lib"),
            })
            .and_then(|()| {
                let manifest = self.manifest(image, version, &sha256, &key, &prepared)?;
                cache.keep(&prepared, &manifest).map_err(LabError::file("keep", &prepared))
            });
        if unpacked.is_err() {
            let _ = fs::remove_dir_all(&prepared);
        }
        unpacked
    }

    fn manifest(
        &self,
        image: &str,
        version: &str,
        sha256: &str,
        key: &str,
        folder: &Path,
    ) -> Result<Manifest, LabError> {
        let boot = folder.join("boot");
        let entries = fs::read_dir(&boot).map_err(LabError::file("list", &boot))?;
        let names: Vec<String> =
            entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
        let of = |prefix: &str| names.iter().find(|name| name.starts_with(prefix));
        let vmlinuz = of("vmlinuz-").ok_or_else(|| {
            LabError::Refused(format!("the package {image} {version} holds no kernel"))
        })?;
        let path = |name: &String| PathBuf::from("boot").join(name);
        let inputs = [("package", image), ("version", version), ("sha256", sha256)];
        let dtbs = PathBuf::from("usr/lib").join(image);
        Ok(Manifest {
            name: self.name.clone(),
            key: key.to_owned(),
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

/// Unpacks what lies below a path of a package.
pub(crate) fn extract(package: &Path, to: &Path, below: &str) -> Result<(), LabError> {
    let mut archive = Command::new("dpkg-deb");
    archive.arg("--fsys-tarfile").arg(package);
    let mut tar = Command::new("tar");
    tar.args(["-x", "-f", "-", "--no-same-owner", "-C"]).arg(to).arg(below);
    tool::pipeline(&[archive, tar])
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for name in ["debian", "debian-rt-", "debian-rt-s390x", "arm64"] {
            assert_eq!(Prebuilt::find(name), None, "{name}");
        }
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
}
