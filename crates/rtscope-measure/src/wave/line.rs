//! Lines that a program raises and lowers, by their address: `memory:NAME`, one word in shared memory;
//! `gpio:CHIP/LINE`, a line of a GPIO chip; `led:NAME`, the brightness of an LED in sysfs.

use std::{
    fmt,
    fs::{self, File},
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::Path,
    str::FromStr,
};

use rtscope_sys::{line::MemoryLine, tree::Tree};

use super::{WaveError, gpio::OutputLine};

/// A line that can be raised and lowered.
pub trait WaveOutput {
    /// Raises or lowers it. What goes wrong after the start is for [`WaveOutput::failures`].
    fn set(&mut self, high: bool);
    /// How many times a level could not be set.
    fn failures(&self) -> u64;
}

/// Where a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A word in shared memory.
    Memory(String),
    /// A line of a GPIO chip: the chip's name or label, the line's number or name.
    Gpio(String, String),
    /// An LED of the system.
    Led(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Memory(name) => write!(f, "memory:{name}"),
            Address::Gpio(chip, line) => write!(f, "gpio:{chip}/{line}"),
            Address::Led(name) => write!(f, "led:{name}"),
        }
    }
}

impl FromStr for Address {
    type Err = WaveError;

    fn from_str(text: &str) -> Result<Address, WaveError> {
        let bad = || WaveError::Address(text.to_owned());
        let (kind, name) = text.split_once(':').ok_or_else(bad)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        match kind {
            "memory" if !name.is_empty() && name.len() <= 64 && name.chars().all(is_plain) => {
                Ok(Address::Memory(name.to_owned()))
            }
            "gpio" => {
                let (chip, line) = name.rsplit_once('/').ok_or_else(bad)?;
                let is_name = |text: &str| !text.is_empty() && !text.contains("..");
                if !is_name(chip) || !is_name(line) {
                    return Err(bad());
                }
                Ok(Address::Gpio(chip.to_owned(), line.to_owned()))
            }
            // LED names have colons and dots in them, but are one file name.
            "led" if !name.is_empty() && !name.contains('/') && !name.starts_with('.') => {
                Ok(Address::Led(name.to_owned()))
            }
            _ => Err(bad()),
        }
    }
}

pub fn open_memory(name: &str) -> Result<MemoryLine, WaveError> {
    MemoryLine::open(Path::new(MemoryLine::FOLDER), name)
        .map_err(|source| WaveError::Line { line: format!("memory:{name}"), source })
}

/// Removes a memory line's file unless another process uses it: what comes last takes the line along. A program
/// of another user that this one can't look into isn't seen; the file is then not ours to remove either.
pub fn remove_unused(line: &MemoryLine) {
    if !is_used_by_others(line.path()) {
        let _ = fs::remove_file(line.path());
    }
}

/// Whether another process has mapped or opened a file.
fn is_used_by_others(path: &Path) -> bool {
    let own = std::process::id();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut others = processes.filter(|entry| {
        let pid: Option<u32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        pid.is_some_and(|pid| pid != own)
    });
    others.any(|process| {
        let maps = fs::read(process.path().join("maps")).unwrap_or_default();
        let ends = |line: &[u8]| line.ends_with(path.as_os_str().as_bytes());
        let is_open = |fd: fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|to| to == path);
        maps.split(|byte| *byte == b'\n').any(ends)
            || fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten().any(is_open)
    })
}

/// Opens a line to make a wave on it: it is low then.
///
/// # Errors
///
/// When there is no such line, or no permission.
pub fn open_output(address: &Address, tree: &Tree) -> Result<Output, WaveError> {
    match address {
        Address::Memory(name) => {
            let line = open_memory(name)?;
            line.reset();
            Ok(Output::Memory(line))
        }
        Address::Gpio(chip, line) => {
            Ok(Output::Gpio { line: OutputLine::open(chip, line, tree)?, failures: 0 })
        }
        Address::Led(name) => open_led(name, tree),
    }
}

fn open_led(name: &str, tree: &Tree) -> Result<Output, WaveError> {
    const LEDS: &str = "sys/class/leds";
    let there = tree.list(LEDS);
    if !there.iter().any(|led| led == name) {
        return Err(WaveError::Absent { what: format!("LED {name}"), there });
    }
    let folder = Path::new(LEDS).join(name);
    let refused = |source| WaveError::Line { line: format!("led:{name}"), source };
    let max = tree.read(folder.join("max_brightness")).map_err(refused)?;
    // A trigger (heartbeat, disk activity) drives the LED too: the kernel's "consumer" of it.
    let trigger = tree.read(folder.join("trigger")).unwrap_or_default();
    let active =
        trigger.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    if let Some(consumer) = active.filter(|word| *word != "none") {
        let path = tree.path(folder.join("trigger"));
        let why =
            format!("the trigger {consumer:?} holds this LED: echo none > {}", path.display());
        let source =
            rtscope_sys::Error::File { operation: "use", path, source: std::io::Error::other(why) };
        return Err(refused(source));
    }
    let path = tree.path(folder.join("brightness"));
    let file = File::options()
        .write(true)
        .open(&path)
        .map_err(|source| refused(rtscope_sys::Error::File { operation: "open", path, source }))?;
    let mut led = Output::Led { file, on: max.into_bytes(), failures: 0 };
    led.set(false);
    Ok(led)
}

/// A line that a wave is made on.
#[derive(Debug)]
pub enum Output {
    /// A word in shared memory, with its count of changes.
    Memory(MemoryLine),
    /// A line of a GPIO chip.
    Gpio {
        line: OutputLine,
        /// Levels that the kernel refused.
        failures: u64,
    },
    /// The brightness file of an LED.
    Led {
        file: File,
        /// What is written for high.
        on: Vec<u8>,
        /// Writes that failed.
        failures: u64,
    },
}

impl Output {
    /// Leaves a line whose wave has ended: a word in shared memory goes, unless somebody still looks at it.
    pub fn release(self) {
        if let Output::Memory(line) = &self {
            remove_unused(line);
        }
    }
}

impl WaveOutput for Output {
    #[inline]
    fn set(&mut self, high: bool) {
        match self {
            Output::Memory(line) => {
                line.set(high);
                line.count_change();
            }
            Output::Gpio { line, failures } => *failures += u64::from(!line.set(high)),
            Output::Led { file, on, failures } => {
                let text: &[u8] = if high { on } else { b"0" };
                *failures += u64::from(file.write_at(text, 0).is_err());
            }
        }
    }

    fn failures(&self) -> u64 {
        match self {
            Output::Memory(_) => 0,
            Output::Gpio { failures, .. } | Output::Led { failures, .. } => *failures,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn addresses_are_read_and_written_back() {
        for text in [
            "memory:a",
            "memory:left-2_x",
            "led:input3::capslock",
            "led:beaglebone:green:usr0",
            "gpio:gpiochip0/17",
            "gpio:pinctrl-bcm2711/GPIO17",
        ] {
            assert_eq!(text.parse::<Address>().expect("an address").to_string(), text);
        }
        for wrong in [
            "",
            "a",
            "memory:",
            "memory:../x",
            "memory:a b",
            "led:a/b",
            "led:..",
            "pin:3",
            "gpio:gpiochip0",
            "gpio:/3",
            "gpio:a/",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong:?}");
        }
    }

    fn leds() -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, trigger) in [("usr0", "none [heartbeat] mmc0"), ("usr1", "[none] mmc0")] {
            let led = folder.path().join("sys/class/leds").join(name);
            fs::create_dir_all(&led).expect("a folder");
            for (file, text) in
                [("trigger", trigger), ("max_brightness", "255"), ("brightness", "9  ")]
            {
                fs::write(led.join(file), text).expect("written");
            }
        }
        let tree = Tree::under(folder.path());
        (folder, tree)
    }

    #[test]
    fn an_led_is_as_bright_as_it_can_be_or_dark() {
        let (folder, tree) = leds();
        let mut led = open_output(&Address::Led("usr1".to_owned()), &tree).expect("free");
        let brightness = folder.path().join("sys/class/leds/usr1/brightness");
        let read = || fs::read_to_string(&brightness).expect("a file");
        assert!(read().starts_with('0'));
        led.set(true);
        assert_eq!((read().trim(), led.failures()), ("255", 0));
    }

    #[test]
    fn an_error_names_what_there_is_and_who_holds_it() {
        let (_folder, tree) = leds();
        let absent = open_output(&Address::Led("usr7".to_owned()), &tree).expect_err("absent");
        assert_eq!(absent.to_string(), "there is no LED usr7; there are usr0, usr1");
        let held = open_output(&Address::Led("usr0".to_owned()), &tree).expect_err("held");
        assert!(held.to_string().contains("\"heartbeat\" holds"), "{held}");
        let none = open_output(&Address::Led("x".to_owned()), &Tree::under("/nowhere"));
        assert_eq!(
            none.expect_err("absent").to_string(),
            "there is no LED x: the system has none. Without hardware, use memory:NAME"
        );
    }
}
