//! Lines of a GPIO chip through its character device: `linux/gpio.h`, version 2.

use std::{
    fs::File,
    os::fd::{AsRawFd, FromRawFd},
    path::Path,
};

use crate::error::{Error, check};

/// Lines in one request, at most (`GPIO_V2_LINES_MAX`).
pub const LINES_MAX: usize = 64;

/// `GPIO_V2_LINE_FLAG_INPUT`.
const INPUT: u64 = 1 << 2;

/// `struct gpio_v2_line_attribute` and the lines that it is for.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attribute {
    id: u32,
    padding: u32,
    value: u64,
    mask: u64,
}

/// `struct gpio_v2_line_request`, with its `gpio_v2_line_config` in the middle.
#[repr(C)]
struct Request {
    offsets: [u32; LINES_MAX],
    consumer: [u8; 32],
    flags: u64,
    num_attrs: u32,
    config_padding: [u32; 5],
    attrs: [Attribute; 10],
    num_lines: u32,
    event_buffer_size: u32,
    padding: [u32; 5],
    fd: i32,
}

/// `struct gpio_v2_line_values`.
#[repr(C)]
struct Values {
    bits: u64,
    mask: u64,
}

/// Number of an ioctl that hands a structure both ways: `_IOWR(0xB4, number, T)` of `asm-generic`.
const fn both_ways<T>(number: u32) -> u32 {
    3 << 30 | (size_of::<T>() as u32) << 16 | 0xB4 << 8 | number
}

/// Lines of a chip that are read.
#[derive(Debug)]
pub struct Inputs {
    lines: File,
    count: usize,
}

impl Inputs {
    /// Asks for the first `count` lines of a chip, as `/dev/gpiochip0`.
    ///
    /// # Errors
    ///
    /// The device can't be opened; EINVAL when the chip has fewer lines, EBUSY when one of them is in
    /// use, ENOTTY when it is no GPIO chip.
    ///
    /// # Panics
    ///
    /// When `count` is above [`LINES_MAX`].
    pub fn open(chip: &Path, count: usize) -> Result<Inputs, Error> {
        assert!(count <= LINES_MAX, "{count} lines");
        let device = File::open(chip).map_err(|source| Error::File {
            operation: "open",
            path: chip.to_owned(),
            source,
        })?;
        let nothing = Attribute { id: 0, padding: 0, value: 0, mask: 0 };
        let mut request = Request {
            offsets: std::array::from_fn(|i| if i < count { i as u32 } else { 0 }),
            consumer: [0; 32],
            flags: INPUT,
            num_attrs: 0,
            config_padding: [0; 5],
            attrs: [nothing; 10],
            num_lines: count as u32,
            event_buffer_size: 0,
            padding: [0; 5],
            fd: -1,
        };
        request.consumer[..7].copy_from_slice(b"rtscope");
        // SAFETY: the descriptor is open and the structure is that of the ioctl's number, of the size
        // that is part of the number; the kernel writes nothing beyond it.
        let answer = unsafe {
            libc::ioctl(device.as_raw_fd(), both_ways::<Request>(0x07) as _, &raw mut request)
        };
        check(i64::from(answer), || format!("GPIO_V2_GET_LINE of {}", chip.display()))?;
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        let lines = unsafe { File::from_raw_fd(request.fd) };
        Ok(Inputs { lines, count })
    }

    /// The lines' values, one bit each, the first line lowest.
    ///
    /// # Errors
    ///
    /// The chip is gone.
    pub fn read(&self) -> Result<u64, Error> {
        let mask = if self.count == LINES_MAX { u64::MAX } else { (1 << self.count) - 1 };
        let mut values = Values { bits: 0, mask };
        // SAFETY: as for the request.
        let answer = unsafe {
            libc::ioctl(self.lines.as_raw_fd(), both_ways::<Values>(0x0E) as _, &raw mut values)
        };
        check(i64::from(answer), || "GPIO_V2_LINE_GET_VALUES".to_owned())?;
        Ok(values.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_kernel_s_sizes() {
        // From linux/gpio.h: they are part of the ioctl's numbers, so a wrong one is ENOTTY.
        assert_eq!((size_of::<Request>(), size_of::<Values>()), (592, 16));
        assert_eq!(both_ways::<Request>(0x07), 0xC250_B407);
        assert_eq!(both_ways::<Values>(0x0E), 0xC010_B40E);
    }

    #[test]
    fn what_is_no_chip_is_named() {
        let said = Inputs::open(Path::new("/dev/null"), 1).expect_err("no chip").to_string();
        assert!(said.contains("GPIO_V2_GET_LINE of /dev/null"), "{said}");
    }
}
