//! The end of a system: power off or reboot, and what the kernel says on its console.

/// How a system ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemEnd {
    /// Power off; a machine without a power switch halts.
    PowerOff,
    /// Reboot; an emulator that was told not to reboot ends.
    Reboot,
}

/// Ends the system at once: nothing is written to disks, no process is asked. Returns only when the
/// kernel refuses.
pub fn end_system(end: SystemEnd) -> std::io::Error {
    let word = match end {
        SystemEnd::PowerOff => libc::RB_POWER_OFF,
        SystemEnd::Reboot => libc::RB_AUTOBOOT,
    };
    // SAFETY: plain integers.
    unsafe { libc::reboot(word) };
    std::io::Error::last_os_error()
}
