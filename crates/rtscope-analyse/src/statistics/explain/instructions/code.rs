//! What an instruction of x86-64 does with the flow of control, by its bytes.

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// To the next instruction, or by a jump.
    On,
    /// Into a function; its address where the instruction has it.
    Call(Option<u64>),
    /// Out of a function.
    Return,
    /// Out of an interrupt.
    InterruptReturn,
    /// From a program into the kernel.
    SystemCall,
    /// From the kernel into a program.
    SystemReturn,
}

/// An instruction without its prefixes.
fn bare(bytes: &[u8]) -> &[u8] {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x66 | 0xf2 | 0xf3);
    let start = bytes.iter().position(|byte| !is_prefix(byte)).unwrap_or(bytes.len());
    &bytes[start..]
}

/// Where control goes after the instruction at an address.
pub(super) fn flow(address: u64, bytes: &[u8]) -> Flow {
    match bare(bytes) {
        [0xe8, offset @ ..] => {
            let offset = offset.try_into().ok().map(i32::from_le_bytes);
            let next = address.wrapping_add(bytes.len() as u64);
            Flow::Call(offset.map(|offset| next.wrapping_add_signed(offset.into())))
        }
        // The middle bits of the second byte are the operation: 2 and 3 are calls.
        [0xff, kind, ..] if matches!(kind >> 3 & 7, 2 | 3) => Flow::Call(None),
        [0xc2 | 0xc3, ..] => Flow::Return,
        [0xcf] => Flow::InterruptReturn,
        [0x0f, 0x05] => Flow::SystemCall,
        [0x0f, 0x07] => Flow::SystemReturn,
        _ => Flow::On,
    }
}

/// Whether an instruction reads the time-stamp counter.
pub(super) fn reads_clock(bytes: &[u8]) -> bool {
    matches!(bare(bytes), [0x0f, 0x31] | [0x0f, 0x01, 0xf9])
}

/// Whether an instruction waits for an interrupt.
pub(super) fn halts(bytes: &[u8]) -> bool {
    bare(bytes) == [0xf4]
}

/// Whether an instruction switches interrupts off (true) or on (false), where that can be seen.
pub(super) fn masks_interrupts(bytes: &[u8]) -> Option<bool> {
    match bare(bytes) {
        [0xfa] => Some(true),
        [0xfb] => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_returns_are_known_with_and_without_prefixes() {
        // By an assembler: call to the next instruction, to one 16 bytes before, *%r11, *0x10(%rax).
        assert_eq!(flow(0x1000, &[0xe8, 0, 0, 0, 0]), Flow::Call(Some(0x1005)));
        assert_eq!(flow(0x1000, &[0xe8, 0xeb, 0xff, 0xff, 0xff]), Flow::Call(Some(0xff0)));
        assert_eq!(flow(0x1000, &[0x2e, 0xe8, 0, 0, 0, 0]), Flow::Call(Some(0x1006)));
        assert_eq!(flow(0, &[0x41, 0xff, 0xd3]), Flow::Call(None));
        assert_eq!(flow(0, &[0xff, 0x50, 0x10]), Flow::Call(None));
        // jmp *%rax and push (%rax) begin alike.
        assert_eq!(flow(0, &[0xff, 0xe0]), Flow::On);
        assert_eq!(flow(0, &[0xff, 0x30]), Flow::On);
        assert_eq!(flow(0, &[0xf3, 0xc3]), Flow::Return);
        assert_eq!(flow(0, &[0x48, 0xcf]), Flow::InterruptReturn);
        assert_eq!(flow(0, &[0x48, 0x0f, 0x07]), Flow::SystemReturn);
        assert_eq!(flow(0, &[0x0f, 0x1f, 0]), Flow::On);
        assert!(reads_clock(&[0x0f, 0x31]) && reads_clock(&[0x0f, 0x01, 0xf9]));
        assert!(halts(&[0xf4]) && !halts(&[0x0f, 0xf4]));
        assert_eq!(masks_interrupts(&[0xfa]), Some(true));
        assert_eq!(masks_interrupts(&[]), None);
    }
}
