//! The run of a record replayed while a plugin of the emulator writes which instructions came before late wake-ups.
//!
//! The replay is the run itself, to the bit, so the look costs the guest nothing. That is checked: a replay that gives
//! another record explains nothing.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use rtscope_model::guest::Timing;

use crate::{
    boot::Ending,
    cache::{Cache, write_file},
    digest::key_of,
    emulator_plugin::{self, PluginSource},
    error::LabError,
    guest_run::{GuestRun, Surroundings},
    qemu::Plugin,
    replay::{Replay, Replayed, Temporary, Way},
};

/// Architectures whose instructions rtscope reads, as the kernel calls them.
const ARCHITECTURES: [&str; 2] = ["x86_64", "arm64"];

/// What a replay showed.
#[derive(Debug)]
pub struct WatchedReplay {
    /// What the plugin wrote.
    pub instructions: Vec<u8>,
    /// The text of the guest's `/proc/kallsyms`.
    pub symbols: String,
    /// The architecture of the guest, as the kernel calls it.
    pub arch: String,
    /// An instruction takes `2^shift` ns.
    pub shift: u8,
    /// The emulator's version.
    pub emulator: String,
    /// Files of the record that the replay gave again, to the byte.
    pub files: usize,
}

/// Replays the run of a record and looks at wake-ups from this latency on.
///
/// # Errors
///
/// The run can't be replayed from its log, with what to do; [`LabError::NoPlugin`]; the replay gave another record; or
/// files.
pub fn look(
    record: &Path,
    above_ns: u64,
    cache: &Cache,
    guard: &[String],
    stop: &(dyn Fn() -> bool + Sync),
    on_line: &mut dyn FnMut(&str),
) -> Result<WatchedReplay, LabError> {
    let replay = Replay::open(record, false, cache)?;
    let refused = |why: String| {
        LabError::Refused(format!(
            "{}: {why}. rtscope can only explain a run that it can replay from its log",
            record.display()
        ))
    };
    if replay.way != Way::Log {
        return Err(refused(replay.why.unwrap_or_default()));
    }
    let guest = replay.guest();
    let Timing::Virtual { shift } = guest.spec.timing else {
        return Err(refused("the guest used the host's clock".to_owned()));
    };
    let arch = guest.kernel.arch.clone();
    if !ARCHITECTURES.contains(&arch.as_str()) {
        return Err(LabError::Refused(format!(
            "{}: rtscope reads the instructions of x86-64 and arm64 only, and this guest is {arch}. With --events, it \
             uses the kernel's events instead",
            record.display()
        )));
    }
    let folder = Temporary(cache.root().join(format!("explain-{}", std::process::id())));
    let _ = fs::remove_dir_all(&folder.0);
    fs::create_dir_all(&folder.0).map_err(LabError::file("make", &folder.0))?;
    let out = folder.0.join("instructions");
    let file =
        emulator_plugin::loadable(PluginSource::Blocks, cache, &guest.machine.program, &out)?;
    let plugin = Plugin { file, out, shift, above_ns, more: Vec::new() };
    let files = match replay.run_watched(Some(&plugin), cache, guard, stop, on_line)? {
        Replayed::Equal(files) => files,
        Replayed::Different(text, kept) => {
            return Err(LabError::Refused(format!(
                "the replay gave another record, so it doesn't explain this one. {text}Its files are in {}",
                kept.display()
            )));
        }
    };
    let instructions = fs::read(&plugin.out).map_err(LabError::file("read", &plugin.out))?;
    let around = Surroundings { cache, guard, reuse: false, stop, say: &|_| {} };
    let symbols = symbols(replay.guest(), replay.emulator(), &folder.0.join("symbols"), &around)?;
    let emulator = replay.emulator().to_owned();
    Ok(WatchedReplay { instructions, symbols, arch, shift, emulator, files })
}

/// Runs the guest of a record once more, while it records its kernel's events: the new record's folder, beside the
/// old one. It is another run: what the guest records takes instructions.
///
/// # Errors
///
/// The run can't be made again, the guest brought no record, or files.
pub fn run_with_events(
    record: &Path,
    cache: &Cache,
    guard: &[String],
    stop: &(dyn Fn() -> bool + Sync),
    on_line: &mut dyn FnMut(&str),
) -> Result<PathBuf, LabError> {
    let replay = Replay::open(record, true, cache)?;
    let mut run = replay.guest().clone();
    run.spec.events = true;
    let mut name = record.file_name().unwrap_or_default().to_owned();
    name.push(".events");
    let folder = record.with_file_name(name);
    let around = Surroundings { cache, guard, reuse: true, stop, say: &|_| {} };
    let outcome = run.run(replay.emulator(), &folder, &around, on_line)?;
    match outcome.ending {
        Ending::Sent => Ok(folder),
        ending => {
            let why = run.explain(&ending);
            Err(LabError::NoRecord(format!("the guest sent no record: {why}")))
        }
    }
}

/// The symbols of a guest, from the cache or put there.
pub(crate) fn symbols(
    guest: &GuestRun,
    emulator: &str,
    folder: &Path,
    around: &Surroundings<'_>,
) -> Result<String, LabError> {
    let key = key_of(&[
        ("kernel", guest.kernel.sha256.as_bytes()),
        ("words", guest.kernel.append.join(" ").as_bytes()),
        ("image", guest.image_sha256.as_bytes()),
    ]);
    let room = around.cache.root().join("symbols");
    let path = room.join(format!("{key}.gz"));
    if let Some(text) = read_packed(&path) {
        return Ok(text);
    }
    let text = guest.symbols(emulator, folder, around)?;
    fs::create_dir_all(&room).map_err(LabError::file("make", &room))?;
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    let packed = packer.write_all(text.as_bytes()).and_then(|()| packer.finish());
    packed.and_then(|packed| write_file(&path, &packed)).map_err(LabError::file("write", &path))?;
    Ok(text)
}

fn read_packed(path: &Path) -> Option<String> {
    let mut text = String::new();
    GzDecoder::new(File::open(path).ok()?).read_to_string(&mut text).ok()?;
    Some(text)
}
