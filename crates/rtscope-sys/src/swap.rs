//! Swap devices and files: in use, or not.

use std::ffi::CString;

use crate::error::{Error, check};

/// Priorities that the caller of `swapon` can choose; the kernel gives out negative ones by itself.
const PRIORITY_MASK: i32 = 0x7fff;

/// Flag of `swapon(2)`: the low bits are a priority.
const PREFER: i32 = 0x8000;

fn path_of(path: &str) -> Result<CString, Error> {
    CString::new(path).map_err(|_| Error::Call {
        call: "swap".to_owned(),
        source: std::io::Error::from(std::io::ErrorKind::InvalidInput),
    })
}

/// Swaps to a device or file. With a negative priority, the kernel chooses one.
///
/// # Errors
///
/// What the kernel answers: EPERM without root, EINVAL for a file without a swap area.
pub fn on(path: &str, priority: i32) -> Result<(), Error> {
    let c_path = path_of(path)?;
    let flags = if priority < 0 { 0 } else { PREFER | (priority & PRIORITY_MASK) };
    // SAFETY: the pointer is a terminated text that lives as long as the call.
    let answer = unsafe { libc::swapon(c_path.as_ptr(), flags) };
    check(answer, || format!("swapon {path}")).map(drop)
}

/// Stops swapping to a device or file, which brings all that is on it back into memory.
///
/// # Errors
///
/// What the kernel answers: ENOMEM where memory has no room for it.
pub fn off(path: &str) -> Result<(), Error> {
    let c_path = path_of(path)?;
    // SAFETY: the pointer is a terminated text that lives as long as the call.
    let answer = unsafe { libc::swapoff(c_path.as_ptr()) };
    check(answer, || format!("swapoff {path}")).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_swap_area_is_refused() {
        assert!(on("/proc/version", 1).is_err());
        assert!(off("/proc/version").is_err());
        assert!(on("a\0b", 1).is_err());
    }
}
