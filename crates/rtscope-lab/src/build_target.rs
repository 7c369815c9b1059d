//! What is built, where, and with which compiler: a `make` of the kernel for it.

use std::{collections::BTreeMap, fs, io, path::PathBuf, process::Command};

use serde::Serialize;

use crate::{
    cache::Cache,
    config::merge::ConfigOptions,
    digest::key_of,
    error::LabError,
    source::SourceTree,
    spec::{Base, Spec},
    tool::{self, Need},
};

/// File in the folder of objects that says which inputs it was configured from.
const STAMP: &str = ".rtscope-inputs";

/// What is built, where, with what.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    pub objects: PathBuf,
    /// The kernel's own name of the architecture.
    pub arch: String,
    /// Prefix of the cross compiler.
    pub cross: Option<String>,
    /// Whether ccache is put before the compiler.
    pub ccache: bool,
    /// Whether the kernel may see a Rust compiler: its version gets into the configuration, which would
    /// be another one with each toolchain that somebody installs.
    pub rust: bool,
    /// Hash of all inputs.
    pub inputs_key: String,
    /// The inputs in words.
    pub inputs: BTreeMap<String, String>,
}

impl Target {
    /// The target of a spec and a source in a cache.
    ///
    /// # Errors
    ///
    /// The base configuration's file can't be read, or there is no compiler.
    pub fn new(spec: &Spec, tree: &[(String, String)], cache: &Cache) -> Result<Target, LabError> {
        let cross = spec.cross_here().map(str::to_owned);
        let mut inputs: BTreeMap<String, String> = tree.iter().cloned().collect();
        inputs.insert("arch".to_owned(), spec.arch.clone());
        inputs.insert("compiler".to_owned(), compiler_version(cross.as_deref())?);
        inputs.insert("image".to_owned(), spec.image.clone());
        inputs.insert("modules".to_owned(), spec.modules.to_string());
        inputs.insert("dtbs".to_owned(), spec.dtbs.to_string());
        let base = match &spec.base {
            Base::Target(name) => name.clone(),
            Base::File(path) => fs::read_to_string(path).map_err(LabError::file("read", path))?,
        };
        inputs.insert("base".to_owned(), key_of_text(&base));
        for (i, fragment) in spec.fragments.iter().enumerate() {
            inputs.insert(format!("fragment {i} {}", fragment.name), key_of_text(&fragment.text));
        }
        let pairs: Vec<(&str, &[u8])> =
            inputs.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let inputs_key = key_of(&pairs);
        let mut texts =
            spec.fragments.iter().map(|fragment| fragment.text.as_str()).chain([&*base]);
        let asks_rust = |text: &str| text.lines().any(|line| line.trim() == "CONFIG_RUST=y");
        Ok(Target {
            rust: texts.any(asks_rust),
            objects: cache.build_dir(&inputs_key),
            arch: spec.arch.clone(),
            cross,
            ccache: tool::find("ccache").is_some(),
            inputs_key,
            inputs,
        })
    }

    #[must_use]
    pub fn compiler(&self) -> Option<Need> {
        compiler_need(self.cross.as_deref())
    }

    /// A `make` of the kernel for this target.
    #[must_use]
    pub fn make(&self, tree: &SourceTree) -> Command {
        let mut make = Command::new("make");
        make.arg("-C").arg(&tree.path);
        make.arg(format!("O={}", self.objects.display())).arg(format!("ARCH={}", self.arch));
        let prefix = self.cross.as_deref().unwrap_or("");
        if !prefix.is_empty() {
            make.arg(format!("CROSS_COMPILE={prefix}"));
        }
        if !self.rust {
            make.arg("RUSTC=no-rustc");
        }
        if self.ccache {
            make.arg(format!("CC=ccache {prefix}gcc"));
        }
        // What a caller's make hands down would be for another project.
        make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
        make.env("LC_ALL", "C").env("KBUILD_BUILD_USER", "rtscope");
        make
    }

    /// Whether the folder of objects was configured from these inputs.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.objects.join(".config").is_file()
            && fs::read_to_string(self.objects.join(STAMP))
                .is_ok_and(|said| said == self.inputs_key)
    }

    /// Forgets that it was.
    pub fn forget_configured(&self) -> Result<(), LabError> {
        let path = self.objects.join(STAMP);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(LabError::file("remove", &path)(e))
            }
            _ => Ok(()),
        }
    }

    /// Notes that it was.
    pub fn note_configured(&self) -> Result<(), LabError> {
        let path = self.objects.join(STAMP);
        fs::write(&path, &self.inputs_key).map_err(LabError::file("write", &path))
    }
}

fn compiler_need(cross: Option<&str>) -> Option<Need> {
    let prefix = cross?;
    let package = format!("gcc-{}", prefix.trim_end_matches('-'));
    Some(Need::of(&format!("{prefix}gcc"), &package))
}

/// Options and the tools that building with them needs.
const NEEDS: &[(&str, &str, &str)] = &[
    ("OBJTOOL", "libelf.h", "libelf-dev"),
    ("UNWINDER_ORC", "libelf.h", "libelf-dev"),
    ("SYSTEM_TRUSTED_KEYRING", "openssl/opensslv.h", "libssl-dev"),
    ("MODULE_SIG", "openssl/opensslv.h", "libssl-dev"),
    ("MODULE_SIG", "openssl", "openssl"),
    ("MODULES", "depmod", "kmod"),
    ("DEBUG_INFO_BTF", "pahole", "dwarves"),
    ("KERNEL_LZ4", "lz4", "lz4"),
    ("KERNEL_ZSTD", "zstd", "zstd"),
    ("KERNEL_XZ", "xz", "xz-utils"),
    ("KERNEL_LZMA", "xz", "xz-utils"),
    ("KERNEL_LZO", "lzop", "lzop"),
    ("KERNEL_BZIP2", "bzip2", "bzip2"),
    ("MODULE_COMPRESS_XZ", "xz", "xz-utils"),
    ("MODULE_COMPRESS_ZSTD", "zstd", "zstd"),
    ("IKHEADERS", "cpio", "cpio"),
];

/// What a build with these options needs.
pub(crate) fn needs(options: &ConfigOptions) -> Vec<Need> {
    let always = [("make", "make"), ("gcc", "gcc"), ("bc", "bc"), ("readelf", "binutils")];
    let set = |name: &str| options.get(name).is_some_and(|value| value.word() == "y");
    let asked = NEEDS.iter().filter(|(option, ..)| set(option));
    let mut needs: Vec<Need> =
        always.iter().map(|(name, package)| Need::of(name, package)).collect();
    for (_, name, package) in asked {
        let need = Need::of(name, package);
        if !needs.contains(&need) {
            needs.push(need);
        }
    }
    needs
}

/// What every kernel needs for its configuration and build; all of it is told at once.
pub(crate) fn needs_of_any(cross: Option<&str>) -> Vec<Need> {
    let mut all = needs(&ConfigOptions::new());
    all.extend(configuration_needs());
    all.extend(compiler_need(cross));
    all
}

fn compiler_version(cross: Option<&str>) -> Result<String, LabError> {
    let need = compiler_need(cross).unwrap_or_else(|| Need::of("gcc", "gcc"));
    tool::require(&needs_of_any(cross))?;
    let said = tool::output(Command::new(&need.name).arg("--version"))?;
    Ok(said.lines().next().unwrap_or_default().to_owned())
}

fn key_of_text(text: &str) -> String {
    key_of(&[("text", text.as_bytes())])
}

/// What the kernel's own configuration tools need.
pub(crate) fn configuration_needs() -> Vec<Need> {
    [("make", "make"), ("gcc", "gcc"), ("flex", "flex"), ("bison", "bison")]
        .iter()
        .map(|(name, package)| Need::of(name, package))
        .collect()
}
