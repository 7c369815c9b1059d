//! Building: objects counted, warnings kept, resumed where it stopped; the finished kernel goes into
//! the cache.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{
    build_target::{self, Target},
    cache::{BuildFigures, Cache, KeptKernel, Lock, Manifest},
    config::{
        self, Configured,
        merge::{self, ConfigOptions},
    },
    costs::minutes,
    digest::key_of,
    disk,
    error::LabError,
    progress::{Report, StepProgress, step},
    source::{Fetched, SourceTree, identity_of},
    spec::Spec,
    tool::{self, Need},
};

/// How long a compiled object took on one core of the machine that the estimates are from, and what it
/// left on the disk. Better figures come from earlier builds on this machine.
const SECONDS_PER_OBJECT: f64 = 0.35;
const BYTES_PER_OBJECT: f64 = 140_000.0;

/// Objects of a configuration with few options, and objects for each further option.
const OBJECTS_LEAST: f64 = 870.0;
const OBJECTS_PER_OPTION: f64 = 1.5;

/// Lines of a failure that are shown.
const ERROR_LINES_MAX: usize = 20;

/// Objects between two notes of how far a build is.
const NOTE_EVERY: u64 = 50;

/// How a build is done.
#[derive(Clone, Copy, Debug)]
pub struct BuildChoice {
    pub jobs: u32,
    /// Go on although asked options were lost.
    pub lost_too: bool,
}

/// What a build will take, estimated before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BuildEstimate {
    /// Objects to make.
    pub objects: u64,
    /// Time with the chosen jobs.
    pub seconds: f64,
    /// Space.
    pub disk_bytes: u64,
    /// Whether it comes from a build on this machine.
    pub measured: bool,
}

/// Estimates a build from the nearest earlier one in the cache, else from a table.
#[must_use]
pub fn estimate(options: u64, earlier: &[BuildFigures], jobs: u32) -> BuildEstimate {
    let near = |figures: &&BuildFigures| figures.options.abs_diff(options);
    let usable = |figures: &&BuildFigures| figures.objects > 0 && figures.seconds > 0.0;
    let nearest = earlier.iter().filter(usable).min_by_key(near);
    let (objects, seconds, bytes) = match nearest {
        Some(figures) => {
            let scale = options as f64 / figures.options.max(1) as f64;
            let objects = figures.objects as f64 * scale;
            let cores = f64::from(figures.jobs.max(1)) / f64::from(jobs.max(1));
            (objects, figures.seconds * scale * cores, figures.disk_bytes as f64 * scale)
        }
        None => {
            let objects = OBJECTS_LEAST + OBJECTS_PER_OPTION * options as f64;
            let seconds = objects * SECONDS_PER_OBJECT / f64::from(jobs.max(1));
            (objects, seconds, objects * BYTES_PER_OBJECT)
        }
    };
    BuildEstimate {
        objects: objects as u64,
        seconds,
        disk_bytes: bytes as u64,
        measured: nearest.is_some(),
    }
}

/// Checks that all is there that every step needs, before anything is fetched, up to a build with the options that
/// the spec asks for. What others need besides is known when the kernel is configured.
pub fn require_tools(spec: &Spec) -> Result<(), LabError> {
    tool::require(&needs_of(spec))
}

/// As [`require_tools`], and what Debian packages of the kernel need.
pub fn require_tools_and_packers(spec: &Spec) -> Result<(), LabError> {
    tool::require(&[needs_of(spec), package_needs()].concat())
}

fn needs_of(spec: &Spec) -> Vec<tool::Need> {
    let mut needs = crate::source::needs(spec);
    needs.extend(build_target::needs_of_any(spec.cross_here()));
    let fragments: Vec<(&str, &str)> =
        spec.fragments.iter().map(|f| (f.name.as_str(), f.text.as_str())).collect();
    needs.extend(build_target::needs(&merge::asked(&fragments).0));
    needs
}

/// A kernel of a spec, brought as far as its configuration.
#[derive(Debug)]
pub struct Prepared {
    /// The ready source.
    pub tree: SourceTree,
    /// Where and with what it is built.
    pub target: Target,
    pub configured: Configured,
    /// Nobody else works on the objects meanwhile.
    _lock: Lock,
}

/// The kernel of these inputs that the cache has already; without unpacking or configuring anything. A
/// configuration that was changed by hand since makes it another kernel.
pub fn built_already(
    spec: &Spec,
    fetched: &Fetched,
    cache: &Cache,
) -> Result<Option<KeptKernel>, LabError> {
    let target = Target::new(spec, &identity_of(fetched), cache)?;
    if target.is_configured() {
        let path = target.objects.join(".config");
        let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
        let key = kernel_key(&target, &merge::read(&text));
        return Ok(KeptKernel::open(&cache.kernel_dir(&key)).ok());
    }
    let of_inputs = |kernel: &KeptKernel| {
        kernel.manifest.name == spec.name
            && kernel.manifest.inputs.get("inputs") == Some(&target.inputs_key)
    };
    Ok(cache.kernels().into_iter().find(of_inputs))
}

/// Unpacks, patches and configures. A configuration that is there already is kept, unless `again`.
///
/// # Errors
///
/// As the steps.
pub fn prepare(
    spec: &Spec,
    fetched: &Fetched,
    cache: &Cache,
    again: bool,
    menuconfig: bool,
    report: &mut Report<'_>,
) -> Result<Prepared, LabError> {
    let tree = crate::source::tree(fetched, cache, report)?;
    let target = Target::new(spec, &tree.identity, cache)?;
    let lock = cache.lock(&target.inputs_key, report)?;
    let configured = if target.is_configured() && !again && !menuconfig {
        config::verify(spec, &tree, &target.objects.join(".config"))?
    } else {
        // One that is broken off in the middle is made anew.
        target.forget_configured()?;
        let configured = config::configure(spec, &tree, &target, menuconfig, report)?;
        target.note_configured()?;
        configured
    };
    Ok(Prepared { tree, target, configured, _lock: lock })
}

/// Builds a prepared kernel and keeps it in the cache. What an earlier, broken build made is used.
///
/// # Errors
///
/// Asked options are lost, a tool is missing, the disk is too small, or a file doesn't compile: the
/// error names it.
pub fn build(
    spec: &Spec,
    prepared: &Prepared,
    cache: &Cache,
    choice: BuildChoice,
    report: &mut Report<'_>,
) -> Result<KeptKernel, LabError> {
    let Prepared { target, configured, .. } = prepared;
    if !configured.lost.is_empty() && !choice.lost_too {
        return Err(LabError::LostOptions(configured.lost.clone()));
    }
    let text =
        fs::read_to_string(&configured.path).map_err(LabError::file("read", &configured.path))?;
    let options = merge::read(&text);
    let key = kernel_key(target, &options);
    if let Ok(kernel) = KeptKernel::open(&cache.kernel_dir(&key)) {
        return Ok(kernel);
    }
    tool::require(&build_target::needs(&options))?;
    let earlier: Vec<BuildFigures> =
        cache.kernels().iter().filter_map(|kernel| kernel.manifest.build).collect();
    let estimate = estimate(configured.options, &earlier, choice.jobs);
    let made = disk::size_bytes(&target.objects);
    let left_mib = estimate.disk_bytes.saturating_sub(made) / (1024 * 1024) + 100;
    disk::require(&target.objects, left_mib, " with --cache DIR")?;
    step(
        report,
        format!(
            "building {}: about {} objects, {} and {} MiB{}",
            spec.name,
            estimate.objects,
            minutes(Duration::from_secs_f64(estimate.seconds)),
            estimate.disk_bytes / (1024 * 1024),
            if estimate.measured {
                ""
            } else {
                " (a rough guess: the first build on this machine)"
            }
        ),
    );
    let mut counted = compile(spec, prepared, &key, choice, &estimate, report)?;
    counted.jobs = choice.jobs;
    counted.options = configured.options;
    collect(spec, prepared, &key, counted, cache, report)
}

/// Identifies the finished kernel: its inputs with the configuration as it really is.
fn kernel_key(target: &Target, options: &ConfigOptions) -> String {
    let text = merge::write(options);
    key_of(&[("inputs", target.inputs_key.as_bytes()), ("config", text.as_bytes())])
}

/// Reads make's lines as they come.
#[derive(Debug, Default)]
struct Reader {
    objects: u64,
    at: String,
    warnings: Vec<String>,
    errors: Vec<String>,
    failed: Option<String>,
    last: Vec<String>,
}

impl Reader {
    /// Whether the line is an object made.
    fn line(&mut self, line: &str) -> bool {
        if let Some(object) = object_of(line) {
            self.objects += 1;
            object.clone_into(&mut self.at);
            return true;
        }
        if line.contains("warning: ") {
            self.warnings.push(line.to_owned());
        }
        let is_error =
            ["error: ", "undefined reference", "Error: ", "No rule to make", "No space left"];
        if is_error.iter().any(|word| line.contains(word)) && self.errors.len() < ERROR_LINES_MAX {
            self.errors.push(line.to_owned());
        }
        if self.failed.is_none() {
            self.failed = failed_target(line);
        }
        if self.last.len() == ERROR_LINES_MAX {
            self.last.remove(0);
        }
        self.last.push(line.to_owned());
        false
    }

    fn failure(self, log: PathBuf) -> LabError {
        let file = self.failed.unwrap_or_else(|| "an unknown file".to_owned());
        let mut lines = if self.errors.is_empty() { self.last } else { self.errors };
        if lines.iter().any(|line| line.contains("No space left")) {
            lines.push("the disk is full: make space and run it again".to_owned());
        }
        LabError::Build { file, lines, log }
    }
}

/// `kernel/fork.o` in `  CC      kernel/fork.o` and `  LD [M]  fs/ext4/ext4.o`.
fn object_of(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("  ")?;
    let (tag, object) = rest.split_once(' ')?;
    let tagged = !tag.is_empty()
        && tag.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    let object = object.trim_start().trim_start_matches("[M]").trim_start();
    (tagged && !object.is_empty()).then_some(object)
}

/// `kernel/fork.o` in `make[3]: *** [scripts/Makefile.build:229: kernel/fork.o] Error 1`.
fn failed_target(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("*** [")?;
    let inside = rest.split(']').next()?;
    Some(inside.rsplit(": ").next().unwrap_or(inside).to_owned())
}

fn compile(
    spec: &Spec,
    prepared: &Prepared,
    key: &str,
    choice: BuildChoice,
    estimate: &BuildEstimate,
    report: &mut Report<'_>,
) -> Result<BuildFigures, LabError> {
    let Prepared { tree, target, .. } = prepared;
    let log_path = target.objects.join("rtscope-build.log");
    let log = File::create(&log_path).map_err(LabError::file("write", &log_path))?;
    let mut log = BufWriter::new(log);
    let mut make = target.make(tree);
    make.arg(format!("-j{}", choice.jobs.max(1))).arg("--output-sync=line").arg(&spec.image);
    for (wanted, goal) in [(spec.modules, "modules"), (spec.dtbs, "dtbs")] {
        if wanted {
            make.arg(goal);
        }
    }
    mark(&mut make, key, &tree.path);
    let mut reader = Reader::default();
    let earlier = Earlier::read(&target.objects);
    let began = Instant::now();
    let status = tool::each_line(&mut make, |line| {
        // On a full disk make tells which file it was, and removes what is half-written.
        let _ = writeln!(log, "{line}");
        if reader.line(line) {
            let done = earlier.objects + reader.objects;
            if reader.objects.is_multiple_of(NOTE_EVERY) {
                earlier.and(reader.objects, began).write(&target.objects);
            }
            // The estimate is corrected when it proves too low, so that it never says 120 %.
            let total = estimate.objects.max(done + 1);
            let pace = began.elapsed().as_secs_f64() / reader.objects as f64;
            report(StepProgress::Amount {
                unit: "objects",
                done,
                total: Some(total),
                seconds_left: (reader.objects >= 50).then_some(pace * (total - done) as f64),
                at: reader.at.clone(),
            });
        }
    })?;
    let _ = log.flush();
    let all = earlier.and(reader.objects, began);
    all.write(&target.objects);
    if !status.success() {
        return Err(reader.failure(log_path));
    }
    let path = target.objects.join("rtscope-warnings.txt");
    fs::write(&path, reader.warnings.join("\n")).map_err(LabError::file("write", &path))?;
    let disk_bytes = disk::size_bytes(&target.objects);
    let Earlier { objects, seconds } = all;
    let warnings = reader.warnings.len() as u64;
    Ok(BuildFigures { objects, seconds, warnings, disk_bytes, ..BuildFigures::default() })
}

/// What broken attempts at the same build did: a build's figures are of all its attempts.
#[derive(Clone, Copy, Debug, Default)]
struct Earlier {
    objects: u64,
    seconds: f64,
}

impl Earlier {
    fn path(objects: &Path) -> PathBuf {
        objects.join(".rtscope-progress")
    }

    fn read(objects: &Path) -> Earlier {
        let text = fs::read_to_string(Earlier::path(objects)).unwrap_or_default();
        let mut words = text.split_whitespace();
        let both = words.next().and_then(|word| word.parse().ok()).zip(words.next());
        let earlier = both.and_then(|(objects, seconds)| {
            Some(Earlier { objects, seconds: seconds.parse().ok()? })
        });
        earlier.unwrap_or_default()
    }

    fn and(self, objects: u64, since: Instant) -> Earlier {
        Earlier {
            objects: self.objects + objects,
            seconds: self.seconds + since.elapsed().as_secs_f64(),
        }
    }

    /// Figures for people: without them a build is still a build.
    fn write(self, objects: &Path) {
        let text = format!("{} {:.1}\n", self.objects, self.seconds);
        let _ = fs::write(Earlier::path(objects), text);
    }
}

/// What the kernel says of itself in `/proc/version`: its key, and nothing of this machine or day.
pub(crate) fn mark(make: &mut Command, key: &str, tree: &Path) {
    make.env("KBUILD_BUILD_HOST", key).env("KBUILD_BUILD_VERSION", "1");
    make.env("KBUILD_BUILD_TIMESTAMP", timestamp(tree));
}

/// The time that the kernel says it was built at: the source's own, so that the same inputs give the
/// same bytes.
fn timestamp(tree: &Path) -> String {
    let modified = tree.join("Makefile").metadata().and_then(|there| there.modified());
    let time = modified.ok().and_then(|time| jiff::Timestamp::try_from(time).ok());
    let time = time.unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.to_zoned(jiff::tz::TimeZone::UTC).strftime("%a %b %e %H:%M:%S UTC %Y").to_string()
}

/// Gathers what was built in a folder of the cache.
fn collect(
    spec: &Spec,
    prepared: &Prepared,
    key: &str,
    figures: BuildFigures,
    cache: &Cache,
    report: &mut Report<'_>,
) -> Result<KeptKernel, LabError> {
    step(report, format!("keeping {}", spec.name));
    let stage = cache.root().join("kernels").join(format!("{key}.part"));
    if stage.exists() {
        fs::remove_dir_all(&stage).map_err(LabError::file("empty", &stage))?;
    }
    let kept = fill(spec, prepared, key, figures, &stage)
        .and_then(|manifest| cache.keep(&stage, &manifest).map_err(LabError::file("keep", &stage)));
    if kept.is_err() {
        // A full disk is full enough.
        let _ = fs::remove_dir_all(&stage);
    }
    kept
}

/// Fills a folder with what a kernel consists of.
fn fill(
    spec: &Spec,
    prepared: &Prepared,
    key: &str,
    figures: BuildFigures,
    stage: &Path,
) -> Result<Manifest, LabError> {
    let Prepared { tree, target, configured, .. } = prepared;
    fs::create_dir_all(stage).map_err(LabError::file("make", stage))?;
    let put = |from: PathBuf, name: &str| {
        fs::copy(&from, stage.join(name)).map_err(LabError::file("copy", &from)).map(drop)
    };
    put(target.objects.join(spec.image_path()), "vmlinuz")?;
    put(configured.path.clone(), "config")?;
    put(target.objects.join("System.map"), "System.map")?;
    put(target.objects.join("rtscope-warnings.txt"), "warnings.txt")?;
    let release = tool::output(target.make(tree).args(["-s", "kernelrelease"]))?;
    let release = release.lines().last().unwrap_or_default().trim().to_owned();
    let options = merge::read(
        &fs::read_to_string(&configured.path).map_err(LabError::file("read", &configured.path))?,
    );
    let with_modules =
        spec.modules && options.get("MODULES").is_some_and(|value| value.word() == "y");
    let mut modules = None;
    if with_modules {
        let root = format!("INSTALL_MOD_PATH={}", stage.join("modules").display());
        tool::output(target.make(tree).args(["modules_install", "INSTALL_MOD_STRIP=1", &root]))?;
        let folder = Path::new("modules/lib/modules").join(&release);
        // Links to this machine's folders mean nothing elsewhere.
        for link in ["build", "source"] {
            let _ = fs::remove_file(stage.join(&folder).join(link));
        }
        modules = Some(folder);
    }
    let mut dtbs = None;
    if spec.dtbs {
        let root = format!("INSTALL_DTBS_PATH={}", stage.join("dtbs").display());
        tool::output(target.make(tree).args(["dtbs_install", &root]))?;
        dtbs = Some(PathBuf::from("dtbs"));
    }
    let mut inputs = target.inputs.clone();
    inputs.insert("inputs".to_owned(), target.inputs_key.clone());
    Ok(Manifest {
        name: spec.name.clone(),
        key: key.to_owned(),
        version: version_of(&target.objects),
        release,
        arch: spec.arch.clone(),
        vmlinuz: "vmlinuz".into(),
        config: Some("config".into()),
        system_map: Some("System.map".into()),
        modules,
        dtbs,
        build_id: build_id(&target.objects.join("vmlinux")),
        inputs,
        build: Some(figures),
    })
}

/// `uname -v` as the build wrote it into the kernel.
fn version_of(objects: &Path) -> String {
    let files = ["include/generated/utsversion.h", "include/generated/compile.h"];
    let texts = files.iter().filter_map(|file| fs::read_to_string(objects.join(file)).ok());
    let version = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("#define UTS_VERSION "))?;
        Some(line.trim().trim_matches('"').to_owned())
    };
    texts.filter_map(version).next().unwrap_or_default()
}

fn build_id(vmlinux: &Path) -> Option<String> {
    let said =
        tool::output(Command::new("readelf").arg("-n").arg(vmlinux).stdin(Stdio::null())).ok()?;
    let line = said.lines().find_map(|line| line.trim().strip_prefix("Build ID: "))?;
    Some(line.trim().to_owned())
}

/// What [`crate::package::debian`] needs beside what builds the kernel.
#[must_use]
pub fn package_needs() -> Vec<Need> {
    let needs = [
        ("dpkg-buildpackage", "dpkg-dev"),
        ("dh_builddeb", "debhelper"),
        ("rsync", "rsync"),
        ("depmod", "kmod"),
    ];
    needs.map(|(name, package)| Need::of(name, package)).to_vec()
}

#[cfg(test)]
mod tests;
