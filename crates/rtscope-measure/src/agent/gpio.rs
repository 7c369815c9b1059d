//! A simulated GPIO chip in the guest: made through configfs, each line pulled up and down through
//! sysfs and read back through the character device.
//!
//! It shows that a guest's kernel can stand in for a board's lines. It shows nothing of how fast a
//! board's chip is: the simulated one is memory.

use std::{fmt::Write as _, fs, path::Path};

use rtscope_sys::{
    gpio::{Inputs, LINES_MAX},
    mount::mount,
};

const CONFIGFS: &str = "/sys/kernel/config";

/// The chip's folder in configfs.
const CHIP: &str = "/sys/kernel/config/gpio-sim/rtscope";

/// Makes the chip and tries every line; what was found, a line of text for each.
pub(super) fn make_and_try(lines: u32) -> Result<String, String> {
    if lines == 0 || lines as usize > LINES_MAX {
        return Err(format!("gpio-sim: {lines} lines: write 1 to {LINES_MAX}"));
    }
    // A kernel without it says so by the next step.
    let _ = mount("configfs", Path::new(CONFIGFS));
    let bank = format!("{CHIP}/bank0");
    fs::create_dir_all(&bank).map_err(|e| {
        format!("gpio-sim: {bank}: {e}: the kernel lacks CONFIG_CONFIGFS_FS or CONFIG_GPIO_SIM")
    })?;
    put(&format!("{bank}/num_lines"), &lines.to_string())?;
    put(&format!("{CHIP}/live"), "1")?;
    let device = get(&format!("{CHIP}/dev_name"))?;
    let chip = get(&format!("{bank}/chip_name"))?;
    let inputs =
        Inputs::open(&Path::new("/dev").join(&chip), lines as usize).map_err(|e| e.to_string())?;
    let mut said = format!("{chip} of {device}: {lines} lines\n");
    for line in 0..lines {
        let pull = format!("/sys/devices/platform/{device}/{chip}/sim_gpio{line}/pull");
        for (word, wanted) in [("pull-up", 1), ("pull-down", 0), ("pull-up", 1)] {
            put(&pull, word)?;
            let read = inputs.read().map_err(|e| e.to_string())? >> line & 1;
            let _ = writeln!(said, "line {line} {word}: {read}");
            if read != wanted {
                return Err(format!("gpio-sim: line {line} reads {read} after {word}"));
            }
        }
    }
    Ok(said)
}

fn put(path: &str, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("gpio-sim: {path}: {e}"))
}

fn get(path: &str) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("gpio-sim: {path}: {e}"))?;
    Ok(text.trim().to_owned())
}
