//! Specs: what a kernel is made of, as a TOML text. Shipped ones are in `kernels/specs`, and any file
//! will do.
//!
//! A spec with variants makes several kernels of one source; a kernel is called `SPEC-VARIANT`.

mod written;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use rtscope_model::text::{Problem, TextError, is_toml_file, line_of, problem_of, suggest};
use serde::{Deserialize, Serialize};
use toml::Spanned;

pub use self::written::write;
use crate::{
    config::merge,
    error::LabError,
    name,
    prebuilt::{self, Prebuilt},
};

/// A text that is part of the binary.
#[derive(Clone, Copy, Debug)]
pub struct ShippedText {
    /// Name on the command line and in specs.
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! shipped {
    ($folder:literal, $extension:literal: $($name:literal)*) => {
        &[$(ShippedText {
            name: $name,
            text: include_str!(concat!("../../kernels/", $folder, "/", $name, $extension)),
        },)*]
    };
}

/// Every shipped spec.
pub const SPECS: &[ShippedText] = shipped! { "specs", ".toml":
    "tiny-6.12" "tiny-6.1" "tiny-arm64-6.12" "debian-6.12"
    "raspberry-pi-4" "raspberry-pi-5" "raspberry-pi-5.4" "raspberry-pi-6.1" "ti-am57xx" "ti-am62x"
};

/// Every shipped fragment of a configuration.
pub const FRAGMENTS: &[ShippedText] = shipped! { "fragments", ".config":
    "lab" "lab-x86" "lab-arm64" "rt" "dynamic" "none" "voluntary" "full" "latency" "latency-5.4"
};

/// Architectures, as the kernel calls them, with the folder below `arch/`, the default target that
/// makes the image, and the image's path below the folder of objects.
const ARCHITECTURES: &[(&str, &str, &str, &str)] = &[
    ("x86_64", "x86", "bzImage", "arch/x86/boot/bzImage"),
    ("arm64", "arm64", "Image.gz", "arch/arm64/boot/Image.gz"),
    ("arm", "arm", "zImage", "arch/arm/boot/zImage"),
    ("riscv", "riscv", "Image.gz", "arch/riscv/boot/Image.gz"),
];

/// What a kernel is made of, with one variant chosen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spec {
    /// Name of the kernel: the spec's, and after a dash the variant's.
    pub name: String,
    /// One line for a list.
    pub title: String,
    /// What it is for and how.
    pub about: String,
    /// How far it was tried, in plain words.
    pub tried: String,
    /// The kernel's own name of the architecture.
    pub arch: String,
    /// Prefix of the cross compiler, as `aarch64-linux-gnu-`; used on other machines only.
    pub cross: Option<String>,
    /// Where the source comes from.
    pub source: SpecSource,
    /// Patches, in their order.
    pub patches: Vec<Patch>,
    /// What the configuration starts from.
    pub base: Base,
    /// What is merged into it, in this order.
    pub fragments: Vec<Fragment>,
    /// The target that makes the image.
    pub image: String,
    /// Whether modules are built.
    pub modules: bool,
    /// Whether device trees are built.
    pub dtbs: bool,
}

/// Where the source comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SpecSource {
    /// A package of Debian that holds a source, as `linux-source-6.12`.
    Debian {
        package: String,
        /// Suite relative to the machine's own, as `backports`; where the package isn't in a
        /// configured one.
        suite: Option<String>,
        /// An exact version.
        version: Option<String>,
    },
    Archive {
        /// File or URL.
        from: String,
        /// Of the packed file.
        sha256: String,
    },
    /// A git tree, taken without its history.
    Git {
        /// URL or folder.
        from: String,
        /// Branch or tag.
        reference: String,
        /// The commit to which the reference must point, if one is required.
        commit: Option<String>,
    },
    /// A vendor's tree. The user says with `--from` where to fetch it.
    Vendor {
        vendor: String,
        /// Branch.
        reference: String,
    },
    /// A folder with an unpacked source. It is copied when there are patches, else used as it is.
    Folder { path: PathBuf },
}

/// A patch, or a series of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Patch {
    /// A folder of a Debian source package with a `series` file, as `debian/patches-rt`.
    DebianSeries {
        /// Source package, as `linux`.
        package: String,
        version: String,
        folder: String,
        /// How many patches there must be.
        count: Option<usize>,
    },
    /// A single patch: plain, `.gz` or `.xz`.
    File {
        /// File or URL.
        from: String,
        /// Of the file as fetched.
        sha256: Option<String>,
        /// The version it was made for, as `5.4.70`; without it, the one in its name.
        made_for: Option<String>,
    },
    /// A folder with a `series` file.
    Series {
        path: PathBuf,
        /// The version it was made for.
        made_for: Option<String>,
    },
}

/// What a configuration starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    /// A target of the kernel's own, as `tinyconfig` or `bcm2711_defconfig`.
    Target(String),
    /// A file, as a board's own.
    File(PathBuf),
}

/// A part of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fragment {
    /// A shipped name or a path.
    pub name: String,
    #[serde(skip)]
    pub text: String,
}

impl Spec {
    /// The folder below `arch/`.
    #[must_use]
    pub fn arch_folder(&self) -> &'static str {
        self.architecture().1
    }

    /// The image, below the folder of objects.
    #[must_use]
    pub fn image_path(&self) -> PathBuf {
        let (_, folder, target, path) = self.architecture();
        if self.image == *target {
            return PathBuf::from(path);
        }
        Path::new("arch").join(folder).join("boot").join(&self.image)
    }

    fn architecture(&self) -> &'static (&'static str, &'static str, &'static str, &'static str) {
        let known = ARCHITECTURES.iter().find(|(name, ..)| *name == self.arch);
        known.expect("the architecture was checked when the spec was read")
    }

    /// The cross compiler's prefix, where this machine needs one.
    #[must_use]
    pub fn cross_here(&self) -> Option<&str> {
        let here = match std::env::consts::ARCH {
            "aarch64" => "arm64",
            "riscv64" => "riscv",
            other => other,
        };
        self.cross.as_deref().filter(|_| here != self.arch)
    }
}

/// A spec as it is typed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecText {
    name: Spanned<String>,
    title: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    tried: String,
    arch: Spanned<String>,
    cross: Option<String>,
    source: Spanned<SpecSource>,
    #[serde(default)]
    patch: Vec<Spanned<Patch>>,
    base: Spanned<String>,
    #[serde(default)]
    fragments: Vec<Spanned<String>>,
    image: Option<String>,
    modules: Option<bool>,
    dtbs: Option<bool>,
    #[serde(default)]
    variant: BTreeMap<Spanned<String>, Spanned<VariantText>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantText {
    #[serde(default)]
    title: String,
    #[serde(default)]
    fragments: Vec<Spanned<String>>,
}

/// Reads a spec: one kernel for each variant, or one. `name` is how errors call the text; paths are
/// relative to `folder`.
///
/// # Errors
///
/// What is wrong, with line and, where one is near, what was perhaps meant.
pub fn parse(name: &str, text: &str, folder: &Path) -> Result<Vec<Spec>, TextError> {
    let fail = |problems| TextError { name: name.to_owned(), problems };
    let typed: SpecText = toml::from_str(text).map_err(|e| fail(vec![problem_of(text, &e)]))?;
    let mut reader = Reader { text, folder, problems: Vec::new() };
    reader.name("the name", &typed.name);
    let base = reader.base(&typed.base);
    reader.architecture(&typed);
    reader.source(&typed.source);
    for patch in &typed.patch {
        reader.patch(patch);
    }
    let common = reader.fragments(&typed.fragments);
    let of_variants: Vec<_> = typed
        .variant
        .iter()
        .map(|(name, variant)| {
            reader.name("the variant", name);
            let name = name.as_ref();
            let own = reader.fragments(&variant.as_ref().fragments);
            if variant.as_ref().fragments.is_empty() {
                let at = variant.span().start;
                reader.add(
                    at,
                    format!("variant {name:?} has no fragments: it changes nothing"),
                    None,
                );
            }
            (name.clone(), variant.as_ref().title.clone(), own)
        })
        .collect();
    if !reader.problems.is_empty() {
        return Err(fail(reader.problems));
    }
    let one = Spec {
        name: typed.name.as_ref().clone(),
        title: typed.title.clone(),
        about: typed.about.clone(),
        tried: typed.tried.clone(),
        image: typed.image.clone().unwrap_or_else(|| image_of(typed.arch.as_ref()).to_owned()),
        arch: typed.arch.into_inner(),
        cross: typed.cross,
        source: located(typed.source.into_inner(), folder),
        patches: typed.patch.into_iter().map(|p| located_patch(p.into_inner(), folder)).collect(),
        base,
        fragments: common,
        modules: typed.modules.unwrap_or(true),
        dtbs: typed.dtbs.unwrap_or(false),
    };
    if of_variants.is_empty() {
        return Ok(vec![one]);
    }
    let variant = |(name, title, fragments): (String, String, Vec<Fragment>)| Spec {
        name: format!("{}-{name}", one.name),
        title: if title.is_empty() { one.title.clone() } else { title },
        fragments: one.fragments.iter().cloned().chain(fragments).collect(),
        ..one.clone()
    };
    Ok(of_variants.into_iter().map(variant).collect())
}

fn image_of(arch: &str) -> &'static str {
    ARCHITECTURES.iter().find(|(name, ..)| *name == arch).map_or("", |(_, _, image, _)| image)
}

fn located(source: SpecSource, folder: &Path) -> SpecSource {
    match source {
        SpecSource::Folder { path } => SpecSource::Folder { path: folder.join(path) },
        SpecSource::Archive { from, sha256 } => {
            SpecSource::Archive { from: place(from, folder), sha256 }
        }
        SpecSource::Git { from, reference, commit } => {
            SpecSource::Git { from: place(from, folder), reference, commit }
        }
        other => other,
    }
}

fn located_patch(patch: Patch, folder: &Path) -> Patch {
    match patch {
        Patch::File { from, sha256, made_for } => {
            Patch::File { from: place(from, folder), sha256, made_for }
        }
        Patch::Series { path, made_for } => Patch::Series { path: folder.join(path), made_for },
        other => other,
    }
}

/// A URL as it is, a path relative to the spec.
fn place(from: String, folder: &Path) -> String {
    if from.contains("://") { from } else { folder.join(from).display().to_string() }
}

/// Collects problems while the parts of a spec are read.
struct Reader<'a> {
    text: &'a str,
    folder: &'a Path,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn add(&mut self, at: usize, message: String, suggestion: Option<String>) {
        let line = Some(line_of(self.text, at));
        self.problems.push(Problem { line, message, suggestion });
    }

    /// What kernels are called goes into the names of folders and files.
    fn name(&mut self, what: &str, name: &Spanned<String>) {
        if let Err(why) = name::check(what, name.as_ref()) {
            self.add(name.span().start, why, None);
        }
    }

    fn architecture(&mut self, typed: &SpecText) {
        let arch = typed.arch.as_ref();
        let names = || ARCHITECTURES.iter().map(|(name, ..)| *name);
        if !names().any(|name| name == arch) {
            let known = names().collect::<Vec<_>>().join(", ");
            let message = format!("{arch:?} is not an architecture; the known ones are {known}");
            self.add(typed.arch.span().start, message, suggest(arch, names()));
        }
    }

    fn base(&mut self, base: &Spanned<String>) -> Base {
        let name = base.as_ref();
        if name.ends_with("config") && !name.contains(['/', '.']) {
            return Base::Target(name.clone());
        }
        let path = self.folder.join(name);
        if !path.is_file() {
            let message = format!(
                "base {name:?} is neither a configuration target of the kernel, such as defconfig or \
                 bcm2711_defconfig, nor a file"
            );
            self.add(base.span().start, message, suggest(name, ["tinyconfig", "defconfig"]));
        }
        let senseless =
            fs::read_to_string(&path).ok().and_then(|text| senseless("base", &path, &text));
        if let Some(message) = senseless {
            self.add(base.span().start, message, None);
        }
        Base::File(path)
    }

    fn fragments(&mut self, names: &[Spanned<String>]) -> Vec<Fragment> {
        let mut found = Vec::new();
        for name in names {
            match fragment(name.as_ref(), self.folder) {
                Ok(fragment) => found.push(fragment),
                Err(message) => {
                    let is_there = self.folder.join(name.as_ref()).is_file();
                    let nearest = suggest(name.as_ref(), FRAGMENTS.iter().map(|f| f.name));
                    let nearest = nearest.filter(|_| !is_there);
                    self.add(name.span().start, message, nearest);
                }
            }
        }
        found
    }

    fn source(&mut self, source: &Spanned<SpecSource>) {
        let at = source.span().start;
        match source.as_ref() {
            SpecSource::Archive { sha256, .. } if !is_sha256(sha256) => {
                self.add(at, not_sha256(sha256), None);
            }
            SpecSource::Git { commit: Some(commit), .. }
                if commit.len() != 40 || !commit.bytes().all(|b| b.is_ascii_hexdigit()) =>
            {
                self.add(at, format!("commit {commit:?} is not 40 hexadecimal digits"), None);
            }
            SpecSource::Debian { package, .. } if !package.starts_with("linux-source-") => {
                let message =
                    format!("package {package:?} holds no source: name a linux-source-...");
                self.add(at, message, None);
            }
            SpecSource::Folder { path } => {
                let path = self.folder.join(path);
                if !path.join("Kbuild").is_file() {
                    self.add(at, format!("{} is not a kernel's source", path.display()), None);
                }
            }
            _ => {}
        }
    }

    fn patch(&mut self, patch: &Spanned<Patch>) {
        let at = patch.span().start;
        match patch.as_ref() {
            Patch::File { sha256: Some(sha256), .. } if !is_sha256(sha256) => {
                self.add(at, not_sha256(sha256), None);
            }
            Patch::File { from, sha256: None, .. } if from.contains("://") => {
                let message = "a patch from a URL needs its sha256".to_owned();
                self.add(at, message, None);
            }
            _ => {}
        }
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn not_sha256(text: &str) -> String {
    format!("sha256 {text:?} is not 64 hexadecimal digits")
}

/// A fragment by its shipped name or its path.
fn fragment(name: &str, folder: &Path) -> Result<Fragment, String> {
    let name_owned = name.to_owned();
    if let Some(shipped) = FRAGMENTS.iter().find(|shipped| shipped.name == name) {
        return Ok(Fragment { name: name_owned, text: shipped.text.to_owned() });
    }
    let path = folder.join(name);
    match fs::read_to_string(&path) {
        Ok(text) => match senseless("fragment", &path, &text) {
            Some(message) => Err(message),
            None => Ok(Fragment { name: name_owned, text }),
        },
        Err(_) if !name.contains('/') && !name.contains('.') => {
            Err(format!("fragment {name:?} is neither a shipped one nor a file"))
        }
        Err(e) => Err(format!("fragment {}: {e}", path.display())),
    }
}

/// The first line of a configuration in a file that asks for nothing, with how many others there are.
fn senseless(what: &str, path: &Path, text: &str) -> Option<String> {
    let found = merge::senseless(text);
    let (line, why) = found.first()?;
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more of its lines)"),
    };
    Some(format!("{what} {}, line {line}: {why}{more}", path.display()))
}

/// Every kernel of every shipped spec.
///
/// # Panics
///
/// When a shipped spec is wrong, which a test rules out.
#[must_use]
pub fn all() -> Vec<Spec> {
    let read = |shipped: &ShippedText| parse(shipped.name, shipped.text, Path::new("."));
    SPECS.iter().flat_map(|shipped| read(shipped).expect("a shipped spec is sound")).collect()
}

/// Finds a kernel to make: `SPEC` or `SPEC-VARIANT` of the shipped ones, or a spec's file, with its
/// variant after a colon where it has several.
///
/// # Errors
///
/// No such name or file, several variants and none named, or a spec that is wrong.
pub fn find(name: &str) -> Result<Spec, LabError> {
    let shipped = all();
    if let Some(spec) = shipped.iter().find(|spec| spec.name == name) {
        return Ok(spec.clone());
    }
    let of_spec = SPECS.iter().find(|spec| spec.name == name);
    if let Some(of_spec) = of_spec {
        return choose(name, "-", parse(of_spec.name, of_spec.text, Path::new("."))?, None);
    }
    let (path, variant) = match name.rsplit_once(':') {
        Some((path, variant)) if !Path::new(name).exists() => (Path::new(path), Some(variant)),
        _ => (Path::new(name), None),
    };
    if !path.is_file() && Prebuilt::find(name).is_some() {
        return Err(LabError::Refused(format!(
            "Debian builds {name}, so there is nothing to make: `rtscope kernel show {name}` describes it, and \
             `rtscope lab run --kernel {name}` boots it"
        )));
    }
    // What looks like a file and isn't there can't be read; another word is a name that doesn't exist.
    if !path.is_file() && !is_toml_file(name) {
        let known = shipped.iter().map(|spec| spec.name.as_str()).chain(prebuilt::NAMES);
        let nearest = suggest(name, known);
        let hint = nearest.map(|word| format!(" (did you mean {word:?}?)")).unwrap_or_default();
        return Err(LabError::Refused(format!(
            "{name:?} is neither a shipped kernel nor a spec's file{hint}; \
             `rtscope kernel list` shows the kernels"
        )));
    }
    if path.exists() && !path.is_file() {
        return Err(LabError::Refused(format!("{} is not a spec file", path.display())));
    }
    let text = fs::read_to_string(path).map_err(LabError::file("read", path))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let shown = path.display().to_string();
    choose(&shown, ":", parse(&shown, &text, folder)?, variant)
}

fn choose(
    name: &str,
    separator: &str,
    mut specs: Vec<Spec>,
    variant: Option<&str>,
) -> Result<Spec, LabError> {
    if specs.len() == 1 && variant.is_none() {
        return Ok(specs.remove(0));
    }
    let wanted = |spec: &Spec| variant.is_some_and(|v| spec.name.ends_with(&format!("-{v}")));
    if let Some(at) = specs.iter().position(wanted) {
        return Ok(specs.swap_remove(at));
    }
    let of = |spec: &Spec| spec.name.rsplit('-').next().unwrap_or_default().to_owned();
    let names: Vec<String> = specs.iter().map(|s| format!("{name}{separator}{}", of(s))).collect();
    Err(LabError::Refused(format!("{name} has variants; name one: {}", names.join(", "))))
}

#[cfg(test)]
mod tests;
