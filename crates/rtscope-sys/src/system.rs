//! The running system's own constants.

/// The machine word of the running kernel, as `uname -m` prints it: `aarch64` even when this program
/// is a 32-bit one.
#[must_use]
pub fn machine() -> String {
    // SAFETY: utsname is arrays of characters; all zeroes is a value of it.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for one utsname; the call can't fail for a valid pointer.
    unsafe { libc::uname(&raw mut names) };
    let bytes: Vec<u8> = names.machine.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Clock ticks in a second (`USER_HZ`): the unit of CPU times in `/proc`, mostly 100.
#[must_use]
pub fn ticks_per_second() -> u64 {
    // SAFETY: plain integers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// Flag of `open(2)`: reading doesn't wait.
pub const NONBLOCK: i32 = libc::O_NONBLOCK;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_its_machine() {
        let machine = machine();
        assert!(!machine.is_empty() && machine.is_ascii(), "{machine:?}");
        if cfg!(target_arch = "x86_64") {
            assert_eq!(machine, "x86_64");
        }
    }

    #[test]
    fn a_tick_divides_a_second() {
        assert_eq!(1_000_000_000 % ticks_per_second(), 0);
    }
}
