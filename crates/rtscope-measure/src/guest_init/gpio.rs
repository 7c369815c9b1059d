//! A simulated GPIO chip in the guest: made through configfs, each line pulled up and down through
//! sysfs and read back through the character device.
//!
//! It shows that a guest's kernel can stand in for a board's lines. It shows nothing of how fast a
//! board's chip is: the simulated one is memory.

use std::{fmt::Write as _, fs, path::Path, thread, time::Duration};

use gpiocdev::{
    Request,
    line::{Offset, Value, Values},
};
use rtscope_model::guest::GPIO_LABEL;
use rtscope_sys::{clock::SystemClock, mount::mount, tree::Tree};

use crate::wave::{
    generator::{self, Alarm, Method, Wanted},
    gpio::{InputLine, OutputLine, collect},
    line::{Address, WaveOutput as _, open_output},
    scope::CaptureLimits,
};

/// Lines of a chip in one request, at most.
const LINES_MAX: u32 = 64;

const CONFIGFS: &str = "/sys/kernel/config";

/// The chip's folder in configfs.
const CHIP: &str = "/sys/kernel/config/gpio-sim/rtscope";

/// A chip that was made.
pub(super) struct Chip {
    /// The kernel's name of it.
    name: String,
    /// The device that it belongs to.
    device: String,
    /// Its folder in sysfs.
    folder: String,
}

pub(super) fn make(lines: u32) -> Result<Chip, String> {
    if lines == 0 || lines > LINES_MAX {
        return Err(format!("{lines} lines: write 1 to {LINES_MAX}"));
    }
    // A kernel without it says so by the next step.
    let _ = mount("configfs", Path::new(CONFIGFS));
    let bank = format!("{CHIP}/bank0");
    fs::create_dir_all(&bank).map_err(|e| {
        format!("{bank}: {e}: the kernel lacks CONFIG_CONFIGFS_FS or CONFIG_GPIO_SIM")
    })?;
    put(&format!("{bank}/num_lines"), &lines.to_string())?;
    put(&format!("{bank}/label"), GPIO_LABEL)?;
    put(&format!("{CHIP}/live"), "1")?;
    let device = get(&format!("{CHIP}/dev_name"))?;
    let name = get(&format!("{bank}/chip_name"))?;
    let folder = format!("/sys/devices/platform/{device}/{name}");
    Ok(Chip { name, device, folder })
}

/// Makes the chip and tries every line; what was found, a line of text for each.
pub(super) fn make_and_try(lines: u32) -> Result<String, String> {
    let Chip { name: chip, device, folder } = make(lines)?;
    let mut said = format!("{chip} of {device}: {lines} lines\n");
    said += &pull_each(&chip, &folder, lines)?;
    if lines >= 2 {
        said += &as_wave(&chip, &folder)?;
        said += &removed(&chip, &folder)?;
    }
    Ok(said)
}

/// Pulls each line up and down, and reads it back.
fn pull_each(chip: &str, folder: &str, lines: u32) -> Result<String, String> {
    let offsets: Vec<Offset> = (0..lines).collect();
    let mut builder = Request::builder();
    builder.on_chip(Path::new("/dev").join(chip)).with_consumer("rtscope").with_lines(&offsets);
    let inputs = builder.as_input().request().map_err(|e| e.to_string())?;
    let mut said = String::new();
    for line in 0..lines {
        let pull = format!("{folder}/sim_gpio{line}/pull");
        for (word, wanted) in [("pull-up", 1), ("pull-down", 0), ("pull-up", 1)] {
            put(&pull, word)?;
            let mut values = Values::from_offsets(&offsets);
            inputs.values(&mut values).map_err(|e| e.to_string())?;
            let read = u32::from(values.get(line) == Some(Value::Active));
            let _ = writeln!(said, "line {line} {word}: {read}");
            if read != wanted {
                return Err(format!("line {line} reads {read} after {word}"));
            }
        }
    }
    Ok(said)
}

/// Edges that each try makes.
const EDGES: u32 = 200;

/// More than the kernel keeps for us.
const FLOOD: u32 = 3_000;

/// Changes the input, looks at it, and says how many edges were seen and lost; the lost ones.
///
/// The rest were merged: the interrupt's thread numbers edges, and takes those that came before it ran as one.
fn look(what: &str, chip: &str, folder: &str, made: u32) -> Result<(String, u64), String> {
    let mut input = InputLine::open(chip, "1", &Tree::default()).map_err(|e| e.to_string())?;
    toggle(folder, made)?;
    let (capture, ended) = collect(&mut input, "gpio", &SystemClock::MONOTONIC, LIMITS);
    if let Some(why) = ended {
        return Err(format!("{what}: {why}"));
    }
    let (seen, lost) = (capture.edges.len(), capture.made_in_gaps.unwrap_or(0));
    let told = format!("{what}: {made} made, {seen} seen, {lost} lost");
    match u64::from(made).checked_sub(seen as u64 + lost) {
        Some(merged) if seen > 0 => Ok((format!("{told}, {merged} merged\n"), lost)),
        _ => Err(told),
    }
}

/// The wave's own code on the chip: a line driven by the generator, edges stamped by the kernel, a buffer
/// that overflows, a line in use. Line 0 is the output, line 1 the input, which is pulled from outside.
fn as_wave(chip: &str, folder: &str) -> Result<String, String> {
    let (tree, clock) = (Tree::default(), SystemClock::MONOTONIC);
    let address = Address::Gpio(chip.to_owned(), "0".to_owned());
    let mut output = open_output(&address, &tree).map_err(|e| e.to_string())?;
    let mut said = String::new();
    for (high, wanted) in [(true, "1"), (false, "0")] {
        output.set(high);
        let read = get(&format!("{folder}/sim_gpio0/value"))?;
        let _ = writeln!(said, "line 0 driven to {wanted}: {read}");
        if read != wanted {
            return Err(format!("line 0 is {read} and not {wanted}"));
        }
    }
    let wanted = Wanted::new(1_000.0, 0.5, 50_000_000).map_err(|e| e.to_string())?;
    let mut alarm = Alarm { limit_ns: None, line: None };
    let made =
        generator::make(&mut output, &clock, &wanted, Method::Absolute, &mut alarm, &|| false);
    let _ = writeln!(
        said,
        "generated: {} edges, {} missed, {} refused",
        made.edges, made.missed, made.failures
    );
    let held = OutputLine::open(chip, "0", &tree).err().map(|e| e.to_string()).unwrap_or_default();
    let _ = writeln!(said, "in use: {held}");
    if !held.contains("in use by \"rtscope\"")
        || made.failures > 0
        || made.edges + made.missed != 100
    {
        return Err(said);
    }
    put(&format!("{folder}/sim_gpio1/pull"), "pull-down")?;
    said += &look("edges", chip, folder, EDGES)?.0;
    let (flood, lost) = look("overflow", chip, folder, FLOOD)?;
    if lost == 0 {
        return Err(format!("the kernel's buffer did not overflow: {flood}"));
    }
    said += &flood;
    Ok(said)
}

/// The chip goes while it is looked at.
fn removed(chip: &str, folder: &str) -> Result<String, String> {
    let mut input = InputLine::open(chip, "1", &Tree::default()).map_err(|e| e.to_string())?;
    toggle(folder, EDGES)?;
    put(&format!("{CHIP}/live"), "0")?;
    let (capture, ended) = collect(&mut input, "gpio", &SystemClock::MONOTONIC, LIMITS);
    drop(input);
    // It comes back for whoever is next.
    put(&format!("{CHIP}/live"), "1")?;
    // What the kernel had kept may go with the chip: then no edge is seen, and none is invented.
    let seen = capture.edges.len();
    let why = ended.unwrap_or_else(|| "no word of it".to_owned());
    if seen > EDGES as usize {
        return Err(format!("{seen} edges of {EDGES} after the chip went"));
    }
    Ok(format!("removed: {seen} of {EDGES} edges seen; {why}\n"))
}

/// How long to look: events that were made before wait in the kernel.
const LIMITS: CaptureLimits =
    CaptureLimits { duration_ns: 50_000_000, edges_max: 100_000, gaps_max: 10_000, rest: None };

/// The pause between two changes, in which the thread of the line's interrupt can run.
const PAUSE: Duration = Duration::from_micros(100);

/// Pulls line 1 up and down, an even number of times.
fn toggle(folder: &str, edges: u32) -> Result<(), String> {
    let pull = format!("{folder}/sim_gpio1/pull");
    (0..edges).try_for_each(|n| {
        put(&pull, if n % 2 == 0 { "pull-up" } else { "pull-down" })?;
        thread::sleep(PAUSE);
        Ok(())
    })
}

fn put(path: &str, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{path}: {e}"))
}

fn get(path: &str) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    Ok(text.trim().to_owned())
}
