//! The kernels under test, as a command line names them.
//!
//! ```text
//! debian-rt                   a prebuilt one, fetched when it isn't there
//! debian-stock:preempt=full   with further words of the kernel command line, each after a colon
//! tiny-6.12-rt                one that `rtscope kernel build` has made
//! path=/boot/vmlinuz-6.1      any file
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    cache::{Cache, Identity, Kernel},
    error::LabError,
    kernel_image::{arch_of, damage, release_of},
    machine::Machine,
    modules::Modules,
    prebuilt::{self, Prebuilt},
    progress::Report,
    unpacked,
};

/// A kernel under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// As it was asked for.
    pub label: String,
    /// Its file.
    pub kernel: PathBuf,
    /// SHA-256 of the file.
    pub kernel_sha256: String,
    /// The same kernel unpacked, where the emulator can start it as that.
    pub unpacked: Option<PathBuf>,
    /// The kernel's own name of its architecture.
    pub arch: String,
    /// `uname -r`, where it is known.
    pub release: Option<String>,
    /// Its configuration.
    pub config: Option<PathBuf>,
    /// The folder of its device trees.
    pub dtbs: Option<PathBuf>,
    /// The device tree of the machine that it will run on.
    pub device_tree: Option<PathBuf>,
    /// Further words of the kernel command line.
    pub append: Vec<String>,
    /// What tells it from every other; none for somebody's file.
    pub identity: Option<Identity>,
}

impl Subject {
    /// Finds a kernel, and fetches a prebuilt one that isn't there.
    ///
    /// # Errors
    ///
    /// There is no such kernel, or it can't be fetched.
    pub fn find(asked: &str, cache: &Cache, report: &mut Report<'_>) -> Result<Subject, LabError> {
        let (name, append) = split(asked);
        let mut found = match name.strip_prefix("path=") {
            Some(path) => of_file(asked, Path::new(path), cache)?,
            None => of_kept(asked, &bring(name, cache, report)?, cache)?,
        };
        found.append = append;
        Ok(found)
    }

    /// Whether the kernel's configuration has an option switched on; no when it isn't known.
    #[must_use]
    pub fn has_option(&self, option: &str) -> bool {
        self.has_line(&format!("CONFIG_{option}=y"))
    }

    /// Whether the kernel has an option as a module; no when its configuration isn't known.
    #[must_use]
    pub fn has_as_module(&self, option: &str) -> bool {
        self.has_line(&format!("CONFIG_{option}=m"))
    }

    /// Whether the kernel is known to have an option neither built in nor as a module.
    #[must_use]
    pub fn lacks(&self, option: &str) -> bool {
        self.config.as_ref().is_some_and(|path| path.is_file())
            && !self.has_option(option)
            && !self.has_as_module(option)
    }

    fn has_line(&self, line: &str) -> bool {
        let text = self.config.as_ref().and_then(|path| fs::read_to_string(path).ok());
        text.is_some_and(|text| text.lines().any(|found| found == line))
    }

    /// The modules of this kernel: those that were asked for, else those of its package, of its build, or
    /// of this system for a kernel of this release.
    ///
    /// # Errors
    ///
    /// There are none, or they can't be unpacked.
    pub fn modules(
        &self,
        asked: Option<&Path>,
        cache: &Cache,
        report: &mut Report<'_>,
    ) -> Result<Modules, LabError> {
        let release = self.release.as_deref();
        if let Some(source) = asked {
            return Modules::open(source, release, cache, report);
        }
        let (name, _) = split(&self.label);
        let kept = cache.find(name);
        if let (Some(prebuilt), Some(kernel)) = (Prebuilt::find(name), &kept) {
            return prebuilt.modules(kernel, cache, report);
        }
        if let Some(dir) = kept.and_then(|kernel| kernel.modules()) {
            return Modules::open(&dir, release, cache, report);
        }
        let own = release.map(|release| Path::new("/lib/modules").join(release));
        match own.filter(|dir| dir.is_dir()) {
            Some(dir) => Modules::open(&dir, release, cache, report),
            None => Err(LabError::Refused(format!(
                "{} has no modules here: name a folder, a Debian package or an archive with them by \
                 --modules",
                self.label
            ))),
        }
    }

    /// The machine for this kernel: the one that was asked for, or the default of its architecture.
    /// Takes note of the device tree that the machine needs.
    ///
    /// # Errors
    ///
    /// The machine is of another architecture, or needs a device tree that the kernel lacks.
    pub fn machine(&mut self, asked: Option<&str>) -> Result<Machine, LabError> {
        let machine = Machine::of_kernel(&self.label, &self.arch, asked)?;
        if let Some(name) = &machine.device_tree {
            let path =
                self.dtbs.as_ref().map(|folder| folder.join(name)).filter(|path| path.is_file());
            self.device_tree = Some(path.ok_or_else(|| {
                LabError::Refused(format!(
                    "the machine {} needs the device tree {name}, and {} has none: take a prebuilt \
                     kernel as debian-rt-arm64",
                    machine.name, self.label
                ))
            })?);
        }
        Ok(machine)
    }
}

/// What is known of a kernel before it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// As it was asked for.
    pub label: String,
    /// The kernel's own name of its architecture.
    pub arch: String,
    /// Whether it is one of Debian's.
    pub is_prebuilt: bool,
    /// Whether it must be fetched.
    pub is_fetched: bool,
}

impl Expected {
    /// Looks at what a command line names, and fetches nothing.
    ///
    /// # Errors
    ///
    /// There is no such kernel, or its file is none or damaged.
    pub fn of(asked: &str, cache: &Cache) -> Result<Expected, LabError> {
        let (name, _) = split(asked);
        let prebuilt = Prebuilt::find(name);
        let is_prebuilt = prebuilt.is_some();
        let (arch, is_fetched) = if let Some(path) = name.strip_prefix("path=") {
            let path = Path::new(path);
            let image = fs::read(path).map_err(LabError::file("read", path))?;
            (sound(&image, path)?.to_owned(), false)
        } else if let Some(prebuilt) = prebuilt {
            (prebuilt.arch().to_owned(), cache.find(name).is_none())
        } else {
            (kept(name, cache)?.manifest.arch, false)
        };
        Ok(Expected { label: asked.to_owned(), arch, is_prebuilt, is_fetched })
    }
}

/// The architecture of an image that is whole, as far as that shows.
fn sound(image: &[u8], path: &Path) -> Result<&'static str, LabError> {
    let path = path.display();
    let arch = arch_of(image).ok_or_else(|| {
        LabError::Refused(format!(
            "{path} is no kernel image for x86-64, arm64 or arm, or its beginning is damaged: take a \
             bzImage, an Image or a zImage"
        ))
    })?;
    match damage(image) {
        Some(why) => Err(LabError::Refused(format!("{path} does not boot: {why}"))),
        None => Ok(arch),
    }
}

/// The name, and the words after it. A path may hold no colon.
fn split(asked: &str) -> (&str, Vec<String>) {
    let mut parts = asked.split(':');
    let name = parts.next().unwrap_or_default();
    (name, parts.filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

fn bring(name: &str, cache: &Cache, report: &mut Report<'_>) -> Result<Kernel, LabError> {
    if let Some(prebuilt) = Prebuilt::find(name) {
        return prebuilt.bring(cache, report);
    }
    kept(name, cache)
}

/// A kernel that was built here.
fn kept(name: &str, cache: &Cache) -> Result<Kernel, LabError> {
    cache.find(name).ok_or_else(|| {
        let mut known: Vec<String> = cache.kernels().into_iter().map(|k| k.manifest.name).collect();
        known.extend(prebuilt::NAMES.map(str::to_owned));
        known.sort();
        known.dedup();
        let nearest = rtscope_model::text::suggest(name, known.iter().map(String::as_str));
        let hint = nearest.map_or(String::new(), |nearest| format!(" (did you mean {nearest:?}?)"));
        LabError::Refused(format!(
            "there is no kernel {name:?}{hint}: there are {}; write path=FILE for one of your own, or \
             build one with `rtscope kernel build`",
            known.join(", ")
        ))
    })
}

fn of_kept(asked: &str, kernel: &Kernel, cache: &Cache) -> Result<Subject, LabError> {
    let file = kernel.vmlinuz();
    let bytes = fs::read(&file).map_err(LabError::file("read", &file))?;
    if let Some(why) = damage(&bytes) {
        return Err(LabError::Refused(format!(
            "{} does not boot: {why} (`rtscope lab cache prune kernels` removes what is kept)",
            file.display()
        )));
    }
    let kernel_sha256 = crate::cell::sha256(&bytes);
    Ok(Subject {
        label: asked.to_owned(),
        unpacked: unpacked::of(&bytes, &kernel_sha256, cache),
        kernel_sha256,
        kernel: file,
        arch: kernel.manifest.arch.clone(),
        release: Some(kernel.manifest.release.clone()).filter(|release| !release.is_empty()),
        config: kernel.config(),
        dtbs: kernel.dtbs(),
        device_tree: None,
        append: Vec::new(),
        identity: Some(kernel.identity()),
    })
}

fn of_file(asked: &str, path: &Path, cache: &Cache) -> Result<Subject, LabError> {
    let bytes = fs::read(path).map_err(LabError::file("read", path))?;
    let arch = sound(&bytes, path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let release = name.strip_prefix("vmlinuz-").map(str::to_owned).or_else(|| release_of(&bytes));
    let config = release.as_ref().map(|release| path.with_file_name(format!("config-{release}")));
    let kernel_sha256 = crate::cell::sha256(&bytes);
    Ok(Subject {
        label: asked.to_owned(),
        kernel: path.to_owned(),
        unpacked: unpacked::of(&bytes, &kernel_sha256, cache),
        kernel_sha256,
        arch: arch.to_owned(),
        config: config.filter(|path| path.is_file()),
        release,
        dtbs: None,
        device_tree: None,
        append: Vec::new(),
        identity: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_follow_the_name() {
        assert_eq!(split("debian-rt"), ("debian-rt", vec![]));
        let (name, words) = split("debian-stock:preempt=full:threadirqs");
        assert_eq!((name, words.join(" ").as_str()), ("debian-stock", "preempt=full threadirqs"));
    }

    #[test]
    fn an_unknown_kernel_is_named_with_what_there_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let said =
            Subject::find("debain-rt", &cache, &mut |_| {}).expect_err("unknown").to_string();
        assert!(said.contains("did you mean \"debian-rt\"?"), "{said}");
        let path = folder.path().join("text");
        fs::write(&path, "no kernel").expect("written");
        let asked = format!("path={}", path.display());
        let said = Subject::find(&asked, &cache, &mut |_| {}).expect_err("no kernel").to_string();
        assert!(said.contains("is no kernel image"), "{said}");
    }

    #[test]
    fn an_image_says_its_architecture_and_its_machine_must_fit() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut image = vec![0; 0x300];
        image[0x38..0x3c].copy_from_slice(b"ARM\x64");
        let path = folder.path().join("vmlinuz-6.12");
        fs::write(&path, &image).expect("written");
        fs::write(folder.path().join("config-6.12"), "CONFIG_HZ=250\n").expect("written");
        let asked = format!("path={}:preempt=full", path.display());
        let mut found =
            Subject::find(&asked, &Cache::at(folder.path()), &mut |_| {}).expect("an image");
        assert_eq!((found.arch.as_str(), found.release.as_deref()), ("arm64", Some("6.12")));
        assert_eq!(
            (found.append.join(" ").as_str(), found.config.is_some()),
            ("preempt=full", true)
        );
        assert_eq!(found.machine(None).expect("fits").name, "arm64");
        assert!(found.lacks("GPIO_SIM"), "its configuration is known");
        assert!(!Subject { config: None, ..found.clone() }.lacks("GPIO_SIM"), "nothing is known");
        let said = found.machine(Some("x86-64")).expect_err("another").to_string();
        assert!(said.contains("a kernel for arm64"), "{said}");
        let said = found.machine(Some("raspi3b")).expect_err("no device tree").to_string();
        assert!(said.contains("device tree"), "{said}");
    }
}
