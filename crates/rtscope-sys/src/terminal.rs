//! Terminal lines as plain channels of bytes.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::{Error, check};

/// Switches a terminal's processing off: bytes go through as they are.
///
/// # Errors
///
/// ENOTTY when it is no terminal.
pub fn make_raw(line: BorrowedFd<'_>) -> Result<(), Error> {
    let fd = line.as_raw_fd();
    // SAFETY: termios is plain integers; all zeroes is a value of it.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for one termios.
    let answer = unsafe { libc::tcgetattr(fd, &raw mut settings) };
    check(i64::from(answer), || "tcgetattr".to_owned())?;
    // SAFETY: the pointer is valid for one termios.
    unsafe { libc::cfmakeraw(&raw mut settings) };
    settings.c_cflag |= libc::CLOCAL;
    // SAFETY: the pointer is valid for one termios.
    let answer = unsafe { libc::tcsetattr(fd, libc::TCSANOW, &raw const settings) };
    check(i64::from(answer), || "tcsetattr raw".to_owned()).map(drop)
}

/// Waits until everything that was written has left the line.
///
/// # Errors
///
/// ENOTTY when it is no terminal.
pub fn drain(line: BorrowedFd<'_>) -> Result<(), Error> {
    // SAFETY: plain integers.
    let answer = unsafe { libc::tcdrain(line.as_raw_fd()) };
    check(i64::from(answer), || "tcdrain".to_owned()).map(drop)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd};

    use super::*;

    #[test]
    fn what_is_no_terminal_is_refused() {
        let file = File::open("/dev/null").expect("there");
        let error = make_raw(file.as_fd()).expect_err("no terminal");
        assert_eq!(error.errno(), Some(libc::ENOTTY));
    }
}
