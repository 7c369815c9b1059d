//! Marks: instructions that do nothing, and that an emulator's plugin sees.
//!
//! A mark carries two numbers. A plugin sees each instruction's bytes and the address of each load, but no register.
//! So the low byte of an address that is loaded from carries a byte of the numbers.
//!
//! On hardware a mark takes as long as 100 ordinary instructions. It calls nothing and changes nothing.

/// A byte of an address must not depend on where the table lies.
#[repr(align(256))]
struct Table([u8; 256]);

static TABLE: Table = Table([0; 256]);

/// Bytes of a mark's numbers.
const BYTES: u32 = 16;

/// Shows an emulator's plugin two numbers, and does nothing else. Each byte, the lowest of the first number before the
/// others, is a load that no compiler makes: `mov 0x6d747273(%rax), %al` on x86-64, `ldrb wzr, [x9, #0x6d7]` on arm64. It is
/// one instruction, because a plugin sees neighbours apart that lie on two pages. On other processors it does nothing at
/// all.
#[cold]
#[inline(never)]
pub fn mark(first: u64, second: u64) {
    let mut left = u128::from(first) | u128::from(second) << 64;
    for _ in 0..BYTES {
        show(left as u8);
        left >>= 8;
    }
}

#[inline]
fn show(byte: u8) {
    let at = &raw const TABLE.0[usize::from(byte)];
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads one byte of a table that lives as long as the program.
    unsafe {
        std::arch::asm!(
            "mov al, byte ptr [rax + 0x6d747273]",
            inout("rax") at.wrapping_sub(0x6d74_7273) => _,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "ldrb wzr, [x9, #0x6d7]",
            inout("x9") at.wrapping_sub(0x6d7) => _,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_byte_of_an_address_is_the_byte() {
        for byte in [0_u8, 1, 127, 255] {
            let at = &raw const TABLE.0[usize::from(byte)];
            assert_eq!(at as usize & 0xff, usize::from(byte));
        }
        mark(u64::MAX, 7);
    }
}
