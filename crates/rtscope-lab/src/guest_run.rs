//! One run of a guest in one kernel: its inputs, their hash, its record's folder.
//!
//! In virtual time with one CPU the emulator logs the run, so that it can be replayed to the bit. A run whose
//! inputs were seen before is not run again: its record is taken from the cache.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use rtscope_model::{
    guest::{self, GuestExtras, Timing},
    record::JUDGED_HERE,
};

use crate::{
    boot::{self, Boot, CONSOLE, Ending},
    cache::{Cache, IMAGES},
    digest::sha256,
    disk,
    error::LabError,
    image,
    images::{self, ImageInUse},
    inputs::{FORMAT, Inputs, is_whole, key_of_run, read_inputs, write},
    kept,
    kernel_under_test::KernelUnderTest,
    links,
    machine::Machine,
    qemu::{CommandLine, GuestSpec, Log, Plugin},
    recheck,
    replay_log::{LOG, Raw},
};

/// Room that a record needs, and the serial lines that bring it: several times what the shipped plans make.
const RECORD_MIB: u64 = 16;

/// CPU time in which every kernel that boots has spoken: Debian's, packed with xz, takes half of it to unpack itself.
const FIRST_WORD: Duration = Duration::from_secs(20);

/// File of a record with the kernel's configuration.
pub const CONFIG: &str = "config.gz";

/// One run of a guest in one kernel.
#[derive(Clone, Debug)]
pub struct GuestRun {
    /// The kernel.
    pub kernel: KernelUnderTest,
    /// The machine.
    pub machine: Machine,
    /// What the guest is given.
    pub spec: GuestSpec,
    /// The guest's file system, in a file named after its hash.
    pub image: PathBuf,
    /// SHA-256 of the image.
    pub image_sha256: String,
    /// Keeps the image in the cache.
    pub held: ImageInUse,
    /// What the plan is called.
    pub plan: String,
    /// How long the plan takes in the guest's time, about.
    pub planned: Duration,
    /// How long the guest may be silent.
    pub silence: Duration,
    /// What watches the guest, which then runs even if its record is known.
    pub plugin: Option<Plugin>,
}

/// What came of a run.
#[derive(Debug)]
pub struct GuestOutcome {
    /// The record's folder; the console is there whatever happened.
    pub folder: PathBuf,
    /// How the guest ended.
    pub ending: Ending,
    /// How long it took; none when the record was known already.
    pub took: Option<Duration>,
    /// What it was made of.
    pub inputs: Inputs,
}

/// What a run needs of its surroundings.
#[expect(missing_debug_implementations, reason = "holds functions, which show nothing")]
pub struct Surroundings<'a> {
    /// Where known records are.
    pub cache: &'a Cache,
    /// Words before the emulator's: a program that ends it when this process ends.
    pub guard: &'a [String],
    /// Whether to take a record from the cache.
    pub reuse: bool,
    /// Whether to end everything now.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Says what the user should know of a record beside how its guest ended.
    pub say: &'a (dyn Fn(&str) + Sync),
}

/// First line of what the emulator says of its version.
///
/// # Errors
///
/// There is no such emulator: with the command that gets it.
pub fn emulator_version(machine: &Machine) -> Result<String, LabError> {
    crate::tool::require(&[crate::tool::Need::of(&machine.program, &machine.package)])?;
    let said = crate::tool::output(Command::new(&machine.program).arg("--version"))?;
    Ok(said.lines().next().unwrap_or_default().to_owned())
}

/// What a guest has and does beside its plan.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// What it does.
    pub beside: GuestExtras,
    /// Further files: path in the guest, bytes, whether it can be run.
    pub files: Vec<(String, Vec<u8>, bool)>,
}

/// Packs a guest's file system for a kernel into a file of the cache that is named by its hash: its
/// path, its SHA-256, and what holds it there. Images that were not used for long go.
///
/// # Errors
///
/// The kernel's configuration can't be read, or the image not be written.
pub fn pack(
    kernel: &KernelUnderTest,
    program: &[u8],
    plan: &str,
    extra: Extra,
    cache: &Cache,
) -> Result<(PathBuf, String, ImageInUse), LabError> {
    let Extra { beside, mut files } = extra;
    if !beside.is_nothing() {
        files.push((guest::PATH.to_owned(), beside.to_toml().into_bytes(), false));
    }
    let config = match (&kernel.release, &kernel.config) {
        (Some(release), Some(path)) => {
            let text = fs::read(path).map_err(LabError::file("read", path))?;
            Some((release.clone(), text))
        }
        _ => None,
    };
    let contents =
        image::Contents { program: program.to_owned(), plan: plan.to_owned(), config, files };
    let bytes = image::write(&contents).map_err(LabError::file("pack", "the guest's files"))?;
    let hash = sha256(&bytes);
    let (path, held) = images::store(&cache.root().join(IMAGES), &hash, &bytes)?;
    Ok((path, hash, held))
}

impl GuestRun {
    fn command_line<'a>(
        &'a self,
        console: &'a Path,
        channel: &'a Path,
        log: Option<Log<'a>>,
    ) -> CommandLine<'a> {
        // The host's own CPUs unpack a kernel in no time, and start in more ways than emulated ones.
        let unpacked = self.kernel.unpacked.as_ref().filter(|_| self.spec.timing != Timing::Kvm);
        CommandLine {
            machine: &self.machine,
            spec: self.spec,
            kernel: unpacked.unwrap_or(&self.kernel.file),
            is_unpacked: unpacked.is_some(),
            image: &self.image,
            device_tree: self.kernel.device_tree.as_deref(),
            append: &self.kernel.append,
            console,
            channel,
            log,
            plugin: None,
        }
    }

    /// A log that is recorded to a file, where the emulator logs runs of this kind.
    fn recorded<'a>(&self, path: &'a Path) -> Option<Log<'a>> {
        self.spec.is_logged(&self.machine).then_some(Log::Record(path))
    }

    /// What the run is made of; the files of its record are not known yet.
    #[must_use]
    pub fn inputs(&self, emulator: &str) -> Inputs {
        let none = Path::new("");
        let mut arguments = self.command_line(none, none, self.recorded(none)).identity();
        if let Some(hash) = self.kernel.device_tree.as_deref().map(hash_of) {
            // Its bytes decide what the kernel finds; the kernel's own hash doesn't have them.
            arguments.push(format!("device tree sha256={}", hash.unwrap_or_default()));
        }
        arguments.extend(self.spec.aim_ns.map(|at_ns| format!("aim={at_ns}")));
        let key = key_of_run(&self.kernel.sha256, &self.image_sha256, emulator, &arguments);
        Inputs {
            format: FORMAT,
            key,
            kernel: self.kernel.reference.to_string(),
            kernel_file: self.kernel.file.clone(),
            kernel_sha256: self.kernel.sha256.clone(),
            image_sha256: self.image_sha256.clone(),
            machine: self.machine.name.clone(),
            spec: self.spec,
            emulator: emulator.to_owned(),
            arguments,
            whole: false,
            log_sha256: None,
            files: BTreeMap::new(),
        }
    }

    /// Whether KVM runs this guest at all: on some virtual machines it is there and hangs. Any text on the
    /// console within the limit is a yes.
    ///
    /// # Errors
    ///
    /// The emulator can't be started.
    pub fn speaks_under_kvm(
        &self,
        guard: &[String],
        cache: &Cache,
        limit: Duration,
    ) -> Result<bool, LabError> {
        let folder = cache.root().join(format!("probe-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(LabError::file("make", &folder))?;
        let (console, channel) = (folder.join(CONSOLE), folder.join("channel"));
        // A kernel is quiet until it mounts its first process; now it shall speak at once.
        let append = ["earlyprintk=serial", "ignore_loglevel"].map(str::to_owned);
        let line = self.command_line(&console, &channel, None);
        let spec = GuestSpec { timing: Timing::Kvm, ..self.spec };
        let line = CommandLine { spec, append: &append, ..line };
        let spoke = boot::speaks(&line, guard, limit);
        let _ = fs::remove_dir_all(&folder);
        spoke
    }

    /// Runs the guest into a folder that has no record, or takes its record from there or from the cache.
    ///
    /// # Errors
    ///
    /// Files, or an emulator that can't be started. What happens in the guest is no error.
    pub fn run(
        &self,
        emulator: &str,
        folder: &Path,
        around: &Surroundings<'_>,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<GuestOutcome, LabError> {
        links::refuse(folder)?;
        let inputs = self.inputs(emulator);
        if self.plugin.is_none()
            && let Some(known) = self.known(&inputs.key, folder, around)?
        {
            let (folder, ending) = (folder.to_owned(), Ending::Sent);
            return Ok(GuestOutcome { folder, ending, took: None, inputs: known });
        }
        fs::create_dir_all(folder).map_err(LabError::file("make", folder))?;
        disk::require(folder, RECORD_MIB, " with --out DIR")?;
        let log = Raw::in_folder(folder);
        let log_of = self.recorded(log.path());
        let outcome = self.boot(inputs, (log_of, self.plugin.as_ref()), folder, around, on_line)?;
        // It is packed by now; the cache shall not keep it a second time.
        drop(log);
        if outcome.ending == Ending::Sent && self.spec.timing.is_virtual() {
            kept::keep(folder, &kept::at(around.cache, &outcome.inputs.key), around.say)?;
        }
        Ok(outcome)
    }

    /// Makes the run of a record again from its log, into a folder. A plugin may watch it.
    ///
    /// # Errors
    ///
    /// The log can't be unpacked; and as [`GuestRun::run`].
    pub fn replay(
        &self,
        emulator: &str,
        record: &Path,
        folder: &Path,
        plugin: Option<&Plugin>,
        around: &Surroundings<'_>,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<GuestOutcome, LabError> {
        fs::create_dir_all(folder).map_err(LabError::file("make", folder))?;
        let log = Raw::unpack(&record.join(LOG), folder)?;
        let watched = (Some(Log::Replay(log.path())), plugin);
        self.boot(self.inputs(emulator), watched, folder, around, on_line)
    }

    /// The symbols of the guest's kernel, with those of the modules that it loads: the same guest is booted into a
    /// folder, and measures nothing.
    ///
    /// # Errors
    ///
    /// As [`GuestRun::run`]; and the guest sent none, with why.
    pub fn symbols(
        &self,
        emulator: &str,
        folder: &Path,
        around: &Surroundings<'_>,
    ) -> Result<String, LabError> {
        let mut run = self.clone();
        run.kernel.append.push("rtscope.symbols=1".to_owned());
        let inputs = run.inputs(emulator);
        fs::create_dir_all(folder).map_err(LabError::file("make", folder))?;
        let outcome = run.boot(inputs, (None, None), folder, around, &mut |_| {})?;
        if outcome.ending != Ending::Sent {
            let why = run.explain(&outcome.ending);
            return Err(LabError::NoRecord(format!("the guest sent no symbols: {why}")));
        }
        let path = folder.join(guest::SYMBOLS);
        let text = fs::read(&path).map_err(LabError::file("read", &path))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Whether the record of these inputs is there, so that no guest need be booted. Whether it is as it was is
    /// seen when it is taken.
    #[must_use]
    pub fn is_known(&self, key: &str, folder: &Path, cache: &Cache) -> bool {
        let there = read_inputs(folder).is_ok_and(|there| there.whole && there.key == key);
        there || self.spec.timing.is_virtual() && is_whole(&kept::at(cache, key))
    }

    /// The record that need not be made again: the folder's own, or the cache's, which is then copied there.
    fn known(
        &self,
        key: &str,
        folder: &Path,
        around: &Surroundings<'_>,
    ) -> Result<Option<Inputs>, LabError> {
        if let Ok(there) = read_inputs(folder)
            && around.reuse
            && there.whole
            && there.key == key
        {
            return Ok(Some(there));
        }
        let kept = kept::at(around.cache, key);
        if !around.reuse || !self.spec.timing.is_virtual() {
            return Ok(None);
        }
        let Ok(inputs) = read_inputs(&kept) else { return Ok(None) };
        let touched = recheck::touched(&kept, &inputs)?;
        if touched.is_empty() {
            // If the copy is interrupted, the guest's folder is known as a part of this record.
            fs::create_dir_all(folder).map_err(LabError::file("make", folder))?;
            Inputs { whole: false, ..inputs.clone() }.write(folder)?;
            kept::copy(&kept, folder)?;
            // It may have been asked for by another name then.
            let kernel = self.kernel.reference.to_string();
            let kernel_file = self.kernel.file.clone();
            let inputs = Inputs { kernel, kernel_file, ..inputs };
            inputs.write(folder)?;
            return Ok(Some(inputs));
        }
        let (kept_in, list) = (kept.display(), recheck::list(&touched));
        (around.say)(&format!(
            "the record that was kept in {kept_in} is no longer the one that its guest sent: {list}; the guest \
             runs again"
        ));
        fs::remove_dir_all(&kept).map_err(LabError::file("remove", &kept))?;
        Ok(None)
    }

    /// Refuses a kernel whose file is no longer the one that was looked at: somebody may build it anew while other
    /// guests run.
    fn check_kernel(&self) -> Result<(), LabError> {
        let file = &self.kernel.file;
        let is_booted = self.kernel.unpacked.is_none() || self.spec.timing == Timing::Kvm;
        if !is_booted || hash_of(file)? == self.kernel.sha256 {
            return Ok(());
        }
        Err(LabError::Refused(format!(
            "{} has changed since this command began: run the command again, with another --out",
            file.display()
        )))
    }

    /// The image with the instant to aim at, where there is one.
    fn with_aim(&self, folder: &Path) -> Result<Option<TemporaryFile>, LabError> {
        let Some(at_ns) = self.spec.aim_ns else { return Ok(None) };
        let path = folder.join("image.part");
        let mut bytes = fs::read(&self.image).map_err(LabError::file("read", &self.image))?;
        bytes.extend(image::aim(at_ns).map_err(LabError::file("pack", &path))?);
        fs::write(&path, bytes).map_err(LabError::file("write", &path))?;
        Ok(Some(TemporaryFile(path)))
    }

    /// Boots the guest and writes what it brings, with the run's log when that is recorded.
    fn boot(
        &self,
        mut inputs: Inputs,
        (log, plugin): (Option<Log<'_>>, Option<&Plugin>),
        folder: &Path,
        around: &Surroundings<'_>,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<GuestOutcome, LabError> {
        self.check_kernel()?;
        let (console, channel) = (folder.join(CONSOLE), folder.join("channel.part"));
        let with_aim = self.with_aim(folder)?;
        // From now on the folder says whose it is, and which of its files are the guest's.
        inputs.write(folder)?;
        let guest = boot::boot(&mut Boot {
            line: CommandLine {
                plugin,
                image: with_aim.as_ref().map_or(&self.image, |image| &image.0),
                ..self.command_line(&console, &channel, log)
            },
            guard: around.guard,
            silence: self.silence,
            first_word: FIRST_WORD,
            stuck: boot::STUCK,
            on_mute: &|| {
                let folder = folder.file_name().unwrap_or_default().display();
                (around.say)(&format!(
                    "{folder}: the kernel has printed nothing, though it had a CPU for {} s. {}. Ctrl-C ends it; \
                     otherwise rtscope ends it after {} s of silence (--silence)",
                    FIRST_WORD.as_secs(),
                    self.why_mute(),
                    self.silence.as_secs()
                ));
            },
            stop: around.stop,
            on_line,
        })?;
        let mut files = guest.files;
        files.retain(|name, _| !JUDGED_HERE.contains(&name.as_str()));
        if guest.ending == Ending::Sent && !files.contains_key(CONFIG) {
            // What a kernel doesn't show itself, its package tells.
            self.kernel.config.iter().try_for_each(|path| {
                packed(path).map(|bytes| drop(files.insert(CONFIG.to_owned(), bytes)))
            })?;
        }
        inputs.files = files.iter().map(|(name, bytes)| (name.clone(), sha256(bytes))).collect();
        inputs.write(folder)?;
        for (name, bytes) in &files {
            write(folder, name, bytes)?;
        }
        inputs.whole = guest.ending == Ending::Sent;
        if let Some(log) = log.filter(|_| inputs.whole) {
            if guest.in_order {
                inputs.files.insert(CONSOLE.to_owned(), hash_of(&console)?);
                inputs.log_sha256 = logged(log, folder)?;
            } else {
                let folder = folder.display();
                (around.say)(&format!(
                    "{folder}: the emulator did not exit cleanly, so this run has no log; `rtscope lab \
                     replay` compares the record with a fresh run"
                ));
            }
        }
        inputs.write(folder)?;
        let (ending, took) = (guest.ending, Some(guest.took));
        Ok(GuestOutcome { folder: folder.to_owned(), ending, took, inputs })
    }
}

/// A file that goes when this is dropped.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Puts a run's log into its folder; its hash.
fn logged(log: Log<'_>, folder: &Path) -> Result<Option<String>, LabError> {
    match log {
        Log::Record(raw) => {
            crate::replay_log::pack(raw, folder)?;
            hash_of(&folder.join(LOG)).map(Some)
        }
        Log::Replay(_) => Ok(None),
    }
}

fn hash_of(path: &Path) -> Result<String, LabError> {
    fs::read(path).map(|bytes| sha256(&bytes)).map_err(LabError::file("read", path))
}

/// A text file, packed the same way each time.
fn packed(path: &Path) -> Result<Vec<u8>, LabError> {
    let text = fs::read(path).map_err(LabError::file("read", path))?;
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(&text).map_err(LabError::file("pack", path))?;
    packer.finish().map_err(LabError::file("pack", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::no_record::samples;

    #[test]
    fn another_device_tree_is_another_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = folder.path().join("board.dtb");
        let key = |bytes: &[u8]| {
            fs::write(&tree, bytes).expect("written");
            let mut run = samples::run(folder.path(), &[], None);
            run.kernel.device_tree = Some(tree.clone());
            run.inputs("7.2").key
        };
        assert_eq!(key(b"one"), key(b"one"));
        assert_ne!(key(b"one"), key(b"another"));
    }

    #[test]
    fn a_kernel_that_was_built_anew_while_others_ran_is_not_booted() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut run = samples::run(folder.path(), &[], None);
        run.kernel.sha256 = hash_of(&run.kernel.file).expect("there");
        run.check_kernel().expect("the one that was looked at");
        fs::write(&run.kernel.file, "another kernel").expect("written");
        let said = run.check_kernel().expect_err("another").to_string();
        assert!(said.contains("bzImage has changed since this command began"), "{said}");
        // What boots is a copy.
        run.kernel.unpacked = Some(folder.path().join("vmlinux"));
        run.check_kernel().expect("its file is not booted");
        run.spec.timing = Timing::Kvm;
        run.check_kernel().expect_err("KVM boots the file");
    }
}
