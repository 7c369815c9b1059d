//! The kernels under test: found from what a command line names, fetched where they aren't there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    cache::{Cache, Identity, KeptKernel},
    error::LabError,
    kernel_image::{arch_of, damage, release_of},
    kernel_ref::{KernelRef, KernelSource},
    machine::Machine,
    modules::Modules,
    name,
    prebuilt::{self, Prebuilt},
    progress::Report,
    spec, unpacked,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelUnderTest {
    /// What everything calls it: its own label, else as it was asked for.
    pub label: String,
    /// As it was asked for.
    pub reference: KernelRef,
    pub file: PathBuf,
    /// SHA-256 of the file.
    pub sha256: String,
    /// The same kernel unpacked, where the emulator can start it as that.
    pub unpacked: Option<PathBuf>,
    /// The kernel's own name of its architecture.
    pub arch: String,
    /// `uname -r`, where it is known.
    pub release: Option<String>,
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

impl KernelUnderTest {
    /// Finds a kernel, and fetches a prebuilt one that isn't there.
    pub fn find(
        asked: &KernelRef,
        cache: &Cache,
        report: &mut Report<'_>,
    ) -> Result<KernelUnderTest, LabError> {
        match asked.source() {
            KernelSource::Package(file) => {
                from_cache(asked, &prebuilt::of_file(file, cache, report)?, cache)
            }
            KernelSource::File(path) => from_file(asked, path, cache),
            KernelSource::Name(name) => from_cache(asked, &bring(name, cache, report)?, cache),
        }
    }

    /// The same kernel with one more word of the kernel command line, which its label shows.
    #[must_use]
    pub fn with_word(&self, word: &str) -> KernelUnderTest {
        let mut other = self.clone();
        other.label = format!("{}:{word}", self.label);
        other.reference = self.reference.with_word(word);
        other.append.push(word.to_owned());
        other
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
        match self.reference.source() {
            KernelSource::Package(package) => {
                return Modules::open(package, release, cache, report);
            }
            KernelSource::Name(name) => {
                let kept = cache.find(name);
                if let (Some(prebuilt), Some(kernel)) = (Prebuilt::find(name), &kept) {
                    return prebuilt.modules(kernel, cache, report);
                }
                if let Some(dir) = kept.and_then(|kernel| kernel.modules()) {
                    return Modules::of_kernel(&dir, release);
                }
            }
            KernelSource::File(_) => {}
        }
        let own = release.map(|release| Path::new("/lib/modules").join(release));
        match own.filter(|dir| dir.is_dir()) {
            Some(dir) => Modules::open(&dir, release, cache, report),
            None => Err(LabError::Refused(format!(
                "rtscope found no modules of {}: name a folder, a Debian package or an archive that \
                 contains them with --modules",
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
                    "the machine {} needs the device tree {name}, and {} has none: use a prebuilt \
                     kernel such as debian-rt-arm64",
                    machine.name, self.label
                ))
            })?);
        }
        Ok(machine)
    }
}

/// What is known of a kernel before it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedKernel {
    /// What everything calls it.
    pub label: String,
    /// The kernel's own name of its architecture.
    pub arch: String,
    /// Whether it is one of Debian's.
    pub is_prebuilt: bool,
    /// Whether it must be fetched.
    pub needs_fetch: bool,
}

impl ExpectedKernel {
    /// Looks at what a command line names, and fetches nothing.
    ///
    /// # Errors
    ///
    /// There is no such kernel, or its file is none or damaged.
    pub fn look_up(asked: &KernelRef, cache: &Cache) -> Result<ExpectedKernel, LabError> {
        let (arch, is_prebuilt, needs_fetch) = match asked.source() {
            KernelSource::Package(file) => (prebuilt::arch_of_file(file)?.to_owned(), false, false),
            KernelSource::File(path) => {
                let image = fs::read(path).map_err(LabError::file("read", path))?;
                (sound(&image, path)?.to_owned(), false, false)
            }
            KernelSource::Name(name) => match Prebuilt::find(name) {
                Some(prebuilt) => (prebuilt.arch().to_owned(), true, cache.find(name).is_none()),
                None => (kept(name, cache)?.manifest.arch, false, false),
            },
        };
        Ok(ExpectedKernel { label: asked.label().to_owned(), arch, is_prebuilt, needs_fetch })
    }
}

/// The architecture of an image that is whole, as far as that shows.
fn sound(image: &[u8], path: &Path) -> Result<&'static str, LabError> {
    let path = path.display();
    let arch = arch_of(image).ok_or_else(|| {
        LabError::Refused(format!(
            "{path} is not a kernel image for x86-64, arm64 or arm, or its header is damaged: use a \
             bzImage, an Image or a zImage"
        ))
    })?;
    match damage(image) {
        Some(why) => Err(LabError::Refused(format!("{path} does not boot: {why}"))),
        None => Ok(arch),
    }
}

/// Whether a kernel is still to be fetched or built.
#[must_use]
pub fn is_to_prepare(asked: &KernelRef, cache: &Cache) -> bool {
    let KernelSource::Name(name) = asked.source() else { return false };
    cache.find(name).is_none() && (Prebuilt::find(name).is_some() || is_to_build(name, cache))
}

/// Whether a kernel is one that the lab can build and hasn't built.
#[must_use]
pub fn is_to_build(name: &str, cache: &Cache) -> bool {
    cache.find(name).is_none() && Prebuilt::find(name).is_none() && spec::find(name).is_ok()
}

fn bring(name: &str, cache: &Cache, report: &mut Report<'_>) -> Result<KeptKernel, LabError> {
    if let Some(prebuilt) = Prebuilt::find(name) {
        return prebuilt.bring(cache, report);
    }
    kept(name, cache)
}

/// A kernel that was built here.
fn kept(name: &str, cache: &Cache) -> Result<KeptKernel, LabError> {
    cache.find(name).ok_or_else(|| {
        if let Err(why) = name::check("the kernel", name) {
            return LabError::Refused(format!("{why}; a file is path={name}"));
        }
        if spec::find(name).is_ok() {
            return LabError::Refused(format!(
                "{name} is not built yet: `rtscope kernel build {name}` builds it"
            ));
        }
        let mut known: Vec<String> = cache.kernels().into_iter().map(|k| k.manifest.name).collect();
        known.extend(prebuilt::NAMES.map(str::to_owned));
        known.sort();
        known.dedup();
        let nearest = rtscope_model::text::suggest(name, known.iter().map(String::as_str));
        let hint = match nearest {
            _ if Path::new(name).is_file() => format!(" (did you mean path={name}?)"),
            Some(nearest) => format!(" (did you mean {nearest:?}?)"),
            None => String::new(),
        };
        LabError::Refused(format!(
            "unknown kernel {name:?}{hint}: rtscope knows {}; write path=FILE for a kernel of your own, or build \
             one with `rtscope kernel build`",
            known.join(", ")
        ))
    })
}

fn from_cache(
    asked: &KernelRef,
    kernel: &KeptKernel,
    cache: &Cache,
) -> Result<KernelUnderTest, LabError> {
    let file = kernel.vmlinuz();
    let bytes = fs::read(&file).map_err(LabError::file("read", &file))?;
    if let Some(why) = damage(&bytes) {
        return Err(LabError::Refused(format!(
            "{} does not boot: {why} (`rtscope lab cache prune kernels` deletes the cached kernels)",
            file.display()
        )));
    }
    let sha256 = crate::digest::sha256(&bytes);
    Ok(KernelUnderTest {
        label: asked.label().to_owned(),
        reference: asked.clone(),
        unpacked: unpacked::unpack(&bytes, &sha256, cache),
        sha256,
        file,
        arch: kernel.manifest.arch.clone(),
        release: Some(kernel.manifest.release.clone()).filter(|release| !release.is_empty()),
        config: kernel.config(),
        dtbs: kernel.dtbs(),
        device_tree: None,
        append: asked.words().to_vec(),
        identity: Some(kernel.identity()),
    })
}

fn from_file(asked: &KernelRef, path: &Path, cache: &Cache) -> Result<KernelUnderTest, LabError> {
    let bytes = fs::read(path).map_err(LabError::file("read", path))?;
    let arch = sound(&bytes, path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let release = name.strip_prefix("vmlinuz-").map(str::to_owned).or_else(|| release_of(&bytes));
    let config = release.as_ref().map(|release| path.with_file_name(format!("config-{release}")));
    let sha256 = crate::digest::sha256(&bytes);
    Ok(KernelUnderTest {
        label: asked.label().to_owned(),
        reference: asked.clone(),
        file: path.to_owned(),
        unpacked: unpacked::unpack(&bytes, &sha256, cache),
        sha256,
        arch: arch.to_owned(),
        config: config.filter(|path| path.is_file()),
        release,
        dtbs: None,
        device_tree: None,
        append: asked.words().to_vec(),
        identity: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(typed: &str, cache: &Cache) -> Result<KernelUnderTest, LabError> {
        KernelUnderTest::find(&KernelRef::parse(typed)?, cache, &mut |_| {})
    }

    #[test]
    fn an_unknown_kernel_is_named_with_what_there_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let said = find("debain-rt", &cache).expect_err("unknown").to_string();
        assert!(said.contains("did you mean \"debian-rt\"?"), "{said}");
        for asked in ["/boot/vmlinuz-6.1", "mine=/boot/vmlinuz-6.1"] {
            let said = find(asked, &cache).expect_err("a path").to_string();
            assert!(said.contains("the kernel \"/boot/vmlinuz-6.1\" has a slash in it"), "{said}");
            assert!(said.ends_with("a file is path=/boot/vmlinuz-6.1"), "{said}");
        }
        let path = folder.path().join("text");
        fs::write(&path, "no kernel").expect("written");
        let asked = format!("path={}", path.display());
        let said = find(&asked, &cache).expect_err("no kernel").to_string();
        assert!(said.contains("is not a kernel image"), "{said}");
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
        let mut found = find(&asked, &Cache::at(folder.path())).expect("an image");
        assert_eq!((found.arch.as_str(), found.release.as_deref()), ("arm64", Some("6.12")));
        assert_eq!(
            (found.append.join(" ").as_str(), found.config.is_some()),
            ("preempt=full", true)
        );
        assert_eq!(found.machine(None).expect("fits").name, "arm64");
        assert!(found.lacks("GPIO_SIM"), "its configuration is known");
        assert!(
            !KernelUnderTest { config: None, ..found.clone() }.lacks("GPIO_SIM"),
            "nothing is known"
        );
        let said = found.machine(Some("x86-64")).expect_err("another").to_string();
        assert!(said.contains("a kernel for arm64"), "{said}");
        let said = found.machine(Some("raspi3b")).expect_err("no device tree").to_string();
        assert!(said.contains("device tree"), "{said}");
    }
}
