//! Marks: instructions that do nothing, and that an emulator's plugin sees.
//!
//! A mark carries two numbers. A plugin sees each instruction's bytes and the address of each load, but no register.
//! So the low byte of an address that is loaded from carries a byte of the numbers, and the four bits above say which.
//!
//! On hardware a mark takes as long as some dozens of ordinary instructions. It calls nothing and changes nothing.

/// Bytes of a mark's numbers.
const BYTES: usize = 16;

/// Its lowest address ends in 12 bits of 0.
#[repr(align(4096))]
struct Table([u8; BYTES << 8]);

static TABLE: Table = Table([0; BYTES << 8]);

/// Shows an emulator's plugin two numbers, and does nothing else. Each byte, the lowest of the first number before the
/// others, is a load that nobody else makes: `mov 0x6d747273(%rax), %al` on x86-64, `ldrb wzr, [x9, #0x6d7]` on arm64. It
/// is one instruction, because an emulator translates two apart where a page ends between them. On other processors it
/// does nothing at all.
#[cold]
#[inline(never)]
pub fn mark(first: u64, second: u64) {
    let bytes = [first.to_le_bytes(), second.to_le_bytes()];
    for (nth, byte) in bytes.iter().flatten().enumerate() {
        show(nth, *byte);
    }
}

#[inline]
fn show(nth: usize, byte: u8) {
    let at = &raw const TABLE.0[nth << 8 | usize::from(byte)];
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
    fn an_address_ends_in_the_byte_and_its_number() {
        for (nth, byte) in [(0, 0_u8), (0, 255), (9, 1), (15, 127)] {
            let at = &raw const TABLE.0[nth << 8 | usize::from(byte)];
            assert_eq!(at as usize & 0xfff, nth << 8 | usize::from(byte));
        }
        mark(u64::MAX, 7);
    }
}
